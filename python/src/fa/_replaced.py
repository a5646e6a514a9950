"""Replaces functions of other packages while at least one context is active."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType


class Replacement:
    """Puts functions into a module while at least one context, in any thread, is active. If other code has replaced a
    function again in the meantime, leaving the last context keeps that replacement.
    """

    def __init__(self, module: ModuleType, **own: Callable) -> None:
        self._module, self._own = module, own
        self._before: dict[str, Callable] = {}
        self._lock, self._wanted, self._installed = threading.RLock(), 0, False

    def enter(self) -> None:
        with self._lock:
            if self._wanted == 0:
                self._before = {name: getattr(self._module, name) for name in self._own}
                vars(self._module).update(self._own)
            self._wanted += 1

    def leave(self) -> None:
        with self._lock:
            self._wanted -= 1
            for name, function in self._own.items():
                if self._wanted == 0 and getattr(self._module, name) is function:
                    setattr(self._module, name, self._before[name])

    def install(self, wanted: bool) -> None:
        """Enters a lasting context if `wanted`, and otherwise leaves it. A repeated call changes nothing."""
        with self._lock:
            if self._installed != wanted:
                self._installed = wanted
                (self.enter if wanted else self.leave)()
