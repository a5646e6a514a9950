"""Context managers that warn if a program calls them and forgets the `with`."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import ParamSpec

_P = ParamSpec("_P")


class _Entered(contextlib.ContextDecorator, AbstractContextManager[None]):
    """A context manager that gives a warning if it is destroyed without having been entered. It may be entered any
    number of times."""

    def __init__(self, name: str, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._name, self._make = name, make
        self._inside: list[AbstractContextManager[None]] = []
        self._used = False

    def __enter__(self) -> None:
        self._used = True
        context = self._make()
        context.__enter__()
        self._inside.append(context)

    def __exit__(self, *error):
        return self._inside.pop().__exit__(*error)

    def __call__(self, function):
        self._used = True
        return super().__call__(function)

    def __del__(self, warn=warnings.warn) -> None:
        if not self._used:
            warn(f"{self._name} did nothing, because no `with` entered it", RuntimeWarning, stacklevel=2)


def context(name: str) -> Callable[[Callable[_P, Iterator[None]]], Callable[_P, AbstractContextManager[None]]]:
    """Works like contextlib.contextmanager for a function `name` that yields nothing. If nobody enters the result of a
    call, it gives a RuntimeWarning."""

    def decorate(function: Callable[_P, Iterator[None]]) -> Callable[_P, AbstractContextManager[None]]:
        manager = contextlib.contextmanager(function)

        @functools.wraps(function)
        def make(*arguments: _P.args, **keywords: _P.kwargs) -> AbstractContextManager[None]:
            return _Entered(name, functools.partial(manager, *arguments, **keywords))

        return make

    return decorate
