"""PyTorch's side of `fa.torch`: operators, shapes, derivatives, and calls past the dispatcher."""

from .threads import share_openmp_threads

share_openmp_threads()
