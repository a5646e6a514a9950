"""Times layers whose rows list keys (DeepSeek-V3.2): benchmarks/selections.py [--types f32] [--threads 1] [--rounds 7]

Each row lists 2048 random keys, for 16 heads. "prefill" is a prompt of 4096 tokens by "sdpa", whose mask gets the lists
as DeepSeek-V3.2 gives them, and by "fa". "few rows" is a call of 1 to 16 rows by fa's two ways: a mask of pairs, and
listed keys read in place. The calls take turns, and the least CPU time of each counts. Before, results are compared.
"""

import argparse
import functools

import torch
from torch.nn.functional import scaled_dot_product_attention

from pair_masks import best

from fa._model import selection
from fa.transformers import attention_forward

HEADS, LISTED, ROWS, DTYPES = 16, 2048, 4096, {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def compared(calls, rounds):
    """@return the least CPU time of each call, in their order. The calls take turns."""
    want = None
    for name, call in calls.items():
        result = call()
        dtype, got = result.dtype, result.double()
        want = got if want is None else want
        # Both sides round scores, probabilities and results to the type, and add up 2048 products in f32.
        bound = 4 * torch.finfo(dtype).eps + LISTED**0.5 * torch.finfo(torch.float32).eps
        assert (got - want).norm() <= bound * want.norm(), name
    return list(best(calls, rounds).values())


def by_sdpa(query, key, value, lists):
    rows, keys = query.shape[2], key.shape[2]
    dropped = torch.ones((1, rows, keys), dtype=torch.bool).scatter(-1, lists.long(), False)
    seen = ~dropped & torch.ones((rows, keys), dtype=torch.bool).tril()
    return scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None]).transpose(1, 2)


def by_fa(query, key, value, lists, causal):
    module = torch.nn.Module()
    module.is_causal = causal
    return attention_forward(module, query, key, value, None, indices=lists)[0]


def by_way(reads_lists, call):
    """Calls `call` with one of fa's ways for few rows."""
    rule, selection.is_short = selection.is_short, lambda *_: reads_lists
    try:
        return call()
    finally:
        selection.is_short = rule


def inputs(rows, keys, size, value_size, dtype, causal):
    """@return query, key, value and lists"""
    tensors = [torch.randn(1, HEADS, *shape).to(dtype) for shape in ((rows, size), (keys, size), (keys, value_size))]
    scores = torch.rand(1, rows, keys)
    if causal:
        scores -= torch.ones(rows, keys).triu(1)
    return *tensors, scores.topk(LISTED, -1).indices.int()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="f32,bf16", help="of " + ", ".join(DTYPES))
    parser.add_argument("--works", default="prefill,few rows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for name in given.types.split(","):
        for sizes in ((192, 128), (128, 128)) if "prefill" in given.works else ():
            tensors = inputs(ROWS, ROWS, *sizes, DTYPES[name], True)
            calls = {"sdpa": functools.partial(by_sdpa, *tensors), "fa": functools.partial(by_fa, *tensors, True)}
            sdpa, fa = compared(calls, given.rounds)
            sizes = "/".join(map(str, sizes))
            print(f"prefill {name}, heads of {sizes}: sdpa {sdpa:.3f} s, fa {fa:.3f} s, sdpa / fa {sdpa / fa:.2f}", flush=True)
        for keys in (2.5, 4, 8, 16, 40) if "few rows" in given.works else ():
            for rows in (1, 4, 16):
                call = functools.partial(by_fa, *inputs(rows, int(LISTED * keys), 192, 128, DTYPES[name], False), False)
                calls = {way: functools.partial(by_way, way == "lists", call) for way in ("mask", "lists")}
                mask, lists = (1e3 * t for t in compared(calls, given.rounds))
                figures = f"mask {mask:.1f} ms, lists {lists:.1f} ms, mask / lists {mask / lists:.2f}"
                print(f"few rows {name}, {rows} of {keys} x {LISTED} keys: {figures}", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
