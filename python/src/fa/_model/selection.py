"""Attention in which each query row looks only at a list of keys, because the model has selected them. The lists become
a mask of pairs. Few rows read the listed keys where they lie, as pages of one key.

`lists` is an integer tensor [B, H, Sq, K]. If `block` is 0, an entry names a key. Otherwise an entry names a block of
`block` keys, and a negative entry names nothing. The order and repetition of entries change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .._fa import PairMask
from . import words

FEW_ROWS = 16  # more query rows are computed by other kernels, which give other bits


def check_sizes(query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None) -> None:
    """Raises ValueError for wrong sizes. Later steps slice heads and gather keys, and would hide such an error."""
    batch = query.shape[0]
    sizes = [(f"{name}.shape[0]", t.shape[0], "query.shape[0]", batch) for name, t in (("key", key), ("value", value))]
    sizes += [(f"value.shape[{i}]", value.shape[i], f"key.shape[{i}]", key.shape[i]) for i in (1, 2)]
    if sink is not None:
        sizes.append(("s_aux.shape[0]", sink.shape[0], "query.shape[1]", query.shape[1]))
    for name, size, other, want in sizes:
        if size != want:
            raise ValueError(f"invalid argument: {name}={size}, want {want} ({other})")


def check_lists(lists: Tensor, block: int, keys: int) -> None:
    """Raises ValueError for an entry that names a key or a block that does not exist."""
    if lists.numel() == 0:
        return
    name, least, number = ("block_indices", -1, _blocks(block, keys)) if block else ("indices", 0, keys)
    for entry in map(int, lists.aminmax()):
        if not least <= entry < number:
            raise ValueError(f"invalid argument: {name}: an entry is {entry}, want {least}..{number - 1}")


def listed_pairs(lists: Tensor, block: int, keys: int) -> PairMask:
    """Returns the mask [B, H, Sq, keys] that keeps the listed keys of each row."""
    if block:
        return PairMask.from_blocks(lists, lists.shape[2], keys, (1, block))
    return PairMask.from_indices(lists, keys)


def groups(call: Any, heads: int, heads_kv: int) -> Iterator[tuple[slice, slice, Any]]:
    """Divides a call into calls whose heads share their lists. Yields (heads of query, heads of key, the call)."""
    number = 1 if call.lists is None else call.lists.shape[1]
    if number == 1:
        yield slice(None), slice(None), call
        return
    for group in range(number):
        q, kv = (slice(group * size // number, (group + 1) * size // number) for size in (heads, heads_kv))
        state, mask = call.dropout_state, call.dense_mask
        yield (
            q,
            kv,
            call._replace(
                lists=call.lists[:, group : group + 1],
                dense_mask=mask if mask is None or mask.shape[1] == 1 else mask[:, q],
                pse=None if call.pse is None else call.pse[:, q],
                sink=None if call.sink is None else call.sink[q],
                dropout_state=None if state is None else state + torch.tensor([group, 0]),  # a seed per group
            ),
        )


def is_short(call: Any, query: Tensor, key: Tensor) -> bool:
    """Returns whether the rows together list fewer than half of all keys. Each row then reads its listed keys where they
    lie. Otherwise one pass over all keys for all rows is faster (measured on Zen 4).
    """
    return 2 * query.shape[2] * call.lists.shape[3] * max(call.block, 1) < key.shape[2]


def of_elements(keys: int, call: Any) -> Iterator[tuple[Tensor, Any]]:
    """Divides a call with one list for all heads into calls for each batch element, in which each row is a sequence of
    its own, whose keys are the listed ones. Yields (the places of the keys, int32 [Sq, L]; the call).
    """
    places, seen = _places(call.lists[:, 0], call.block, keys)
    if call.rows is not None:
        begins, ends = call.rows[:, 0].split(1, -1)
        seen = seen & (begins <= places) & (places < ends)
    seen = seen[:, None]
    if call.dense_mask is not None:
        seen = seen & _of_pairs(call.dense_mask, places)
    bias = None if call.pse is None else _of_pairs(call.pse, places)
    every = bool(seen.all())
    for i, of_rows in enumerate(places.int()):
        mask = None if every else rows_first(seen[i])
        own_bias = None if bias is None else rows_first(bias[i])
        yield of_rows, call._replace(rows=None, lists=None, dense_mask=mask, pse=own_bias)


def _blocks(block: int, keys: int) -> int:
    return -(-keys // block)


def _places(lists: Tensor, block: int, keys: int) -> tuple[Tensor, Tensor]:
    """Returns the listed keys of each row in ascending order, int64 [B, Sq, L], and bool [B, Sq, L], False for
    repetitions and for entries that name no key."""
    named = lists.long().sort(-1).values
    seen = named >= 0
    seen[..., 1:] &= named[..., 1:] != named[..., :-1]
    if block:
        named = (named[..., None] * block + torch.arange(block)).flatten(-2)
        seen = seen.repeat_interleave(block, -1) & (named < keys)
    return named.clamp(0, keys - 1), seen


def _of_pairs(tensor: Tensor, places: Tensor) -> Tensor:
    """Returns the elements of a tensor [B|1, H, Sq, Sk], or of words of such pairs, at the keys in `places`, as
    [B, H, Sq, L]."""
    (batch, rows, listed), heads = places.shape, tensor.shape[1]
    every, at = tensor.expand(batch, -1, -1, -1), places[:, None].expand(batch, heads, rows, listed)
    return words.bits_at(every, at) if tensor.dtype == torch.int64 else every.gather(-1, at)


def rows_first(tensor: Tensor) -> Tensor:
    """Returns a tensor [N, S, D] as [S, N, 1, D], with one sequence, or one page, per row."""
    return tensor.transpose(0, 1).unsqueeze(2)
