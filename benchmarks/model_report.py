"""Tables and a plot of what models.py measured."""

import json
from statistics import median

import machine

from drawing import plt

NAMES = {"fa": "fa", "sdpa": "sdpa", "eager": "eager", "flex_attention": "flex_attention"}
COLORS = {"fa": "#0b6e4f", "sdpa": "#e4572e", "eager": "#b0b0b0", "flex_attention": "#4f86c6"}


def milliseconds(entry, name):
    """The median of a step; None where there is none."""
    samples = entry["by"].get(name, {}).get("samples")
    return 1e3 * median(samples) if samples else None


def ratios(entry, name):
    """How many times as long as fa's step a step took, round by round."""
    own, others = (entry["by"].get(of, {}).get("samples", ()) for of in ("fa", name))
    return [other / mine for mine, other in zip(own, others)]


def ratio_text(entry, name):
    """The median and, in brackets, the range of the rounds without the quarter at either end."""
    rounds = sorted(ratios(entry, name))
    if not rounds:
        return "–"
    out = len(rounds) // 4
    return f"{median(rounds):.2f} ({rounds[out]:.2f}–{rounds[-1 - out]:.2f})"


def line_of(entry):
    """An entry in one line of text."""
    parts = []
    for name, of in entry["by"].items():
        took = milliseconds(entry, name)
        parts.append(f"{name} {took:.2f} ms" if took else f"{name}: {of.get('failed', 'not measured')}")
    return f"{entry['model']} {entry['work']} {entry['dtype']}: " + ", ".join(parts)


def table(results):
    names = [name for name in NAMES if any(name in entry["by"] for entry in results["entries"])]
    others = [name for name in names if name != "fa"]
    head = ["model", "work", "type", *(f"{name}, ms" for name in names), *(f"{name} / fa" for name in others),
            *(f"attention in {name}" for name in names if name != "eager"), *(f"{name}, MB" for name in names)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    for entry in results["entries"]:
        cells = [entry["model"], entry["work"], entry["dtype"]]
        cells += [_cell(milliseconds(entry, name), "{:.1f}") for name in names]
        cells += [ratio_text(entry, name) for name in others]
        forward = not entry["work"].startswith("train")
        shares = {name: entry["by"].get(name, {}).get("shares") for name in names if name != "eager"}
        cells += [_cell(100 * median(s) if s and forward else None, "{:.0f} %") for s in shares.values()]
        peaks = (entry["by"].get(name, {}).get("peak_bytes") for name in names)
        cells += [_cell(None if peak is None else max(0, peak) / 1e6, "{:.0f}") for peak in peaks]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(number, form):
    return "–" if number is None else form.format(number)


def _in_order(entries):
    """By model, as they were measured first, then type and work: runs add what they measure at the end."""
    models = list(dict.fromkeys(entry["model"] for entry in entries))
    works = ("prefill", "decode", "train")

    def place(entry):
        work, tokens = entry["work"].split()
        return models.index(entry["model"]), entry["dtype"] != "f32", works.index(work), int(tokens)

    return sorted(entries, key=place)


def write(results, folder):
    """README.md and models.json of the folder, and models.png if there is matplotlib."""
    folder.mkdir(parents=True, exist_ok=True)
    results = results | {"entries": _in_order(results["entries"])}
    of = results["machine"]
    rounds = [len(by.get("samples", ())) for entry in results["entries"] for by in entry["by"].values()]
    text = (
        f"# Whole models: {machine.text_of(of)}\n\nWritten by benchmarks/models.py. {of['cpus']} CPUs, {of['memory_gb']} GB, "
        f"{', '.join(of['instructions'])}; PyTorch {results['torch']}{', its MKL unlocked' * results['mkl_unlocked']}. "
        f"Medians of at least {min((n for n in rounds if n), default=0)} steps, in turn; ratios are of steps of one round, "
        "in brackets their range without a quarter at either end. The share of attention is that of the forward; "
        "memory is how far a step raised what the process held, 0 where all of it fitted into memory freed before.\n\n"
    )
    if plot(results, folder / "models.png"):
        text += "![Time of a step over that by fa](models.png)\n\n"
    (folder / "models.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(text + table(results) + "\n", encoding="utf-8")


def plot(results, path):
    """Ratios to fa, as bars. False without matplotlib."""
    if plt is None:
        return False
    entries = [entry for entry in results["entries"] if milliseconds(entry, "fa")]
    others = [name for name in NAMES if name != "fa" and any(ratios(entry, name) for entry in entries)]
    figure, axes = plt.subplots(figsize=(7, 0.8 + 0.32 * len(entries)))
    height = 0.8 / max(1, len(others))
    for index, name in enumerate(others):
        places = [i - 0.4 + (index + 0.5) * height for i in range(len(entries))]
        axes.barh(places, [median(ratios(entry, name) or [0]) for entry in entries], height, color=COLORS[name], label=name)
    axes.axvline(1, color=COLORS["fa"], label="fa")
    axes.set_yticks(range(len(entries)), [f"{e['model']} {e['work']} {e['dtype']}" for e in entries], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("time over that of fa")
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
