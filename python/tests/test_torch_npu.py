"""fa.torch_npu for training: names, defaults, returned values, the device's rules for masks, statistics, dropout,
gradients."""

import inspect

import pytest
import torch
from reference import assert_within, attention, bnsd, summed_to, to_layout, tolerances, unpack_bits

import fa
import fa.torch_npu as torch_npu

B, N, NKV, S, D = 2, 4, 2, 40, 16
SCALE = D**-0.5
LAYOUTS = ["BNSD", "BSND", "BSH", "SBH"]
TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)

FACES = {  # names and arguments as the documentation of torch_npu lists them
    "npu_fusion_attention": "query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, "
    "scale=1.0, keep_prob=1.0, pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, prefix=None, "
    "actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, "
    "softmax_layout='', sink=None, dropout_mask=None, seed=0, offset=0",
    "npu_fusion_attention_v2": "query, key, value, head_num, input_layout, *, pse=None, padding_mask=None, "
    "atten_mask=None, query_rope=None, key_rope=None, scale=1.0, keep_prob=1.0, pre_tokens=2147483647, "
    "next_tokens=2147483647, inner_precise=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, "
    "gen_mask_parallel=True, sync=False, pse_type=1, q_start_idx=None, kv_start_idx=None, softmax_layout='', "
    "sink=None, dropout_mask=None, seed=0, offset=0",
    "npu_fusion_attention_grad": "query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, "
    "atten_mask=None, softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0, "
    "keep_prob=1.0, pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, seed=0, offset=0, numels=0, "
    "prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, "
    "softmax_layout='', sink=None",
    "npu_fusion_attention_grad_v2": "query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, "
    "atten_mask=None, softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, query_rope=None, "
    "key_rope=None, scale_value=1.0, keep_prob=1.0, pre_tokens=2147483647, next_tokens=2147483647, inner_precise=0, "
    "seed=0, offset=0, numels=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, "
    "gen_mask_parallel=True, sync=False, pse_type=1, q_start_idx=None, kv_start_idx=None, softmax_layout='', sink=None",
    "npu_ring_attention_update": "prev_attn_out, prev_softmax_max, prev_softmax_sum, cur_attn_out, cur_softmax_max, "
    "cur_softmax_sum, *, actual_seq_qlen=None, input_layout='SBH', input_softmax_layout=''",
}


@pytest.mark.parametrize("name", FACES)
def test_signatures(name):
    signature = inspect.signature(getattr(torch_npu, name))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({FACES[name]})"


def random_qkv(layout="BNSD", dtype=torch.float32, sq=S, sk=S):
    shapes = (B, N, sq, D), (B, NKV, sk, D), (B, NKV, sk, D)
    wide = [torch.randn(shape).to(dtype) for shape in shapes]
    return wide, [to_layout(t, layout).requires_grad_() for t in wide]


def check(wide, leaves, out, layout, reference, extra=()):
    """Checks output and autograd's gradients, after conversion to BNSD. extra: pairs (name in the reference, leaf)."""
    d_out = torch.randn(out.shape).to(out.dtype)
    sources = [*leaves, *(leaf for _, leaf in extra)]
    gradients = torch.autograd.grad(out, sources, d_out)
    inputs = [t.double().requires_grad_() for t in wide]
    others = {name: leaf.detach().double().requires_grad_() for name, leaf in extra}
    keywords = {"scale": SCALE, **reference, **others}
    want, _, _ = attention(*inputs, **keywords)
    want_grads = torch.autograd.grad(want, [*inputs, *others.values()], bnsd(d_out, layout, N).double())
    bounds = tolerances(*wide, bnsd(d_out, layout, N), out.dtype, **keywords)
    assert_within(bnsd(out, layout, N), want, bounds["out"], "out")
    heads = (N, NKV, NKV)
    seen = [bnsd(g, layout, h) for g, h in zip(gradients[:3], heads, strict=True)] + list(gradients[3:])
    for name, g, w in zip(["dq", "dk", "dv", *(f"d{n}" for n, _ in extra)], seen, want_grads, strict=True):
        bound = summed_to(bounds[name], g.shape, bounds[name]) if name == "dbias" else bounds[name]
        assert_within(g, w, bound, name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_and_autograd(layout, dtype):
    wide, leaves = random_qkv(layout, dtype)
    result = torch_npu.npu_fusion_attention(*leaves, N, layout.lower(), scale=SCALE)
    assert len(result) == 7
    out, softmax_max, softmax_sum, softmax_out, seed, offset, numels = result
    assert softmax_max.shape == softmax_sum.shape == (B, N, S, 8) and softmax_max.dtype == torch.float32
    assert (softmax_max == softmax_max[..., :1]).all() and not softmax_max.requires_grad
    assert softmax_out.numel() == 0 and (seed, offset, numels) == (0, 0, B * N * S * S)
    check(wide, leaves, out, layout, {})


MODES = [
    (2, {}, lambda i, j, d: j <= i),
    (3, {}, lambda i, j, d: j <= i + d),
    (4, {"pre": 12, "next": 3}, lambda i, j, d: (j >= i + d - 12) & (j <= i + d + 3)),
]


@pytest.mark.parametrize(("mode", "tokens", "keeps"), MODES, ids=["2", "3", "4"])
@pytest.mark.parametrize("version", ["", "_v2"])
def test_compressed_masks(mode, tokens, keeps, version):
    wide, leaves = random_qkv(sk=S + 11)
    suffix = "tokens" if version else "tockens"
    tokens = {f"{side}_{suffix}": count for side, count in tokens.items()}
    function = getattr(torch_npu, f"npu_fusion_attention{version}")
    out = function(*leaves, N, "BNSD", scale=SCALE, atten_mask=TRIANGLE, sparse_mode=mode, **tokens)[0]
    keep = keeps(torch.arange(S)[:, None], torch.arange(S + 11)[None, :], 11)
    check(wide, leaves, out, "BNSD", {"keep": keep})


@pytest.mark.parametrize("mode", [0, 1])
def test_full_masks(mode):
    wide, leaves = random_qkv()
    mask = torch.rand(B, 1, S, S) < 0.4
    out = torch_npu.npu_fusion_attention(*leaves, N, "BNSD", atten_mask=mask, scale=SCALE, sparse_mode=mode)[0]
    check(wide, leaves, out, "BNSD", {"keep": ~mask})


def test_prefix_with_the_compressed_mask():
    wide, leaves = random_qkv()
    below = torch.cat([torch.zeros(1024, 1024), torch.ones(1024, 1024)], 1).bool()
    mask, prefix = torch.cat([TRIANGLE, below]), [10, 25]
    out = torch_npu.npu_fusion_attention(
        *leaves, N, "BNSD", atten_mask=mask, scale=SCALE, sparse_mode=6, prefix=prefix
    )[0]
    causal = torch.ones(S, S, dtype=torch.bool).tril()
    keep = torch.stack([causal | (torch.arange(S) < p) for p in prefix])[:, None]
    check(wide, leaves, out, "BNSD", {"keep": keep})


def test_without_a_mask_no_mode_means_anything():
    _, leaves = random_qkv()
    every = torch_npu.npu_fusion_attention(*leaves, N, "BNSD")[0]
    for mode in range(1, 9):
        out = torch_npu.npu_fusion_attention(*leaves, N, "BNSD", sparse_mode=mode, pre_tockens=1, next_tockens=0)[0]
        assert torch.equal(out, every)


@pytest.mark.parametrize("pse_type", [0, 1])
def test_position_bias_has_a_gradient(pse_type):
    wide, leaves = random_qkv()
    pse = torch.randn(1, N, S, S, requires_grad=True)
    out = torch_npu.npu_fusion_attention_v2(*leaves, N, "BNSD", pse=pse, pse_type=pse_type, scale=SCALE)[0]
    check(wide, leaves, out, "BNSD", {"scale_bias": pse_type == 1}, extra=[("bias", pse)])


def test_slopes_with_start_indices():
    wide, leaves = random_qkv()
    slopes = torch.rand(N)
    keywords = {"pse": slopes, "pse_type": 2, "scale": SCALE}
    out = torch_npu.npu_fusion_attention_v2(*leaves, N, "BNSD", q_start_idx=[4], kv_start_idx=[1], **keywords)[0]
    distance = (torch.arange(S)[None, :] + 1 - torch.arange(S)[:, None] - 4).abs()
    check(wide, leaves, out, "BNSD", {"bias": -slopes[None, :, None, None] * distance})
    alone = torch_npu.npu_fusion_attention_v2(*leaves, N, "BNSD", q_start_idx=[4], **keywords)[0]
    assert torch.equal(alone, torch_npu.npu_fusion_attention_v2(*leaves, N, "BNSD", **keywords)[0])
    from_0 = torch_npu.npu_fusion_attention_v2(*leaves, N, "BNSD", q_start_idx=[0], kv_start_idx=[3], **keywords)[0]
    assert not torch.equal(from_0, alone)
    assert torch.equal(torch_npu.npu_fusion_attention_v2(*leaves, N, "BNSD", kv_start_idx=[3], **keywords)[0], from_0)


def test_sink_has_a_gradient():
    wide, leaves = random_qkv()
    sink = torch.randn(N, requires_grad=True)
    out = torch_npu.npu_fusion_attention(*leaves, N, "BNSD", scale=SCALE, sink=sink)[0]
    check(wide, leaves, out, "BNSD", {}, extra=[("sink", sink)])


def test_dropout_backward_drops_what_the_forward_dropped():
    wide, leaves = random_qkv()
    out, _, _, _, seed, offset, numels = torch_npu.npu_fusion_attention(*leaves, N, "BNSD", scale=SCALE, keep_prob=0.8)
    drop = unpack_bits(torch.from_numpy(fa.generate_dropout_mask(seed, offset, 0.8, numels)), (B, N, S, S))
    check(wide, leaves, out, "BNSD", {"drop": drop, "keep_prob": 0.8})


def test_dropout_seeds():
    _, leaves = random_qkv()

    def run(**keywords):
        return torch_npu.npu_fusion_attention(*leaves, N, "BNSD", keep_prob=0.5, **keywords)

    drawn, again = run(), run()
    assert drawn[4] != again[4] and not torch.equal(drawn[0], again[0])
    repeated = run(seed=drawn[4], offset=drawn[5])
    assert torch.equal(repeated[0], drawn[0]) and repeated[4:6] == drawn[4:6]
    negative = run(seed=-3, offset=2)
    assert negative[4] == -3 and torch.equal(negative[0], run(seed=2**64 - 3, offset=2)[0])
    mask = torch.from_numpy(fa.generate_dropout_mask(drawn[4], drawn[5], 0.5, drawn[6]))
    masked = run(dropout_mask=mask, seed=5, offset=6)
    assert torch.equal(masked[0], drawn[0]) and masked[4:6] == (5, 6)


def test_seeds_of_gradients_are_integers_or_tensors():
    _, leaves = random_qkv()
    results = torch_npu.npu_fusion_attention(*leaves, N, "BNSD", keep_prob=0.5, seed=-3, offset=2)
    out, softmax_max, softmax_sum = (t.detach() for t in results[:3])
    known = {"softmax_max": softmax_max, "softmax_sum": softmax_sum, "attention_in": out, "keep_prob": 0.5}
    inputs = *(t.detach() for t in leaves), torch.randn_like(out), N, "BNSD"
    of_tensors = torch_npu.npu_fusion_attention_grad(*inputs, **known, seed=torch.tensor([-3]), offset=torch.tensor([2]))
    for seed, offset in ((-3, 2), (torch.tensor(-3), 2), (-3, torch.tensor([2]))):
        got = torch_npu.npu_fusion_attention_grad(*inputs, **known, seed=seed, offset=offset)
        assert all(torch.equal(g, w) for g, w in zip(got[:3], of_tensors[:3], strict=True))


@pytest.mark.parametrize("keep_prob", [1.0, 0.7])
@pytest.mark.parametrize("version", ["", "_v2"])
def test_grad_functions_give_autograd_s_bits(version, keep_prob):
    _, leaves = random_qkv("BSND")
    pse = torch.randn(B, N, S, S, requires_grad=True)
    sink = torch.randn(N, requires_grad=True)
    keywords = {"pse": pse, "sink": sink, "keep_prob": keep_prob, "atten_mask": TRIANGLE, "sparse_mode": 2}
    forward = getattr(torch_npu, f"npu_fusion_attention{version}")
    backward = getattr(torch_npu, f"npu_fusion_attention_grad{version}")
    out, softmax_max, softmax_sum, _, seed, offset, numels = forward(*leaves, N, "BSND", scale=SCALE, **keywords)
    dy = torch.randn_like(out)
    want = torch.autograd.grad(out, [*leaves, pse, sink], dy)
    with torch.no_grad():
        got = backward(
            *leaves,
            dy,
            N,
            "BSND",
            softmax_max=softmax_max,
            softmax_sum=softmax_sum,
            attention_in=out,
            scale_value=SCALE,
            seed=seed,
            offset=offset,
            numels=numels,
            **keywords,
        )
    assert len(got) == (7 if version else 5)
    named = dict(zip(["dq", "dk", "dv", "dpse", *(["rq", "rk"] if version else []), "dsink"], got, strict=True))
    for name, w in zip(["dq", "dk", "dv", "dpse", "dsink"], want, strict=True):
        assert torch.equal(named[name], w)
    assert named.get("rq") is None and named.get("rk") is None


def test_split_heads():
    wide, leaves = random_qkv()
    ropes = [torch.randn(B, heads, S, 8, requires_grad=True) for heads in (N, NKV)]
    scale = (D + 8) ** -0.5
    out, top, total, *_ = torch_npu.npu_fusion_attention_v2(
        *leaves, N, "BNSD", query_rope=ropes[0], key_rope=ropes[1], scale=scale
    )
    joined = [torch.cat([t, r.detach()], -1) for t, r in zip(wide[:2], ropes, strict=True)] + [wide[2]]
    dy = torch.randn_like(out)
    dq, dk, dv, dq_rope, dk_rope = torch.autograd.grad(out, [*leaves, *ropes], dy)
    inputs = [t.double().requires_grad_() for t in joined]
    want, _, _ = attention(*inputs, scale=scale)
    want_grads = torch.autograd.grad(want, inputs, dy.double())
    bounds = tolerances(*joined, dy, torch.float32, scale=scale)
    got = [torch.cat([dq, dq_rope], -1), torch.cat([dk, dk_rope], -1), dv]
    assert_within(out, want, bounds["out"], "out")
    for name, g, w in zip(("dq", "dk", "dv"), got, want_grads, strict=True):
        assert_within(g, w, bounds[name], name)
    gradients = torch_npu.npu_fusion_attention_grad_v2(
        *(t.detach() for t in leaves),
        dy,
        N,
        "BNSD",
        softmax_max=top,
        softmax_sum=total,
        attention_in=out.detach(),
        query_rope=ropes[0].detach(),
        key_rope=ropes[1].detach(),
        scale_value=scale,
    )
    assert gradients[3] is None and gradients[6] is None
    for g, w in zip((*gradients[:3], *gradients[4:6]), (dq, dk, dv, dq_rope, dk_rope), strict=True):
        assert torch.equal(g, w)


LENGTHS_Q, LENGTHS_K = [7, 0, 20, 5], [9, 4, 20, 16]
CU_Q, CU_K = torch.tensor(LENGTHS_Q).cumsum(0).tolist(), torch.tensor(LENGTHS_K).cumsum(0).tolist()


def packed():
    tokens = sum(LENGTHS_Q), sum(LENGTHS_K)
    shapes = (tokens[0], N, D), (tokens[1], NKV, D), (tokens[1], NKV, D)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("softmax_layout", ["", "TND", "same_as_input"])
def test_packed_sequences(softmax_layout):
    leaves = packed()
    keywords = {"actual_seq_qlen": CU_Q, "actual_seq_kvlen": CU_K, "softmax_layout": softmax_layout}
    mask = {"atten_mask": TRIANGLE, "sparse_mode": 3}
    out, top, total, _, _, _, numels = torch_npu.npu_fusion_attention(*leaves, N, "TND", **mask, **keywords)
    assert top.shape == total.shape == (sum(LENGTHS_Q), N, 8)
    assert numels == N * sum(q * k for q, k in zip(LENGTHS_Q, LENGTHS_K, strict=True))
    dy = torch.randn_like(out)
    gradients = torch.autograd.grad(out, leaves, dy)
    begin_q = begin_k = 0
    for end_q, end_k in zip(CU_Q, CU_K, strict=True):
        sq, rows, keys = end_q - begin_q, slice(begin_q, end_q), slice(begin_k, end_k)
        alone = [leaves[0][None, rows].detach(), *(t[None, keys].detach() for t in leaves[1:])]
        want, want_top, *_ = torch_npu.npu_fusion_attention(*alone, N, "BSND", **mask)
        assert torch.equal(out[rows], want[0])
        if softmax_layout == "":
            block = top.reshape(-1)[begin_q * N * 8 : end_q * N * 8].view(N, sq, 8)
        else:
            block = top[rows].transpose(0, 1)
        assert torch.equal(block, want_top[0])
        begin_q, begin_k = end_q, end_k
    with torch.no_grad():
        backward = torch_npu.npu_fusion_attention_grad(
            *leaves, dy, N, "TND", softmax_max=top, softmax_sum=total, attention_in=out, **mask, **keywords
        )
    for g, w in zip(backward[:3], gradients, strict=True):
        assert torch.equal(g, w)


@pytest.mark.parametrize("softmax_layout", ["", "TND"])
@pytest.mark.parametrize("zeros", [(2, 2), (3, 0), (0, 1)])
def test_zeros_behind_the_sums_are_padding(softmax_layout, zeros):
    leaves = packed()
    lists = []
    for sums, padding in zip((CU_Q, CU_K), zeros, strict=True):
        lists.append([*sums, *[0] * padding, *[sums[-1]] * (max(zeros) - padding)])
    mask = {"atten_mask": TRIANGLE, "sparse_mode": 3, "softmax_layout": softmax_layout}
    want = torch_npu.npu_fusion_attention(*leaves, N, "TND", actual_seq_qlen=CU_Q, actual_seq_kvlen=CU_K, **mask)
    got = torch_npu.npu_fusion_attention(*leaves, N, "TND", actual_seq_qlen=lists[0], actual_seq_kvlen=lists[1], **mask)
    assert all(torch.equal(g, w) for g, w in zip(got[:3], want[:3], strict=True)) and got[6] == want[6]
    gradients = [torch.autograd.grad(result[0].sum(), leaves) for result in (got, want)]
    assert all(torch.equal(g, w) for g, w in zip(*gradients, strict=True))


def test_a_zero_between_sums_is_no_padding():
    with pytest.raises(ValueError, match="actual_seq_qlen"):
        torch_npu.npu_fusion_attention(*packed(), N, "TND", actual_seq_qlen=[3, 0, *CU_Q], actual_seq_kvlen=[3, 3, *CU_K])


T, X = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 4, 8).numpy()
BSND = torch.zeros(1, 4, 1, 8)
INDICES, WEIGHTS = torch.zeros(1, 4, 1, 2, dtype=torch.int32), torch.zeros(1, 4, 1)


@pytest.mark.parametrize(("name", "arguments"), [
    ("npu_fusion_attention", {"query": T, "key": T, "value": T, "head_num": 1, "input_layout": "BNSD", "pse": T,
                              "atten_mask": T, "sink": T, "dropout_mask": T}),
    ("npu_fusion_attention_v2", {"query": T, "key": T, "value": T, "head_num": 1, "input_layout": "BNSD", "pse": T,
                                 "atten_mask": T, "sink": T, "dropout_mask": T, "query_rope": T, "key_rope": T}),
    ("npu_fusion_attention_grad", {"query": T, "key": T, "value": T, "dy": T, "head_num": 1, "input_layout": "BNSD",
                                   "softmax_max": T, "softmax_sum": T, "attention_in": T, "pse": T, "sink": T}),
    ("npu_prompt_flash_attention", {"query": T, "key": T, "value": T, "atten_mask": T, "pse_shift": T,
                                    "deq_scale1": T, "quant_offset2": T}),
    ("npu_ring_attention_update", {"prev_attn_out": T, "prev_softmax_max": T, "prev_softmax_sum": T,
                                   "cur_attn_out": T, "cur_softmax_max": T, "cur_softmax_sum": T}),
    ("npu_sparse_flash_attention", {"query": BSND, "key": BSND, "value": BSND, "sparse_indices": INDICES,
                                    "scale_value": 1.0, "block_table": INDICES, "query_rope": BSND}),
    ("npu_lightning_indexer", {"query": BSND, "key": BSND, "weights": WEIGHTS, "block_table": INDICES}),
    ("npu_sparse_lightning_indexer_grad_kl_loss", {
        "query": BSND, "key": BSND, "query_index": BSND, "key_index": BSND, "weights": WEIGHTS,
        "sparse_indices": INDICES, "softmax_max": WEIGHTS, "softmax_sum": WEIGHTS, "scale_value": 1.0}),
])
def test_what_is_no_tensor_is_named(name, arguments):
    for argument, value in arguments.items():
        if isinstance(value, torch.Tensor):
            with pytest.raises(TypeError, match=f"^{argument}: want a Tensor.*, got ndarray"):
                getattr(torch_npu, name)(**{**arguments, argument: X})
        if isinstance(value, str):
            with pytest.raises(TypeError, match=f"^{argument}: want a str, got int"):
                getattr(torch_npu, name)(**{**arguments, argument: 3})


def test_ring_update_of_fixed_lengths():
    q, k, v = (torch.randn(S, B, N * D) for _ in range(3))
    call = {"head_num": N, "input_layout": "SBH", "scale": SCALE}
    whole = torch_npu.npu_fusion_attention(q, k, v, **call)
    halves = [torch_npu.npu_fusion_attention(q, k[part], v[part], **call) for part in (slice(13), slice(13, None))]
    out, top, total = torch_npu.npu_ring_attention_update(*halves[0][:3], *halves[1][:3])
    assert torch.allclose(out, whole[0], rtol=0, atol=3 * 2**-23 * v.abs().max().item())
    assert torch.allclose(top, whole[1], rtol=0, atol=D * 2**-23)
    assert torch.allclose(total, whole[2], rtol=(S + D) * 2**-23) and total.shape == (B, N, S, 8)


def test_ring_update_of_packed_sequences_in_both_orders():
    q, k, v = (t.detach() for t in packed())
    lengths = {"actual_seq_qlen": CU_Q, "actual_seq_kvlen": CU_K}
    results = {}
    for softmax_layout, order in (("", ""), ("same_as_input", "TND")):
        call = {"head_num": N, "input_layout": "TND", "softmax_layout": softmax_layout, **lengths}
        first = torch_npu.npu_fusion_attention(q, k, v, **call)
        second = torch_npu.npu_fusion_attention(q, k.flip(-1), v + 1, **call)
        with_zero = torch.tensor([0, *CU_Q])
        results[order] = torch_npu.npu_ring_attention_update(
            *first[:3], *second[:3], actual_seq_qlen=with_zero, input_layout="TND", input_softmax_layout=order
        )
    assert torch.equal(results[""][0], results["TND"][0])
    from fa._torch.ops import by_row

    assert torch.equal(by_row(results[""][1], CU_Q), results["TND"][1])
    assert torch.equal(by_row(results[""][2], CU_Q), results["TND"][2])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"input_layout": "NBSD"}, 'input_layout="NBSD"'),
        ({"head_num": 0}, "head_num=0, want >= 1"),
        ({"head_num": 3}, "head_num=3"),
        ({"sparse_mode": 9}, r"sparse_mode=9, want 0\.\.8"),
        ({"sparse_mode": 2, "atten_mask": torch.zeros(S, S)}, "atten_mask.dtype"),
        ({"sparse_mode": 2, "atten_mask": torch.zeros(S, S, dtype=torch.bool)}, r"atten_mask\.shape=\[40,40\], want"),
        ({"sparse_mode": 2, "atten_mask": ~TRIANGLE}, r"atten_mask\[0\]\[0\]=1, want 0"),
        ({"sparse_mode": 4, "atten_mask": TRIANGLE, "pre_tockens": -50}, "pre_tockens=-50"),
        ({"sparse_mode": 7, "atten_mask": TRIANGLE}, r"sparse_mode=7, want 0\.\.6"),
        ({"sparse_mode": 6, "atten_mask": torch.zeros(3072, 2048).bool()}, "prefix: missing, want 2 entries"),
        ({"keep_prob": 1.5}, "keep_prob"),
        ({"keep_prob": 0.5, "dropout_mask": torch.zeros(3, dtype=torch.uint8)}, r"dropout_mask\.shape\[0\]=3"),
        ({"softmax_layout": "BSH"}, 'softmax_layout="BSH", want "", "TND"'),
        ({"input_layout": "TND"}, "query"),
    ],
)
def test_refusals_name_torch_npu_s_arguments(keywords, message):
    _, leaves = random_qkv()
    with pytest.raises(ValueError, match=rf"^invalid argument: {message}"):
        torch_npu.npu_fusion_attention(*leaves, **{"head_num": N, "input_layout": "BNSD", **keywords})


def test_packed_refusals():
    q, k, v = (t.detach() for t in packed())
    mask = {"atten_mask": TRIANGLE, "sparse_mode": 3}
    with pytest.raises(ValueError, match="actual_seq_qlen"):
        torch_npu.npu_fusion_attention(q, k, v, N, "TND")
    with pytest.raises(ValueError, match="at least as many keys as queries"):
        lengths = {"actual_seq_qlen": CU_K, "actual_seq_kvlen": CU_Q}
        torch_npu.npu_fusion_attention(k, q[:, :NKV], v[:32], NKV, "TND", **lengths, **mask)
    with pytest.raises(ValueError, match="sparse_mode=5"):
        torch_npu.npu_fusion_attention(
            q,
            k,
            v,
            N,
            "TND",
            actual_seq_qlen=CU_Q,
            actual_seq_kvlen=CU_K,
            atten_mask=torch.zeros(20, 20).bool(),
            sparse_mode=5,
            prefix=[1, 1, 1, 1],
        )


def test_grad_and_ring_refusals():
    _, (q, k, v) = random_qkv()
    with pytest.raises(ValueError, match="attention_in: missing"):
        torch_npu.npu_fusion_attention_grad(q, k, v, q, N, "BNSD", softmax_max=q, softmax_sum=q)
    with pytest.raises(ValueError, match='input_layout="BNSD"'):
        torch_npu.npu_ring_attention_update(q, q, q, q, q, q, input_layout="BNSD")
    with pytest.raises(ValueError, match="actual_seq_qlen: missing"):
        torch_npu.npu_ring_attention_update(q, q, q, q, q, q, input_layout="TND")


@pytest.mark.parametrize(("name", "argument"), [
    ("npu_fusion_attention_grad", "pre_tockens"),
    ("npu_fusion_attention_grad_v2", "pre_tokens"),
])
def test_gradients_name_their_own_arguments(name, argument):
    (q, k, v), _ = random_qkv()
    statistics = {"softmax_max": torch.zeros(B, N, S, 8), "softmax_sum": torch.ones(B, N, S, 8)}

    def refused(**keywords):
        with pytest.raises(ValueError) as error:
            getattr(torch_npu, name)(q, k, v, q, N, "BNSD", attention_in=q, **statistics, **keywords)
        return str(error.value)

    assert refused(scale_value=float("nan")).startswith("invalid argument: scale_value=nan")
    mask = {"atten_mask": TRIANGLE, "sparse_mode": 4}
    assert refused(**mask, **{argument: -50}).startswith(f"invalid argument: {argument}=-50")


def test_names_in_the_middle_of_a_message_are_torch_npu_s():
    q = torch.zeros(4, 1, 8)
    with pytest.raises(ValueError, match=r"actual_seq_qlen: missing, .* \(input_layout TND\)"):
        torch_npu.npu_fusion_attention(q, q, q, 1, "TND")
    with pytest.raises(ValueError, match=r"actual_seq_kvlen has 2 entries, want 1 \(actual_seq_qlen\)"):
        torch_npu.npu_fusion_attention(q, q, q, 1, "TND", actual_seq_qlen=[4], actual_seq_kvlen=[2, 4])


def test_types_are_named_that_an_argument_may_have():
    q = torch.zeros(1, 1, 4, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="^invalid argument: query.dtype .*, want float32, float16 or bfloat16$"):
        torch_npu.npu_fusion_attention(q, q, q, 1, "BNSD")
    with pytest.raises(ValueError, match="^invalid argument: atten_mask.dtype .*, want bool or an integer type$"):
        q = q.float()
        torch_npu.npu_fusion_attention(q, q, q, 1, "BNSD", atten_mask=torch.zeros(4, 4, dtype=torch.float64))


ROWS, WRONG_ROWS = torch.ones(4, 1, 8), torch.ones(1, 8)
WRONG_SUMS = {
    "past the rows": ([2, 9], r"actual_seq_qlen\[{1}\]=9, want <= 4"),
    "falling": ([3, 2, 4], r"actual_seq_qlen\[{1}\]=2, want >= 3 \(actual_seq_qlen\[{0}\]\)"),
    "negative": ([-1, 4], r"actual_seq_qlen\[{0}\]=-1, want >= 0"),
}


@pytest.mark.parametrize("wrong", WRONG_SUMS)
def test_statistics_by_sequence_are_not_moved_by_wrong_sums(wrong):
    sums, message = WRONG_SUMS[wrong]
    with pytest.raises(ValueError, match="^invalid argument: " + message.format(1, 2)):
        torch_npu.npu_ring_attention_update(*[ROWS] * 6, actual_seq_qlen=torch.tensor([0, *sums]), input_layout="TND")
    statistics = {"softmax_max": ROWS, "softmax_sum": ROWS, "attention_in": ROWS}
    lengths = {"actual_seq_qlen": sums, "actual_seq_kvlen": [4] * len(sums)}
    with pytest.raises(ValueError, match="^invalid argument: " + message.format(0, 1)):
        torch_npu.npu_fusion_attention_grad(*[ROWS] * 4, 1, "TND", **statistics, **lengths)


@pytest.mark.parametrize(("sums", "message"), [
    ([1, 4], r"actual_seq_qlen\[0\]=1, want 0"),
    ([], r"actual_seq_qlen.shape=\[0\], want \[sequences \+ 1\]"),
    ([[0, 4]], r"actual_seq_qlen.shape=\[1, 2\], want"),
    ([0.0, 4.0], "actual_seq_qlen.dtype=torch.float32, want torch.int64"),
])
def test_ring_update_takes_sums_with_a_leading_0(sums, message):
    with pytest.raises(ValueError, match="^invalid argument: " + message):
        sums = torch.tensor(sums, dtype=None if sums else torch.int64)
        torch_npu.npu_ring_attention_update(*[ROWS] * 6, actual_seq_qlen=sums, input_layout="TND")


def test_ring_update_names_torch_npu_s_arguments():
    keywords = {"actual_seq_qlen": torch.tensor([0, 4]), "input_layout": "TND"}
    names = [*inspect.signature(torch_npu.npu_ring_attention_update).parameters][:6]
    for place, name in enumerate(names):
        tensors = [ROWS] * 6
        tensors[place] = WRONG_ROWS if place % 3 else ROWS[:2]
        first = "(prev_softmax_max|cur_attn_out)" if place == 0 else name  # the argument that the error names
        for layout in ("", "TND"):
            with pytest.raises(ValueError, match=f"^invalid argument: {first}.shape"):
                torch_npu.npu_ring_attention_update(*tensors, **keywords, input_softmax_layout=layout)


def test_statistics_by_sequence_have_a_row_for_each_of_query():
    arguments = {"softmax_max": ROWS, "softmax_sum": ROWS, "attention_in": ROWS}
    for name in ("softmax_max", "softmax_sum"):
        with pytest.raises(ValueError, match=rf"^invalid argument: {name}.shape=\[1, 8\], want \[4, 1, 8\]"):
            torch_npu.npu_fusion_attention_grad(
                *[ROWS] * 4, 1, "TND", **{**arguments, name: WRONG_ROWS}, actual_seq_qlen=[4], actual_seq_kvlen=[4]
            )
