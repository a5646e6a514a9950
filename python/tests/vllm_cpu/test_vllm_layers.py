"""Single layers of dense attention in fa.vllm, compared with attention in float64."""

from __future__ import annotations

import types

import pytest
import torch
import vllm_steps
from vllm.v1.attention.backend import AttentionType
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVQuantMode
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
    step = Step(RAGGED, dtype=dtype, int8=True)
    impl = step.impl(kv_cache_dtype="int8_per_token_head", **OPTIONS["everything"])
    step.run(impl)
    step.check(impl)


INT8 = {name: OPTIONS[name] for name in ("plain", "slopes", "everything")}


@pytest.mark.parametrize("options", INT8.values(), ids=INT8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_cache_of_int8_has_one_scale_per_token_and_head(dtype, options):
    step = Step(RAGGED, dtype=dtype, int8=True)
    impl = step.impl(kv_cache_dtype="int8_per_token_head", **options)
    step.run(impl)
    step.check(impl)


def test_codes_and_scales_of_int8():
    step = Step([(3, 3)], padding=0, int8=True, size=5, size_v=3)
    impl = step.impl(kv_cache_dtype="int8_per_token_head")
    step.key[0, 0], step.key[1, 1] = torch.tensor([127.0, -2.6, 0.4, 0.0, 0.6]), torch.zeros(5)
    step.value[0, 0] = torch.tensor([-12.7, 0.06, 6.36])
    impl.do_kv_cache_update(None, step.key, step.value, step.cache, step.slots)
    pages = impl._pages_of(step.cache)
    assert [tuple(part.shape[1:]) for part in pages] == [(2, 16, 5), (2, 16, 3), (2, 16, 1), (2, 16, 1)]
    assert sum(part[0, 0].numel() * part.element_size() for part in pages) == step.cache[0, 0].numel()
    key, value, key_scale, value_scale = (part[step.table[0, 0]] for part in pages)
    assert key[0, 0].tolist() == [127, -3, 0, 0, 1]
    assert value[0, 0].tolist() == [-127, 1, 64]
    assert (key_scale[0, 0], value_scale[0, 0]) == (1, torch.tensor(12.7) / 127)
    assert key[1, 1].tolist() == [0] * 5 and key_scale[1, 1] == 0
    assert all(part[:, 3:].isnan().all() for part in (key_scale, value_scale))
    assert all((part[:, 3:] == -1).all() for part in (key, value))


def test_an_int8_cache_makes_room_for_scales():
    spec = FullAttentionSpec(
        block_size=16, num_kv_heads=2, head_size=32, dtype=torch.int8, kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD
    )
    assert vllm_steps.dense.AttentionBackend.customize_spec(spec).state_content_bytes == 72
    plain = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=32, dtype=torch.float32)
    assert vllm_steps.dense.AttentionBackend.customize_spec(plain) is plain


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
    step.check(impl)


@pytest.mark.parametrize("window", [None, 8])
def test_each_request_has_its_own_causal_flag(window):
    step = Step([(1, 9), (4, 30), (4, 30), (40, 60)], causal=[True, False, True, False])
    impl = step.impl(sliding_window=window)
    step.run(impl)
    step.check(impl)


def test_a_window_without_causality_bounds_both_sides():
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
    keys, values, *_ = impl._pages_of(step.cache)
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


def test_a_request_has_the_same_bits_alone_and_in_a_batch():
    """Computes the same rows over the same keys with other requests in the batch, and with other places of the
    blocks.
    """
    step = Step([(64, 200), (1, 33), (3, 40), (1, 300), (16, 90), (17, 50), (70, 70)])
    impl = step.impl()
    together = step.run(impl).clone()
    for i, (tokens, keys) in enumerate(step.requests):
        alone = Step([(tokens, keys)], padding=0)
        own = slice(step.starts[i], step.starts[i + 1])
        alone.earlier = [step.earlier[i]]
        alone.query, alone.key, alone.value = step.query[own], step.key[own], step.value[own]
        assert torch.equal(alone.run(alone.impl()), together[own])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_prompt_in_chunks_is_the_whole_prompt(options):
    """Computes 300 tokens in one step, and in steps of 20 that find the earlier tokens in the cache."""
    whole = Step([(300, 300)], padding=0)
    impl = whole.impl(**options)
    output = torch.zeros(300, 4, 32)
    for begin in range(0, 300, 20):
        chunk = Step([(20, begin + 20)], padding=0)
        own = slice(begin, begin + 20)
        chunk.earlier = [[whole.key[:begin], whole.value[:begin]]]
        chunk.query, chunk.key, chunk.value = whole.query[own], whole.key[own], whole.value[own]
        output[own] = chunk.run(chunk.impl(**options))
        chunk.check(impl)
    whole.run(impl)
    whole.check(impl)
    whole.output = output
    whole.check(impl)


@pytest.mark.parametrize("sinks", [None, SINKS], ids=["", "sinks"])
def test_biases_of_a_long_prompt_are_as_exact_as_those_of_a_short_one(sinks):
    """With the steepest slope of 12 heads, distant keys have no weight. If biases counted from the end of the prompt,
    those of the first rows would be 6000 with errors of 2^-12.
    """
    step = Step([(8192, 8192)], heads=2, heads_kv=1, size=16, size_v=16, padding=0)
    impl = step.impl(alibi_slopes=[0.75, 0.7071], sinks=None if sinks is None else sinks[:2])
    step.run(impl)
    head = Step([(300, 300)], heads=2, heads_kv=1, size=16, size_v=16, padding=0)
    head.key, head.value, head.query, head.output = (t[:300] for t in (step.key, step.value, step.query, step.output))
    head.check(impl)


def test_sinks_that_change_between_two_steps_count():
    """A trainer copies new weights into a model's parameters."""
    sinks = torch.nn.Parameter(SINKS.bfloat16())
    step = Step(RAGGED)
    impl = step.impl(sinks=sinks)
    step.run(impl)
    step.check(impl)
    sinks.data.copy_(torch.tensor([3.0, 2.0, -1.0, 4.0]))
    step.run(impl)
    step.check(impl)


def test_an_encoders_requests_have_their_own_causal_flags():
    step = Step([(5, 5), (90, 90), (17, 17), (1, 1)], causal=[True, False, True, True])
    impl = step.impl(AttentionType.ENCODER_ONLY)
    step.run(impl)
    step.check(impl)


def test_errors_name_vllms_arguments():
    for name in ("query", "key", "value"):
        step = Step([(5, 5)], causal=False)
        setattr(step, name, getattr(step, name).double())
        with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
            step.run(step.impl(AttentionType.ENCODER_ONLY))
    step = Step(DECODES)
    impl = step.impl()
    metadata = vllm_steps.builder().build(0, step.metadata())
    with pytest.raises((TypeError, ValueError), match="kv_cache"):
        impl.forward(None, step.query, None, None, step.cache.double(), metadata, step.output)
    with pytest.raises((TypeError, ValueError), match="kv_cache"):
        impl.do_kv_cache_update(None, step.key, step.value, step.cache.double(), step.slots)


def test_a_bad_block_table_is_refused_before_rows_are_written():
    step = Step([(1, 5), (40, 60), (1, 300)])
    impl = step.impl()
    step.table[2, 3] = step.blocks
    metadata = vllm_steps.builder().build(0, step.metadata())
    with pytest.raises(ValueError, match="block_table"):
        impl.forward(None, step.query, None, None, step.cache, metadata, step.output)
    assert (step.output == 77.0).all()


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


def handed_back(monkeypatch, impl, step, reason):
    """Checks that fa.vllm hands the layer's calls to vLLM's own class, and that vLLM's builder makes the metadata."""
    seen = []
    host = fa.vllm.AttentionBackend.get_impl_cls().__mro__[1]
    hosts_builder = fa.vllm.AttentionBackend.get_builder_cls().__mro__[1]
    monkeypatch.setattr(host, "forward", lambda *arguments: seen.append(arguments))
    monkeypatch.setattr(host, "do_kv_cache_update", lambda *arguments: seen.append(arguments))
    monkeypatch.setattr(hosts_builder, "build", lambda *arguments: "the host's")
    builder = vllm_steps.builder()
    del builder._handed_back
    builder.vllm_config, builder.layer_names = None, ["layer"]
    layers = {"layer": types.SimpleNamespace(impl=impl)}
    monkeypatch.setattr(vllm_steps.dense, "get_layers_from_vllm_config", lambda *_: layers)
    assert builder.build(0, step.metadata()) == "the host's"
    before = fa.vllm.calls().get(f"handed_back: {reason}", 0)
    impl.do_kv_cache_update(None, step.key, step.value, step.cache, step.slots)
    impl.forward(None, step.query, step.key, step.value, step.cache, object(), step.output)
    assert len(seen) == 2
    assert fa.vllm.calls()[f"handed_back: {reason}"] == before + 1


@pytest.fixture
def written(monkeypatch):
    """Returns a list to which fa.vllm appends its warnings."""
    words = []
    log = types.SimpleNamespace(warning_once=lambda *given: words.append(given[0] % given[1:]))
    monkeypatch.setattr(vllm_steps.dense, "init_logger", lambda name: log)
    return words


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e5m2"])
def test_fp8_caches_go_to_vllms_own_class(monkeypatch, written, dtype):
    step = Step(DECODES)
    handed_back(monkeypatch, step.impl(kv_cache_dtype=dtype), step, f"kv_cache_dtype={dtype}")
    assert written == [f"fa.vllm: vLLM's own code computes layers: kv_cache_dtype={dtype}"]


@pytest.mark.parametrize(("name", "value"), [("is_mm_prefix_lm", True), ("rswa_window", 64)])
def test_models_whose_masks_vllm_ignores_on_cpus_go_to_vllms_own_class(monkeypatch, written, name, value):
    model = {"dtype": torch.float32, "is_mm_prefix_lm": False, "rswa_window": None, name: value}
    vllm_steps.use_config(monkeypatch, model_config=types.SimpleNamespace(**model))
    step = Step(DECODES)
    handed_back(monkeypatch, step.impl(), step, name)
    assert written == [f"fa.vllm: vLLM's own code computes layers: {name}"]


@pytest.mark.parametrize(("name", "value"), [("is_mm_prefix_lm", True), ("rswa_window", 64)])
def test_a_cache_of_int8_never_goes_to_vllms_own_class(monkeypatch, name, value):
    """vLLM's own class has no code for int8. It would write floats, past the end of the cache."""
    model = {"dtype": torch.float32, "is_mm_prefix_lm": False, "rswa_window": None, name: value}
    vllm_steps.use_config(monkeypatch, model_config=types.SimpleNamespace(**model))
    with pytest.raises(NotImplementedError, match=f"kv_cache_dtype=int8_per_token_head: .* {name}"):
        Step(DECODES, int8=True).impl(kv_cache_dtype="int8_per_token_head")


@pytest.mark.parametrize("dtype", ["int4_per_token_head", "nvfp4", "fp8_per_token_head"])
def test_caches_that_nobody_computes_on_cpus_are_refused_at_start(dtype):
    with pytest.raises(NotImplementedError, match=f"kv_cache_dtype={dtype}"):
        Step(DECODES).impl(kv_cache_dtype=dtype)


def test_requests_of_one_token_come_first(monkeypatch):
    asked = []
    monkeypatch.setattr(vllm_steps.dense.CPUAttentionMetadataBuilder, "__init__", lambda *_: None)
    monkeypatch.setattr(
        vllm_steps.dense.AttentionMetadataBuilder, "_init_reorder_batch_threshold", lambda _, *given: asked.append(given)
    )
    vllm_steps.dense.AttentionMetadataBuilder(None, [], None, None)
    assert asked == [(1, False)]
