"""Single layers of fa.vllm, dense attention, against attention in float64."""

from __future__ import annotations

import pytest
import torch
import vllm_steps
from vllm.v1.attention.backend import AttentionType
from vllm_steps import Step

import fa
import fa.vllm
from fa import _fa

DECODES = [(1, 5), (1, 1), (1, 300), (1, 33)]
RAGGED = [(1, 5), (1, 300), (3, 3), (16, 40), (0, 7), (17, 17), (64, 200), (1, 16), (5, 128)]
SLOPES = [0.5, 0.25, 0.125, 0.0625]
SINKS = torch.tensor([0.3, -1.0, 2.0, 0.0])
OPTIONS = {
    "plain": {},
    "window": {"sliding_window": 24},
    "softcap": {"logits_soft_cap": 3.0},
    "slopes": {"alibi_slopes": SLOPES},
    "sinks": {"sinks": SINKS},
    "sinks in bf16": {"sinks": SINKS.bfloat16()},
    "everything": {"sliding_window": 40, "logits_soft_cap": 5.0, "alibi_slopes": SLOPES, "sinks": SINKS},
}


@pytest.fixture(autouse=True)
def _config(monkeypatch):
    vllm_steps.use_config(monkeypatch)


@pytest.fixture(params=_fa.levels())
def _level(request):
    before = fa.set_default_context(fa.Context(threads=2, isa=request.param))
    yield
    fa.set_default_context(before)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("requests", [DECODES, RAGGED], ids=["decodes", "ragged"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_step_is_attention_of_each_request(dtype, requests, options):
    step = Step(requests, dtype=dtype)
    impl = step.impl(**options)
    step.run(impl)
    step.check(impl)


@pytest.mark.usefixtures("_level")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_level(dtype):
    step = Step(RAGGED, dtype=dtype)
    impl = step.impl(**OPTIONS["everything"])
    step.run(impl)
    step.check(impl)


@pytest.mark.parametrize(("block", "size", "size_v"), [(16, 80, 80), (32, 64, 48), (64, 128, 128), (128, 40, 72)])
def test_blocks_and_heads_of_any_size(block, size, size_v):
    step = Step(RAGGED, block=block, size=size, size_v=size_v, heads=6, heads_kv=3)
    impl = step.impl()
    step.run(impl)
    step.check(impl)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("attn_type", [AttentionType.ENCODER, AttentionType.ENCODER_ONLY])
def test_an_encoder_sees_both_sides_and_has_no_cache(attn_type, options):
    step = Step([(n, n) for n in (5, 1, 90, 17)], causal=False)
    impl = step.impl(attn_type, **options)
    step.cache = None
    step.run(impl)
    step.check(impl, encoder=True)


def test_each_request_has_its_own_causal_flag():
    step = Step([(1, 9), (4, 30), (4, 30), (40, 60)], causal=[True, False, True, False])
    impl = step.impl()
    step.run(impl)
    step.check(impl)


def test_a_window_without_causality_bounds_the_left_only():
    step = Step([(6, 60), (30, 60)], causal=False)
    impl = step.impl(sliding_window=8)
    step.run(impl)
    step.check(impl)


def test_cross_attention_reads_the_encoders_keys():
    step = Step([(1, 50), (4, 30)], causal=False)
    impl = step.impl(AttentionType.ENCODER_DECODER)
    keys, values = (torch.randn(80, 2, 32) for _ in range(2))
    slots = torch.cat([step.slots_of(0, 0, 50), step.slots_of(1, 0, 30)])
    impl.do_kv_cache_update(None, keys, values, step.cache, slots)
    metadata = step.metadata()
    metadata.causal = True  # vLLM's runner says so of every step
    impl.forward(None, step.query, None, None, step.cache, vllm_steps.builder(cross=True).build(0, metadata), step.output)
    step.earlier = [[keys[:50], values[:50]], [keys[50:], values[50:]]]
    step.check(impl)


def test_slots_of_minus_one_are_not_written_and_rows_past_the_slots_are_ignored():
    step = Step([(8, 8)], padding=0)
    impl = step.impl()
    slots = torch.tensor([3, -1, 17, -1, 0, 5])
    impl.do_kv_cache_update(None, step.key, step.value, step.cache, slots)
    keys, values = impl._pages_of(step.cache)
    written = torch.zeros(step.blocks, step.block, dtype=torch.bool)
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            at = slot // 16, slice(None), slot % 16
            assert torch.equal(keys[at], step.key[row]) and torch.equal(values[at], step.value[row])
            written[slot // 16, slot % 16] = True
    for pages in (keys, values):
        assert pages.transpose(1, 2)[~written].isnan().all()


def test_a_slot_past_the_cache_is_refused():
    step = Step([(2, 2)], padding=0)
    with pytest.raises(ValueError, match="slot_mapping"):
        step.impl().do_kv_cache_update(None, step.key, step.value, step.cache, torch.tensor([0, step.blocks * 16]))


def test_a_layer_that_shares_a_cache_reads_what_it_holds():
    step = Step(RAGGED)
    step.impl().do_kv_cache_update(None, step.key, step.value, step.cache, step.slots)
    impl = step.impl(shared="model.layers.0")
    step.run(impl)
    step.check(impl)


def test_a_prompt_in_chunks_gives_the_bits_of_each_chunk_alone():
    """The same rows over the same keys, whatever else is in the batch and wherever the blocks lie."""
    step = Step([(64, 200), (1, 33), (3, 40), (1, 300), (16, 90), (17, 50), (70, 70)])
    impl = step.impl()
    together = step.run(impl).clone()
    for i, (tokens, keys) in enumerate(step.requests):
        alone = Step([(tokens, keys)], padding=0)
        own = slice(step.starts[i], step.starts[i + 1])
        alone.earlier = [step.earlier[i]]
        alone.query, alone.key, alone.value = step.query[own], step.key[own], step.value[own]
        assert torch.equal(alone.run(alone.impl()), together[own])


def test_padding_of_a_cache_between_blocks_is_skipped():
    step = Step(RAGGED)
    whole = torch.full((step.blocks, step.cache[0].numel() + 48), torch.nan)
    step.cache = whole[:, : step.cache[0].numel()].view(step.cache.shape)
    impl = step.impl()
    step.run(impl)
    step.check(impl)


def test_a_warm_up_writes_nothing():
    step = Step(DECODES)
    assert step.impl().forward(None, step.query, step.key, step.value, step.cache, None, step.output) is step.output
    assert (step.output == 77.0).all()


def test_calls_are_counted():
    before = fa.vllm.calls()
    for requests in (DECODES, RAGGED, DECODES):
        step = Step(requests)
        step.run(step.impl())
    added = {name: count - before.get(name, 0) for name, count in fa.vllm.calls().items()}
    assert (added["decode"], added["prefill"]) == (2, 1)


@pytest.mark.parametrize("scale", ["output_scale", "output_block_scale"])
def test_quantized_outputs_are_refused(scale):
    step = Step(DECODES)
    tensors = step.query, step.key, step.value, step.cache, None, step.output
    with pytest.raises(NotImplementedError, match=scale):
        step.impl().forward(None, *tensors, **{scale: torch.ones(1)})


def test_unknown_options_are_refused():
    with pytest.raises(NotImplementedError, match="chunk_lookback"):
        Step(DECODES).impl(chunk_lookback=3)


@pytest.mark.parametrize(("name", "value"), [("mm_req_doc_ranges", {0: [(1, 3)]}), ("rswa_prefix_lens", torch.ones(4))])
def test_masks_of_requests_that_are_not_served_are_refused(name, value):
    metadata = Step(DECODES).metadata()
    setattr(metadata, name, value)
    with pytest.raises(NotImplementedError, match=name):
        vllm_steps.builder().build(0, metadata)
    metadata = Step(DECODES).metadata()
    metadata.mm_req_doc_ranges = {0: [], 1: []}
    vllm_steps.builder().build(0, metadata)


def test_a_kv_connector_is_refused(monkeypatch):
    vllm_steps.use_config(monkeypatch, kv_transfer_config=object())
    with pytest.raises(ValueError, match="kv_transfer_config: blocks of CPU_ATTN are packed, ours are not"):
        Step(DECODES).impl()


def test_fp8_caches_go_to_vllms_own_class(monkeypatch):
    step, seen = Step(DECODES), []
    host = fa.vllm.AttentionBackend.get_impl_cls().__mro__[1]
    monkeypatch.setattr(host, "forward", lambda *arguments: seen.append(arguments))
    monkeypatch.setattr(host, "do_kv_cache_update", lambda *arguments: seen.append(arguments))
    impl = step.impl(kv_cache_dtype="fp8")
    before = fa.vllm.calls().get("handed_back: fp8 cache", 0)
    impl.do_kv_cache_update(None, step.key, step.value, step.cache, step.slots)
    impl.forward(None, step.query, step.key, step.value, step.cache, object(), step.output)
    assert len(seen) == 2
    assert fa.vllm.calls()["handed_back: fp8 cache"] == before + 1
