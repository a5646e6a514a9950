"""Support of DTensors. The shardings are registered when the first DTensor is seen, because importing
torch.distributed.tensor is slow.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def register_shardings(*arguments: Any) -> None:
    """If an argument is a DTensor, registers with PyTorch how the operators shard DTensors."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and any(isinstance(argument, distributed.DTensor) for argument in arguments):
        from . import distributed as _torch_distributed  # noqa: F401


def as_everywhere(state: Tensor | None, query: Tensor) -> Tensor | None:
    """Returns the dropout state for the query. If the query is a DTensor, every rank gets the state of rank 0."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if state is None or distributed is None or not isinstance(query, distributed.DTensor):
        return state
    everywhere = [distributed.Replicate()] * query.device_mesh.ndim
    return distributed.distribute_tensor(state, query.device_mesh, everywhere)
