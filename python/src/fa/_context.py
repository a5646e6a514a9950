"""The default context, which calls use if the caller passes no context."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from ._errors import argument_error
from ._fa import Context

_default: Context | None = None


def set_default_context(context: Context | None) -> Context | None:
    """Makes `context` the default of every call that gets no context, in all threads.

    With None, such calls use the library's own context, which has every core. But calls with PyTorch's tensors then use
    a context of `torch.get_num_threads()` threads, unless FA_NUM_THREADS is set. The functions of `fa.torch` and
    `fa.torch_npu` always use the default, because they have no argument for a context.

    Returns the context that was the default before. Raises TypeError for anything but a context or None.
    """
    global _default
    _check(context)
    before, _default = _default, context
    return before


def chosen_context(context: Context | None, array: Any) -> Context | None:
    """Returns `context` if the caller passed one. Otherwise returns the default context of a call whose first array is
    `array`. None stands for the library's own context."""
    if context is not None:
        _check(context)
        return context
    return _default if torch_of(array) is None else context_of_tensors()


def _check(context: Any) -> None:
    if not isinstance(context, (Context, type(None))):
        raise argument_error(TypeError, "context", f": want fa.Context or None, got {type(context).__name__}")


def context_of_tensors() -> Context | None:
    """Returns the default context of calls with PyTorch's tensors. If no default has been set, the context has as many
    threads as PyTorch uses in this thread now."""
    return _of_threads(sys.modules["torch"].get_num_threads()) if _default is None else _default


# Only 8 contexts are kept, because each holds memory, and a program rarely uses many numbers of threads.
@functools.lru_cache(maxsize=8)
def _of_threads(threads: int) -> Context | None:
    return None if os.environ.get("FA_NUM_THREADS") else Context(threads=threads)


def torch_of(array: Any) -> Any:
    """Returns the module torch if the array is a PyTorch tensor, else None. This function never imports PyTorch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None
