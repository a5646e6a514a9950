"""Errors of the kernels. They are RuntimeErrors, as PyTorch's kernels raise them, and name arguments as PyTorch's
operators do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._errors import in_names


class own_errors:
    """A context manager in which errors become RuntimeErrors whose arguments are named as `names` says."""

    def __init__(self, operator: str, names: Mapping[str, str]) -> None:
        self._operator, self._names = operator, names

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, (ValueError, TypeError)):
            raise RuntimeError(f"{self._operator}: {in_names(error, self._names)}") from None


def refuse(operator: str, argument: str, got: Any, want: str) -> RuntimeError:
    return RuntimeError(f"{operator}: invalid argument: {argument}={got}, want {want}")
