"""Masks of pairs as words: int64 [.., Sq, ceil(Sk / 64)], where bit j % 64 of word j // 64 says whether a row looks at
key j. Words take an eighth of the memory of a bool tensor, and `fa.PairMask.from_bits` reads them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

BITS = 64
_PAIRS = 1 << 22  # the most pairs in a slab; each takes a byte until it is packed
_ROWS = 128  # rows of a tile in the library


def words_of(kept: Tensor) -> Tensor:
    """Returns bool [.., Sq, Sk] as words."""
    bits = pad(kept, (0, -kept.shape[-1] % BITS)).view(torch.uint8).unflatten(-1, (-1, 8))
    octets = (bits << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)
    if sys.byteorder == "big":
        octets = octets.unflatten(-1, (-1, 8)).flip(-1).flatten(-2)
    return octets.view(torch.int64)


def words_of_slabs(kept: Callable[[int, int], Tensor], batch: int, rows: int, keys: int) -> Tensor:
    """Returns the words of a mask [B, 1, Sq, Sk] that `kept(begin, end)` computes for slabs of query rows."""
    parts = []
    for begin, end in _slabs(batch, rows, keys):
        slab = kept(begin, end)
        parts.append(words_of(slab[:1] if slab.stride(0) == 0 else slab))
    return parts[0].expand(batch, -1, -1, -1) if len(parts) == 1 else torch.cat(parts, 2).expand(batch, -1, -1, -1)


def _slabs(batch: int, rows: int, keys: int) -> Iterator[tuple[int, int]]:
    step = max(_PAIRS // max(batch * keys, 1) // _ROWS, 1) * _ROWS
    for begin in range(0, max(rows, 1), step):
        yield begin, min(begin + step, rows)


def pairs_of(words: Tensor, keys: int) -> Tensor:
    """Returns words of `keys` keys as bool [.., Sq, keys]."""
    return bits_at(words, torch.arange(keys, device=words.device).expand(*words.shape[:-1], keys))


def bits_at(words: Tensor, places: Tensor) -> Tensor:
    """Returns bool [.., Sq, L]: the bits of the keys in `places` [.., Sq, L]."""
    return (words.gather(-1, places // BITS) >> places % BITS & 1).bool()
