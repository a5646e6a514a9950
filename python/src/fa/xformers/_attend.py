"""Attention of xformers' inputs by the engine, forward and backward. Tensors are [B, M, H, K], or [B, M, G, H, K] with
G * H heads."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from xformers.ops.fmha.common import Context, Gradients, Inputs

from .._errors import argument_error, own_names
from .._torch.call import BAND, CAUSAL, Call
from .._torch.dropout import new_state
from .._torch.operators import call, tensors_of
from .._torch.ops import attention, attention_backward
from ..flash_attn._cache_ops import CachePlaces
from ..flash_attn._cache_ops import attend_by_operator as attend_cache
from ..flash_attn._call import FLT_MAX, FlashCall, logsumexp
from ._biases import Packed, band_of, packed_of, rule_of, tensor_of

# Argument names: {the library's name: the name in xformers}.
_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "k_cache": "key",
    "v_cache": "value",
    "pse": "attn_bias",
    "keep_prob": "1 - p",
    "cu_q": "attn_bias.q_seqinfo.seqstart_py",
    "cu_seqlens_q": "attn_bias.q_seqinfo.seqstart_py",
    "cu_kv": "attn_bias.k_seqinfo.seqstart_py",
    "cache_seqlens": "attn_bias.k_seqinfo.seqlen_py",
    "cache_leftpad": "attn_bias.k_seqinfo.seqstart_py",
    "block_table": "attn_bias.block_tables",
    "softmax_scale": "scale",
    "d_out": "grad",
    "out": "output",
}
_BIAS_TENSORS = tensors_of(Call)


def attend(inp: Inputs, need_lse: bool) -> tuple[Tensor, Context | None]:
    """Returns the output, and with need_lse what the backward needs. Autograd may record the call."""
    wide = _is_wide(inp)
    # The negation of fa._torch.engine.recorded, in a form that torch.compile can trace.
    plain = not (torch.is_grad_enabled() and any(t.requires_grad for t in (inp.query, inp.key, inp.value)))
    query, (key, value) = _with_heads(inp.query), _keys_of(inp, plain)
    packed = packed_of(inp.attn_bias, query, key)
    in_place = plain and not wide and inp.p == 0 and key.numel() > 0
    with own_names(_NAMES):
        if in_place and packed is not None and packed.table is not None:
            out, lse = _attend_in_place(inp, query, key, value, packed, need_lse)
            state = None
        else:
            state = new_state(inp.p)
            rows = None if packed is None else packed.rows(key.shape[1])
            tensors = _operands(query, key, value, packed, rows, wide)
            out, *statistics = _call(attention, tensors, _call_of(inp, packed, state, wide))
            lse = logsumexp(*statistics, -torch.inf) if need_lse else None
    out = out.reshape(*inp.query.shape[:-1], inp.value.shape[-1])
    if lse is None:
        return out, None
    lse = lse.reshape(inp.query.shape[0], *inp.query.shape[2:-1], inp.query.shape[1])
    return out, Context(lse=lse, out=out, rng_state=state)


def gradients(ctx: Context, inp: Inputs, grad: Tensor) -> Gradients:
    """Returns the gradients of query, key and value, and of a bias that requires one."""
    wide = ctx.out.dtype != inp.query.dtype
    query, (key, value) = _with_heads(inp.query), _keys_of(inp, False)
    packed = packed_of(inp.attn_bias, query, key)
    rows = None if packed is None else packed.rows(key.shape[1])
    need_dpse = isinstance(inp.attn_bias, Tensor) and inp.attn_bias.requires_grad
    operands = _operands(query, key, value, packed, rows, wide)
    out, grad = (_with_heads(t.to(operands[0].dtype)) for t in (ctx.out, grad))
    lse = ctx.lse[..., : query.shape[1]].reshape(query.shape[0], query.shape[2], query.shape[1])
    if packed is not None:
        out, grad, lse = out[0], grad[0], lse[0].t().contiguous()
    statistics = lse.clamp(min=-FLT_MAX), torch.ones_like(lse)  # exp(score - lse) is the probability
    with own_names(_NAMES):
        given = _call_of(inp, packed, ctx.rng_state, wide)
        results = (out, grad, *statistics, need_dpse, False)
        dq, dk, dv, _, _, db, _ = _call(attention_backward, operands, given, *results)
    if rows is not None:
        dk, dv = (d.new_zeros(key.shape[1], *d.shape[1:]).index_add_(0, rows, d) for d in (dk, dv))
    found = zip((dq, dk, dv), (inp.query, inp.key, inp.value), strict=True)
    of_inputs = (d.to(t.dtype).reshape(t.shape) for d, t in found)
    return Gradients(*of_inputs, db=db.to(inp.attn_bias.dtype).reshape(inp.attn_bias.shape) if need_dpse else None)


def _is_wide(inp: Inputs) -> bool:
    """Returns whether the output is float32 and the inputs have 16 bits. Then all is computed in float32."""
    wanted = inp.get_output_dtype()
    if wanted not in (inp.query.dtype, torch.float32):
        raise argument_error(
            ValueError, "output_dtype", f"={wanted}, want {inp.query.dtype} (query.dtype) or torch.float32"
        )
    return wanted != inp.query.dtype


def _with_heads(tensor: Tensor) -> Tensor:
    return tensor.flatten(2, 3) if tensor.ndim == 5 else tensor


def _keys_of(inp: Inputs, shared: bool) -> tuple[Tensor, Tensor]:
    """Returns keys and values [B, N, heads, K]. With `shared`, heads that the caller has expanded from one head (stride
    0) are returned as one head. This holds for all heads together, and for the heads of each group.
    """
    key, value = inp.key, inp.value
    if shared and key.ndim == 5 and key.shape[3] > 1 and key.stride(3) == value.stride(3) == 0:
        key, value = key[..., 0, :], value[..., 0, :]
    key, value = _with_heads(key), _with_heads(value)
    if shared and key.shape[2] > 1 and key.stride(2) == value.stride(2) == 0:
        key, value = key[:, :, :1], value[:, :, :1]
    return key, value


def _operands(
    query: Tensor, key: Tensor, value: Tensor, packed: Packed | None, rows: Tensor | None, wide: bool
) -> tuple[Tensor, ...]:
    """Returns query, keys and values as fa::attention takes them. `rows` are the keys that are gathered."""
    if packed is not None:
        query, key, value = query[0], key[0], value[0]
    if rows is not None:
        key, value = key.index_select(0, rows), value.index_select(0, rows)
    return tuple(t.float() for t in (query, key, value)) if wide else (query, key, value)


def _call_of(inp: Inputs, packed: Packed | None, dropout_state: Tensor | None, wide: bool) -> Call:
    bias = _bias_of(inp)
    if wide and bias is not None:
        bias = _as_float(bias)
    sums: dict[str, Any] = {}
    if packed is not None:
        sums = {"layout": "TND", "cu_q": packed.ends_q, "cu_kv": list(itertools.accumulate(packed.lengths_k()))}
    pre, next_ = band_of(inp.attn_bias)
    return Call(
        pse=bias,
        dropout_state=dropout_state,
        scale=None if inp.scale is None else float(inp.scale),
        sparse_mode=rule_of(inp.attn_bias),
        pre_tokens=pre,
        next_tokens=next_,
        pse_type=1 if bias is None else 0,
        keep_prob=1.0 - inp.p,
        **({"layout": "BSND"} | sums),
    )


def _bias_of(inp: Inputs) -> Tensor | None:
    """Returns the bias as [B or 1, heads, M, keys]."""
    bias = tensor_of(inp.attn_bias)
    if bias is None:
        return None
    rows, keys = inp.query.shape[1], inp.key.shape[1]
    want = [inp.query.shape[0], *inp.query.shape[2:-1], rows, keys]
    if list(bias.shape) not in (want, [1, *want[1:]]):
        raise argument_error(ValueError, "attn_bias", f"={list(bias.shape)}, want {want}", member=".shape")
    return bias.flatten(1, 2) if bias.ndim == 5 else bias


def _as_float(bias: Tensor) -> Tensor:
    """Returns the bias in float32. Broadcast dimensions stay broadcast, unless the bias has a gradient."""
    if bias.requires_grad:
        return bias.float()
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in bias.stride())
    return bias[once].float().expand(bias.shape)


def _call(operator: Any, operands: tuple[Tensor, ...], given: Call, *results: Any) -> Any:
    """Calls an operator on query, key, value, results of the forward, and the call."""
    tensors = [t for t in (*operands, *results, *given[:_BIAS_TENSORS]) if isinstance(t, Tensor)]
    return call(operator, tensors, *operands, *results, *given)


def _attend_in_place(
    inp: Inputs, query: Tensor, key: Tensor, value: Tensor, packed: Packed, need_lse: bool
) -> tuple[Tensor, Tensor | None]:
    """Computes sequences whose keys lie in pages without moving a key. There is no gradient."""
    caches = [t if t.stride(-1) == 1 else t.contiguous() for t in (key, value)]
    lengths, begins = (torch.tensor(numbers, dtype=torch.int32) for numbers in (packed.k_ends, packed.k_begins))
    table, slots = packed.table, None
    if packed.page == key.shape[1] and not packed.table.any():  # sequences are any rows of a single page
        table, slots = None, torch.zeros(len(packed.k_ends), dtype=torch.int32)
    else:
        caches = [t[0].unflatten(0, (-1, packed.page)) for t in caches]
    rule = rule_of(inp.attn_bias)
    left, right = band_of(inp.attn_bias) if rule == BAND else (-1, 0 if rule == CAUSAL else -1)
    given = FlashCall(
        cu_q=torch.tensor([0, *packed.ends_q], dtype=torch.int32),
        max_q=query.shape[1],
        scale=None if inp.scale is None else float(inp.scale),
        left=left,
        right=right,
    )
    places = CachePlaces(lengths, slots, begins, table, None, None, need_lse)
    out, lse = attend_cache(query[0], *caches, None, None, places, given)
    return out, lse.t() if need_lse else None
