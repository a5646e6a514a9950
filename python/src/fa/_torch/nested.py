"""scaled_dot_product_attention of jagged nested tensors. Each sequence looks at its own keys, all in one call.

A nested tensor may have gaps between its sequences, for example after torch.nested.narrow. The operator takes no gaps,
so a gap becomes a sequence that has only rows or only keys.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._errors import ERRORS
from .._pytorch import known_lengths, nested_view, ragged_axis
from . import autograd
from .call import CAUSAL_TOP_LEFT, EVERY_KEY, Call
from .dropout import new_state
from .operators import operator, schema_of, tensors_of, without_contents
from .ops import attention, attention_backward
from .shapes import broadcast_heads, no_elements, own_arguments


def attend_nested(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_state: Tensor | None,
    dropout_p: float,
    rule: int,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Computes scaled_dot_product_attention of nested tensors [B, N, j, E] or [B, j, E], where j differs between
    sequences. attn_mask must be None."""
    check_nested(query, key, value, attn_mask, rule)
    dropout_state = new_state(dropout_p) if dropout_state is None else dropout_state
    q, k, v = (_rows(t) for t in (query, key, value))
    heads, heads_kv = broadcast_heads(q.shape[1], k.shape[1], v.shape[1], enable_gqa)
    q, k, v = (_with_heads(t, n) for t, n in ((q, heads), (k, heads_kv), (v, heads_kv)))
    places = query.offsets(), query.lengths(), key.offsets(), key.lengths()
    if q.shape[-1] == 0:  # without columns every score is 0
        q, k, scale = pad(q, (0, 1)), pad(k, (0, 1)), 1.0
    if heads == 0 or v.shape[-1] == 0:
        out = no_elements((*q.shape[:2], v.shape[-1]), q, k, v)
    else:
        out = _called(q, k, v, *places, dropout_state, scale, rule == CAUSAL_TOP_LEFT, 1.0 - dropout_p)
    nested = nested_view(
        out if query.dim() == 4 else out.squeeze(1),
        *places[:2],
        **known_lengths(query),
    )
    return nested.transpose(1, 2) if query.dim() == 4 else nested


def check_nested(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, rule: int) -> None:
    """Raises ValueError if there is a mask, or unless query, key and value are jagged tensors with shapes that fit
    together. The sequences of key and value must be equally long.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not tensor.is_nested or tensor.layout != torch.jagged:
            raise ValueError(f"invalid argument: {name}: want a nested tensor of layout torch.jagged, as the others")
        if tensor.dim() not in (3, 4) or ragged_axis(tensor) != tensor.dim() - 2 or tensor.dim() != query.dim():
            want = "want [B, N, j, E] or [B, j, E], ragged in j, as query"
            raise ValueError(f"invalid argument: {name}.shape={tuple(tensor.shape)}, {want}")
    if attn_mask is not None or rule not in (EVERY_KEY, CAUSAL_TOP_LEFT):
        raise ValueError("invalid argument: attn_mask: want None with nested tensors")
    for name, tensor in (("key", key), ("value", value)):
        if tensor.shape[0] != query.shape[0]:
            want = f"want {query.shape[0]} (query.shape[0])"
            raise ValueError(f"invalid argument: {name}.shape[0]={tensor.shape[0]}, {want}")
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(f"invalid argument: key.shape[-1]={key.shape[-1]}, want {query.shape[-1]} (query.shape[-1])")
    if key.shape[-2] != value.shape[-2] and not _same_sequences(key, value):
        raise ValueError("invalid argument: value.shape[-2]: want sequences as long as key's")


def _called(*arguments) -> Tensor:
    """Returns the output [T, N, Ev]. Errors use the axis numbers of the caller's tensors."""
    try:
        return jagged_attention(*arguments)[0]
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise own_arguments(error, last=2) from None


def _same_sequences(key: Tensor, value: Tensor) -> bool:
    if not torch.equal(key.offsets(), value.offsets()):
        return False
    lengths = [t.offsets().diff() if t.lengths() is None else t.lengths() for t in (key, value)]
    return torch.equal(*lengths)


def _rows(tensor: Tensor) -> Tensor:
    """Returns the rows of all sequences and gaps, [T, N, E]."""
    return tensor.transpose(1, 2).values() if tensor.dim() == 4 else tensor.values().unsqueeze(1)


def _with_heads(rows: Tensor, heads: int) -> Tensor:
    own = rows.shape[1]
    if own in (1, heads):
        return rows.expand(-1, heads, -1)
    return rows.repeat_interleave(heads // own, 1)


class _JaggedCall(NamedTuple):
    """The arguments of the operator jagged_attention except query, key and value, in the operator's order."""

    offsets_q: Tensor
    lengths_q: Optional[Tensor]
    offsets_kv: Tensor
    lengths_kv: Optional[Tensor]
    dropout_state: Optional[Tensor]
    scale: Optional[float]
    is_causal: bool
    keep_prob: float


def _gaps_and_lengths(offsets: Tensor, lengths: Tensor | None, total: int) -> list[tuple[int, int]]:
    """Returns (rows of the gap before the sequence, rows of the sequence) for each sequence. The last entry is (rows
    after the last sequence, 0)."""
    begins, ends = offsets.tolist()[:-1], offsets.tolist()[1:]
    if lengths is not None:
        ends = [begin + length for begin, length in zip(begins, lengths.tolist(), strict=True)]
    gaps = [begin - end for begin, end in zip(begins, [0, *ends], strict=False)]
    sizes = [end - begin for begin, end in zip(begins, ends, strict=True)]
    return [*zip(gaps, sizes, strict=True), (total - [0, *ends][-1], 0)]


def _call(query, key, offsets_q, lengths_q, offsets_kv, lengths_kv, dropout_state, scale, is_causal, keep_prob) -> Call:
    cu_q, cu_kv = [0], [0]

    def add(rows, keys):
        if rows or keys:
            cu_q.append(cu_q[-1] + rows)
            cu_kv.append(cu_kv[-1] + keys)

    places_q = _gaps_and_lengths(offsets_q, lengths_q, query.shape[0])
    places_kv = _gaps_and_lengths(offsets_kv, lengths_kv, key.shape[0])
    for (gap_q, rows), (gap_kv, keys) in zip(places_q, places_kv, strict=True):
        add(gap_q, 0)
        add(0, gap_kv)
        add(rows, keys)
    others = {"cu_q": cu_q[1:], "cu_kv": cu_kv[1:], "dropout_state": dropout_state, "keep_prob": keep_prob}
    return Call.of_rule(CAUSAL_TOP_LEFT if is_causal else EVERY_KEY, "TND", scale, **others)


@operator(
    "jagged_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, {schema_of(_JaggedCall)}) -> (Tensor, Tensor, Tensor)",
    fake=lambda *arguments: without_contents(arguments[0], *arguments[:3]),
    derivative=autograd.none("second derivative"),
)
def jagged_attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    """Returns dq, dk and dv."""
    call = _call(query, key, *arguments)
    return attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, False, False, *call)[:3]


def _fake(query, key, value, *_):
    statistics = (query.new_empty(query.shape[:2], dtype=torch.float32) for _ in range(2))
    return query.new_empty((*query.shape[:2], value.shape[-1])), *statistics


@operator(
    f"jagged_attention(Tensor query, Tensor key, Tensor value, {schema_of(_JaggedCall)}) -> (Tensor, Tensor, Tensor)",
    fake=_fake,
    derivative=autograd.of_attention(_JaggedCall, tensors_of(_JaggedCall), jagged_attention_backward),
)
def jagged_attention(query, key, value, *arguments):
    """Returns out, softmax_max and softmax_sum for tensors [T,N,D]. out is 0 in gaps."""
    return attention(query, key, value, *_call(query, key, *arguments))
