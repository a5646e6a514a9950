"""Fused inference as serving programs call it: one test per kind of call, with its keywords, shapes and strides."""

import pytest
import torch
from npu_sequences import (
    TRIANGLE,
    arranged,
    assert_sequences,
    causal,
    lse_of,
    paged,
    parts,
    separated,
    sums,
    table_of,
)

import fa.torch_npu as torch_npu

N, NKV, D, PAGE = 8, 2, 64, 128
SCALE = D**-0.5
ROWS, KEYS = [3, 1, 20], [3, 130, 150]
MAX = 2147483647


@pytest.fixture
def operators():
    """torch.ops.npu, whose functions exist after install()."""
    torch_npu.install()
    yield torch.ops.npu
    torch_npu.uninstall()


def inputs_of(rows=ROWS, keys=KEYS, dtype=torch.bfloat16, heads=N, heads_kv=NKV, size=D):
    torch.manual_seed(5)
    return parts(heads, rows, size, dtype), parts(heads_kv, keys, size, dtype), parts(heads_kv, keys, size, dtype)


def window(rows, keys, left):
    return causal(rows, keys) & ~causal(rows, keys).new_ones(rows, keys).tril(keys - rows - left - 1)


def expect(out, layout, rows, q, k, v, keep, lse=None, name=None, scale=SCALE, **features):
    keep = [keep(*pair) for pair in zip([t.shape[1] for t in q], [t.shape[1] for t in k], strict=True)]
    got = separated(out, layout, rows, q[0].shape[0])
    own = None if lse is None else lse_of(lse, name or layout, rows)
    assert_sequences(got, own, list(zip(q, k, v, keep, strict=True)), scale=scale, **features)


def everything(rows, keys):
    return torch.ones(rows, keys, dtype=torch.bool)


@pytest.mark.parametrize(("mode", "keep"), [
    ({"sparse_mode": 3}, causal),
    ({"sparse_mode": 4, "pre_tokens": 5, "next_tokens": 0}, lambda rows, keys: window(rows, keys, 5)),
    ({"sparse_mode": 0}, everything),
])
def test_prefill_without_a_cache(mode, keep):
    q, k, v = inputs_of(keys=ROWS)
    mask = TRIANGLE if mode["sparse_mode"] else None
    out, lse = torch_npu.npu_fused_infer_attention_score(
        query=arranged(q, "TND"), key=arranged(k, "TND"), value=arranged(v, "TND"), atten_mask=mask, block_table=None,
        input_layout="TND", block_size=128, actual_seq_lengths=sums(ROWS), actual_seq_lengths_kv=sums(ROWS),
        num_key_value_heads=NKV, num_heads=N, scale=SCALE, **mode,
    )
    expect(out, "TND", ROWS, q, k, v, keep)
    assert lse.numel() == 0 and lse.dtype == torch.float32


def cached(k, v, keys=KEYS):
    table, pages = table_of(keys, PAGE)
    caches = (paged(t, "BnBsND", table, pages, PAGE) for t in (k, v))
    return table, [cache.view(pages, PAGE, -1) for cache in caches]


def test_chunks_and_steps_with_a_cache():
    q, k, v = inputs_of()
    table, (key, value) = cached(k, v)
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query=arranged(q, "TND"), key=key, value=value, atten_mask=TRIANGLE, block_table=table, input_layout="TND",
        block_size=128, actual_seq_lengths=sums(ROWS), actual_seq_lengths_kv=KEYS, num_key_value_heads=NKV, num_heads=N,
        scale=SCALE, sparse_mode=3,
    )
    expect(out, "TND", ROWS, q, k, v, causal)


@pytest.mark.parametrize("of_tensor", [False, True])
def test_sinks(of_tensor):
    q, k, v = inputs_of()
    table, (key, value) = cached(k, v)
    sink = torch.randn(N).to(torch.bfloat16)
    ends = torch.tensor(sums(ROWS), dtype=torch.int32) if of_tensor else sums(ROWS)
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        query=arranged(q, "TND"), key=key, value=value, atten_mask=TRIANGLE, block_table=table, input_layout="TND",
        block_size=128, actual_seq_qlen=ends, actual_seq_kvlen=KEYS, num_key_value_heads=NKV, num_query_heads=N,
        softmax_scale=SCALE, sparse_mode=3, learnable_sink=sink,
    )
    expect(out, "TND", ROWS, q, k, v, causal, sink=sink.float())


@pytest.mark.parametrize("version", ["", "_v2"])
def test_capture_of_graphs(version):
    q, k, v = inputs_of()
    table, (key, value) = cached(k, v)
    rows, keys, heads, scale = (
        ("actual_seq_qlen", "actual_seq_kvlen", "num_query_heads", "softmax_scale")
        if version else ("actual_seq_lengths", "actual_seq_lengths_kv", "num_heads", "scale")
    )
    call = {
        "query": arranged(q, "TND"), "key": key, "value": value, "atten_mask": TRIANGLE, "block_table": table,
        "input_layout": "TND", "block_size": 128, rows: sums(ROWS), keys: KEYS, "num_key_value_heads": NKV, heads: N,
        "sparse_mode": 3, scale: SCALE,
    }
    function = getattr(torch_npu, f"npu_fused_infer_attention_score{version}")
    workspace = getattr(torch_npu, f"_npu_fused_infer_attention_score{version}_get_max_workspace")(**call)
    assert workspace.dtype == torch.bfloat16
    output, softmax_lse = torch.full_like(call["query"], torch.nan), torch.empty(1, dtype=torch.bfloat16)
    results = function.out(**call, workspace=workspace, out=[output, softmax_lse])
    assert results[0] is output and results[1] is softmax_lse
    assert torch.equal(output, function(**call)[0])


def test_int8_caches():
    heads, keys = 4, [30, 140]
    q = parts(N, [1, 1], D, torch.bfloat16)
    codes = [[torch.randint(-127, 128, (heads, n, D), dtype=torch.int8) for n in keys] for _ in range(2)]
    scales = [(torch.rand(heads, 1, D) / 50 + 0.01).to(torch.bfloat16) for _ in range(2)]
    table, pages = table_of(keys, PAGE)
    caches = [paged([torch.nan_to_num(t) for t in own], "NZ", table, pages, PAGE) for own in codes]
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query=arranged(q, "BNSD"), key=caches[0], value=caches[1], key_antiquant_scale=scales[0],
        value_antiquant_scale=scales[1], key_antiquant_mode=0, value_antiquant_mode=0, block_table=table,
        actual_seq_lengths_kv=keys, num_heads=N, num_key_value_heads=heads, input_layout="BNSD", scale=SCALE,
        block_size=128, sparse_mode=0, inner_precise=1,
    )
    k, v = ([part.double() * scale.double() for part in own] for own, scale in zip(codes, scales, strict=True))
    for b in range(2):
        assert_near(out[b], q[b], k[b], v[b], everything(1, keys[b]))


def assert_near(out, query, key, value, keep):
    """Compares the output of compressed keys with float64. `key` and `value` are what the codes stand for."""
    query, group = query.double(), query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(group, 0), value.repeat_interleave(group, 0)
    p = torch.softmax((query @ key.transpose(1, 2) * SCALE).masked_fill(~keep, -torch.inf), -1)
    size = (query.abs() @ key.abs().transpose(1, 2) * SCALE).masked_fill(~keep, 0).amax(-1, keepdim=True)
    # Keys and values may be rounded to bfloat16, which has 8 bits of precision. So each term may be off by 2^-8.
    bound = 2**-8 * (2 * size + 3) * (p @ value.abs())
    assert out.shape == bound.shape and ((out - p @ value).abs() <= bound).all()


def test_caches_of_8_bit_floats():
    q, *caches = inputs_of()
    table, pages = table_of(KEYS, PAGE)
    named, wide = [], []
    for part in caches:
        codes = [t.to(torch.float8_e4m3fn) for t in part]
        scales = [torch.rand(1, n, 1) + 0.5 for n in KEYS]
        key = paged([t.float() for t in codes], "BnBsND", table, pages, PAGE).to(torch.float8_e4m3fn)
        named += [key.view(pages, PAGE, -1), paged(scales, "BnNBsD", table, pages, PAGE)[:, 0, :, 0]]
        wide.append([t.double() * scale.double() for t, scale in zip(codes, scales, strict=True)])
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        arranged(q, "TND"), named[0], named[2], atten_mask=TRIANGLE, block_table=table, input_layout="TND",
        block_size=PAGE, actual_seq_qlen=sums(ROWS), actual_seq_kvlen=KEYS, num_key_value_heads=NKV, num_query_heads=N,
        softmax_scale=SCALE, sparse_mode=3, dequant_scale_key=named[1], dequant_scale_value=named[3], key_quant_mode=4,
        value_quant_mode=4,
    )
    for got, query, key, value in zip(separated(out, "TND", ROWS, N), q, *wide, strict=True):
        assert_near(got, query, key, value, causal(query.shape[1], key.shape[1]))


def test_encoders_of_images():
    rows = [17, 40]
    q, k, v = inputs_of(rows, rows, heads_kv=N)
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query=arranged(q, "TND"), key=arranged(k, "TND"), value=arranged(v, "TND"), atten_mask=None, block_table=None,
        input_layout="TND", sparse_mode=0, actual_seq_lengths=sums(rows), actual_seq_lengths_kv=sums(rows),
        num_key_value_heads=N, num_heads=N, scale=SCALE, pre_tokens=MAX, next_tokens=MAX,
    )
    expect(out, "TND", rows, q, k, v, everything)


def joined(first, second):
    return [torch.cat(pair, -1) for pair in zip(first, second, strict=True)]


def test_chunks_of_latent_attention_are_merged():
    rows, context = [4, 20], [30, 0]
    size, rope = 128, 64
    q, own, v = inputs_of(rows, rows, heads_kv=N, size=size)
    before, v_before = parts(N, context, size, torch.bfloat16), parts(N, context, size, torch.bfloat16)
    q_rope, own_rope, before_rope = (parts(N, n, rope, torch.bfloat16) for n in (rows, rows, context))
    scale = (size + rope) ** -0.5
    call = {
        "query_rope": arranged(q_rope, "TND"), "num_heads": N, "num_key_value_heads": N, "input_layout": "TND",
        "scale": scale, "antiquant_mode": 0, "antiquant_scale": None, "block_table": None, "block_size": 0,
        "softmax_lse_flag": True, "actual_seq_lengths": sums(rows),
    }
    chunks = [
        torch_npu.npu_fused_infer_attention_score(
            arranged(q, "TND"), arranged(key, "TND"), arranged(value, "TND"), key_rope=arranged(key_rope, "TND"),
            actual_seq_lengths_kv=ends, sparse_mode=mode, atten_mask=TRIANGLE if mode else None, **call,
        )
        for key, value, key_rope, ends, mode in (
            (own, v, own_rope, sums(rows), 3), (before, v_before, before_rope, sums(context), 0)
        )
    ]
    lse = tuple(part.reshape(-1) for _, part in chunks)
    out, nothing = torch_npu.npu_attention_update(lse, tuple(part.reshape(-1, size) for part, _ in chunks), 0)
    assert nothing is None
    keys = [torch.cat(pair, 1) for pair in zip(joined(before, before_rope), joined(own, own_rope), strict=True)]
    values = [torch.cat(pair, 1) for pair in zip(v_before, v, strict=True)]
    got = separated(out.view(-1, N, size), "TND", rows, N)
    # Each chunk's output was rounded to bfloat16 before the merge, so the bound allows one more rounding to bfloat16.
    for b, query in enumerate(joined(q, q_rope)):
        scores = query.double() @ keys[b].double().transpose(1, 2) * scale
        p = torch.softmax(scores.masked_fill(~causal(rows[b], keys[b].shape[1]), -torch.inf), -1)
        assert ((got[b] - p @ values[b].double()).abs() <= 2**-7 * (p @ values[b].double().abs())).all()


LATENT, ROPE = 512, 64


def latent(rows, keys, heads=4):
    torch.manual_seed(11)
    q, k = parts(heads, rows, LATENT, torch.bfloat16), parts(1, keys, LATENT, torch.bfloat16)
    return q, k, parts(heads, rows, ROPE, torch.bfloat16), parts(1, keys, ROPE, torch.bfloat16)


@pytest.mark.parametrize(("layout", "form", "rows"), [
    ("BNSD_NBSD", "BnNBsD", [1, 1, 1]),
    ("BSND_NBSD", "NZ", [1, 1, 1]),
    ("BSND_NBSD", "NZ", [2, 2, 2]),
    ("TND_NTD", "NZ", [2, 1, 3]),
])
def test_decode_of_latent_attention(layout, form, rows):
    keys, heads = [130, 5, 257], 4
    q, k, q_rope, k_rope = latent(rows, keys, heads)
    scale = (LATENT + ROPE) ** -0.5
    table, pages = table_of(keys, PAGE)
    cache, rope_cache = (paged(t, form, table, pages, PAGE) for t in (k, k_rope))
    left, _, right = layout.partition("_")
    several = layout == "TND_NTD" or rows[0] > 1
    masked = {"sparse_mode": 3, "atten_mask": TRIANGLE} if several else {"sparse_mode": 0, "atten_mask": None}
    call = {
        "query_rope": arranged(q_rope, left), "key_rope": rope_cache, "num_query_heads": heads, "num_key_value_heads": 1,
        "input_layout": layout, "softmax_scale": scale, "query_quant_mode": 0, "key_quant_mode": 0, "value_quant_mode": 0,
        "block_table": table, "block_size": PAGE, "actual_seq_kvlen": keys,
        "actual_seq_qlen": sums(rows) if layout == "TND_NTD" else None, **masked,
    }
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(arranged(q, left), cache, cache, **call)
    keep = causal if several else everything
    expect(out, right, rows, joined(q, q_rope), joined(k, k_rope), k, keep, scale=scale)
    into = torch.empty_like(out), torch.empty(sum(rows), dtype=torch.bfloat16)
    torch_npu.npu_fused_infer_attention_score_v2.out(arranged(q, left), cache, cache, **call, workspace=None, out=into)
    assert torch.equal(into[0], out) and lse.numel() == 0


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "TND"])
@pytest.mark.parametrize("version", ["", "_v2"])
def test_ranks_that_hold_parts_of_the_keys(operators, layout, version):
    rows, keys = [2, 3], [40, 0]
    q, k, v = inputs_of(rows, keys)
    names = ("num_query_heads", "softmax_scale", "return_softmax_lse", "actual_seq_qlen", "actual_seq_kvlen")
    if not version:
        names = "num_heads", "scale", "softmax_lse_flag", "actual_seq_lengths", "actual_seq_lengths_kv"
    lengths = (sums(rows), sums(keys)) if layout == "TND" else (rows, keys)
    out, lse = getattr(operators, f"npu_fused_infer_attention_score{version}")(
        *(arranged(t, layout) for t in (q, k, v)), num_key_value_heads=NKV, input_layout=layout, sparse_mode=0,
        **dict(zip(names, (N, SCALE, True, *lengths), strict=True)),
    )
    expect(out, layout, rows, q, k, v, everything, lse=lse)
    lse[torch.isposinf(lse)] = -torch.inf  # what the program does with a chunk that has no keys
    merged, total = operators.npu_attention_update([lse.reshape(-1)], [torch.ones(lse.numel(), 4)], 1)
    assert (merged[torch.isposinf(total)] == 0).all() and (merged[~torch.isposinf(total)] == 1).all()


def test_prefill_on_transposed_views():
    rows = [4, 30]
    q, k, v = inputs_of(rows, rows, heads_kv=N)
    q_rope, k_rope = (parts(N, rows, ROPE, torch.bfloat16) for _ in range(2))
    query, key, value, query_rope, key_rope = (arranged(t, "TND").transpose(0, 1) for t in (q, k, v, q_rope, k_rope))
    scale = (D + ROPE) ** -0.5
    out, lse = torch_npu.npu_fused_infer_attention_score(
        query, key, value, query_rope=query_rope, key_rope=key_rope, num_heads=N, num_key_value_heads=N,
        input_layout="NTD_TND", atten_mask=TRIANGLE.bool(), sparse_mode=3, actual_seq_lengths=sums(rows),
        actual_seq_lengths_kv=sums(rows), scale=scale, next_tokens=0, softmax_lse_flag=True,
    )
    assert out.is_contiguous()
    expect(out, "TND", rows, joined(q, q_rope), joined(k, k_rope), v, causal, lse=lse, name="NTD_TND", scale=scale)


@pytest.mark.parametrize("left", [6, None])
def test_windows_with_sinks_over_pages(left):
    q, k, v = inputs_of()
    table, (key, value) = cached(k, v)
    sink = torch.randn(N).to(torch.bfloat16)
    mode = {"sparse_mode": 3} if left is None else {"sparse_mode": 4, "pre_tokens": left, "next_tokens": 0}
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        arranged(q, "TND"), key, value, num_query_heads=N, num_key_value_heads=NKV, input_layout="TND",
        softmax_scale=SCALE, block_table=table, block_size=PAGE, actual_seq_qlen=sums(ROWS), actual_seq_kvlen=KEYS,
        atten_mask=TRIANGLE.bool(), learnable_sink=sink, **mode,
    )
    keep = causal if left is None else lambda rows, keys: window(rows, keys, left)
    expect(out, "TND", ROWS, q, k, v, keep, sink=sink.float())


def test_caches_whose_heads_are_flattened():
    q, k, v = inputs_of(rows=[1, 1, 1])
    table, pages = table_of(KEYS, PAGE)
    key, value = (paged(t, "BnBsND", table, pages, PAGE) for t in (k, v))
    out, _ = torch_npu.npu_fused_infer_attention_score(
        arranged(q, "TND"), key.view(*key.shape[:2], -1), value.view(*value.shape[:2], -1), num_heads=N,
        num_key_value_heads=NKV, input_layout="TND", scale=SCALE, block_table=table, block_size=PAGE,
        actual_seq_lengths=[1, 2, 3], actual_seq_lengths_kv=KEYS, atten_mask=TRIANGLE.bool(), sparse_mode=3,
    )
    expect(out, "TND", [1, 1, 1], q, k, v, causal)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
@pytest.mark.parametrize("masked", [False, True])
def test_models_of_images_and_videos(layout, masked):
    rows, keys = [33, 33], [50, 50]
    q, k, v = inputs_of(rows, keys, heads_kv=N)
    mode = {"sparse_mode": 2, "atten_mask": TRIANGLE.bool()} if masked else {"pre_tokens": 65535, "next_tokens": 65535}
    out, lse = torch_npu.npu_fused_infer_attention_score(
        *(arranged(t, layout) for t in (q, k, v)), num_heads=N, num_key_value_heads=N, input_layout=layout, scale=SCALE,
        softmax_lse_flag=True, **mode,
    )
    keep = (lambda n, m: everything(n, m).tril()) if masked else everything
    expect(out, layout, rows, q, k, v, keep, lse=lse, name="BNSD")
