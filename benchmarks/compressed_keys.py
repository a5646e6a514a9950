"""Times decodes against compressed keys and values, by fa and by every peer that has such a cache.

    compressed_keys.py --threads 2 --out build/benchmarks/results.json

fa reads int8 and e4m3 with a scale per key and head, and int4 with a scale per key and 32 columns. ggml reads q8_0 and
q4_0. ONNX Runtime's GroupQueryAttention and OpenVINO's stateful attention read int8. PyTorch first converts the keys
and values of one sequence or of all to bf16. Results are compared with attention to the uncompressed keys and values.
All calls take turns in one process. A peer that is not installed is left out. report.py writes the table.
"""

import argparse
import datetime
import importlib
import math
import os
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

import fa
import machine
import results as store
from operator_cases import flash, normal
from operators import add_options, distance, results_of, seconds_of, time_in_turn
from peers.client import reading_library, restart_unlocked

sys.path.append(str(Path(__file__).with_name("peers")))
from worker import read_rate  # noqa: E402

# B, N, Nkv, Sk, D of the cases. Each sequence has one row of queries.
CASES = {"8 sequences, 4096 keys": (8, 32, 8, 4096, 128), "1 sequence, 32768 keys": (1, 32, 8, 32768, 128)}
GROUP = 32  # the columns of int4 that share a scale
NARROW = 2.0**-8


@dataclass(frozen=True)
class Side:
    """One way to compute a case."""

    call: Callable  # takes no arguments and returns the output, [B, N, 1, D]
    bits: float  # bits per element of K and V, including the scales
    error: float  # the error of K and V by compression, as a fraction of their norm


def rounded(x, largest, columns):
    """Returns integers up to `largest`, and their scales per key and group of columns."""
    groups = x.unflatten(-1, (-1, columns))
    scales = groups.abs().amax(-1, keepdim=True) / largest
    return (groups / scales).round().flatten(-2), scales[..., 0]


def error_of(x, codes, scales):
    """Returns the norm of the error of the decompressed codes, divided by the norm of x."""
    return distance([codes.unflatten(-1, (scales.shape[-1], -1)) * scales.unsqueeze(-1)], [x])


class Formats:
    """Compressed keys and values of one case."""

    def __init__(self, k, v):
        size = k.shape[-1]
        self.int8 = [rounded(x, 127, size) for x in (k, v)]
        self.int4 = [rounded(x, 7, GROUP) for x in (k, v)]
        scaled = [(x, x.abs().amax(-1, keepdim=True) / 448) for x in (k, v)]
        self.e4m3 = [((x / scale).to(torch.float8_e4m3fn), scale) for x, scale in scaled]
        self.errors = {name: max(error_of(x, codes.float(), scales) for x, (codes, scales) in zip((k, v), pairs))
                       for name, pairs in (("int8", self.int8), ("int4", self.int4), ("e4m3", self.e4m3))}


def packed(integers):
    """Returns two integers of 4 bits per byte, the first in the low bits."""
    low, high = (integers.to(torch.int32) & 15).unflatten(-1, (-1, 2)).unbind(-1)
    return (low | high << 4).to(torch.uint8)


def own_sides(q, k, v, formats):
    """Returns {name: Side} for fa: decodes of bf16, int8, e4m3 and int4."""
    wide = [x.bfloat16() for x in (k, v)]
    stored = {"int8": [(codes.to(torch.int8), scales) for codes, scales in formats.int8], "e4m3": formats.e4m3,
              "int4": [(packed(codes), scales) for codes, scales in formats.int4]}

    def side(name, bits):
        (keys, k_scale), (values, v_scale) = stored[name]
        kind = name if name == "int4" else None
        return Side(lambda: fa.decode_attention(q, keys, values, k_scale=k_scale, v_scale=v_scale, kv_dtype=kind), bits,
                    formats.errors[name])

    per_key = 32 / k.shape[-1]
    return {"fa bf16": Side(lambda: fa.decode_attention(q, *wide), 16, 0), "fa int8": side("int8", 8 + per_key),
            "fa e4m3": side("e4m3", 8 + per_key), "fa int4": side("int4", 4 + 32 / GROUP)}


def torch_sides(q, k, v, formats):
    """Returns PyTorch's sides. Compressed keys and values are first converted to bf16, one sequence at a time or all at
    once, and then the flash kernel or two matrix products compute attention. The fastest of these ways is chosen.
    """
    batch, heads_kv = k.shape[:2]
    grouped = q.view(batch, heads_kv, -1, q.shape[-1])

    def products(q, k, v):
        return ((q @ k.transpose(2, 3)).float() * q.shape[-1] ** -0.5).softmax(-1).bfloat16() @ v

    def call(cache, attention, chunk):
        parts = []
        for b in range(0, batch, chunk):
            wide = [codes[b : b + chunk].bfloat16() * scales[b : b + chunk] for codes, scales in cache]
            parts.append(attention(grouped[b : b + chunk], *wide))
        return torch.cat(parts).view(q.shape)

    def side(name, cache):
        ways = [(attention, chunk) for attention in (flash, products) for chunk in sorted({1, batch})]
        best = min(ways, key=lambda way: min(seconds_of(lambda: call(cache, *way)) for _ in range(3)))
        return Side(lambda: call(cache, *best), 8 + 16 / k.shape[-1], formats.errors[name])

    wide = [x.bfloat16() for x in (k, v)]
    int8 = [(codes.to(torch.int8), scales.bfloat16()) for codes, scales in formats.int8]
    e4m3 = [(codes, scales.bfloat16()) for codes, scales in formats.e4m3]
    return {"PyTorch bf16": Side(lambda: flash(grouped, *wide).view(q.shape), 16, 0),
            "PyTorch int8, to bf16": side("int8", int8), "PyTorch e4m3, to bf16": side("e4m3", e4m3)}


def ggml_sides(q, k, v, formats, threads):
    """Returns ggml's sides. A scale is f16 and belongs to 32 columns. ggml also rounds q to the type with which it
    multiplies keys.
    """
    ggml = importlib.import_module("ggml_peer")

    def side(dtype, arrays, error):
        peer = ggml.GgmlPeer()
        peer.about()
        peer.build(q.float().numpy(), *arrays, dtype, threads)

        def call():
            peer.call()
            return peer

        bits = 8 * ggml.BLOCK_BYTES[dtype] / ggml.BLOCK if dtype in ggml.BLOCK_BYTES else 16
        return Side(call, bits, error)

    floats = [x.numpy() for x in (k, v)]
    # q8_0 and q4_0 have one scale per 32 columns. So the error of q8_0 is below that of int8, which has one per key and
    # head. The largest code of q4_0 is 8, and that of int4 is 7.
    sides = {"f16": side("f16", [x.half().numpy() for x in (k, v)], 0)}
    sides |= {name: side(name, floats, formats.errors[of]) for name, of in (("q8_0", "int8"), ("q4_0", "int4"))}
    return {f"ggml {name}": side for name, side in sides.items()}


def onnxruntime_sides(q, k, v, formats, threads):
    """Returns the sides of GroupQueryAttention, whose int8 cache has a scale per head and column. Queries are f32."""
    peer = importlib.import_module("onnxruntime_peer")
    (batch, heads, _, d), (heads_kv, keys) = q.shape, k.shape[1:3]
    case = {"dtype": "f32", "batch": batch, "heads": heads, "heads_kv": heads_kv, "sq": 1, "sk": keys, "d": d,
            "threads": threads}
    scales = [x.abs().amax((0, 2), keepdim=True) / 127 for x in (k, v)]
    codes = [(x / scale).round().to(torch.int8) for x, scale in zip((k, v), scales)]
    error = max(distance([code * scale], [x]) for code, scale, x in zip(codes, scales, (k, v)))
    arrays = [x.numpy() for x in (q.float(), k, v)]

    def side(bits, error, **cache):
        one = peer.OnnxRuntimePeer()
        one.case = case
        one.prepare_group_query(*arrays, past=keys - 1, **cache)

        def call():
            one.call()
            return one

        return Side(call, bits, error)

    quantised = {"cache": [x.numpy() for x in codes], "scales": [x.flatten().numpy() for x in scales]}
    return {"ONNX Runtime f32": side(32, 0), "ONNX Runtime int8": side(8, error, **quantised)}


def openvino_sides(q, k, v, formats, threads):
    """Returns OpenVINO's sides: attention over a state that keeps u8 with a scale per key and head, or bf16."""
    peer = importlib.import_module("openvino_peer")
    arrays = [x.float().numpy() for x in (q, k, v)]

    def side(precision, bits, error):
        return Side(peer.StatefulAttention(*arrays, precision, threads), bits, error)

    return {"OpenVINO bf16": side("bf16", 16, 0), "OpenVINO u8": side("u8", 8 + 64 / k.shape[-1], formats.errors["int8"])}


PEERS = {"ggml": ggml_sides, "onnxruntime": onnxruntime_sides, "openvino": openvino_sides}


def output_of(result, shape):
    """Returns the output of a side as f32 [B, N, 1, D]."""
    if isinstance(result, torch.Tensor):
        return result.float()
    batch, heads, rows, columns = shape
    return torch.from_numpy(result.result(batch, heads, rows, columns)).view(shape)


def limit_of(side):
    """Returns how far a result may be from attention to the uncompressed keys and values, as a fraction of the result's
    norm. Errors of K and V are independent, and each changes the output by its own fraction. A peer may compress Q as
    it compresses K. Queries, probabilities and the output may be rounded to bf16. The factor 2 covers how far a
    sample's error may be from the expected one.
    """
    return 2 * (math.sqrt(3) * side.error + math.sqrt(3) * NARROW)


def measure(sizes, args, left_out):
    batch, heads, heads_kv, keys, d = sizes
    k, v = (normal(batch, heads_kv, keys, d) for _ in range(2))
    q = normal(batch, heads, 1, d).bfloat16()
    formats = Formats(k, v)
    sides = own_sides(q, k, v, formats) | torch_sides(q, k, v, formats)
    for name, make in PEERS.items():
        try:
            sides |= make(q, k, v, formats, args.threads)
        except ImportError as error:
            left_out[name] = str(error)
    want = scaled_dot_product_attention(q.view(batch, heads_kv, -1, d).double(), k.double(), v.double()).view(q.shape)
    errors, wrong = {}, {}
    for name, side in sides.items():
        errors[name] = distance([output_of(side.call(), q.shape)], [want])
        if not errors[name] <= limit_of(side):
            wrong[name] = f"off by {errors[name]:.3g}, want at most {limit_of(side):.3g}"
    elements = 2 * batch * heads_kv * keys * d
    wide = [x.bfloat16() for x in (k, v)]
    request = {"library": reading_library(args.build), "threads": args.threads, "seconds": args.seconds}
    rate = read_rate([(x.data_ptr(), x.nbytes) for x in wide], request)
    timed = time_in_turn({name: side.call for name, side in sides.items() if name not in wrong}, args)
    rate = max(rate, read_rate([(x.data_ptr(), x.nbytes) for x in wide], request))
    return {"sizes": sizes, "threads": args.threads, "date": datetime.date.today().isoformat(), "errors": errors,
            "wrong": wrong, "read_gbytes": rate, **timed,
            "bytes": {name: elements * side.bits / 8 for name, side in sides.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    args = parser.parse_args()
    restart_unlocked("compressed_keys", args.build, machine.describe()["vendor"])
    torch.set_num_threads(args.threads)
    fa.set_default_context(fa.Context(threads=args.threads))
    results = results_of(args)
    measured, left_out = results.setdefault("compressed", {}), {}
    for name, sizes in CASES.items():
        key = f"{name}/{args.threads}"
        if not fnmatch(name, args.only) or (key in measured and not args.again):
            continue
        normal.generator.manual_seed(7)
        measured[key] = measure(sizes, args, left_out)
        store.save(args.out, results)
        print(f"{key}: {measured[key].get('busy', '')} memory {measured[key]['read_gbytes']:.1f} GB/s; left out: {left_out}")
        for side, by in measured[key].get("by", {}).items():
            gbytes = measured[key]["bytes"][side] / by["best"] * 1e-9
            print(f"  {side}: {1e3 * by['best']:.2f} ms, {gbytes:.1f} GB/s, error {measured[key]['errors'][side]:.1e}")
        for side, why in measured[key]["wrong"].items():
            print(f"  {side}: {why}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # so that idle threads of one library leave the CPUs to the next
    main()
