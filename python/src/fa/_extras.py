"""The packages that only parts of `fa` need. fa-attention has a pip extra of the same name for each package."""

from __future__ import annotations

import importlib


def require(package: str) -> None:
    """Raises ModuleNotFoundError if the package is missing. The text says how to install the package."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is installed, but a module that it needs is missing
            raise
        words = f"this part of fa needs {package}, which is not installed: pip install 'fa-attention[{package}]'"
        raise ModuleNotFoundError(words, name=package) from None
