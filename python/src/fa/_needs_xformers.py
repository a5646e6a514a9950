"""Raises an error that says how to install xformers, if missing. fa.xformers imports this module first."""

from . import _needs_torch  # noqa: F401
from ._extras import require

require("xformers")
