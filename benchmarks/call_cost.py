"""What one tiny call costs from Python, by fa and by PyTorch: benchmarks/call_cost.py [ROUNDS]

CPU time of the calling thread with one thread for each library, the least of ROUNDS (25) runs of 30 calls, in turn, so
that a busy machine changes little.
"""

import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as by_torch

import fa
from fa.flash_attn import flash_attn_func
from fa.torch import decode_attention, scaled_dot_product_attention

CALLS = 30


def cases():
    """Per name: PyTorch's call, fa's call, whether gradients are recorded."""
    q, k, v, d_out = (torch.randn(1, 1, 64, 64) for _ in range(4))
    row = torch.randn(1, 1, 1, 64)
    by_row = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    mask = torch.rand(64, 64) < 0.8

    def step(function):
        return lambda: torch.autograd.grad(function(*leaves), leaves, d_out)

    def plain():
        return by_torch(q, k, v)

    def causal():
        return by_torch(q, k, v, is_causal=True)

    def one_row():
        return by_torch(row, k, v)

    return {
        "SDPA": (plain, lambda: scaled_dot_product_attention(q, k, v), False),
        "SDPA, causal": (causal, lambda: scaled_dot_product_attention(q, k, v, is_causal=True), False),
        "SDPA, mask": (lambda: by_torch(q, k, v, mask), lambda: scaled_dot_product_attention(q, k, v, mask), False),
        "SDPA, one row": (one_row, lambda: scaled_dot_product_attention(row, k, v), False),
        "flash_attn": (plain, lambda: flash_attn_func(*by_row), False),
        "flash_attn, causal": (causal, lambda: flash_attn_func(*by_row, causal=True), False),
        "decode": (one_row, lambda: decode_attention(row, k, v), False),
        "SDPA, forward and backward": (step(by_torch), step(scaled_dot_product_attention), True),
    }


def microseconds(function):
    begin = time.thread_time()
    for _ in range(CALLS):
        function()
    return (time.thread_time() - begin) / CALLS * 1e6


def main():
    torch.set_num_threads(1)
    fa.set_default_context(fa.Context(threads=1))
    best = {}
    for _ in range(1 + int(sys.argv[1] if len(sys.argv) > 1 else 25)):
        for name, (*functions, recorded) in cases().items():
            with torch.set_grad_enabled(recorded):
                now = [microseconds(function) for function in functions]
            best[name] = [min(pair) for pair in zip(now, best.get(name, now), strict=True)]
    print("| B = N = 1, S = D = 64, float32 | fa, µs | PyTorch, µs | fa / PyTorch |\n|---|---:|---:|---:|")
    for name, (theirs, own) in best.items():
        print(f"| {name} | {own:.1f} | {theirs:.1f} | {own / theirs:.2f} |")


if __name__ == "__main__":
    main()
