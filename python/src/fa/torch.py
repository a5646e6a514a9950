"""PyTorch's scaled_dot_product_attention, computed by `fa`; and the way to give it to a model that calls PyTorch's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ._torch_dropout import new_state
from ._torch_modules import multi_head_attention_forward
from ._torch_sdpa import attend

__all__ = ["replace_scaled_dot_product_attention", "scaled_dot_product_attention"]


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

    Nested tensors of layout torch.jagged, [B, N, j, E] or [B, j, E] with j ragged, give a nested tensor: each sequence
    looks at its own keys. There is no attn_mask then. DTensors sharded by batch or by heads are computed where they lie,
    unless there is dropout, for which every rank gets them whole.

    Returns:
        [..., N, L, Ev]. Rows that look at no key are 0. Memory is laid out [..., L, N, Ev].

    Raises:
        ValueError: an argument is wrong. TypeError: one is no tensor.
    """
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    return attend(query, key, value, attn_mask, new_state(dropout_p), dropout_p, is_causal, scale, enable_gqa)


@contextlib.contextmanager
def replace_scaled_dot_product_attention() -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is the one above, in all threads.

    Code that looks the function up there when it calls it is served: transformers and most models. A copy that was
    imported by name before stays what it was. torch.nn.MultiheadAttention and torch.nn.Transformer's layers are served
    in all their modes: multi_head_attention_forward is replaced too, which returns weights without asking for the
    function, and the fast path of inference, which asks for neither, is switched off.
    """
    functional, mha = torch.nn.functional, torch.backends.mha
    before = functional.scaled_dot_product_attention, functional.multi_head_attention_forward
    fast_path = mha.get_fastpath_enabled()
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    functional.multi_head_attention_forward = multi_head_attention_forward
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.multi_head_attention_forward = before
        mha.set_fastpath_enabled(fast_path)


def _check(query, key, value, attn_mask, dropout_p, is_causal) -> None:
    """What is no question of shapes or types."""
    for name, tensor in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "attn_mask"):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
    if attn_mask is not None and is_causal:
        raise ValueError("invalid argument: attn_mask: given together with is_causal, want one of them")
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"invalid argument: dropout_p={dropout_p}, want at least 0 and less than 1")
