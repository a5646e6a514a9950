"""Attention of plain tensors in eager mode, without PyTorch's dispatcher: for calls that take microseconds.

An operator's way through the dispatcher, twice, and its arguments' through Python's protocol of exchange cost several
times what a tiny call computes. Wherever something else than autograd's backward looks on (a transform, a mode, a
tracer, a profiler, a subclass), and in second derivatives, the operator is called.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch._C import (
    _any_requires_grad,
    _are_functorch_transforms_active,
    _dispatch_keys,
    _get_tracing_state,
    _is_torch_function_mode_enabled,
    _len_torch_dispatch_stack,
)
from torch.autograd import _profiler_enabled, forward_ad
from torch.compiler import is_compiling
from torch.utils.dlpack import to_dlpack

from .. import _context, _fa
from .._fa import Mask
from .ops import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT, EVERY_KEY, Call, attention_backward
from .shapes import empty_like, fuses_with

_PLAIN = (Tensor, torch.nn.Parameter)
with torch.inference_mode():
    _MADE_IN_INFERENCE = torch.empty(0, device="cpu")
# Others are wrappers, as those of is_grads_batched, or have no memory.
_PLAIN_KEYS = {_dispatch_keys(tensor).raw_repr() for tensor in (torch.empty(0, device="cpu"), _MADE_IN_INFERENCE)}
_RULES = {
    EVERY_KEY: Mask.none(),
    CAUSAL_TOP_LEFT: Mask.causal_top_left(),
    CAUSAL_BOTTOM_RIGHT: Mask.causal(),
}
_PSE_TYPES = {False: 1, True: 0}  # with one: scale, then add
# False before PyTorch 2.10: then the extension reads tensors as capsules, and its functions of tensors return None.
_READ_IN_PLACE = _fa.use_torch(_PLAIN, _dispatch_keys, sorted(_PLAIN_KEYS), torch.empty_strided, torch.empty_like, torch.float32)


def unwatched() -> bool:
    """Whether nothing but autograd's backward looks on at calls in this thread."""
    return not (
        is_compiling()
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack() > 0
        or _is_torch_function_mode_enabled()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or _profiler_enabled()
    )


def possible(*tensors: Tensor | None) -> bool:
    """Whether a call of these may go past the dispatcher."""
    return unwatched() and all(
        t is None or (type(t) in _PLAIN and _dispatch_keys(t).raw_repr() in _PLAIN_KEYS) for t in tensors
    )


def recorded(*tensors: Any) -> bool:
    """Whether autograd records what is computed from these."""
    return torch.is_grad_enabled() and _any_requires_grad(*tensors)


def attend_plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor | None:
    """scaled_dot_product_attention of nothing but tensors [B, N, S, E] with the same B and a mask, where nothing looks on.
    None for other arguments, wrong ones among them, and where PyTorch converts them."""
    if type(is_causal) is not bool or type(enable_gqa) is not bool or torch.is_autocast_enabled("cpu"):
        return None
    if attn_mask is not None:
        return None if is_causal else _attend_with_mask(query, key, value, attn_mask, scale, enable_gqa)
    rule = CAUSAL_TOP_LEFT if is_causal else EVERY_KEY
    options = _options(False, rule, scale)
    if recorded(query, key, value):
        if not _fa.attends(query, key, value, options, enable_gqa):
            return None
        return _Formula.apply(query, key, value, None, None, rule, scale, query.shape[3] == value.shape[3])
    context = _context.context_of_tensors()
    try:
        return _fa.attend(query, key, value, None, None, None, options, enable_gqa, False, context, "as query")
    except ValueError:  # which says it in the library's words
        return None


def _attend_with_mask(query, key, value, attn_mask, scale, enable_gqa) -> Tensor | None:
    """Inference. (Autograd is to see how a mask with a gradient broadcasts.) None for what is expanded: its inverse is
    made of what is in memory."""
    if type(attn_mask) not in _PLAIN or _dispatch_keys(attn_mask).raw_repr() not in _PLAIN_KEYS:
        return None
    if not attn_mask.is_contiguous() or recorded(query, key, value, attn_mask):
        return None
    biased = attn_mask.dtype is not torch.bool
    mask = attn_mask if biased else ~attn_mask
    options, context = _options(biased, EVERY_KEY, scale), _context.context_of_tensors()
    order = "as query" if fuses_with(attn_mask) else "dense"
    try:
        return _fa.attend_masked(query, key, value, mask, options, enable_gqa, order, context)
    except ValueError:
        return None


def attend_directly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dense_mask: Tensor | None,
    pse: Tensor | None,
    rule: int,
    scale: float | None,
    fused: bool,
) -> Tensor:
    """[B, N, L, Ev]. Arguments as those of fa::attention, layout BNSD. fused: see shapes.fused."""
    if recorded(query, key, value, pse):
        return _Formula.apply(query, key, value, dense_mask, pse, rule, scale, fused)
    return _forward(query, key, value, dense_mask, pse, rule, scale, fused)[0]


class _Result:
    """A result, which the extension may ask for more than once. (A capsule is taken once.)"""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_):
        return to_dlpack(self.tensor)


def arrays_of(inputs: dict[str, Tensor | list[Tensor] | None], results: dict[str, Tensor]) -> dict[str, Any]:
    """The tensors of a call as the extension takes them."""
    if _READ_IN_PLACE:
        return {**inputs, **results}
    arrays = {name: _capsules(tensors) for name, tensors in inputs.items() if tensors is not None}
    return arrays | {name: _Result(tensor) for name, tensor in results.items()}


def _capsules(tensors: Tensor | list[Tensor]) -> Any:
    """A capsule costs a tenth of what Tensor.__dlpack__ does."""
    return [to_dlpack(tensor) for tensor in tensors] if isinstance(tensors, list) else to_dlpack(tensors)


def _options(biased: bool, rule: int, scale: float | None) -> _fa.AttentionOptions:
    if scale is None or type(scale) is float:
        return _kept_options(biased, rule, scale)
    return _new_options(biased, rule, scale)


def _new_options(biased: bool, rule: int, scale: float | None) -> _fa.AttentionOptions:
    return _fa.AttentionOptions(
        layout="BNSD",
        heads=0,
        scale=scale,
        mask=_RULES[rule],
        pse_type=_PSE_TYPES[biased],
        q_start=0,
        kv_start=0,
        softcap=0.0,
        keep_prob=1.0,
        seed=None,
        offset=0,
    )


_kept_options = functools.lru_cache(_new_options)


def _forward(query, key, value, dense_mask, pse, rule, scale, fused, statistics=False) -> tuple[Tensor, ...]:
    """The output; with statistics also softmax_max and softmax_sum."""
    options, context = _options(pse is not None, rule, scale), _context.context_of_tensors()
    order = "as query" if fused else "dense"
    results = _fa.attend(query, key, value, dense_mask, pse, None, options, True, statistics, context, order)
    if results is not None:
        return results if statistics else (results,)
    out = empty_like(query) if fused else torch.empty((*query.shape[:3], value.shape[3]), dtype=query.dtype)
    named = {"out": out}
    if statistics:
        named |= {name: torch.empty(query.shape[:3], dtype=torch.float32) for name in ("softmax_max", "softmax_sum")}
    inputs = {"q": query, "k": key, "v": value, "dense_mask": dense_mask, "pse": pse}
    _fa.forward(arrays_of(inputs, named), options, [], [], context)
    return tuple(named.values())


class _Formula(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, dense_mask, pse, rule, scale, fused):
        results = _forward(query, key, value, dense_mask, pse, rule, scale, fused, statistics=True)
        ctx.save_for_backward(query, key, value, dense_mask, pse, *results)
        ctx.settings = rule, scale
        ctx.fused = fused
        return results[0]

    @staticmethod
    def backward(ctx, d_out):
        tensors = ctx.saved_tensors
        need_dpse = ctx.needs_input_grad[4]
        if torch.is_grad_enabled() or not unwatched():
            gradients = _by_operator(d_out, tensors, ctx.settings, need_dpse)
        else:
            gradients = _backward(d_out, tensors, ctx.settings, ctx.fused, need_dpse)
        dq, dk, dv, dpse = gradients
        return dq, dk, dv, None, dpse, None, None, None


def _empty_gradient(tensor: Tensor, fused: bool) -> Tensor:
    """As PyTorch's gradients lie: [B, S, N, D] of its fused kernel, else as the shape says."""
    batch, heads, rows, size = tensor.shape
    if not fused:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    return torch.empty((batch, rows, heads, size), dtype=tensor.dtype).transpose(1, 2)


def _backward(d_out, tensors, settings, fused, need_dpse) -> tuple[Tensor | None, ...]:
    options, context = _options(tensors[4] is not None, *settings), _context.context_of_tensors()
    if not need_dpse:
        gradients = _fa.attend_backward(*tensors, d_out, options, fused, context)
        if gradients is not None:
            return *gradients, None
    if not possible(d_out, *tensors):
        return _by_operator(d_out, tensors, settings, need_dpse)
    query, key, value, dense_mask, pse, out, softmax_max, softmax_sum = tensors
    named = {"dq": query, "dk": key, "dv": value}
    gradients = {name: _empty_gradient(source, fused) for name, source in named.items()}
    if need_dpse:
        gradients["dpse"] = torch.empty(pse.shape, dtype=pse.dtype)
    inputs = {
        "q": query,
        "k": key,
        "v": value,
        "dense_mask": dense_mask,
        "pse": pse,
        "out": out,
        "d_out": d_out,
        "softmax_max": softmax_max,
        "softmax_sum": softmax_sum,
    }
    _fa.backward(arrays_of(inputs, gradients), options, [], [], context)
    return gradients["dq"], gradients["dk"], gradients["dv"], gradients.get("dpse")


def _by_operator(d_out, tensors, settings, need_dpse) -> tuple[Tensor | None, ...]:
    query, key, value, dense_mask, pse, out, softmax_max, softmax_sum = tensors
    rule, scale = settings
    call = Call.of_rule(rule, "BNSD", scale, pse=pse, dense_mask=dense_mask)
    arguments = (query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, False)
    dq, dk, dv, _, _, dpse, _ = attention_backward(*arguments, *call)
    return dq, dk, dv, dpse if need_dpse else None
