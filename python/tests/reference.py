"""Attention in torch float64 by its definition, and bounds for the error of a computation in float32 or a 16-bit type.

`attention` takes BNSD tensors and uses nothing of the library. Autograd computes its gradients. In other types than
float64, `attention` is the naive computation. On large tensors, the library's outputs may have at most twice the naive
error, and its gradients three times the naive error. `tolerances` takes tensors of any size, and bounds the rounding
error of each element.
"""

from __future__ import annotations

import torch
from torch import Tensor

FACTOR_OUT, FACTOR_GRAD = 2.0, 3.0
ROUNDOFF = 2.0**-24  # unit roundoff of float32
NARROW_EXP = 4e-6  # relative error of exp2 in calls with 16-bit types


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def sink_column(sink: Tensor, scores: Tensor) -> Tensor:
    """Returns the scores [B, N, Sq, 1] of sinks [N] or [B|1, N, Sq]."""
    column = sink[:, None] if sink.dim() == 1 else sink
    return column[..., None].expand(*scores.shape[:3], 1)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    scale_bias: bool = False,
    drop: Tensor | None = None,
    keep_prob: float = 1.0,
    sink: Tensor | None = None,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns out, and the maximum and sum of the softmax. In the bool tensors keep and drop, True keeps the pair."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    accumulate = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = (q.to(accumulate) @ k.to(accumulate).transpose(-2, -1)) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.to(accumulate) * (scale if scale_bias else 1.0)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink_column(sink.to(accumulate), scores)], dim=-1)
    top = scores.amax(dim=-1, keepdim=True)
    top = torch.where(torch.isfinite(top), top, 0.0).detach()
    p = torch.exp(scores - top)
    total = p.sum(dim=-1, keepdim=True)
    p = p / torch.where(total > 0, total, 1.0)
    if sink is not None:
        p = p[..., :-1]
    if drop is not None:
        p = p * drop / keep_prob
    # P is rounded to the type of q, and P V is computed in float32, as on the NPU and in the library.
    out = p.to(q.dtype).to(accumulate) @ v.to(accumulate)
    return out.to(q.dtype), top.squeeze(-1), total.squeeze(-1)


def tolerances(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    d_out: Tensor,
    dtype: torch.dtype,
    *,
    scale: float,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    scale_bias: bool = False,
    drop: Tensor | None = None,
    keep_prob: float = 1.0,
    sink: Tensor | None = None,
    softcap: float = 0.0,
) -> dict[str, Tensor]:
    """Returns bounds for the |error| of a call in `dtype`: of out, lse, dq, dk, dv, of dbias for every pair, and of
    dsink.

    u = 2^-24, and `unit` is the unit roundoff of dtype. If the magnitudes of n products add up to A, the error of their
    sum is at most u (4 sqrt(n) + 8) A. This bound takes the roundings as a random walk, at six standard deviations. An
    absolute error of a score becomes a relative error of its probability. A relative error of the softmax's sum becomes
    an absolute error of its logarithm, lse. Where all terms are 0, the bound is 0.
    """
    u, unit = ROUNDOFF, torch.finfo(dtype).eps / 2
    narrow = dtype != torch.float32

    def total_error(n: int) -> float:
        return u * (4 * n**0.5 + 8)

    (q, k, v, d_out) = (t.detach().double() for t in (q, k, v, d_out))
    heads, sq, d = q.shape[1:]
    heads_kv, sk, dv_size = k.shape[1], k.shape[2], v.shape[3]
    k, v = repeat_heads(k, heads), repeat_heads(v, heads)
    scores = q @ k.transpose(-2, -1) * scale
    e_score = total_error(d) * (q.abs() @ k.abs().transpose(-2, -1)) * abs(scale)
    slope = torch.ones_like(scores)
    e_slope = torch.zeros_like(scores)
    if softcap > 0:
        t = torch.tanh(scores / softcap)
        slope = 1 - t * t
        e_slope = 2 * t.abs() * (8 * u + e_score / softcap)
        scores, e_score = softcap * t, e_score + 8 * u * softcap
    if bias is not None:
        shift = bias.detach().double() * (scale if scale_bias else 1.0)
        scores, e_score = scores + shift, e_score + 4 * u * torch.where(torch.isneginf(shift), 0.0, shift).abs()
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink_column(sink.detach().double(), scores)], -1)
    lse = torch.logsumexp(scores, -1, keepdim=True)
    lse = torch.where(torch.isfinite(lse), lse, 0.0)
    p = torch.exp(scores - lse)
    p_sink, p = p[..., sk:], p[..., :sk]
    z = torch.ones_like(p) if drop is None else drop.double() / keep_prob
    top = scores.amax(-1, keepdim=True).clamp_min(-1e30)
    e_row = (p * e_score).sum(-1, keepdim=True) + total_error(sk) + 4 * u * (top.abs() + (lse - top).abs())
    e_p = e_score + e_row + 8 * u + (NARROW_EXP if narrow else 0.0)
    pz = p * z
    out = pz @ v
    e_out = (pz * (e_p + total_error(sk) + (unit if narrow else 0.0))) @ v.abs() + unit * out.abs()

    dp, dp_size = z * (d_out @ v.transpose(-2, -1)), z * (d_out.abs() @ v.abs().transpose(-2, -1))
    delta, delta_size = ((x * y).sum(-1, keepdim=True) for x, y in ((d_out, out), (d_out.abs(), out.abs())))
    e_delta = total_error(dv_size) * delta_size + (d_out.abs() * e_out).sum(-1, keepdim=True)
    ds = p * (dp - delta)
    e_ds = p * ((e_p + 4 * u) * (dp - delta).abs() + total_error(dv_size) * dp_size + e_delta)
    ds, e_ds = ds * slope, e_ds * slope + ds.abs() * e_slope
    e_bias = (e_ds + 4 * u * ds.abs()) * (abs(scale) if scale_bias else 1.0)
    e_sum = e_ds + (unit if narrow else 0.0) * ds.abs()
    group = heads // heads_kv

    def grouped(x: Tensor) -> Tensor:
        return x.unflatten(1, (heads_kv, group)).sum(2)

    dq = ds @ k * scale
    dk = grouped(ds.transpose(-2, -1) @ q) * scale
    dv = grouped(pz.transpose(-2, -1) @ d_out)
    e_dq = (e_sum + total_error(sk) * ds.abs()) @ k.abs() * abs(scale) + unit * dq.abs()
    e_dk = grouped((e_sum + total_error(sq * group) * ds.abs()).transpose(-2, -1) @ q.abs()) * abs(scale)
    e_dv = pz * (e_p + total_error(sq * group) + (unit if narrow else 0.0))
    e_dv = grouped(e_dv.transpose(-2, -1) @ d_out.abs())
    rows = q.shape[0] * sq
    e_sink = p_sink * ((e_row + 8 * u + total_error(rows)) * delta.abs() + e_delta)
    return {
        "out": e_out,
        "lse": (e_row + 8 * u + (NARROW_EXP if narrow else 0.0))[..., 0],
        "dq": e_dq,
        "dk": e_dk + unit * dk.abs(),
        "dv": e_dv + unit * dv.abs(),
        "dbias": e_bias,
        "dsink": e_sink.sum((0, 2, 3)) if sink is None or sink.dim() == 1 else e_sink[..., 0].sum_to_size(sink.shape),
    }


def summed_to(bound: Tensor, shape: torch.Size, size: Tensor) -> Tensor:
    """Returns the bound of a gradient that is summed over broadcast dimensions. The bound includes the roundings of the
    sum itself. `size` has the magnitudes of the summed terms."""
    terms = bound.numel() // max(shape.numel(), 1)
    return (bound + ROUNDOFF * 4 * terms**0.5 * size.abs()).sum_to_size(shape)


def assert_within(got: Tensor, want: Tensor, bound: Tensor, name: str = "") -> None:
    assert got.shape == want.shape, name
    assert bound.isfinite().all(), f"{name}: a bound that lets anything pass"
    off = (got.detach().double() - want.detach().double()).abs() - bound.detach()
    # A rounding to a subnormal number of a 16-bit type is off by at most half the smallest such number. The bound is
    # twice as large.
    smallest = torch.finfo(got.dtype).smallest_normal * torch.finfo(got.dtype).eps
    assert off.numel() == 0 or off.max().item() <= smallest, f"{name}: {off.max().item():.3e} past its bound"


def error(got: Tensor, want: Tensor) -> float:
    return (got.detach().double() - want.detach().double()).abs().max().item()


def assert_no_worse_than_naive(got: Tensor, want: Tensor, naive: Tensor, factor: float, name: str = "") -> None:
    """Checks that the largest error is at most `factor` times the largest naive error. The two errors are comparable
    only if there are thousands of elements."""
    assert got.shape == want.shape and got.numel() >= 4096, name
    assert error(got, want) <= factor * error(naive, want), (
        f"{name}: error {error(got, want):.3e}, naive {error(naive, want):.3e}"
    )


def unpack_bits(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Returns a mask of bits, the lowest bit of a byte first, as a bool tensor."""
    bits = (mask[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.reshape(-1)[: torch.Size(shape).numel()].reshape(shape).bool()


def bnsd(x: Tensor, layout: str, heads: int) -> Tensor:
    """Returns a BNSD view of a tensor in this layout."""
    if layout in ("BSH", "SBH"):
        x = x.unflatten(-1, (heads, -1))
    return x.permute(*_FROM[layout])


def to_layout(x: Tensor, layout: str) -> Tensor:
    """Returns a BNSD tensor as a contiguous tensor in this layout."""
    x = x.permute(*_TO[layout])
    return (x.flatten(2) if layout in ("BSH", "SBH") else x).contiguous()


_FROM = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3)}
_TO = _FROM | {"SBH": (2, 0, 1, 3)}
