"""The custom operators under torch.vmap: the vmapped dimension becomes part of the batch, and one call computes it.

What a batch cannot carry takes another way. A sink belongs to heads, so with one the dimension becomes part of the
heads. Packed sequences, keys in pages, compressed masks and the loss, a sum over its tokens, are computed sample by
sample. Every sample drops what its own state says: the bits of all of them go into one mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._model import ops as _model_ops
from . import decode as _torch_decode
from . import nested as _torch_nested
from . import ops as _torch_ops
from . import sparse_ops as _torch_sparse_ops
from .dropout import dropout_bits, packed, unpacked
from .ops import Call, PromptCall
from .sparse_ops import SparseCall

_BATCH_AXIS = {"SBH": 1}  # the others: 0
_HEAD_AXIS = {"BNSD": 1, "BNSD_BSND": 1}  # the others: 2
_OUT_HEAD_AXIS = {"BNSD": 1}


class _Fold(NamedTuple):
    """The vmapped dimension, merged into an axis in front of what lies there."""

    size: int

    def stacked(self, tensor: Tensor, dim: int | None, axis: int) -> Tensor:
        """The vmapped dimension at `axis`; a tensor without it is repeated."""
        if dim is not None:
            return tensor.movedim(dim, axis)
        return tensor.unsqueeze(axis).expand(*tensor.shape[:axis], self.size, *tensor.shape[axis:])

    def fold(self, tensor: Tensor | None, dim: int | None, axis: int) -> Tensor | None:
        return None if tensor is None else self.stacked(tensor, dim, axis).flatten(axis, axis + 1)

    def unfold(self, tensor: Tensor, axis: int) -> Tensor:
        return tensor.unflatten(axis, (self.size, tensor.shape[axis] // self.size))


def _one_by_one(operator: Any, size: int, in_dims: tuple, arguments: tuple) -> tuple:
    """Sample after sample; results have the vmapped dimension in front."""
    results = []
    for sample in range(size):
        result = operator(*(_sample(a, dim, sample) for a, dim in zip(arguments, in_dims, strict=True)))
        results.append(result if isinstance(result, tuple) else (result,))
    stacked = tuple(torch.stack(same) for same in zip(*results, strict=True))
    return (stacked, (0,) * len(stacked)) if isinstance(result, tuple) else (stacked[0], 0)


def _sample(argument: Any, dim: Any, sample: int) -> Any:
    """Of a tensor, or of each in a list."""
    if isinstance(argument, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_sample(a, d, sample) for a, d in zip(argument, dim, strict=True)]
    return argument.select(dim, sample) if isinstance(dim, int) else argument


def of_no_samples(operator: Any, in_dims: tuple, arguments: tuple) -> tuple:
    """The results for 0 samples, of the shapes that one sample's have; they depend on what a call depends on."""
    pairs = tuple(zip(arguments, in_dims, strict=True))
    results = operator(*(_without_contents(a, dim) for a, dim in pairs))
    nothing = sum(a.sum() * 0 for a in arguments if isinstance(a, Tensor) and a.is_floating_point())

    def empty(sample: Tensor) -> Tensor:
        made = torch.zeros((0, *sample.shape), dtype=sample.dtype, device="cpu")
        return made + nothing.to(made.dtype) if made.is_floating_point() else made

    if isinstance(results, Tensor):
        return empty(results), 0
    return tuple(empty(result) for result in results), (0,) * len(results)


def _without_contents(tensor: Any, dim: Any) -> Any:
    """A sample's shape and type; what is no tensor is itself."""
    if isinstance(tensor, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_without_contents(t, d) for t, d in zip(tensor, dim, strict=True)]
    if not isinstance(tensor, Tensor):
        return tensor
    shape = [size for axis, size in enumerate(tensor.shape) if axis != dim]
    return torch.empty(shape, dtype=tensor.dtype, device="meta")


def _rank(tensor: Tensor, dim: int | None) -> int:
    """Of a sample."""
    return tensor.dim() - (dim is not None)


def _folded_bits(bits: Tensor, blocks: int, pairs: int) -> Tensor:
    """Bits [samples, bytes] of [blocks, pairs] each, as those of [blocks, samples, pairs]."""
    samples = bits.shape[0]
    if blocks == 1 and pairs % 8 == 0:
        return bits.reshape(-1)
    single = unpacked(bits, blocks * pairs).reshape(samples, blocks, pairs)
    return packed(single.transpose(0, 1).reshape(-1))


class _AttentionFold:
    """How a call of attention is folded: into the heads where it has a sink, else into the batch."""

    def __init__(self, size: int, query: Tensor, key: Tensor, dims: tuple, call: Call, call_dims: Call) -> None:
        self.call, self.dims, self.fold = call, call_dims, _Fold(size)
        layout = call.layout
        self.by_head = call.sink is not None
        self.axis = _HEAD_AXIS.get(layout, 2) if self.by_head else _BATCH_AXIS.get(layout, 0)
        self.out_axis = _OUT_HEAD_AXIS.get(layout, 2) if self.by_head else self.axis
        self.statistics_axis = 1 if self.by_head else 0
        shape, shape_kv = (list(t.shape) for t in (query, key))
        for sizes, dim in ((shape, dims[0]), (shape_kv, dims[1])):
            if dim is not None:
                del sizes[dim]
        self.batch = shape[_BATCH_AXIS.get(layout, 0)]
        if layout in ("BNSD", "BNSD_BSND"):
            self.pairs = shape[1] * shape[2] * shape_kv[2]
        elif layout == "BSND":
            self.pairs = shape[2] * shape[1] * shape_kv[1]
        else:
            rows_axis = 0 if layout == "SBH" else 1
            self.pairs = call.heads * shape[rows_axis] * shape_kv[rows_axis]

    @staticmethod
    def possible(call: Call, dims: Call) -> bool:
        own_mask = dims.dense_mask is not None and _rank(call.dense_mask, dims.dense_mask) == 2
        return call.layout != "TND" and not (own_mask and call.sparse_mode > 1)  # a compressed mask

    def tensors(self, tensors: tuple, dims: tuple, axis: int) -> tuple:
        return tuple(self.fold.fold(t, dim, axis) for t, dim in zip(tensors, dims, strict=True))

    def folded_call(self, need_dpse: bool = False) -> Call:
        call, dims = self.call, self.dims
        size = self.fold.size
        return call._replace(
            query_rope=self.fold.fold(call.query_rope, dims.query_rope, self.axis),
            key_rope=self.fold.fold(call.key_rope, dims.key_rope, self.axis),
            pse=self._pse(need_dpse),
            dense_mask=self._dense_mask(),
            drop_mask=self._drop_mask(),
            dropout_state=None,
            sink=self.fold.fold(call.sink, dims.sink, 0),
            heads=call.heads * size if self.by_head else call.heads,
            prefix=call.prefix if self.by_head else call.prefix * size,
        )

    def _pse(self, need_dpse: bool) -> Tensor | None:
        pse, dim = self.call.pse, self.dims.pse
        if pse is None:
            return None
        slopes = _rank(pse, dim) == 1
        if self.by_head:
            return self.fold.fold(pse, dim, 0 if slopes else 1)
        shared = slopes or pse.movedim(dim or 0, 0).shape[dim is not None] == 1
        if dim is None and shared and not need_dpse:
            return pse
        pse = self.fold.stacked(pse, dim, 0)
        pse = pse.unsqueeze(1) if slopes else pse
        return pse.expand(-1, self.batch, *pse.shape[2:]).flatten(0, 1)

    def _dense_mask(self) -> Tensor | None:
        mask, dim = self.call.dense_mask, self.dims.dense_mask
        if mask is None or (dim is None and (mask.dim() == 2 or mask.shape[:2] == (1, 1))):
            return mask
        mask = self.fold.stacked(mask, dim, 0)
        mask = mask[:, None, None] if mask.dim() == 3 else mask
        if not self.by_head:
            return mask.expand(-1, self.batch, *mask.shape[2:]).flatten(0, 1)
        heads = self.pairs // (mask.shape[-2] * mask.shape[-1])
        return mask.expand(-1, self.batch, heads, -1, -1).transpose(0, 1).flatten(1, 2)

    def _drop_mask(self) -> Tensor | None:
        call, dims = self.call, self.dims
        if call.drop_mask is not None:
            bits = self.fold.stacked(call.drop_mask, dims.drop_mask, 0)
        elif call.dropout_state is not None:
            state = self.fold.stacked(call.dropout_state, dims.dropout_state, 0)
            bits = dropout_bits(state, call.keep_prob, self.batch * self.pairs)
        else:
            return None
        blocks = self.batch if self.by_head else 1
        return _folded_bits(bits, blocks, self.batch * self.pairs // blocks)

    def unfolded_dpse(self, dpse: Tensor) -> Tensor:
        """Of a sample's own shape: summed over the batch elements that shared it."""
        pse, dim = self.call.pse, self.dims.pse
        slopes = _rank(pse, dim) == 1
        if self.by_head:
            return self.fold.unfold(dpse, 0 if slopes else 1).movedim(0 if slopes else 1, 0)
        dpse = self.fold.unfold(dpse, 0)
        if slopes:
            return dpse.sum(1)
        own = pse.movedim(dim or 0, 0).shape[dim is not None]
        return dpse if own == dpse.shape[1] else dpse.sum(1, keepdim=True, dtype=torch.float32).to(dpse.dtype)


def _attention(info, in_dims, *arguments):
    tensors, call = arguments[:3], Call(*arguments[3:])
    dims, call_dims = in_dims[:3], Call(*in_dims[3:])
    if not _AttentionFold.possible(call, call_dims):
        return _one_by_one(_torch_ops.attention, info.batch_size, in_dims, arguments)
    how = _AttentionFold(info.batch_size, *tensors[:2], dims, call, call_dims)
    results = _torch_ops.attention(*how.tensors(tensors, dims, how.axis), *how.folded_call())
    axes = (how.out_axis, how.statistics_axis, how.statistics_axis)
    return tuple(how.fold.unfold(t, axis) for t, axis in zip(results, axes, strict=True)), axes


_TENSORS_OF_BACKWARD = 7  # query, key, value, out, d_out, softmax_max, softmax_sum; then need_dpse, need_dsink


def _attention_backward(info, in_dims, *arguments):
    first = _TENSORS_OF_BACKWARD
    tensors, needs, call = arguments[:first], arguments[first : first + 2], Call(*arguments[first + 2 :])
    dims, call_dims = in_dims[:first], Call(*in_dims[first + 2 :])
    if not _AttentionFold.possible(call, call_dims):
        return _one_by_one(_torch_ops.attention_backward, info.batch_size, in_dims, arguments)
    how = _AttentionFold(info.batch_size, *tensors[:2], dims[:2], call, call_dims)
    folded = (
        *how.tensors(tensors[:3], dims[:3], how.axis),
        *how.tensors(tensors[3:5], dims[3:5], how.out_axis),
        *how.tensors(tensors[5:], dims[5:], how.statistics_axis),
    )
    *gradients, dpse, dsink = _torch_ops.attention_backward(*folded, *needs, *how.folded_call(needs[0]))
    there = (True, True, True, call.query_rope is not None, call.key_rope is not None)
    axes = tuple(how.axis if is_there else None for is_there in there)
    gradients = [g if axis is None else how.fold.unfold(g, axis) for g, axis in zip(gradients, axes, strict=True)]
    need_dpse, need_dsink = needs[0] and call.pse is not None, needs[1] and call.sink is not None
    return (
        *gradients,
        how.unfolded_dpse(dpse) if need_dpse else dpse,
        how.fold.unfold(dsink, 0) if need_dsink else dsink,
    ), (*axes, 0 if need_dpse else None, 0 if need_dsink else None)


def _bits_of_states(info, in_dims, state, keep_prob, pairs):
    return dropout_bits(state.movedim(in_dims[0], 0), keep_prob, pairs), 0


def _merge(info, in_dims, *arguments):
    *tensors, cu_q, layout, by_sequence = arguments
    if by_sequence:
        return _one_by_one(_torch_ops.merge, info.batch_size, in_dims, arguments)
    fold = _Fold(info.batch_size)
    axes = (_BATCH_AXIS.get(layout, 0), 0, 0)
    folded = (fold.fold(t, dim, axis) for t, dim, axis in zip(tensors, in_dims[:6], axes * 2, strict=True))
    results = _torch_ops.merge(*folded, None, layout, False)
    return tuple(fold.unfold(t, axis) for t, axis in zip(results, axes, strict=True)), axes


def _prompt_attention(info, in_dims, *arguments):
    call = PromptCall(*arguments[3:])
    shared = all(t is None or t.dim() == 2 or t.shape[0] == 1 for t in (call.pse, call.dense_mask))
    if call.layout == "TND" or not shared or any(dim is not None for dim in in_dims[3:10]):
        return _one_by_one(_torch_ops.prompt_attention, info.batch_size, in_dims, arguments)
    fold = _Fold(info.batch_size)
    axis = _BATCH_AXIS.get(call.layout, 0)
    folded = (fold.fold(t, dim, axis) for t, dim in zip(arguments[:3], in_dims[:3], strict=True))
    lengths = (lengths * (1 if len(lengths) == 1 else info.batch_size) for lengths in (call.lengths_q, call.lengths_kv))
    call = call._replace(**dict(zip(("lengths_q", "lengths_kv"), lengths, strict=True)))
    return fold.unfold(_torch_ops.prompt_attention(*folded, *call), axis), axis


def _by_batch(operator: Any, layout_at: int, unless: tuple[int, ...] = ()) -> Callable:
    """The rule of an operator whose tensors have the batch in front; packed, or with an argument of `unless`, sample by
    sample."""

    def rule(info, in_dims, *arguments):
        if arguments[layout_at] != "BSND" or any(arguments[place] is not None for place in unless):
            return _one_by_one(operator, info.batch_size, in_dims, arguments)
        fold = _Fold(info.batch_size)
        folded = (
            fold.fold(a, dim, 0) if isinstance(a, Tensor) else a for a, dim in zip(arguments, in_dims, strict=True)
        )
        results = operator(*folded)
        given = tuple(0 if t.dim() > 1 else None for t in results)  # a gradient of no argument has no elements
        return tuple(t if axis is None else fold.unfold(t, axis) for t, axis in zip(results, given, strict=True)), given

    return rule


def sample_by_sample(operator: Any) -> Callable:
    """The rule of an operator whose samples are computed one after another."""
    return lambda info, in_dims, *arguments: _one_by_one(operator, info.batch_size, in_dims, arguments)


def _sparse(operator: Any, first: int) -> Callable:
    """The rule of an operator whose arguments are SparseCall's from place `first` on."""
    alone = (first + i for i, name in enumerate(SparseCall._fields) if name in ("block_table", "sink"))
    return _by_batch(operator, first + SparseCall._fields.index("layout"), tuple(alone))


RULES = {
    "attention": _attention,
    "attention_backward": _attention_backward,
    "jagged_attention": sample_by_sample(_torch_nested.jagged_attention),
    "jagged_attention_backward": sample_by_sample(_torch_nested.jagged_attention_backward),
    "dropout_bits": _bits_of_states,
    "ring_attention_update": _merge,
    "decode_attention": sample_by_sample(_torch_decode.decode_operator),
    "prompt_attention": _prompt_attention,
    "sparse_attention": _sparse(_torch_sparse_ops.sparse_attention, 3),
    "sparse_attention_backward": _sparse(_torch_sparse_ops.sparse_attention_backward, 7),
    "lightning_indexer": _by_batch(_torch_sparse_ops.lightning_indexer, 6, unless=(3,)),
    "lightning_indexer_backward": _by_batch(_torch_sparse_ops.lightning_indexer_backward, 7),
    "dense_indexer_lse": _by_batch(_torch_sparse_ops.dense_indexer_lse, 5),
    "dense_indexer_loss": sample_by_sample(_torch_sparse_ops.dense_indexer_loss),
    "model_attention": sample_by_sample(_model_ops.attention_of_layer),
    "model_attention_backward": sample_by_sample(_model_ops.attention_of_layer_backward),
    "rows_inside": sample_by_sample(_model_ops.rows_inside),
    "sparse_indexer_loss": sample_by_sample(_torch_sparse_ops.sparse_indexer_loss),
}
