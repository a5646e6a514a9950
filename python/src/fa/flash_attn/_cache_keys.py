"""The keys of some sequences in the caches, as arguments of the extension: views, or pages with a table. Nothing is
copied."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from ._cache_places import Places
from ._sequences import Piece


class Keys(NamedTuple):
    """Arguments of _fa.decode."""

    key: list[Tensor]  # one tensor for all sequences, or one each; [B, S, Nkv, D] or pages
    value: list[Tensor]
    lengths: list[int]  # counted from each tensor's first row
    width: int  # the number of keys for which biases and masks have entries
    block_table: Optional[Tensor] = None
    dense_mask: Optional[Tensor] = None  # 1 drops a key
    k_scale: Optional[Tensor] = None  # scales of keys in 8 bits
    v_scale: Optional[Tensor] = None


def keys_in_rows(k_cache: Tensor, v_cache: Tensor, pieces: list[Piece], places: Places) -> Keys:
    slots = [places.slots[piece.owner] for piece in pieces]
    first, count = slots[0], len(pieces)
    if slots == list(range(first, first + count)) and len({piece.k_begin for piece in pieces}) == 1:
        begin, end = pieces[0].k_begin, max(piece.k_end for piece in pieces)
        lengths = [piece.k_end - begin for piece in pieces]
        rows = slice(first, first + count), slice(begin, end)
        return Keys([k_cache[rows]], [v_cache[rows]], lengths, end - begin)
    spans = [(slot, slice(piece.k_begin, piece.k_end)) for slot, piece in zip(slots, pieces, strict=True)]
    lengths = [piece.k_end - piece.k_begin for piece in pieces]
    views = ([cache[slot, span][None] for slot, span in spans] for cache in (k_cache, v_cache))
    return Keys(*views, lengths, max(lengths))


def keys_in_pages(k_cache: Tensor, v_cache: Tensor, pieces: list[Piece], block_table: Tensor) -> Keys:
    """Returns the keys of sequences in pages. The table begins with the page of a sequence's first key. In this page, a
    mask drops the rows before the first key."""
    page = k_cache.shape[1]
    owners = [piece.owner for piece in pieces]
    if all(piece.k_begin == 0 for piece in pieces):
        lengths = [piece.k_end for piece in pieces]
        table = block_table if owners == list(range(block_table.shape[0])) else block_table[owners]
        return Keys([k_cache], [v_cache], lengths, max(*lengths, 1), table)
    first = torch.tensor([piece.k_begin // page for piece in pieces])
    before = torch.tensor([piece.k_begin % page for piece in pieces])
    lengths = [piece.k_end - piece.k_begin // page * page for piece in pieces]
    count = max(-(-max(lengths) // page), 1)
    columns = (first[:, None] + torch.arange(count)).clamp(max=block_table.shape[1] - 1)
    table = block_table[owners].gather(1, columns)
    mask = (torch.arange(count * page) < before[:, None]).byte() if before.any() else None
    return Keys([k_cache], [v_cache], lengths, count * page, table.contiguous(), mask)


def bias_of(slopes: Tensor, pieces: list[Piece], keys: Keys, back: int) -> Tensor:
    """Returns the biases -slope * |distance| of the row `back` keys before the last key, float32 [B, N, 1, width]."""
    own = slopes.expand(len(pieces), -1) if slopes.dim() == 1 else slopes[[piece.owner for piece in pieces]]
    place = torch.tensor(keys.lengths)[:, None] - 1 - back
    distance = (place - torch.arange(keys.width)).abs().float()
    return -own[:, :, None, None] * distance[:, None, None, :]
