"""fa.transformers.GrowingCache and CompressedCache: tokens, methods of layers, memory and errors."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hf_models import greedy, model_of, tokens, with_attention
from transformers import DynamicCache, Gemma3Config, LlamaConfig
from transformers.cache_utils import DynamicIndexedLayer, DynamicLayer, DynamicSlidingWindowLayer

import fa.transformers
from fa._model.caches import _Growing, _growing, _of_class
from fa.transformers import CompressedCache, GrowingCache, Int8Cache, attention_forward

NEW = 20
DENSE = ["llama", "mistral", "gemma2", "gpt_oss", "qwen3"]
LATENT = ["deepseek_v3", "deepseek_v32"]


def generated(model, cache, **keywords):
    ids = tokens(2, 15, seed=4)
    mask = torch.ones_like(ids)
    if keywords.pop("padded", False):
        mask[0, :6] = 0
        ids[0, :6] = 0
    return greedy(model, NEW, inputs=ids, attention_mask=mask, past_key_values=cache, **keywords)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", [*DENSE, *LATENT, "minimax_m3_vl"])
def test_growing_caches_give_the_bits_of_dynamic_ones(name, padded):
    if padded and name == "minimax_m3_vl":
        padded = False  # the blocks that the model selects depend on rows without keys
    model = model_of(name)
    got = generated(model, GrowingCache(model.config), padded=padded)
    want = generated(model, DynamicCache(config=model.config), padded=padded)
    assert torch.equal(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=1e-6, atol=1e-6)


def test_growing_caches_of_beams_and_assistants():
    model = model_of("mistral")
    ids = tokens(2, 15, seed=4)
    beams = {"num_beams": 3, "do_sample": False, "max_new_tokens": NEW}
    for dtype in ("int8", "e4m3"):
        got = model.generate(ids, past_key_values=CompressedCache(model.config, dtype), **beams)
        kept = _Dequantised(model.config, dtype)
        assert torch.equal(got, with_attention(model, "eager").generate(ids, past_key_values=kept, **beams))
    model = with_attention(model, "fa")
    want = model.generate(ids, past_key_values=DynamicCache(config=model.config), **beams)
    assert torch.equal(model.generate(ids, past_key_values=GrowingCache(model.config), **beams), want)
    assisted = {"assistant_model": model_of("mistral"), "do_sample": False, "max_new_tokens": NEW}
    got = model.generate(ids[:1], past_key_values=GrowingCache(model.config), **assisted)
    assert torch.equal(got, model.generate(ids[:1], do_sample=False, max_new_tokens=NEW))


def states(rows, seed):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 2, rows, 8, generator=made) for _ in range(2)]


METHODS = {
    "crop": lambda layer: layer.crop(-2),
    "crop nothing": lambda layer: layer.crop(0),
    "reorder": lambda layer: layer.reorder_cache(torch.tensor([1, 0])),
    "repeat and select": lambda layer: (layer.batch_repeat_interleave(2), layer.batch_select_indices(torch.tensor([0, 3]))),
    "reset": lambda layer: layer.reset(),
    "offload": lambda layer: (layer.offload(), layer.prefetch()),
}


def layers_of(window):
    """Returns a layer of transformers, and a layer of each cache of fa with the same window."""
    kind = "sliding_attention" if window else "full_attention"
    config = LlamaConfig(num_hidden_layers=1, layer_types=[kind], sliding_window=window)
    plain = DynamicSlidingWindowLayer(window) if window else DynamicLayer()
    return plain, GrowingCache(config).layers[0], CompressedCache(config).layers[0]


@torch.no_grad()
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("method", METHODS)
def test_the_methods_of_layers_keep_their_meaning(method, window):
    plain, growing, compressed = layers_of(window)
    for layer in (plain, growing, compressed):
        if window:
            layer.activate_past_recording()
    for step, rows in enumerate([3, 1, 1, 4, 1, 1, 1]):
        new = states(rows, step)
        want = plain.update(*new)
        assert all(torch.equal(*pair) for pair in zip(growing.update(*new), want, strict=True))
        for codes, numbers in zip(compressed.update(*new), want, strict=True):
            scale = codes._fa_scale
            assert codes.shape == numbers.shape and scale.shape == (*numbers.shape[:-1], 1)
            bound = numbers.abs().amax(-1, keepdim=True) / 127 * (0.5 + 2**-10)  # half the distance between two codes
            assert ((codes * scale - numbers).abs() <= bound).all()
        if step in (2, 4):
            for layer in (plain, growing, compressed):
                METHODS[method](layer)
        for layer in (growing, compressed):
            assert layer.get_seq_length() == plain.get_seq_length()
            assert layer.get_mask_sizes(1) == plain.get_mask_sizes(1)
        if plain.is_initialized:
            assert torch.equal(growing.keys, plain.keys) and torch.equal(growing.values, plain.values)


@torch.no_grad()
def test_rows_are_written_in_place():
    _, layer, _ = layers_of(None)
    layer.update(*states(8, 1))
    first, moved = layer.keys.data_ptr(), 0
    for step in range(100):
        before = layer.keys.data_ptr()
        layer.update(*states(1, step))
        moved += layer.keys.data_ptr() != before
    assert layer.keys.shape[2] == 108 and moved == 3  # space for 16 rows, then for 34, 70 and 142
    assert layer.keys.data_ptr() != first
    _, sliding, _ = layers_of(6)
    for step in range(100):
        sliding.update(*states(1, step))
    assert sliding.held["keys"][0].shape[2] <= 24  # the window does not grow


def test_a_copy_of_a_cache_is_independent():
    _, layer, compressed = layers_of(None)
    for one in (layer, compressed):
        one.update(*states(5, 1))
        other = copy.deepcopy(one)
        kept = other.keys.clone()
        one.crop(-3)
        one.update(*states(3, 2))
        assert torch.equal(other.keys, kept)
        other.update(*states(1, 3))
        assert torch.equal(other.keys[:, :, :5], kept)


def test_rows_that_were_returned_never_change():
    with torch.no_grad():
        for layer in layers_of(None)[1:]:
            layer.update(*states(5, 1))
            keys = layer.update(*states(1, 2))[0]
            other, kept, scale = copy.copy(layer), keys.float(), getattr(keys, "_fa_scale", torch.zeros(1))
            kept_scale = scale.clone()
            layer.crop(-1)
            layer.update(*states(2, 3))
            assert torch.equal(keys.float(), kept) and torch.equal(scale, kept_scale)
            whole = layer.keys.clone()
            other.update(*states(3, 4))
            assert torch.equal(keys.float(), kept) and torch.equal(layer.keys, whole)


def test_only_rows_of_one_shape_are_joined():
    four = [torch.randn(4, 2, 3, 8) for _ in range(2)]
    with torch.no_grad():
        for sizes in ((1, 2, 1, 8), (4, 1, 1, 8), (4, 2, 1, 1)):
            plain, growing, compressed = layers_of(None)
            new = [torch.randn(sizes) for _ in range(2)]
            for layer in (plain, growing, compressed):
                layer.update(*four)
                with pytest.raises(RuntimeError if layer is not compressed else ValueError):
                    layer.update(*new)
        plain, growing, _ = layers_of(None)
        for layer in (plain, growing):
            layer.update(*[t.bfloat16() for t in four])
        want, got = plain.update(*four)[0], growing.update(*four)[0]
        assert got.dtype == want.dtype == torch.float32 and torch.equal(got, want)


def test_a_reset_indexer_takes_another_batch():
    kind = _growing(DynamicIndexedLayer, _Growing)
    layers = DynamicIndexedLayer(), _of_class(kind, DynamicIndexedLayer(), {"held": {}})
    with torch.no_grad():
        for batch in (4, 1):
            for step in range(2):
                index, keys = torch.randn(batch, 3, 8), torch.randn(batch, 2, 3, 8)
                want, got = (layer.update_indexer(index) for layer in layers)
                assert torch.equal(got, want)
                assert torch.equal(*(layer.update(keys, keys)[0] for layer in layers))
            for layer in layers:
                layer.reset()


@torch.no_grad()
def test_codes_and_scales_stay_together():
    for window in (None, 6):
        _, _, layer = layers_of(window)
        layer.update(*states(4, 1))
        with pytest.raises(ValueError, match="^invalid argument: values of the cache are torch.float64"):
            layer.update(states(1, 2)[0], states(1, 2)[1].double())
        assert layer.get_seq_length() == layer.scales.get_seq_length() == 4
        key, value = layer.update(*states(1, 2))
        assert key.shape[2] == key._fa_scale.shape[2] == 5
        key._fa_scale = key._fa_scale[:, :, 1:]
        with pytest.raises(ValueError, match=r"^invalid argument: key.shape=\[2, 2, 5, 8\], want \[2, 2, 4, D\]"):
            attention_forward(torch.nn.Identity(), torch.randn(2, 2, 1, 8), key, value, None)
        layer.values = layer.values[:, :, 1:]
        with pytest.raises(ValueError, match=r"values of the cache have \[2, 2, 4\] rows and \[2, 2, 5\] scales"):
            layer.update(*states(1, 3))


def test_caches_can_be_pickled():
    for cache in (GrowingCache, CompressedCache, Int8Cache):
        for window in (None, 6):
            first = cache(LlamaConfig(num_hidden_layers=1, layer_types=["full_attention"]))
            first.layers = [layers_of(window)[1 if cache is GrowingCache else 2]]
            with torch.no_grad():
                first.update(*states(3, 1), 0)
                second = pickle.loads(pickle.dumps(first))
                assert type(second) is cache and type(second.layers[0]) is type(first.layers[0])
                pairs = zip(first.update(*states(1, 2), 0), second.update(*states(1, 2), 0), strict=True)
                assert all(torch.equal(a.float(), b.float()) for a, b in pairs)


def test_gradients_of_queries_pass_a_growing_cache():
    gradients = []
    for layer in layers_of(None)[:2]:
        query, total = torch.ones(2, 2, 1, 8, requires_grad=True), 0
        for step in range(3):
            keys, values = layer.update(*states(1, step))
            total = total + ((query @ keys.mT).softmax(-1) @ values).sum()
        total.backward()
        gradients.append(query.grad)
    assert torch.equal(*gradients)


def test_the_text_part_of_a_model_says_its_attention():
    config = Gemma3Config(text_config={"num_hidden_layers": 1})
    config._attn_implementation = "sdpa"
    config.text_config._attn_implementation = "fa"
    assert CompressedCache(config).layers
    config.text_config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match='config: has attn_implementation="sdpa", want "fa"'):
        CompressedCache(config)


def test_gradients_pass_through_a_growing_cache():
    _, layer, _ = layers_of(None)
    first, second = ([t.requires_grad_() for t in states(3, seed)] for seed in (1, 2))
    layer.update(*first)
    keys, values = layer.update(*second)
    (keys.square().sum() + values.sum()).backward()
    assert torch.equal(first[0].grad, 2 * first[0]) and torch.equal(second[1].grad, torch.ones_like(second[1]))


def test_inference_mode_and_back():
    _, layer, _ = layers_of(None)
    with torch.inference_mode():
        layer.update(*states(3, 1))
    keys, _ = layer.update(*states(2, 2))
    assert torch.equal(keys, torch.cat([states(3, 1)[0], states(2, 2)[0]], 2))


class _Dequantised(DynamicCache):
    """Quantises every row to 8-bit codes, and stores the numbers that the codes stand for."""

    def __init__(self, config, dtype):
        super().__init__(config=config)
        self.codes = dtype

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        return super().update(self.rounded(key_states), self.rounded(value_states), layer_idx, *args, **kwargs)

    def rounded(self, rows):
        scale = rows.abs().amax(-1, keepdim=True) / (127 if self.codes == "int8" else 448)
        x = torch.where(scale > 0, rows / scale, 0.0)
        return (x.round() if self.codes == "int8" else x.to(torch.float8_e4m3fn).float()) * scale


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "e4m3"])
@pytest.mark.parametrize("name", DENSE)
def test_compressed_caches_give_the_tokens_of_the_dequantised_keys(name, dtype, padded):
    model = model_of(name)
    got = generated(model, CompressedCache(model.config, dtype), padded=padded)
    want = generated(with_attention(model, "eager"), _Dequantised(model.config, dtype), padded=padded)
    assert torch.equal(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=1e-4, atol=1e-4)


def test_a_prompt_in_parts_reads_the_codes():
    model = model_of("llama")
    ids = tokens(2, 40, seed=2)
    with torch.no_grad():
        want = model(ids, past_key_values=CompressedCache(model.config)).logits
        cache = Int8Cache(model.config)
        parts = [model(part, past_key_values=cache).logits for part in ids.split([21, 1, 17, 1], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_cache_of_16384_tokens_has_half_the_bytes():
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=2, hidden_size=1024)
    rows = [torch.randn(1, 2, 16384, 128).bfloat16() for _ in range(2)]
    dynamic = DynamicCache(config=config)
    dynamic.update(*rows, 0)
    whole = sum(t.nbytes for t in (dynamic.layers[0].keys, dynamic.layers[0].values))
    for dtype in ("int8", "e4m3"):
        cache = CompressedCache(config, dtype)
        cache.update(*rows, 0)
        assert cache.nbytes == whole * 132 // 256  # 128 codes and a float32 in place of 256 bytes
        layer = cache.layers[0]
        held = [t for t, _ in (*layer.held.values(), *layer.scales.held.values())]
        assert len(held) == 4 and sum(t.nbytes for t in held) <= 1.25 * cache.nbytes
    growing = GrowingCache(config)
    growing.update(*rows, 0)
    assert growing.nbytes == whole


def test_a_step_reads_the_cache_where_it_lies():
    from test_transformers_masks import Sizes

    model = model_of("llama", positions=4096)
    for cache in (GrowingCache(model.config), CompressedCache(model.config)):
        ids = tokens(2, 4000)
        with torch.no_grad():
            model(ids, past_key_values=cache)
            with Sizes() as sizes:
                model(ids[:, :1], past_key_values=cache)
        keys = cache.layers[0].keys
        assert 0 < sizes.largest_new < keys[:, :1].numel() * keys.itemsize


def test_errors_are_named():
    config = LlamaConfig(num_hidden_layers=1)
    with pytest.raises(ValueError, match="^invalid argument: dtype='int4', want one of int8, e4m3$"):
        CompressedCache(config, "int4")
    eager = with_attention(model_of("llama"), "eager")
    with pytest.raises(ValueError, match='^invalid argument: config: has attn_implementation="eager", want "fa"$'):
        CompressedCache(eager.config)
    for name in LATENT:
        with pytest.raises(ValueError, match="^invalid argument: config: has kv_lora_rank=16"):
            CompressedCache(model_of(name).config)
    cache = CompressedCache(config)
    with pytest.raises(ValueError, match="keys of the cache are torch.float64, want float32, bfloat16 or float16"):
        cache.update(torch.zeros(1, 2, 3, 8).double(), torch.zeros(1, 2, 3, 8).double(), 0)
    with pytest.raises(ValueError, match="keys require a gradient"):
        cache.update(torch.zeros(1, 2, 3, 8, requires_grad=True), torch.zeros(1, 2, 3, 8), 0)
    key, value = cache.update(torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8), 0)
    query = torch.randn(1, 4, 1, 8)
    module = torch.nn.Identity()
    assert attention_forward(module, query, key, value, None)[0].shape == (1, 1, 4, 8)
    with pytest.raises(ValueError, match="key.dtype=torch.int8, want floats, or what the update of a CompressedCache"):
        attention_forward(module, query, key.clone(), value, None)
    for name, given in (
        ("dropout", {"dropout": 0.5}),
        ("sinks", {"sinks": torch.zeros(1, 4, 1, 1)}),
        ("indices", {"indices": torch.zeros(1, 1, 1, dtype=torch.int32)}),
    ):
        with pytest.raises(ValueError, match=f"{name}: given, want None with the keys of a CompressedCache"):
            attention_forward(module, query, key, value, None, **given)
    with pytest.raises(ValueError, match="query: requires a gradient"):
        attention_forward(module, query.clone().requires_grad_(), key, value, None)
    for name, shape in (("s_aux", [4]), ("position_bias", [1, 4, 1, 3]), ("attention_mask", [1, 1, 1, 3])):
        with pytest.raises(ValueError, match=f"^invalid argument: {name}: requires a gradient"):
            given = {"attention_mask": None, name: torch.zeros(shape, requires_grad=True)}
            attention_forward(module, query, key, value, **given)


def test_the_classes_of_transformers_stay_as_they_are():
    from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING

    models = [model_of(name) for name in (*DENSE, *LATENT, "minimax_m3_vl")]
    before = dict(DYNAMIC_LAYER_TYPE_MAPPING)
    for model in models:
        GrowingCache(model.config)
    assert dict(DYNAMIC_LAYER_TYPE_MAPPING) == before
    assert fa.transformers.CompressedCache is CompressedCache
