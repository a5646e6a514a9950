"""xformers' merge of partial results, on CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor

from .._cache import merge_by_lse
from .._errors import argument_error, own_names

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_NAMES = {"local_out": "attn_split", "lse": "lse_split"}


def merged(
    attn_split: Sequence[Tensor], lse_split: Sequence[Tensor], dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Merges attn_split, [B, G, H, M, K] per part, by lse_split, [B, G, H, M] per part. Returns the output [B, M, G, H,
    K] of type `dtype`, or of the parts' type, and the lse [B, G, H, M]."""
    if len(attn_split) == 0:
        raise argument_error(ValueError, "attn_split", " has 0 tensors, want at least one")
    if dtype not in (None, *_TYPES):
        raise argument_error(ValueError, "output_dtype", f"={dtype}, want " + " or ".join(map(str, _TYPES)))
    dtype = attn_split[0].dtype if dtype is None else dtype
    rows = [part.detach().permute(0, 3, 1, 2, 4) for part in attn_split]
    if dtype != rows[0].dtype:  # so that the output is rounded once
        rows = [part.float() for part in rows]
    lses = [part.detach().permute(0, 3, 1, 2) for part in lse_split]
    with own_names(_NAMES):
        out, lse = merge_by_lse(
            [part.reshape(-1) for part in lses], [part.flatten(0, -2) for part in rows], return_lse=True
        )
    return out.view(rows[0].shape).to(dtype), lse.view(lses[0].shape).permute(0, 2, 3, 1).contiguous()


def merge_lists(
    attn_split: Sequence[Tensor],
    lse_split: Sequence[Tensor],
    write_lse: bool,
    output_dtype: Optional[torch.dtype],
    B: int,
    M: int,
    G: int,
    H: int,
    Kq: int,
) -> list[Tensor]:
    """Is the CPU kernel of xformers::fmha_merge_attentions_varargs."""
    out, lse = merged(attn_split, lse_split, output_dtype)
    return [out, lse] if write_lse else [out]


def merge_into(attn_out: Tensor, lse_out: Tensor | None, attn_split: Tensor, lse_split: Tensor) -> None:
    """Merges attn_split [B, G, H, parts, M, K] and lse_split [B, G, H, parts, M] into attn_out and lse_out."""
    out, lse = merged(attn_split.unbind(3), lse_split.unbind(3), attn_out.dtype)
    attn_out.copy_(out)
    if lse_out is not None:
        lse_out.copy_(lse)
