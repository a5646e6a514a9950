"""The name "fa" among PyTorch's implementations of flash attention."""

from __future__ import annotations

from typing import Any

import torch.nn.attention as pytorch

NAME = "fa"
# PyTorch 2.13 and later choose among implementations.
_CHOOSES = hasattr(pytorch, "register_flash_attention_impl") and hasattr(pytorch, "restore_flash_attention_impl")
_active: list[Any] = []  # the handle of the activation, with older versions of PyTorch


def register() -> None:
    """Tells PyTorch the name. This activates nothing."""
    if _CHOOSES:
        pytorch.register_flash_attention_impl(NAME, register_fn=_handle)


def activate() -> None:
    if _CHOOSES:
        pytorch.activate_flash_attention_impl(NAME)
    elif not _active:
        _active.append(_handle())


def deactivate() -> None:
    if not _CHOOSES:
        while _active:
            _active.pop().remove()
    elif pytorch.current_flash_attention_impl() == NAME:
        pytorch.restore_flash_attention_impl()


def _handle() -> Any:
    from .activation import Handle

    return Handle()
