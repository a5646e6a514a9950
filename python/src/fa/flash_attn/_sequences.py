"""Divides packed sequences into pieces, by cu_seqlens, seqused and attention_chunk."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._arguments import at, invalid


class Piece(NamedTuple):
    """Rows [q_begin, q_end) of q, which look at rows [k_begin, k_end) of k. The last row is at the last key."""

    owner: int  # the number of the sequence
    q_begin: int
    q_end: int
    k_begin: int
    k_end: int

    @property
    def offset(self) -> int:
        """Returns the offset with which row i has the place of key i + offset, both counted from the piece's begin."""
        return (self.k_end - self.k_begin) - (self.q_end - self.q_begin)


def boundaries(name: str, cu_seqlens: Tensor, rows: int) -> list[int]:
    """Returns prefix sums as numbers. Raises ValueError unless they begin with 0, do not decrease and end within `rows`
    rows."""
    sums = cu_seqlens.tolist()
    if not sums or sums[0] != 0:
        raise invalid(f"{name}[0]", sums[0] if sums else "missing", "0")
    for i, (begin, end) in enumerate(zip(sums, sums[1:], strict=False), 1):
        if end < begin:
            raise invalid(f"{name}[{i}]", end, f"at least {begin} (", at(f"{name}[{i - 1}]"), ")")
        if end > rows:
            raise invalid(f"{name}[{i}]", end, f"at most {rows}")
    return sums


def check_longest(name: str, longest: int, cu_seqlens: list[int]) -> None:
    most = max((end - begin for begin, end in zip(cu_seqlens, cu_seqlens[1:], strict=False)), default=0)
    if longest < most:
        raise invalid(name, longest, f"at least {most} (the longest sequence)")


def lengths_within(name: str, used: Tensor | None, cu_seqlens: list[int]) -> list[int]:
    """Returns how many rows of each sequence are in use."""
    whole = [end - begin for begin, end in zip(cu_seqlens, cu_seqlens[1:], strict=False)]
    if used is None:
        return whole
    lengths = used.tolist()
    for i, (length, most) in enumerate(zip(lengths, whole, strict=True)):
        if not 0 <= length <= most:
            raise invalid(f"{name}[{i}]", length, f"0..{most}")
    return lengths


def pieces_of(
    cu_q: list[int], cu_k: list[int], used_q: list[int], used_k: list[int], chunk: int
) -> list[Piece]:
    """Returns one piece per sequence. With chunk > 0, returns one piece per chunk of a sequence's keys, with the rows
    that look at this chunk."""
    whole = [
        Piece(i, cu_q[i], cu_q[i] + used_q[i], cu_k[i], cu_k[i] + used_k[i]) for i in range(len(used_q))
    ]
    return whole if chunk <= 0 else [part for piece in whole for part in chunked(piece, chunk)]


def chunked(piece: Piece, chunk: int) -> list[Piece]:
    """Divides a sequence into its chunks. Chunk c has `chunk` keys from key c * chunk on, and the rows at the places of
    these keys. Rows before the first key form a piece without keys.
    """
    owner, q_begin, q_end, k_begin, k_end = piece
    first = q_begin - piece.offset  # the row at the place of the first key
    parts = []
    if q_begin < min(first, q_end):
        parts.append(Piece(owner, q_begin, min(first, q_end), k_begin, k_begin))
    for begin in range(0, k_end - k_begin, chunk):
        end = min(begin + chunk, k_end - k_begin)
        rows = [min(max(first + key, q_begin), q_end) for key in (begin, end)]
        parts.append(Piece(owner, *rows, k_begin + begin, k_begin + end))
    return parts


def is_cover(pieces: list[Piece]) -> bool:
    """Returns whether the pieces begin at row 0 of q and of k and follow one another without gaps."""
    q = k = 0
    for piece in pieces:
        if piece.q_begin != q or piece.k_begin != k:
            return False
        q, k = piece.q_end, piece.k_end
    return True


def rows_of(spans: list[tuple[int, int]]) -> Tensor:
    """Returns the numbers of the rows in all spans, one span after another."""
    return torch.cat([torch.arange(begin, end) for begin, end in spans] or [torch.arange(0)])


def runs_of(keys: list) -> list[tuple[int, int]]:
    """Returns the ranges [begin, end) in which neighbouring keys are equal."""
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    return list(zip(starts, [*starts[1:], len(keys)], strict=True)) if keys else []
