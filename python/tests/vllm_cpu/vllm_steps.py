"""Steps of vLLM for tests of single layers: requests, their caches, and attention in float64."""

from __future__ import annotations

import types
from dataclasses import dataclass, field

import torch
from reference import assert_within, attention, tolerances
from torch import Tensor
from vllm.v1.attention.backend import AttentionType, CommonAttentionMetadata

import fa.vllm._dense as dense


def use_config(monkeypatch, **members) -> None:
    """Sets the configuration that layers read while a model is built."""
    model = types.SimpleNamespace(dtype=torch.float32, is_mm_prefix_lm=False, rswa_window=None)
    config = types.SimpleNamespace(**{"kv_transfer_config": None, "model_config": model, **members})
    for module in (dense, dense.CPUAttentionBackendImpl.forward.__globals__):
        target = module if isinstance(module, dict) else vars(module)
        monkeypatch.setitem(target, "get_current_vllm_config", lambda: config)


@dataclass
class Step:
    """Requests (tokens, keys), and everything that a layer gets. Keys before the requests' tokens lie in the cache.
    Rows of the cache that belong to no key of a request are NaN.
    """

    requests: list[tuple[int, int]]
    dtype: torch.dtype = torch.float32
    block: int = 16
    heads: int = 4
    heads_kv: int = 2
    size: int = 32
    size_v: int = 32
    padding: int = 3
    causal: bool | list[bool] = True
    int8: bool = False
    keys: list[Tensor] = field(init=False)

    def __post_init__(self):
        tokens = [tokens for tokens, _ in self.requests]
        self.starts = [0, *torch.tensor(tokens).cumsum(0).tolist()]
        self.lengths = [keys for _, keys in self.requests]
        total = self.starts[-1] + self.padding
        # As in vLLM's models, the step's tensors are parts of one projection.
        sizes = [self.heads * self.size, self.heads_kv * self.size, self.heads_kv * self.size_v]
        q, k, v = torch.randn(total, sum(sizes)).to(self.dtype).split(sizes, -1)
        self.query = q.unflatten(-1, (self.heads, -1))
        self.key, self.value = (t.unflatten(-1, (self.heads_kv, -1)) for t in (k, v))
        width = max(1, *(-(-keys // self.block) for keys in self.lengths))
        self.blocks = len(self.requests) * width + 2
        owned = torch.randperm(self.blocks - 2)[: len(self.requests) * width].view(len(self.requests), width)
        self.table = torch.full((len(self.requests), width), self.blocks - 1, dtype=torch.int32)
        for i, keys in enumerate(self.lengths):
            used = -(-keys // self.block)
            self.table[i, :used] = owned[i, :used]
        self.cache = torch.full(
            (self.blocks, self.heads_kv, self.block, self.size + self.size_v), torch.nan, dtype=self.dtype
        )
        if self.int8:  # bytes whose floats are NaN
            columns = self.size + self.size_v + 8
            self.cache = torch.full((self.blocks, self.heads_kv, self.block, columns), -1, dtype=torch.int8)
        self.output = torch.full((total, self.heads, self.size_v), 77.0, dtype=self.dtype)
        self.slots = torch.full((total,), -1, dtype=torch.int64)
        self.earlier = [
            [torch.randn(keys - tokens, self.heads_kv, n).to(self.dtype) for n in (self.size, self.size_v)]
            for tokens, keys in self.requests
        ]
        for i, (tokens, keys) in enumerate(self.requests):
            self.slots[self.starts[i] : self.starts[i + 1]] = self.slots_of(i, keys - tokens, keys)

    def slots_of(self, request: int, begin: int, end: int) -> Tensor:
        place = torch.arange(begin, end)
        return self.table[request, place // self.block].long() * self.block + place % self.block

    def metadata(self, slots: Tensor | None = None) -> CommonAttentionMetadata:
        starts, lengths = (torch.tensor(numbers, dtype=torch.int32) for numbers in (self.starts, self.lengths))
        return CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=lengths,
            num_reqs=len(self.requests),
            num_actual_tokens=self.starts[-1],
            max_query_len=max(tokens for tokens, _ in self.requests),
            max_seq_len=max(self.lengths),
            block_table_tensor=self.table,
            slot_mapping=self.slots if slots is None else slots,
            causal=torch.tensor(self.causal) if isinstance(self.causal, list) else self.causal,
        )

    def impl(self, attn_type=AttentionType.DECODER, **options):
        positional = ("alibi_slopes", "sliding_window", "kv_cache_dtype", "logits_soft_cap")
        first = [options.pop(name, "auto" if name == "kv_cache_dtype" else None) for name in positional]
        shared = options.pop("shared", None)
        sizes = self.heads, self.size, self.size**-0.5, self.heads_kv
        return dense.AttentionImpl(*sizes, *first, attn_type, shared, **options)

    def run(self, impl) -> Tensor:
        """Writes all keys into the cache and computes the layer's attention."""
        for i, (key, value) in enumerate(self.earlier):
            impl.do_kv_cache_update(None, key, value, self.cache, self.slots_of(i, 0, len(key)))
        if impl.kv_sharing_target_layer_name is None:
            impl.do_kv_cache_update(None, self.key, self.value, self.cache, self.slots)
        metadata = builder().build(0, self.metadata())
        return impl.forward(None, self.query, self.key, self.value, self.cache, metadata, self.output)

    def check(self, impl) -> None:
        """Compares the output with attention in float64, request by request. Padding rows must be as they were."""
        causal = self.causal if isinstance(self.causal, list) else [self.causal] * len(self.requests)
        for i, (tokens, keys) in enumerate(self.requests):
            own = slice(self.starts[i], self.starts[i + 1])
            k, v = (
                torch.cat([before, new[own][: keys - len(before)]]).transpose(0, 1)[None]
                for before, new in zip(self.earlier[i], (self.key, self.value), strict=True)
            )
            q = self.query[own].transpose(0, 1)[None]
            distance = torch.arange(keys) - (torch.arange(tokens) + keys - tokens)[:, None]
            keep = torch.ones_like(distance, dtype=torch.bool)
            if causal[i]:
                keep &= distance <= 0
            if impl.sliding_window > 0:  # vLLM's own attributes: the arguments as they were given
                keep &= distance.abs() < impl.sliding_window
            bias = None if impl.alibi_slopes is None else impl.alibi_slopes.double()[None, :, None, None] * distance
            sink = None if impl.sinks is None else impl.sinks.double()
            options = {"scale": impl.scale, "keep": keep, "bias": bias, "sink": sink, "softcap": impl.logits_soft_cap}
            if self.int8:
                k, v = rounded_to_int8(k), rounded_to_int8(v)
            q, k, v = (t.double() for t in (q, k, v))
            want = attention(q, k, v, **options)[0]
            bound = tolerances(q, k, v, torch.zeros_like(want), self.dtype, **options)["out"]
            assert_within(self.output[own].transpose(0, 1)[None], want, bound, f"request {i}: {tokens} of {keys}")
        assert (self.output[self.starts[-1] :] == 77.0).all(), "rows of padding were written"


def rounded_to_int8(rows: Tensor) -> Tensor:
    """Returns rows [.., D] as a cache of int8 holds them: the nearest multiples of each row's scale."""
    scale = rows.float().abs().amax(-1, keepdim=True) / 127
    return (rows.float() / scale).round().double() * scale.double()


def builder(cross: bool = False):
    """Returns a builder of metadata as vLLM's runner would have made it."""
    made = dense.AttentionMetadataBuilder.__new__(dense.AttentionMetadataBuilder)
    made.is_cross_attention = cross
    made._handed_back = False
    return made
