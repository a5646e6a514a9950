"""Raises an error that says how to install JAX or to build fa for it, if JAX or that build is missing. fa.jax imports
this first.
"""

from ._extras import require

require("jax")
try:
    from . import _xla  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != f"{__package__}._xla":
        raise
    words = "this fa was built without jaxlib's headers, so it lacks fa._xla, which fa.jax needs; docs/jax.md says how to build it"
    raise ModuleNotFoundError(words, name=error.name) from None
