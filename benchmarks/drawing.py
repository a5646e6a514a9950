"""Sets up matplotlib to draw into files. pyplot and ticker are None if matplotlib is missing."""

try:
    import matplotlib
except ModuleNotFoundError:
    plt = ticker = None
else:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import ticker  # noqa: F401


def legend_above(figure, handles, labels, note=None):
    """Draws one legend above all panels, where it hides no data. @param note  a line below the legend that explains the
    figures"""
    inches = 0.35 + (0.2 if note else 0)
    top = 1 - inches / figure.get_figheight()
    figure.legend(handles, labels, loc="upper center", ncol=len(handles), frameon=False)
    if note:
        figure.text(0.5, top, note, ha="center", va="bottom", fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, top))
