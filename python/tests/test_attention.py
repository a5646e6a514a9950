"""fa.flash_attention and its gradient on NumPy arrays and torch tensors, compared with float64."""

import threading

import numpy as np
import pytest
import torch
from reference import (
    FACTOR_GRAD,
    FACTOR_OUT,
    assert_no_worse_than_naive,
    assert_within,
    attention,
    bnsd,
    summed_to,
    to_layout,
    tolerances,
    unpack_bits,
)

import fa
from fa import torch_npu

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
B, N, NKV, SQ, SK, D, DV = 2, 4, 2, 37, 53, 24, 40
SCALE = D**-0.5


def random_qkv(dtype=torch.float32, *, sq=SQ, sk=SK):
    shapes = (B, N, sq, D), (B, NKV, sk, D), (B, NKV, sk, DV)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def check(inputs, got, keywords, extra=()):
    """Checks output and gradients for BNSD inputs. `got` is (out, d_out, gradients of inputs and of extra)."""
    out, d_out, gradients = got
    leaves = [t.double().requires_grad_() for t in inputs]
    others = {name: t.double().requires_grad_() for name, t in extra}
    want, _, _ = attention(*leaves, **{**keywords, **others})
    want_grads = torch.autograd.grad(want, [*leaves, *others.values()], d_out.double())
    bounds = tolerances(*inputs, d_out, out.dtype, **{**keywords, **others})
    assert_within(out, want, bounds["out"], "out")
    names = ["dq", "dk", "dv", *(f"d{name}" for name, _ in extra)]
    for name, gradient, w in zip(names, gradients, want_grads, strict=True):
        bound = bounds[name]
        if name == "dbias":
            bound = summed_to(bound, gradient.shape, bound)
        assert_within(gradient, w, bound, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_every_layout_and_type(layout, dtype):
    inputs = random_qkv(dtype)
    laid = [to_layout(t, layout) for t in inputs]
    keywords = {"layout": layout, "head_num": N, "mask": fa.Mask.causal()}
    result = fa.flash_attention(*laid, **keywords)
    d_out = torch.randn(result.out.shape).to(dtype)
    gradients = fa.flash_attention_grad(*laid, result.out, d_out, *result[1:], **keywords)
    keep = torch.ones(SQ, SK, dtype=torch.bool).tril(SK - SQ)
    back = [bnsd(g, layout, heads) for g, heads in zip(gradients[:3], (N, NKV, NKV), strict=True)]
    check(inputs, (bnsd(result.out, layout, N), bnsd(d_out, layout, N), back), {"scale": SCALE, "keep": keep})
    assert gradients[3:] == (None,) * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_worse_than_the_naive_computation(dtype):
    inputs = [torch.randn(1, 2, 256, 64).to(dtype) for _ in range(3)]
    result = fa.flash_attention(*inputs, mask=fa.Mask.causal())
    d_out = torch.randn_like(result.out)
    gradients = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], mask=fa.Mask.causal())
    keep = torch.ones(256, 256, dtype=torch.bool).tril()
    computed = {}
    for kind in (torch.float64, dtype):
        leaves = [t.to(kind).requires_grad_() for t in inputs]
        out, _, _ = attention(*leaves, scale=1 / 8, keep=keep)
        computed[kind] = [out, *torch.autograd.grad(out, leaves, d_out.to(kind))]
    for i, g in enumerate([result.out, *gradients[:3]]):
        factor = FACTOR_GRAD if i else FACTOR_OUT
        assert_no_worse_than_naive(g, computed[torch.float64][i], computed[dtype][i], factor, str(i))


def test_statistics_are_those_of_the_softmax():
    inputs = random_qkv()
    _, top, total = fa.flash_attention(*inputs)
    wide = [t.double() for t in inputs]
    _, want_top, want_total = attention(*wide, scale=SCALE)
    assert top.shape == (B, N, SQ) and top.dtype == torch.float32
    # The maximum has the error of D products in float32. The sum also has the errors of SK exponentials.
    assert torch.allclose(top.double(), want_top, rtol=0, atol=D * 2**-23)
    assert torch.allclose(total.double(), want_total, rtol=(SK + D) * 2**-23)


def test_a_log_sum_exp_and_ones_are_statistics_too():
    q, k, v = random_qkv()
    out, top, total = fa.flash_attention(q, k, v)
    d_out, lse = torch.randn_like(out), top + total.log()
    want = fa.flash_attention_grad(q, k, v, out, d_out, top, total).dq
    got = fa.flash_attention_grad(q, k, v, out, d_out, lse, torch.ones_like(lse)).dq
    # The probabilities of the two calls differ by the rounding of lse. A score's gradient is at most 2 |dP| times its
    # probability.
    largest = 2 * D * d_out.abs().max() * v.abs().max() * k.abs().max() * D**-0.5
    assert torch.allclose(got, want, rtol=0, atol=float((lse.abs().max() + D + SK) * 2**-23 * largest))


def test_numpy_in_numpy_out_and_the_same_bits_as_torch():
    tensors = random_qkv()
    from_torch = fa.flash_attention(*tensors)
    from_numpy = fa.flash_attention(*(t.numpy() for t in tensors))
    assert all(isinstance(a, np.ndarray) for a in from_numpy)
    for a, t in zip(from_numpy, from_torch, strict=True):
        assert np.array_equal(a, t.numpy())


def test_any_array_with_dlpack():
    class Array:
        """An array with only the members that fa needs. fa does not know its library."""

        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    arrays = [t.numpy() for t in random_qkv()]
    out = fa.flash_attention(*map(Array, arrays)).out
    assert isinstance(out, np.ndarray) and np.array_equal(out, fa.flash_attention(*arrays).out)


def test_float16_numpy():
    q, k, v = (t.numpy() for t in random_qkv(torch.float16))
    assert fa.flash_attention(q, k, v).out.dtype == np.float16


def test_read_only_arrays_are_inputs():
    arrays = [t.numpy() for t in random_qkv()]
    want = fa.flash_attention(*arrays).out
    for a in arrays:
        a.flags.writeable = False
    assert np.array_equal(fa.flash_attention(*arrays).out, want)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]], id="rows with gaps"),
        pytest.param(lambda t: t.transpose(2, 3).contiguous().transpose(2, 3), id="transposed rows"),
        pytest.param(lambda t: t.repeat_interleave(2, -1)[..., ::2], id="every second element"),
        pytest.param(lambda t: t.transpose(0, 2).contiguous().transpose(0, 2), id="outer dimensions swapped"),
    ],
)
def test_strides_do_not_change_bits(view):
    tensors = random_qkv()
    want = fa.flash_attention(*tensors)
    d_out = torch.randn_like(want.out)
    want_grads = fa.flash_attention_grad(*tensors, want.out, d_out, *want[1:])
    viewed = [view(t) for t in tensors]
    assert any(not t.is_contiguous() for t in viewed)
    got = fa.flash_attention(*viewed)
    assert torch.equal(got.out, want.out)
    grads = fa.flash_attention_grad(*viewed, view(want.out), view(d_out), *want[1:])
    for g, w in zip(grads[:3], want_grads[:3], strict=True):
        assert torch.equal(g, w)


def test_negative_strides_of_numpy():
    q, k, v = (t.numpy() for t in random_qkv())
    got = fa.flash_attention(q[:, :, ::-1], k, v).out
    assert np.array_equal(got[:, :, ::-1], fa.flash_attention(q, k, v).out)


def test_keys_broadcast_over_the_batch():
    q, k, v = random_qkv()
    k, v = (t[:1].expand(B, -1, -1, -1) for t in (k, v))
    assert torch.equal(fa.flash_attention(q, k, v).out, fa.flash_attention(q, k.clone(), v.clone()).out)


MASKS = {
    "causal": (lambda: fa.Mask.causal(), lambda i, j, delta: j <= i + delta),
    "causal_top_left": (lambda: fa.Mask.causal_top_left(), lambda i, j, delta: j <= i),
    "band": (lambda: fa.Mask.band(9, 4), lambda i, j, delta: (j >= i + delta - 9) & (j <= i + delta + 4)),
    "band_top_left": (lambda: fa.Mask.band_top_left(9, 4), lambda i, j, delta: (j >= i - 9) & (j <= i + 4)),
    "sparse_mode": (lambda: fa.Mask.from_sparse_mode(4, 9, 4), lambda i, j, d: (j >= i + d - 9) & (j <= i + d + 4)),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    make, keeps = MASKS[name]
    inputs = random_qkv()
    keep = keeps(torch.arange(SQ)[:, None], torch.arange(SK)[None, :], SK - SQ)
    result = fa.flash_attention(*inputs, mask=make())
    d_out = torch.randn_like(result.out)
    gradients = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], mask=make())
    check(inputs, (result.out, d_out, gradients[:3]), {"scale": SCALE, "keep": keep})


def test_prefix_mask_and_dense_mask_together():
    inputs = random_qkv()
    prefix = [20, 30]
    dense = torch.rand(B, 1, SQ, SK) < 0.3
    keep = torch.ones(SQ, SK, dtype=torch.bool).tril(SK - SQ)
    keep = torch.stack([keep | (torch.arange(SK) < p) for p in prefix])[:, None] & ~dense
    keywords = {"mask": fa.Mask.prefix(prefix), "dense_mask": dense}
    result = fa.flash_attention(*inputs, **keywords)
    d_out = torch.randn_like(result.out)
    gradients = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], **keywords)
    check(inputs, (result.out, d_out, gradients[:3]), {"scale": SCALE, "keep": keep})


@pytest.mark.parametrize("pse_type", [0, 1])
@pytest.mark.parametrize("rows", [SQ, 1])
def test_position_bias_and_its_gradient(pse_type, rows):
    inputs = random_qkv()
    pse = torch.randn(B, N, rows, SK)
    keywords = {"pse": pse, "pse_type": pse_type}
    result = fa.flash_attention(*inputs, **keywords)
    d_out = torch.randn_like(result.out)
    got = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], need_dpse=True, **keywords)
    want = {"scale": SCALE, "scale_bias": pse_type == 1}
    check(inputs, (result.out, d_out, [*got[:3], got.dpse]), want, extra=[("bias", pse)])


@pytest.mark.parametrize("pse_type", [2, 3])
def test_slopes_and_their_gradient(pse_type):
    inputs = random_qkv()
    slopes = torch.rand(N) + 0.5
    keywords = {"pse": slopes, "pse_type": pse_type, "q_start": 3, "kv_start": 1}
    result = fa.flash_attention(*inputs, **keywords)
    d_out = torch.randn_like(result.out)
    got = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], need_dpse=True, **keywords)
    distance = ((torch.arange(SK)[None, :] + 1) - (torch.arange(SQ)[:, None] + 3)).abs().double()
    distance = distance.sqrt() if pse_type == 3 else distance
    leaf = slopes.double().requires_grad_()
    wide = [t.double().requires_grad_() for t in inputs]
    want, _, _ = attention(*wide, scale=SCALE, bias=-leaf[None, :, None, None] * distance)
    *_, dslopes = torch.autograd.grad(want, [*wide, leaf], d_out.double())
    bias = -slopes.double()[None, :, None, None] * distance
    bounds = tolerances(*inputs, d_out, torch.float32, scale=SCALE, bias=bias)
    assert_within(result.out, want, bounds["out"], "out")
    per_pair = bounds["dbias"] * distance
    assert_within(got.dpse, dslopes, summed_to(per_pair, torch.Size((1, N, 1, 1)), per_pair).reshape(N), "dslopes")


def test_sink_and_its_gradient():
    inputs = random_qkv()
    sink = torch.randn(N)
    result = fa.flash_attention(*inputs, sink=sink)
    d_out = torch.randn_like(result.out)
    got = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], need_dsink=True, sink=sink)
    check(inputs, (result.out, d_out, [*got[:3], got.dsink]), {"scale": SCALE}, extra=[("sink", sink)])


@pytest.mark.parametrize("batch", [1, B])
def test_sinks_per_row_and_their_gradient(batch):
    inputs = random_qkv()
    sink = torch.randn(batch, SQ, N).transpose(1, 2)
    result = fa.flash_attention(*inputs, sink=sink)
    d_out = torch.randn_like(result.out)
    got = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], need_dsink=True, sink=sink)
    check(inputs, (result.out, d_out, [*got[:3], got.dsink]), {"scale": SCALE}, extra=[("sink", sink)])
    assert torch.equal(fa.prompt_flash_attention(*inputs, sink=sink), result.out)
    leaf = sink.clone().requires_grad_()
    out = torch_npu.npu_fusion_attention(*inputs, N, "BNSD", scale=SCALE, sink=leaf)[0]
    assert torch.equal(out, result.out)
    assert torch.equal(torch.autograd.grad(out, leaf, d_out)[0], got.dsink)


def test_equal_sinks_of_rows_have_the_bits_of_a_sink_per_head():
    q, k, v = random_qkv()
    sink = torch.randn(N)
    of_rows = sink[:, None].expand(B, N, SQ)
    assert torch.equal(fa.flash_attention(q, k, v, sink=of_rows).out, fa.flash_attention(q, k, v, sink=sink).out)
    row = q[:, :, :1]
    assert torch.equal(fa.decode_attention(row, k, v, sink=of_rows[..., :1]), fa.decode_attention(row, k, v, sink=sink))


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinite_sinks_take_everything_or_nothing(dtype):
    inputs = random_qkv(dtype)
    sink = torch.tensor([0.5, torch.inf, -torch.inf, torch.inf])
    result = fa.flash_attention(*inputs, sink=sink)
    assert (result.out[:, 1::2] == 0).all() and (result.softmax_max[:, 1::2] == torch.inf).all()
    assert (result.softmax_sum[:, 1::2] == 1).all()
    limit = fa.flash_attention(*inputs, sink=sink.clamp(-3e38, 3e38))
    assert torch.equal(result.out, limit.out)
    d_out = torch.randn(result.out.shape).to(dtype)
    got = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], need_dsink=True, sink=sink)
    want = fa.flash_attention_grad(*inputs, limit.out, d_out, *limit[1:], need_dsink=True, sink=sink.clamp(-3e38, 3e38))
    for name in ("dq", "dk", "dv", "dsink"):
        assert torch.equal(getattr(got, name), getattr(want, name)), name
    assert (got.dq[:, 1::2] == 0).all() and (got.dsink[1:] == 0).all()

    prompt = fa.prompt_flash_attention(*inputs, sink=sink)
    assert torch.equal(prompt, result.out)
    out, lse = fa.decode_attention(inputs[0][:, :, :1], *inputs[1:], sink=sink, return_lse=True)
    assert (out[:, 1::2] == 0).all() and (lse.reshape(B, N)[:, 1::2] == torch.inf).all()
    assert not out.isnan().any() and not lse.isnan().any()
    q, k, v = inputs[0].transpose(1, 2), inputs[1][:, :1].transpose(1, 2), inputs[2][:, :1].transpose(1, 2)
    slots = torch.arange(8, dtype=torch.int32).expand(B, SQ, 1, 8).contiguous()
    sparse = fa.sparse_flash_attention(q, k, v, slots, sink=sink)
    assert (sparse.out[:, :, 1::2] == 0).all() and not sparse.out.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_key_gives_its_value(dtype):
    for _ in range(20):
        q, k, v = random_qkv(dtype, sq=1, sk=1)
        want = v.repeat_interleave(N // NKV, 1)
        assert torch.equal(fa.flash_attention(q, k, v).out, want)
        assert torch.equal(fa.decode_attention(q, k, v), want)
        assert torch.equal(fa.prompt_flash_attention(q, k, v), want)


def test_softcap():
    inputs = random_qkv()
    result = fa.flash_attention(*inputs, softcap=1.5)
    d_out = torch.randn_like(result.out)
    gradients = fa.flash_attention_grad(*inputs, result.out, d_out, *result[1:], softcap=1.5)
    check(inputs, (result.out, d_out, gradients[:3]), {"scale": SCALE, "softcap": 1.5})


def test_dropout_by_seed_is_the_generated_mask():
    inputs = random_qkv()
    keep_prob = 0.7
    bits = B * N * SQ * SK
    mask = fa.generate_dropout_mask(11, 5, keep_prob, bits)
    by_seed = fa.flash_attention(*inputs, keep_prob=keep_prob, seed=11, offset=5)
    by_mask = fa.flash_attention(*inputs, keep_prob=keep_prob, drop_mask=mask)
    assert torch.equal(by_seed.out, by_mask.out)
    drop = unpack_bits(torch.from_numpy(mask), (B, N, SQ, SK))
    assert abs(drop.double().mean().item() - keep_prob) < 5 * (keep_prob * (1 - keep_prob) / bits) ** 0.5
    d_out = torch.randn_like(by_seed.out)
    gradients = fa.flash_attention_grad(
        *inputs, by_seed.out, d_out, *by_seed[1:], keep_prob=keep_prob, seed=11, offset=5
    )
    want = {"scale": SCALE, "drop": drop, "keep_prob": keep_prob}
    check(inputs, (by_seed.out, d_out, gradients[:3]), want)


def test_split_heads_are_one_head():
    q, k, v = random_qkv()
    q_rope, k_rope = torch.randn(B, N, SQ, 8), torch.randn(B, NKV, SK, 8)
    keywords = {"query_rope": q_rope, "key_rope": k_rope}
    result = fa.flash_attention(q, k, v, **keywords)
    d_out = torch.randn_like(result.out)
    g = fa.flash_attention_grad(q, k, v, result.out, d_out, *result[1:], **keywords)
    joined = torch.cat([q, q_rope], -1), torch.cat([k, k_rope], -1), v
    gradients = torch.cat([g.dq, g.dq_rope], -1), torch.cat([g.dk, g.dk_rope], -1), g.dv
    check(joined, (result.out, d_out, gradients), {"scale": (D + 8) ** -0.5})


def test_packed_sequences_are_the_bits_of_each_alone():
    lengths_q, lengths_k = [5, 0, 17, 9], [8, 3, 17, 30]
    cu = {"cu_q": np.cumsum(lengths_q), "cu_kv": np.cumsum(lengths_k).tolist()}
    q, k, v = torch.randn(31, N, D), torch.randn(58, NKV, D), torch.randn(58, NKV, DV)
    result = fa.flash_attention(q, k, v, layout="TND", mask=fa.Mask.causal(), **cu)
    d_out = torch.randn_like(result.out)
    keywords = {"layout": "TND", "mask": fa.Mask.causal(), **cu}
    gradients = fa.flash_attention_grad(q, k, v, result.out, d_out, *result[1:], **keywords)
    rows = list(zip(result.out.split(lengths_q), d_out.split(lengths_q), gradients.dq.split(lengths_q), strict=True))
    parts = zip(q.split(lengths_q), k.split(lengths_k), v.split(lengths_k), strict=True)
    for (out, d_o, dq), (qb, kb, vb), dk in zip(rows, parts, gradients.dk.split(lengths_k), strict=True):
        alone = {"layout": "BSND", "mask": fa.Mask.causal()}
        qb, kb, vb = qb[None], kb[None], vb[None]
        want = fa.flash_attention(qb, kb, vb, **alone)
        want_g = fa.flash_attention_grad(qb, kb, vb, want.out, d_o[None], *want[1:], **alone)
        assert torch.equal(out, want.out[0])
        assert torch.equal(dq, want_g.dq[0]) and torch.equal(dk, want_g.dk[0])


def test_rows_without_keys():
    q, k, v = random_qkv(sq=SK, sk=SQ)
    result = fa.flash_attention(q, k, v, mask=fa.Mask.causal())
    empty = SK - SQ
    largest = torch.finfo(torch.float32).max
    assert (result.out[:, :, :empty] == 0).all() and (result.out[:, :, empty:] != 0).any()
    assert (result.softmax_max[:, :, :empty] == -largest).all()
    assert (result.softmax_sum[:, :, :empty] == largest).all()


def test_bits_do_not_depend_on_threads():
    inputs = random_qkv(sq=300, sk=300)
    results = []
    for threads in (1, 2, 3):
        context = fa.Context(threads=threads)
        assert context.threads == threads
        result = fa.flash_attention(*inputs, mask=fa.Mask.causal(), context=context)
        gradients = fa.flash_attention_grad(
            *inputs, result.out, result.out, *result[1:], mask=fa.Mask.causal(), context=context
        )
        results.append([*result, *gradients[:3]])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_many_callers_at_once():
    inputs = [random_qkv(sq=64 + i, sk=80) for i in range(4)]
    want = [fa.flash_attention(*qkv).out for qkv in inputs]
    wrong = []

    def call(i):
        for _ in range(20):
            if not torch.equal(fa.flash_attention(*inputs[i]).out, want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_gil_is_free_while_the_library_works():
    q = np.random.default_rng(1).standard_normal((1, 8, 2048, 64), dtype=np.float32)
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.wait(0.0005):
            ticks[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = ticks[0]
    fa.flash_attention(q, q, q, context=fa.Context(threads=1))
    during = ticks[0] - before
    stop.set()
    ticker.join()
    # The call takes tens of milliseconds, and the other thread ticks every half millisecond. If the call held the GIL,
    # there would be at most one tick.
    assert during > 3


def test_default_context():
    context = fa.Context(threads=1, isa="portable")
    assert fa.set_default_context(context) is None
    try:
        assert fa.plan("forward", (1, 1, 8, 8), (1, 1, 8, 8), (1, 1, 8, 8)).isa == "portable"
    finally:
        assert fa.set_default_context(None) is context


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": torch.zeros(B, NKV, SK, D + 1)}, r"^invalid argument: k\.shape\[3\]=25, want 24 \(q\.shape\[3\]\)$"),
        ({"q": torch.zeros(3)}, r"q\.shape=\[3\]"),
        ({"q": torch.zeros(B, N, SQ, D, dtype=torch.float64)}, "q.dtype is a float of 64 bits"),
        ({"v": torch.zeros(B, NKV, SK, DV, dtype=torch.float16)}, r"^invalid argument: v\.dtype=f16"),
        ({"layout": "NBSD"}, 'layout="NBSD", want one of BNSD'),
        ({"pse_type": 4}, "pse_type=4, want 0..3"),
        ({"keep_prob": 0.5}, "keep_prob=0.5, want drop_mask or seed"),
        ({"scale": float("nan")}, "scale"),
        ({"layout": "BSH"}, r"q\.shape="),
        ({"layout": "BSH", "q": torch.zeros(2, 3, 8), "k": torch.zeros(2, 3, 8), "v": torch.zeros(2, 3, 8)}, "head_num=0"),
        ({"mask": [1]}, "mask.prefix has 1 entries, want 2"),
        ({"dense_mask": torch.zeros(SQ, SK)}, "dense_mask.dtype=f32"),
    ],
)
def test_bad_input_is_a_value_error_that_names_it(change, message):
    q, k, v = random_qkv()
    arguments = {"q": q, "k": k, "v": v, **change}
    if "mask" in change:
        arguments["mask"] = fa.Mask.prefix(change["mask"])
    with pytest.raises(ValueError, match=message):
        fa.flash_attention(**arguments)


def test_what_is_no_array_is_a_type_error():
    q, k, v = random_qkv()
    with pytest.raises(TypeError, match="q: want an array"):
        fa.flash_attention([1.0], k, v)
    with pytest.raises(TypeError, match="dense_mask: want an array"):
        fa.flash_attention(q, k, v, dense_mask="causal")
    with pytest.raises(TypeError, match="q: want an array, got tuple"):
        fa.flash_attention((B, N, SQ, D), (B, NKV, SK, D), (B, NKV, SK, DV))
    with pytest.raises(TypeError, match="sink: want an array, got tuple"):
        fa.flash_attention(q, k, v, sink=(N,))


def test_tensors_of_autograd_are_refused():
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match="^invalid argument: k: requires a gradient"):
        fa.flash_attention(q, k.requires_grad_(), v)
    with torch.no_grad():
        assert not fa.flash_attention(q, k, v).out.requires_grad


def test_bad_sparse_mode_and_context():
    with pytest.raises(ValueError, match=r"sparse_mode=9, want 0\.\.8"):
        fa.Mask.from_sparse_mode(9)
    with pytest.raises(ValueError, match='isa="mmx"'):
        fa.Context(isa="mmx")
    with pytest.raises(ValueError, match="threads"):
        fa.Context(threads=-1)
    with pytest.raises(ValueError, match="accumulation"):
        fa.Context(accumulation="fast")


def test_plan_says_what_would_run():
    plan = fa.plan("forward", (1, 8, 1024, 64), (1, 2, 1024, 64), (1, 2, 1024, 64), mask=fa.Mask.causal(), dtype="bf16")
    assert plan.op == "forward" and plan.block_q > 0 and plan.tasks > 0 and plan.kernels
    assert plan.flops == pytest.approx(4 * 8 * 64 * 1024 * 1025 / 2)
    assert plan.flops_full == pytest.approx(4 * 8 * 64 * 1024 * 1024)
    assert plan.isa in str(plan)


def test_plan_of_arrays_and_of_the_backward():
    q, k, v = random_qkv(torch.bfloat16)
    plan = fa.plan("backward", q, k, v, context=fa.Context(threads=2))
    assert plan.op == "backward" and plan.workers == 2
    assert plan.flops == pytest.approx(B * N * SQ * SK * (6 * D + 4 * DV))
    with pytest.raises(ValueError, match='op="sideways"'):
        fa.plan("sideways", q, k, v)
    with pytest.raises(ValueError, match=r"^invalid argument: k\.shape\[3\]=9"):
        fa.plan("forward", (1, 1, 8, 8), (1, 1, 8, 9), (1, 1, 8, 8))


def test_generated_mask_checks_its_arguments():
    with pytest.raises(ValueError, match="bits=-1"):
        fa.generate_dropout_mask(1, 0, 0.5, -1)
    with pytest.raises(ValueError, match="keep_prob"):
        fa.generate_dropout_mask(1, 0, 0.0, 8)
