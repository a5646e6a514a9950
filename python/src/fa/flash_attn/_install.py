"""This package under the name of the one whose interface it has."""

from __future__ import annotations

import importlib
import importlib.util
import sys

VERSION = "2.8.4+fa"
_OWN = __package__
_SUBMODULES = ("bert_padding", "flash_attn_interface", "layers", "layers.rotary")


def install(force: bool = False) -> None:
    """Makes `import flash_attn`, and that of its submodules, find this package in all threads; and
    `import flash_attn_interface` the interface of the third generation. A second call changes nothing.

    Args:
        force: also where the real package can be imported. What has imported it before keeps it.

    Raises:
        ValueError: the real package can be imported, and force is not given.
    """
    if not force and _is_real("flash_attn"):
        raise ValueError("invalid argument: force=False, want True: the package flash_attn itself can be imported")
    sys.modules["flash_attn"] = importlib.import_module(_OWN)
    for name in _SUBMODULES:
        sys.modules[f"flash_attn.{name}"] = importlib.import_module(f"{_OWN}.{name}")
    if force or not _is_real("flash_attn_interface"):
        sys.modules["flash_attn_interface"] = importlib.import_module(f"{_OWN}.third_generation")


def _is_real(name: str) -> bool:
    """Whether a package of that name can be imported that is not this one."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return not getattr(loaded, "__name__", "").startswith(_OWN)
    return importlib.util.find_spec(name) is not None
