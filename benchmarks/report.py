#!/usr/bin/env python3
"""Tables and plots of what compare.py measured.

    report.py build/benchmarks/results.json docs/benchmarks

Writes README.md and .png files into a folder in docs/benchmarks that is named by the CPU, with a copy of the results, and
the list of all CPUs, docs/benchmarks/README.md. Plots need matplotlib.
"""

import argparse
import os
import shutil
import sys

import index
import machine
import peer_facts
import plots
import results as store
from cases import DECODE, SHAPES, headline
from drawing import plt
from results import NAMES, chosen, entries_of, fraction, peers_of


def table(header, rows):
    """A Markdown table: the first column is left-aligned, the others right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def rate_text(entry, name):
    """Best and median in GFLOP/s; for a peer without a figure, whether its result was wrong."""
    best, middle = store.gflops(entry, name), store.gflops(entry, name, "median")
    if best is None:
        return "wrong" if "wrong" in entry["peers"].get(name, {}) else "–"
    return f"{best:.0f} ({middle:.0f})"


def ratio_text(entry):
    ratio = store.ratio_to_best(entry)
    return f"{ratio:.2f}" if ratio else "–"


def shape_text(case):
    heads = f"{case.heads}" if case.heads == case.heads_kv else f"{case.heads}/{case.heads_kv}"
    return f"{case.shape}: B {case.batch}, N {heads}, S {case.sq}, D {case.d}"


def rates_table(pairs):
    """GFLOP/s of kept work, shape by shape."""
    names = peers_of(pairs)
    header = ["shape", "mask", "fa", "of peak", *(NAMES[name] for name in names if name != "fa"), "fa / best other"]
    rows = []
    for case, entry in pairs:
        others = [rate_text(entry, name) for name in names if name != "fa"]
        rows.append([shape_text(case), case.mask, rate_text(entry, "fa"), f"{100 * fraction(entry):.0f} %", *others,
                     ratio_text(entry)])
    return table(header, rows)


def headline_table(results, threads):
    """A few cells of all tables, for a README."""
    lines = [("forward", "f32", "full"), ("forward", "f32", "causal"), ("forward", "bf16", "full"),
               ("forward", "bf16", "causal"), ("backward", "f32", "full"), ("backward", "f32", "causal"),
               ("backward", "bf16", "full")]
    picks = []
    for operation, dtype, mask in lines:
        pairs = chosen(results, operation=operation, dtype=dtype, mask=mask, shape=("B",), threads=threads)
        picks += [(f"{operation} {dtype}, {mask}", entry) for _, entry in pairs]
    names = peers_of([(None, entry) for _, entry in picks])
    header = ["B 1, N 16, S 2048, D 128", *(NAMES[name] for name in names), "fa of peak"]
    rows = []
    for title, entry in picks:
        rates = [store.gflops(entry, name) for name in names]
        rows.append([title, *(f"{rate:.0f}" if rate else "–" for rate in rates), f"{100 * fraction(entry):.0f} %"])
    return table(header, rows)


def decode_table(pairs):
    """Milliseconds per step, with the share of the rate of reading that peer's keys and values, and how fast fa read."""
    names = peers_of(pairs)
    header = ["type", *(f"{NAMES[name]}, ms" for name in names), "fa: K and V, GB/s", "read at up to, GB/s"]
    rows = []
    for case, entry in pairs:
        own = case.key_value_bytes() / store.seconds(entry, "fa") * 1e-9
        best = entry["peers"]["fa"].get("read_gbytes")
        rows.append([f"{case.dtype}, {case.threads} threads", *(step_text(entry, name) for name in names), f"{own:.1f}",
                     f"{best:.1f}" if best else "–"])
    return table(header, rows)


def decode_text(pairs):
    """What the shares in decode_table are of."""
    if any("read_fraction" in peer for _, entry in pairs for peer in entry["peers"].values()):
        return ("In brackets: of the rate at which as many threads read that peer's own keys and values right before and after its "
                "calls, the median over the rounds.")
    return "The rate of reading memory was not measured around these calls."


def step_text(entry, name):
    """Milliseconds of a peer's best call and its share of the read rate, where that was measured around the timing."""
    time, share = store.seconds(entry, name), entry["peers"].get(name, {}).get("read_fraction")
    if time is None:
        return "–"
    return f"{1e3 * time:.1f}" + (f" ({100 * share:.0f} %)" if share else "")


def milliseconds_table(pairs):
    """Time against S, mask by mask."""
    names = peers_of(pairs)
    rows = []
    for case, entry in pairs:
        times = [store.seconds(entry, name) for name in names]
        rows.append([f"{case.sq}, {case.mask}", *(f"{1e3 * time:.2f}" if time else "–" for time in times),
                     f"{store.gflops(entry, 'fa'):.0f}"])
    return table(["S, mask", *(f"{NAMES[name]}, ms" for name in names), "fa, GFLOP/s"], rows)


def scaling_rows(results):
    """(case at n threads, entry at n, entry at 1) of the cases that were measured with one thread and with more."""
    for case, entry in entries_of(results):
        if case.threads == 1:
            continue
        alone = [one for other, one in entries_of(results) if other.threads == 1 and
                 other.key.rsplit("/", 1)[0] == case.key.rsplit("/", 1)[0]]
        if alone:
            yield case, entry, alone[0]


def scaling_table(results):
    """How much faster n threads are than one, and how much faster the peak is."""
    rows = []
    for case, entry, alone in scaling_rows(results):
        own = store.gflops(entry, "fa") / store.gflops(alone, "fa")
        peak = entry["peak_gflops"] / alone["peak_gflops"]
        rows.append([case.key.rsplit("/", 1)[0], str(case.threads), f"{own:.2f}", f"{peak:.2f}", f"{own / peak:.2f}"])
    return table(["case", "threads", "fa against 1 thread", "peak against 1 thread", "ratio"], rows)


def operators_table(operators):
    """Rates of fa and of PyTorch in chunks."""
    rows = []
    for key, entry in operators.items():
        name, dtype, threads = key.rsplit("/", 2)
        if "by" not in entry:
            rows.append([name, dtype, threads, "–", "wrong" if "wrong" in entry else "–", "–", "–"])
            continue
        rates = {by: [entry["work"] / entry["by"][by][which] * 1e-9 for which in ("best", "median")] for by in ("fa", "torch")}
        texts = [f"{best:.{1 if best < 100 else 0}f} ({middle:.{1 if best < 100 else 0}f})" for best, middle in rates.values()]
        rows.append([name, dtype, threads, entry["unit"], *texts, f"{rates['fa'][0] / rates['torch'][0]:.2f}"])
    return table(["operator", "type", "threads", "unit", "fa", "PyTorch in chunks", "fa / PyTorch"], rows)


# A share of one CPU that other programs may take before a table says so; compare.py and operators.py allow it by default.
QUIET = 0.1


def noise_text(operators):
    """What other programs took while the operators were measured, where that was much; else nothing."""
    most = max((entry.get("foreign", 0) for entry in operators.values()), default=0)
    return "" if most <= QUIET else (
        f" Other programs took up to {most:.1f} CPUs in rounds that count: the best of many calls in turn is compared, and the "
        "medians say little.")


def checks_text(results):
    """What the check against double found, peer by peer."""
    worst, wrong = {}, []
    for key, entry in results["cases"].items():
        for name, peer in entry["peers"].items():
            if "share_of_bound" in peer:
                worst[name] = max(worst.get(name, 0), peer["share_of_bound"])
            if "wrong" in peer:
                wrong.append(f"- {key}: {NAMES[name]}, {peer['wrong']}")
    shares = ", ".join(f"{NAMES[name]} {worst[name]:.2f}" for name in NAMES if name in worst)
    text = ("Rows of every result were compared with double before it was timed. The largest share of the rounding "
            f"bound that an error took: {shares}.")
    return text + ("\n\nNot timed, because the result was wrong:\n\n" + "\n".join(sorted(wrong)) if wrong else "")


def machine_text(results):
    of = results["machine"]
    dates = sorted({entry["date"] for entry in results["cases"].values()})
    peers = [peer for entry in results["cases"].values() for peer in entry["peers"].values()]
    counted, rejected = (sum(peer.get(what, 0) for peer in peers) for what in ("rounds", "rejected"))
    versions = ", ".join(peer_facts.build_text(name, about) for name in NAMES if (about := results["versions"].get(name)))
    day = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (f"{machine.text_of(of)}, {of['cpus']} CPUs, {of['memory_gb']} GB, {of['system']}; "
            f"{', '.join(of['instructions'])}. {versions}. {day}. {counted} rounds count, {rejected} were thrown "
            "away because other programs were busy.")


def missing_text(results, threads):
    """Which cases of the headline have no figures, and why, or None."""
    missing = [case for case in headline(threads) if case.key not in results["cases"]]
    if not missing:
        return None
    given_up = results.get("given_up", {})
    tried = [case for case in missing if case.key in given_up]
    texts = (("Not measured yet", [case for case in missing if case not in tried]),
             ("Tried and given up, because other programs were busy or a peer failed", tried))
    return "\n\n".join(f"{text}:\n\n{shapes_of(cases)}" for text, cases in texts if cases)


def shapes_of(cases):
    """A list with a line per operation, type and mask."""
    rows = {}
    for case in cases:
        rows.setdefault((case.operation, case.dtype, case.mask), []).append(case.shape)
    return "\n".join(f"- {operation} {dtype}, {mask}: {', '.join(shapes)}"
                     for (operation, dtype, mask), shapes in rows.items())


def sections_of(results):
    """The sections of the page as (title, text) pairs."""
    most = max(case.threads for case, _ in entries_of(results))
    yield f"Headline, {most} threads, GFLOP/s", headline_table(results, most)
    shapes = tuple(name for name in SHAPES if name != DECODE)
    for threads in sorted({case.threads for case, _ in entries_of(results)}, reverse=True):
        for operation in ("forward", "backward"):
            for dtype in ("f32", "bf16", "f16"):
                pairs = chosen(results, operation=operation, dtype=dtype, threads=threads, shape=shapes)
                if pairs:
                    title = f"{operation.capitalize()}, {dtype}, {threads} {'threads' if threads > 1 else 'thread'}"
                    yield title, "GFLOP/s of kept work, best (median).\n\n" + rates_table(pairs)
    decode = chosen(results, shape=DECODE)
    if decode:
        case = decode[0][0]
        yield (f"Decode: B {case.batch}, N {case.heads}/{case.heads_kv}, one row against {case.sk} keys of {case.d}",
               decode_text(decode) + "\n\n" + decode_table(decode))
    lengths = [pair for pair in entries_of(results) if pair[0].shape not in SHAPES and pair[0].threads == most]
    if lengths:
        yield f"Cost against S: forward, f32, 2 heads of 128, {most} threads", milliseconds_table(lengths)
    if any(True for _ in scaling_rows(results)):
        yield "Threads", scaling_table(results)
    if operators := results.get("operators"):
        yield "Other operators", (
            "Best (median). No library has these as one call; benchmarks/operator_cases.py has them in PyTorch, cut into chunks "
            "of the size that was the fastest in a trial, with MKL unlocked on AMD." + noise_text(operators) + "\n\n" +
            operators_table(operators))
    if text := peer_facts.peers_text(results):
        yield "Peers", text
    yield "Checks", checks_text(results)
    if text := missing_text(results, most):
        yield "Not measured", text


PLOTS = {
    "forward.png": "Forward: percent of the machine's peak by shape, of fa, PyTorch and the best other peer; figures are the "
                   "ratio of fa to the fastest peer",
    "backward.png": "Backward: percent of the machine's peak by shape, with the same figures",
    "roofline.png": "Roofline: the rates of fa and of the fastest peer of each case below the machine's limits",
    "lengths.png": "Time of the peers over that of fa, against S",
    "threads.png": "Percent of the peak of as many threads, against threads",
}


def document(results, drawn):
    """The text of the page. @param drawn  names of the files of the plots"""
    parts = [f"# fa and its peers: {machine.text_of(results['machine'])}",
             "Written by benchmarks/report.py; [benchmarks/README.md](../../../benchmarks/README.md) says how it is "
             "measured and how to repeat it.",
             machine_text(results)]
    parts += [f"![{text}]({name})" for name, text in PLOTS.items() if name in drawn]
    for title, text in sections_of(results):
        parts += [f"## {title}", text]
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("folder", help="that of all CPUs")
    parser.add_argument("--name", help="of the CPU's folder, where two machines with CPUs of one name are kept apart")
    parser.add_argument("--tables-only", action="store_true", help="no plots, no matplotlib")
    args = parser.parse_args()
    results = store.load(args.results)
    if not results["cases"]:
        sys.exit(f"report: {args.results} has no cases")
    if plt is None and not args.tables_only:
        sys.exit("report: plots need matplotlib; --tables-only does without")
    folder = os.path.join(args.folder, args.name or machine.folder_of(results["machine"]))
    copy = os.path.join(folder, "results.json")
    there = store.load(copy)
    if there["cases"] and not machine.is_same(there["machine"], results["machine"]):
        sys.exit(f"report: {copy} has results of another machine; choose a name with --name")
    os.makedirs(folder, exist_ok=True)
    drawn = [] if args.tables_only else plots.draw_all(results, folder)
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
        file.write(document(results, drawn))
    if os.path.abspath(copy) != os.path.abspath(args.results):
        shutil.copyfile(args.results, copy)
    index.write(args.folder)


if __name__ == "__main__":
    main()
