"""Lengths of sequences, which PyTorch's operators take as tensors and the library as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_NAMES = ("lengths_q", "lengths_kv", "used_q", "used_kv", "residual_kv")
Lengths = Tensor | Sequence[int] | None


def as_tensor(lengths: Lengths) -> Tensor | None:
    return lengths if lengths is None or isinstance(lengths, Tensor) else torch.tensor(lengths, dtype=torch.int64)


def as_list(lengths: Tensor | None) -> list[int] | None:
    return None if lengths is None else lengths.tolist()


def with_lists(given: dict[str, Any]) -> dict[str, Any]:
    """Returns an operator's arguments by name, with lists instead of lengths."""
    return given | {name: as_list(given[name]) for name in _NAMES if name in given}
