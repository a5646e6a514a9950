"""Inside replace_scaled_dot_product_attention, torch.nn's attention modules give correct results in all their modes."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fa.torch import replace_scaled_dot_product_attention

L, S, B, E, N = 7, 9, 2, 32, 4
# The relative bound of a result of up to eight successive products. Each product has at most E terms and a relative
# error of at most (4 sqrt(E) + 8) u, with u = 2^-24.
RELATIVE = 8 * (4 * E**0.5 + 8) * 2**-24


@pytest.fixture
def calls(forward_calls):
    return forward_calls


def run(module, inputs, dtype=None, **keywords):
    """Returns the module's results. If gradients are on, also returns the gradients of inputs and parameters."""
    module = copy.deepcopy(module).to(dtype)
    inputs = [t.detach().to(dtype).requires_grad_(torch.is_grad_enabled()) for t in inputs]
    cast = {k: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in keywords.items()}
    results = module(*inputs, **cast)
    results = [r for r in results if r is not None] if isinstance(results, tuple) else [results]
    if torch.is_grad_enabled():
        sum(r.square().sum() for r in results).backward()
        results += [t.grad for t in (*inputs, *module.parameters())]
    return results


def assert_as_pytorch(module, inputs, calls, expected_calls=1, **keywords):
    want = run(module, inputs, torch.float64, **keywords)
    assert not calls
    with replace_scaled_dot_product_attention():
        got = run(module, inputs, torch.float32, **keywords)
    assert len(calls) == expected_calls
    calls.clear()
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert not ((g - w).abs().max() > RELATIVE * max(1.0, w.abs().max().item()))
        assert torch.isfinite(g).all()


MODES = list(itertools.product([True, False], [True, False]))


@pytest.mark.parametrize(("need_weights", "training"), MODES)
@pytest.mark.parametrize("average", [True, False])
def test_multihead_attention_in_every_mode(need_weights, training, average, calls):
    module = nn.MultiheadAttention(E, N, batch_first=True).train(training)
    inputs = [torch.randn(B, rows, E) for rows in (L, S, S)]
    with torch.set_grad_enabled(training):
        assert_as_pytorch(module, inputs, calls, need_weights=need_weights, average_attn_weights=average)


PADDING = torch.arange(S) >= torch.tensor([S, 5])[:, None]
MASKS = {
    "padding": {"key_padding_mask": PADDING},
    "float padding": {"key_padding_mask": torch.where(PADDING, -torch.inf, 0.5)},
    "bool": {"attn_mask": torch.ones(L, S, dtype=torch.bool).triu(2)},
    "float": {"attn_mask": torch.linspace(-1, 1, L * S).view(L, S)},
    "by head": {"attn_mask": torch.linspace(-1, 1, B * N * L * S).view(B * N, L, S)},
    "both": {"attn_mask": torch.ones(L, S, dtype=torch.bool).triu(2), "key_padding_mask": PADDING},
    "causal": {"attn_mask": torch.full((L, S), -torch.inf).triu(1), "is_causal": True},
}
MODULES = {
    "plain": {},
    "no bias": {"bias": False},
    "keys of their own": {"add_bias_kv": True},
    "zero attention": {"add_zero_attn": True},
    "all of it": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 20, "vdim": 24},
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("mask", MASKS)
def test_weights_under_masks(module, mask, calls):
    settings = MODULES[module]
    module = nn.MultiheadAttention(E, N, **settings)
    inputs = [torch.randn(L, B, E), *(torch.randn(S, B, settings.get(name, E)) for name in ("kdim", "vdim"))]
    assert_as_pytorch(module, inputs, calls, **MASKS[mask], average_attn_weights=False)


@pytest.mark.parametrize("average", [True, False])
def test_weights_of_one_sequence(average, calls):
    inputs = [torch.randn(rows, E) for rows in (L, S, S)]
    keywords = {"key_padding_mask": PADDING[1], "average_attn_weights": average}
    assert_as_pytorch(nn.MultiheadAttention(E, N), inputs, calls, **keywords)


def test_weights_of_rows_that_look_at_no_key_are_zero():
    module = nn.MultiheadAttention(E, N, batch_first=True)
    mask = torch.zeros(L, S, dtype=torch.bool)
    mask[3] = True
    x, y = torch.randn(B, L, E), torch.randn(B, S, E)
    with replace_scaled_dot_product_attention():
        out, weights = module(x, y, y, attn_mask=mask)
    assert (weights[:, 3] == 0).all() and torch.equal(out[:, 3], module.out_proj.bias.expand(B, E))
    assert torch.allclose(weights.sum(-1), (~mask).any(-1).float().expand(B, L), atol=S * 2**-23)


def test_weights_are_those_that_dropout_left():
    module = nn.MultiheadAttention(E, 1, dropout=0.4, bias=False, batch_first=True)
    with torch.no_grad():
        module.out_proj.weight.copy_(torch.eye(E))
    x, y = torch.randn(B, L, E), torch.randn(B, S, E)
    with replace_scaled_dot_product_attention():
        out, weights = module(x, y, y)
    dropped = (weights == 0).double().mean().item()
    assert abs(dropped - 0.4) < 5 * (0.24 / weights.numel()) ** 0.5
    want = weights.double() @ (y.double() @ module.in_proj_weight[2 * E :].double().T)
    assert not ((out - want).abs().max() > RELATIVE * want.abs().max())


@pytest.mark.parametrize("padded", [False, True])
def test_transformer_layers_in_inference(padded, calls):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, N, 48, dropout=0.0, batch_first=True), 2).eval()
    keywords = {"src_key_padding_mask": PADDING} if padded else {}
    x = torch.randn(B, S, E)
    with torch.no_grad():
        want = run(encoder, [x], torch.float64, **keywords)[0]
        with replace_scaled_dot_product_attention():
            got = run(encoder, [x], torch.float32, **keywords)[0]
    assert len(calls) == 2
    used = ~PADDING[..., None] if padded else True  # PyTorch's fast path sets padded rows to 0
    assert not (((got - want) * used).abs().max() > 4 * RELATIVE * want.abs().max())


def test_a_transformer_trains(calls):
    model = nn.Transformer(E, N, 1, 1, 48, dropout=0.0, batch_first=True)
    inputs = [torch.randn(B, S, E), torch.randn(B, L, E)]
    keywords = {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(L), "src_key_padding_mask": PADDING}
    want = run(model, inputs, torch.float64, **keywords)
    with replace_scaled_dot_product_attention():
        got = run(model, inputs, torch.float32, **keywords)
    assert len(calls) == 3
    for g, w in zip(got, want, strict=True):
        assert not ((g - w).abs().max() > 16 * RELATIVE * max(1.0, w.abs().max().item()))


def test_bad_masks_name_the_argument():
    module, x = nn.MultiheadAttention(E, N, batch_first=True), torch.randn(B, L, E)
    with replace_scaled_dot_product_attention():
        with pytest.raises(ValueError, match=r"attn_mask.shape=\[7, 8\], want \[7, 7\]"):
            module(x, x, x, attn_mask=torch.zeros(7, 8))
        with pytest.raises(ValueError, match=r"key_padding_mask.shape=\[2, 8\], want \[2, 7\]"):
            module(x, x, x, key_padding_mask=torch.zeros(2, 8, dtype=torch.bool))
        with pytest.raises(RuntimeError, match="is_causal hint"):
            module(x, x, x, is_causal=True)


def test_everything_is_put_back():
    before = F.scaled_dot_product_attention, F.multi_head_attention_forward
    with replace_scaled_dot_product_attention():
        assert not torch.backends.mha.get_fastpath_enabled()
    assert (F.scaled_dot_product_attention, F.multi_head_attention_forward) == before
    assert torch.backends.mha.get_fastpath_enabled()


def test_torch_compile_takes_the_module_whole():
    module = nn.MultiheadAttention(E, N, batch_first=True)
    x = torch.randn(B, L, E)
    with replace_scaled_dot_product_attention():
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        for got, want in zip(compiled(x, x, x), module(x, x, x), strict=True):
            assert torch.allclose(got, want, atol=RELATIVE)
