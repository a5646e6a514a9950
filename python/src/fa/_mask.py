"""Wraps the functions of fa.Mask and fa.PairMask, so that a TypeError names the argument that does not fit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._errors import unfit
from ._fa import Mask, PairMask


def _naming(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def named(*values: Any, **given: Any) -> Any:
        try:
            return make(*values, **given)
        except TypeError as error:
            raise unfit(error, make, *values, **given) from None

    return named


for _name in ("band", "band_top_left", "prefix", "rows", "from_sparse_mode"):
    setattr(Mask, _name, staticmethod(_naming(getattr(Mask, _name))))
for _name in (
    "from_bool",
    "from_additive",
    "from_indices",
    "from_blocks",
    "from_block_mask",
    "from_bits",
    "from_slabs",
):
    setattr(PairMask, _name, staticmethod(_naming(getattr(PairMask, _name))))
