"""Sparse attention over quantised keys, and the indexer of quantised or compressed keys, as PyTorch's operators."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _sparse
from . import autograd
from .lengths import as_list, with_lists
from .operators import operator, schema_of


class RowsCall(NamedTuple):
    """The arguments of the operator quantized_sparse_attention except query, key and value, in its order."""

    sparse_indices: Tensor
    sink: Optional[Tensor]
    block_table: Optional[Tensor]
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    layout: str
    scale: float
    block_size: int
    sparse_mode: int
    rope: int
    tile: int


def _fake_attention(query, key, value, *arguments):
    out = query.new_empty((*query.shape[:-1], query.shape[-1] - RowsCall(*arguments).rope))
    shape = _sparse.statistics_shape(query)
    return out, *(query.new_empty(shape, dtype=torch.float32) for _ in range(2))


@operator(
    "quantized_sparse_attention(Tensor query, Tensor key, Tensor? value, "
    f"{schema_of(RowsCall)}) -> (Tensor, Tensor, Tensor)",
    fake=_fake_attention,
    derivative=autograd.none("gradient of quantised keys"),
)
def quantized_sparse_attention(query, key, value, *arguments):
    """Returns out, softmax_max and softmax_sum. If value is None, the first columns of key are the value."""
    call = RowsCall(*arguments)
    return _sparse.sparse_flash_attention(
        query,
        key,
        value,
        call.sparse_indices,
        layout=call.layout,
        scale=call.scale,
        block_size=call.block_size,
        sparse_mode=call.sparse_mode,
        sink=call.sink,
        block_table=call.block_table,
        lengths_q=as_list(call.lengths_q),
        lengths_kv=as_list(call.lengths_kv),
        row_format=(query.shape[-1] - call.rope, call.rope, call.tile),
    )[:3]


class SelectionCall(NamedTuple):
    """The arguments of the operator indexer_selection except query, key and weights, in its order."""

    q_scale: Optional[Tensor]
    k_scale: Optional[Tensor]
    index_offset: Optional[Tensor]
    block_table: Optional[Tensor]
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    used_q: Optional[Tensor]
    used_kv: Optional[Tensor]
    residual_kv: Optional[Tensor]
    layout: str
    sparse_count: int
    sparse_mode: int
    cmp_ratio: int
    values: str  # the name of the type of the scores; "": no scores


def _fake_selection(query, key, weights, *arguments):
    call = SelectionCall(*arguments)
    shape = (*query.shape[:-2], 1, call.sparse_count)
    dtype = getattr(torch, call.values or "float32")
    return query.new_empty(shape, dtype=torch.int32), query.new_empty(shape if call.values else 0, dtype=dtype)


@operator(
    f"indexer_selection(Tensor query, Tensor key, Tensor weights, {schema_of(SelectionCall)}) -> (Tensor, Tensor)",
    fake=_fake_selection,
    derivative=autograd.constant,
)
def indexer_selection(query, key, weights, *arguments):
    """Returns sparse_indices and sparse_values, which has no elements if no scores are wanted. Both are constants."""
    call = SelectionCall(*arguments)
    given = call._asdict()
    values = given.pop("values")
    tensors = {name: given[name].detach() for name in ("q_scale", "k_scale") if given[name] is not None}
    indices, scores = _sparse.lightning_indexer(
        query.detach(),
        key.detach(),
        weights.detach(),
        need_values=bool(values),
        values_dtype=getattr(torch, values or "float32"),
        **with_lists(given | tensors),
    )
    return indices, query.new_empty(0, dtype=torch.float32) if scores is None else scores
