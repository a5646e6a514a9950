"""A custom operator that computes the gradients of flash_attn's attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _fa
from .._torch import autograd
from .._torch.engine import compute
from .._torch.operators import operator, schema_of
from .._torch.shapes import empty_like
from ._call import FlashCall, compacted, engine_inputs, pieces_for, runs_for, spread
from ._sequences import Piece, is_cover


class Saved(NamedTuple):
    """The tensors of a backward: the forward's inputs and results, and the gradient of out."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    d_out: Tensor
    softmax_max: Tensor
    softmax_sum: Tensor

    def of_rows(self, rows, keys) -> Saved:
        own = {"query", "out", "d_out", "softmax_max", "softmax_sum"}
        return Saved(*(t[rows if name in own else keys] for name, t in zip(self._fields, self, strict=True)))


def _backward_call(saved: Saved, call: FlashCall, slopes, options, gradients: dict, cu_q=(), cu_k=()) -> Tensor | None:
    """Writes the gradients of a run into `gradients`, and returns the gradient of the sink."""
    results = dict(zip(saved._fields[3:], saved[3:], strict=True))
    inputs = {**results, **engine_inputs(saved.query, saved.key, saved.value, call, slopes)}
    if call.sink is not None:
        gradients = {**gradients, "dsink": torch.empty_like(call.sink)}
    compute(_fa.backward, inputs, gradients, options, cu_q, cu_k)
    return gradients.get("dsink")


def _gradients(saved: Saved, call: FlashCall) -> dict[str, Tensor]:
    sources = {"dq": saved.query, "dk": saved.key, "dv": saved.value}
    if call.qv is not None:
        sources |= {"dq_rope": call.qv, "dk_rope": saved.value}
    return {name: empty_like(source) for name, source in sources.items()}


def _backward_packed(saved: Saved, call: FlashCall, pieces: list[Piece]) -> tuple[dict, Tensor | None]:
    if not is_cover(pieces):
        moved, rows, keys = compacted(pieces)
        compact = call._replace(qv=None if call.qv is None else call.qv[rows])
        gradients, dsink = _backward_packed(saved.of_rows(rows, keys), compact, moved)
        of_q = ("dq", "dq_rope")
        places = {name: (rows, saved.query) if name in of_q else (keys, saved.key) for name in gradients}
        back = {name: spread(d, places[name][0], places[name][1].shape[0]) for name, d in gradients.items()}
        return back, dsink
    gradients, dsinks = _gradients(saved, call), []
    for run in runs_for(call, pieces, saved.query.shape[0], saved.key.shape[0]):
        own = call if call.qv is None else call._replace(qv=call.qv[run.rows])
        parts = {name: d[run.rows if name in ("dq", "dq_rope") else run.keys] for name, d in gradients.items()}
        options = call.options("TND", run.number, run.offset)
        part = saved.of_rows(run.rows, run.keys)
        dsinks.append(_backward_call(part, own, run.slopes, options, parts, run.cu_q, run.cu_k))
    return gradients, None if call.sink is None else sum(dsinks)


def _fake(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    call = FlashCall(*arguments)
    optional = (query.new_empty(0) if t is None else torch.empty_like(t) for t in (call.qv, call.sink))
    return *(empty_like(t) for t in (query, key, value)), *optional


@operator(
    "flash_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, {schema_of(FlashCall)}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=_fake,
    derivative=autograd.none("second derivative"),
)
def flash_attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    """Returns the gradients of query, key, value, qv and sink. The gradient of an absent argument has no elements."""
    saved, call = Saved(query, key, value, out, d_out, softmax_max, softmax_sum), FlashCall(*arguments)
    if call.cu_q is not None:
        gradients, dsink = _backward_packed(saved, call, pieces_for(call, query.shape[0], key.shape[0]))
    else:
        gradients = _gradients(saved, call)
        options = call.options("BSND", 0, key.shape[1] - query.shape[1])
        dsink = _backward_call(saved, call, call.slopes, options, gradients)
    nothing = query.new_empty(0)
    dv = gradients["dv"] if call.qv is None else gradients["dv"] + gradients["dk_rope"]
    return (
        gradients["dq"],
        gradients["dk"],
        dv,
        nothing if call.qv is None else gradients["dq_rope"],
        query.new_empty(0) if dsink is None else dsink,
    )
