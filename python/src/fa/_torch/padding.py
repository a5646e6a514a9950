"""Turns a padding mask, which is the same for all rows and heads, into one interval of keys per sequence. The engine
then computes only the pairs inside the interval, instead of every pair."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._fa import Mask
from .call import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT

# Masks of fewer pairs are not turned into intervals. A call with intervals makes a new plan each time. For small calls,
# the plan costs more time than the dropped pairs save.
_PAIRS = 1 << 22


def kept_interval(padding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns, for each row of `padding` (bool [B, S], True = kept): the first kept place, the place after the last
    one, and whether there is no gap between them. Each result is [B]."""
    places = torch.arange(1, padding.shape[1] + 1, device=padding.device)
    ends = (padding * places).amax(1)
    count = padding.sum(1)
    begins = torch.where(count > 0, padding.to(torch.uint8).argmax(1), 0)
    return begins, ends, ends - begins == count


def is_same_for_rows(mask: Tensor) -> bool:
    """Returns whether the mask is bool, and its sizes or strides make it the same for all rows and heads."""
    sizes, steps = mask.shape[-3:-1], mask.stride()[-3:-1]
    return mask.dtype is torch.bool and all(size == 1 or step == 0 for size, step in zip(sizes, steps, strict=True))


def is_large(query: Tensor, keys: int) -> bool:
    """Returns whether a call of query [B, N, L, E] is so large that an interval of keys is faster than a mask."""
    return math.prod(query.shape[:3]) * keys >= _PAIRS


def rule_of_padding(dropped: Tensor, rule: int) -> Mask | None:
    """Returns a Mask of the pairs that `rule` keeps and that `dropped` (bool [B, N, L, S], True = drop) does not drop.
    Returns None if `dropped` is not a padding mask, if the kept keys of a sequence have gaps, or if the call is
    small.
    """
    batch, _, rows, _ = dropped.shape
    if rule == CAUSAL_BOTTOM_RIGHT or not is_same_for_rows(dropped) or not is_large(dropped, dropped.shape[3]):
        return None
    one = batch == 1 or dropped.stride(0) == 0
    begins, ends, whole = kept_interval(~dropped[: 1 if one else batch, 0, 0])
    if not bool(whole.all()):
        return None
    begins, ends = (t[:, None].expand(-1, rows) for t in (begins, ends))
    if rule == CAUSAL_TOP_LEFT:
        ends = torch.minimum(ends, torch.arange(1, rows + 1))
    return Mask.rows(*(t.to(torch.int32).reshape(-1).numpy() for t in (begins, ends)))
