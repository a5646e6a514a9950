"""Tables and a plot of what models.py measured."""

import json
from statistics import median

import machine

from drawing import legend_above, plt

NAMES = {"fa": "fa", "sdpa": "sdpa", "eager": "eager", "flex_attention": "flex_attention", "vllm": "vLLM"}
COLORS = {"vllm": "#8e6bbf", "fa": "#0b6e4f", "sdpa": "#e4572e", "eager": "#b0b0b0", "flex_attention": "#4f86c6"}


def milliseconds(entry, name):
    """Returns the median time of a step, or None without samples."""
    samples = entry["by"].get(name, {}).get("samples")
    return 1e3 * median(samples) if samples else None


def ratios(entry, name):
    """Returns, for each round, the time of a step divided by that of fa's step."""
    own, others = (entry["by"].get(of, {}).get("samples", ()) for of in ("fa", name))
    return [other / mine for mine, other in zip(own, others)]


def ratio_text(entry, name):
    """Returns the median of ratios() as text."""
    rounds = ratios(entry, name)
    return f"{median(rounds):.2f}" if rounds else "–"


def line_of(entry):
    """Returns an entry of the results as one line of text."""
    parts = []
    for name, of in entry["by"].items():
        took = milliseconds(entry, name)
        parts.append(f"{name} {took:.2f} ms" if took else f"{name}: {of.get('failed', 'not measured')}")
    return f"{entry['model']} {entry['work']} {entry['dtype']}: " + ", ".join(parts)


def table(results):
    names = [name for name in NAMES if any(name in entry["by"] for entry in results["entries"])]
    others = [name for name in names if name != "fa"]
    weighed = [name for name in names if name not in ("flex_attention", "vllm")]
    head = ["step", "fa, ms", *(f"{name} / fa" for name in others), "attention", *(f"{name}, MB" for name in weighed)]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for entry in results["entries"]:
        cells = [f"{entry['model']} {entry['work']} {entry['dtype']}{_clock(entry)}", _cell(milliseconds(entry, "fa"), "{:.1f}")]
        cells += [ratio_text(entry, name) for name in others]
        shares = entry["by"].get("fa", {}).get("shares")
        cells.append(_cell(100 * median(shares) if shares and not entry["work"].startswith("train") else None, "{:.0f} %"))
        peaks = (entry["by"].get(name, {}).get("peak_bytes") for name in weighed)
        cells += [_cell(None if peak is None else max(0, peak) / 1e6, "{:.0f}") for peak in peaks]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _clock(entry):
    """Returns ", CPU, N threads" if the entry has CPU times, and an empty text if it has elapsed times."""
    threads = entry.get("threads")
    return f", CPU, {threads} thread{'s' * (threads > 1)}" if entry.get("clock") == "cpu" else ""


def _cell(number, form):
    return "–" if number is None else form.format(number)


def _in_order(entries):
    """Returns the measured cases by model, in the order in which models were first measured, then by type and work."""
    models = list(dict.fromkeys(entry["model"] for entry in entries))

    def place(entry):
        model, *work = _place(models, entry)
        return model, entry["dtype"] != "f32", *work

    return sorted(entries, key=place)


def _place(models, entry):
    work, tokens = entry["work"].split()
    return models.index(entry["model"]), ("prefill", "decode", "train").index(work), int(tokens)


def _line(entry):
    return f"{entry['model']} {entry['work']}"


def write(results, folder):
    """Writes README.md and models.json into the folder, and models.png if matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    results = results | {"entries": _in_order(results["entries"])}
    of = results["machine"]
    rounds = [len(by.get("samples", ())) for entry in results["entries"] for by in entry["by"].values()]
    text = (
        f"# Whole models: {machine.text_of(of)}\n\nWritten by benchmarks/models.py from [models.json](models.json), which also has "
        f"every round. {of['cpus']} CPUs, {of['memory_gb']} GB, {', '.join(of['instructions'])}; PyTorch {results['torch']}"
        f"{', its MKL unlocked' * results['mkl_unlocked']}.\n\nFigures are medians of at least "
        f"{min((n for n in rounds if n), default=0)} steps, in turn; ratios are of steps of one round. *Attention* is its share of "
        "fa's forward. Memory is how far a step raised what the process held, 0 where it fitted into memory freed before.\n\n"
    )
    if any(entry.get("clock") == "cpu" for entry in results["entries"]):
        text += "*CPU* marks rows that were measured next to other programs, in CPU time of all threads.\n\n"
    if plot(results, folder / "models.png"):
        text += "![Time of a step over that by fa](models.png)\n\n"
    (folder / "models.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(text + table(results) + "\n", encoding="utf-8")


def plot(results, path):
    """Draws the results of ratios() as bars, one panel per type. @return False if matplotlib is missing"""
    if plt is None:
        return False
    entries = [entry for entry in results["entries"] if milliseconds(entry, "fa")]
    others = [name for name in NAMES if name != "fa" and any(ratios(entry, name) for entry in entries)]
    entries = [entry for entry in entries if any(ratios(entry, name) for name in others)]
    models = list(dict.fromkeys(entry["model"] for entry in entries))
    lines = list(dict.fromkeys(_line(entry) for entry in sorted(entries, key=lambda entry: _place(models, entry))))
    types = list(dict.fromkeys(entry["dtype"] for entry in entries))
    size = (1.4 + 4.2 * len(types), 1.2 + (0.1 + 0.13 * len(others)) * len(lines))
    figure, axes = plt.subplots(1, len(types), figsize=size, sharex=True, sharey=True, squeeze=False)
    height = 0.8 / max(1, len(others))
    for panel, dtype in zip(axes[0], types):
        for entry in (entry for entry in entries if entry["dtype"] == dtype):
            middle = lines.index(_line(entry))
            for index, name in enumerate(others):
                if of := ratios(entry, name):
                    place = middle - 0.4 + (index + 0.5) * height
                    panel.barh(place, median(of), height, color=COLORS[name])
                    panel.annotate(f"{median(of):.2f}", (median(of), place), (3, 0), textcoords="offset points", va="center",
                                   fontsize=7)
        panel.axvline(1, color=COLORS["fa"], linewidth=1.5)
        panel.set_yticks(range(len(lines)), lines, fontsize=8)
        panel.set(ylim=(len(lines) - 0.4, -0.6), xlabel="time over that of fa")
        panel.set_title(dtype, loc="left", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.12)
    handles = [plt.Line2D([], [], color=COLORS["fa"]), *(plt.Rectangle((0, 0), 1, 1, color=COLORS[name]) for name in others)]
    legend_above(figure, handles, ["fa", *others])
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
