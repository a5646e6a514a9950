"""Kernels for PyTorch's own attention operators on CPUs, and their activation."""
