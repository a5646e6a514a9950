"""Which rows of a sequence each rank of a process group holds. The functions here also cut sequences into these rows,
and join the rows again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._errors import own_names
from .agreement import Proposal, agree, gather, process_group
from .ranked import NAMES, Cut, Ranks, ranks_of


def positions(rows: int, group: Any = None, cut: Cut = "zigzag") -> Tensor:
    """Returns the numbers of the rows that this rank holds of a sequence of `rows` rows: int64 [rows held].

    The numbers come in the order in which the rank holds the rows. They are the positions of the rank's tokens, for
    example for rotary embeddings.
    """
    group = process_group(group)
    return rows_held(rows, group, ranks_of(group, cut))


def rows_held(rows: int, group: Any, ranks: Ranks) -> Tensor:
    """Works like `positions`, but takes the cut from `ranks`."""
    held = _intervals(rows, group, ranks)
    return torch.cat([torch.arange(*interval, device="cpu") for interval in [(0, 0), *held]])


def _intervals(rows: int, group: Any, ranks: Ranks, rank: int | None = None) -> list[tuple[int, int]]:
    with own_names(NAMES):
        return ranks.shards(rows, rows).rows_held(rows, group.rank() if rank is None else rank, group.size())


def shard(whole: Tensor, dim: int, group: Any = None, cut: Cut = "zigzag") -> Tensor:
    """Returns this rank's rows of a tensor that every rank has: the rows of `positions` along dimension `dim`.

    A tensor [..., rows, ...] becomes [..., rows held, ...]. Nothing is communicated, and not every rank needs to call
    this function. The gradient of other ranks' rows is 0.
    """
    group = process_group(group)
    held = _intervals(whole.shape[dim], group, ranks_of(group, cut))
    return torch.cat([whole.narrow(dim, begin, end - begin) for begin, end in [(0, 0), *held]], dim)


def unshard(own: Tensor, dim: int, group: Any = None, cut: Cut = "zigzag") -> Tensor:
    """Returns the whole tensor on every rank. `own` are this rank's rows of it. This is the reverse of `shard`.

    A tensor [..., rows held, ...] becomes [..., rows, ...].

    The gradient of `own` is its part of the whole tensor's gradient. This gradient is right only if every rank computes
    the same from the whole tensor.

    Raises:
        ValueError: the ranks' shapes, types or numbers of rows do not fit each other.
    """
    group = process_group(group)

    def propose() -> Proposal:
        ranks, rows = ranks_of(group, cut), own.shape[dim]
        axis = dim % own.dim()
        if not own.is_cpu:
            raise ValueError(f"invalid argument: own.device={own.device}, want cpu")
        shape = [*own.shape[:axis], *own.shape[axis + 1 :]]
        facts = {**ranks.facts(), "dim": axis, "own.dtype": own.dtype, "own.shape without rows": shape}
        return Proposal((ranks, axis), facts, [rows])

    agreed = agree(group, "unshard", propose)
    ranks, axis = agreed.prepared
    counts = [numbers[0] for numbers in agreed.numbers]
    held = [_intervals(sum(counts), group, ranks, rank) for rank in range(group.size())]
    for rank, (count, intervals) in enumerate(zip(counts, held, strict=True)):
        want = sum(end - begin for begin, end in intervals)
        if count != want:
            text = f"rank {rank}: own.shape[{axis}]={count}, want {want} (rows of this rank of {sum(counts)})"
            raise ValueError(f"invalid argument: {text}")
    return _Unshard.apply(own, axis, group, held, counts)


class _Unshard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own, axis, group, held, counts):
        ctx.axis, ctx.held = axis, held[group.rank()]
        rows = own.detach().movedim(axis, 0).contiguous()
        padded = rows.new_empty((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        whole = rows.new_empty((sum(counts), *rows.shape[1:]))
        for part, intervals in zip(gather(group, _bytes(padded)), held, strict=True):
            rows, at = part.view(own.dtype).view(padded.shape), 0
            for begin, end in intervals:
                whole[begin:end] = rows[at : at + end - begin]
                at += end - begin
        return whole.movedim(0, axis)

    @staticmethod
    def backward(ctx, d_whole):
        parts = [d_whole.narrow(ctx.axis, begin, end - begin) for begin, end in [(0, 0), *ctx.held]]
        return torch.cat(parts, ctx.axis), None, None, None, None


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)
