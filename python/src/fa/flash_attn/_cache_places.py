"""Where the sequences of a call lie in the caches. This module reads and checks tensors of lengths and places before
the call writes anything."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._arguments import FP8, invalid
from ._sequences import Piece, chunked


class Places(NamedTuple):
    """The places of sequences in the caches. Each list has one entry per sequence."""

    slots: list[int]  # indices in the first dimension of the caches, or of block_table
    begins: list[int]  # the place of the first key
    lengths: list[int]  # the place of the first new key
    added: list[int]  # number of new keys, which follow the earlier ones

    @property
    def ends(self) -> list[int]:
        return [length + new for length, new in zip(self.lengths, self.added, strict=True)]


def places_of(
    sequences: int,
    capacity: int,
    slots: int,
    added: list[int],
    cache_seqlens: Tensor | None,
    cache_batch_idx: Tensor | None,
    cache_leftpad: Tensor | None,
) -> Places:
    """Returns the places. `capacity` is the number of keys that a sequence may have, `slots` the number of sequences
    for which the caches or block_table have room."""
    lengths = [capacity] * sequences if cache_seqlens is None else cache_seqlens.tolist()
    for i, (length, new) in enumerate(zip(lengths, added, strict=True)):
        if not 0 <= length <= capacity - new:
            raise invalid(f"cache_seqlens[{i}]", length, f"0..{capacity - new}")
    chosen = list(range(sequences)) if cache_batch_idx is None else cache_batch_idx.tolist()
    for i, slot in enumerate(chosen):
        if not 0 <= slot < slots:
            raise invalid(f"cache_batch_idx[{i}]", slot, f"0..{slots - 1}")
    if any(added) and len(set(chosen)) < len(chosen):
        raise invalid("cache_batch_idx", chosen, "places that differ, as k is given")
    begins = [0] * sequences if cache_leftpad is None else cache_leftpad.tolist()
    for i, (begin, length, new) in enumerate(zip(begins, lengths, added, strict=True)):
        if not 0 <= begin <= length + new:
            raise invalid(f"cache_leftpad[{i}]", begin, f"0..{length + new}")
    return Places(chosen, begins, lengths, added)


def check_pages(block_table: Tensor, places: Places, pages: int, page: int) -> None:
    """Raises ValueError if block_table names a page outside of the caches where keys in use or new keys lie."""
    first = torch.tensor([begin // page for begin in places.begins])
    last = torch.tensor([-(-end // page) for end in places.ends])
    column = torch.arange(block_table.shape[1])
    used = (column >= first[:, None]) & (column < last[:, None])
    wrong = torch.nonzero(used & ((block_table < 0) | (block_table >= pages)))
    if wrong.shape[0]:
        b, i = wrong[0].tolist()
        raise invalid(f"block_table[{b}][{i}]", int(block_table[b, i]), f"0..{pages - 1} (pages)")


def append(
    caches: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], places: Places, block_table: Tensor | None
) -> None:
    """Writes new keys and new values [total, Nkv, D] into the caches, after the keys of their sequences."""
    runs = list(zip(places.slots, places.lengths, places.added, strict=True))
    slot = torch.tensor([slot for slot, _, count in runs for _ in range(count)], dtype=torch.int64)
    at = torch.tensor([length + i for _, length, count in runs for i in range(count)], dtype=torch.int64)
    if block_table is not None:
        page = caches[0].shape[1]
        slot, at = block_table[slot, at // page].long(), at % page
    for cache, rows in zip(caches, new, strict=True):
        cache, rows = (t.view(torch.uint8) if t.dtype in FP8 else t for t in (cache, rows))
        cache.index_put_((slot, at), rows)


def pieces_of_cache(cu_q: list[int], places: Places, chunk: int) -> list[Piece]:
    """Returns pieces that pair each sequence's rows of q with the keys in the cache that they look at."""
    pieces = []
    for b, (begin, end) in enumerate(zip(places.begins, places.ends, strict=True)):
        whole = Piece(b, cu_q[b], cu_q[b + 1], begin, end)
        pieces += [whole] if chunk <= 0 else chunked(whole, chunk)
    return [piece for piece in pieces if piece.q_end > piece.q_begin]
