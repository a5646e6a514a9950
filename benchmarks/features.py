"""What a feature costs next to the plain call: benchmarks/features.py [--threads N] [--rounds N]

Time per kept FLOP of a call with the feature by that of the plain call of the same process: two heads, the best of all
rounds, in which the plain call and all features take turns. pse is dense per head, of the type named; the mask is [S,S]
and drops a tenth; dropout keeps 0.9; TND is four sequences of 93 to 1377 rows. Rows of each result are compared with
attention in double before anything is timed.
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
# Operands are rounded to the type before; P is rounded to bf16 for products of pairs. Values are unit normals.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
PLAIN = "plain"


def inputs(rows, d, dtype):
    """q, k, v, d_out: [1, HEADS, rows, d]."""
    return [torch.randn(1, HEADS, rows, d).to(dtype) for _ in range(4)]


def features(s, dtype):
    """By name of the feature: the keywords of a call of s rows and keys."""
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
    """Arguments of the packed call, its keywords and its kept pairs per head by those of a plain call of ROWS."""
    total = sum(LENGTHS)
    tensors = [torch.randn(total, HEADS, d).to(dtype) for _ in range(4)]
    ends = np.cumsum(LENGTHS).tolist()
    return tensors, {"layout": "TND", "cu_q": ends, "cu_kv": ends}, sum(length * length for length in LENGTHS)


def expected_row(q, k, v, head, row, keywords):
    """One row of the output in double. q, k, v: [1, HEADS, s, d]."""
    q, k, v = (t[0, head].double().numpy() for t in (q, k, v))
    s, d = k.shape
    scores = k @ q[row] / math.sqrt(d)
    if "softcap" in keywords:
        scores = CAP * np.tanh(scores / CAP)
    if keywords.get("pse_type") == 2:
        scores = scores - float(keywords["pse"][head]) * np.abs(np.arange(s) - row)
    elif "pse" in keywords:
        scores = scores + keywords["pse"][0, head, row].double().numpy() / math.sqrt(d)
    if "dense_mask" in keywords:
        scores = np.where(keywords["dense_mask"][row].numpy(), -np.inf, scores)
    p = np.exp(scores - scores.max())
    p /= p.sum()
    if "keep_prob" in keywords:
        bits = np.unpackbits(fa.generate_dropout_mask(SEED, 0, KEEP, HEADS * s * s), bitorder="little")
        first = (head * s + row) * s
        p = np.where(bits[first:first + s] != 0, p / KEEP, 0)
    return p @ v


def check(name, q, k, v, keywords):
    """Raises ValueError for a feature whose result is wrong."""
    out = fa.flash_attention(q, k, v, **keywords).out
    for head, row in ((0, 0), (HEADS - 1, q.shape[2] - 1), (0, q.shape[2] // 2)):
        want = expected_row(q, k, v, head, row, keywords)
        apart = np.abs(out[0, head, row].double().numpy() - want).max()
        if not apart <= TOLERANCE[q.dtype]:
            raise ValueError(f"{name}: row {row} of head {head} is {apart:.2g} from the result in double, "
                             f"want {TOLERANCE[q.dtype]:.2g}")


def call_of(direction, tensors, keywords):
    """A function of no arguments that is timed."""
    q, k, v, d_out = tensors
    if direction == "forward":
        return lambda: fa.flash_attention(q, k, v, **keywords)
    result = fa.flash_attention(q, k, v, **keywords)
    return lambda: fa.flash_attention_grad(q, k, v, result.out, d_out, result.softmax_max, result.softmax_sum, **keywords)


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(direction, dtype, d, rounds, s):
    """@return by name of the feature: time per kept FLOP by the plain call's"""
    tensors = inputs(s, d, dtype)
    calls, pairs = {}, {}
    for name, keywords in features(s, dtype).items():
        if name == "pse" and dtype == torch.float32:
            continue
        check(name, *tensors[:3], keywords)
        calls[name], pairs[name] = call_of(direction, tensors, keywords), s * s
    of_packed, keywords, kept = packed(d, dtype)
    calls["TND"], pairs["TND"] = call_of(direction, of_packed, keywords), kept
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
