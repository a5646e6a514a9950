"""Writes README.md, the list of the CPUs that have results, into a folder that has one folder per CPU."""

import os

import machine
import results as store
from cases import SHAPES

SHAPE = "B"
OPERATIONS = (("forward", "f32", "full"), ("forward", "f32", "causal"), ("forward", "bf16", "full"),
              ("backward", "f32", "full"), ("backward", "bf16", "full"))
OTHER_PAGES = (("intel-emerald-rapids/README.md", "Intel Emerald Rapids with AMX, 16 shared virtual CPUs, next to PyTorch"),
               ("models-amd-epyc-zen-4/README.md", "whole models, AMD EPYC (Zen 4)"),
               ("models-amd-epyc-zen-5/README.md", "whole models, AMD EPYC (Zen 5)"),
               ("shares.md", "shares of the rate, and what features and calls cost"),
               ("ranks.md", "one call over up to 1024 ranks, predicted"))


def cell(results, operation, dtype, mask):
    """Returns two figures of a case: the fraction of the peak that fa reaches, and fa's rate divided by that of the
    fastest peer."""
    most = max(case.threads for case, _ in store.entries_of(results))
    pairs = store.chosen(results, operation=operation, dtype=dtype, mask=mask, shape=(SHAPE,), threads=most)
    if not pairs:
        return "–"
    entry = pairs[0][1]
    ratio = store.ratio_to_best(entry)
    return f"{100 * store.fraction(entry):.0f} %" + (f", {ratio:.2f}" if ratio else "")


def row(folder, results):
    of = results["machine"]
    last = max(entry["date"] for entry in results["cases"].values())
    cells = [f"[{machine.text_of(of)}]({folder}/README.md), {of['cpus']} CPUs; {', '.join(of['instructions'])}",
             results["versions"]["fa"]["version"], last, *(cell(results, *each) for each in OPERATIONS)]
    return "| " + " | ".join(cells) + " |"


def document(folder):
    """@param folder  contains a folder per CPU; those with a results.json are listed"""
    paths = {name: os.path.join(folder, name, "results.json") for name in sorted(os.listdir(folder))}
    rows = [row(name, store.load(path)) for name, path in paths.items() if os.path.exists(path)]
    batch, heads, _, s, _, d = SHAPES[SHAPE]
    header = ["CPU", "version of fa", "measured", *(f"{operation} {dtype}, {mask}" for operation, dtype, mask in OPERATIONS)]
    parts = ["# fa and its peers, by CPU",
             "Written by benchmarks/report.py; [benchmarks/README.md](../../benchmarks/README.md) says how it is "
             "measured and how to repeat it. A run on another CPU makes a page of its own.",
             f"The table has shape {SHAPE} (B {batch}, N {heads}, S {s}, D {d}) on all CPUs of the machine. Of each "
             "run, a cell has the share of the peak of multiply-adds that fa reaches. Behind it stands fa's rate divided by the "
             "fastest peer's.",
             "\n".join(["| " + " | ".join(header) + " |", "|---|---|---|" + "---:|" * len(OPERATIONS), *rows])]
    others = [f"- [{text[0].upper()}{text[1:]}]({page})" for page, text in OTHER_PAGES
              if os.path.exists(os.path.join(folder, page))]
    parts += ["Other pages:\n\n" + "\n".join(others)] if others else []
    return "\n\n".join(parts) + "\n"


def write(folder):
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
        file.write(document(folder))
