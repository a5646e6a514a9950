"""Replaces PyTorch's functions while contexts of fa.torch.replace_scaled_dot_product_attention are active."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable

import torch
from torch.overrides import has_torch_function

from .._pytorch import is_jagged, register_script_builtin, script_builtins
from . import modules

_REFUSALS = (ValueError, TypeError)  # these errors are raised before anything is computed


class Replacement:
    """Replaces PyTorch's functions. They are restored when the last active context, in any thread, is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = self._with_fallback = 0
        self._before: tuple[Callable, Callable, bool] | None = None
        self._own: list[tuple[Callable, Callable]] = []

    def enter(self, attention: Callable, fallback: bool) -> None:
        functional, mha, fallback = torch.nn.functional, torch.backends.mha, bool(fallback)
        with self._lock:
            if self._depth == 0:
                before = functional.scaled_dot_product_attention, functional.multi_head_attention_forward
                self._before = *before, mha.get_fastpath_enabled()
                modules.replaced = before[1]
                own = attention, modules.multi_head_attention_forward
                handing = tuple(_or_else(*functions) for functions in zip(own, before, strict=True))
                self._own = [own, handing]
                for functions in self._own:
                    _give_scripts(*functions, before[1])
                functional.scaled_dot_product_attention, functional.multi_head_attention_forward = own
                mha.set_fastpath_enabled(False)
            self._depth += 1
            self._with_fallback += fallback
            self._choose()

    def leave(self, fallback: bool) -> None:
        functional, mha, fallback = torch.nn.functional, torch.backends.mha, bool(fallback)
        with self._lock:
            self._depth -= 1
            self._with_fallback -= fallback
            if self._depth > 0:
                self._choose()
                return
            functional.scaled_dot_product_attention, functional.multi_head_attention_forward, fast = self._before
            mha.set_fastpath_enabled(fast)
            for attention, _ in self._own:
                script_builtins().pop(id(attention), None)

    def _choose(self) -> None:
        """Installs the functions with fallback if an active context wants it, and otherwise those without. Functions
        that other code has replaced meanwhile stay."""
        functional = torch.nn.functional
        chosen = self._own[self._with_fallback > 0]
        names = "scaled_dot_product_attention", "multi_head_attention_forward"
        for place, name in enumerate(names):
            if getattr(functional, name) in [functions[place] for functions in self._own]:
                setattr(functional, name, chosen[place])


replacement = Replacement()


def _or_else(own: Callable, pytorchs: Callable) -> Callable:
    """Returns a function that calls `own`, and then `pytorchs` if `own` refuses the call. `pytorchs` is not called if
    an argument's class overrides PyTorch's functions."""

    @functools.wraps(own)
    def handing(*arguments, **keywords):
        try:
            return own(*arguments, **keywords)
        except _REFUSALS as error:
            given = (*arguments, *keywords.values())
            if has_torch_function([t for t in given if not is_jagged(t)]):
                raise
            words = f"fa does not take a call of {own.__name__}, and PyTorch computes it: {error}"
            warnings.warn(words, stacklevel=2)
        return pytorchs(*arguments, **keywords)

    return handing


def _give_scripts(attention: Callable, multi_head_attention_forward: Callable, pytorchs: Callable) -> None:
    """Makes torch.jit.script, which compiles source text, use PyTorch's own functions in place of the replacements."""
    register_script_builtin(attention, "aten::scaled_dot_product_attention")
    # torch.jit.script compiles `__original_fn` in place of a function that has the mark of torch.jit.script_if_tracing.
    own = {"__script_if_tracing_wrapper": True, "__original_fn": pytorchs}
    multi_head_attention_forward.__dict__.update(own)
