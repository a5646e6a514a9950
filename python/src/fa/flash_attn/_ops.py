"""A custom operator for attention with flash_attn's options. If packed sequences have no gaps between them, as is
usual, each run of sequences is one call of the extension."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _context, _fa
from .._layout import statistics_shape
from .._pytorch import unwatched
from .._torch import autograd
from .._torch.engine import compute, recorded
from .._torch.operators import call as call_operator
from .._torch.operators import operator, schema_of
from .._torch.shapes import empty_like
from ._call import TENSORS, FlashCall, Options, compacted, engine_inputs, pieces_for, runs_for, spread
from ._gradients import flash_attention_backward
from ._sequences import Piece, is_cover


_STATISTICS = "softmax_max", "softmax_sum"


def _forward_packed(
    query, key, value, call: FlashCall, pieces: list[Piece], statistics: Sequence[str]
) -> tuple[Tensor, ...]:
    """Returns out and the statistics that are named. Rows of no sequence are 0."""
    if not is_cover(pieces):
        moved, rows, keys = compacted(pieces)
        compact = call._replace(qv=None if call.qv is None else call.qv[rows])
        results = _forward_packed(query[rows], key[keys], value[keys], compact, moved, statistics)
        return tuple(spread(result, rows, query.shape[0]) for result in results)
    found = {"out": query.new_empty((*query.shape[:-1], value.shape[-1]))}
    found |= {name: query.new_empty(query.shape[:2], dtype=torch.float32) for name in statistics}
    for run in runs_for(call, pieces, query.shape[0], key.shape[0]):
        own = call if call.qv is None else call._replace(qv=call.qv[run.rows])
        inputs = engine_inputs(query[run.rows], key[run.keys], value[run.keys], own, run.slopes)
        results = {name: result[run.rows] for name, result in found.items()}
        compute(_fa.forward, inputs, results, call.options("TND", run.number, run.offset), run.cu_q, run.cu_k)
    return tuple(found.values())


def attend_with_lse(query: Tensor, key: Tensor, value: Tensor, call: FlashCall) -> tuple[Tensor, Tensor]:
    """Returns out and the lse, [B, N, S] or [N, total], which is -inf for rows without keys. There are no gradients."""
    if call.cu_q is not None:
        pieces = pieces_for(call, query.shape[0], key.shape[0])
        out, lse = _forward_packed(query, key, value, call, pieces, ("lse",))
        lse[int(call.cu_q[-1]) :] = -torch.inf
        return out, lse.t().contiguous()
    out, lse, _ = _results(query, value, call)
    options = call.options("BSND", 0, key.shape[1] - query.shape[1])
    compute(_fa.forward, engine_inputs(query, key, value, call, call.slopes), {"out": out, "lse": lse}, options)
    return out, lse


def _results(query: Tensor, value: Tensor, call: FlashCall) -> tuple[Tensor, Tensor, Tensor]:
    statistics = statistics_shape("BSND" if call.cu_q is None else "TND", 0, query.shape)
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, *(query.new_empty(statistics, dtype=torch.float32) for _ in range(2))


@operator(
    f"flash_attention(Tensor query, Tensor key, Tensor value, {schema_of(FlashCall)}) -> (Tensor, Tensor, Tensor)",
    fake=lambda query, key, value, *arguments: _results(query, value, FlashCall(*arguments)),
    derivative=autograd.of_attention(FlashCall, TENSORS, flash_attention_backward, others=("qv", "sink")),
)
def flash_attention(query, key, value, *arguments):
    """Returns out, softmax_max and softmax_sum. The statistics are [B, N, S], or [total, N] for packed sequences."""
    call = FlashCall(*arguments)
    if call.cu_q is not None:
        return _forward_packed(query, key, value, call, pieces_for(call, query.shape[0], key.shape[0]), _STATISTICS)
    out, softmax_max, softmax_sum = _results(query, value, call)
    results = {"out": out, "softmax_max": softmax_max, "softmax_sum": softmax_sum}
    options = call.options("BSND", 0, key.shape[1] - query.shape[1])
    compute(_fa.forward, engine_inputs(query, key, value, call, call.slopes), results, options)
    return out, softmax_max, softmax_sum


def attend_by_operator(query: Tensor, key: Tensor, value: Tensor, call: FlashCall) -> tuple[Tensor, Tensor, Tensor]:
    return call_operator(flash_attention, (query, key, value, *call[:TENSORS]), query, key, value, *call)


def attend_plainly(q, k, v, order: str, *options: Any) -> Tensor | None:
    """Computes flash_attn_func for plain q, k and v if no gradient is recorded and nothing observes the call. Returns
    None if autocast is on, or if the call has other or wrong arguments. `_fa.pyi` explains `order`. `options` are the
    first four members of `Options`."""
    if not unwatched() or torch.is_autocast_enabled("cpu") or recorded(q, k, v):
        return None
    try:
        context = _context.context_of_tensors()
        return _fa.attend(q, k, v, None, None, None, _plain_options(*options), True, False, context, order)
    except (TypeError, ValueError):  # the general path reports the error by the caller's names
        return None


@functools.lru_cache(typed=True)
def _plain_options(causal, window_size, *numbers) -> _fa.AttentionOptions:
    options = Options(causal, window_size, *numbers)
    left, right = window_size
    fixed = type(causal) is bool and type(left) is type(right) is int
    if not fixed or not all(number is None or type(number) in (float, int) for number in numbers):
        raise TypeError("want numbers that do not change")
    options.check()
    return FlashCall(**options.numbers()).options("BSND", 0, 0)


def lying_as(q: Tensor, result: Any) -> Any:
    """Returns `result`: an output, or a tuple that begins with one. If the output has the shape of q, it gets the
    strides of torch.empty_like(q)."""
    out, *others = result if isinstance(result, tuple) else (result,)
    if q.shape == out.shape and not q.is_contiguous():
        want = empty_like(q)
        out = out if out.stride() == want.stride() else want.copy_(out)
    return (out, *others) if others else out
