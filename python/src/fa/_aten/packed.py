"""The operators behind torch.nn.attention.varlen, which PyTorch has for other devices only: attention of packed
sequences, also over pages, and its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..flash_attn._arguments import TYPES, check_attention
from ..flash_attn._cache import Cache, attend_cache
from ..flash_attn._call import Options
from ..flash_attn._dense import Packed, checked_call
from ..flash_attn._gradients import flash_attention_backward
from ..flash_attn._ops import attend_with_lse
from .errors import own_errors, refuse

FORWARD = "_flash_attention_forward"
FORWARD_INTO = "_flash_attention_forward_no_dropout_inplace"
BACKWARD = "_flash_attention_backward"
_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "k_cache": "key",
    "v_cache": "value",
    "cu_seqlens_q": "cum_seq_q",
    "cu_seqlens_k": "cum_seq_k",
    "max_seqlen_q": "max_q",
    "max_seqlen_k": "max_k",
    "softmax_scale": "scale",
    "cache_seqlens": "seqused_k",
    "d_out": "grad_out",
    "softmax_max": "logsumexp",
}
# The logsumexp of a row without keys, as flash_attn 2 and PyTorch's kernels of other devices have it.
_EMPTY = torch.inf


def _without_autocast(kernel: Callable) -> Callable:
    """Returns the kernel with autocast switched off, because autocast has already converted the arguments."""

    def own_types(*arguments, **keywords):
        if not torch.is_autocast_enabled("cpu"):
            return kernel(*arguments, **keywords)
        with torch.autocast("cpu", enabled=False):
            return kernel(*arguments, **keywords)

    return own_types


@_without_autocast
def forward(
    query,
    key,
    value,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    return_debug_mask,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
    seqused_k=None,
    alibi_slopes=None,
    block_table=None,
    num_splits=None,
):
    """Returns output, logsumexp, and three results that only dropout would use."""
    with own_errors(FORWARD, _NAMES):
        given = Options(is_causal, (window_size_left, window_size_right), scale, 0.0, dropout_p, alibi_slopes, True)
        packed = Packed(cum_seq_q, cum_seq_k, max_q, max_k, None, seqused_k)
        out, lse = _attend(FORWARD, query, key, value, given, packed, return_debug_mask, block_table)
        # PyTorch does not pass these arguments to the backward. The backward gets `state`, and raises an error unless
        # it is 0.
        lacking = alibi_slopes is not None or seqused_k is not None or block_table is not None
        state = torch.tensor([lacking, 0], dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
        return _lying_as(query, out), lse, *state, query.new_empty(0)


@_without_autocast
def forward_into(
    out,
    query,
    key,
    value,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    return_debug_mask,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
    seqused_k=None,
    alibi_slopes=None,
    block_table=None,
    num_splits=None,
):
    """Writes the output into `out`, and returns logsumexp."""
    with own_errors(FORWARD_INTO, _NAMES):
        if out.shape != query.shape:
            raise refuse(FORWARD_INTO, "out.shape", list(out.shape), f"{list(query.shape)} (query.shape)")
        if out.dtype != query.dtype:
            raise refuse(FORWARD_INTO, "out.dtype", out.dtype, f"{query.dtype} (query.dtype)")
        given = Options(is_causal, (window_size_left, window_size_right), scale, 0.0, dropout_p, alibi_slopes, True)
        packed = Packed(cum_seq_q, cum_seq_k, max_q, max_k, None, seqused_k)
        result, lse = _attend(FORWARD_INTO, query, key, value, given, packed, return_debug_mask, block_table)
        out.copy_(result)
        return lse


def _attend(
    operator: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
    packed: Packed,
    return_debug_mask: bool,
    block_table: Tensor | None,
) -> tuple[Tensor, Tensor]:
    _check_served(operator, query, value, options.dropout_p)
    if return_debug_mask:
        raise refuse(operator, "return_debug_mask", True, "False")
    if block_table is not None:
        return _attend_pages(operator, query, key, value, options, packed, block_table)
    if packed.cu_seqlens_q is None and packed.seqused_k is not None:
        raise refuse(operator, "seqused_k", "a tensor", "None, as cum_seq_q is not given")
    _check_sums(operator, packed.cu_seqlens_q, packed.cu_seqlens_k)
    check_attention(query, key, value, packed.cu_seqlens_q is not None)
    call = checked_call(query, value, None, options, None if packed.cu_seqlens_q is None else packed)
    out, lse = attend_with_lse(query, key, value, call)
    return out, lse.masked_fill_(lse == -torch.inf, _EMPTY)


def _attend_pages(
    operator: str, query: Tensor, key: Tensor, value: Tensor, options: Options, packed: Packed, block_table: Tensor
) -> tuple[Tensor, Tensor]:
    if options.alibi_slopes is not None:
        raise refuse(operator, "alibi_slopes", "a tensor", "None, as block_table is given")
    lengths = packed.seqused_k
    if lengths is None:
        if packed.cu_seqlens_k is None:
            raise refuse(operator, "seqused_k", None, "a tensor, as block_table is given")
        lengths = packed.cu_seqlens_k.diff()
    cache = Cache(
        key,
        value,
        cache_seqlens=lengths,
        block_table=block_table,
        cu_seqlens_q=packed.cu_seqlens_q,
        max_seqlen_q=packed.max_seqlen_q,
    )
    return attend_cache(query, cache, None, options, True, _EMPTY)


@_without_autocast
def backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    rng_state,
    unused,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
):
    """Returns the gradients of query, key and value."""
    with own_errors(BACKWARD, _NAMES):
        _check_served(BACKWARD, query, value, dropout_p)
        if rng_state.dtype != torch.uint64:
            raise refuse(BACKWARD, "rng_state.dtype", rng_state.dtype, "torch.uint64")
        if rng_state.shape != (2,):
            raise refuse(BACKWARD, "rng_state.shape", list(rng_state.shape), "[2]")
        if any(rng_state.tolist()):
            want = "zeros: alibi_slopes, seqused_k and block_table have no backward"
            raise refuse(BACKWARD, "rng_state", rng_state.tolist(), want)
        _check_sums(BACKWARD, cum_seq_q, cum_seq_k)
        is_packed = cum_seq_q is not None
        check_attention(query, key, value, is_packed)
        options = Options(is_causal, (window_size_left, window_size_right), scale)
        packed = Packed(cum_seq_q, cum_seq_k, max_q, max_k) if is_packed else None
        call = checked_call(query, value, None, options, packed)
        # With the sum 1, the logsumexp takes the place of the maximum.
        lse = logsumexp.t() if is_packed else logsumexp
        statistics = lse, lse.new_ones(()).expand(lse.shape)
        dq, dk, dv, _, _ = flash_attention_backward(query, key, value, out, grad_out, *statistics, *call)
        return tuple(_lying_as(t, gradient) for t, gradient in ((query, dq), (key, dk), (value, dv)))


def _check_served(operator: str, query: Tensor, value: Tensor, dropout_p: float) -> None:
    if query.dtype not in TYPES:
        raise refuse(operator, "query.dtype", query.dtype, " or ".join(map(str, TYPES)))
    if dropout_p != 0.0:
        raise refuse(operator, "dropout_p", dropout_p, "0")
    if value.shape[-1] != query.shape[-1]:
        last = f".shape[{value.dim() - 1}]"
        raise refuse(operator, f"value{last}", value.shape[-1], f"{query.shape[-1]} (columns of query)")


def _check_sums(operator: str, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None) -> None:
    if cum_seq_q is not None and cum_seq_k is None:
        raise refuse(operator, "cum_seq_k", None, "a tensor, as block_table is not given")
    if cum_seq_q is None and cum_seq_k is not None:
        raise refuse(operator, "cum_seq_k", "a tensor", "None, as cum_seq_q is not given")


def _lying_as(like: Tensor, result: Tensor) -> Tensor:
    """Returns the result with the strides of torch.empty_like(like)."""
    if like.is_contiguous() and result.is_contiguous():
        return result
    want = torch.empty_like(like)
    return result if result.stride() == want.stride() else want.copy_(result)
