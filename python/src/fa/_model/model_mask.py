"""A mask that a model gets in place of eager's mask. It stores which keys each row looks at, not the scores.

`ModelMask` has the shape, type and contents of the mask that transformers makes for "eager": [B, 1, Sq, Sk], 0 where a
row looks at a key and finfo.min where it does not. Inside, it stores one interval of keys per row, in O(Sq) memory, or
a bit per pair. Attention by `fa` reads these directly. If a model cuts rows, batch elements or trailing keys from the
mask, it gets another ModelMask. For any other operation, eager's tensor is computed, and the result is a plain tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._pytorch import no_torch_function, tree_leaves, tree_map, wrapper_of, written_arguments
from . import words

_ATEN = torch.ops.aten
_COPIES = (_ATEN.detach.default, _ATEN.alias.default, _ATEN.clone.default, _ATEN.lift_fresh.default)
_WRITTEN = "invalid argument: attention_mask: {} changes a mask of fa.transformers, which is a rule; want mask + 0, a tensor"


class ModelMask(Tensor):
    """A mask [B, H, Sq, Sk] in the type of the model's scores.

    `held` is int32 [B, 1, Sq, 2] or int64 [B, 1, Sq, ceil(Sk / 64)]. As int32, row i looks at keys held[..., 0] <= j <
    held[..., 1], and both ends do not decrease with i. As int64, `held` has the words of the pairs. `padding` is None
    or, with an int32 `held`, words [B, 1, 1, ceil(Sk / 64)] of keys that all rows may look at.
    """

    held: Tensor
    padding: Tensor | None
    __torch_function__ = no_torch_function

    @staticmethod
    def __new__(
        cls, held: Tensor, heads: int, keys: int, dtype: torch.dtype, padding: Tensor | None = None
    ) -> ModelMask:
        shape = (held.shape[0], heads, held.shape[2], keys)
        return wrapper_of(cls, shape, dtype=dtype, device=held.device)

    def __init__(
        self, held: Tensor, heads: int, keys: int, dtype: torch.dtype, padding: Tensor | None = None
    ) -> None:
        self.held, self.padding = held, padding

    def with_held(self, change: Callable[[Tensor], Tensor], heads: int, keys: int) -> ModelMask:
        """Returns the mask whose `held` and `padding` are what `change` makes of them."""
        padding = None if self.padding is None else change(self.padding)
        return ModelMask(change(self.held), heads, keys, self.dtype, padding)

    def scores(self) -> Tensor:
        """Returns the tensor that eager attention would add to the scores."""
        zero = torch.zeros((), dtype=self.dtype, device=self.held.device)
        pairs = words.pairs_of if self.held.dtype == torch.int64 else pairs_of_rows
        kept = pairs(self.held, self.shape[3])
        if self.padding is not None:
            kept = kept & words.pairs_of(self.padding, self.shape[3])
        return torch.where(kept, zero, torch.finfo(self.dtype).min).expand(self.shape)

    def of_layer(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns `held` and `padding` for query [B, N, Sq, D] and key [B, Nkv, Sk, D].

        Raises:
            ValueError: the mask has another number of rows, or fewer keys.
        """
        (batch, heads, rows), keys = query.shape[:3], key.shape[2]
        b, h, sq, sk = self.shape
        if b not in (1, batch) or h not in (1, heads) or sq not in (1, rows) or sk < keys:
            want = [batch, 1, rows, keys]
            raise ValueError(f"invalid argument: attention_mask.shape={list(self.shape)}, want {want} (query and key)")
        held, padding = (None if t is None else _keys(t, sk, keys) for t in (self.held, self.padding))
        return held.expand(batch, 1, rows, -1), None if padding is None else padding.expand(batch, 1, rows, -1)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ValueError(_WRITTEN.format("an assignment to its elements"))

    def __repr__(self, **_: Any) -> str:
        return f"ModelMask(shape={list(self.shape)}, dtype={self.dtype}, held={self.held})"

    def __reduce_ex__(self, protocol: int) -> tuple:
        return ModelMask, (self.held, self.shape[1], self.shape[3], self.dtype, self.padding)

    def __deepcopy__(self, memo: dict) -> ModelMask:
        return self.with_held(Tensor.clone, self.shape[1], self.shape[3])

    def __tensor_flatten__(self) -> tuple[list[str], torch.dtype]:
        return ["held"] if self.padding is None else ["held", "padding"], self.dtype

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], dtype: torch.dtype, size: Any, stride: Any) -> ModelMask:
        return ModelMask(inner["held"], size[1], size[3], dtype, inner.get("padding"))

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        result = _as_rule(function, *arguments, **keywords)
        if result is not None:
            return result
        _check_unchanged(function, arguments, keywords)
        return function(*tree_map(_scores, arguments), **tree_map(_scores, keywords))


def pairs_of_rows(rows: Tensor, keys: int) -> Tensor:
    """Returns bool [..., Sq, keys], True for the keys in each row's interval in `rows` [..., Sq, 2]."""
    places = torch.arange(keys, device=rows.device)
    return (rows[..., :1] <= places) & (places < rows[..., 1:])


def _scores(value: Any) -> Any:
    return value.scores() if isinstance(value, ModelMask) else value


def _keys(held: Tensor, before: int, keys: int) -> Tensor:
    """Cuts `held` from `before` keys to the first `keys` keys."""
    if keys == before:
        return held
    return held[..., : -(-keys // words.BITS)] if held.dtype == torch.int64 else held.clamp(max=keys)


def _as_rule(function: Any, mask: Any, *arguments: Any, **keywords: Any) -> ModelMask | None:
    """Applies `function` to `held` of the mask. Returns None if a ModelMask cannot represent the result."""
    if not isinstance(mask, ModelMask):
        return None
    (_, heads, _, keys), dtype = mask.shape, mask.dtype
    if function in _COPIES:
        return ModelMask(mask.held, heads, keys, dtype, mask.padding)
    if function is _ATEN._to_copy.default:
        dtype, device = keywords.get("dtype") or dtype, keywords.get("device") or mask.device
        same = dtype.is_floating_point and device == mask.device
        return ModelMask(mask.held, heads, keys, dtype, mask.padding) if same else None
    if function is _ATEN.expand.default:
        return _expanded(mask, *arguments)
    if function is _ATEN.slice.Tensor:
        return _cut(mask, *arguments)
    return None


def _expanded(mask: ModelMask, shape: list[int], implicit: bool = False) -> ModelMask | None:
    """Returns the mask expanded to `shape`. Returns None if this changes the number of keys, because `held` cannot
    repeat the value of one key for all keys."""
    _, heads, _, keys = mask.shape
    if len(shape) != 4 or shape[3] not in (-1, keys) or (heads != 1 and shape[1] not in (-1, heads)):
        return None
    held = mask.held.expand(shape[0], 1, shape[2], -1)
    padding = None if mask.padding is None else mask.padding.expand(shape[0], 1, 1, -1)
    return ModelMask(held, heads if shape[1] == -1 else shape[1], keys, mask.dtype, padding)


def _cut(
    mask: ModelMask, dim: int = 0, begin: int | None = None, end: int | None = None, step: int = 1
) -> ModelMask | None:
    _, heads, _, keys = mask.shape
    dim, begin = dim % 4, begin or 0
    if dim == 0:
        return mask.with_held(lambda held: _ATEN.slice.Tensor(held, 0, begin, end, step), heads, keys)
    if dim == 2:
        return ModelMask(_ATEN.slice.Tensor(mask.held, 2, begin, end, step), heads, keys, mask.dtype, mask.padding)
    size = mask.shape[dim]
    end = size if end is None or end > size else end + size if end < 0 else end
    if begin != 0 or step != 1 or end < 0:
        return None
    if dim == 1:
        return ModelMask(mask.held, end, keys, mask.dtype, mask.padding)
    return mask.with_held(lambda held: _keys(held, keys, end), heads, end)


def _check_unchanged(function: Any, arguments: tuple, keywords: dict[str, Any]) -> None:
    """Raises ValueError if `function` writes into a ModelMask."""
    for place, (argument, written) in enumerate(written_arguments(function)):
        value = arguments[place] if place < len(arguments) else keywords.get(argument.name)
        if written and any(isinstance(leaf, ModelMask) for leaf in tree_leaves(value)):
            raise ValueError(_WRITTEN.format(function))
