"""Attention over original and compressed keys as PyTorch's operators, with autograd."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _shared_kv
from . import autograd
from .lengths import as_list
from .operators import operator, schema_of, tensors_of, without_contents

_LENGTHS = _shared_kv._LENGTHS


class SharedKvCall(NamedTuple):
    """The arguments of the operator shared_kv_attention after q, ori_kv, cmp_kv and sink, in its order."""

    ori_indices: Optional[Tensor]
    cmp_indices: Optional[Tensor]
    ori_topk_length: Optional[Tensor]
    cmp_topk_length: Optional[Tensor]
    ori_block_table: Optional[Tensor]
    cmp_block_table: Optional[Tensor]
    cu_q: Optional[Tensor]
    cu_ori: Optional[Tensor]
    cu_cmp: Optional[Tensor]
    used_q: Optional[Tensor]
    used_ori: Optional[Tensor]
    used_cmp: Optional[Tensor]
    cmp_residual: Optional[Tensor]
    layout: str
    scale: Optional[float]
    cmp_ratio: int
    ori_mask: int
    cmp_mask: int
    window_left: int
    window_right: int
    ori_indices_are_slots: bool
    row_rope: int
    row_tile: int

    def keywords(self) -> dict[str, Any]:
        given = self._asdict()
        return given | {name: as_list(given[name]) for name in _LENGTHS}


_KEYS = "Tensor? ori_kv, Tensor? cmp_kv, Tensor? sink"
_OF_FORWARD = ("ori_block_table", "cmp_block_table", "ori_indices_are_slots", "row_rope", "row_tile")


def _fake_backward(q, ori_kv, cmp_kv, sink, *_):
    return without_contents(q, q, ori_kv, cmp_kv, sink)


@operator(
    f"shared_kv_backward(Tensor q, {_KEYS}, Tensor out, Tensor d_out, Tensor lse, {schema_of(SharedKvCall)}) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
    derivative=autograd.none("second derivative"),
)
def shared_kv_backward(q, ori_kv, cmp_kv, sink, out, d_out, lse, *arguments):
    """Returns dq, d_ori_kv, d_cmp_kv and dsink. The gradient of an absent argument has no elements."""
    given = SharedKvCall(*arguments).keywords()
    for name in _OF_FORWARD:
        del given[name]
    gradients = _shared_kv.shared_kv_attention_grad(
        q, ori_kv, cmp_kv, out, d_out, lse, sink=sink, need_l1_norm=False, **given
    )
    return tuple(q.new_empty(0) if gradient is None else gradient for gradient in gradients[:4])


_TENSORS = 4 + tensors_of(SharedKvCall)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:_TENSORS], *output)
    ctx.settings = inputs[_TENSORS:]
    ctx.mark_non_differentiable(output[1])


def _pull(ctx, needs, d_out, _):
    *inputs, out, lse = ctx.saved_tensors
    q, ori_kv, cmp_kv, sink, *others = inputs
    call = SharedKvCall(*others, *ctx.settings)
    if call.ori_block_table is not None or call.cmp_block_table is not None:
        raise ValueError("invalid argument: layout_kv: keys in pages have no gradient")
    if call.row_tile != 0:
        raise ValueError("invalid argument: tile_size: quantised keys have no gradient")
    gradients = shared_kv_backward(q, ori_kv, cmp_kv, sink, out, d_out, lse, *call)
    wanted = (gradient if need else None for gradient, need in zip(gradients, needs[:4], strict=True))
    return *wanted, *(None for _ in needs[4:])


def _fake_attention(q, *_):
    return torch.empty_like(q), q.new_empty(_shared_kv.statistics_shape(q), dtype=torch.float32)


@operator(
    f"shared_kv_attention(Tensor q, {_KEYS}, {schema_of(SharedKvCall)}) -> (Tensor, Tensor)",
    fake=_fake_attention,
    derivative=autograd.reverse(_setup, _pull),
)
def shared_kv_attention(q, ori_kv, cmp_kv, sink, *arguments):
    """Returns out and lse, which is inf for a row without keys. lse is a constant to autograd."""
    call = SharedKvCall(*arguments)
    return tuple(_shared_kv.shared_kv_attention(q, ori_kv, cmp_kv, sink=sink, positive_lse=True, **call.keywords()))
