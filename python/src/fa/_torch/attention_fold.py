"""Attention under torch.vmap: the vmapped dimension becomes part of the batch, and one call computes all samples.

With one sink per head, the vmapped dimension becomes part of the heads instead. Calls with packed sequences or
compressed masks are computed sample by sample. Each sample draws its dropout bits from its own state. The one call gets
a mask with the bits of all samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .call import BATCH_AXIS, Call
from .dropout import dropout_bits, packed, unpacked
from .vmap import Fold, one_by_one

_HEAD_AXIS = {"BNSD": 1, "BNSD_BSND": 1}  # the heads are axis 2 in any other layout
_OUT_HEAD_AXIS = {"BNSD": 1}


def _rank(tensor: Tensor, dim: int | None) -> int:
    """Returns how many dimensions one sample of `tensor` has."""
    return tensor.dim() - (dim is not None)


def _folded_bits(bits: Tensor, blocks: int, pairs: int) -> Tensor:
    """Reorders the bits of a dropout mask. `bits` [samples, bytes] has the bits of [blocks, pairs] per sample. The
    result has the bits of [blocks, samples, pairs]."""
    samples = bits.shape[0]
    if blocks == 1 and pairs % 8 == 0:
        return bits.reshape(-1)
    single = unpacked(bits, blocks * pairs).reshape(samples, blocks, pairs)
    return packed(single.transpose(0, 1).reshape(-1))


class _AttentionFold:
    """Folds the samples of a call into its heads if it has a sink per head, and into its batch otherwise."""

    def __init__(self, size: int, query: Tensor, key: Tensor, dims: tuple, call: Call, call_dims: Call) -> None:
        self.call, self.dims, self.fold = call, call_dims, Fold(size)
        layout = call.layout
        self.by_head = call.sink is not None and _rank(call.sink, call_dims.sink) == 1
        self.axis = _HEAD_AXIS.get(layout, 2) if self.by_head else BATCH_AXIS.get(layout, 0)
        self.out_axis = _OUT_HEAD_AXIS.get(layout, 2) if self.by_head else self.axis
        self.statistics_axis = 1 if self.by_head else 0
        shape, shape_kv = (list(t.shape) for t in (query, key))
        for sizes, dim in ((shape, dims[0]), (shape_kv, dims[1])):
            if dim is not None:
                del sizes[dim]
        self.batch = shape[BATCH_AXIS.get(layout, 0)]
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
        # A compressed mask has no batch dimension, so the masks of several samples cannot become one.
        return call.layout != "TND" and not (own_mask and call.sparse_mode > 1)

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
            sink=self._sink(),
            heads=call.heads * size if self.by_head else call.heads,
            prefix=call.prefix if self.by_head else call.prefix * size,
        )

    def _sink(self) -> Tensor | None:
        sink, dim = self.call.sink, self.dims.sink
        if sink is None or self.by_head:
            return self.fold.fold(sink, dim, 0)
        return self.fold.stacked(sink, dim, 0).expand(-1, self.batch, -1, -1).flatten(0, 1)

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
        """Returns the gradient of pse with one entry per sample. If a sample's batch elements share its pse, their
        gradients are summed."""
        pse, dim = self.call.pse, self.dims.pse
        slopes = _rank(pse, dim) == 1
        if self.by_head:
            return self.fold.unfold(dpse, 0 if slopes else 1).movedim(0 if slopes else 1, 0)
        dpse = self.fold.unfold(dpse, 0)
        if slopes:
            return dpse.sum(1)
        own = pse.movedim(dim or 0, 0).shape[dim is not None]
        return dpse if own == dpse.shape[1] else dpse.sum(1, keepdim=True, dtype=torch.float32).to(dpse.dtype)

    def unfolded_dsink(self, dsink: Tensor) -> Tensor:
        """Returns the gradient of the sink with one entry per sample, as unfolded_dpse does."""
        sink, dim = self.call.sink, self.dims.sink
        dsink = self.fold.unfold(dsink, 0)
        if self.by_head:
            return dsink
        own = sink.movedim(dim or 0, 0).shape[dim is not None]
        return dsink if own == dsink.shape[1] else dsink.sum(1, keepdim=True)


def fold_attention(operator, info, in_dims, *arguments):
    tensors, call = arguments[:3], Call(*arguments[3:])
    dims, call_dims = in_dims[:3], Call(*in_dims[3:])
    if not _AttentionFold.possible(call, call_dims):
        return one_by_one(operator, info, in_dims, *arguments)
    how = _AttentionFold(info.batch_size, *tensors[:2], dims, call, call_dims)
    results = operator(*how.tensors(tensors, dims, how.axis), *how.folded_call())
    axes = (how.out_axis, how.statistics_axis, how.statistics_axis)
    return tuple(how.fold.unfold(t, axis) for t, axis in zip(results, axes, strict=True)), axes


_TENSORS_OF_BACKWARD = 7  # the operator's arguments after these tensors are need_dpse and need_dsink


def fold_attention_backward(operator, info, in_dims, *arguments):
    first = _TENSORS_OF_BACKWARD
    tensors, needs, call = arguments[:first], arguments[first : first + 2], Call(*arguments[first + 2 :])
    dims, call_dims = in_dims[:first], Call(*in_dims[first + 2 :])
    if not _AttentionFold.possible(call, call_dims):
        return one_by_one(operator, info, in_dims, *arguments)
    how = _AttentionFold(info.batch_size, *tensors[:2], dims[:2], call, call_dims)
    folded = (
        *how.tensors(tensors[:3], dims[:3], how.axis),
        *how.tensors(tensors[3:5], dims[3:5], how.out_axis),
        *how.tensors(tensors[5:], dims[5:], how.statistics_axis),
    )
    *gradients, dpse, dsink = operator(*folded, *needs, *how.folded_call(needs[0]))
    there = (True, True, True, call.query_rope is not None, call.key_rope is not None)
    axes = tuple(how.axis if is_there else None for is_there in there)
    gradients = [g if axis is None else how.fold.unfold(g, axis) for g, axis in zip(gradients, axes, strict=True)]
    need_dpse, need_dsink = needs[0] and call.pse is not None, needs[1] and call.sink is not None
    return (
        *gradients,
        how.unfolded_dpse(dpse) if need_dpse else dpse,
        how.unfolded_dsink(dsink) if need_dsink else dsink,
    ), (*axes, 0 if need_dpse else None, 0 if need_dsink else None)
