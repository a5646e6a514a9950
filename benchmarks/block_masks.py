"""Measures what a mask of blocks costs: benchmarks/block_masks.py [--threads N] [--rounds N] [--rows S]

Tensors are bf16 [1, 2, S, 128]. Each row of blocks keeps the same share of the blocks, drawn at random. A figure is the
time of a call with the mask divided by the time of the same call without one. `making` is the time to make the mask.
Calls of all shares take turns. A time is the smallest CPU time of all threads over the rounds, as in pair_masks.py.
Before the timing, each result is compared with the result of a call that gets the mask as a bool tensor.
"""

import argparse
import functools

import torch
from pair_masks import best, call_of, check

import fa

HEADS, SIZE = 2, 128
KEPT = {"1": 1, "1/2": 2, "1/4": 4, "1/8": 8, "1/16": 16}  # {share: one block of this many is kept}


def blocks_of(count, of):
    """@return bool [1, HEADS, count, count], where each row keeps count // of blocks"""
    order = torch.rand(1, HEADS, count, count).argsort(-1)
    return order < count // of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4096)
    given = parser.parse_args()
    context = fa.Context(threads=given.threads)
    torch.manual_seed(0)
    tensors = [torch.randn(1, HEADS, given.rows, SIZE).to(torch.bfloat16) for _ in range(4)]
    print(f"{'':12}{'block':>6}{'dense ms':>10}" + "".join(f"{share:>7}" for share in KEPT) + f"{'making ms':>11}")
    for block in (128, 64):
        blocks = {share: blocks_of(given.rows // block, of) for share, of in KEPT.items()}
        sizes = {"rows": given.rows, "keys": given.rows, "block_size": (block, block)}
        make = functools.partial(fa.PairMask.from_block_mask, **sizes)
        masks = {share: make(kept) for share, kept in blocks.items()}
        making = best({"1/2": functools.partial(make, blocks["1/2"])}, given.rounds)["1/2"]
        for direction in ("forward", "backward"):
            calls = {}
            for share, mask in {"dense": None, **masks}.items():
                results = fa.flash_attention(*tensors[:3], dense_mask=mask, context=context)
                call = functools.partial(call_of, direction, tensors, results, context, fa.Mask.none())
                calls[share] = functools.partial(call, mask)
                if mask is None:
                    continue
                pairs = ~blocks[share].repeat_interleave(block, 2).repeat_interleave(block, 3)
                for got, want in zip(calls[share](), call(pairs), strict=True):
                    check(got, want, given.rows)
            times = best(calls, given.rounds)
            ratios = "".join(f"{times[share] / times['dense']:7.3f}" for share in KEPT)
            print(f"{direction:12}{block:6}{1e3 * times['dense']:10.1f}{ratios}{1e3 * making:11.2f}")


if __name__ == "__main__":
    main()
