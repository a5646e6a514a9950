"""Measures what one tiny call costs from Python, through each interface of fa and of PyTorch, and from C++.

    benchmarks/call_cost.py [ROUNDS]

A call computes one head of S rows and keys. The figure is the CPU time of the calling thread; each library has one
thread. The smallest of ROUNDS (25) runs of 30 calls counts. Runs take turns, so that other programs disturb all of them
equally. Results are first compared with PyTorch's. The row of C++ comes from calls_benchmark, if build/release has this
program.
"""

import json
import os
import subprocess
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as by_torch

import fa
from fa import torch_npu
from fa.flash_attn import flash_attn_func
from fa.torch import decode_attention, scaled_dot_product_attention

CALLS = 30
SIZES = (1, 2, 4, 8, 16, 32, 64)
D = 64
BASE = "PyTorch"
IN_C = "build/release/benchmarks/calls_benchmark"
# A bound for the difference of two f32 results. A result is a sum of at most 64 products of unit normals, and is below
# 8. The bound allows a hundred roundings of such numbers.
TOLERANCE = 100 * 8 * 2.0**-24


def inference(s):
    """@return {kind of call: {interface: function without arguments}}; the first interface of a kind is PyTorch's"""
    q, k, v = (torch.randn(1, 1, s, D) for _ in range(3))
    row = torch.randn(1, 1, 1, D)
    by_row = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
    arrays = [t.numpy() for t in (q, k, v)]
    mask = (torch.rand(s, s) < 0.8) | torch.eye(s, dtype=torch.bool)
    dropped = ~mask
    future = torch.ones(s, s, dtype=torch.bool).triu(1)
    npu = {"head_num": 1, "input_layout": "BNSD", "scale": D**-0.5}
    rule = fa.Mask.causal()
    return {
        "forward": {
            BASE: lambda: by_torch(q, k, v),
            "fa.torch": lambda: scaled_dot_product_attention(q, k, v),
            "fa.flash_attn": lambda: flash_attn_func(*by_row),
            "fa.torch_npu": lambda: torch_npu.npu_fusion_attention(q, k, v, **npu)[0],
            "fa.flash_attention, tensors": lambda: fa.flash_attention(q, k, v).out,
            "fa.flash_attention, NumPy": lambda: fa.flash_attention(*arrays).out,
        },
        "causal": {
            BASE: lambda: by_torch(q, k, v, is_causal=True),
            "fa.torch": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
            "fa.flash_attn": lambda: flash_attn_func(*by_row, causal=True),
            "fa.torch_npu": lambda: torch_npu.npu_fusion_attention(q, k, v, atten_mask=future, **npu)[0],
            "fa.flash_attention, NumPy": lambda: fa.flash_attention(*arrays, mask=rule).out,
        },
        "mask": {
            BASE: lambda: by_torch(q, k, v, mask),
            "fa.torch": lambda: scaled_dot_product_attention(q, k, v, mask),
            "fa.torch_npu": lambda: torch_npu.npu_fusion_attention(q, k, v, atten_mask=dropped, **npu)[0],
        },
        "one row": {
            BASE: lambda: by_torch(row, k, v),
            "fa.torch": lambda: scaled_dot_product_attention(row, k, v),
            "fa.torch, decode": lambda: decode_attention(row, k, v),
            "fa.torch_npu, decode": lambda: torch_npu.npu_incre_flash_attention(
                row, k, v, num_heads=1, scale_value=D**-0.5, input_layout="BNSD"),
        },
    }


def training(s):
    """Works like inference(), but with gradients. A call returns the gradient of the queries."""
    leaves = [torch.randn(1, 1, s, D, requires_grad=True) for _ in range(3)]
    d_out = torch.randn(1, 1, s, D)

    def step(function):
        return lambda: torch.autograd.grad(function(*leaves), leaves, d_out)[0]

    def by_npu(q, k, v):
        return torch_npu.npu_fusion_attention(q, k, v, 1, "BNSD", scale=D**-0.5)[0]

    return {"forward and backward": {BASE: step(by_torch), "fa.torch": step(scaled_dot_product_attention),
                                     "fa.torch_npu": step(by_npu)}}


def check(kind, faces):
    """Raises ValueError for an interface whose result differs from PyTorch's by more than TOLERANCE."""
    want = faces[BASE]().detach().flatten()
    for name, call in faces.items():
        apart = (torch.as_tensor(call()).detach().flatten() - want).abs().max().item()
        if not apart <= TOLERANCE:
            raise ValueError(f"{kind}, {name}: {apart:.2g} from PyTorch's result, want {TOLERANCE:.2g}")


def microseconds(function):
    begin = time.thread_time()
    for _ in range(CALLS):
        function()
    return (time.thread_time() - begin) / CALLS * 1e6


def measure(sizes, rounds):
    """@return {(kind of call, interface): microseconds per call, one for each size}"""
    torch.manual_seed(1)
    kinds = {s: [(kind, faces, recorded) for make, recorded in ((inference, False), (training, True))
                 for kind, faces in make(s).items()] for s in sizes}
    best = {}
    for number in range(rounds):
        for s in sizes:
            for kind, faces, recorded in kinds[s]:
                with torch.set_grad_enabled(recorded):
                    if number == 0:
                        check(kind, faces)
                    for face, call in faces.items():
                        of_face = best.setdefault((kind, face), {})
                        of_face[s] = min(of_face.get(s, float("inf")), microseconds(call))
    return {key: [of_face[s] for s in sizes] for key, of_face in best.items()}


def measure_in_c(program, sizes):
    """@return microseconds per call in C++, one for each size; each is the best of 25 repetitions"""
    command = [str(program), "--benchmark_filter=BM_Call", "--benchmark_format=json", "--benchmark_repetitions=25",
               "--benchmark_min_time=0.002"]
    lines = json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)["benchmarks"]
    return [min(line["cpu_time"] for line in lines if line["run_type"] == "iteration" and line["run_name"] == f"BM_Call/rows:{s}")
            * 1e-3 for s in sizes]


def main():
    torch.set_num_threads(1)
    fa.set_default_context(fa.Context(threads=1))
    rows = measure(SIZES, int(sys.argv[1] if len(sys.argv) > 1 else 25))
    if os.path.exists(IN_C):
        rows = {("forward", "C++"): measure_in_c(IN_C, SIZES)} | rows
    else:
        print(f"{IN_C} is not built: no row of C++", file=sys.stderr)
    print(f"| B = N = 1, D = {D}, f32, µs; rows and keys: | " + " | ".join(map(str, SIZES)) + " |\n|---|" + "---:|" * len(SIZES))
    for (kind, face), figures in rows.items():
        print(f"| {kind}: {face} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()
