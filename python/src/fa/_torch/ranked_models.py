"""Attention of whole models over the ranks of a process group. While a context is active, it replaces the attention
functions that PyTorch and transformers look up.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .entered import context

_lock = threading.Lock()
_settings: list[dict[str, Any]] = []  # the keywords of each active context, the innermost last
_undo: contextlib.ExitStack | None = None


@context("fa.torch.context_parallel.enable")
def enabled(
    attention: Callable[..., Tensor],
    replace_in_models: Callable[[contextlib.ExitStack], None],
    group: Any,
    cut: Any,
    strategy: str,
) -> Iterator[None]:
    """Replaces torch.nn.functional.scaled_dot_product_attention by `attention`, which also takes the keywords group,
    cut and strategy. `replace_in_models` replaces the functions that other packages look up.
    """
    global _undo
    own = {"group": group, "cut": cut, "strategy": strategy}
    with _lock:
        if not _settings:
            _undo = contextlib.ExitStack()
            _replace(_undo, attention)
            replace_in_models(_undo)
        _settings.append(own)
    try:
        yield
    finally:
        with _lock:
            _settings[:] = [settings for settings in _settings if settings is not own]
            if not _settings:
                _undo.close()


def current() -> dict[str, Any]:
    """Returns the keywords of the innermost active context."""
    return _settings[-1]


def _replace(undo: contextlib.ExitStack, attention: Callable[..., Tensor]) -> None:
    functional, mha = torch.nn.functional, torch.backends.mha

    @functools.wraps(functional.scaled_dot_product_attention)
    def attend(*arguments, **keywords):
        return attention(*arguments, **keywords, **current())

    _put(undo, functional, "scaled_dot_product_attention", attend)
    _put(undo, functional, "multi_head_attention_forward", _without_weights(functional.multi_head_attention_forward))
    undo.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
    mha.set_fastpath_enabled(False)


def _put(undo: contextlib.ExitStack, module: Any, name: str, function: Callable) -> None:
    undo.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, function)


def _without_weights(before: Callable) -> Callable:
    """Returns a multi_head_attention_forward that raises an error for calls that want weights. `before` would compute
    the attention of such a call from this rank's rows alone."""
    signature = inspect.signature(before)

    @functools.wraps(before)
    def multi_head_attention_forward(*arguments, **keywords):
        given = signature.bind(*arguments, **keywords).arguments
        if given.get("need_weights", True):
            raise ValueError("invalid argument: need_weights=True, want False: rows lie on several ranks")
        return before(*arguments, **keywords)

    # functools.wraps has copied this attribute, by which torch.jit.script would find PyTorch's function.
    multi_head_attention_forward.__dict__.pop("__script_if_tracing_wrapper", None)

    return multi_head_attention_forward
