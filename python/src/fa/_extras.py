"""Packages that only parts of `fa` need. fa-attention has an extra of the same name for each package."""

from __future__ import annotations

import importlib


def require(package: str) -> None:
    """Raises ModuleNotFoundError, which says how to install the package, if it is missing."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is installed, but a module that it needs is missing
            raise
        words = f"this part of fa needs {package}, which is not installed: pip install 'fa-attention[{package}]'"
        raise ModuleNotFoundError(words, name=package) from None
