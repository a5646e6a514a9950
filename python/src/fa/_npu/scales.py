"""Separate scales and offsets of keys and values, in the modes of torch_npu's functions for inference."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._decode import PACKED


def separate_scales(
    key_scales: tuple[Tensor | None, Tensor | None],
    value_scales: tuple[Tensor | None, Tensor | None],
    modes: tuple[int, int],
    keys: tuple[KeySizes, KeySizes],
    names: ScaleNames,
) -> dict[str, Tensor | bool | None]:
    """Returns the members of an `Inference` that hold separate scales and offsets of keys and values. Without them,
    returns an empty dict.

    Args:
        key_scales, value_scales: a scale and an offset each.
        keys: the sizes of keys and of values.
    """
    paged = keys[0].paged
    for name, mode in zip(names.modes, modes, strict=True):
        if mode not in _MODES:
            raise ValueError(f"invalid argument: {name}={mode}, want one of {', '.join(map(str, _MODES))}")
        if not paged and mode in _PAGED_MODES:
            raise ValueError(f"invalid argument: {name}={mode}, want 0 to 3 without pages")
    of_sequences = paged and not _TOKEN_MODES.isdisjoint(modes)
    if of_sequences and not _PAGED_MODES.isdisjoint(modes):
        wrong, other = (0, 1) if modes[0] in _PAGED_MODES else (1, 0)
        reason = f"{names.modes[other]}={modes[other]}"
        raise ValueError(f"invalid argument: {names.modes[wrong]}={modes[wrong]}, want 0 to 3 ({reason})")
    pairs = tuple(zip(key_scales, value_scales, strict=True))
    for (own, other), pair in zip(zip(names.key, names.value, strict=True), pairs, strict=True):
        if (pair[0] is None) != (pair[1] is None):
            raise ValueError(f"invalid argument: {own if pair[0] is None else other}: missing, want both or none")
    for (scale, offset), name in ((key_scales, names.key), (value_scales, names.value)):
        if scale is None and offset is not None:
            raise ValueError(f"invalid argument: {name[0]}: missing, want it with {name[1]}")
        if offset is not None and offset.shape != scale.shape:
            want = f"want {list(scale.shape)} ({name[0]})"
            raise ValueError(f"invalid argument: {name[1]}.shape={list(offset.shape)}, {want}")
    if key_scales[0] is None:
        return {}
    for name, mode in zip(names.modes, modes, strict=True):
        if keys[0].packed and mode in _TOKEN_MODES:
            raise ValueError(f"invalid argument: {name}={mode}, want 0 or 2 (packed keys without pages)")
    own = {}
    sides = ("k", key_scales, modes[0], keys[0], names.key), ("v", value_scales, modes[1], keys[1], names.value)
    for side, scales, mode, sizes, name in sides:
        for part, scale, called in zip(("scale", "offset"), scales, name, strict=True):
            own[f"{side}_{part}"] = None if scale is None else _of_mode(scale, mode, sizes, called)
    return {**own, "antiquant_per_token": of_sequences}


class KeySizes(NamedTuple):
    """Sizes of keys or of values. In pages, `batch` is the number of pages, and `rows` the size of a page. `sequences`
    is the batch size, also with pages. `packed` means that sequences without pages follow one another.
    """

    batch: int
    heads: int
    rows: int
    columns: int
    paged: bool
    packed: bool
    sequences: int

    @classmethod
    def of(
        cls, keys: Tensor, layout: str, heads: int, block_table: Tensor | None, block_size: int
    ) -> KeySizes:
        shape = [*keys.shape, 1, 1, 1][: max(keys.dim(), 3)]
        last = shape[-1] * (PACKED if keys.dtype == torch.int32 else 1)
        paged, four = block_table is not None, len(shape) > 3
        left = layout.upper().partition("_")[0]
        if paged and len(shape) == 5:  # columns in chunks
            return cls(shape[0], shape[1], shape[3], shape[2] * last, paged, False, block_table.shape[0])
        if left == "NSD" and not paged:
            return cls(1, heads, shape[1], last, paged, False, 1)
        packed = left in ("TND", "NTD") and not paged
        columns = last if four or packed else last // max(heads, 1)
        heads_first = four and left == "BNSD"
        if paged and four:  # pages have their heads first if the sizes fit this order, whatever the layout
            heads_first = shape[1] == heads and block_size in (0, shape[2])
        sequences = block_table.shape[0] if paged and block_table.dim() > 0 else shape[0]
        return cls(shape[0], heads, shape[2 if heads_first else 1], columns, paged, packed, sequences)


class ScaleNames(NamedTuple):
    """Argument names for errors: (scale, offset) of keys and of values, and (mode of keys, mode of values)."""

    key: tuple[str, str]
    value: tuple[str, str]
    modes: tuple[str, str]


SEPARATE = ScaleNames(
    ("key_antiquant_scale", "key_antiquant_offset"),
    ("value_antiquant_scale", "value_antiquant_offset"),
    ("key_antiquant_mode", "value_antiquant_mode"),
)
SEPARATE_V2 = ScaleNames(
    ("dequant_scale_key", "dequant_offset_key"),
    ("dequant_scale_value", "dequant_offset_value"),
    ("key_quant_mode", "value_quant_mode"),
)

# The members of an Inference that hold scales of keys and values.
NO_SCALES = dict.fromkeys(("k_scale", "v_scale", "k_offset", "v_offset", "antiquant_scale", "antiquant_offset"))
NO_SCALES |= {"antiquant_per_token": False}

# The modes: per tensor or column, per token, per head, per token and head, per row of pages, per row and head of pages.
_MODES = range(6)
_TOKEN_MODES = {1, 3}
_PAGED_MODES = {4, 5}


def _of_mode(scale: Tensor, mode: int, sizes: KeySizes, name: str) -> Tensor:
    """Returns a scale in the shape that fa.decode_attention takes: [B, Nkv, S, groups], or with pages [blocks, Nkv,
    rows, groups]."""
    shape, heads, columns = list(scale.shape), sizes.heads, sizes.columns
    if mode == 0:
        if scale.numel() == 1:
            return scale.reshape(1, 1, 1, 1)
        per_head = shape[-1] == columns and [size for size in shape[:-1] if size != 1] in ([heads], [])
        if scale.numel() == heads * columns and (per_head or shape[-1] == heads * columns):
            return scale.reshape(1, heads, 1, -1)
        want = f"[1], [{heads}, 1, {columns}], [{heads}, {columns}] or [{heads * columns}]"
    elif mode == 2:
        if scale.numel() == heads and shape[-1] == heads:
            return scale.reshape(1, heads, 1, 1)
        want = f"[{heads}]"
    else:
        per_row = sizes.paged and mode in _TOKEN_MODES  # numbers per row of a sequence, whose length the library checks
        front = [sizes.sequences if per_row else sizes.batch, *([] if mode in (1, 4) else [heads])]
        more = mode in _TOKEN_MODES  # there may be numbers for more rows than the keys have
        if len(shape) == len(front) + 2 and shape[0] == 1:
            scale = scale[0]
        rows = scale.shape[-1] if scale.dim() == len(front) + 1 else -1
        fits = per_row or rows == sizes.rows or (more and rows > sizes.rows)
        if rows >= 0 and list(scale.shape[:-1]) == front and fits:
            return (scale[:, None] if len(front) == 1 else scale)[..., None]
        least = "S" if per_row else f">={sizes.rows}" if more else str(sizes.rows)
        want = f"[{', '.join(map(str, front))}, {least}]"
    raise ValueError(f"invalid argument: {name}.shape={shape}, want {want} (mode {mode})")


def scale_of_query(scale: Tensor, query: Tensor, layout: str, heads: int) -> Tensor:
    """Returns the scales of query rows in the shape of the query without D. `scale` may also be flat, or have more or
    fewer dimensions of size 1.
    """
    want = [*query.shape[:-1], *([heads] if layout.upper().startswith("BSH") else [])]
    long = [[size for size in shape if size != 1] for shape in (want, scale.shape)]
    if long[0] == long[1] or list(scale.shape) == [torch.Size(want).numel()]:
        return scale.reshape(want)
    raise ValueError(f"invalid argument: dequant_scale_query.shape={list(scale.shape)}, want {want}")
