"""Puts fa's kernels into PyTorch's dispatcher, and takes them out."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import torch

from .._pytorch import destroy_library
from . import dense, packed

PACKED = {packed.FORWARD: packed.forward, packed.FORWARD_INTO: packed.forward_into, packed.BACKWARD: packed.backward}

# A call in another thread may still run a kernel that has been taken out, so kernels are never freed. An activation
# keeps five small objects.
_kept: list[Any] = []
_lock = threading.Lock()


class Handle:
    """Kernels that are in the dispatcher until `remove`."""

    def __init__(self) -> None:
        self._library: torch.library.Library | None = torch.library.Library("aten", "IMPL")
        with _lock, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
            for operator, of in ((dense.FORWARD, dense.forward_kernel), (dense.BACKWARD, dense.backward_kernel)):
                kernel = of(torch.library.get_kernel(f"aten::{operator}", "CPU"))
                self._library.impl(operator, kernel, "CPU", with_keyset=True)
            for operator, kernel in PACKED.items():
                self._library.impl(operator, kernel, "CPU")
            for operator in (dense.FORWARD, dense.BACKWARD, *PACKED):
                _kept.append(torch.library.get_kernel(f"aten::{operator}", "CPU"))

    def remove(self) -> None:
        """Takes the kernels out of the dispatcher. Later calls do nothing."""
        with _lock:
            library, self._library = self._library, None
            if library is not None:
                destroy_library(library)
