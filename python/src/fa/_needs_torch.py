"""Raises an error that says how to install PyTorch if it is missing. Modules that need PyTorch import this one
first."""

from ._extras import require

require("torch")
