"""Greedy generation gives the same tokens with "fa" as with "eager", with caches, padding and pages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hf_models import greedy, model_of, tokens, with_attention
from reference import assert_within, attention, tolerances
from test_transformers_masks import Sizes
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig, StaticCache

from fa._model import pages

NEW = 12


def _caches(config) -> dict:
    return {
        "none": None,
        "dynamic": DynamicCache(),
        "dynamic_of_config": DynamicCache(config=config),
        "static": StaticCache(config=config, max_cache_len=48),
    }


def _generate(model, cache: str, **inputs):
    config = model.config.get_text_config(decoder=True)
    cached = {} if cache == "none" else {"past_key_values": _caches(config)[cache]}
    return greedy(model, NEW, **inputs, **cached, use_cache=cache != "none")


def _prompts(padded: bool) -> dict[str, torch.Tensor]:
    ids = tokens(2, 15, seed=4)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :6] = 0
        ids[0, :6] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _cases() -> list[tuple[str, str, bool]]:
    dense = ["llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3"]
    cases = [(name, cache) for name in dense for cache in ("none", "dynamic", "dynamic_of_config", "static")]
    # Models that select keys take no plain DynamicCache, because their caches also store keys of the indexer. MiniMax
    # runs without padding. With padding, its choice of blocks depends on rows without keys, in which fa differs from
    # eager.
    cases += [("deepseek_v32", cache) for cache in ("none", "dynamic_of_config", "static")]
    return [(*case, padded) for case in cases for padded in (False, True)] + [
        ("minimax_m3_vl", cache, False) for cache in ("none", "dynamic_of_config")
    ]


@pytest.mark.parametrize(("name", "cache", "padded"), _cases())
def test_tokens_are_eagers(name, cache, padded):
    model = model_of(name)
    got, logits = _generate(model, cache, **_prompts(padded))
    want, eager_logits = _generate(with_attention(model, "eager"), cache, **_prompts(padded))
    assert got.shape == (2, 15 + NEW)
    assert torch.equal(got, want)
    torch.testing.assert_close(logits, eager_logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["t5", "bart", "whisper"])
def test_tokens_of_encoder_decoders_are_eagers(name):
    model = model_of(name)
    inputs = _prompts(padded=False)
    if name == "whisper":
        inputs = {"input_features": torch.randn(2, 8, 48, generator=torch.Generator().manual_seed(1))}
    else:
        inputs["attention_mask"][1, 10:] = 0
    eager = with_attention(model, "eager")
    got, logits = _generate(model, "none", **inputs)
    want, eager_logits = _generate(eager, "none", **inputs)
    assert torch.equal(got, want)
    torch.testing.assert_close(logits, eager_logits, rtol=1e-4, atol=1e-4)
    got = model.generate(**inputs, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW)
    want = eager.generate(**inputs, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW)
    assert torch.equal(got, want)


def test_a_prompt_in_parts_is_the_whole_prompt():
    model = model_of("mistral")
    ids = tokens(2, 30, seed=2)
    want = model(ids, use_cache=False).logits
    for cache in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=40)):
        parts = [model(part, past_key_values=cache).logits for part in ids.split([11, 1, 17, 1], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "left"])
def test_a_step_makes_no_tensor_as_large_as_a_cache(name, padded):
    """Decodes one token after 4000 others. The cache must be read in place, and its heads must not be repeated."""
    model = model_of(name, positions=4096)
    cache = StaticCache(config=model.config, max_cache_len=4096)
    ids = tokens(2, 4000)
    mask = torch.ones(2, 4001, dtype=torch.int64)
    mask[0, : 100 * padded] = 0
    with torch.no_grad():
        model(ids, attention_mask=mask[:, :-1], past_key_values=cache)
        with Sizes() as sizes:
            model(ids[:, :1], attention_mask=mask, past_key_values=cache)
    full = next(layer for layer in cache.layers if not layer.is_sliding)
    of_one_head = full.keys[:, :1].numel() * full.keys.itemsize
    assert 0 < sizes.largest_new < of_one_head


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss"])
def test_continuous_batching_gives_the_tokens_of_each_request_alone(name):
    """Serves five requests, more than fit into one batch, in pages of 8 tokens. Batches have parts of prompts, steps,
    or both."""
    model = model_of(name)
    prompts = [tokens(length, seed=length).tolist() for length in (3, 21, 9, 30, 14)]
    settings = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0)
    pages = ContinuousBatchingConfig(page_size=8, num_blocks=24, max_batch_tokens=24, use_async_batching=False)
    results = model.generate_batch(prompts, settings, continuous_batching_config=pages, warmup=False)
    assert model.config._attn_implementation == "fa"
    got = [results[key].generated_tokens for key in sorted(results, key=lambda key: int(key.split("_")[-1]))]
    for prompt, new in zip(prompts, got, strict=True):
        want = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW)
        assert new == want[0, len(prompt) :].tolist()


class _GatheringCache:
    """The part of a PagedAttentionCache of transformers 5.16 to 5.18 that attention sees. It holds one layer."""

    def __init__(self, window: int, has_allocators: bool):
        if has_allocators:  # as 5.18 has
            allocator = SimpleNamespace() if window == 1 else SimpleNamespace(sliding_window=window)
            self.layer_to_allocator = {0: allocator}
        else:
            self.sliding_windows = {0: window}  # 1 stands for no window
        self.key, self.value = (torch.randn(64, 2, 16) for _ in range(2))

    def update(self, key_states, value_states, layer_idx, read_index, write_index):
        for held, new in ((self.key, key_states), (self.value, value_states)):
            held.index_copy_(0, write_index[layer_idx], new[0].transpose(0, 1))
        return self.key[read_index[0]], self.value[read_index[0]]


@pytest.mark.parametrize("has_allocators", [False, True])
@pytest.mark.parametrize("window", [1, 8])
def test_caches_that_gather_keys_are_those_of_transformers_5_16_to_5_18(window, has_allocators, monkeypatch):
    """Two requests, of three tokens after 17 keys and of one token after 9 keys."""
    monkeypatch.setattr(pages, "_GATHERS", True)
    cache = _GatheringCache(window, has_allocators)
    places = torch.randperm(64)[:30]
    layer_type = "full_attention" if window == 1 else "sliding_attention"
    batch = {"cu_seq_lens_q": torch.tensor([0, 3, 4]), "cu_seq_lens_k": {layer_type: torch.tensor([0, 20, 30])}}
    batch |= {"read_index": [places], "write_index": [torch.cat([places[17:20], places[29:30]])]}
    query, (key, value) = torch.randn(1, 4, 4, 16), (torch.randn(1, 2, 4, 16) for _ in range(2))
    call = pages.ModelCall(scale=0.25)
    got = pages.attend_pages(0, query, key, value, cache, call, batch)
    for rows, keys in ((slice(0, 3), places[:20]), (slice(3, 4), places[20:])):
        q, *kv = query[0][:, rows].double(), cache.key[keys].double(), cache.value[keys].double()
        q, k, v = q[None], *(t.transpose(0, 1)[None] for t in kv)
        place = torch.arange(len(keys))
        distance = place - place[-q.shape[2] :, None]
        keep = (distance <= 0) & ((distance > -window) | (window == 1))
        options = {"scale": 0.25, "keep": keep}
        want = attention(q, k, v, **options)[0]
        bound = tolerances(q, k, v, torch.zeros_like(want), torch.float32, **options)["out"]
        assert_within(got[:, rows].transpose(1, 2), want, bound, f"window {window}")
