"""DTensors among the arguments: their shardings are registered when the first is seen, as their modules take long to
import."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def register_shardings(*arguments: Any) -> None:
    """Where one of them is a DTensor, the operators know how DTensors are sharded afterwards."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and any(isinstance(argument, distributed.DTensor) for argument in arguments):
        from . import _torch_distributed  # noqa: F401


def as_everywhere(state: Tensor | None, query: Tensor) -> Tensor | None:
    """The state of dropout, beside a query that is a DTensor, as one that every rank has: rank 0's."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if state is None or distributed is None or not isinstance(query, distributed.DTensor):
        return state
    everywhere = [distributed.Replicate()] * query.device_mesh.ndim
    return distributed.distribute_tensor(state, query.device_mesh, everywhere)
