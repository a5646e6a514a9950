"""flash_attn.flash_attn_interface: the functions of flash_attn 2. Some of these functions also exist in flash_attn 3. A
call with a keyword that only flash_attn 3 has goes to the function of flash_attn 3.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from . import _second_generation as second
from . import third_generation as third
from ._second_generation import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from .third_generation import flash_attn_combine, get_scheduler_metadata

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]


def _of_both(of_second: Callable, of_third: Callable) -> Callable:
    own = frozenset(inspect.signature(of_third).parameters) - frozenset(inspect.signature(of_second).parameters)

    @functools.wraps(of_second)
    def function(*arguments: Any, **keywords: Any) -> Any:
        return (of_second if own.isdisjoint(keywords) else of_third)(*arguments, **keywords)

    return function


flash_attn_func = _of_both(second.flash_attn_func, third.flash_attn_func)
flash_attn_varlen_func = _of_both(second.flash_attn_varlen_func, third.flash_attn_varlen_func)
flash_attn_with_kvcache = _of_both(second.flash_attn_with_kvcache, third.flash_attn_with_kvcache)


def _get_block_size_n(device: Any, head_dim: int, is_dropout: bool, is_causal: bool) -> int:
    """Returns how many keys flash_attn's GPU kernels process at a time. Programs need this number to rescale the
    S_dmask of these kernels. The S_dmask of this package needs no rescaling."""
    if head_dim <= 64:
        return 64 if is_dropout and head_dim > 32 else 128
    if 96 < head_dim <= 160:
        return 32 if is_dropout or head_dim > 128 else 64
    return 64
