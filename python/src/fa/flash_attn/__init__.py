"""The interface of flash_attn 2.8 on CPU tensors, computed by `fa`.

The names, arguments, defaults and results are those of flash_attn. docs/flash_attn.md lists the differences. `install`
makes `import flash_attn` find this package, and so does `python -m fa.flash_attn script.py` for a script.
"""

from __future__ import annotations

from .. import _needs_torch  # noqa: F401  # isort: skip
from . import bert_padding, flash_attn_interface, layers  # noqa: F401
from ._install import VERSION as __version__
from ._install import install
from ._second_generation import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__all__ = [
    "__version__",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "install",
]
