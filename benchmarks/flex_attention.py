"""Times fa.torch.flex_attention against PyTorch's compiled flex_attention: forward, create_block_mask, and gradients.

    python benchmarks/flex_attention.py [--rows 2048] [--repeats 7] [--threads 1]

PyTorch has no gradient of flex_attention on CPUs, so gradients are compared with scaled_dot_product_attention and a
dense bool mask. Both sides run in turn in one process, and their results are compared. The program prints the smallest
CPU time of all threads in milliseconds. PyTorch's function needs a C++ compiler, and half a minute to compile each
case.
"""

import argparse
import time

import torch
import torch.nn.attention.flex_attention as host

import fa
import fa.torch

HEADS, SIZE = 16, 128


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < 256)


def documents_of(rows):
    names = torch.arange(rows) * 4 // rows

    def documents(b, h, i, j):
        return (i >= j) & (names[i] == names[j])

    return documents


def shuffled_of(rows):
    """Returns a mask in which the kept keys of a row form no interval."""
    names = torch.arange(rows) % 7
    return lambda b, h, i, j: names[i] == names[j]


def best(functions, repeats):
    """Returns the smallest CPU milliseconds of each function. They run in turn."""
    times = {name: float("inf") for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.process_time()
            function()
            times[name] = min(times[name], 1e3 * (time.process_time() - start))
    return times


def show(label, times):
    (theirs, mine), names = times.values(), " / ".join(times)
    print(f"{label:34}{theirs:10.1f}{mine:10.1f}{theirs / mine:8.2f}  {names}", flush=True)


def check(got, want, rows):
    """Fails unless the results agree. Each may be off by a few roundings to its type, and one rounding to float32 per
    key.
    """
    roundings = 16 * torch.finfo(want.dtype).eps + rows * torch.finfo(torch.float32).eps
    assert (got.float() - want.float()).abs().max() <= roundings * want.float().abs().max()


def measure(name, mask_mod, dtype, args):
    rows, label = args.rows, f"{name}, {str(dtype).removeprefix('torch.')}"
    query, key, value, d_out = (torch.randn(1, HEADS, rows, SIZE).to(dtype) for _ in range(4))
    mask = fa.torch.create_block_mask(mask_mod, None, None, rows, rows)
    torch._dynamo.reset()
    compiled = torch.compile(host.flex_attention)
    functions = {
        "compiled": lambda: compiled(query, key, value, block_mask=mask),
        "fa": lambda: fa.torch.flex_attention(query, key, value, block_mask=mask),
    }
    if args.without_compiler:
        del functions["compiled"]
        print(f"{label:34}{best(functions, args.repeats)['fa']:20.1f}")
    else:
        check(functions["fa"](), functions["compiled"](), rows)
        show(f"{label}, forward", best(functions, args.repeats))
    pairs = host.create_mask(mask_mod, None, None, rows, rows, device="cpu")
    leaves = [t.requires_grad_() for t in (query, key, value)]

    def gradients(out):
        return torch.autograd.grad(out, leaves, d_out)

    functions = {
        "SDPA": lambda: gradients(torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=pairs)),
        "fa": lambda: gradients(fa.torch.flex_attention(*leaves, block_mask=mask)),
    }
    for mine, theirs in zip(functions["fa"](), functions["SDPA"](), strict=True):
        check(mine, theirs, rows)
    show(f"{label}, with gradients", best(functions, args.repeats))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without-compiler", action="store_true", help="do not compile PyTorch's function")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    fa.set_default_context(fa.Context(threads=args.threads))
    print(f"torch {torch.__version__}, {args.threads} threads, [1, {HEADS}, {args.rows}, {SIZE}], CPU milliseconds")
    print(f"{'':34}{'theirs':>10}{'fa':>10}{'ratio':>8}")
    masks = {"causal": causal, "window 256": window, "four documents": documents_of(args.rows)}
    for rows in (args.rows, 8 * args.rows):
        for name, mask_mod in {"causal": causal, "shuffled documents": shuffled_of(rows)}.items():
            makers = {"PyTorch": host.create_block_mask, "fa": fa.torch.create_block_mask}
            calls = {who: lambda make=make: make(mask_mod, None, None, rows, rows, "cpu") for who, make in makers.items()}
            show(f"create_block_mask {rows}, {name}", best(calls, 3))
    for dtype in (torch.float32, torch.bfloat16):
        for name, mask_mod in masks.items():
            measure(name, mask_mod, dtype, args)


if __name__ == "__main__":
    main()
