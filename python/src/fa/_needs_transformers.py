"""Imported before transformers by what needs it: says how to install it where it is missing."""

from . import _needs_torch  # noqa: F401
from ._extras import require

require("transformers")
