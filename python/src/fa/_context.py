"""The context of calls that are given none."""

from __future__ import annotations

from ._fa import Context

_default: Context | None = None


def set_default_context(context: Context | None) -> Context | None:
    """Makes `context` the context of every call without one, in all threads. None: the library's own, with every core.

    `fa.torch` and `fa.torch_npu` get their context in this way too: their signatures have no argument for it.

    Returns the context that was the default before.
    """
    global _default
    before, _default = _default, context
    return before


def chosen_context(context: Context | None) -> Context | None:
    return _default if context is None else context
