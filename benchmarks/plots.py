"""Plots of what compare.py measured."""

import os

import results as store
from cases import DECODE, SHAPES
from drawing import plt
from results import NAMES, chosen, entries_of, fraction, peers_of

COLORS = {"fa": "#0b6e4f", "torch": "#f2a88f", "torch_mkl": "#e4572e", "flex": "#c9a227", "zentorch": "#8c3a1f",
          "onnxruntime": "#4f86c6", "onednn": "#8e6bbf", "openvino": "#2f9fb5", "ggml": "#556b2f", "naive": "#b0b0b0"}
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y",
         "grid.color": "#e6e6e6", "axes.axisbelow": True, "figure.dpi": 110, "legend.frameon": False}

MOST_IN_A_LINE = 7  # entries of a legend


def bars(axes, pairs, title):
    """GFLOP/s of each peer, one group of bars per shape; the peak as a line over each group."""
    names = peers_of(pairs)
    width = 0.8 / max(1, len(names))
    for place, (_, entry) in enumerate(pairs):
        for index, name in enumerate(names):
            rate = store.gflops(entry, name)
            if rate:
                axes.bar(place - 0.4 + (index + 0.5) * width, rate, width, color=COLORS[name],
                         label=NAMES[name] if place == 0 else None)
        axes.hlines(entry["peak_gflops"], place - 0.45, place + 0.45, color="black", linewidth=1)
        axes.annotate(f"{100 * fraction(entry):.0f} %", (place - 0.4 + 0.5 * width, store.gflops(entry, "fa")),
                      ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(pairs)), [f"{case.shape}\nS {case.sq}\nD {case.d}" for case, _ in pairs])
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(False, axis="x")
    axes.set_ylabel("GFLOP/s")


def by_shape(results, operation):
    """A grid of bar plots: types across, masks down."""
    most = max(case.threads for case, _ in entries_of(results))
    shapes = tuple(name for name in SHAPES if name != DECODE)
    panels = []
    for mask in ("full", "causal"):
        for dtype in ("f32", "bf16"):
            pairs = chosen(results, operation=operation, dtype=dtype, mask=mask, threads=most, shape=shapes)
            if pairs:
                panels.append((f"{operation} {dtype}, {mask}, {most} threads", pairs))
    if not panels:
        return None
    columns = 2 if len(panels) > 1 else 1
    lines = (len(panels) + columns - 1) // columns
    figure, axes = plt.subplots(lines, columns, figsize=(5.6 * columns, 3.0 * lines), squeeze=False, sharey=True)
    for panel, (title, pairs) in zip(axes.flat, panels):
        bars(panel, pairs, title)
    for panel in axes.flat[len(panels):]:
        panel.set_axis_off()
    names = peers_of([pair for _, pairs in panels for pair in pairs])
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[name]) for name in names]
    handles.append(plt.Line2D([], [], color="black", linewidth=1))
    labels = [*(NAMES[name] for name in names), "peak of multiply-adds, same run"]
    legend_lines = 1 + (len(handles) > MOST_IN_A_LINE)
    figure.legend(handles, labels, loc="upper center", ncol=-(-len(handles) // legend_lines))
    figure.tight_layout(rect=(0, 0, 1, 1 - legend_lines * (0.05 if lines > 1 else 0.1)))
    return figure


def roofline(results):
    """GFLOP/s against FLOPs per byte of tensors, with the two limits of the machine."""
    most = max(case.threads for case, _ in entries_of(results))
    pairs = [pair for pair in entries_of(results) if pair[0].threads == most and pair[0].shape in SHAPES]
    bandwidths = [entry["peak_gbytes"] for _, entry in pairs if "peak_gbytes" in entry]
    if not bandwidths:
        return None
    bandwidth, peak = max(bandwidths), max(entry["peak_gflops"] for _, entry in pairs)
    figure, axes = plt.subplots(figsize=(6.4, 4))
    low, high = 0.5, 2 * max(case.flops() / case.tensor_bytes() for case, _ in pairs)
    ridge = peak / bandwidth
    axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color="black", linewidth=1)
    axes.annotate(f"{bandwidth:.0f} GB/s", (low, low * bandwidth), (6, 0), textcoords="offset points", va="top")
    axes.annotate(f"{peak:.0f} GFLOP/s", (high, peak), (0, 4), textcoords="offset points", ha="right")
    for name in reversed(peers_of(pairs)):
        points = [(case.flops() / case.tensor_bytes(), store.gflops(entry, name)) for case, entry in pairs]
        points = [point for point in points if point[1]]
        axes.scatter(*zip(*points), s=22 if name == "fa" else 12, color=COLORS[name], label=NAMES[name],
                     zorder=3 if name == "fa" else 2)
    axes.set(xscale="log", yscale="log", xlabel="FLOPs of kept work per byte of inputs and outputs", ylabel="GFLOP/s",
             title=f"Roofline, {most} threads: every shape, type, mask and direction")
    axes.legend(loc="lower right")
    figure.tight_layout()
    return figure


def lengths(results):
    """Milliseconds against S on two logarithmic axes."""
    pairs = [pair for pair in entries_of(results) if pair[0].shape not in SHAPES]
    if not pairs:
        return None
    lines = {"full": "-", "causal": "--"}
    figure, axes = plt.subplots(figsize=(6.4, 4))
    for mask in sorted({case.mask for case, _ in pairs}, key=lambda mask: (mask not in lines, mask == "causal")):
        of_mask = [pair for pair in pairs if pair[0].mask == mask]
        for name in peers_of(of_mask):
            points = [(case.sq, 1e3 * seconds) for case, entry in of_mask if (seconds := store.seconds(entry, name))]
            axes.plot(*zip(*points), linestyle=lines.get(mask, ":"), marker="o", markersize=3, color=COLORS[name],
                      linewidth=1.6 if name == "fa" else 1, label=f"{NAMES[name]}, {mask}")
    axes.set(xscale="log", yscale="log", xlabel="S", ylabel="ms", title="Forward, f32, 2 heads of 128")
    axes.set_xticks(sorted({case.sq for case, _ in pairs}), [str(s) for s in sorted({case.sq for case, _ in pairs})])
    axes.minorticks_off()
    axes.legend(fontsize=7)
    figure.tight_layout()
    return figure


def threads(results):
    """GFLOP/s against threads, with the peak as a line."""
    groups = {}
    for case, entry in entries_of(results):
        if case.shape in SHAPES and case.dtype == "f32" and case.mask == "full":
            groups.setdefault((case.operation, case.shape), []).append((case, entry))
    groups = {key: sorted(pairs, key=lambda pair: pair[0].threads) for key, pairs in groups.items()
              if len({case.threads for case, _ in pairs}) > 1}
    if not groups:
        return None
    figure, axes = plt.subplots(1, len(groups), figsize=(max(6.4, 2.6 * len(groups)), 3.2), squeeze=False)
    for panel, ((operation, shape), pairs) in zip(axes.flat, groups.items()):
        counts = [case.threads for case, _ in pairs]
        panel.plot(counts, [entry["peak_gflops"] for _, entry in pairs], color="black", linewidth=1, label="peak")
        for name in peers_of(pairs):
            points = [(case.threads, rate) for case, entry in pairs if (rate := store.gflops(entry, name))]
            panel.plot(*zip(*points), marker="o", markersize=3, color=COLORS[name], label=NAMES[name])
        panel.set(title=f"{operation}, {shape}", xlabel="threads", xticks=counts, ylim=(0, None))
    axes[0][0].set_ylabel("GFLOP/s, f32, full")
    axes[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    return figure


def draw_all(results, folder):
    """Draws the plots for which there are results. @return names of the files"""
    drawings = {
        "forward.png": lambda: by_shape(results, "forward"),
        "backward.png": lambda: by_shape(results, "backward"),
        "roofline.png": lambda: roofline(results),
        "lengths.png": lambda: lengths(results),
        "threads.png": lambda: threads(results),
    }
    drawn = []
    with plt.rc_context(STYLE):
        for name, draw in drawings.items():
            figure = draw()
            if figure is not None:
                figure.savefig(os.path.join(folder, name))
                plt.close(figure)
                drawn.append(name)
    return drawn
