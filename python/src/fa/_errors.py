"""Errors that know where their text speaks of arguments, so that every function names its own.

The extension's exceptions, and those of `argument_error`, have `parts`: words, and (name, member, index) for an
argument, called as the C++ interface calls it: ("k", ".shape", "[2]").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# What the library raises.
ERRORS = (ValueError, TypeError, MemoryError, RuntimeError)

Say = Callable[[str, str, str], str]


def argument_error(kind: type[Exception], name: str, words: str, *more: Any, member: str = "", index: str = "") -> Any:
    """`kind` about an argument: its name, words, and further words or (name, member, index) of other arguments."""
    prefix = "invalid argument: " if kind is ValueError else ""
    name, bracket, element = name.partition("[")  # of a list
    return _of_parts(kind, (prefix, (name, bracket + element + member, index), words, *more), "{}{}{}".format)


def in_names(error: Exception, names: Mapping[str, str], say: Say = "{}{}{}".format) -> Exception:
    """The error with its arguments' names from `names`, put as say(name, member, index) does."""
    parts = getattr(error, "parts", None)
    if parts is None:
        return error
    return _of_parts(type(error), parts, lambda name, *rest: say(names.get(name, name), *rest))


@contextlib.contextmanager
def own_names(names: Mapping[str, str], say: Say = "{}{}{}".format) -> Iterator[None]:
    """Errors of the library's call its arguments as in `names`."""
    try:
        yield
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise in_names(error, names, say) from None


def _of_parts(kind: type[Exception], parts: tuple, say: Say) -> Exception:
    error = kind("".join(part if isinstance(part, str) else say(*part) for part in parts))
    error.parts = parts
    return error
