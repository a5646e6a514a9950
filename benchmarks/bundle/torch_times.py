"""Times PyTorch's scaled_dot_product_attention for benchmarks/bundle. Reads cases from standard input, one JSON object
per line. Prints each case again with its time: {"op", "heads", "s", "d", "dtype", "causal", "threads", "seconds"}.
Measures the rate of the CPU's arithmetic unit right before and after each round, as `fa bench` does."""

import ctypes
import json
import os
import sys
import time

import torch

AGREEMENT = 0.03
# The pause after a call, because the call's threads may spin for some milliseconds.
SETTLE_SECONDS = 0.01

library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpeer_read_rate.so"))
library.fa_peer_peak_rate.restype = ctypes.c_double
library.fa_peer_peak_rate.argtypes = [ctypes.c_int, ctypes.c_bool, ctypes.c_double]


def call_of(case):
    """@return a function that computes the case once"""
    shape = 1, case["heads"], case["s"], case["d"]
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=case["op"] == "backward") for _ in range(3))

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case["causal"])

    if case["op"] == "forward":
        return forward
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def measure(case):
    torch.set_num_threads(case["threads"])
    call = call_of(case)
    call()
    rounds, spent = [], 0.0

    def peak():
        time.sleep(SETTLE_SECONDS)
        return library.fa_peer_peak_rate(case["threads"], case["dtype"] == "bf16", 0.002)

    before = peak()
    while len(rounds) < 3 or spent < case["seconds"]:
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
        after = peak()
        rounds.append((seconds, max(before, after) <= (1 + AGREEMENT) * min(before, after)))
        spent += seconds
        before = after
    quiet = sorted(seconds for seconds, is_quiet in rounds if is_quiet)
    every = sorted(seconds for seconds, _ in rounds)
    chosen = quiet or every
    return {"best": chosen[0], "median": chosen[len(chosen) // 2], "rounds": {"all": len(rounds), "quiet": len(quiet)}}


for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(case | {"version": torch.__version__, "torch": measure(case)}), flush=True)
