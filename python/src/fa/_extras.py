"""Packages that only some parts of `fa` need. For each of them, fa-attention has a pip extra of the same name."""

from __future__ import annotations

import importlib


def require(package: str) -> None:
    """If the package is missing, raises ModuleNotFoundError, which says how to install it."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package lacks a module that it needs
            raise
        words = f"this part of fa needs {package}, which is not installed: pip install 'fa-attention[{package}]'"
        raise ModuleNotFoundError(words, name=package) from None
