"""Makes `import flash_attn` find fa.flash_attn."""

from __future__ import annotations

import importlib
import importlib.util
import sys

VERSION = "2.8.4+fa"
_OWN = __package__
_SUBMODULES = ("bert_padding", "flash_attn_interface", "layers", "layers.rotary")


def install(force: bool = False) -> None:
    """Makes `import flash_attn` find this package in all threads.

    Imports of flash_attn's submodules find those of this package, and `import flash_attn_interface` finds the interface
    of flash_attn 3. A second call changes nothing.

    Args:
        force: whether to install even if the real package can be imported. Modules that have imported it keep it.

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
    """Returns whether `import name` would find a package other than this one."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return not getattr(loaded, "__name__", "").startswith(_OWN)
    return importlib.util.find_spec(name) is not None
