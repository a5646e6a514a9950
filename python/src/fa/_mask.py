"""Wraps the functions of fa.Mask, so that a TypeError names the argument that does not fit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._errors import unfit
from ._fa import Mask


def _naming(make: Callable[..., Mask]) -> Callable[..., Mask]:
    @functools.wraps(make)
    def named(*values: Any, **given: Any) -> Mask:
        try:
            return make(*values, **given)
        except TypeError as error:
            raise unfit(error, make, *values, **given) from None

    return named


for _name in ("band", "band_top_left", "prefix", "rows", "from_sparse_mode"):
    setattr(Mask, _name, staticmethod(_naming(getattr(Mask, _name))))
