"""fa.torch.scaled_dot_product_attention compared with PyTorch's in float64: results, gradients, and its use in place of
PyTorch's function."""

import pytest
import torch
import torch.nn.functional as F
from reference import assert_within, summed_to, tolerances

import fa.torch
from fa.torch import replace_scaled_dot_product_attention, scaled_dot_product_attention

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def bounds_of(query, key, value, attn_mask, d_out, is_causal=False, scale=None, enable_gqa=False):
    """Returns the error bounds of out, dq, dk, dv and dmask, in the shapes of the call's tensors."""

    def bnsd(t):
        return t.reshape(-1, *(t.shape[-3:] if t.dim() > 2 else (1, *t.shape)))

    pairs = (*query.shape[:-1], key.shape[-2])
    keep = bias = None
    if is_causal:
        keep = torch.ones(pairs[-2:], dtype=torch.bool).tril()
    elif attn_mask is not None and attn_mask.dtype == torch.bool:
        keep = bnsd(attn_mask.expand(pairs))
    elif attn_mask is not None:
        bias = bnsd(attn_mask.detach().expand(pairs))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    tensors = (bnsd(t) for t in (query, key, value, d_out))
    bounds = tolerances(*tensors, query.dtype, scale=scale, keep=keep, bias=bias)
    shapes = {"out": d_out.shape, "dq": query.shape, "dk": key.shape, "dv": value.shape, "dbias": pairs}
    return [bounds[name].reshape(shape) for name, shape in shapes.items()]


def check(query, key, value, attn_mask=None, **keywords):
    """Compares the output and the gradients of all tensors with PyTorch's in float64. A mask may be one of these
    tensors."""
    results = []
    d_out = None
    functions = {torch.float64: F.scaled_dot_product_attention, query.dtype: scaled_dot_product_attention}
    for dtype, function in functions.items():
        leaves = [t.detach().to(dtype).requires_grad_() for t in (query, key, value)]
        mask, sources = attn_mask, leaves
        if mask is not None and mask.is_floating_point():
            mask = mask.detach().to(torch.promote_types(mask.dtype, dtype)).requires_grad_(attn_mask.requires_grad)
            sources = [*leaves, mask] if mask.requires_grad else leaves
        out = function(*leaves, mask, **keywords)
        d_out = torch.randn(out.shape).to(query.dtype) if d_out is None else d_out
        results.append([out, *torch.autograd.grad(out, sources, d_out.to(dtype))])
    want, got = results
    bounds = bounds_of(query, key, value, attn_mask, d_out, **keywords)
    if len(got) > 4:
        bounds[4] = summed_to(bounds[4], attn_mask.shape, bounds[4])
    for name, g, w, bound in zip(["out", "dq", "dk", "dv", "dmask"], got, want, bounds, strict=False):
        assert g.dtype == (attn_mask.dtype if name == "dmask" else query.dtype)
        assert_within(g, w, bound, name)


def random_qkv(*, heads=4, heads_kv=4, sq=19, sk=31, d=16, dv=16, dtype=torch.float32, leading=(2,)):
    shapes = (*leading, heads, sq, d), (*leading, heads_kv, sk, d), (*leading, heads_kv, sk, dv)
    return [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain(dtype):
    check(*random_qkv(dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("sq", "sk"), [(24, 24), (19, 31), (31, 19), (1, 33)])
def test_causal_is_top_left_also_where_lengths_differ(sq, sk, dtype):
    check(*random_qkv(sq=sq, sk=sk, dtype=dtype), is_causal=True)


@pytest.mark.parametrize("heads_kv", [1, 2, 4])
def test_grouped_heads(heads_kv):
    check(*random_qkv(heads_kv=heads_kv), is_causal=True, enable_gqa=True)


def test_scale_and_value_size():
    check(*random_qkv(dv=40), scale=0.3)


MASK_SHAPES = [(19, 31), (1, 31), (19, 1), (4, 19, 31), (1, 1, 31), (2, 1, 19, 31), (2, 4, 19, 31), (2, 1, 1, 31)]


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_boolean_masks_broadcast(shape):
    mask = torch.rand(shape) < 0.7
    check(*random_qkv(), mask)


@pytest.mark.parametrize("kept", [True, False])
def test_a_boolean_mask_of_no_dimensions(kept):
    q, k, v = random_qkv()
    want = scaled_dot_product_attention(q, k, v) if kept else torch.zeros_like(q)
    with torch.no_grad():
        assert torch.equal(scaled_dot_product_attention(q, k, v, torch.tensor(kept)), want)


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_float_masks_broadcast_and_have_gradients(shape):
    check(*random_qkv(), torch.randn(shape).requires_grad_())


@pytest.mark.parametrize("dtype", DTYPES)
def test_float_masks_of_the_query_type(dtype):
    mask = torch.randn(19, 31).masked_fill(torch.rand(19, 31) < 0.3, -torch.inf).to(dtype)
    check(*random_qkv(dtype=dtype), mask)


def test_float32_mask_beside_bfloat16():
    q, k, v = random_qkv(dtype=torch.bfloat16)
    mask = torch.randn(19, 31)
    check(q, k, v, mask)


def test_rows_that_look_at_no_key_are_zero_and_have_no_gradient():
    q, k, v = (t.requires_grad_() for t in random_qkv())
    mask = torch.ones(19, 31, dtype=torch.bool)
    mask[3] = False
    out = scaled_dot_product_attention(q, k, v, mask)
    assert (out[:, :, 3] == 0).all()
    out.sum().backward()
    assert (q.grad[:, :, 3] == 0).all() and torch.isfinite(k.grad).all()


@pytest.mark.parametrize("leading", [(), (2, 3)], ids=str)
def test_other_numbers_of_leading_dimensions(leading):
    check(*random_qkv(leading=leading), is_causal=True)
    check(*random_qkv(leading=leading), torch.randn(*leading, 1, 19, 31))


def test_two_dimensions():
    check(*(t[0, 0] for t in random_qkv()))


def test_keys_broadcast_over_leading_dimensions():
    q, k, v = random_qkv()
    got = scaled_dot_product_attention(q, k[:1], v[:1])
    want = scaled_dot_product_attention(q, k[:1].repeat(2, 1, 1, 1), v[:1].repeat(2, 1, 1, 1))
    assert torch.equal(got, want)


def test_heads_of_a_projection_are_used_where_they_lie():
    x = torch.randn(2, 19, 3, 4, 16)
    q, k, v = x.permute(2, 0, 3, 1, 4)
    out = scaled_dot_product_attention(q, k, v)
    assert torch.equal(out, scaled_dot_product_attention(*(t.contiguous() for t in (q, k, v))))
    assert out.transpose(1, 2).is_contiguous()  # in memory [B, S, N, Ev], so the next projection copies nothing


def test_dropout_keeps_the_share_and_backward_drops_the_same_pairs():
    q, k, _ = random_qkv(sq=64, sk=64, heads=2, heads_kv=2)
    v = torch.eye(64).expand(2, 2, 64, 64).contiguous().requires_grad_()  # with this value, out is P after dropout
    out = scaled_dot_product_attention(q, k, v, dropout_p=0.4)
    p = torch.softmax(q.double() @ k.double().transpose(-2, -1) / 4, -1)
    kept = out.detach() != 0
    assert abs(kept.double().mean().item() - 0.6) < 5 * (0.24 / kept.numel()) ** 0.5
    assert torch.allclose(out.detach().double(), torch.where(kept, p / 0.6, 0.0), atol=1e-6)
    d_out = torch.randn_like(out)
    (dv,) = torch.autograd.grad(out, v, d_out)
    want = torch.where(kept, p / 0.6, 0.0).transpose(-2, -1) @ d_out.double()
    assert torch.allclose(dv.double(), want, atol=64 * 2**-23 * d_out.abs().max().item())


def test_dropout_follows_the_generator_of_torch():
    q, k, v = random_qkv()

    def run(seed):
        torch.manual_seed(seed)
        return scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_gradcheck_on_emulated_float64():
    """Compares the gradients with finite differences of a function that computes in float32. The step 1e-2 balances
    rounding (2^-24 / step) and the third derivative (times step^2), which is below 1 for these small inputs."""

    def function(q, k, v, mask):
        return scaled_dot_product_attention(q.float(), k.float(), v.float(), mask.float()).double()

    q, k, v = (0.5 * t.double() for t in random_qkv(leading=(1,), heads=2, heads_kv=2, sq=3, sk=4, d=5, dv=3))
    inputs = [t.requires_grad_() for t in (q, k, v, 0.5 * torch.randn(3, 4, dtype=torch.float64))]
    torch.autograd.gradcheck(function, inputs, eps=1e-2, atol=3e-4, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask_dtype", [None, *DTYPES])
def test_autocast_computes_in_its_type(dtype, mask_dtype):
    inputs = [*random_qkv(dtype=dtype), None if mask_dtype is None else torch.randn(19, 31, dtype=mask_dtype)]
    for autocast in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=autocast):
            out = scaled_dot_product_attention(*inputs)
            assert F.scaled_dot_product_attention(*inputs).dtype == out.dtype == autocast


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"attn_mask": torch.ones(19, 31, dtype=torch.int32)}, "attn_mask.dtype"),
        ({"dropout_p": 1.0}, "dropout_p=1.0"),
        ({"scale": float("inf")}, "scale"),
    ],
)
def test_bad_arguments(keywords, message):
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(*random_qkv(), **keywords)


@pytest.mark.parametrize("dropout_p", [0.0, 0.3], ids=["direct", "operator"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_and_is_causal_keep_what_both_keep(kind, dropout_p):
    q, k, v = (t.requires_grad_() for t in random_qkv())
    kept = torch.rand(2, 4, 19, 31) < 0.7
    mask = kept if kind == "bool" else torch.randn(kept.shape)
    causal = torch.ones(19, 31, dtype=torch.bool).tril()
    both = mask & causal if kind == "bool" else mask.masked_fill(~causal, -torch.inf)
    results = []
    for given in ({"attn_mask": mask, "is_causal": True}, {"attn_mask": both}):
        torch.manual_seed(1)
        out = scaled_dot_product_attention(q, k, v, **given, dropout_p=dropout_p)
        results.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    if dropout_p == 0:
        want = F.scaled_dot_product_attention(q, k, v, mask, is_causal=True)
        some = both if kind == "bool" else both > -torch.inf
        torch.testing.assert_close(results[0][0], want.masked_fill(~some.any(-1, keepdim=True), 0), atol=1e-5, rtol=1e-5)


def test_installed_until_it_is_uninstalled():
    own = F.scaled_dot_product_attention
    fa.torch.uninstall()
    try:
        fa.torch.install()
        fa.torch.install()
        assert F.scaled_dot_product_attention is scaled_dot_product_attention
        with pytest.raises(ValueError, match="query.dtype"):
            F.scaled_dot_product_attention(*(t.double() for t in random_qkv()))
        fa.torch.install(fallback=True)
        with replace_scaled_dot_product_attention():
            pass
        with pytest.warns(UserWarning, match="PyTorch computes it"):
            F.scaled_dot_product_attention(*(t.double() for t in random_qkv()))
    finally:
        fa.torch.uninstall()
    assert F.scaled_dot_product_attention is own


def test_a_wrong_fallback_replaces_nothing():
    own = F.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="Boolean value of Tensor"):
        fa.torch.install(fallback=torch.ones(2))
    assert F.scaled_dot_product_attention is own
    with replace_scaled_dot_product_attention(fallback=None):
        assert F.scaled_dot_product_attention is scaled_dot_product_attention
    assert F.scaled_dot_product_attention is own


def test_replaced_within_the_context_only():
    own = F.scaled_dot_product_attention
    with replace_scaled_dot_product_attention():
        assert F.scaled_dot_product_attention is scaled_dot_product_attention
        with replace_scaled_dot_product_attention():
            pass
        assert F.scaled_dot_product_attention is scaled_dot_product_attention
    assert F.scaled_dot_product_attention is own


@pytest.mark.parametrize("fast_path", [True, False])
def test_contexts_may_interleave_and_fail(fast_path):
    functional, mha = torch.nn.functional, torch.backends.mha

    def in_force():
        return functional.scaled_dot_product_attention, functional.multi_head_attention_forward

    own = in_force()
    try:
        mha.set_fastpath_enabled(fast_path)
        first, second = replace_scaled_dot_product_attention(), replace_scaled_dot_product_attention()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert F.scaled_dot_product_attention is scaled_dot_product_attention and not mha.get_fastpath_enabled()
        assert not second.__exit__(KeyError, KeyError(), None)
        assert in_force() == own and mha.get_fastpath_enabled() is fast_path
    finally:
        functional.scaled_dot_product_attention, functional.multi_head_attention_forward = own
        mha.set_fastpath_enabled(True)


def test_a_replacement_by_others_is_asked_without_weights(monkeypatch):
    asked, own = [], F.multi_head_attention_forward
    monkeypatch.setattr(F, "multi_head_attention_forward", lambda *a, **k: (asked.append(1), own(*a, **k))[1])
    module, x = torch.nn.MultiheadAttention(32, 4), torch.randn(9, 2, 32)
    with replace_scaled_dot_product_attention():
        module(x, x, x, need_weights=False)
    assert asked == [1]


@pytest.mark.parametrize("is_causal", [None, "yes"])
def test_is_causal_is_a_bool(is_causal):
    with pytest.raises(TypeError, match="is_causal: want a bool"):
        scaled_dot_product_attention(*random_qkv(), is_causal=is_causal)


def test_no_elements_are_of_the_query_type():
    empty = torch.zeros(2, 0, 5, 8, dtype=torch.bfloat16)
    assert scaled_dot_product_attention(empty, empty, empty, torch.zeros(5, 5)).dtype == torch.bfloat16


def test_a_module_of_torch_trains_with_it(forward_calls):
    """nn.MultiheadAttention gives the same output and gradients with fa as with PyTorch's function, up to rounding. The
    test counts forward calls to show that the module called fa.
    """
    module = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 9, 32)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9)

    def run():
        module.zero_grad()
        out, _ = module(x, x, x, attn_mask=mask, need_weights=False)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in module.parameters())]

    want = run()
    assert not forward_calls
    with replace_scaled_dot_product_attention():
        got = run()
    assert len(forward_calls) == 1
    for g, w in zip(got, want, strict=True):
        assert torch.allclose(g, w, rtol=0, atol=1e-5 * w.abs().max().item())


def test_two_threads_train_at_once():
    import concurrent.futures

    q, k, v = random_qkv(sq=100, sk=100)

    def gradients():
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(scaled_dot_product_attention(*leaves, is_causal=True).square().sum(), leaves)

    want = gradients()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in [pool.submit(gradients) for _ in range(12)]:
            assert all(torch.equal(g, w) for g, w in zip(got.result(), want, strict=True))


@pytest.mark.parametrize("bias", [-1e4, -1e9, -1e30, torch.finfo(torch.float32).min, 1e9])
def test_rows_whose_keys_all_have_a_large_bias_have_gradients(bias):
    """In models with additive masks, some rows have a large bias at every key. The probabilities in the gradients must
    follow from scores that are rounded with this bias."""
    q, k, v = (t.requires_grad_() for t in random_qkv(heads=2, heads_kv=2, sq=150, sk=150))
    mask = torch.zeros(2, 1, 150, 150)
    mask[0, :, :70] = bias
    mask[1, :, 100, 20:] = bias
    d_out = torch.randn(2, 2, 150, 16)
    want = torch.softmax((q @ k.mT / 4 + mask).double(), -1) @ v.double()
    want = torch.autograd.grad(want, (q, k, v), d_out.double())
    got = torch.autograd.grad(scaled_dot_product_attention(q, k, v, mask), (q, k, v), d_out)
    for name, g, w in zip(["dq", "dk", "dv"], got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=0, atol=3e-6 * float(w.abs().max()), msg=name)
