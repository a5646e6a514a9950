"""PyTorch operators for the attention of a model's layer, with one interval of keys per row, lists of keys, softcap,
sinks and biases.

`fa::model_attention` takes query, key and value as [B, N, S, D] in any strides and writes [B, Sq, N, Dv], the order in
which a layer uses the output. `fa::rows_inside` cuts intervals to the keys that a padding mask keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _context, _fa
from .._errors import made, own_names
from .._fa import Mask, PairMask
from .._torch import autograd
from .._torch.call import UNSIGNED_64
from .._torch.engine import attend, attend_backward, compute, possible
from .._torch.operators import operator, schema_of, tensors_of
from .._torch.padding import kept_interval
from .._torch.shapes import inverted
from . import selection
from .words import pairs_of

# Argument names: {the library's name: the name in fa.transformers}.
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
    """All arguments of model_attention except query, key and value, in the operator's order."""

    rows: Optional[Tensor] = None
    """int32 [B|1, 1, Sq, 2]: row i looks at keys rows[..., 0] <= j < rows[..., 1]. Both ends do not decrease with i."""
    dense_mask: Optional[Tensor] = None
    """bool [B|1, N|1, Sq, Sk], True = look at the key, or the words of such pairs. Together with rows, all rows have the
    words of the padding to whose ends the rows are cut."""
    pse: Optional[Tensor] = None
    """[B|1, N, Sq, Sk], type of query or float32, added to scaled (and capped) scores; may require a gradient."""
    sink: Optional[Tensor] = None
    """float32 [N] or [B|1, N, Sq]: the score of a virtual key whose value is 0. With lists it is [N]."""
    dropout_state: Optional[Tensor] = None
    """int64 [2]: seed and offset, given if keep_prob is below 1."""
    k_scale: Optional[Tensor] = None
    """float32 [B, Nkv, Sk, 1], of keys in 8 bits. Such calls have no gradient, dropout or lists."""
    v_scale: Optional[Tensor] = None
    lists: Optional[Tensor] = None
    """int32 or int64 [B, H, Sq, K], H a divisor of Nkv: row i looks only at the keys or blocks in lists[b, h, i]."""
    block: int = 0
    """If 0, lists name keys. If not, they name blocks of so many keys, and negative entries name none."""
    is_causal: bool = False
    """Whether row i looks only at keys j <= i, counted from the first row and the first key. Not together with rows or
    lists."""
    statistics: bool = False
    """Whether a backward follows. If not, softmax_max and softmax_sum have no elements."""
    scale: Optional[float] = None
    softcap: float = 0.0
    keep_prob: float = 1.0

    def options(self, query: Tensor) -> _fa.AttentionOptions:
        """Returns the options of _fa.forward."""
        seed, offset = (None, 0) if self.dropout_state is None else self.dropout_state.tolist()
        given = {
            "layout": "BNSD",
            "mask": _rule(self, query),
            "pse_type": 0,
            "keep_prob": self.keep_prob,
            "seed": None if seed is None else seed & UNSIGNED_64,
            "offset": offset & UNSIGNED_64,
            **self._of_scores(),
        }
        return made(_fa.AttentionOptions, given, NAMES)

    def decode_options(self, layout: str, mask: Mask) -> _fa.DecodeAttentionOptions:
        """Returns the options of _fa.decode."""
        return made(_fa.DecodeAttentionOptions, {"layout": layout, "mask": mask, **self._of_scores()}, NAMES)

    def _of_scores(self) -> dict[str, Any]:
        return {"scale": self.scale, "softcap": self.softcap}


_TENSORS = tensors_of(ModelCall)
_EVERY_KEY, _CAUSAL = Mask.none(), Mask.causal_top_left()


def model_attention(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    """Computes attention [B, Sq, N, Dv], with gradients of query, key, value, pse and sink.

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
    """Expands `rows` to [B, 1, Sq, 2]. Raises ValueError unless its shape is that or [1, 1, Sq, 2]."""
    want = [query.shape[0], 1, query.shape[2], 2]
    if rows.dim() != 4 or rows.shape[0] not in (1, want[0]) or list(rows.shape[1:]) != want[1:]:
        raise ValueError(f"invalid argument: attention_mask.shape={list(rows.shape)}, want {want} (int32: rows of keys)")
    return rows.expand(want)


def _inputs(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> tuple[Tensor | None, ...]:
    """Returns the inputs that `engine.attend` takes, in its order. The mask drops the keys that call.lists leaves
    out."""
    return query, key, value, _mask_of(call, key.shape[2]), call.pse, call.sink


def _mask_of(call: ModelCall, keys: int) -> Tensor | PairMask | None:
    """Returns the mask of the call's pairs and lists: a tensor as `engine.attend` takes it, or a PairMask."""
    mask = call.dense_mask
    if call.lists is None:
        if mask is None or mask.dtype == torch.bool:
            return None if mask is None else inverted(mask)
        return None if call.rows is not None and _has_no_gaps(mask, keys) else _pairs(mask, keys)
    listed = selection.listed_pairs(call.lists, call.block, keys)
    return listed if mask is None else listed & _pairs(mask, keys)


def _has_no_gaps(padding: Tensor, keys: int) -> bool:
    """Returns whether the bits of `padding` keep one interval of keys, without gaps, in every batch element. The rows
    of such a call are cut to this interval and need no mask.
    """
    return bool(kept_interval(pairs_of(padding[:, 0, :1], keys)[:, 0])[2].all())


def _pairs(mask: Tensor, keys: int) -> PairMask:
    once = mask[tuple(slice(0, 1) if step == 0 else slice(None) for step in mask.stride()[:3])]
    return PairMask.from_bool(once) if mask.dtype == torch.bool else PairMask.from_bits(once, keys)


def _without_statistics(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    if call.lists is None:
        return _of_pairs(query, key, value, call)
    selection.check_sizes(query, key, value, call.sink)
    selection.check_lists(call.lists, call.block, key.shape[2])
    groups = selection.groups(call, query.shape[1], key.shape[1])
    return _joined([_selected(query[:, q], key[:, kv], value[:, kv], own) for q, kv, own in groups], 2)


def _joined(parts: list[Tensor], dimension: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dimension)


def _joined_heads(parts: list[Tensor]) -> Tensor:
    """Joins tensors [B, N, S, D], which lie in memory as [B, S, N, D], along their heads."""
    return _joined([part.transpose(1, 2) for part in parts], 2).transpose(1, 2)


def _selected(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    """Computes a call in which all heads share one list per row."""
    rows = query.shape[2]
    if call.dropout_state is not None:
        return _of_pairs(query, key, value, call)
    if 0 < rows <= selection.FEW_ROWS and selection.is_short(call, query, key):
        return _of_listed(query, key, value, call)
    return _of_pairs(query, key, value, call)


def _of_listed(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    """Computes few rows by _fa.decode. Each row is a sequence, and each key that it lists is a page."""
    out = query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
    elements = selection.of_elements(key.shape[2], call)
    for *of_element, (places, own), result in zip(query, key, value, elements, out, strict=True):
        inputs = dict(zip("qkv", map(selection.rows_first, of_element), strict=True)) | {"block_table": places}
        dropped = None if own.dense_mask is None else inverted(own.dense_mask)
        inputs |= {"dense_mask": dropped, "pse": own.pse, "sink": own.sink}
        options, lengths = own.decode_options("BNSD", _EVERY_KEY), [places.shape[1]] * len(places)
        with own_names(NAMES):
            compute(_fa.decode, inputs, {"out": result.unsqueeze(2)}, options, (), lengths)
    return out


def _of_pairs(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    rows = query.shape[2]
    few = 0 < rows <= selection.FEW_ROWS and call.dropout_state is None and not (call.is_causal and rows > 1)
    if few or call.k_scale is not None:
        return _decode(query, key, value, call)
    options = call.options(query)
    with own_names(NAMES):
        return attend(*_inputs(query, key, value, call), options, "by row", False).transpose(1, 2)


def _decode(query: Tensor, key: Tensor, value: Tensor, call: ModelCall) -> Tensor:
    """Computes the call by _fa.decode, which reads a cache in place."""
    batch, heads, rows, _ = query.shape
    lengths, mask = [], _EVERY_KEY
    if call.rows is not None:
        ends = _of_rows(call.rows, query)
        lengths = [min(max(end, 0), key.shape[2]) for end in ends[..., 1].amax((1, 2)).tolist()]
        if rows > 1 or bool((ends[..., 0] > 0).any()):
            mask = _rule(call, query)
    elif call.is_causal:
        mask = _CAUSAL
    options, context = call.decode_options("BNSD", mask), _context.context_of_tensors()
    *_, dropped, pse, sink = _inputs(query, key, value, call)
    with own_names(NAMES):
        if call.k_scale is None:
            others = dropped, pse, sink, options, None, lengths, True, False, context
            out = _fa.attend_cache(query, key, value, None, *others)
            if out is not None:
                return out.transpose(1, 2)
        out = query.new_empty((batch, rows, heads, value.shape[3]))
        inputs = {"q": query, "k": key, "v": value, "dense_mask": dropped, "pse": pse, "sink": sink}
        inputs |= {"k_scale": call.k_scale, "v_scale": call.v_scale}
        compute(_fa.decode, inputs, {"out": out.transpose(1, 2)}, options, (), lengths)
    return out


def _fake_backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *rest):
    call = ModelCall(*rest)
    # The gradients lie in memory as [B, S, N, D], the order of a layer's projections.
    of_heads = (t.new_empty(t.transpose(1, 2).shape).transpose(1, 2) for t in (query, key, value))
    dpse = call.pse.new_empty(call.pse.shape) if need_dpse else query.new_empty(0)
    dsink = call.sink.new_empty(call.sink.shape) if need_dsink else query.new_empty(0)
    return *of_heads, dpse, dsink


@operator(
    "model_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, bool need_dpse, bool need_dsink, {schema_of(ModelCall)}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
    derivative=autograd.none("second derivative"),
)
def attention_of_layer_backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *rest):
    """Returns dq, dk, dv, dpse and dsink. dpse and dsink have no elements if they are not needed."""
    results, d_out = (out.transpose(1, 2), softmax_max, softmax_sum), d_out.transpose(1, 2)
    parts = []
    for q, kv, call in selection.groups(ModelCall(*rest), query.shape[1], key.shape[1]):
        options, of_group = call.options(query), tuple(t[:, q] for t in results)
        with own_names(NAMES):
            inputs = _inputs(query[:, q], key[:, kv], value[:, kv], call)
            parts.append(attend_backward(inputs, of_group, d_out[:, q], options, True, need_dpse, need_dsink))
    every = {name: [part[name] for part in parts] for name in parts[0]}
    of_rows = (_joined_heads(every[name]) for name in ("dq", "dk", "dv"))
    biases = (("dpse", 1), ("dsink", 0))
    return *of_rows, *(_joined(every[name], axis) if name in every else query.new_empty(0) for name, axis in biases)


def _fake_attention(query, key, value, *arguments):
    batch, heads, rows, _ = query.shape
    shape = query.shape[:3] if ModelCall(*arguments).statistics else (0,)
    out = query.new_empty((batch, rows, heads, value.shape[3]))
    return out, *(query.new_empty(shape, dtype=torch.float32) for _ in range(2))


@operator(
    f"model_attention(Tensor query, Tensor key, Tensor value, {schema_of(ModelCall)}) -> (Tensor, Tensor, Tensor)",
    fake=_fake_attention,
    derivative=autograd.of_attention(
        ModelCall, _TENSORS, attention_of_layer_backward, others=("pse", "sink"), asked=("pse", "sink")
    ),
)
def attention_of_layer(query, key, value, *arguments):
    """Returns out [B,Sq,N,Dv], and softmax_max and softmax_sum [B,N,Sq]. Without call.statistics, the last two are
    empty."""
    call = ModelCall(*arguments)
    if not call.statistics:
        none = (query.new_empty(0, dtype=torch.float32) for _ in range(2))
        return _without_statistics(query, key, value, call), *none
    if call.lists is not None:
        selection.check_sizes(query, key, value, call.sink)
        selection.check_lists(call.lists, call.block, key.shape[2])
    parts = []
    for q, kv, own in selection.groups(call, query.shape[1], key.shape[1]):
        options = own.options(query)
        with own_names(NAMES):
            inputs = _inputs(query[:, q], key[:, kv], value[:, kv], own)
            parts.append(attend(*inputs, options, "by row", True))
    out, *statistics = map(list, zip(*parts, strict=True))
    return _joined_heads(out).transpose(1, 2), *(_joined(s, 1) for s in statistics)


def causal_rows(rows: int, keys: int, first: int | Tensor = 0, window: int | None = None) -> Tensor:
    """Returns the intervals of a causal mask, int32 [1, 1, Sq, 2]. Row 0 stands at the key `first`. With a window, a
    row keeps its own key and the window - 1 keys before.
    """
    ends = torch.arange(1, rows + 1) + first
    begins = torch.zeros_like(ends) if window is None else (ends - window).clamp(0, keys)
    return torch.stack((begins, ends.clamp(0, keys)), -1).to(torch.int32)[None, None]


def rows_of_sequences(ends_q: Tensor, ends_k: Tensor, rows: int, causal: bool, window: int | None) -> Tensor:
    """Returns the interval of keys that each row looks at in its own packed sequence, int32 [1, 1, Sq, 2]. The last
    query of a sequence is at its last key."""
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


@operator(
    "rows_inside(Tensor rows, Tensor padding) -> Tensor",
    fake=lambda rows, padding: rows.new_empty((padding.shape[0], *rows.shape[1:])),
)
def rows_inside(rows, padding):
    """Cuts `rows`, int32 [B|1, 1, Sq, 2], to the keys between the first and the last that `padding`, bool [B, Sk],
    keeps."""
    begins, ends, _ = kept_interval(padding)
    bounds = (t.to(torch.int32)[:, None, None] for t in (begins, ends))
    return inside(rows, *bounds)


def inside(rows: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """Cuts each interval in `rows` [..., 2] to [begins, ends)."""
    return torch.stack((torch.maximum(rows[..., 0], begins), torch.minimum(rows[..., 1], ends)), -1)
