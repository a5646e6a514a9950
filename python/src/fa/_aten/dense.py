"""The operator behind scaled_dot_product_attention on CPUs, and its backward. The results have the sizes and strides
that PyTorch's Meta kernels promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _fa
from .._context import context_of_tensors
from .._torch.call import CAUSAL_TOP_LEFT, EVERY_KEY
from .._torch.direct import options_of
from .._torch.engine import compute
from .._torch.shapes import TYPES, AttentionShapes, as_bnls, broadcast_attention, keys_side_by_side
from .errors import own_errors, refuse

FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"
_MASK_DIMENSIONS = 2, 4
_LARGEST_HEAD = 1024
_NAMES = {"q": "query", "k": "key", "v": "value", "pse": "attn_mask", "d_out": "grad_out", "softmax_max": "logsumexp"}


def forward_kernel(original: Any) -> Callable:
    """Returns the forward's kernel. It calls `original`, PyTorch's kernel, for types and heads that fa does not
    compute."""

    def forward(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
        if not _is_served(query):
            given = dropout_p, is_causal
            return original.call_boxed(keys, query, key, value, *given, attn_mask=attn_mask, scale=scale)
        options = _options(FORWARD, attn_mask, is_causal, scale)
        if dropout_p == 0.0 and _is_bias(attn_mask):
            try:
                results = _fa.attend_with_lse(query, key, value, attn_mask, options, context_of_tensors())
            except ValueError:  # _forward reports the error with the operator's argument names
                results = None
            if results is not None:
                return results
        return _forward(query, key, value, dropout_p, attn_mask, options)

    return forward


def _forward(query, key, value, dropout_p, attn_mask, options) -> tuple[Tensor, Tensor]:
    """Checks all arguments and computes the forward. The tensors may have no elements, and any order of dimensions in
    memory.
    """
    with own_errors(FORWARD, _NAMES):
        shapes = _checked(FORWARD, query, key, value, dropout_p, attn_mask)
        out = torch.empty_like(query)
        batch, heads, rows, _ = query.shape
        lse = query.new_empty((batch, rows, heads), dtype=torch.float32).transpose(1, 2)
        if out.numel() == 0 or key.numel() == 0:
            return out.zero_(), lse.zero_()
        whole = out if out.stride(-1) == 1 else torch.empty_like(query, memory_format=torch.contiguous_format)
        inputs = {"q": query, "k": key, "v": value, "pse": _bias(attn_mask, shapes)}
        compute(_fa.forward, inputs, {"out": whole, "lse": lse}, options)
        if attn_mask is not None:
            lse.masked_fill_(lse == -torch.inf, 0.0)
        return out if whole is out else out.copy_(whole), lse


def backward_kernel(original: Any) -> Callable:
    """Returns the backward's kernel, as `forward_kernel` does."""

    def backward(
        keys, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
    ):
        if not _is_served(query):
            tensors = grad_out, query, key, value, out, logsumexp
            return original.call_boxed(keys, *tensors, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
        options = _options(BACKWARD, attn_mask, is_causal, scale)
        if dropout_p == 0.0 and _is_bias(attn_mask):
            results = out, logsumexp, grad_out
            context = context_of_tensors()
            try:
                found = _fa.attend_backward_with_lse(query, key, value, attn_mask, *results, options, context)
            except ValueError:
                found = None
            if found is not None:
                return found
        return _backward(grad_out, query, key, value, out, logsumexp, dropout_p, attn_mask, options)

    return backward


def _backward(grad_out, query, key, value, out, logsumexp, dropout_p, attn_mask, options) -> tuple[Tensor, ...]:
    with own_errors(BACKWARD, _NAMES):
        shapes = _checked(BACKWARD, query, key, value, dropout_p, attn_mask)
        gradients = [torch.empty_permuted(t.shape, (0, 2, 1, 3), dtype=t.dtype) for t in (query, key, value)]
        if out.numel() == 0 or key.numel() == 0:
            return tuple(gradient.zero_() for gradient in gradients)
        inputs = {"q": query, "k": key, "v": value, "pse": _bias(attn_mask, shapes), "out": out, "d_out": grad_out}
        inputs |= {"softmax_max": logsumexp, "softmax_sum": logsumexp.new_ones(()).expand(logsumexp.shape)}
        compute(_fa.backward, inputs, dict(zip(("dq", "dk", "dv"), gradients, strict=True)), options)
        return tuple(gradients)


def _is_served(query: Tensor) -> bool:
    return query.dtype in TYPES and (query.dim() == 0 or query.shape[-1] <= _LARGEST_HEAD)


def _bias(attn_mask: Tensor | None, shapes: AttentionShapes) -> Tensor | None:
    return None if attn_mask is None else keys_side_by_side(as_bnls(attn_mask, shapes))


def _is_bias(attn_mask: Tensor | None) -> bool:
    """Returns whether there is no mask, or one that the extension can read as a bias."""
    return attn_mask is None or (attn_mask.dim() in _MASK_DIMENSIONS and attn_mask.dtype is not torch.bool)


def _options(operator: str, attn_mask: Tensor | None, is_causal: bool, scale: float | None) -> _fa.AttentionOptions:
    try:
        return options_of(attn_mask is not None, CAUSAL_TOP_LEFT if is_causal else EVERY_KEY, scale)
    except ValueError as error:  # the scale is not finite
        raise RuntimeError(f"{operator}: {error}") from None


def _checked(operator, query, key, value, dropout_p, attn_mask) -> AttentionShapes:
    """Returns the shapes of a call. Raises an error for a wrong argument."""
    if dropout_p != 0.0:
        raise refuse(operator, "dropout_p", dropout_p, "0")
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise refuse(operator, f"{name}.shape", list(tensor.shape), "4 dimensions")
        if tensor.dtype != query.dtype:
            raise refuse(operator, f"{name}.dtype", tensor.dtype, f"{query.dtype} (query.dtype)")
        if tensor.shape[0] != query.shape[0]:
            raise refuse(operator, f"{name}.shape[0]", tensor.shape[0], f"{query.shape[0]} (query.shape[0])")
        if tensor.shape[3] != query.shape[3]:
            raise refuse(operator, f"{name}.shape[3]", tensor.shape[3], f"{query.shape[3]} (query.shape[3])")
    for axis in (1, 2):
        if value.shape[axis] != key.shape[axis]:
            raise refuse(operator, f"value.shape[{axis}]", value.shape[axis], f"{key.shape[axis]} (key.shape[{axis}])")
    heads, heads_kv = query.shape[1], key.shape[1]
    if heads != heads_kv and (heads_kv == 0 or heads % heads_kv != 0):
        raise refuse(operator, "key.shape[1]", heads_kv, f"a divisor of {heads} (query.shape[1])")
    if attn_mask is not None:
        if attn_mask.dtype not in (query.dtype, torch.float32):
            raise refuse(operator, "attn_mask.dtype", attn_mask.dtype, f"{query.dtype} (query.dtype) or torch.float32")
        if attn_mask.dim() not in _MASK_DIMENSIONS:
            raise refuse(operator, "attn_mask.shape", list(attn_mask.shape), "2 or 4 dimensions")
    return broadcast_attention(query.shape, key.shape, value.shape, grouped=True)
