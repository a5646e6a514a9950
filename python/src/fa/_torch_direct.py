"""Attention of plain tensors in eager mode, without PyTorch's dispatcher: for calls that take microseconds.

An operator's way through the dispatcher, twice, and its arguments' through Python's protocol of exchange cost several
times what a tiny call computes. Wherever something else than autograd's backward looks on (a transform, a mode, a
tracer, a profiler, a subclass), and in second derivatives, the operator is called.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import (
    _are_functorch_transforms_active,
    _dispatch_keys,
    _get_tracing_state,
    _is_torch_function_mode_enabled,
    _len_torch_dispatch_stack,
)
from torch.autograd import _profiler_enabled, forward_ad
from torch.compiler import is_compiling
from torch.utils.dlpack import to_dlpack

from . import _context, _fa
from ._fa import Mask
from ._torch_ops import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT, EVERY_KEY, Call, attention_backward

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


def possible(*tensors: Tensor | None) -> bool:
    """Whether a call of these may go past the dispatcher."""
    if (
        is_compiling()
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack() > 0
        or _is_torch_function_mode_enabled()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or _profiler_enabled()
    ):
        return False
    return all(t is None or (type(t) in _PLAIN and _dispatch_keys(t).raw_repr() in _PLAIN_KEYS) for t in tensors)


def attend_directly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dense_mask: Tensor | None,
    pse: Tensor | None,
    rule: int,
    scale: float | None,
) -> Tensor:
    """[B, N, L, Ev], in memory [B, L, N, Ev]. Arguments as those of fa::attention, layout BNSD."""
    differentiable = query.requires_grad or key.requires_grad or value.requires_grad
    if (differentiable or (pse is not None and pse.requires_grad)) and torch.is_grad_enabled():
        return _Formula.apply(query, key, value, dense_mask, pse, rule, scale)
    return _forward(query, key, value, dense_mask, pse, rule, scale)[0]


class Result:
    """A result, which the extension may ask for more than once. (A capsule is taken once.)"""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_):
        return to_dlpack(self.tensor)


def capsules(inputs: dict[str, Tensor | None], results: dict[str, Tensor]) -> dict:
    """The tensors of a call as the extension takes them. A capsule costs a tenth of what Tensor.__dlpack__ does."""
    arrays = {name: to_dlpack(tensor) for name, tensor in inputs.items() if tensor is not None}
    for name, tensor in results.items():
        arrays[name] = Result(tensor)
    return arrays


def _options(pse: Tensor | None, rule: int, scale: float | None) -> _fa.AttentionOptions:
    return _fa.AttentionOptions(
        layout="BNSD",
        heads=0,
        scale=scale,
        mask=_RULES[rule],
        pse_type=_PSE_TYPES[pse is not None],
        q_start=0,
        kv_start=0,
        softcap=0.0,
        keep_prob=1.0,
        seed=None,
        offset=0,
    )


def _forward(query, key, value, dense_mask, pse, rule, scale, **statistics) -> tuple[Tensor, ...]:
    batch, heads, rows, _ = query.shape
    out = torch.empty((batch, rows, heads, value.shape[3]), dtype=query.dtype).transpose(1, 2)
    inputs = {"q": query, "k": key, "v": value, "dense_mask": dense_mask, "pse": pse}
    arrays = capsules(inputs, {"out": out, **statistics})
    _fa.forward(arrays, _options(pse, rule, scale), [], [], _context.chosen_context(None))
    return out, *statistics.values()


class _Formula(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, dense_mask, pse, rule, scale):
        softmax_max, softmax_sum = (torch.empty(query.shape[:3], dtype=torch.float32) for _ in range(2))
        statistics = {"softmax_max": softmax_max, "softmax_sum": softmax_sum}
        out = _forward(query, key, value, dense_mask, pse, rule, scale, **statistics)[0]
        ctx.save_for_backward(query, key, value, dense_mask, pse, out, softmax_max, softmax_sum)
        ctx.settings = rule, scale
        return out

    @staticmethod
    def backward(ctx, d_out):
        tensors = ctx.saved_tensors
        need_dpse = ctx.needs_input_grad[4]
        if torch.is_grad_enabled() or not possible(d_out, *tensors):
            gradients = _by_operator(d_out, tensors, ctx.settings, need_dpse)
        else:
            gradients = _backward(d_out, tensors, ctx.settings, need_dpse)
        dq, dk, dv, dpse = gradients
        return dq, dk, dv, None, dpse, None, None


def _empty_like(tensor: Tensor) -> Tensor:
    """In the tensor's order of dimensions, but for the innermost, in which the library writes rows."""
    if tensor.stride(-1) == 1:
        like = torch.empty_like(tensor)
        if like.stride(-1) == 1:  # not where rows overlap
            return like
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _backward(d_out, tensors, settings, need_dpse) -> tuple[Tensor | None, ...]:
    query, key, value, dense_mask, pse, out, softmax_max, softmax_sum = tensors
    gradients = {"dq": _empty_like(query), "dk": _empty_like(key), "dv": _empty_like(value)}
    if need_dpse:
        gradients["dpse"] = _empty_like(pse)
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
    arrays = capsules(inputs, gradients)
    _fa.backward(arrays, _options(pse, *settings), [], [], _context.chosen_context(None))
    return gradients["dq"], gradients["dk"], gradients["dv"], gradients.get("dpse")


def _by_operator(d_out, tensors, settings, need_dpse) -> tuple[Tensor | None, ...]:
    query, key, value, dense_mask, pse, out, softmax_max, softmax_sum = tensors
    rule, scale = settings
    call = Call.of_rule(rule, "BNSD", scale, pse=pse, dense_mask=dense_mask)
    arguments = (query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, False)
    dq, dk, dv, _, _, dpse, _ = attention_backward(*arguments, *call)
    return dq, dk, dv, dpse if need_dpse else None
