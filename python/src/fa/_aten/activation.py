"""Puts fa's kernels into PyTorch's dispatcher, and takes them out: those of libfa_torch if it lies in this package, and
otherwise those in Python."""

from __future__ import annotations

import ctypes
import functools
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

from .. import _fa
from . import dense, packed

PACKED = {packed.FORWARD: packed.forward, packed.FORWARD_INTO: packed.forward_into, packed.BACKWARD: packed.backward}
FILE = Path(_fa.__file__).with_name("libfa_torch.so")
# A call in another thread may still run a kernel that has been taken out, so kernels are never freed. An activation
# keeps five small objects.
_kept: list[Any] = []
_lock = threading.Lock()


class Handle:
    """Kernels that are in the dispatcher until `remove`."""

    def __init__(self) -> None:
        if not hasattr(torch.library, "get_kernel"):
            raise RuntimeError(f"fa.torch.activate: want PyTorch 2.10 or newer, got {torch.__version__}")
        with _lock:
            self._library: torch.library.Library | None = _kernels_in_python()
            self._compiled = library()
            if self._compiled is not None:
                compiled_with = self._compiled.fa_torch_version().decode()
                if compiled_with != _fa.__version__:
                    self._library = None
                    raise RuntimeError(f"{FILE.name} is of fa {compiled_with}, and the package of {_fa.__version__}")
                # PyTorch warns of the first kernel that replaces another. The kernels in Python are registered without
                # this warning.
                self._library = None
                if self._compiled.fa_torch_activate() != 0:
                    raise RuntimeError(f"{FILE.name}: PyTorch {torch.__version__} refuses its kernels")
            _kept.extend(torch.library.get_kernel(f"aten::{name}", "CPU") for name in (*_known(), *_DENSE))

    def remove(self) -> None:
        """Takes the kernels out of the dispatcher. Later calls do nothing."""
        with _lock:
            self._library = None  # PyTorch takes the kernels of a library out when the object goes
            if self._compiled is not None:
                self._compiled.fa_torch_deactivate()
                self._compiled = None


_DENSE = dense.FORWARD, dense.BACKWARD


@functools.cache
def library() -> Any:
    """Returns libfa_torch, or None if this package has none."""
    if not FILE.exists():
        return None
    compiled = ctypes.CDLL(str(FILE))
    compiled.fa_torch_calls.restype = ctypes.c_uint64
    compiled.fa_torch_version.restype = ctypes.c_char_p
    return compiled


def _known() -> list[str]:
    """Returns the packed operators that this PyTorch has."""
    return [name for name in PACKED if hasattr(torch.ops.aten, name)]


def _kernels_in_python() -> torch.library.Library:
    kernels = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
        for operator, of in zip(_DENSE, (dense.forward_kernel, dense.backward_kernel), strict=True):
            kernel = of(torch.library.get_kernel(f"aten::{operator}", "CPU"))
            kernels.impl(operator, kernel, "CPU", with_keyset=True)
        for operator in _known():
            kernels.impl(operator, PACKED[operator], "CPU")
    return kernels
