"""Times PyTorch's scaled_dot_product_attention with fa's kernels in the dispatcher (fa.torch.activate) against PyTorch's
own kernels.

    benchmarks/pytorch_operators.py [--types f32,bf16] [--threads 2] [--rounds 9]

It runs where fa-attention is installed with PyTorch (docs/pytorch_operators.md). If the package has libfa_torch,
the kernels of libfa_torch are timed, and otherwise the kernels in Python. Results are compared first. Both sides take
turns within one process, and the smallest CPU time of all rounds counts.
"""

import argparse
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import fa.torch
from rounds import order_of

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CASES = {
    (1, 4, 64, 32): {"is_causal": False},
    (1, 16, 2048, 128): {"is_causal": True},
}
SIDES = {"torch": fa.torch.deactivate, "fa": fa.torch.activate}


def call_of(shape, dtype, gradient, options):
    """Returns a function that computes the call and returns its results."""
    tensors = [torch.randn(shape).to(dtype).requires_grad_(gradient) for _ in range(3)]
    d_out = torch.randn(shape).to(dtype)

    def run():
        out = scaled_dot_product_attention(*tensors, **options)
        return torch.autograd.grad(out, tensors, d_out) if gradient else (out,)

    return run


def check(run, dtype, keys):
    """Raises ValueError unless the results of both sides agree up to rounding. The bound allows a few roundings to the
    type, and the float32 roundings of sums over the keys.
    """
    results = []
    for choose in SIDES.values():
        choose()
        results.append(run())
    for want, got in zip(*results, strict=True):
        error = ((got.double() - want.double()).norm() / want.double().norm()).item()
        if not error <= 8 * torch.finfo(dtype).eps + keys**0.5 * torch.finfo(torch.float32).eps:
            raise ValueError(f"the results differ by {error:.1e}")


def measure(run, rounds, calls):
    """Returns {side: the smallest CPU seconds of a call}."""
    best = dict.fromkeys(SIDES, float("inf"))
    for number in range(rounds):
        for name in order_of(list(SIDES), number):
            SIDES[name]()
            run()
            began = time.process_time()
            for _ in range(calls):
                run()
            best[name] = min(best[name], (time.process_time() - began) / calls)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="f32,bf16", help="of " + ", ".join(TYPES))
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own choice")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(7)
    print(f"{torch.get_num_threads()} threads | torch CPU µs | fa CPU µs | torch / fa")
    for shape, options in CASES.items():
        for dtype in arguments.types.split(","):
            for gradient in (False, True):
                run = call_of(shape, TYPES[dtype], gradient, options)
                check(run, TYPES[dtype], shape[2])
                best = measure(run, arguments.rounds, max(1, 2**22 // (shape[1] * shape[2] ** 2 * shape[3])))
                figures = f"{best['torch'] * 1e6:.1f} | {best['fa'] * 1e6:.1f} | {best['torch'] / best['fa']:.2f}"
                print(f"{list(shape)}, {dtype}{', gradient' * gradient} | {figures}", flush=True)
    fa.torch.deactivate()


if __name__ == "__main__":
    main()
