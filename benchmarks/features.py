"""Measures how much slower a feature makes a call: benchmarks/features.py [--threads N] [--rounds N]

A figure is the time per computed pair of query and key with the feature, divided by the same time of a plain call. Both
calls have two heads and run in one process. They take turns, and the best round of each counts. A pse is a dense bias
per head, in the named type. The mask is [S,S] and drops a tenth of the pairs. Dropped pairs are computed too. Dropout
keeps 90 % of the pairs. TND has four sequences of 93 to 1377 rows. Before the timing, rows of the output and of dQ are
compared with attention in double.
"""

import argparse
import math
import time

import numpy as np
import torch

import fa

HEADS = 2
LENGTHS = (1377, 93, 702, 501)
KEEP, SEED, CAP = 0.9, 11, 20.0
ROWS = {"forward": 2048, "backward": 1024}
# The bounds for errors of rows. Operands are unit normals, rounded to the type. In bf16, P is also rounded.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
PLAIN = "plain"


def inputs(rows, d, dtype):
    """@return q, k, v and d_out, each [1, HEADS, rows, d]"""
    return [torch.randn(1, HEADS, rows, d).to(dtype) for _ in range(4)]


def features(s, dtype):
    """@return {feature: keywords of a call of s rows and keys}"""
    pse = torch.randn(1, HEADS, s, s)
    return {
        PLAIN: {},
        "pse f32": {"pse": pse},
        "pse": {"pse": pse.to(dtype)},
        "slopes": {"pse": torch.tensor([0.5, 0.25]), "pse_type": 2},
        "dense mask": {"dense_mask": torch.rand(s, s) < 0.1},
        "softcap": {"softcap": CAP},
        "dropout by seed": {"keep_prob": KEEP, "seed": SEED},
        "dropout by mask": {"keep_prob": KEEP,
                            "drop_mask": fa.generate_dropout_mask(SEED, 0, KEEP, HEADS * s * s)},
    }


def packed(d, dtype):
    """@return the tensors of a call on packed sequences, the call's keywords, and the number of pairs per head that the
    call computes"""
    tensors = [torch.randn(sum(LENGTHS), HEADS, d).to(dtype) for _ in range(4)]
    ends = np.cumsum(LENGTHS).tolist()
    return tensors, {"layout": "TND", "cu_q": ends, "cu_kv": ends}, sum(length * length for length in LENGTHS)


def expected_rows(q, k, v, d_out, head, row, keywords):
    """@return one row of the output and of dQ, in double. The arguments are arrays of one head: [s, d]"""
    s, d = k.shape
    scale, chain = 1 / math.sqrt(d), 1.0
    scores = k @ q[row] * scale
    if "softcap" in keywords:
        tanh = np.tanh(scores / CAP)
        scores, chain = CAP * tanh, 1 - tanh**2
    if keywords.get("pse_type") == 2:
        scores = scores - float(keywords["pse"][head]) * np.abs(np.arange(s) - row)
    elif "pse" in keywords:
        scores = scores + scale * keywords["pse"][0, head, row].double().numpy()
    if "dense_mask" in keywords:
        scores = np.where(keywords["dense_mask"][row].numpy(), -np.inf, scores)
    p = np.exp(scores - scores.max())
    p /= p.sum()
    kept = np.ones(s)
    if "keep_prob" in keywords:
        bits = np.unpackbits(fa.generate_dropout_mask(SEED, 0, KEEP, HEADS * s * s), bitorder="little")
        kept = bits[(head * s + row) * s:][:s] / KEEP
    d_p = kept * (v @ d_out[row])
    d_s = p * (d_p - p @ d_p) * chain
    return (kept * p) @ v, scale * d_s @ k


def heads_of(tensor):
    """Yields (head, rows [s, d] in double) for every head of a tensor [1, N, s, d]."""
    return list(enumerate(tensor[0].double().numpy()))


def packed_heads(tensor):
    """Yields (head, rows [s, d] in double) for every head of every sequence in a packed tensor [T, N, d]."""
    parts = np.split(tensor.double().numpy(), np.cumsum(LENGTHS)[:-1])
    return [(head, part[:, head]) for part in parts for head in range(HEADS)]


def check(name, tensors, keywords, heads=heads_of):
    """Raises ValueError for a feature whose output or dQ is wrong."""
    q, k, v, d_out = tensors
    result = fa.flash_attention(q, k, v, **keywords)
    grads = fa.flash_attention_grad(q, k, v, result.out, d_out, result.softmax_max, result.softmax_sum, **keywords)
    for parts in zip(*map(heads, (*tensors, result.out, grads.dq)), strict=True):
        head, arrays = parts[0][0], [array for _, array in parts]
        for row in sorted({0, len(arrays[0]) // 2, len(arrays[0]) - 1}):
            wanted = expected_rows(*arrays[:4], head, row, keywords)
            for what, got, want in zip(("output", "dQ"), arrays[4:], wanted, strict=True):
                apart = np.abs(got[row] - want).max()
                if not apart <= TOLERANCE[q.dtype]:
                    raise ValueError(f"{name}: row {row} of head {head} of the {what} is {apart:.2g} from the result in "
                                     f"double, want {TOLERANCE[q.dtype]:.2g}")


def call_of(direction, tensors, keywords):
    """@return the function without arguments that is timed"""
    q, k, v, d_out = tensors
    if direction == "forward":
        return lambda: fa.flash_attention(q, k, v, **keywords)
    done = fa.flash_attention(q, k, v, **keywords)
    return lambda: fa.flash_attention_grad(q, k, v, done.out, d_out, done.softmax_max, done.softmax_sum, **keywords)


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(direction, dtype, d, rounds, s):
    """@return {feature: time per computed pair, divided by the plain call's}"""
    tensors = inputs(s, d, dtype)
    calls, pairs = {}, {}
    for name, keywords in features(s, dtype).items():
        if name == "pse" and dtype == torch.float32:
            continue
        check(name, tensors, keywords)
        calls[name], pairs[name] = call_of(direction, tensors, keywords), s * s
    of_packed, keywords, pairs["TND"] = packed(d, dtype)
    check("TND", of_packed, keywords, packed_heads)
    calls["TND"] = call_of(direction, of_packed, keywords)
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call))
    plain = best[PLAIN] / pairs[PLAIN]
    return {name: best[name] / pairs[name] / plain for name in calls if name != PLAIN}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--isa", help="an instruction-set level; default: the CPU's best")
    args = parser.parse_args()
    torch.manual_seed(1)
    context = fa.Context(threads=args.threads) if args.isa is None else fa.Context(threads=args.threads, isa=args.isa)
    fa.set_default_context(context)
    header = None
    for direction in ROWS:
        for d in (128, 64):
            for dtype in (torch.float32, torch.bfloat16):
                ratios = measure(direction, dtype, d, args.rounds, ROWS[direction])
                names = [name for name in features(8, torch.bfloat16) if name != PLAIN] + ["TND"]
                if header is None:
                    header = "| call | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names)
                    print(header)
                cells = [f"{ratios[name]:.2f}" if name in ratios else "–" for name in names]
                print(f"| {direction} {str(dtype)[6:]}, D = {d} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
