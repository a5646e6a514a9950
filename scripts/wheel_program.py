"""Compares a forward and its gradients with NumPy, on the level of the CPU and on the portable level. The program needs
only an installed package and NumPy (scripts/wheel.sh, scripts/python_aarch64.sh).
"""

import platform
import sys

import numpy as np

import fa

SEQUENCE, HEAD = 96, 32
draw = np.random.default_rng(0)
inputs = [draw.standard_normal((1, 4, SEQUENCE, HEAD), dtype=np.float32) for _ in range(4)]


def naive(dtype):
    """@return out, dq, dk, dv of causal attention, computed in this type"""
    q, k, v, d_out = (x.astype(dtype) for x in inputs)
    scale = dtype(HEAD**-0.5)
    scores = np.where(np.tri(SEQUENCE, dtype=bool), q @ k.swapaxes(-1, -2) * scale, dtype(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    d_weights = d_out @ v.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) * scale
    return weights @ v, d_scores @ k, d_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ d_out


for isa in (None, "portable"):
    context = fa.Context(threads=2, isa=isa)
    call = {"mask": fa.Mask.causal(), "context": context}
    q, k, v, d_out = inputs
    forward = fa.flash_attention(q, k, v, **call)
    gradients = fa.flash_attention_grad(q, k, v, **forward._asdict(), d_out=d_out, **call)
    for name, got, want, rounded in zip(
        ("out", "dq", "dk", "dv"), (forward.out, *gradients[:3]), naive(np.float64), naive(np.float32), strict=True
    ):
        times = 2 if name == "out" else 3  # how many times the error of the naive computation is allowed
        assert np.abs(got - want).max() <= times * np.abs(rounded - want).max(), (context.isa, name)
    print("fa", fa.__version__, "runs on", platform.machine(), context.isa, "in Python", sys.version.split()[0])
