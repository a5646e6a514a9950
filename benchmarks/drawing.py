"""matplotlib's pyplot, drawing into files; None where matplotlib is missing."""

try:
    import matplotlib
except ModuleNotFoundError:
    plt = None
else:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
