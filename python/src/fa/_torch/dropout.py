"""Draws a call's dropout state from PyTorch's generator, and computes the mask bits of a state."""

from __future__ import annotations

import torch
from torch import Tensor

from .._attention import generate_dropout_mask
from .._context import context_of_tensors
from .call import UNSIGNED_64
from .operators import operator


def new_state(dropout_p: float) -> Tensor | None:
    """Draws (seed, offset) as int64 [2] from PyTorch's generator. Returns None if nothing is dropped."""
    return torch.randint(-(1 << 62), 1 << 62, (2,), dtype=torch.int64, device="cpu") if dropout_p > 0.0 else None


def _fake_bits(dropout_state, keep_prob, pairs):
    return dropout_state.new_empty((*dropout_state.shape[:-1], -(-pairs // 8)), dtype=torch.uint8)


@operator(
    "dropout_bits(Tensor dropout_state, float keep_prob, SymInt pairs) -> Tensor",
    fake=_fake_bits,
    vmap=lambda operator, _, in_dims, state, *others: (operator(state.movedim(in_dims[0], 0), *others), 0),
)
def dropout_bits(dropout_state, keep_prob, pairs):
    """Returns masks [..., bytes] for states [..., 2]. Each mask has one bit for each of the `pairs` pairs."""
    context = context_of_tensors()
    masks = [
        torch.from_numpy(generate_dropout_mask(*(n & UNSIGNED_64 for n in state), keep_prob, pairs, context=context))
        for state in dropout_state.reshape(-1, 2).tolist()
    ]
    return torch.stack(masks).reshape(*dropout_state.shape[:-1], -(-pairs // 8))


def unpacked(bits: Tensor, pairs: int) -> Tensor:
    """Returns bits [..., bytes] as numbers 0 and 1, uint8 [..., pairs]."""
    return (bits.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8) & 1).flatten(-2)[..., :pairs]


def packed(single: Tensor) -> Tensor:
    """Packs the numbers 0 and 1 of a tensor [pairs] into bytes, as the reverse of `unpacked`."""
    single = torch.nn.functional.pad(single, (0, -single.shape[0] % 8))
    return (single.view(-1, 8) << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)
