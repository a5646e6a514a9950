"""Sinks that differ from row to row. The sink of a row is the score of one more key, whose value is 0. This key is
added to the keys, and the sinks are its biases."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .model_mask import pairs_of_rows


def with_sinks(
    sinks: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Tensor | None,
    dense_mask: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Returns key, value, mask and bias with one more key for the sinks. The mask is made of rows or of dense_mask, at
    most one of which is given.

    Raises:
        ValueError: sinks are not floating [B, N, Sq, 1].
    """
    want = [*query.shape[:3], 1]
    if not sinks.is_floating_point():
        raise ValueError(f"invalid argument: sinks.dtype={sinks.dtype}, want a floating type")
    if list(sinks.shape) != want:
        raise ValueError(f"invalid argument: sinks.shape={list(sinks.shape)}, want {want} (query)")
    keys = key.shape[2]
    kept = dense_mask if rows is None else pairs_of_rows(rows, keys)
    bias = query.new_zeros(1) if bias is None else bias
    return (
        F.pad(key, (0, 0, 0, 1)),
        F.pad(value, (0, 0, 0, 1)),
        None if kept is None else F.pad(kept, (0, 1), value=True),
        torch.cat((bias.expand(*query.shape[:3], keys), sinks), -1),
    )
