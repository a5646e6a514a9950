"""Sparse attention and the indexer as PyTorch's custom operators, with autograd and with kernels for tensors without
contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _sparse
from .autograd import register_autograd, register_constant, register_no_derivative
from .ops import LIBRARY, operator

_TENSORS_OF_CALL = 7  # of SparseCall, its first members


def _lengths(lengths: Tensor | None) -> list[int] | None:
    return None if lengths is None else lengths.tolist()


class SparseCall(NamedTuple):
    """Everything of a sparse attention call but query, key and value, in the order of the operators' arguments."""

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
        """The arguments that forward and backward share."""
        return {
            "query_rope": self.query_rope,
            "key_rope": self.key_rope,
            "sink": self.sink,
            "lengths_q": _lengths(self.lengths_q),
            "lengths_kv": _lengths(self.lengths_kv),
            "layout": self.layout,
            "scale": self.scale,
            "block_size": self.block_size,
            "sparse_mode": self.sparse_mode,
        }


_SPARSE_SCHEMA = (
    "Tensor? query_rope, Tensor? key_rope, Tensor? sink, Tensor sparse_indices, Tensor? block_table, "
    "Tensor? lengths_q, Tensor? lengths_kv, str layout, float scale, SymInt block_size, SymInt sparse_mode"
)


@operator(f"sparse_attention(Tensor query, Tensor key, Tensor? value, {_SPARSE_SCHEMA}) -> (Tensor, Tensor, Tensor)")
def sparse_attention(query, key, value, *arguments):
    """out, softmax_max, softmax_sum. Without a value, the first columns of key are the value."""
    call = SparseCall(*arguments)
    return _sparse.sparse_flash_attention(
        query, key, value, call.sparse_indices, block_table=call.block_table, **call.keywords()
    )[:3]


@torch.library.register_fake("fa::sparse_attention", lib=LIBRARY)
def _(query, key, value, *arguments):
    size = query.shape[-1] if value is None else value.shape[-1]
    statistics = (query.new_empty(_sparse.statistics_shape(query), dtype=torch.float32) for _ in range(2))
    return query.new_empty((*query.shape[:-1], size)), *statistics


@operator(
    "sparse_attention_backward(Tensor query, Tensor key, Tensor? value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, {_SPARSE_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def sparse_attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    """dq, dk, dv, dq_rope, dk_rope, dsink. A gradient without an argument has no elements."""
    call = SparseCall(*arguments)
    gradients = _sparse.sparse_flash_attention_grad(
        query, key, value, call.sparse_indices, out, d_out, softmax_max, softmax_sum, **call.keywords()
    )
    return tuple(query.new_empty(0) if gradient is None else gradient for gradient in gradients)


@torch.library.register_fake("fa::sparse_attention_backward", lib=LIBRARY)
def _(query, key, value, out, d_out, softmax_max, softmax_sum, *arguments):
    call = SparseCall(*arguments)
    wanted = (query, key, value, call.query_rope, call.key_rope, call.sink)
    return tuple(query.new_empty(0) if source is None else source.new_empty(source.shape) for source in wanted)


def _setup_attention(ctx, inputs, output):
    query, key, value, *arguments = inputs
    call = SparseCall(*arguments)
    ctx.save_for_backward(query, key, value, *output, *call[:_TENSORS_OF_CALL])
    ctx.settings = call[_TENSORS_OF_CALL:]
    ctx.mark_non_differentiable(*output[1:])


def _attention_backward(ctx, needs_input_grad, d_out, *_):
    query, key, value, out, softmax_max, softmax_sum, *tensors = ctx.saved_tensors
    call = SparseCall(*tensors, *ctx.settings)
    if call.block_table is not None:
        raise ValueError("invalid argument: block_table: keys in pages have no gradient")
    gradients = sparse_attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, *call)
    wanted = (gradient if needed else None for gradient, needed in zip(gradients, needs_input_grad[:6], strict=True))
    return *wanted, *(None for _ in SparseCall._fields[3:])


register_autograd(LIBRARY, sparse_attention, _setup_attention, _attention_backward)
register_no_derivative(LIBRARY, sparse_attention_backward, "second derivative")


@operator(
    "lightning_indexer(Tensor query, Tensor key, Tensor weights, Tensor? block_table, Tensor? lengths_q, "
    "Tensor? lengths_kv, str layout, SymInt sparse_count, SymInt sparse_mode) -> (Tensor, Tensor)"
)
def lightning_indexer(query, key, weights, block_table, lengths_q, lengths_kv, layout, sparse_count, sparse_mode):
    """sparse_indices, sparse_values."""
    return _sparse.lightning_indexer(
        query,
        key,
        weights,
        block_table=block_table,
        lengths_q=_lengths(lengths_q),
        lengths_kv=_lengths(lengths_kv),
        layout=layout,
        sparse_count=sparse_count,
        sparse_mode=sparse_mode,
    )


@torch.library.register_fake("fa::lightning_indexer", lib=LIBRARY)
def _(query, key, weights, block_table, lengths_q, lengths_kv, layout, sparse_count, sparse_mode):
    shape = (*query.shape[:-2], 1, sparse_count)
    return query.new_empty(shape, dtype=torch.int32), query.new_empty(shape)


@operator(
    "lightning_indexer_backward(Tensor query, Tensor key, Tensor weights, Tensor sparse_indices, Tensor d_values, "
    "Tensor? lengths_q, Tensor? lengths_kv, str layout, SymInt sparse_mode) -> (Tensor, Tensor, Tensor)"
)
def lightning_indexer_backward(
    query, key, weights, sparse_indices, d_values, lengths_q, lengths_kv, layout, sparse_mode
):
    """dq, dk, dweights."""
    return tuple(
        _sparse.lightning_indexer_grad(
            query,
            key,
            weights,
            sparse_indices,
            d_values,
            lengths_q=_lengths(lengths_q),
            lengths_kv=_lengths(lengths_kv),
            layout=layout,
            sparse_mode=sparse_mode,
        )
    )


@torch.library.register_fake("fa::lightning_indexer_backward", lib=LIBRARY)
def _(query, key, weights, sparse_indices, d_values, lengths_q, lengths_kv, layout, sparse_mode):
    return tuple(source.new_empty(source.shape) for source in (query, key, weights))


def _setup_indexer(ctx, inputs, output):
    query, key, weights, block_table, lengths_q, lengths_kv, layout, _, sparse_mode = inputs
    ctx.save_for_backward(query, key, weights, output[0], block_table, lengths_q, lengths_kv)
    ctx.settings = layout, sparse_mode
    ctx.mark_non_differentiable(output[0])


def _indexer_backward(ctx, needs_input_grad, _, d_values):
    query, key, weights, sparse_indices, block_table, lengths_q, lengths_kv = ctx.saved_tensors
    if block_table is not None:
        raise ValueError("invalid argument: block_table: keys in pages have no gradient")
    gradients = lightning_indexer_backward(
        query, key, weights, sparse_indices, d_values, lengths_q, lengths_kv, *ctx.settings
    )
    return *gradients, *(None for _ in range(6))


register_autograd(LIBRARY, lightning_indexer, _setup_indexer, _indexer_backward)
register_no_derivative(LIBRARY, lightning_indexer_backward, "second derivative")


class LossCall(NamedTuple):
    """The arguments of the loss's operator."""

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
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    layout: str
    scale: float
    sparse_mode: int


def _loss(function: Callable[..., tuple], call: LossCall | DenseLossCall) -> tuple[Tensor, ...]:
    """dq_index, dk_index, dweights and the loss by `function`, which takes the tensors before query_rope in order."""
    needed = call._fields.index("query_rope")
    tensors = [None if tensor is None else tensor.detach() for tensor in call[: needed + 2]]
    return tuple(
        function(
            *tensors[:needed],
            query_rope=tensors[needed],
            key_rope=tensors[needed + 1],
            lengths_q=_lengths(call.lengths_q),
            lengths_kv=_lengths(call.lengths_kv),
            layout=call.layout,
            scale=call.scale,
            sparse_mode=call.sparse_mode,
        )
    )


def _loss_without_contents(call: LossCall | DenseLossCall) -> tuple[Tensor, ...]:
    gradients = (source.new_empty(source.shape) for source in (call.query_index, call.key_index, call.weights))
    return *gradients, call.query.new_empty(1, dtype=torch.float32)


@operator(
    "sparse_indexer_loss(Tensor query, Tensor key, Tensor query_index, Tensor key_index, Tensor weights, "
    "Tensor sparse_indices, Tensor softmax_max, Tensor softmax_sum, Tensor? query_rope, Tensor? key_rope, "
    "Tensor? lengths_q, Tensor? lengths_kv, str layout, float scale, SymInt sparse_mode) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
def sparse_indexer_loss(*arguments):
    """dq_index, dk_index, dweights, loss. These have no gradients of their own."""
    call = LossCall(*arguments)
    return _loss(_sparse.sparse_lightning_indexer_grad_kl_loss, call)


register_constant(LIBRARY, sparse_indexer_loss)


@torch.library.register_fake("fa::sparse_indexer_loss", lib=LIBRARY)
def _(*arguments):
    return _loss_without_contents(LossCall(*arguments))


@operator(
    "dense_indexer_lse(Tensor query_index, Tensor key_index, Tensor weights, Tensor? lengths_q, Tensor? lengths_kv, "
    "str layout, SymInt sparse_mode) -> (Tensor, Tensor)"
)
def dense_indexer_lse(query_index, key_index, weights, lengths_q, lengths_kv, layout, sparse_mode):
    """softmax_max_index, softmax_sum_index. They are constants of the loss, whose gradients count their changes in."""
    return tuple(
        _sparse.dense_lightning_indexer_softmax_lse(
            *(tensor.detach() for tensor in (query_index, key_index, weights)),
            lengths_q=_lengths(lengths_q),
            lengths_kv=_lengths(lengths_kv),
            layout=layout,
            sparse_mode=sparse_mode,
        )
    )


register_constant(LIBRARY, dense_indexer_lse)


@torch.library.register_fake("fa::dense_indexer_lse", lib=LIBRARY)
def _(query_index, key_index, weights, lengths_q, lengths_kv, layout, sparse_mode):
    shape = _sparse.row_statistics_shape(query_index)
    return tuple(query_index.new_empty(shape, dtype=torch.float32) for _ in range(2))


class DenseLossCall(NamedTuple):
    """The arguments of the dense loss's operator."""

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
    "dense_indexer_loss(Tensor query, Tensor key, Tensor query_index, Tensor key_index, Tensor weights, "
    "Tensor softmax_max, Tensor softmax_sum, Tensor softmax_max_index, Tensor softmax_sum_index, Tensor? query_rope, "
    "Tensor? key_rope, Tensor? lengths_q, Tensor? lengths_kv, str layout, float scale, SymInt sparse_mode) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
def dense_indexer_loss(*arguments):
    """dq_index, dk_index, dweights, loss. They are the gradients; there is none of them."""
    call = DenseLossCall(*arguments)
    return _loss(_sparse.dense_lightning_indexer_grad_kl_loss, call)


register_constant(LIBRARY, dense_indexer_loss)


@torch.library.register_fake("fa::dense_indexer_loss", lib=LIBRARY)
def _(*arguments):
    return _loss_without_contents(DenseLossCall(*arguments))
