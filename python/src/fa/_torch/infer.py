"""Fused inference of PyTorch tensors, as a custom operator that writes into given results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _fa
from .._attention import integers
from .._errors import made
from .._infer import UNLIMITED
from .._prompt import unsigned
from . import autograd
from .engine import compute, possible
from .lengths import Lengths, as_tensor
from .operators import operator, schema_of


class InferCall(NamedTuple):
    """The arguments of the operator except query, keys, values and results, in the operator's order."""

    lengths_q: Optional[Tensor] = None  # int32 or int64; prefix sums in packed layouts
    lengths_kv: Optional[Tensor] = None  # prefix sums in packed layouts without pages
    q_rope: Optional[Tensor] = None
    block_table: Optional[Tensor] = None
    q_padding: Optional[Tensor] = None
    kv_padding: Optional[Tensor] = None
    k_prefix: Optional[Tensor] = None
    v_prefix: Optional[Tensor] = None
    q_scale: Optional[Tensor] = None
    k_scale: Optional[Tensor] = None
    v_scale: Optional[Tensor] = None
    k_offset: Optional[Tensor] = None
    v_offset: Optional[Tensor] = None
    antiquant_scale: Optional[Tensor] = None
    antiquant_offset: Optional[Tensor] = None
    deq_scale1: Optional[Tensor] = None
    quant_scale1: Optional[Tensor] = None
    deq_scale2: Optional[Tensor] = None
    quant_scale2: Optional[Tensor] = None
    quant_offset2: Optional[Tensor] = None
    pse: Optional[Tensor] = None
    dense_mask: Optional[Tensor] = None
    sink: Optional[Tensor] = None
    layout: str = "BNSD"
    heads: int = 0
    heads_kv: int = 0
    scale: Optional[float] = None
    sparse_mode: int = 0
    pre: int = UNLIMITED
    next: int = UNLIMITED
    block_size: int = 0
    antiquant_per_token: bool = False
    infinite_lse: bool = False
    k_rope: Sequence[Tensor] = ()

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self[_TENSORS]


_TENSORS = slice(2, InferCall._fields.index("layout"))
_OPTIONS = slice(InferCall._fields.index("layout"), InferCall._fields.index("k_rope"))


@functools.lru_cache
def _options(*options) -> _fa.InferAttentionOptions:
    return made(_fa.InferAttentionOptions, dict(zip(InferCall._fields[_OPTIONS], options, strict=True)))


def _one_or_all(tensors: Sequence[Tensor]) -> Tensor | list[Tensor]:
    return tensors[0] if len(tensors) == 1 else list(tensors)


def _write(query, key, value, call: InferCall, out, lse, lengths_q: Lengths, lengths_kv: Lengths) -> None:
    inputs = {"q": query, "k": _one_or_all(key), "v": _one_or_all(value)}
    inputs |= dict(zip(InferCall._fields[_TENSORS], call.tensors(), strict=True))
    inputs["k_rope"] = _one_or_all(call.k_rope) if call.k_rope else None
    inputs |= {name: unsigned(inputs[name]) for name in ("deq_scale1", "deq_scale2")}
    results = {"out": out} if lse is None else {"out": out, "lse": lse}
    lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    compute(_fa.infer, inputs, results, _options(*call[_OPTIONS]), *lengths)


@operator(
    f"infer_attention(Tensor query, Tensor[] key, Tensor[] value, {schema_of(InferCall)}, Tensor(a!) out, "
    "Tensor(b!)? lse) -> ()",
    fake=lambda *_: None,
    derivative=autograd.none_of_lists,
)
def infer_operator(query, key, value, *arguments):
    """Writes the output and, if it is given, the lse."""
    *call, out, lse = arguments
    call = InferCall(*call)
    _write(query, key, value, call, out, lse, call.lengths_q, call.lengths_kv)


def infer_into(
    out: Tensor,
    lse: Tensor | None,
    query: Tensor,
    key: Sequence[Tensor],
    value: Sequence[Tensor],
    call: InferCall,
    lengths_q: Lengths,
    lengths_kv: Lengths,
) -> None:
    """Writes the output and, if it is given, the lse. The caller has checked that the arguments are tensors, and `call`
    has no lengths."""
    if possible(query, *key, *value, *call.k_rope, *call.tensors(), out, lse):
        _write(query, key, value, call, out, lse, lengths_q, lengths_kv)
        torch.autograd.graph.increment_version([t for t in (out, lse) if t is not None])
        return
    call = call._replace(lengths_q=as_tensor(lengths_q), lengths_kv=as_tensor(lengths_kv))
    infer_operator(query, list(key), list(value), *call, out, lse)
