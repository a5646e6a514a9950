"""Compares a bool mask or fa.PairMask with a fa.Mask that keeps the same pairs of row and key:

    benchmarks/pair_masks.py [--threads N] [--rounds N] [--rows S]

The masks are a causal window of 256 keys and four causal documents, for [1, 16, S, 128]. A figure is the time of a call
divided by the time of the same call with the fa.Mask. `tensor` passes a bool tensor. `made` makes a fa.PairMask and
passes it. `kept` passes a fa.PairMask that was made before. The calls take turns, and the best round of each counts. A
round's time is the CPU time of all threads together, which a busy machine changes least. Before the timing, results are
compared.
"""

import argparse
import functools
import time

import torch

import fa

HEADS, SIZE, WINDOW, DOCUMENTS = 16, 128, 256, 4


def masks(rows):
    """@return {name: (fa.Mask, bool tensor of the pairs that it drops)}"""
    place = torch.arange(rows)
    begins = {"window": (place - WINDOW + 1).clamp(min=0), "documents": place // (rows // DOCUMENTS) * (rows // DOCUMENTS)}
    dropped = {name: (place < begin[:, None]) | (place > place[:, None]) for name, begin in begins.items()}
    return {name: (fa.Mask.rows(begin.tolist(), (place + 1).tolist()), dropped[name]) for name, begin in begins.items()}


def best(calls, rounds):
    """@return {name: the least CPU time of a call}, of calls that take turns"""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
    return {name: min(of_call) for name, of_call in times.items()}


def call_of(direction, tensors, results, context, mask, dense_mask):
    """Computes one call, and returns its outputs. `dense_mask` may be a function that makes the mask."""
    keywords = {"mask": mask, "dense_mask": dense_mask() if callable(dense_mask) else dense_mask, "context": context}
    if direction == "forward":
        return (fa.flash_attention(*tensors[:3], **keywords).out,)
    gradients = fa.flash_attention_grad(*tensors[:3], results.out, tensors[3], *results[1:], **keywords)
    return gradients.dq, gradients.dk, gradients.dv


def check(got, want, rows):
    """Fails unless the results agree. Each may be off by a few roundings to its type, and one rounding to float32 per
    key.
    """
    roundings = 16 * torch.finfo(want.dtype).eps + rows * torch.finfo(torch.float32).eps
    assert (got.float() - want.float()).abs().max() <= roundings * want.float().abs().max()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=2048)
    given = parser.parse_args()
    context = fa.Context(threads=given.threads)
    print(f"{'':28}{'rule ms':>9}{'tensor':>9}{'made':>9}{'kept':>9}")
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [torch.randn(1, HEADS, given.rows, SIZE).to(dtype) for _ in range(4)]
        for name, (rule, dropped) in masks(given.rows).items():
            results = fa.flash_attention(*tensors[:3], mask=rule, context=context)
            make = functools.partial(fa.PairMask.from_bool, dropped, drops=True, context=context)
            for direction in ("forward", "backward"):
                call = functools.partial(call_of, direction, tensors, results, context)
                forms = {"rule": (rule, None), "tensor": (None, dropped), "made": (None, make), "kept": (None, make())}
                calls = {form: functools.partial(call, *masks_of) for form, masks_of in forms.items()}
                want = calls["rule"]()
                for form, computed in calls.items():
                    # Without a fa.Mask, a call adds the gradients of key blocks in another order.
                    for got, output in zip(computed(), want, strict=True):
                        check(got, output, given.rows)
                times = best(calls, given.rounds)
                ratios = "".join(f"{times[form] / times['rule']:9.2f}" for form in ("tensor", "made", "kept"))
                print(f"{direction:10}{str(dtype).removeprefix('torch.'):10}{name:8}{1e3 * times['rule']:9.1f}{ratios}")


if __name__ == "__main__":
    main()
