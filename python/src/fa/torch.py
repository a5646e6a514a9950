"""PyTorch's scaled_dot_product_attention, computed by `fa`; and the way to give it to a model that calls PyTorch's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from ._torch_ops import Call, attention
from ._torch_shapes import as_bnls, as_bsnd, as_given, broadcast_attention, check_types, own_axes

__all__ = ["replace_scaled_dot_product_attention", "scaled_dot_product_attention"]

_ALL_KEYS, _CAUSAL = 1, 2  # sparse modes
_SCALE_THEN_ADD = 0  # pse type


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * Q K^T + attn_mask) V with dropout, as torch.nn.functional has it, forward and backward.

    Args:
        query: [..., N, L, E]; float32, bfloat16 or float16, on the CPU.
        key, value: [..., N, S, E] and [..., N, S, Ev]. All dimensions before the last two broadcast.
        attn_mask: broadcasts to [..., N, L, S]: bool, True = look at the key; or of query's type or float32, added to
            the scores. It may require a gradient.
        dropout_p: in [0, 1); its seed comes from PyTorch's generator.
        is_causal: row i looks at keys j <= i, also where L and S differ; not together with attn_mask.
        scale: None: 1 / sqrt(E).
        enable_gqa: the heads of query may be a multiple of those of key and of those of value.

    Returns:
        [..., N, L, Ev]. Rows that look at no key are 0. Memory is laid out [..., L, N, Ev].

    Raises:
        ValueError: an argument is wrong. TypeError: one is no tensor.
    """
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    query, key, value = _autocast(query, key, value)
    check_types(query=query, key=key, value=value, attn_mask=attn_mask)
    shapes = broadcast_attention(query.shape, key.shape, value.shape, enable_gqa)
    if shapes.heads == 0 or value.shape[-1] == 0:
        return _no_elements((*shapes.scores[:-1], value.shape[-1]), query, key, value, attn_mask)
    if query.shape[-1] == 0:  # every product is 0
        query, key, scale = pad(query, (0, 1)), pad(key, (0, 1)), 1.0
    drop = dense_mask = pse = None
    if attn_mask is not None:
        mask = as_bnls(attn_mask, shapes)
        dense_mask, pse = (~mask, None) if mask.dtype == torch.bool else (None, mask)
    if dropout_p > 0.0:
        drop = torch.randint(-(1 << 62), 1 << 62, (2,), dtype=torch.int64)
    call = Call(
        query_rope=None,
        key_rope=None,
        pse=pse,
        dense_mask=dense_mask,
        drop_mask=None,
        dropout_state=drop,
        sink=None,
        layout="BSND",
        heads=shapes.heads,
        scale=scale,
        sparse_mode=_CAUSAL if is_causal else _ALL_KEYS,
        pre_tokens=0,
        next_tokens=0,
        prefix=[],
        cu_q=[],
        cu_kv=[],
        pse_type=1 if pse is None else _SCALE_THEN_ADD,
        q_start=0,
        kv_start=0,
        keep_prob=1.0 - dropout_p,
        statistics="rows",
    )
    tensors = (
        as_bsnd(query, shapes, shapes.heads),
        as_bsnd(key, shapes, shapes.heads_kv),
        as_bsnd(value, shapes, shapes.heads_kv),
    )
    try:
        out, _, _ = attention(*tensors, *call)
    except ValueError as error:
        raise ValueError(own_axes(str(error))) from None
    return as_given(out, shapes)


@contextlib.contextmanager
def replace_scaled_dot_product_attention() -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is the one above, in all threads.

    Code that looks the function up there when it calls it is served: torch.nn.MultiheadAttention, transformers and
    most models. A copy that was imported by name before stays what it was.
    """
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before


def _check(query, key, value, attn_mask, dropout_p, is_causal) -> None:
    """What is no question of shapes or types."""
    for name, tensor in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "attn_mask"):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
    if attn_mask is not None and is_causal:
        raise ValueError("invalid argument: attn_mask: given together with is_causal, want one of them")
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"invalid argument: dropout_p={dropout_p}, want at least 0 and less than 1")


def _no_elements(shape: tuple[int, ...], *sources: Tensor | None) -> Tensor:
    """A result of that shape, which is empty, whose gradients are 0."""
    nothing = sum(source.sum() * 0 for source in sources if source is not None and source.is_floating_point())
    return nothing.expand(shape).clone()


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under autocast, PyTorch's own function computes in its type."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if t.dtype == torch.float32 else t for t in tensors)
