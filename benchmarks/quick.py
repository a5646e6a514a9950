"""The cases that compare.py --quick measures by default, and the table that it prints."""

import machine
import results as store
from peers.client import LOCKED_VENDOR

DEFAULTS = {"sets": ["quick"], "peers": ["fa", "torch", "torch_mkl"], "rounds": 2, "out": "build/benchmarks/quick.json"}
# The columns of the table, and their widths.
HEADER = ("", "fa, ms", "PyTorch, ms", "fa / PyTorch", "fa, GFLOP/s", "of product")
WIDTHS = (44, 10, 14, 15, 14, 13)


UNLOCK = """PyTorch's MKL takes slow kernels on CPUs of AMD. This library of one line lets it take its fast ones, and the same
command with --again then measures both:
  mkdir -p build/release/benchmarks
  c++ -shared -fPIC benchmarks/peers/mkl_unlock.cc -o build/release/benchmarks/libmkl_unlock.so"""


def line(cells):
    return cells[0].ljust(WIDTHS[0]) + "".join(cell.rjust(width) for cell, width in zip(cells[1:], WIDTHS[1:]))


def pytorch_seconds(entry):
    """Returns the time of PyTorch's best call, with MKL locked or unlocked, or None."""
    return min((time for name in ("torch", "torch_mkl") if (time := store.seconds(entry, name))), default=None)


def row(case, entry):
    heads = f"{case.heads}" if case.heads == case.heads_kv else f"{case.heads}/{case.heads_kv}"
    rows = f"S {case.sq}" if case.sq == case.sk else f"S {case.sq}, {case.sk}"
    own, other = store.seconds(entry, "fa"), pytorch_seconds(entry)
    cells = [f"{case.shape} {case.dtype:4} {case.mask:6} B {case.batch}, N {heads}, {rows}, D {case.d}"]
    cells += [f"{1e3 * time:.2f}" if time else "–" for time in (own, other)]
    cells += [f"{other / own:.2f}" if own and other else "–"]
    cells += [f"{store.gflops(entry, 'fa'):.0f}", f"{100 * store.fraction(entry):.0f} %"] if own else ["–", "–"]
    return line(cells)


def report(results, cases):
    """Returns the table as text for a terminal. @param cases  all cases that were to be measured"""
    there = {case.key: (case, results["cases"][case.key]) for case in cases if case.key in results["cases"]}
    versions = results["versions"]
    parts = [f"\n{machine.text_of(results['machine'])}, {results['machine']['cpus']} CPUs; fa {versions['fa']['version']}, "
             f"PyTorch {versions['torch']['version']}" if there else "\nNothing was measured."]
    for operation in ("forward", "backward"):
        rows = [row(case, entry) for case, entry in there.values() if case.operation == operation]
        if rows:
            parts += ["", line([operation, *HEADER[1:]]), *rows]
    peers = [peer for _, entry in there.values() for peer in entry["peers"].values()]
    counted, thrown = (sum(peer.get(what, 0) for peer in peers) for what in ("rounds", "rejected"))
    parts += ["", "Best calls. fa / PyTorch is the ratio of speeds: above 1, fa is faster. The last column is fa's rate of kept",
              "work by that of a matrix product on the same threads: the faster of PyTorch's and NumPy's, in the same run.",
              f"{counted} rounds count; {thrown} were thrown away because other programs took the CPU.",
              *(["On a machine that stays busy, --foreign 2 lets others take two CPUs: such figures are noisy."] if thrown else [])]
    wrong = [f"{key}, {name}: {peer['wrong']}" for key, (_, entry) in there.items()
             for name, peer in entry["peers"].items() if "wrong" in peer]
    busy = [f"{case.key}: {results['given_up'][case.key]}" for case in cases if case.key in results.get("given_up", {})]
    parts += [f"{title}:\n  " + "\n  ".join(lines) for title, lines in (("Wrong, not timed", wrong), ("Given up", busy)) if lines]
    if results["machine"].get("vendor") == LOCKED_VENDOR and "torch_mkl" in results.get("left_out", {}):
        parts.append(UNLOCK)
    others = "; ".join(text for name, text in store.NAMES.items() if name not in DEFAULTS["peers"])
    parts.append(f"Not measured (benchmarks/README.md says how): {others}.")
    return "\n".join(parts)
