"""A model gets a ModelMask in place of eager's mask. The results must be eager's, whatever the model does with the
mask."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import transformers
from hf_models import DECODERS, model_of, tokens, with_attention
from torch import Tensor
from torch.nn import Module
from torch.utils.checkpoint import checkpoint
from transformers import masking_utils as utils

import fa.transformers
from fa._model import calls, support
from fa._model.model_mask import ModelMask
from fa.transformers import attention_forward, mask_of_model

ROWS = 9
PADDING = torch.tensor([[0] * 3 + [1] * 6, [1] * 9]).bool()
GAPS = torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 1], [1] * 9]).bool()


def _masks(padding: Tensor, dtype: torch.dtype = torch.float32) -> tuple[ModelMask, Tensor]:
    """Returns fa's mask and eager's mask for this padding. If the padding has gaps, fa's mask stores pairs, not
    intervals."""
    arguments = {"batch_size": 2, "q_length": ROWS, "kv_length": ROWS, "attention_mask": padding, "dtype": dtype}
    return mask_of_model(**arguments), utils.eager_mask(**arguments)


RULES = {
    "all": lambda m: m[:],
    "rows": lambda m: m[:, :, 2:5, :],
    "last_row": lambda m: m[:, :, -1:, :],
    "every_second_row": lambda m: m[:, :, ::2],
    "sequence": lambda m: m[1:],
    "keys": lambda m: m[:, :, :, :4],
    "keys_but_the_last": lambda m: m[..., :-1],
    "rows_and_keys": lambda m: m[:, :, 3:7, :7],
    "no_keys": lambda m: m[:, :, :, :0],
    "to": lambda m: m.to(torch.float32, copy=True),
    "contiguous": lambda m: m.contiguous(),
    "expand": lambda m: m.expand(-1, 4, -1, -1),
    "expand_batch": lambda m: m[:1].expand(3, 1, ROWS, ROWS),
    "clone": lambda m: m.clone(),
    "detach": lambda m: m.detach(),
}
TENSORS = {
    "first_head": lambda m: m[:, 0],
    "row": lambda m: m[:, :, 4],
    "later_keys": lambda m: m[:, :, :, 2:],
    "cat": lambda m: torch.cat((m, m.new_zeros(2, 1, ROWS, 2)), -1),
    "add": lambda m: m + torch.ones(ROWS),
    "product": lambda m: 2.0 * m,
    "equal": lambda m: m == 0,
    "less": lambda m: m < -1.0,
    "masked_fill": lambda m: m.masked_fill(m < 0, 5.0),
    "where": lambda m: torch.where(m == 0, 1.0, 0.0),
    "bool": lambda m: m.bool(),
    "to_bool": lambda m: m.to(torch.bool),
    "transpose": lambda m: m.transpose(2, 3),
    "unsqueeze": lambda m: m.unsqueeze(1),
    "chosen": lambda m: m[torch.tensor([1, 1, 0])],
    "repeat": lambda m: m.repeat_interleave(2, 0),
    "pad": lambda m: torch.nn.functional.pad(m, (0, 2)),
    "zeros_like": lambda m: torch.zeros_like(m),
    "minimum": lambda m: torch.clamp(m, min=-1e4),
    "any": lambda m: (m != 0).any(),
    "softmax": lambda m: torch.softmax(m + 1.0, -1),
    "into": lambda m: torch.ones(2, 1, ROWS, ROWS).add_(m),
}


@pytest.mark.parametrize("padding", [PADDING, GAPS], ids=["intervals", "pairs"])
@pytest.mark.parametrize("name", RULES)
def test_a_cut_is_a_rule(name, padding):
    mask, want = (RULES[name](mask) for mask in _masks(padding))
    assert isinstance(mask, ModelMask)
    assert mask.shape == want.shape
    assert mask.dtype == want.dtype
    assert torch.equal(mask + 0, want)


@pytest.mark.parametrize("padding", [PADDING, GAPS], ids=["intervals", "pairs"])
@pytest.mark.parametrize("name", TENSORS)
def test_all_else_is_done_with_eagers_tensor(name, padding):
    got, want = (TENSORS[name](mask) for mask in _masks(padding))
    assert type(got) is Tensor
    assert got.dtype == want.dtype
    assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mask_has_the_type_of_the_model(dtype):
    mask, want = _masks(PADDING, dtype)
    assert mask.dtype == want.dtype == dtype
    assert torch.equal(mask + 0, want)
    from_float, _ = _masks(PADDING)
    assert torch.equal(from_float.to(dtype) + 0, want)


def _assign(mask, value):
    mask[:, :, 0] = value


WRITES = {
    "add": lambda m: m.add_(1.0),
    "masked_fill": lambda m: m.masked_fill_(m < 0, 0.0),
    "rows": lambda m: m[:, :, :2].zero_(),
    "assignment": lambda m: _assign(m, 0.0),
    "into": lambda m: torch.add(torch.ones(ROWS), 1.0, out=m),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_mask_is_not_written_to(write):
    mask, want = _masks(PADDING)
    with pytest.raises(ValueError, match="attention_mask: .* changes a mask of fa.transformers"):
        WRITES[write](mask)
    assert torch.equal(mask + 0, want)


def test_a_mask_is_pickled_and_copied():
    mask, want = _masks(PADDING)
    for other in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask), copy.copy(mask)):
        assert isinstance(other, ModelMask)
        assert torch.equal(other + 0, want)


def _layer(mask, rows=ROWS, keys=ROWS, heads=2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, n, 8, generator=generator) for n in (rows, keys, keys))
    return attention_forward(Module(), q, k, v, mask)[0]


@pytest.mark.parametrize("padding", [PADDING, GAPS], ids=["intervals", "pairs"])
def test_a_layer_reads_a_cut_as_eagers_tensor(padding):
    mask, eager = _masks(padding)
    kept = (eager == 0).any(-1)[:, 0]  # Rows without keys differ: fa's are 0, eager's are a mean of V.
    for rows, keys in ((slice(None), ROWS), (slice(6, 8), ROWS), (slice(4, 9), 7)):
        number = len(range(ROWS)[rows])
        got = _layer(mask[:, :, rows], number, keys)
        want = _layer(eager[:, :, rows], number, keys)
        torch.testing.assert_close(got[kept[:, rows]], want[kept[:, rows]])
        torch.testing.assert_close(_layer(mask[:, :, rows].expand(-1, 2, -1, -1), number, keys), got, rtol=0, atol=0)


def test_masks_of_other_sizes_are_refused():
    mask, eager = _masks(PADDING)
    for given in (mask, eager, eager == 0):
        for rows, keys in ((5, 9), (2, 9), (9, 10)):
            with pytest.raises(ValueError, match=r"attention_mask.shape=\[2, 1, 9, 9\], want"):
                _layer(given, rows, keys)
    with pytest.raises(ValueError, match="attention_mask.dtype=torch.int32"):
        _layer(mask.held)


@pytest.mark.parametrize("rows", [1, 2])
def test_intervals_of_two_tokens_are_no_scores(rows):
    """With two keys, the mask's shape [..., rows, 2] is also the shape of its intervals. The mask must still have the
    values of eager's mask.
    """
    mask = mask_of_model(batch_size=2, q_length=rows, kv_length=2, q_offset=2 - rows, attention_mask=PADDING[:, 2:4])
    assert mask.shape == (2, 1, rows, 2)
    want = utils.eager_mask(batch_size=2, q_length=rows, kv_length=2, q_offset=2 - rows, attention_mask=PADDING[:, 2:4])
    assert torch.equal(torch.zeros(2, 4, rows, 2) + mask, want.expand(-1, 4, -1, -1))


def test_compiled_code_cuts_masks_and_computes_with_them():
    def code(mask, q, k, v):
        cut = mask[:, :, -3:, :]
        out = attention_forward(module, q[:, :, -3:], k, v, cut)[0]
        return out, torch.cat((mask, mask.new_zeros(2, 1, ROWS, 1)), -1), cut

    module = Module()
    mask, _ = _masks(PADDING)
    q, k, v = torch.randn(3, 2, 2, ROWS, 8).unbind()
    torch._dynamo.reset()
    got = torch.compile(code, fullgraph=True, backend="aot_eager")(mask, q, k, v)
    want = code(mask, q, k, v)
    assert isinstance(got[2], ModelMask)
    assert all(torch.equal(a + 0, b + 0) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_take_masks(reentrant):
    mask, _ = _masks(PADDING)
    q = torch.randn(2, 2, ROWS, 8, requires_grad=True)

    def loss(q, mask):
        return attention_forward(Module(), q, q, q, mask)[0].square().sum()

    want = torch.autograd.grad(loss(q, mask), q)[0]
    checkpoint(loss, q, mask, use_reentrant=reentrant).backward()
    torch.testing.assert_close(q.grad, want)


def test_a_layer_that_cuts_its_rows_has_the_right_corner():
    """Gemma 4's last layers share keys. With logits_to_keep, these layers compute only the last rows."""
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "num_hidden_layers": 6, "vocab_size_per_layer_input": 128}
    sizes |= {"hidden_size_per_layer_input": 16, "head_dim": 16, "global_head_dim": 32, "sliding_window": 6}
    sizes |= {"num_kv_shared_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2}
    torch.manual_seed(0)
    model = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**sizes)).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.15)
    ids = tokens(1, 24)
    for keep in (0, 1, 2, 5):
        for static in (False, True):
            results = []
            for attention in ("eager", "fa"):
                model.set_attn_implementation(attention)
                cache = transformers.StaticCache(config=model.config, max_cache_len=200) if static else None
                with torch.no_grad():
                    results.append(model(ids, past_key_values=cache, logits_to_keep=keep, use_cache=True).logits)
            torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_prefix_sums_count_next_to_a_rule():
    model = model_of("llama")
    ends = torch.tensor([0, 9, 14], dtype=torch.int32)
    packed = model(tokens(1, 14), cu_seq_lens_q=ends, cu_seq_lens_k=ends, use_cache=False).logits
    positions = torch.arange(9, 14)[None]
    alone = model(tokens(1, 14)[:, 9:], position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(packed[:, 9:], alone, rtol=1e-4, atol=1e-5)


# Tests of the keywords of attention_forward.


@pytest.mark.parametrize("shape", [(2, 9, 3), (2, 2, 9, 1)])
def test_an_unknown_keyword_is_refused_by_name(shape):
    q = torch.randn(2, 2, 9, 8)
    text = '"fa" does not know the keyword selection of Module; it may change the result. Use attn_implementation="eager"'
    with pytest.raises(ValueError) as raised:
        attention_forward(Module(), q, q, q, None, selection=torch.zeros(shape))
    assert str(raised.value) == text


def test_keywords_that_change_nothing_are_taken():
    q = torch.randn(2, 2, 9, 8)
    want = attention_forward(Module(), q, q, q, None)[0]
    others = {"indices": None, "block_indices": None, "labels": torch.zeros(2, 9), "position_ids": torch.zeros(3, 2, 9)}
    assert torch.equal(attention_forward(Module(), q, q, q, None, unknown="text", number=3, **others)[0], want)


def test_a_module_that_does_not_say_is_causal():
    q = torch.randn(2, 2, 9, 8)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = sdpa(q, q, q, is_causal=True).transpose(1, 2)
    torch.testing.assert_close(attention_forward(Module(), q, q, q, None)[0], want)
    want = sdpa(q, q, q).transpose(1, 2)
    torch.testing.assert_close(attention_forward(Module(), q, q, q, None, is_causal=False)[0], want)


# Tests of whole models.

OWN_ATTENTION = {
    "Bloom": lambda: transformers.BloomConfig(vocab_size=97, hidden_size=32, n_layer=1, n_head=4),
    "Falcon": lambda: transformers.FalconConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=1, num_attention_heads=4
    ),
    "Mamba": lambda: transformers.MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=1),
}


@pytest.mark.parametrize("made", [True, False], ids=["made_with_it", "switched_to_it"])
@pytest.mark.parametrize("name", OWN_ATTENTION)
def test_a_model_with_attention_code_of_its_own_is_refused(name, made):
    auto = transformers.AutoModelForCausalLM
    model, config = auto.from_config(OWN_ATTENTION[name]()), OWN_ATTENTION[name]()
    with pytest.raises(ValueError, match=f'{name}ForCausalLM does not take attn_implementation="fa"'):
        auto.from_config(config, attn_implementation="fa") if made else model.set_attn_implementation("fa")
    assert model.config._attn_implementation != "fa"


def test_a_model_that_never_calls_fa_gets_one_warning(monkeypatch):
    warnings = []
    monkeypatch.setattr(support._logger, "warning", warnings.append)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "mlp_dim": 32, "output_channels": 16}
    model = transformers.SamVisionModel(transformers.SamVisionConfig(**sizes, image_size=32, patch_size=8)).eval()
    for attention, number in (("fa", 1), ("eager", 0)):
        model.set_attn_implementation("fa")
        model.set_attn_implementation(attention)
        for _ in range(2):
            model(torch.randn(1, 3, 32, 32))
        assert warnings == ['SamVisionModel was given attn_implementation="fa" and calls no attention function'] * number
        warnings.clear()
    llama = model_of("llama")
    llama(tokens(1, 5))
    assert warnings == []


@pytest.mark.parametrize("how", ["layers", "forward", "module"])
def test_a_model_with_compiled_parts_gets_no_warning(how, monkeypatch):
    """calls.has_called misses calls in compiled parts, so models with such parts must give no warning."""
    warnings = []
    monkeypatch.setattr(support._logger, "warning", warnings.append)
    torch._dynamo.reset()
    model = model_of("llama", layers=1)
    if how == "layers":
        model.model.layers[0].compile(backend="aot_eager")
    elif how == "forward":
        model.forward = torch.compile(model.forward, backend="aot_eager")
    else:
        model.model.layers[0] = torch.compile(model.model.layers[0], backend="aot_eager")
    with torch.no_grad():
        model(tokens(1, 5), use_cache=False)
    assert not calls.has_called(model)
    assert warnings == []


def test_a_refused_part_leaves_the_model_as_it_was(monkeypatch):
    warnings = []
    monkeypatch.setattr(support._logger, "warning", warnings.append)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    encoder = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    sizes = {"d_model": 32, "decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 32}
    decoder = transformers.BigBirdPegasusConfig(**sizes, vocab_size=97)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = transformers.VisionEncoderDecoderModel(config).eval()
    parts = model, model.encoder, model.decoder
    before = [part.config._attn_implementation for part in parts]
    with pytest.raises(ValueError, match='BigBirdPegasusForCausalLM does not take attn_implementation="fa"'):
        model.set_attn_implementation("fa")
    assert [part.config._attn_implementation for part in parts] == before
    inputs = {"pixel_values": torch.randn(1, 3, 32, 32), "decoder_input_ids": tokens(1, 4)}
    model(**inputs)
    model.set_attn_implementation({"encoder": "fa", "decoder": "eager"})
    assert [part.config._attn_implementation for part in parts] == [before[0], "fa", "eager"]
    model(**inputs)
    assert warnings == []
    assert fa.transformers.report(model.encoder) == "ViTModel: 1 calls of fa\nViTAttention: 1 modules, 1 calls"


def test_the_report_counts_calls():
    model = model_of("llama", layers=3)
    first = fa.transformers.report(model)
    assert first == "LlamaForCausalLM: 0 calls of fa\nLlamaAttention: 3 modules, never called fa"
    model(tokens(1, 5))
    model(tokens(1, 5))
    assert fa.transformers.report(model) == "LlamaForCausalLM: 6 calls of fa\nLlamaAttention: 3 modules, 6 calls"
    assert not calls.has_called(with_attention(model, "fa"))


def test_masks_of_every_decoder_are_rules():
    """Models get a ModelMask even without padding, because a layer may cut the mask that it gets."""
    for name in DECODERS:
        seen = []
        model = model_of(name)
        layer = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
        layer.register_forward_pre_hook(lambda m, a, k: seen.append(k["attention_mask"]), with_kwargs=True)
        model(tokens(1, 12), use_cache=False)
        assert isinstance(seen[0], ModelMask), name
