"""flash_attn.layers: rotary embeddings."""

from . import rotary  # noqa: F401
