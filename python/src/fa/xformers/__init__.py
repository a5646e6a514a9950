"""xformers' memory_efficient_attention on CPUs. The import of this module adds an operator to the package xformers.

Calls with CPU tensors are then computed by `fa`, forward and backward, and calls on other devices do not change.
`op=(fa.xformers.FwOp, fa.xformers.BwOp)` asks for the operator by name. memory_efficient_attention_partial and
merge_attentions work on CPUs too.
"""

from __future__ import annotations

from .. import _needs_xformers  # noqa: F401  # isort: skip

from ._install import install, uninstall
from ._operators import BwOp, FwOp

__all__ = ["BwOp", "FwOp", "install", "uninstall"]

install()
