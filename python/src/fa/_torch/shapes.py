"""Shapes and types of scaled_dot_product_attention: PyTorch's broadcasting, and the operator's four dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .._errors import in_names

TYPES = (torch.float32, torch.bfloat16, torch.float16)


class AttentionShapes(NamedTuple):
    """The shapes to which the inputs, with any number of dimensions, broadcast."""

    leading: tuple[int, ...]  # the sizes of the dimensions before the heads
    heads: int
    heads_kv: int  # key heads for the operator: a divisor of heads
    rows: int
    keys: int
    rank: int  # the number of dimensions of the result

    @property
    def batch(self) -> int:
        return math.prod(self.leading)

    @property
    def scores(self) -> tuple[int, ...]:
        """Returns the shape of the scores, with as many dimensions as the result."""
        return (*self.leading, self.heads, self.rows, self.keys)[-self.rank :]


def check_types(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, name_of_mask: str = "attn_mask") -> None:
    """Raises ValueError for a type, a device or a layout that the operator does not take."""
    if query.dtype not in TYPES:
        raise ValueError(f"invalid argument: query.dtype={query.dtype}, want {_listed(TYPES)}")
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dtype != query.dtype:
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want {query.dtype} (query.dtype)")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        want = _listed(dict.fromkeys((torch.bool, torch.float32, query.dtype)))
        raise ValueError(f"invalid argument: {name_of_mask}.dtype={attn_mask.dtype}, want {want}")
    for name, tensor in (("query", query), ("key", key), ("value", value), (name_of_mask, attn_mask)):
        if tensor is not None and not (tensor.is_cpu or tensor.is_meta):
            raise ValueError(f"invalid argument: {name}.device={tensor.device}, want cpu")
        if tensor is not None and tensor.layout not in (torch.strided, torch.jagged):
            raise ValueError(f"invalid argument: {name}.layout={tensor.layout}, want torch.strided")


def fused(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropped: bool, grouped: bool) -> bool:
    """Returns whether PyTorch would compute the call with its fused CPU kernel. That kernel's output lies in memory as
    torch.empty_like(query), and its gradients as [B, S, N, E]. Without the fused kernel, output and gradients are
    contiguous.
    """
    if dropped or not query.dim() == key.dim() == value.dim() == 4:
        return False
    batch, heads, _, size = query.shape
    return (
        all(t.stride(-1) == 1 and t.numel() > 0 for t in (query, key, value))
        and value.shape[-1] == size
        and key.shape[0] == value.shape[0] == batch
        and key.shape[1] == value.shape[1]
        and (grouped or key.shape[1] == heads)
        and (attn_mask is None or fuses_with(attn_mask))
    )


def fuses_with(attn_mask: Tensor) -> bool:
    """Returns whether PyTorch's fused kernel takes the mask."""
    return attn_mask.dim() in (2, 4) and not attn_mask.requires_grad


def empty_like(tensor: Tensor) -> Tensor:
    """Allocates a tensor with the shape and type of `tensor`. The result has the same order of dimensions in memory if
    `tensor` has its last dimension innermost and no overlapping rows. Otherwise the result is contiguous, because the
    library writes whole rows."""
    if tensor.stride(-1) == 1:
        like = torch.empty_like(tensor)
        if like.stride(-1) == 1:  # the stride is not 1 if rows overlap
            return like
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def keys_side_by_side(bias: Tensor) -> Tensor:
    """Returns the bias, copied if its last dimension is not contiguous. In T5's bias, the numbers of all heads for one
    pair are neighbours in memory. So each head would read every cache line.
    """
    if bias.stride(-1) <= 1 or bias.shape[-1] == 1:
        return bias
    if bias.requires_grad:
        return bias.contiguous()
    once = bias[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in bias.stride())]
    return once.contiguous().expand(bias.shape)


def _listed(types) -> str:
    *others, last = map(str, types)
    return f"{', '.join(others)} or {last}"


def broadcast_attention(query: torch.Size, key: torch.Size, value: torch.Size, grouped: bool) -> AttentionShapes:
    """Returns the shapes of a call. An argument that does not fit raises ValueError, which names it."""
    for name, shape in (("query", query), ("key", key), ("value", value)):
        if len(shape) < 2:
            raise ValueError(f"invalid argument: {name}.shape={list(shape)}, want at least 2 dimensions")
    if key[-1] != query[-1]:
        raise ValueError(f"invalid argument: key.shape[-1]={key[-1]}, want {query[-1]} (query.shape[-1])")
    if value[-2] != key[-2]:
        raise ValueError(f"invalid argument: value.shape[-2]={value[-2]}, want {key[-2]} (key.shape[-2])")
    # Shapes of usual calls need no broadcasting.
    if query[:-2] == key[:-2] and len(query) == 4 and not grouped and key[:-1] == value[:-1]:
        return AttentionShapes((query[0],), query[1], query[1], query[2], key[2], 4)
    heads, heads_kv = broadcast_heads(*(_heads(shape) for shape in (query, key, value)), grouped)
    leading = query[:-3]
    if not leading == key[:-3] == value[:-3]:
        leading = _broadcast_leading(query[:-3], key[:-3], value[:-3])
    rank = max(len(query), len(key), len(value))
    return AttentionShapes(tuple(leading), heads, heads_kv, query[-2], key[-2], rank)


def _heads(shape: torch.Size) -> int:
    return shape[-3] if len(shape) > 2 else 1


def broadcast_heads(query: int, key: int, value: int, grouped: bool) -> tuple[int, int]:
    """Returns (heads, heads of keys and values) for the operator."""
    if grouped:
        for name, size in (("key", key), ("value", value)):
            if size != query and (size == 0 or query % size != 0):
                want = f"want a divisor of {query} (query.shape[-3])"
                raise ValueError(f"invalid argument: {name}.shape[-3]={size}, {want}")
        return query, key if key == value else query
    heads = query if query != 1 else key if key != 1 else value
    for name, size in (("key", key), ("value", value)):
        if size not in (1, heads):
            raise ValueError(f"invalid argument: {name}.shape[-3]={size}, want {heads} or 1; see enable_gqa")
    return heads, 1 if key == value == 1 else heads


def _broadcast_leading(*shapes: torch.Size) -> tuple[int, ...]:
    """Works like torch.broadcast_shapes. That function would import sympy."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for name, shape in zip(("query", "key", "value"), shapes, strict=True):
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and result[axis] not in (1, size):
                at = axis - rank - 3
                raise ValueError(f"invalid argument: {name}.shape[{at}]={size}, want {result[axis]} or 1")
            result[axis] = size if size != 1 else result[axis]
    return tuple(result)


def as_bnsd(tensor: Tensor, shapes: AttentionShapes, heads: int) -> Tensor:
    """Returns a tensor [..., N, S, D] as [B, heads, S, D], without a copy if its strides allow it."""
    shape = tensor.shape
    if len(shape) == 4 and len(shapes.leading) == 1 and shape[0] == shapes.leading[0] and shape[1] == heads:
        return tensor
    own = _heads(tensor.shape)
    if own != heads and own != 1:
        tensor = tensor.repeat_interleave(heads // own, -3)
    size = tensor.shape[-2:]
    return tensor.expand(*shapes.leading, heads, *size).reshape(shapes.batch, heads, *size)


def check_broadcasts(mask: Tensor, shapes: AttentionShapes, name: str = "attn_mask") -> None:
    """Raises ValueError for a mask that does not broadcast to the scores."""
    scores = shapes.scores
    fits = mask.dim() <= len(scores) and all(
        size in (1, want) for size, want in zip(mask.shape[::-1], scores[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"invalid argument: {name}.shape={list(mask.shape)}, want one that broadcasts to {list(scores)}"
        )


def as_bnls(mask: Tensor, shapes: AttentionShapes, name: str = "attn_mask") -> Tensor:
    """Returns a bool mask as [B, N, L, S], and a float mask as [B|1, N, L, S]. The mask is copied only if its last
    dimension is broadcast, or if it has several leading dimensions."""
    check_broadcasts(mask, shapes, name)
    mask = mask[(None,) * (len(shapes.leading) + 3 - mask.dim())]
    if mask.shape[-1] != shapes.keys:
        mask = mask.expand(*mask.shape[:-1], shapes.keys).contiguous()
    own = mask.shape[-3:]
    if mask.dtype != torch.bool and all(size == 1 for size in mask.shape[:-3]):
        return mask.reshape(1, *own).expand(1, shapes.heads, shapes.rows, shapes.keys)
    mask = mask.expand(*shapes.leading, *own).reshape(shapes.batch, *own)
    return mask.expand(shapes.batch, shapes.heads, shapes.rows, shapes.keys)


def inverted(mask: Tensor) -> Tensor:
    """Returns ~mask. Broadcast dimensions stay broadcast, except the innermost, so that the result takes no more
    memory."""
    steps = mask.stride()[:-1]
    if all(step != 0 for step in steps):
        return ~mask
    return (~mask[tuple(slice(0, 1) if step == 0 else slice(None) for step in steps)]).expand(mask.shape)


def rows_in_memory(mask: Tensor | None, shapes: AttentionShapes, name: str) -> dict[str, Tensor]:
    """Returns a mask with this rank's rows and all keys as a keyword argument of a call over ranks: dense_mask or pse.
    Errors call the mask `name`."""
    if mask is None:
        return {}
    if mask.requires_grad and torch.is_grad_enabled() and (mask.dim() < 2 or mask.shape[-2] != shapes.rows):
        rows = f"want {shapes.rows} rows (query.shape[-2]) for its gradient"
        raise ValueError(f"invalid argument: {name}.shape={list(mask.shape)}, {rows}")
    mask = as_bnls(mask, shapes._replace(keys=mask.shape[-1] if mask.dim() else 1), name)
    return {"dense_mask": inverted(mask)} if mask.dtype == torch.bool else {"pse": mask}


def no_elements(shape: tuple[int, ...], query: Tensor, *others: Tensor | None) -> Tensor:
    """Returns a result of `shape`, which has no elements, in query's type. Inputs with elements get gradients of 0
    through this result."""
    sources = (query, *(t for t in others if t is not None and t.is_floating_point()))
    nothing = sum(source.sum().to(query.dtype) * 0 for source in sources)
    return nothing.expand(shape).clone(memory_format=torch.contiguous_format)


def as_given(out: Tensor, shapes: AttentionShapes) -> Tensor:
    """Returns an output [B, N, L, Ev] as [..., N, L, Ev], with as many dimensions as the result has."""
    if len(shapes.leading) == 1:
        return out
    if shapes.rank == 2:
        return out[0, 0]
    return out.reshape(*shapes.leading, *out.shape[1:])


# Argument names: {the library's name: the name in scaled_dot_product_attention}.
_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "pse": "attn_mask",
    "dense_mask": "attn_mask",
    "pair_mask": "attn_mask",
    "keep_prob": "1 - dropout_p",
    "dropout": "dropout_p",
}


def own_arguments(error: Exception, last: int = 3, more: Mapping[str, str] = {}) -> Exception:
    """Returns the operator's error with the caller's argument names. In query, key and value, the dimension `last` (the
    head size) is named [-1]. `more` maps the names of further arguments."""

    def say(name: str, member: str, index: str) -> str:
        is_last = name in ("query", "key", "value") and member == ".shape" and index == f"[{last}]"
        return f"{name}{member}{'[-1]' if is_last else index}"

    return in_names(error, {**_NAMES, **more}, say)
