"""Errors whose text marks where it names arguments, so that every function can use its own names.

The extension's exceptions, and those of `argument_error`, have `parts`: words, and (name, member, index) for an
argument, with the C++ interface's name: ("k", ".shape", "[2]").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# The exceptions that the library raises.
ERRORS = (ValueError, TypeError, MemoryError, RuntimeError)

Say = Callable[[str, str, str], str]


def argument_error(kind: type[Exception], name: str, words: str, *more: Any, member: str = "", index: str = "") -> Any:
    """An error of type `kind` about an argument: its name, words, and further words or (name, member, index) of other
    arguments."""
    prefix = "invalid argument: " if kind is ValueError else ""
    name, bracket, element = name.partition("[")  # an element of a list
    return _of_parts(kind, (prefix, (name, bracket + element + member, index), words, *more), "{}{}{}".format)


def in_names(error: Exception, names: Mapping[str, str], say: Say = "{}{}{}".format) -> Exception:
    """The error with argument names from `names`. say(name, member, index) writes an argument."""
    parts = getattr(error, "parts", None)
    if parts is None:
        return error
    return _of_parts(type(error), parts, lambda name, *rest: say(names.get(name, name), *rest))


@contextlib.contextmanager
def own_names(names: Mapping[str, str], say: Say = "{}{}{}".format) -> Iterator[None]:
    """Makes errors of the library's call use `names` for its arguments."""
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
