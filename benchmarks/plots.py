"""Plots of the results of compare.py. They show fa, PyTorch and the best other peer."""

import os

import results as store
from cases import DECODE, SHAPES
from drawing import legend_above, plt, ticker
from results import NAMES, chosen, entries_of

FA, PYTORCH, OTHER = "fa", "PyTorch, at its best", "best other peer"
COLORS = {FA: "#0b6e4f", PYTORCH: "#e4572e", OTHER: "#9aa5b1"}
MEMBERS = {FA: ("fa",), PYTORCH: ("torch", "torch_mkl"),
           OTHER: tuple(name for name in NAMES if name not in ("fa", "torch", "torch_mkl"))}
LINE_COLORS = {"torch": "#e4572e", "torch_mkl": "#e4572e", "flex": "#c9a227", "zentorch": "#8c3a1f", "onnxruntime": "#4f86c6",
               "onednn": "#8e6bbf", "openvino": "#2f9fb5", "ggml": "#556b2f", "naive": "#9aa5b1"}
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y",
         "axes.titlesize": 10, "axes.titlelocation": "left", "grid.color": "#e6e6e6", "axes.axisbelow": True, "figure.dpi": 110,
         "legend.frameon": False}


def rate(entry, series):
    """Returns the GFLOP/s of the fastest member of a series, or None."""
    return max((value for name in MEMBERS[series] if (value := store.gflops(entry, name))), default=None)


def share(entry, series):
    """Returns the rate of a series as a percentage of the peak that the same run measured, or None."""
    value = rate(entry, series)
    return value and 100 * value / entry["peak_gflops"]


def series_of(pairs):
    """Returns the series that have a figure in at least one of these (case, entry) pairs."""
    return [series for series in MEMBERS if any(rate(entry, series) for _, entry in pairs)]


def shape_text(case):
    return f"{case.shape}\nS {case.sq}\nD {case.d}"


def bars(axes, pairs, shapes):
    """Draws shares of the peak, one group of bars per shape. Above fa's bar stands fa's rate divided by that of the
    fastest peer."""
    width = 0.8 / len(MEMBERS)
    for case, entry in pairs:
        place = shapes.index(shape_text(case))
        for index, series in enumerate(MEMBERS):
            axes.bar(place - 0.4 + (index + 0.5) * width, share(entry, series) or 0, width, color=COLORS[series])
        if ratio := store.ratio_to_best(entry):
            axes.annotate(f"{ratio:.2f}×", (place - 0.4 + 0.5 * width, share(entry, FA)), (0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=8, color=COLORS[FA],
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    for place in set(range(len(shapes))) - {shapes.index(shape_text(case)) for case, _ in pairs}:
        axes.text(place, 2, "not\nmeasured", ha="center", va="bottom", fontsize=7, color="#707070")
    axes.set_xticks(range(len(shapes)), shapes)
    axes.set(xlim=(-0.6, len(shapes) - 0.4), ylim=(0, 112), yticks=range(0, 101, 20))
    axes.grid(False, axis="x")


def by_shape(results, operation):
    """Draws a grid of bar plots. A column has one type, and a row has one mask."""
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
    figure, axes = plt.subplots(lines, columns, figsize=(5 * columns, 2.7 * lines + 0.6), squeeze=False, sharey=True)
    all_pairs = [pair for _, pairs in panels for pair in pairs]
    texts = {case.shape: shape_text(case) for case, _ in all_pairs}
    for panel, (title, pairs) in zip(axes.flat, panels):
        bars(panel, pairs, [texts[shape] for shape in shapes if shape in texts])
        panel.set_title(title)
    for panel in axes[:, 0]:
        panel.set_ylabel("% of the machine's peak")
    for panel in axes.flat[len(panels):]:
        panel.set_axis_off()
    names = series_of(all_pairs)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[series]) for series in names]
    legend_above(figure, handles, names, "1.13×: fa has 1.13 times the rate of the fastest peer")
    return figure


def roofline(results):
    """Draws GFLOP/s against FLOPs per byte of tensors, one panel per type. Two lines show the machine's limits:
    arithmetic and memory."""
    most = max(case.threads for case, _ in entries_of(results))
    pairs = [pair for pair in entries_of(results) if pair[0].threads == most and pair[0].shape in SHAPES]
    bandwidths = [entry["peak_gbytes"] for _, entry in pairs if "peak_gbytes" in entry]
    if not bandwidths:
        return None
    bandwidth = max(bandwidths)
    low, high = 0.5, 2 * max(case.flops() / case.tensor_bytes() for case, _ in pairs)
    types = [dtype for dtype in ("f32", "bf16") if any(case.dtype == dtype for case, _ in pairs)]
    figure, axes = plt.subplots(1, len(types), figsize=(5 * len(types), 3.6), squeeze=False, sharey=True)
    for panel, dtype in zip(axes.flat, types):
        own = [(case, entry) for case, entry in pairs if case.dtype == dtype]
        peak = max(entry["peak_gflops"] for _, entry in own)
        panel.plot([low, peak / bandwidth, high], [low * bandwidth, peak, peak], color="black", linewidth=1)
        for value, color, order in ((store.best_other, COLORS[OTHER], 2), (lambda entry: rate(entry, FA), COLORS[FA], 3)):
            points = [(case.flops() / case.tensor_bytes(), value(entry)) for case, entry in own if value(entry)]
            panel.scatter(*zip(*points), s=18, color=color, zorder=order)
        panel.set(xscale="log", yscale="log", xlabel="FLOPs of kept work per byte of inputs and outputs",
                  title=f"{dtype}, {most} threads: memory {bandwidth:.0f} GB/s, multiply-adds {peak:.0f} GFLOP/s")
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        panel.minorticks_off()
    axes[0][0].set_ylabel("GFLOP/s")
    dots = [plt.Line2D([], [], color=COLORS[series], marker="o", linestyle="") for series in (FA, OTHER)]
    legend_above(figure, [*dots, plt.Line2D([], [], color="black")], [FA, "fastest peer of the case", "limits of the machine"])
    return figure


def lengths(results):
    """Draws each peer's time, divided by fa's, against S. There is one panel per mask."""
    of_masks = {mask: [pair for pair in entries_of(results) if pair[0].shape not in SHAPES and pair[0].mask == mask]
                for mask in ("full", "causal")}
    of_masks = {mask: pairs for mask, pairs in of_masks.items() if pairs}
    if not of_masks:
        return None
    figure, axes = plt.subplots(1, len(of_masks), figsize=(5 * len(of_masks), 3.4), squeeze=False, sharey=True)
    known = store.peers_of([pair for pairs in of_masks.values() for pair in pairs])
    others = [name for name in known if name != "fa" and not (name == "torch" and "torch_mkl" in known)]
    for panel, (mask, pairs) in zip(axes.flat, of_masks.items()):
        pairs = [(case, entry) for case, entry in pairs if store.seconds(entry, "fa")]
        for name in others:
            points = [(case.sq, store.seconds(entry, name) / store.seconds(entry, "fa")) for case, entry in pairs
                      if store.seconds(entry, name)]
            if points:
                panel.plot(*zip(*points), marker="o", markersize=3, color=LINE_COLORS[name])
        panel.axhline(1, color=COLORS[FA], linewidth=2)
        sizes = sorted({case.sq for case, _ in pairs})
        panel.set(xscale="log", xlabel="S", title=f"forward f32, {mask}, 2 heads of 128")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
    axes[0][0].set(ylabel="time over that of fa", ylim=(0, None))
    handles = [plt.Line2D([], [], color=COLORS[FA], linewidth=2),
               *(plt.Line2D([], [], color=LINE_COLORS[name], marker="o", markersize=3) for name in others)]
    legend_above(figure, handles, ["fa", *(NAMES[name] for name in others)])
    return figure


def threads(results):
    """Draws the share of the peak against the number of threads. The peak is that of the same number of threads."""
    groups = {}
    for case, entry in entries_of(results):
        if case.shape in SHAPES and case.dtype == "f32" and case.mask == "full":
            groups.setdefault((case.operation, case.shape), []).append((case, entry))
    in_order = sorted(groups, key=lambda key: (key[0] != "forward", key[1]))
    groups = {key: sorted(groups[key], key=lambda pair: pair[0].threads) for key in in_order
              if len({case.threads for case, _ in groups[key]}) > 1}
    if not groups:
        return None
    figure, axes = plt.subplots(1, len(groups), figsize=(max(5, 2.5 * len(groups)), 3.2), squeeze=False, sharey=True)
    for panel, ((operation, shape), pairs) in zip(axes.flat, groups.items()):
        for series in series_of(pairs):
            points = [(case.threads, share(entry, series)) for case, entry in pairs if rate(entry, series)]
            panel.plot(*zip(*points), marker="o", markersize=4, color=COLORS[series])
        panel.set(title=f"{operation} f32, {shape}", xlabel="threads", xticks=[case.threads for case, _ in pairs],
                  ylim=(0, 105), yticks=range(0, 101, 20))
        panel.margins(x=0.1)
    axes[0][0].set_ylabel("% of the peak of the threads")
    names = series_of([pair for pairs in groups.values() for pair in pairs])
    legend_above(figure, [plt.Line2D([], [], color=COLORS[series], marker="o", markersize=4) for series in names], names)
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
