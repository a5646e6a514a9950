"""Attention with the options of flash_attn as a custom operator. If sequences lie one after another, as they mostly do,
it is one call of the engine."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .. import _context, _fa
from .._layout import statistics_shape
from .._torch.autograd import register_autograd
from .._torch.direct import arrays_of, possible, recorded, unwatched
from .._torch.ops import LIBRARY, operator
from .._torch.shapes import empty_like
from ._arguments import check_numbers, window
from ._call import CALL_SCHEMA, FlashCall, compacted, engine_inputs, pieces_for, runs_for, spread
from ._gradients import flash_attention_backward
from ._sequences import Piece, is_cover


def _forward_packed(query, key, value, call: FlashCall, pieces: list[Piece]) -> tuple[Tensor, Tensor, Tensor]:
    if not is_cover(pieces):
        moved, rows, keys = compacted(pieces)
        compact = call._replace(qv=None if call.qv is None else call.qv[rows])
        results = _forward_packed(query[rows], key[keys], value[keys], compact, moved)
        return tuple(spread(result, rows, query.shape[0]) for result in results)
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    softmax_max, softmax_sum = (query.new_empty(query.shape[:2], dtype=torch.float32) for _ in range(2))
    for run in runs_for(call, pieces, query.shape[0], key.shape[0]):
        own = call if call.qv is None else call._replace(qv=call.qv[run.rows])
        inputs = engine_inputs(query[run.rows], key[run.keys], value[run.keys], own, run.slopes)
        results = {"out": out[run.rows], "softmax_max": softmax_max[run.rows], "softmax_sum": softmax_sum[run.rows]}
        options = call.options("TND", run.number, run.offset)
        _fa.forward(arrays_of(inputs, results), options, run.cu_q, run.cu_k, _context.context_of_tensors())
    return out, softmax_max, softmax_sum


@operator(f"flash_attention(Tensor query, Tensor key, Tensor value, {CALL_SCHEMA}) -> (Tensor, Tensor, Tensor)")
def flash_attention(query, key, value, *arguments):
    """out, softmax_max, softmax_sum. Statistics are [B, N, S], or for packed sequences [total, N]."""
    return _compute(query, key, value, FlashCall(*arguments))


def _compute(query: Tensor, key: Tensor, value: Tensor, call: FlashCall) -> tuple[Tensor, Tensor, Tensor]:
    if call.cu_q is not None:
        return _forward_packed(query, key, value, call, pieces_for(call, query.shape[0], key.shape[0]))
    out, softmax_max, softmax_sum = _results(query, value, call)
    results = {"out": out, "softmax_max": softmax_max, "softmax_sum": softmax_sum}
    arrays = arrays_of(engine_inputs(query, key, value, call, call.slopes), results)
    options = call.options("BSND", 0, key.shape[1] - query.shape[1])
    _fa.forward(arrays, options, [], [], _context.context_of_tensors())
    return out, softmax_max, softmax_sum


def attend_by_operator(query: Tensor, key: Tensor, value: Tensor, call: FlashCall) -> tuple[Tensor, Tensor, Tensor]:
    """Runs the operator, without the dispatcher if no gradient is recorded and nothing else watches."""
    tensors = query, key, value, *call[:8]
    if not possible(*tensors) or recorded(*tensors):
        return flash_attention(query, key, value, *call)
    return _compute(query, key, value, call)


def attend_plainly(q, k, v, scale, causal, window_size, softcap, order: str) -> Tensor | None:
    """The result of flash_attn_func for plain q, k and v, if no gradient is recorded and nothing else watches. Returns
    None for other arguments, wrong ones among them, and where autocast converts them. `_fa.attend` explains order."""
    if not unwatched() or torch.is_autocast_enabled("cpu") or recorded(q, k, v):
        return None
    try:
        options = _plain_options(scale, causal, window_size, softcap)
        context = _context.context_of_tensors()
        return _fa.attend(q, k, v, None, None, None, options, True, False, context, order)
    except (TypeError, ValueError):  # the general path reports the error by the caller's names
        return None


@functools.lru_cache(typed=True)
def _plain_options(scale, causal, window_size, softcap) -> _fa.AttentionOptions:
    left, right = window_size
    fixed = type(causal) is bool and type(left) is type(right) is int
    if not fixed or not all(type(number) in (float, int) for number in (scale or 0.0, softcap)):
        raise TypeError("want numbers that do not change")
    check_numbers(scale, softcap)
    call = FlashCall(*[None] * 8, 0, 0, scale, *window(window_size, causal), 0, softcap, 1.0)
    return call.options("BSND", 0, 0)


def lying_as(q: Tensor, result: Any) -> Any:
    """The result with its output in the memory order of torch.empty_like(q), if v has the head size of q. The result is
    the output or a tuple that begins with it."""
    out, *others = result if isinstance(result, tuple) else (result,)
    if q.shape == out.shape and not q.is_contiguous():
        want = empty_like(q)
        out = out if out.stride() == want.stride() else want.copy_(out)
    return (out, *others) if others else out


def _results(query: Tensor, value: Tensor, call: FlashCall) -> tuple[Tensor, Tensor, Tensor]:
    statistics = statistics_shape("BSND" if call.cu_q is None else "TND", 0, query.shape)
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, *(query.new_empty(statistics, dtype=torch.float32) for _ in range(2))


@torch.library.register_fake("fa::flash_attention", lib=LIBRARY)
def _(query, key, value, *arguments):
    return _results(query, value, FlashCall(*arguments))


def _setup_context(ctx, inputs, output):
    query, key, value, *arguments = inputs
    tensors = arguments[:8]
    ctx.save_for_backward(query, key, value, *output, *tensors)
    ctx.numbers = arguments[8:]
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, needs_input_grad, d_out, *_):
    query, key, value, out, softmax_max, softmax_sum, *tensors = ctx.saved_tensors
    arguments = (query, key, value, out, d_out, softmax_max, softmax_sum, *tensors, *ctx.numbers)
    dq, dk, dv, dqv, dsink = flash_attention_backward(*arguments)
    others = [None] * len(FlashCall._fields)
    others[0] = dqv if needs_input_grad[3] else None
    others[2] = dsink if needs_input_grad[5] else None
    return dq, dk, dv, *others


register_autograd(LIBRARY, flash_attention, _setup_context, _backward)
