"""Sparse attention, the indexer and its losses as PyTorch's custom operators, with autograd and fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _sparse
from . import autograd
from .lengths import as_list, with_lists
from .operators import operator, schema_of, tensors_of, without_contents
from .vmap import Rule, by_batch


class SparseCall(NamedTuple):
    """The arguments of the sparse attention operators except query, key and value, in the operators' order."""

    query_rope: Optional[Tensor]
    key_rope: Optional[Tensor]
    sink: Optional[Tensor]
    sparse_indices: Tensor
    block_table: Optional[Tensor]
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    layout: str
    scale: float
    block_size: int
    sparse_mode: int

    def keywords(self) -> dict[str, Any]:
        """Returns the keywords that both the forward and the backward take."""
        given = self._asdict()
        del given["sparse_indices"], given["block_table"]
        return with_lists(given)


def _of_sparse(first: int) -> Rule:
    """Returns the vmap rule of an operator whose argument number `first` is the first member of SparseCall; the other
    members follow.
    """
    alone = (first + i for i, name in enumerate(SparseCall._fields) if name in ("block_table", "sink"))
    return by_batch(first + SparseCall._fields.index("layout"), tuple(alone))


def _fake_backward(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    call = SparseCall(*arguments)
    return without_contents(query, query, key, value, call.query_rope, call.key_rope, call.sink)


@operator(
    "sparse_attention_backward(Tensor query, Tensor key, Tensor? value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, {schema_of(SparseCall)}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
    vmap=_of_sparse(7),
    derivative=autograd.none("second derivative"),
)
def sparse_attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    """Returns dq, dk, dv, dq_rope, dk_rope and dsink. The gradient of an absent argument has no elements."""
    call = SparseCall(*arguments)
    gradients = _sparse.sparse_flash_attention_grad(
        query, key, value, call.sparse_indices, out, d_out, softmax_max, softmax_sum, **call.keywords()
    )
    return tuple(query.new_empty(0) if gradient is None else gradient for gradient in gradients)


def _check_not_paged(block_table: Tensor | None) -> None:
    if block_table is not None:
        raise ValueError("invalid argument: block_table: keys in pages have no gradient")


def _backward_of_rows(*arguments):
    _check_not_paged(SparseCall(*arguments[7:]).block_table)
    return sparse_attention_backward(*arguments)


def _fake_attention(query, key, value, *arguments):
    size = query.shape[-1] if value is None else value.shape[-1]
    statistics = (query.new_empty(_sparse.statistics_shape(query), dtype=torch.float32) for _ in range(2))
    return query.new_empty((*query.shape[:-1], size)), *statistics


@operator(
    "sparse_attention(Tensor query, Tensor key, Tensor? value, "
    f"{schema_of(SparseCall)}) -> (Tensor, Tensor, Tensor)",
    fake=_fake_attention,
    vmap=_of_sparse(3),
    derivative=autograd.of_attention(
        SparseCall, tensors_of(SparseCall), _backward_of_rows, others=("query_rope", "key_rope", "sink")
    ),
)
def sparse_attention(query, key, value, *arguments):
    """Returns out, softmax_max and softmax_sum. If value is None, the first columns of key are the value."""
    call = SparseCall(*arguments)
    return _sparse.sparse_flash_attention(
        query, key, value, call.sparse_indices, block_table=call.block_table, **call.keywords()
    )[:3]


@operator(
    "lightning_indexer_backward(Tensor query, Tensor key, Tensor weights, Tensor sparse_indices, Tensor d_values, "
    "Tensor? lengths_q, Tensor? lengths_kv, str layout, SymInt sparse_mode) -> (Tensor, Tensor, Tensor)",
    fake=lambda *arguments: without_contents(arguments[0], *arguments[:3]),
    vmap=by_batch(7),
    derivative=autograd.none("second derivative"),
)
def lightning_indexer_backward(
    query, key, weights, sparse_indices, d_values, lengths_q, lengths_kv, layout, sparse_mode
):
    """Returns dq, dk and dweights."""
    return tuple(
        _sparse.lightning_indexer_grad(
            query,
            key,
            weights,
            sparse_indices,
            d_values,
            lengths_q=as_list(lengths_q),
            lengths_kv=as_list(lengths_kv),
            layout=layout,
            sparse_mode=sparse_mode,
        )
    )


def _setup_indexer(ctx, inputs, output):
    query, key, weights, block_table, lengths_q, lengths_kv, layout, _, sparse_mode = inputs
    ctx.save_for_backward(query, key, weights, output[0], block_table, lengths_q, lengths_kv)
    ctx.settings = layout, sparse_mode
    ctx.mark_non_differentiable(output[0])


def _indexer_backward(ctx, needs_input_grad, _, d_values):
    query, key, weights, sparse_indices, block_table, lengths_q, lengths_kv = ctx.saved_tensors
    _check_not_paged(block_table)
    gradients = lightning_indexer_backward(
        query, key, weights, sparse_indices, d_values, lengths_q, lengths_kv, *ctx.settings
    )
    return *gradients, *(None for _ in range(6))


def _fake_indexer(query, key, weights, block_table, lengths_q, lengths_kv, layout, sparse_count, sparse_mode):
    shape = (*query.shape[:-2], 1, sparse_count)
    return query.new_empty(shape, dtype=torch.int32), query.new_empty(shape)


@operator(
    "lightning_indexer(Tensor query, Tensor key, Tensor weights, Tensor? block_table, Tensor? lengths_q, "
    "Tensor? lengths_kv, str layout, SymInt sparse_count, SymInt sparse_mode) -> (Tensor, Tensor)",
    fake=_fake_indexer,
    vmap=by_batch(6, unless=(3,)),
    derivative=autograd.reverse(_setup_indexer, _indexer_backward),
)
def lightning_indexer(query, key, weights, block_table, lengths_q, lengths_kv, layout, sparse_count, sparse_mode):
    """Returns sparse_indices and sparse_values."""
    return _sparse.lightning_indexer(
        query,
        key,
        weights,
        block_table=block_table,
        lengths_q=as_list(lengths_q),
        lengths_kv=as_list(lengths_kv),
        layout=layout,
        sparse_count=sparse_count,
        sparse_mode=sparse_mode,
    )


class LossCall(NamedTuple):
    """The arguments of the operator sparse_indexer_loss, in its order."""

    query: Tensor
    key: Tensor
    query_index: Tensor
    key_index: Tensor
    weights: Tensor
    sparse_indices: Tensor
    softmax_max: Tensor
    softmax_sum: Tensor
    query_rope: Optional[Tensor]
    key_rope: Optional[Tensor]
    sink: Optional[Tensor]
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    layout: str
    scale: float
    sparse_mode: int


def computed_as_constants(function: Callable[..., tuple], call: Any, first_keyword: str) -> tuple[Tensor, ...]:
    """Returns what `function` computes from the detached members of `call`. It gets the members before `first_keyword`
    by position.
    """
    given = {name: t.detach() if isinstance(t, Tensor) else t for name, t in call._asdict().items()}
    needed = [given.pop(name) for name in call._fields[: call._fields.index(first_keyword)]]
    return tuple(function(*needed, **with_lists(given)))


def _fake_loss(call: LossCall | DenseLossCall) -> tuple[Tensor, ...]:
    gradients = without_contents(call.query, call.query_index, call.key_index, call.weights)
    return *gradients, call.query.new_empty(1, dtype=torch.float32)


@operator(
    f"sparse_indexer_loss({schema_of(LossCall)}) -> (Tensor, Tensor, Tensor, Tensor)",
    fake=lambda *arguments: _fake_loss(LossCall(*arguments)),
    derivative=autograd.constant,
)
def sparse_indexer_loss(*arguments):
    """Returns dq_index, dk_index, dweights and the loss. None of these results can be differentiated."""
    call = LossCall(*arguments)
    return computed_as_constants(_sparse.sparse_lightning_indexer_grad_kl_loss, call, "query_rope")


def _fake_lse(query_index, key_index, weights, lengths_q, lengths_kv, layout, sparse_mode):
    shape = _sparse.row_statistics_shape(query_index)
    return tuple(query_index.new_empty(shape, dtype=torch.float32) for _ in range(2))


@operator(
    "dense_indexer_lse(Tensor query_index, Tensor key_index, Tensor weights, Tensor? lengths_q, Tensor? lengths_kv, "
    "str layout, SymInt sparse_mode) -> (Tensor, Tensor)",
    fake=_fake_lse,
    vmap=by_batch(5),
    derivative=autograd.constant,
)
def dense_indexer_lse(query_index, key_index, weights, lengths_q, lengths_kv, layout, sparse_mode):
    """Returns softmax_max_index and softmax_sum_index, which are constants to autograd. The gradients of the loss
    operator already contain their derivatives."""
    return tuple(
        _sparse.dense_lightning_indexer_softmax_lse(
            *(tensor.detach() for tensor in (query_index, key_index, weights)),
            lengths_q=as_list(lengths_q),
            lengths_kv=as_list(lengths_kv),
            layout=layout,
            sparse_mode=sparse_mode,
        )
    )


class DenseLossCall(NamedTuple):
    """The arguments of the operator dense_indexer_loss, in its order."""

    query: Tensor
    key: Tensor
    query_index: Tensor
    key_index: Tensor
    weights: Tensor
    softmax_max: Tensor
    softmax_sum: Tensor
    softmax_max_index: Tensor
    softmax_sum_index: Tensor
    query_rope: Optional[Tensor]
    key_rope: Optional[Tensor]
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    layout: str
    scale: float
    sparse_mode: int


@operator(
    f"dense_indexer_loss({schema_of(DenseLossCall)}) -> (Tensor, Tensor, Tensor, Tensor)",
    fake=lambda *arguments: _fake_loss(DenseLossCall(*arguments)),
    derivative=autograd.constant,
)
def dense_indexer_loss(*arguments):
    """Returns dq_index, dk_index, dweights and the loss. None of these results can be differentiated."""
    call = DenseLossCall(*arguments)
    return computed_as_constants(_sparse.dense_lightning_indexer_grad_kl_loss, call, "query_rope")
