"""Errors whose text is kept in parts, so that each function can put its own argument names into the text.

Exceptions of the extension and of `argument_error` have a tuple `parts`. A part is either text or a tuple (name,
member, index) for an argument under its C++ name, such as ("k", ".shape", "[2]").
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

# The exceptions that the library raises.
ERRORS = (ValueError, TypeError, MemoryError, RuntimeError)

Say = Callable[[str, str, str], str]


def argument_error(kind: type[Exception], name: str, words: str, *more: Any, member: str = "", index: str = "") -> Any:
    """Returns an error of type `kind` about the argument `name`. Its text is the argument, then `words`, then `more`.
    `more` are texts, or (name, member, index) of other arguments."""
    prefix = "invalid argument: " if kind is ValueError else ""
    name, bracket, element = name.partition("[")  # name may be a list's element: k[2]
    return _of_parts(kind, (prefix, (name, bracket + element + member, index), words, *more), "{}{}{}".format)


def in_names(error: Exception, names: Mapping[str, str], say: Say = "{}{}{}".format) -> Exception:
    """Returns the error with each argument renamed by `names`. say(name, member, index) returns an argument's text."""
    parts = getattr(error, "parts", None)
    if parts is None:
        return error
    return _of_parts(type(error), parts, lambda name, *rest: say(names.get(name, name), *rest))


class own_names:
    """A context manager in which errors of the library name arguments as `names` says."""

    def __init__(self, names: Mapping[str, str], say: Say = "{}{}{}".format) -> None:
        self._names, self._say = names, say

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, ERRORS) and hasattr(error, "parts"):
            raise in_names(error, self._names, self._say) from None


def made(kind: type, given: dict[str, Any], names: Mapping[str, str] = {}) -> Any:
    """Returns kind(**given), where kind is a class of the extension. An error names arguments as `names` says."""
    try:
        return kind(**given)
    except ERRORS as error:
        raise in_names(unfit(error, kind.__new__, **given), names) from None


def unfit(error: Exception, function: Callable, *values: Any, **given: Any) -> Exception:
    """Returns an error about the argument that does not fit the signature of `function`. Returns `error` itself if it
    has parts, or is no TypeError."""
    if hasattr(error, "parts") or not isinstance(error, TypeError):
        return error
    signature = re.findall(r"(\w+): ([\w.]+)(?:\[\w+\])?( \| None)?( = )?", function.__nb_signature__[-1][0])
    types = {name: (kind, bool(optional)) for name, kind, optional, _ in signature}
    given = dict(zip(types, values, strict=False)) | given
    for name, value in given.items():
        if name not in types:
            return argument_error(TypeError, name, f": unknown, want one of {', '.join(types)}")
        kind, optional = types[name]
        if not (_fits(value, kind) or (optional and value is None)):
            want = _WORDS.get(kind, kind.replace("._fa.", ".")) + (" or None" if optional else "")
            hint = "; tensors go to dense_mask" if name == "mask" and hasattr(value, "shape") else ""
            return argument_error(TypeError, name, f": want {want}, got {type(value).__name__}{hint}")
        least, want = (0, "0..2^64-1") if name in _UNSIGNED else (-(1 << 63), "an integer of 64 bits")
        if kind == "int" and value is not None and not 0 <= operator.index(value) - least < 1 << 64:
            return argument_error(ValueError, name, f"={value}, want {want}")
    missing = [name for name, _, _, default in signature if not default and name not in (*given, "cls")]
    return argument_error(TypeError, missing[0], ": missing") if missing else error


_SEQUENCE = "collections.abc.Sequence"
_WORDS = {"int": "an integer", "float": "a number", "str": "a string", "bool": "a bool", _SEQUENCE: "integers"}
_CONVERSIONS = {"int": operator.index, "float": math.fabs}  # float() would take strings, which math.fabs refuses
_UNSIGNED = ("seed", "offset")


def _fits(value: Any, wanted: str) -> bool:
    if wanted in _CONVERSIONS:
        return _converts(_CONVERSIONS[wanted], value)
    if wanted == _SEQUENCE:
        return hasattr(value, "__iter__") and all(_converts(operator.index, item) for item in value)
    if wanted in ("object", "collections.abc.Callable"):
        return wanted == "object" or callable(value)
    kind = type(value)
    return wanted in (kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}")


def _converts(conversion: Callable[[Any], Any], value: Any) -> bool:
    try:
        conversion(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError comes from a tensor of many elements
        return False
    return True


def _of_parts(kind: type[Exception], parts: tuple, say: Say) -> Exception:
    error = kind("".join(part if isinstance(part, str) else say(*part) for part in parts))
    error.parts = parts
    return error
