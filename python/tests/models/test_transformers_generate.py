"""Greedy generation gives the same tokens with "fa" as with "eager", with caches, padding and pages."""

from __future__ import annotations

import pytest
import torch
from hf_models import greedy, model_of, tokens, with_attention
from test_transformers_masks import Sizes
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig, StaticCache

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
    # is not padded, because it selects blocks by rows without keys, in which fa differs from eager.
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
