"""The context of calls without one."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from ._fa import Context

_default: Context | None = None


def set_default_context(context: Context | None) -> Context | None:
    """Makes `context` the context of every call without one, in all threads. None: the library's own, with every core;
    for calls of PyTorch's tensors, one of `torch.get_num_threads()` threads unless FA_NUM_THREADS is set.

    None is the library's own context, with every core. `fa.torch` and `fa.torch_npu` get their context in this way too,
    because their signatures have no argument for it.

    Returns the context that was the default before.
    """
    global _default
    before, _default = _default, context
    return before


def chosen_context(context: Context | None, array: Any) -> Context | None:
    """Of a call of such arrays that is given `context`. None: the library's own."""
    if context is not None:
        return context
    return _default if torch_of(array) is None else context_of_tensors()


def context_of_tensors() -> Context | None:
    """Of a call of PyTorch's tensors that is given none: PyTorch's number of threads, as it is now in this thread."""
    return _of_threads(sys.modules["torch"].get_num_threads()) if _default is None else _default


# Programs use few numbers of threads; each context keeps memory for its calls.
@functools.lru_cache(maxsize=8)
def _of_threads(threads: int) -> Context | None:
    return None if os.environ.get("FA_NUM_THREADS") else Context(threads=threads)


def torch_of(array: Any) -> Any:
    """The module torch if the array is a tensor of it, else None. This never imports PyTorch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None
