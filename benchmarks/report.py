#!/usr/bin/env python3
"""Makes tables and plots of the results of compare.py.

    report.py build/benchmarks/results.json docs/benchmarks

Each CPU has a folder in docs/benchmarks. This program writes README.md, .png files and a copy of the results into the
folder of the CPU. It also writes docs/benchmarks/README.md, the list of all CPUs. Plots need matplotlib.
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
    """Returns a Markdown table. The first column is left-aligned, the others are right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def shape_text(case, most):
    heads = f"{case.heads}" if case.heads == case.heads_kv else f"{case.heads}/{case.heads_kv}"
    threads = "" if case.threads == most else f", {counted(case.threads)}"
    return f"{case.shape}: B {case.batch}, N {heads}, S {case.sq}, D {case.d}, {case.mask}{threads}"


def rate_text(entry):
    """Returns the GFLOP/s of fa's best call as text, with the fraction of the peak and the ratio to the fastest
    peer."""
    rate, ratio = store.gflops(entry, "fa"), store.ratio_to_best(entry)
    if rate is None:
        return "–"
    return f"{rate:.0f}, {100 * fraction(entry):.0f} %" + (f", {ratio:.2f}" if ratio else "")


def rates_table(results, most):
    """Returns a table with a row per shape, mask and number of threads, and a column per operation and type."""
    pairs = [pair for pair in entries_of(results) if pair[0].shape in SHAPES and pair[0].shape != DECODE]
    columns = [(operation, dtype) for operation in ("forward", "backward") for dtype in ("f32", "bf16", "f16")
               if any((case.operation, case.dtype) == (operation, dtype) for case, _ in pairs)]
    rows = {}
    for case, entry in sorted(pairs, key=lambda pair: -pair[0].threads):
        rows.setdefault(shape_text(case, most), {})[case.operation, case.dtype] = rate_text(entry)
    header = ["shape, mask", *(f"{operation} {dtype}" for operation, dtype in columns)]
    return table(header, [[title, *(cells.get(column, "–") for column in columns)] for title, cells in rows.items()])


def headline_table(results, threads):
    """Returns a short table for a README, with a few cells of the other tables."""
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
    """Returns a table of decodes: each peer's milliseconds per step, the fraction of the peer's read rate that a step
    reaches, and fa's read rates.
    """
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
    """Returns the text that explains the shares in decode_table."""
    if any("read_fraction" in peer for _, entry in pairs for peer in entry["peers"].values()):
        return ("In brackets: the share of the rate at which as many threads read that peer's keys and values around its calls, "
                "the median over the rounds.")
    return "The rate of reading memory was not measured around these calls."


def step_text(entry, name):
    """Returns the milliseconds of a peer's best call, and its share of the read rate if that was measured."""
    time, share = store.seconds(entry, name), entry["peers"].get(name, {}).get("read_fraction")
    if time is None:
        return "–"
    return f"{1e3 * time:.1f}" + (f" ({100 * share:.0f} %)" if share else "")


def operators_table(operators, most):
    """Returns a table with a row per operator and a column per type. A cell has fa's rate, and this rate divided by
    that of PyTorch in chunks."""
    types = sorted({key.rsplit("/", 2)[1] for key in operators}, reverse=True)
    rows = {}
    for key, entry in operators.items():
        name, dtype, threads = key.rsplit("/", 2)
        title = name if int(threads) == most else f"{name}, {counted(int(threads))}"
        title += ", CPU time" if entry.get("clock") == "cpu" else ""
        rows.setdefault(title, {})[dtype] = operator_text(entry)
    return table(["operator", *types], [[title, *(cells.get(dtype, "–") for dtype in types)] for title, cells in rows.items()])


def operator_text(entry):
    if "by" not in entry:
        return "wrong" if "wrong" in entry else "–"
    own, other = (entry["work"] / entry["by"][by]["best"] * 1e-9 for by in ("fa", "torch"))
    return f"{own:.{1 if own < 100 else 0}f} {entry['unit']}, {own / other:.2f}"


def compressed_table(entries):
    """Returns a table with a row per cache and a column per case. @param entries  the entries that compressed_keys.py
    has written
    """
    columns = {key: entry for key, entry in sorted(entries.items()) if "by" in entry}
    sides = dict.fromkeys(side for entry in columns.values() for side in entry["bytes"])
    header = ["cache", *(f"{key.rsplit('/', 1)[0]}, {counted(entry['threads'])}" for key, entry in columns.items())]
    rows = [[side, *(cache_text(entry, side) for entry in columns.values())] for side in sides]
    if all(entry["clock"] == "wall" for entry in columns.values()):  # because the read rate is measured in wall time
        rows.append(["bf16, only read", *(cache_text(entry, None) for entry in columns.values())])
    return table(header, rows)


def counted(threads):
    return f"{threads} {'threads' if threads > 1 else 'thread'}"


def clock_text(entries):
    """Returns a sentence if times are CPU times, and otherwise an empty text."""
    return " Times are CPU time." if any(entry.get("clock") == "cpu" for entry in entries.values()) else ""


def cache_text(entry, side):
    """Returns the milliseconds of a side's best call, and how many times as fast as fa's call with bf16 it is. If
    `side` is None, the time is that of only reading the bf16 keys and values.
    """
    if side in entry["wrong"]:
        return "wrong"
    own, best = (entry["by"].get(name, {}).get("best") for name in ("fa bf16", side))
    if side is None:
        best = entry["bytes"]["fa bf16"] / entry["read_gbytes"] * 1e-9
    return f"{1e3 * best:.1f} ({own / best:.2f})" if best else "–"


# If other programs took a larger share of one CPU than this, the table gets a note. By default compare.py and
# the other programs accept rounds up to this share.
QUIET = 0.1


def noise_text(operators):
    """Returns a note on the CPU time that other programs took while the operators were measured, if it was much."""
    most = max((entry.get("foreign", 0) for entry in operators.values()), default=0)
    return "" if most <= QUIET else (
        f" Other programs took up to {most:.1f} CPUs in rounds that count: the best of many calls in turn is compared, and the "
        "medians say little.")


def checks_text(results):
    """Returns a sentence on the largest errors that the comparison with double found."""
    worst, wrong = {}, []
    for key, entry in results["cases"].items():
        for name, peer in entry["peers"].items():
            if "share_of_bound" in peer:
                who = "fa" if name == "fa" else "others"
                worst[who] = max(worst.get(who, 0), peer["share_of_bound"])
            if "wrong" in peer:
                wrong.append(f"- {key}: {NAMES[name]}, {peer['wrong']}")
    shares = ", ".join(f"{share:.2f} ({who})" for who, share in sorted(worst.items()))
    text = (f"Rows of every result were compared with double before it was timed. The largest share of the rounding bound that "
            f"an error took: {shares}.")
    return text + ("\n\nNot timed, because the result was wrong:\n\n" + "\n".join(sorted(wrong)) if wrong else "")


def machine_text(results):
    of = results["machine"]
    dates = sorted({entry["date"] for entry in results["cases"].values()})
    peers = [peer for entry in results["cases"].values() for peer in entry["peers"].values()]
    counted, rejected = (sum(peer.get(what, 0) for peer in peers) for what in ("rounds", "rejected"))
    versions = "; ".join(peer_facts.build_text(name, about) for name in NAMES
                         if name != "fa" and (about := results["versions"].get(name)))
    day = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (f"All figures are of fa {results['versions']['fa']['version']}, measured {day} on {machine.text_of(of)}, {of['cpus']} "
            f"CPUs, {of['memory_gb']} GB, {of['system']} ({', '.join(of['instructions'])})"
            f"{', next to ' + versions if versions else ''}. {counted} rounds count, {rejected} were thrown away because other "
            "programs were busy.")


def missing_text(results, threads):
    """Returns which headline cases have no figures, and why. Returns None if all have figures."""
    missing = [case for case in headline(threads) if case.key not in results["cases"]]
    if not missing:
        return None
    given_up = results.get("given_up", {})
    tried = [case for case in missing if case.key in given_up]
    texts = (("Not measured yet", [case for case in missing if case not in tried]),
             ("Tried and given up, because other programs were busy or a peer failed", tried))
    return "\n\n".join(f"{text}:\n\n{shapes_of(cases)}" for text, cases in texts if cases)


def shapes_of(cases):
    """Returns a list with a line per operation, type and mask."""
    rows = {}
    for case in cases:
        rows.setdefault((case.operation, case.dtype, case.mask), []).append(case.shape)
    return "\n".join(f"- {operation} {dtype}, {mask}: {', '.join(shapes)}"
                     for (operation, dtype, mask), shapes in rows.items())


def sections_of(results):
    """Returns the sections of the page as (title, text) pairs."""
    most = max(case.threads for case, _ in entries_of(results))
    yield f"Every peer: GFLOP/s on {most} threads", headline_table(results, most)
    yield "Every shape", (
        f"A cell has GFLOP/s of fa's best call on {most} threads, unless the row says otherwise, its share of the peak, and how "
        "many times the rate of the fastest peer that is.\n\n" + rates_table(results, most))
    decode = chosen(results, shape=DECODE)
    if decode:
        case = decode[0][0]
        yield (f"Decode: B {case.batch}, N {case.heads}/{case.heads_kv}, one row against {case.sk} keys of {case.d}",
               decode_text(decode) + "\n\n" + decode_table(decode))
    if operators := results.get("operators"):
        yield "Other operators", (
            "A cell has the rate of fa's best call, and how many times the rate of PyTorch's chunks that is "
            "(benchmarks/operators.py): libraries have no operators for most of these." + noise_text(operators) + "\n\n" +
            operators_table(operators, most))
    if compressed := results.get("compressed"):
        yield "Decode with compressed keys and values: N 32/8, one row, D 128", (
            "Milliseconds of a cache's best call. In brackets: how many times as fast as fa's call with bf16 it is "
            "(benchmarks/compressed_keys.py)." + clock_text(compressed) + noise_text(compressed) + "\n\n" + compressed_table(compressed))
    yield "Checks", checks_text(results)
    if text := "\n\n".join(filter(None, (peer_facts.left_out_text(results), missing_text(results, most)))):
        yield "What is missing", text


PLOTS = {
    "forward.png": "Forward: percent of the machine's peak by shape, of fa, PyTorch and the best other peer; figures are the "
                   "ratio of fa to the fastest peer",
    "backward.png": "Backward: percent of the machine's peak by shape, with the same figures",
    "roofline.png": "Roofline: the rates of fa and of the fastest peer of each case below the machine's limits",
    "lengths.png": "Time of the peers over that of fa, against S",
    "threads.png": "Percent of the peak of as many threads, against threads",
}


def document(results, drawn):
    """Returns the text of the page. @param drawn  names of the plots' files"""
    more = ", `benchmarks/compressed_keys.py`" if results.get("compressed") else ""
    parts = [f"# fa and its peers: {machine.text_of(results['machine'])}",
             f"`benchmarks/compare.py --set headline,lengths,scaling`, `benchmarks/operators.py`{more} and `benchmarks/report.py` made "
             "this page. [results.json](results.json) also has medians and every peer. "
             "[benchmarks/README.md](../../../benchmarks/README.md#every-peer) says how it is measured, "
             "[performance.md](../../performance.md#read-a-table) how to read the tables.",
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
