"""Separate scales and offsets of keys and values, in the modes of torch_npu's functions for inference."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def separate_scales(
    key_scales: tuple[Tensor | None, Tensor | None],
    value_scales: tuple[Tensor | None, Tensor | None],
    modes: tuple[int, int],
    heads_kv: int,
    paged: bool,
    names: ScaleNames,
) -> dict[str, Tensor | bool | None]:
    """Returns the members of an `Inference` that hold separate scales and offsets of keys and values.

    Args:
        key_scales, value_scales: a scale and an offset each.
        heads_kv: number of key heads.
    """
    for name, mode in zip(names.modes, modes, strict=True):
        if mode not in _MODES:
            raise ValueError(f"invalid argument: {name}={mode}, want one of {', '.join(map(str, _MODES))}")
        if paged is not (mode in _PAGED_MODES) and mode not in (0, 1, 2):
            want = "0, 1, 2, 4 or 5 with pages" if paged else "0 to 3 without pages"
            raise ValueError(f"invalid argument: {name}={mode}, want {want}")
    if modes[0] != modes[1] and (modes != (0, 1) or paged):
        raise ValueError(f"invalid argument: {names.modes[1]}={modes[1]}, want {modes[0]} ({names.modes[0]})")
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
    if modes == (1, 1):  # one per token is read by sequence in this form, also with pages
        both = zip(pairs, names.pairs, strict=True)
        scale, offset = (None if pair[0] is None else _stacked(pair, name) for pair, name in both)
        return {"antiquant_scale": scale, "antiquant_offset": offset, "antiquant_per_token": True}
    own = {}
    sides = ("k", key_scales, modes[0], names.key), ("v", value_scales, modes[1], names.value)
    for side, scales, mode, name in sides:
        for part, scale, called in zip(("scale", "offset"), scales, name, strict=True):
            own[f"{side}_{part}"] = None if scale is None else _of_mode(scale, mode, heads_kv, called)
    return own


class ScaleNames(NamedTuple):
    """Names in errors: (scale, offset) of keys and of values, and their modes."""

    key: tuple[str, str]
    value: tuple[str, str]
    modes: tuple[str, str]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.key, self.value, strict=True))


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

# For each mode, the dimensions of a scale. A scale gets the others as dimensions of 1.
_MODES = {0: "[1] or columns", 1: "[B, S]", 2: "[Nkv]", 3: "[B, Nkv, S]", 4: "[blocks, rows]", 5: "[blocks, Nkv, rows]"}
_PAGED_MODES = (4, 5)


def _of_mode(scale: Tensor, mode: int, heads_kv: int, name: str) -> Tensor:
    """Returns a scale in the shape that fa.decode_attention takes: [B, Nkv, S, groups], or with pages [blocks, Nkv,
    rows, groups]."""
    shape = list(scale.shape)
    if mode == 0:
        if scale.numel() == 1:
            return scale.reshape(1, 1, 1, 1)
        if scale.numel() % heads_kv == 0 and shape[-1] * heads_kv in (scale.numel(), scale.numel() * heads_kv):
            return scale.reshape(1, heads_kv, 1, -1)
    elif mode == 2:
        if scale.numel() == heads_kv and shape[-1] == heads_kv:
            return scale.reshape(1, heads_kv, 1, 1)
    else:
        dimensions = 2 if mode in (1, 4) else 3
        if len(shape) == dimensions + 1 and shape[0] == 1:
            scale = scale[0]
        if scale.dim() == dimensions:
            return (scale[:, None] if dimensions == 2 else scale)[..., None]
    raise ValueError(f"invalid argument: {name}.shape={shape}, want {_MODES[mode]} (mode {mode})")


def _stacked(pair: tuple[Tensor, Tensor], names: tuple[str, str]) -> Tensor:
    """Returns scales per token, of keys and of values, as one tensor [2, B, S]."""
    key, value = (t[0] if t.dim() == 3 and t.shape[0] == 1 else t for t in pair)
    if key.shape != value.shape:
        raise ValueError(f"invalid argument: {names[1]}.shape={list(value.shape)}, want {list(key.shape)} ({names[0]})")
    return torch.stack([key, value])
