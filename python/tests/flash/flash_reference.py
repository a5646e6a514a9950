"""The results that flash_attn's functions must give, computed from the definition of attention in float64. This module
imports nothing of fa.

In a 16-bit type, the same code is the naive computation of flash_attn's own tests. The error of an output may be at
most twice the error of the naive computation, the error of a gradient three times.
"""

from __future__ import annotations

import torch
from torch import Tensor

FACTOR_OUT, FACTOR_GRAD = 2.0, 3.0


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: tuple[int, int] = (-1, -1),
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    qv: Tensor | None = None,
    sink: Tensor | None = None,
    chunk: int = 0,
    kept_by_dropout: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes attention of one sequence, q [Sq, N, D], k [Sk, Nkv, D], v [Sk, Nkv, Dv], in the type of q. Returns out
    [Sq, N, Dv], lse [N, Sq] (-inf without keys) and probabilities [N, Sq, Sk]."""
    rows, heads, keys = q.shape[0], q.shape[1], k.shape[0]
    k, v = (t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    products = torch.einsum("ihd,jhd->hij", q, k)
    if qv is not None:
        products = products + torch.einsum("ihd,jhd->hij", qv, v)
    size = q.shape[-1] + (0 if qv is None else qv.shape[-1])
    scores = products * (size**-0.5 if scale is None else scale)
    if softcap > 0:
        scores = torch.tanh(scores / softcap) * softcap
    place = torch.arange(rows)[:, None] + keys - rows
    key = torch.arange(keys)
    left, right = window[0], 0 if causal else window[1]
    kept = torch.ones(rows, keys, dtype=torch.bool)
    if left >= 0:
        kept &= key >= place - left
    if right >= 0:
        kept &= key <= place + right
    if chunk > 0:
        kept &= torch.div(place, chunk, rounding_mode="floor") == key // chunk
    if slopes is not None:
        scores = scores - (slopes[:, None, None] * (place - key).abs()).to(scores.dtype)
    # A softmax over no keys would be NaN. So a row without keys keeps its scores, unless there is a sink. The row's
    # probabilities are not used.
    some = kept.any(-1, keepdim=True)
    scores = scores.masked_fill(~kept & some if sink is None else ~kept, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.to(scores.dtype)[:, None, None].expand(-1, rows, 1)], -1)
    lse = torch.logsumexp(scores, -1)
    if sink is None:
        lse = lse.masked_fill(~some[:, 0], -torch.inf)
    probabilities = torch.softmax(scores, -1)[..., :keys]
    probabilities = torch.where(kept, probabilities, 0.0)
    used = probabilities
    if kept_by_dropout is not None:
        used = torch.where(kept_by_dropout, used, 0.0) / (1.0 - dropout_p)
    return torch.einsum("hij,jhd->ihd", used, v), lse, probabilities


def turned(x: Tensor, cos: Tensor, sin: Tensor, positions: list[int], interleaved: bool) -> Tensor:
    """Computes the rotary embedding of x [S, N, D], row by row."""
    out, half = x.clone(), cos.shape[1]
    for row, position in enumerate(positions):
        if not 0 <= position < cos.shape[0]:
            continue
        for pair in range(half):
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
            c, s = cos[position, pair], sin[position, pair]
            out[row, :, a], out[row, :, b] = x[row, :, a] * c - x[row, :, b] * s, x[row, :, a] * s + x[row, :, b] * c
    return out


def error(got: Tensor, want: Tensor) -> float:
    assert got.shape == want.shape, (got.shape, want.shape)
    return (got.detach().double() - want.detach().double()).abs().max().item() if got.numel() else 0.0


def assert_as_exact_as_naive(got: Tensor, want: Tensor, naive: Tensor, factor: float, name: str = "") -> None:
    """Asserts that the error of `got` is at most `factor` times the naive error, plus a floor. The floor is needed
    because the naive result of few values may be exact by chance. It is one rounding of the result, plus the error of a
    float32 sum of `terms` products at six standard deviations."""
    terms, unit = 256, torch.finfo(torch.float32).eps / 2
    assert torch.isfinite(got).all(), name
    largest = max(want.detach().abs().max().item(), 1.0) if want.numel() else 1.0
    floor = (torch.finfo(got.dtype).eps / 2 + unit * (4 * terms**0.5 + 8)) * largest
    assert error(got, want) <= factor * error(naive, want) + floor, (
        f"{name}: error {error(got, want):.3e}, naive {error(naive, want):.3e}, floor {floor:.3e}"
    )
