"""flash_attn.layers.rotary: rotary position embeddings, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from .._arguments import at, check_size, check_tensor, invalid

__all__ = ["apply_rotary_emb", "apply_rotary_emb_torch"]


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """Rotates each pair of numbers among the first rotary_dim numbers of a head, by an angle for the row's position.

    Args:
        x: [B, S, N, D]; with cu_seqlens [total, N, D].
        cos, sin: [positions, rotary_dim / 2], rotary_dim <= D. They get no gradients.
        interleaved: True pairs numbers 0 and 1, 2 and 3, ... False pairs 0 and rotary_dim / 2, 1 and
            rotary_dim / 2 + 1, ...
        inplace: whether to write the result into x and return x.
        seqlen_offsets: the position of each sequence's first row: one number, or int32 or int64 [B]. With a tensor,
            positions may lie beyond the rows of cos; x is then left as it is there.
        cu_seqlens: int32 [B + 1], prefix sums of the sequences' lengths with a leading 0.
        max_seqlen: the longest sequence's length; not needed.

    Returns:
        The rotated x, in its shape and type. It is computed in float32, or in float64 if x is float64.

    Raises:
        ValueError: an argument is wrong.
    """
    packed = cu_seqlens is not None
    check_rotation(x, cos, sin, "[total, N, D]" if packed else "[B, S, N, D]")
    if packed:
        check_tensor("cu_seqlens", cu_seqlens, "[B + 1]", (torch.int32, torch.int64))
        if isinstance(seqlen_offsets, Tensor):
            check_offsets(seqlen_offsets, cu_seqlens.shape[0] - 1)
        positions = packed_positions(x.shape[0], seqlen_offsets, cu_seqlens)
    else:
        positions = torch.arange(x.shape[1], device=x.device)
        if isinstance(seqlen_offsets, Tensor):
            check_offsets(seqlen_offsets, x.shape[0])
            positions = positions + seqlen_offsets[:, None]
        else:
            if not 0 <= seqlen_offsets <= cos.shape[0] - x.shape[1]:
                want = f"0..{cos.shape[0] - x.shape[1]} (cos.shape[0] - x.shape[1])"
                raise invalid("seqlen_offsets", seqlen_offsets, want)
            positions = positions + seqlen_offsets
    return rotated(x, cos, sin, positions, interleaved, inplace)


def apply_rotary_emb_torch(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Computes apply_rotary_emb for x [B, S, N, D] with positions that begin at 0."""
    return apply_rotary_emb(x, cos[: x.shape[1]], sin[: x.shape[1]], interleaved)


def rotated(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool, inplace: bool = False
) -> Tensor:
    """Returns x rotated by `positions`, integers that broadcast to the dimensions of x before the heads."""
    known = (positions >= 0) & (positions < cos.shape[0])
    places = positions.clamp(0, max(cos.shape[0] - 1, 0)).long()
    accumulate = torch.promote_types(x.dtype, torch.float32)

    def of_rows(table: Tensor, unknown: float) -> Tensor:
        rows = table.detach()[places].to(accumulate)
        return torch.where(known[..., None], rows, unknown)[..., None, :]

    c, s = of_rows(cos, 1.0), of_rows(sin, 0.0)
    width = 2 * cos.shape[-1]
    turning = x[..., :width].to(accumulate)
    if interleaved:
        a, b = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)
    else:
        a, b = turning.chunk(2, -1)
        turned = torch.cat((a * c - b * s, b * c + a * s), -1)
    turned = turned.to(x.dtype)
    if inplace:
        x[..., :width].copy_(turned)
        return x
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)


def check_rotation(x: Tensor, cos: Tensor, sin: Tensor, shape: str, names: tuple[str, str] = ("cos", "sin")) -> None:
    floats = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    check_tensor("x", x, shape, floats)
    check_tensor(names[0], cos, "[positions, rotary_dim / 2]", floats)
    check_tensor(names[1], sin, "[positions, rotary_dim / 2]", floats)
    for axis in range(2):
        check_size(names[1], sin, axis, cos.shape[axis], at(f"{names[0]}.shape[{axis}]"))
    if 2 * cos.shape[1] > x.shape[-1]:
        raise invalid(f"{names[0]}.shape[1]", cos.shape[1], f"at most {x.shape[-1] // 2} (half the head size)")


def check_offsets(seqlen_offsets: Tensor, sequences: int) -> None:
    check_tensor("seqlen_offsets", seqlen_offsets, "[B]", (torch.int32, torch.int64))
    check_size("seqlen_offsets", seqlen_offsets, 0, sequences, "sequences")


def packed_positions(rows: int, offsets: int | Tensor, cu_seqlens: Tensor, step: int = 1) -> Tensor:
    """Returns the positions of the rows in packed sequences. The first row of sequence b has position offsets[b], and
    each further row `step` more."""
    row = torch.arange(rows, device=cu_seqlens.device)
    owner = torch.searchsorted(cu_seqlens[1:].contiguous(), row, right=True)
    owner = owner.clamp(max=max(cu_seqlens.shape[0] - 2, 0))
    positions = step * (row - cu_seqlens[owner])
    return positions + (offsets[owner] if isinstance(offsets, Tensor) else offsets)
