"""Counts, for each module of a model, its calls of `fa`."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch.nn import Module

_calls: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()


def count(module: Any) -> None:
    """Counts one call of `fa` by a module. Calls inside compiled code are not counted."""
    if isinstance(module, Module) and not torch.compiler.is_compiling():
        _calls[module] = _calls.get(module, 0) + 1


def has_called(model: Module) -> bool:
    return any(module in _calls for module in model.modules())


def report(model: Module) -> str:
    """Returns which attention modules of `model` have run on `fa` so far: one line per class, with modules and calls.

    Modules whose class name contains "Attention" and that never called `fa` have lines of their own. Calls inside
    compiled code are not counted, so run the model once without torch.compile. Raises TypeError for anything but a
    module.
    """
    if not isinstance(model, Module):
        raise TypeError(f"model: want a torch.nn.Module, got {type(model).__name__}")
    modules, calls, idle = Counter(), Counter(), Counter()
    for module in model.modules():
        name = type(module).__name__
        if module in _calls:
            modules[name] += 1
            calls[name] += _calls[module]
        elif "Attention" in name and not any("Attention" in type(m).__name__ for m in _below(module)):
            idle[name] += 1
    lines = [f"{name}: {modules[name]} modules, {calls[name]} calls" for name in modules]
    lines += [f"{name}: {number} modules, never called fa" for name, number in idle.items()]
    return "\n".join([f"{type(model).__name__}: {sum(calls.values())} calls of fa", *lines])


def _below(module: Module) -> list[Module]:
    return list(module.modules())[1:]
