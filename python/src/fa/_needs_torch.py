"""Imported before PyTorch by what needs it: says how to install it where it is missing."""

from ._extras import require

require("torch")
