"""Tensors of random bytes, of any type, and their comparison byte by byte."""

import torch


def bits(shape, dtype=torch.bfloat16):
    """Returns a tensor of this type with random bytes."""
    size = torch.empty((), dtype=dtype).element_size()
    return torch.randint(0, 256, (*shape[:-1], shape[-1] * size), dtype=torch.uint8).view(dtype)


def same(a, b):
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
