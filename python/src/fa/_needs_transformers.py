"""Raises an error that says how to install transformers, if missing. Modules that need it import this one first."""

from . import _needs_torch  # noqa: F401
from ._extras import require

require("transformers")
