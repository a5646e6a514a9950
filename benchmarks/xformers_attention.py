"""Times xformers.ops.memory_efficient_attention with fa.xformers against PyTorch's scaled_dot_product_attention with
the materialized attn_bias. xformers itself has no operator for CPUs.

    benchmarks/xformers_attention.py [--cases window] [--types f32,bf16] [--threads 2] [--rounds 9]

It runs where xformers and fa-attention are installed (docs/xformers.md). The bias is materialized before anything is
timed. Results are compared first. Both sides take turns within one process, and the smallest CPU time of all rounds
counts.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import xformers.ops as xops
from torch.nn.functional import scaled_dot_product_attention
from xformers.ops.fmha import attn_bias as biases

import fa.xformers  # noqa: F401
from rounds import order_of

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CROPS = [257] * 4 + [50] * 16
CACHED = [4096, 1000, 3000, 2048]


class Case(NamedTuple):
    """A function that makes the bias for a dtype, and the sizes (B, M, N, H, K) of the call."""

    bias: Callable[[torch.dtype], Any]
    sizes: tuple[int, ...]
    gradient: bool = True


def score_bias(dtype):
    return torch.randn(1, 8, 1024, 1024).to(dtype).expand(2, -1, -1, -1)


CASES = {
    "image of 257 tokens, batch 8": Case(lambda _: None, (8, 257, 257, 12, 64)),
    "20 crops, packed": Case(
        lambda _: biases.BlockDiagonalMask.from_seqlens(CROPS), (1, sum(CROPS), sum(CROPS), 12, 64)
    ),
    "1024 tokens of an image, bias": Case(score_bias, (2, 1024, 1024, 8, 64)),
    "causal, 2048": Case(lambda _: xops.LowerTriangularMask(), (1, 2048, 2048, 8, 128)),
    "window 256 of 2048": Case(
        lambda _: biases.LowerTriangularFromBottomRightLocalAttentionMask(256), (1, 2048, 2048, 8, 128)
    ),
    "decode, 4 padded caches": Case(
        lambda _: biases.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens([1] * 4, 4096, CACHED),
        (1, 4, 4 * 4096, 8, 128),
        gradient=False,
    ),
}


def sides_of(case, dtype, gradient):
    """Returns {name: a function that computes the call and returns its results}."""
    batch, rows, keys, heads, size = case.sizes
    tensors = [torch.randn(batch, n, heads, size).to(dtype).requires_grad_(gradient) for n in (rows, keys, keys)]
    bias, d_out = case.bias(dtype), torch.randn(batch, rows, heads, size).to(dtype)
    mask = bias
    if isinstance(bias, biases.AttentionBias):
        mask = bias.materialize((1, 1, rows, keys), dtype)

    def by_torch(query, key, value):
        by_head = (t.transpose(1, 2) for t in (query, key, value))
        return scaled_dot_product_attention(*by_head, attn_mask=mask).transpose(1, 2)

    def by_fa(query, key, value):
        return xops.memory_efficient_attention(query, key, value, attn_bias=bias)

    def side(function):
        def run():
            out = function(*tensors)
            return torch.autograd.grad(out, tensors, d_out) if gradient else (out,)

        return run

    return {"torch": side(by_torch), "fa": side(by_fa)}


def check(sides, dtype, keys):
    """Raises ValueError unless the results of both sides agree up to rounding. The bound allows a few roundings to the
    type, and the float32 roundings of sums over the keys.
    """
    for want, got in zip(sides["torch"](), sides["fa"](), strict=True):
        error = ((got.double() - want.double()).norm() / want.double().norm()).item()
        if not error <= 8 * torch.finfo(dtype).eps + keys**0.5 * torch.finfo(torch.float32).eps:
            raise ValueError(f"the results differ by {error:.1e}")


def measure(sides, rounds):
    """Returns {name: (best CPU seconds, best seconds)}."""
    best = {name: (float("inf"), float("inf")) for name in sides}
    for number in range(rounds):
        for name in order_of(list(sides), number):
            cpu, wall = time.process_time(), time.perf_counter()
            sides[name]()
            took = time.process_time() - cpu, time.perf_counter() - wall
            best[name] = tuple(map(min, best[name], took))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="only cases whose names contain this")
    parser.add_argument("--types", default="f32,bf16", help="of " + ", ".join(TYPES))
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own choice")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(7)
    print(f"{torch.get_num_threads()} threads | torch ms | fa ms | CPU time torch / fa | time torch / fa")
    for name, case in CASES.items():
        for dtype in arguments.types.split(","):
            for gradient in (False, True)[: 1 + case.gradient]:
                if arguments.cases not in name:
                    continue
                sides = sides_of(case, TYPES[dtype], gradient)
                check(sides, TYPES[dtype], case.sizes[2])
                best = measure(sides, arguments.rounds)
                (cpu, wall), (own_cpu, own_wall) = best["torch"], best["fa"]
                figures = f"{wall * 1e3:.2f} | {own_wall * 1e3:.2f} | {cpu / own_cpu:.2f} | {wall / own_wall:.2f}"
                label = f"{name}, {dtype}{', gradient' * gradient}"
                print(f"{label} | {figures}", flush=True)


if __name__ == "__main__":
    main()
