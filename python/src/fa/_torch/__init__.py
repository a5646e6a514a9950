"""The parts of `fa.torch`: operators, shapes, derivatives, and calls that bypass PyTorch's dispatcher."""

from .threads import share_openmp_threads

share_openmp_threads()
