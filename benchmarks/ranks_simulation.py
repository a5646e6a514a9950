"""Tabulates what the schedule over ranks predicts for up to 1024 ranks: benchmarks/ranks_simulation.py FA FOLDER

Calls `FA plan ... --ranks` for strong and weak scaling, both cuts and four networks. Writes ranks.md with its plots
into FOLDER. Nothing is measured: all times come from the model of the schedule (docs/ranks.md).
"""

import json
import os
import subprocess
import sys

from drawing import legend_above, plt

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NETWORKS = (1.25, 5, 12.5, 50)  # in GB/s; these are 10, 40, 100 and 400 Gbit/s
CUTS = ("zigzag", "contiguous")
CORES, ISA = 64, "avx512"
HEADS, HEADS_KV, D = 32, 8, 128
STRONG_ROWS, WEAK_ROWS = 1 << 20, 1 << 14
OPERATIONS = ("forward", "backward")
USUAL = 12.5
# The tables show only these numbers of ranks. The plots show all.
TABLE_RANKS = RANKS[::2]
TABLE_COLUMNS = (("zigzag", 1.25), ("zigzag", USUAL), ("zigzag", 50), ("contiguous", USUAL))
SCALINGS = {"strong": f"strong scaling, S = {STRONG_ROWS // 1024}K rows",
            "weak": f"weak scaling, {WEAK_ROWS // 1024}K rows per rank"}


def rows_of(scaling, ranks):
    return STRONG_ROWS if scaling == "strong" else WEAK_ROWS * ranks


def plan(fa, operation, scaling, ranks, cut, network):
    """@return the schedule as JSON, or None if this fa cannot run the operation over ranks"""
    rows = rows_of(scaling, ranks)
    words = [fa, "plan", operation, "--shape", f"1,{HEADS},{HEADS_KV},{rows},{rows},{D}", "--causal", "--dtype", "bf16",
             "--cores", str(CORES), "--isa", ISA, "--ranks", str(ranks), "--cut", cut, "--network", str(network),
             "--json"]
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode == 0:
        return json.loads(ran.stdout)
    if "unknown option --ranks" in ran.stderr or "not there yet" in ran.stderr:
        return None
    raise SystemExit(f"{' '.join(words)}: {ran.stderr}")


def simulate(fa):
    """@return {(operation, scaling, ranks, cut, network): facts of the busiest rank}"""
    facts = {}
    for operation in OPERATIONS:
        for scaling in SCALINGS:
            for ranks in RANKS:
                for cut in CUTS:
                    for network in NETWORKS:
                        schedule = plan(fa, operation, scaling, ranks, cut, network)
                        if schedule is None:
                            continue
                        facts[operation, scaling, ranks, cut, network] = {
                            "seconds": schedule["seconds"],
                            "efficiency": schedule["efficiency"],
                            "hidden": schedule["hidden"],
                            "strategy": schedule["strategy"],
                            "received": max(rank["received_bytes"] for rank in schedule["of_rank"]),
                            "staged": max(rank["staged_bytes"] for rank in schedule["of_rank"]),
                        }
    return facts


def table(facts, operation, scaling):
    """Returns a table of efficiencies, one row per number of ranks and one column per pair of TABLE_COLUMNS."""
    lines = ["| ranks | seconds | strategy | received, GiB | staged, GiB | "
             + " | ".join(f"{cut}, {network:g} GB/s" for cut, network in TABLE_COLUMNS) + " |",
             "|---:" * 2 + "|---" + "|---:" * (2 + len(TABLE_COLUMNS)) + "|"]
    for ranks in TABLE_RANKS:
        usual = facts[operation, scaling, ranks, "zigzag", USUAL]
        cells = [f"{100 * facts[operation, scaling, ranks, cut, network]['efficiency']:.1f} %"
                 for cut, network in TABLE_COLUMNS]
        lines.append(f"| {ranks} | {usual['seconds']:.3g} | {usual['strategy']} | {usual['received'] / 2**30:.2f} "
                     f"| {usual['staged'] / 2**30:.2f} | " + " | ".join(cells) + " |")
    return lines


def report(facts, plots):
    lines = ["# One call over ranks, predicted to 1024 of them", "",
             "Written by benchmarks/ranks_simulation.py; nothing here was measured. The schedule's model "
             "([ranks.md](../ranks.md#what-is-predicted)) is asked for a causal call in bf16 with "
             f"{HEADS} query heads on {HEADS_KV} kv heads of {D}. A rank has {CORES} cores of level {ISA}, each with half of "
             "the multiply-adds of 2 GHz (64 GFLOP/s), and a message takes 5 µs.", "",
             "A percentage is the share of all ranks' time that passes in products. Seconds, strategy and bytes are of the "
             f"zigzag cut at {USUAL} GB/s, bytes of the busiest rank. The contiguous cut is even as long as the plan chooses "
             "`heads`: up to as many ranks as there are kv heads. In a backward "
             "[the sums travel](../ranks.md#the-schedule-of-sums): the fewer kv heads are in flight, the more ranks wait. "
             "Staged rows may take 512 MiB per thread, so longer sequences have fewer heads in flight.", ""]
    for operation in OPERATIONS:
        for scaling, words in SCALINGS.items():
            if (operation, scaling, 1, CUTS[0], USUAL) not in facts:
                continue
            lines += [f"## {operation.capitalize()}, {words}", ""]
            if (operation, scaling) in plots:
                lines += [f"![Efficiency against ranks]({plots[operation, scaling]})", ""]
            lines += [*table(facts, operation, scaling), ""]
    return "\n".join(lines)


def draw(facts, folder):
    """Draws the plots. @return {(operation, scaling): file name}"""
    colors = dict(zip(NETWORKS, ("#e4572e", "#e69f00", "#4f86c6", "#0b6e4f")))
    plots = {}
    for operation in OPERATIONS:
        for scaling, words in SCALINGS.items():
            if (operation, scaling, 1, CUTS[0], USUAL) not in facts:
                continue
            figure, axes = plt.subplots(1, len(CUTS), figsize=(10, 3.4), dpi=110, sharey=True)
            for panel, cut in zip(axes, CUTS):
                for network in NETWORKS:
                    points = [100 * facts[operation, scaling, ranks, cut, network]["efficiency"] for ranks in RANKS]
                    panel.plot(RANKS, points, marker="o", markersize=3, color=colors[network])
                panel.set(xscale="log", xlabel="ranks of 64 cores", ylim=(0, 104))
                panel.set_title(f"{operation}, {words}, causal, {cut}", loc="left", fontsize=10)
                panel.set_xticks(RANKS, [str(ranks) for ranks in RANKS], fontsize=8)
                panel.minorticks_off()
                panel.spines[["top", "right"]].set_visible(False)
                panel.grid(axis="y", color="#e6e6e6")
            axes[0].set_ylabel("efficiency, %, predicted")
            lines = [plt.Line2D([], [], color=color, marker="o", markersize=3) for color in colors.values()]
            legend_above(figure, lines, [f"network of {network:g} GB/s" for network in NETWORKS])
            plots[operation, scaling] = f"ranks_{operation}_{scaling}.png"
            figure.savefig(os.path.join(folder, plots[operation, scaling]))
            plt.close(figure)
    return plots


def main(words):
    if len(words) != 2:
        raise SystemExit(__doc__)
    if plt is None:
        sys.exit("ranks_simulation: plots need matplotlib")
    fa, folder = words
    facts = simulate(fa)
    with open(os.path.join(folder, "ranks.md"), "w", encoding="utf-8") as file:
        file.write(report(facts, draw(facts, folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
