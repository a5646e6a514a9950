"""The gradients of an indexer's KL loss with a given target, as one of PyTorch's operators."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _sparse
from . import autograd
from .operators import operator, schema_of, without_contents
from .sparse_ops import computed_as_constants


class GivenLossCall(NamedTuple):
    """The arguments of the operator given_loss_gradients, in its order."""

    query_index: Tensor
    key_index: Tensor
    weights: Tensor
    sparse_indices: Tensor
    target: Tensor
    lengths_q: Optional[Tensor]
    lengths_kv: Optional[Tensor]
    used_q: Optional[Tensor]
    used_kv: Optional[Tensor]
    residual_kv: Optional[Tensor]
    layout: str
    sparse_mode: int
    cmp_ratio: int


def _fake_gradients(*arguments):
    call = GivenLossCall(*arguments)
    tensors = call.query_index, call.key_index, call.weights
    lists = call.sparse_indices.shape
    softmax = call.target.new_empty((*lists[:-2], *lists[-1:]), dtype=torch.float32)
    return *without_contents(softmax, *tensors), softmax


@operator(
    f"given_loss_gradients({schema_of(GivenLossCall)}) -> (Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_gradients,
    derivative=autograd.constant,
)
def given_loss_gradients(*arguments):
    """Returns dq_index, dk_index, dweights and softmax_index. The results are constants to autograd."""
    return computed_as_constants(_sparse.sparse_lightning_indexer_kl_loss_grad, GivenLossCall(*arguments), "lengths_q")
