"""Caches of transformers whose layers write new keys and values in place.

A layer keeps its keys in rows of a larger tensor and returns views. `keys` and `values` are such views too. So the other
methods of transformers' layers, which cut, select and repeat them, keep their meaning. A layer whose tensors were
replaced by such a method copies them into a tensor with room at its next update. No row that was returned changes.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicIndexedLayer, DynamicLayer, DynamicSlidingWindowLayer

from .._torch.cache_ops import scatter_rows

FLOATS = torch.float32, torch.bfloat16, torch.float16
CODES = {"int8": torch.int8, "e4m3": torch.float8_e4m3fn}
_SCALE = "_fa_scale"


class GrowingCache(DynamicCache):
    """A `transformers.DynamicCache` whose layers write new keys and values in place. A full tensor is replaced by one
    with twice the rows.

        model.generate(**inputs, past_key_values=fa.transformers.GrowingCache(model.config))

    DynamicCache copies all keys and values in every step. This cache does so where gradients are recorded, once after
    rows were cut, and when a tensor is full. For layers of other kinds, such as linear attention, it uses
    DynamicCache's own classes.

    config: the configuration of the model.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config=config)
        self.layers = [self._adapted(layer) for layer in self.layers]

    def _adapted(self, layer: Any) -> Any:
        made = _growing(type(layer), _Growing)
        return layer if made is None else _of_class(made, layer, {"held": {}})

    @property
    def nbytes(self) -> int:
        """The bytes of the keys and values in the cache, with their scales, without room for more."""
        return sum(t.numel() * t.itemsize for layer in self.layers for t in _tensors_of(layer))


class CompressedCache(GrowingCache):
    """A `GrowingCache` with keys and values of 8 bits and one float32 scale per token and head.

        model.generate(**inputs, past_key_values=fa.transformers.CompressedCache(model.config, dtype="int8"))

    A scale is the largest magnitude of a token's head, divided by 127 or 448. Attention reads the codes where they lie,
    in prompts too. So the model needs attn_implementation="fa"; it has no gradients of keys and values. When a tensor
    is full, it grows by a quarter. `keys` and `values` of a layer are codes, as bytes.

    Args:
        config: the configuration of the model.
        dtype: "int8" or "e4m3".

    Raises:
        ValueError: dtype is neither "int8" nor "e4m3"; the model has another attn_implementation; its cache holds no
            keys, or layers of an unknown kind. In the model's first step: keys are not float32, bfloat16 or float16.
    """

    def __init__(self, config: PreTrainedConfig, dtype: str = "int8") -> None:
        if dtype not in CODES:
            raise ValueError(f"invalid argument: dtype={dtype!r}, want one of {', '.join(CODES)}")
        named = getattr(config.get_text_config(decoder=True), "_attn_implementation", None)
        if named not in (None, "fa"):
            raise ValueError(f'invalid argument: config: has attn_implementation="{named}", want "fa"')
        rank = getattr(config.get_text_config(decoder=True), "kv_lora_rank", None)
        if rank is not None:
            why = "the model computes keys from what its cache holds"
            raise ValueError(f"invalid argument: config: has kv_lora_rank={rank}, want none: {why}")
        self._codes = CODES[dtype]
        super().__init__(config)

    def _adapted(self, layer: Any) -> Any:
        made = _growing(type(layer), _Compressed)
        if made is not None:
            scales = _of_class(_growing(_kind_of_scales(layer), _Growing), layer, {"held": {}, "growth": made.growth})
            return _of_class(made, layer, {"held": {}, "codes": self._codes, "scales": scales, "fresh": {}})
        if hasattr(layer, "keys"):
            kind = type(layer).__name__
            raise ValueError(f"invalid argument: config: has caches of {kind}, which hold no keys of 8 bits")
        return layer


class Int8Cache(CompressedCache):
    """A `CompressedCache` of int8.

    config: the configuration of the model.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config, "int8")


def scale_of(keys: Tensor) -> Tensor | None:
    """Returns the scale [B, Nkv, S, 1] of keys or values from a CompressedCache, or None for any other tensor."""
    return getattr(keys, _SCALE, None)


def _tensors_of(layer: Any) -> list[Tensor]:
    names = "keys", "values", "indexer_keys"
    scales = _tensors_of(layer.scales) if hasattr(layer, "scales") else []
    return [t for t in (getattr(layer, name, None) for name in names) if isinstance(t, Tensor)] + scales


class _Growing:
    """Replaces how a layer of transformers joins its tensors [.., S, D] with new ones."""

    growth = 2.0  # a new tensor's number of rows, as a multiple of the rows that are needed now
    # The larger tensors, of which keys and values are parts, and the row after the last one that was returned.
    held: dict[str, tuple[Tensor, int]]

    def __reduce__(self) -> tuple:
        """Describes the layer to copy and pickle. The copy gets no larger tensors, so that no two layers write the same
        rows.
        """
        return _restored, type(self).__bases__, self.__dict__ | {"held": {}}

    def lazy_initialization(self, *args: Any, **keywords: Any) -> None:
        super().lazy_initialization(*args, **keywords)
        self.held = {}

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        if not self.is_indexer_initialized:
            self.lazy_initialization_indexer(indexer_key_states)
        self.indexer_keys = _Growing.joined(self, "indexer_keys", indexer_key_states)
        return self.indexer_keys

    def joined(self, name: str, new: Tensor) -> Tensor:
        """Returns the earlier rows and the new ones."""
        old = getattr(self, name)
        alike = old.dtype == new.dtype and old.device == new.device
        if torch.is_grad_enabled() or not (alike and _fits(old, new.shape)):
            return torch.cat([old, new], -2)  # backward needs earlier rows as they were
        whole = self.with_room(name, old, new.shape, new.dtype)
        whole[..., whole.shape[-2] - new.shape[-2] :, :] = new
        return whole

    def with_room(self, name: str, old: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Returns a tensor with the rows of `old`, followed by uninitialised rows for new ones of shape `shape`."""
        before = old.shape[-2] if old.dim() == len(shape) else 0
        rows = before + shape[-2]
        held, end = self.held.get(name, (None, 0))
        first = _first_row(old, held) if before else None
        if first is None or first + before != end or first + rows > held.shape[-2] or _is_frozen(held):
            held = torch.empty((*shape[:-2], int(rows * self.growth), shape[-1]), dtype=dtype, device=old.device)
            if before:
                held[..., :before, :] = old
            first = 0
        self.held[name] = held, first + rows
        return held[..., first : first + rows, :]

    def read(self, name: str, stored: Tensor) -> Tensor:
        """Returns keys or values as the model gets them."""
        return stored


class _Compressed(_Growing):
    """A layer whose rows are codes. The scales of its rows are the rows of a second layer of the same kind, which goes
    through the same methods."""

    growth = 1.25
    codes: torch.dtype
    scales: Any  # a layer with float32 [B, Nkv, S, 1]
    fresh: dict[str, Tensor]  # the scales of the rows that were joined last

    def __reduce__(self) -> tuple:
        *how, members = super().__reduce__()
        return *how, members | {"scales": copy.copy(self.scales), "fresh": {}}

    def check(self, name: str, new: Tensor) -> None:
        """Raises ValueError for rows that cannot be joined, and unless each earlier row has a scale."""
        if new.dtype not in FLOATS:
            raise ValueError(f"invalid argument: {name} of the cache are {new.dtype}, want float32, bfloat16 or float16")
        if new.device.type != "cpu":
            raise ValueError(f"invalid argument: {name} of the cache are on {new.device}, want cpu")
        if self.is_initialized:
            old, scale = getattr(self, name), getattr(self.scales, name)
            if old.dim() != 1 and old.shape[:-1] != scale.shape[:-1]:
                words = f"have {list(old.shape[:-1])} rows and {list(scale.shape[:-1])} scales"
                raise ValueError(f"invalid argument: {name} of the cache {words}, want changes by the cache's methods only")
            if not _fits(old, new.shape):
                want = [*old.shape[:-2], new.shape[-2], old.shape[-1]]
                raise ValueError(f"invalid argument: {name} of the cache.shape={list(new.shape)}, want {want}")
        if torch.is_grad_enabled() and new.requires_grad:
            words = "require a gradient, and codes of 8 bits have none; want torch.no_grad()"
            raise ValueError(f"invalid argument: {name} {words}")

    def compressed(self, key_states: Tensor, value_states: Tensor) -> list[Tensor]:
        """Returns codes of rows [B, N, S, D] as bytes, and keeps their scales in `fresh`."""
        batch, heads, rows, _ = key_states.shape
        tokens = [t.transpose(1, 2).reshape(batch * rows, heads, -1) for t in (key_states, value_states)]
        codes = [torch.empty(t.shape, dtype=self.codes) for t in (key_states, value_states)]
        scales = [torch.empty((batch, heads, rows, 1), dtype=torch.float32) for _ in range(2)]
        self.fresh = dict(zip(("keys", "values"), scales, strict=True))
        places = torch.arange(batch * rows, dtype=torch.int32)
        of_caches = dict(zip(("key_scale_cache", "value_scale_cache"), scales, strict=True))
        scatter_rows(*tokens, places, *codes, **of_caches, form="BnNBsD")
        return [t.view(torch.uint8) for t in codes]

    def joined(self, name: str, new: Tensor) -> Tensor:
        whole = self.with_room(name, getattr(self, name), new.shape, torch.uint8)
        whole[..., whole.shape[-2] - new.shape[-2] :, :] = new
        return whole

    def read(self, name: str, stored: Tensor) -> Tensor:
        return stored.view(self.codes)


def _with_scales(update: Callable) -> Callable:
    """Returns the update method of a compressed layer. It updates codes by `update`, and the scales of the codes
    too.
    """

    def with_scales(self: Any, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.check("keys", key_states)
        self.check("values", value_states)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        codes = update(self, *self.compressed(key_states, value_states))
        with torch.no_grad():
            scales = self.scales.update(self.fresh["keys"], self.fresh["values"])
        for of_side, scale in zip(codes, scales, strict=True):
            setattr(of_side, _SCALE, scale)
        return codes

    return with_scales


def _forwarded(name: str) -> Callable:
    """Returns a method of a compressed layer. It calls the method `name` of transformers' layer on codes and on
    scales.
    """

    def both(self: Any, *arguments: Any) -> None:
        getattr(super(_Compressed, self), name)(*arguments)
        getattr(self.scales, name)(*arguments)

    return both


_METHODS = "reset", "reorder_cache", "crop", "batch_repeat_interleave", "batch_select_indices", "activate_past_recording"


def _full_update(
    self: Any, key_states: Tensor, value_states: Tensor, *args: Any, **keywords: Any
) -> tuple[Tensor, Tensor]:
    if not self.is_initialized:
        self.lazy_initialization(key_states, value_states)
    self.keys, self.values = self.joined("keys", key_states), self.joined("values", value_states)
    return self.read("keys", self.keys), self.read("values", self.values)


def _sliding_update(
    self: Any, key_states: Tensor, value_states: Tensor, *args: Any, **keywords: Any
) -> tuple[Tensor, Tensor]:
    """Works like the update method of DynamicSlidingWindowLayer."""
    if not self.is_initialized:
        self.lazy_initialization(key_states, value_states)
    self.cumulative_length += key_states.shape[-2]
    whole = self.joined("keys", key_states), self.joined("values", value_states)
    if self.record_past:
        self.keys, self.values = whole
        visible = self.sliding_window - 1 + key_states.shape[-2]
        whole = tuple(t[:, :, -visible:, :] for t in whole)
    else:
        self.keys, self.values = (t[:, :, -self.sliding_window + 1 :, :] for t in whole)
    return self.read("keys", whole[0]), self.read("values", whole[1])


_UPDATES = {DynamicLayer.update: _full_update, DynamicSlidingWindowLayer.update: _sliding_update}


@functools.cache
def _growing(kind: type, rule: type) -> type | None:
    """Returns a class of layers like `kind`, which joins its tensors by `rule`. Returns None for a class that joins its
    tensors in a way of its own.
    """
    update = _UPDATES.get(getattr(kind, "update", None))
    if update is None:
        return None
    # transformers would register a class with a _layer_type as its own.
    if rule is _Compressed:
        update = _with_scales(update)
    members = {"update": torch.compiler.disable(update), "_layer_type": None}
    if rule is _Compressed:
        members |= {name: _forwarded(name) for name in _METHODS if hasattr(kind, name)}
    if getattr(kind, "update_indexer", None) is DynamicIndexedLayer.update_indexer:
        members["update_indexer"] = torch.compiler.disable(_Growing.update_indexer)
    return type(f"{rule.__name__.strip('_')}{kind.__name__}", (rule, kind), members)


def _kind_of_scales(layer: Any) -> type:
    """Returns the class of layers that keep the same rows as `layer`, but only keys and values."""
    return DynamicSlidingWindowLayer if isinstance(layer, DynamicSlidingWindowLayer) else DynamicLayer


def _of_class(made: type, layer: Any, own: dict[str, Any]) -> Any:
    """Returns a layer of class `made` with the members of `layer` and `own`."""
    adapted = made.__new__(made)
    adapted.__dict__.update(layer.__dict__, **own)
    return adapted


def _restored(rule: type, kind: type) -> Any:
    made = _growing(kind, rule)
    return made.__new__(made)


def _fits(old: Tensor, shape: torch.Size) -> bool:
    """Whether rows of this shape can follow `old`, which has one dimension if there are no rows yet."""
    return old.dim() == 1 or (old.shape[:-2] == shape[:-2] and old.shape[-1:] == shape[-1:])


def _first_row(part: Tensor, held: Tensor | None) -> int | None:
    """Returns at which row of `held` the tensor `part` begins. Returns None if it is no part of `held`."""
    if held is None or part.dtype != held.dtype:
        return None
    if part.shape[:-2] != held.shape[:-2] or part.shape[-1] != held.shape[-1]:
        return None
    if part.untyped_storage().data_ptr() != held.untyped_storage().data_ptr() or part.stride() != held.stride():
        return None
    return (part.storage_offset() - held.storage_offset()) // held.stride(-2)


def _is_frozen(held: Tensor) -> bool:
    """Whether the tensor was made in inference mode, and inference mode is now off. PyTorch refuses to write such a
    tensor.
    """
    return held.is_inference() and not torch.is_inference_mode_enabled()
