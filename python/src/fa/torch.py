"""PyTorch's scaled_dot_product_attention, computed by `fa`; and the way to give it to a model that calls PyTorch's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ._torch_ops import Call, attention

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
        key, value: [..., Nkv, S, E] and [..., Nkv, S, Ev]; leading dimensions broadcast.
        attn_mask: broadcasts to [..., N, L, S]: bool, True = look at the key; or of query's type or float32, added to
            the scores. It may require a gradient.
        dropout_p: in [0, 1); its seed comes from PyTorch's generator.
        is_causal: row i looks at keys j <= i, also where L and S differ; not together with attn_mask.
        scale: None: 1 / sqrt(E).
        enable_gqa: N may be a multiple of Nkv.

    Returns:
        [..., N, L, Ev]. Rows that look at no key are 0. Memory is laid out [..., L, N, Ev].

    Raises:
        ValueError: an argument is wrong.
    """
    if attn_mask is not None and is_causal:
        raise ValueError("invalid argument: attn_mask: given together with is_causal, want one of them")
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"invalid argument: dropout_p={dropout_p}, want at least 0 and less than 1")
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise ValueError("invalid argument: query, key and value: want at least 2 dimensions")
    query, key, value = _autocast(query, key, value)
    shape = query.shape
    leading = _leading(query, key, value)
    query, key, value = (_as_bsnd(t, leading) for t in (query, key, value))
    heads, heads_kv = query.shape[2], key.shape[2]
    if not enable_gqa and heads_kv not in (1, heads):
        raise ValueError(f"invalid argument: key.shape[-3]={heads_kv}, want {heads} (query.shape[-3]; see enable_gqa)")
    drop = dense_mask = pse = None
    if attn_mask is not None:
        attn_mask = _as_bnls(attn_mask, leading, query, key)
        dense_mask = ~attn_mask if attn_mask.dtype == torch.bool else None
        pse = attn_mask if dense_mask is None else None
    if dropout_p > 0.0:
        drop = torch.randint(-(1 << 62), 1 << 62, (2,), dtype=torch.int64)
    call = Call(
        query_rope=None,
        key_rope=None,
        pse=pse,
        dense_mask=None if dense_mask is None else dense_mask.expand(query.shape[0], heads, -1, -1),
        drop_mask=None,
        dropout_state=drop,
        sink=None,
        layout="BSND",
        heads=heads,
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
    out, _, _ = attention(query, key, value, *call)
    out = out.transpose(1, 2)
    heads_shape = () if len(shape) == 2 else (heads,)
    return out.reshape(*leading, *heads_shape, shape[-2], out.shape[-1])


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


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under autocast, PyTorch's own function computes in its type."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if t.dtype == torch.float32 else t for t in tensors)


def _leading(*tensors: Tensor) -> torch.Size:
    """The dimensions before the last three, broadcast. (torch.broadcast_shapes imports sympy: for odd cases only.)"""
    shapes = [t.shape[:-3] for t in tensors]
    return shapes[0] if shapes[0] == shapes[1] == shapes[2] else torch.broadcast_shapes(*shapes)


def _as_bsnd(tensor: Tensor, leading: torch.Size) -> Tensor:
    """[..., N, S, D] as [B, S, N, D], where it lies if its strides allow."""
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    return tensor.expand(*leading, *tensor.shape[-3:]).reshape(-1, *tensor.shape[-3:]).transpose(1, 2)


def _as_bnls(mask: Tensor, leading: torch.Size, query: Tensor, key: Tensor) -> Tensor:
    """A mask as [B|1, N|1 (float: N), L, S] without copies, but where rows are all alike or leading dimensions many."""
    batch, rows, heads, _ = query.shape
    keys = key.shape[1]
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"invalid argument: attn_mask.dtype={mask.dtype}, want bool or a float type")
    if mask.dim() > len(leading) + 3:
        raise ValueError(f"invalid argument: attn_mask.shape={list(mask.shape)}, want at most {len(leading) + 3} dims")
    mask = mask[(None,) * (len(leading) + 3 - mask.dim())]
    if mask.shape[-1] == 1 and keys != 1:
        mask = mask.expand(*mask.shape[:-1], keys).contiguous()
    if all(size == 1 for size in mask.shape[:-3]):
        mask = mask.reshape(1, *mask.shape[-3:])
    else:
        mask = mask.expand(*leading, *mask.shape[-3:]).reshape(batch, *mask.shape[-3:])
    # A bias without heads of its own is read with a stride of 0.
    return mask.expand(-1, heads, rows, keys) if mask.is_floating_point() else mask.expand(-1, -1, rows, keys)
