"""The attention of a model's layer as PyTorch operators: masks as one interval of keys per row, softcap, sinks, biases.

`fa::model_attention` takes query, key and value as [B, N, S, D] in any strides and writes [B, Sq, N, Dv], which is what
a layer goes on with. `fa::rows_inside` cuts intervals to what a padding mask leaves.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _context, _fa
from .._errors import own_names
from .._fa import Mask
from .._torch.autograd import register_autograd, register_no_derivative
from .._torch.direct import arrays_of, possible
from .._torch.ops import LIBRARY, UNSIGNED_64, operator
from .._torch.shapes import inverted

# The arguments of fa.transformers that the library calls otherwise.
NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "pse": "position_bias",
    "dense_mask": "attention_mask",
    "mask.row_begin": "attention_mask",
    "mask.row_end": "attention_mask",
    "sink": "s_aux",
    "scale": "scaling",
    "keep_prob": "1 - dropout",
}


class ModelCall(NamedTuple):
    """Everything of a layer's call but query, key and value, in the order of the operators' arguments."""

    rows: Optional[Tensor] = None
    """int32 [B|1, 1, Sq, 2]: row i looks at keys rows[..., 0] <= j < rows[..., 1], which do not decrease with i."""
    dense_mask: Optional[Tensor] = None
    """bool [B|1, N|1, Sq, Sk], True = look at the key."""
    pse: Optional[Tensor] = None
    """[B|1, N, Sq, Sk], type of query or float32, added to scaled (and capped) scores; may require a gradient."""
    sink: Optional[Tensor] = None
    """float32 [N]: a key of that score and value 0."""
    dropout_state: Optional[Tensor] = None
    """int64 [2], with keep_prob below 1."""
    is_causal: bool = False
    """j <= i, counted from the first row and the first key; not together with rows."""
    statistics: bool = False
    """Whether a backward is to come; without it softmax_max and softmax_sum have no elements."""
    scale: Optional[float] = None
    softcap: float = 0.0
    keep_prob: float = 1.0


_SCHEMA = (
    "Tensor? rows, Tensor? dense_mask, Tensor? pse, Tensor? sink, Tensor? dropout_state, bool is_causal, "
    "bool statistics, float? scale, float softcap, float keep_prob"
)
_TENSORS = ModelCall._fields.index("is_causal")
_ROWS_OF_DECODE = 16  # keys of so many are cut into parts, for any number of rows below the same kernels
_EVERY_KEY, _CAUSAL = Mask.none(), Mask.causal_top_left()


def model_attention(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    """[B, Sq, N, Dv], with gradients of query, key, value, pse and sink.

    Raises:
        ValueError: an argument is wrong; the message names it.
    """
    if not call.statistics and possible(query, key, value, *call[:_TENSORS]):
        return _without_statistics(query, key, value, call)
    return attention_of_layer(query, key, value, *call)[0]


def _rule(call: ModelCall, query: Tensor) -> Mask:
    if call.rows is None:
        return _CAUSAL if call.is_causal else _EVERY_KEY
    rows = _of_rows(call.rows, query)
    begins, ends = (rows[:1] if rows.stride(0) == 0 else rows).reshape(-1, 2).unbind(1)
    return Mask.rows(begins.numpy(), ends.numpy())


def _of_rows(rows: Tensor, query: Tensor) -> Tensor:
    """[B, 1, Sq, 2]; ValueError for another shape than that or [1, 1, Sq, 2]."""
    want = [query.shape[0], 1, query.shape[2], 2]
    if rows.dim() != 4 or rows.shape[0] not in (1, want[0]) or list(rows.shape[1:]) != want[1:]:
        raise ValueError(f"invalid argument: attention_mask.shape={list(rows.shape)}, want {want} (int32: rows of keys)")
    return rows.expand(want)


def _options(call: ModelCall, query: Tensor) -> _fa.AttentionOptions:
    seed, offset = (None, 0) if call.dropout_state is None else call.dropout_state.tolist()
    return _fa.AttentionOptions(
        layout="BNSD",
        heads=0,
        scale=call.scale,
        mask=_rule(call, query),
        pse_type=0,
        q_start=0,
        kv_start=0,
        softcap=call.softcap,
        keep_prob=call.keep_prob,
        seed=None if seed is None else seed & UNSIGNED_64,
        offset=offset & UNSIGNED_64,
    )


def _inputs(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> dict[str, Tensor | None]:
    dropped = None if call.dense_mask is None else inverted(call.dense_mask)
    return {"q": query, "k": key, "v": value, "dense_mask": dropped, "pse": call.pse, "sink": call.sink}


def _forward(query: Tensor, key: Tensor, value: Tensor, call: ModelCall, **statistics: Tensor) -> Tensor:
    batch, heads, rows, _ = query.shape
    inputs, options, context = _inputs(query, key, value, call), _options(call, query), _context.context_of_tensors()
    with own_names(NAMES):
        out = None if statistics else _fa.attend(*inputs.values(), options, True, False, context)
        if out is not None:
            return out.transpose(1, 2)
        out = query.new_empty((batch, rows, heads, value.shape[3]))
        _fa.forward(arrays_of(inputs, {"out": out.transpose(1, 2), **statistics}), options, [], [], context)
    return out


def _without_statistics(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    rows = query.shape[2]
    decodes = 0 < rows <= _ROWS_OF_DECODE and call.dropout_state is None and not (call.is_causal and rows > 1)
    return (_decode if decodes else _forward)(query, key, value, call)


def _decode(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    """By the kernels of few rows, on a cache where it lies."""
    batch, heads, rows, _ = query.shape
    lengths, mask = [], _EVERY_KEY
    if call.rows is not None:
        ends = _of_rows(call.rows, query)
        lengths = [min(max(end, 0), key.shape[2]) for end in ends[..., 1].amax((1, 2)).tolist()]
        if rows > 1 or bool((ends[..., 0] > 0).any()):
            mask = _rule(call, query)
    options = _fa.DecodeAttentionOptions(
        layout="BNSD",
        heads=0,
        scale=call.scale,
        mask=mask,
        softcap=call.softcap,
        antiquant_per_token=False,
    )
    inputs, context = _inputs(query, key, value, call), _context.context_of_tensors()
    with own_names(NAMES):
        others = inputs["dense_mask"], inputs["pse"], inputs["sink"]
        out = _fa.attend_cache(query, key, value, None, *others, options, None, lengths, True, False, context)
        if out is not None:
            return out.transpose(1, 2)
        out = query.new_empty((batch, rows, heads, value.shape[3]))
        _fa.decode(arrays_of(inputs, {"out": out.transpose(1, 2)}), options, [], lengths, context)
    return out


@operator(f"model_attention(Tensor query, Tensor key, Tensor value, {_SCHEMA}) -> (Tensor, Tensor, Tensor)")
def attention_of_layer(query, key, value, *arguments):
    """out [B,Sq,N,Dv], softmax_max, softmax_sum [B,N,Sq]."""
    call = ModelCall(*arguments)
    softmax_max, softmax_sum = _statistics(query, call)
    if not call.statistics:
        return _without_statistics(query, key, value, call), softmax_max, softmax_sum
    statistics = {"softmax_max": softmax_max, "softmax_sum": softmax_sum}
    return _forward(query, key, value, call, **statistics), softmax_max, softmax_sum


def _statistics(query: Tensor, call: ModelCall) -> tuple[Tensor, Tensor]:
    """Without contents."""
    shape = query.shape[:3] if call.statistics else (0,)
    return query.new_empty(shape, dtype=torch.float32), query.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake("fa::model_attention", lib=LIBRARY)
def _(query, key, value, *arguments):
    batch, heads, rows, _ = query.shape
    out = query.new_empty((batch, rows, heads, value.shape[3]))
    return out, *_statistics(query, ModelCall(*arguments))


@operator(
    "model_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, bool need_dpse, bool need_dsink, {_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def attention_of_layer_backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *rest):
    """dq, dk, dv, dpse, dsink; those not asked for have no elements."""
    call = ModelCall(*rest)
    gradients = _gradients(query, key, value, need_dpse, need_dsink, call)
    named = dict(zip(("dq", "dk", "dv", "dpse", "dsink"), gradients, strict=True))
    inputs = _inputs(query, key, value, call) | {
        "out": out.transpose(1, 2),
        "d_out": d_out.transpose(1, 2),
        "softmax_max": softmax_max,
        "softmax_sum": softmax_sum,
    }
    wanted = {name: gradient for name, gradient in named.items() if gradient.dim() > 1 or gradient.numel() > 0}
    with own_names(NAMES):
        _fa.backward(arrays_of(inputs, wanted), _options(call, query), [], [], _context.context_of_tensors())
    return gradients


def _gradients(query, key, value, need_dpse, need_dsink, call: ModelCall) -> tuple[Tensor, ...]:
    """Without contents. As a layer's projections lie: [B, S, N, D] in memory."""
    of_heads = (t.new_empty(t.transpose(1, 2).shape).transpose(1, 2) for t in (query, key, value))
    dpse = query.new_empty(0) if call.pse is None or not need_dpse else call.pse.new_empty(call.pse.shape)
    dsink = query.new_empty(0) if call.sink is None or not need_dsink else call.sink.new_empty(call.sink.shape)
    return *of_heads, dpse, dsink


@torch.library.register_fake("fa::model_attention_backward", lib=LIBRARY)
def _(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *rest):
    return _gradients(query, key, value, need_dpse, need_dsink, ModelCall(*rest))


def _setup_context(ctx, inputs, output):
    query, key, value, *arguments = inputs
    ctx.save_for_backward(query, key, value, *output, *arguments[:_TENSORS])
    ctx.settings = arguments[_TENSORS:]
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, needs_input_grad, d_out, *_):
    query, key, value, out, softmax_max, softmax_sum, *tensors = ctx.saved_tensors
    needs = ModelCall(*needs_input_grad[3:])
    arguments = (query, key, value, out, d_out, softmax_max, softmax_sum, needs.pse, needs.sink)
    dq, dk, dv, dpse, dsink = attention_of_layer_backward(*arguments, *tensors, *ctx.settings)
    of_call: dict[str, Any] = dict.fromkeys(ModelCall._fields)
    of_call |= {"pse": dpse if needs.pse else None, "sink": dsink if needs.sink else None}
    return dq, dk, dv, *of_call.values()


register_autograd(LIBRARY, attention_of_layer, _setup_context, _backward)
register_no_derivative(LIBRARY, attention_of_layer_backward, "second derivative")


def rows_of_sequences(ends_q: Tensor, ends_k: Tensor, rows: int, causal: bool, window: int | None) -> Tensor:
    """int32 [1, 1, Sq, 2]: each row's own sequence, its last query at its last key."""
    place = torch.arange(rows, device=ends_q.device)
    sequence = torch.searchsorted(ends_q, place, right=True).clamp(max=ends_q.shape[0] - 1)
    first, end = ends_k[sequence - 1], ends_k[sequence]
    if causal:
        own = place - ends_q[sequence] + end
        if window is not None:
            first = torch.maximum(first, own - (window - 1))
        end = own + 1
    end = torch.where(place < ends_q[-1], end, first)
    return torch.stack((first, end), -1).to(torch.int32)[None, None]


def kept_interval(padding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of bool [B, S]: where each row's kept places begin and end, and whether they have no gap; [B] each."""
    places = torch.arange(1, padding.shape[1] + 1, device=padding.device)
    ends = (padding * places).amax(1)
    count = padding.sum(1)
    begins = torch.where(count > 0, padding.to(torch.uint8).argmax(1), 0)
    return begins, ends, ends - begins == count


@operator("rows_inside(Tensor rows, Tensor padding) -> Tensor")
def rows_inside(rows, padding):
    """rows, int32 [B|1, 1, Sq, 2], inside what padding, bool [B, Sk], keeps. ValueError where that has gaps."""
    begins, ends, whole = kept_interval(padding)
    if not bool(whole.all()):
        raise ValueError(
            "invalid argument: attention_mask: has gaps between the tokens of a sequence, which a compiled model does not "
            "serve; want padding at the ends alone"
        )
    bounds = (t.to(torch.int32)[:, None, None] for t in (begins, ends))
    return inside(rows, *bounds)


def inside(rows: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """[..., 2] of [begin, end), cut to [begins, ends)."""
    return torch.stack((torch.maximum(rows[..., 0], begins), torch.minimum(rows[..., 1], ends)), -1)


@torch.library.register_fake("fa::rows_inside", lib=LIBRARY)
def _(rows, padding):
    return rows.new_empty((padding.shape[0], *rows.shape[1:]))

