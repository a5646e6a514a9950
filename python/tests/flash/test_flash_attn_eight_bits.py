"""Keys, values and queries of 8-bit floats in flash_attn 3, compared with attention of the numbers that the 8-bit codes
stand for.
"""

import pytest
import torch
from fa.flash_attn.third_generation import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_reference import assert_as_exact_as_naive, attention
from test_flash_attn import sums

pytestmark = pytest.mark.usefixtures("one_torch_thread")

B, N, NKV, D, DV, CAPACITY = 3, 6, 2, 32, 16, 45
LENGTHS = [40, 1, 23]
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def descales(per_sequence=True):
    """Returns q_descale, k_descale and v_descale [B, Nkv]."""
    scales = [0.5 + torch.rand(B if per_sequence else 1, NKV) for _ in range(3)]
    return [scale.expand(B, -1) for scale in scales]


def numbers(codes, scale, b, heads=NKV):
    """Returns what the codes of sequence b [S, N, D] stand for, in float64."""
    return codes.double() * scale[b].double().repeat_interleave(heads // NKV)[:, None]


def check(out, lse, q, keys, values, q_scale, k_scale, v_scale, **options):
    """Compares out [B, S, N, Dv] and lse [B, N, S] with the definition. keys and values are lists [S_b, Nkv, D]."""
    for b in range(B):
        parts = numbers(q[b], q_scale, b, N), numbers(keys[b], k_scale, b), numbers(values[b], v_scale, b)
        want, want_lse, _ = attention(*parts, **options)
        naive, _, _ = attention(*(t.to(out.dtype) for t in parts), **options)
        assert_as_exact_as_naive(out[b], want, naive, 2.0, f"sequence {b}")
        assert torch.allclose(lse[b].double(), want_lse, rtol=1e-5, atol=1e-4)


def caches(dtype, form):
    """Returns caches with NaN in unused rows, lists of the sequences' keys and values, and arguments of the call.

    A list has one tensor [S_b, ..] per sequence.
    """
    lists = [[torch.randn(length, NKV, size).to(dtype) for length in LENGTHS] for size in (D, DV)]
    page, columns = 16, 3
    shapes = {"rows": (B, CAPACITY), "slots": (B + 2, CAPACITY), "pages": (B * columns + 1, page)}
    order = torch.randperm(B * columns + 1)[: B * columns].view(B, columns).int()
    chosen = torch.tensor([4, 0, 2], dtype=torch.int32)
    tensors = []
    for rows, size in zip(lists, (D, DV), strict=True):
        cache = torch.full((*shapes[form], NKV, size), 0x7F, dtype=torch.uint8)
        for b, own in enumerate(rows):
            for j, row in enumerate(own.view(torch.uint8)):
                place = {"rows": (b, j), "slots": (chosen[b], j), "pages": (order[b, j // page], j % page)}[form]
                cache[place] = row
        tensors.append(cache.view(dtype))
    where = {"rows": {}, "slots": {"cache_batch_idx": chosen}, "pages": {"page_table": order}}[form]
    return tensors, lists, where | {"cache_seqlens": torch.tensor(LENGTHS, dtype=torch.int32)}


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("form", ["rows", "slots", "pages"])
@pytest.mark.parametrize("dtype", FP8)
@pytest.mark.parametrize("q_type", [torch.float32, torch.bfloat16, "caches'"])
def test_caches_of_eight_bits(dtype, q_type, form, per_sequence):
    tensors, (keys, values), where = caches(dtype, form)
    q_scale, k_scale, v_scale = descales(per_sequence)
    eight = q_type == "caches'"
    q = torch.randn(B, 2, N, D).to(dtype if eight else q_type)
    options = {"causal": True, "softcap": 5.0}
    given = {"k_descale": k_scale, "v_descale": v_scale, **({"q_descale": q_scale} if eight else {})}
    out, lse = flash_attn_with_kvcache(q, *tensors, **where, **given, **options, return_softmax_lse=True)
    assert out.dtype == (torch.bfloat16 if eight else q_type)
    ones = torch.ones(B, NKV)
    check(out, lse, q, keys, values, q_scale if eight else ones, k_scale, v_scale, **options)


@pytest.mark.parametrize("form", ["rows", "pages"])
def test_new_keys_are_written_as_they_are(form):
    dtype = torch.float8_e4m3fn
    tensors, (keys, values), where = caches(dtype, form)
    k, v = (torch.randn(B, 3, NKV, size).to(dtype) for size in (D, DV))
    q, (_, k_scale, v_scale) = torch.randn(B, 3, N, D), descales()
    sink = torch.randn(N)
    call = {"k_descale": k_scale, "v_descale": v_scale, "causal": True, "learnable_sink": sink, "k": k, "v": v}
    out, lse = flash_attn_with_kvcache(q, *tensors, **where, **call, return_softmax_lse=True)
    longer = [
        [torch.cat([t.view(torch.uint8), new[b].view(torch.uint8)]).view(dtype) for b, t in enumerate(own)]
        for own, new in ((keys, k), (values, v))
    ]
    check(out, lse, q, *longer, torch.ones(B, NKV), k_scale, v_scale, causal=True, sink=sink)


def test_packed_queries_over_pages():
    tensors, (keys, values), where = caches(torch.float8_e4m3fn, "pages")
    _, k_scale, v_scale = descales()
    cu_q = sums([2, 1, 2])
    q = torch.randn(5, N, D)
    out = flash_attn_with_kvcache(
        q, *tensors, **where, k_descale=k_scale, v_descale=v_scale, cu_seqlens_q=cu_q, max_seqlen_q=2, causal=True
    )
    for b in range(B):
        own = slice(int(cu_q[b]), int(cu_q[b + 1]))
        parts = q[own].double(), numbers(keys[b], k_scale, b), numbers(values[b], v_scale, b)
        want = attention(*parts, causal=True)[0]
        naive = attention(*(t.float() for t in parts), causal=True)[0]
        assert_as_exact_as_naive(out[own], want, naive, 2.0)


@pytest.mark.parametrize("chunk", [0, 7])
@pytest.mark.parametrize("dtype", FP8)
def test_dense_attention_of_eight_bits(dtype, chunk):
    q, k, v = (torch.randn(B, 20, heads, size).to(dtype) for heads, size in ((N, D), (NKV, D), (NKV, DV)))
    scales = descales()
    named = dict(zip(("q_descale", "k_descale", "v_descale"), scales, strict=True))
    out, lse = flash_attn_func(
        q, k, v, **named, window_size=(9, 0), attention_chunk=chunk, return_attn_probs=True
    )
    assert out.dtype == torch.bfloat16 and lse.shape == (B, N, 20)
    check(out, lse, q, list(k), list(v), *scales, window=(9, 0), chunk=chunk)
    assert torch.equal(flash_attn_func(q, k, v), flash_attn_func(q, k, v, q_descale=torch.ones(B, NKV)))


def test_the_operator_of_torch_compile():
    tensors, _, where = caches(torch.float8_e4m3fn, "rows")
    _, k_scale, v_scale = descales()
    call = {**where, "k_descale": k_scale, "v_descale": v_scale}
    q = torch.randn(B, 1, N, D)
    compiled = torch.compile(lambda q: flash_attn_with_kvcache(q, *tensors, **call) + 1, backend="aot_eager")
    assert torch.equal(compiled(q), flash_attn_with_kvcache(q, *tensors, **call) + 1)


ONES = torch.ones(B, NKV)


@pytest.mark.parametrize(("changed", "says"), [
    ({"q_descale": ONES}, r"q_descale: given, want None \(q has no 8 bits\)"),
    ({"k_descale": torch.ones(NKV)}, r"k_descale.shape=\[2\], want \[B, Nkv\]"),
    ({"k_descale": torch.ones(B + 1, NKV)}, r"k_descale.shape\[0\]=4, want 3 \(sequences\)"),
    ({"v_descale": torch.ones(B, N)}, r"v_descale.shape\[1\]=6, want 2 \(k_cache.shape\[2\]\)"),
    ({"v_descale": ONES.double()}, "v_descale.dtype=torch.float64, want torch.float32"),
    ({"v_cache": torch.zeros(B, CAPACITY, NKV, DV)}, r"v_cache.dtype=torch.float32, want torch.float8_e4m3fn \(k_cache"),
    ({"k": torch.zeros(B, 1, NKV, D), "v": torch.zeros(B, 1, NKV, DV)}, "k.dtype=torch.float32, want torch.float8_e4m3fn"),
    ({"qv": torch.zeros(B, 1, N, DV)}, r"qv: given, want None \(type of k_cache is torch.float8_e4m3fn\)"),
    ({"q": torch.zeros(B, 1, N, D).to(torch.float8_e5m2)}, "q.dtype=torch.float8_e5m2"),
])
def test_bad_arguments_are_named(changed, says):
    tensors, _, where = caches(torch.float8_e4m3fn, "rows")
    given = {"q": torch.randn(B, 1, N, D), "k_cache": tensors[0], "v_cache": tensors[1], **where, **changed}
    with pytest.raises(ValueError, match=f"^invalid argument: {says}"):
        flash_attn_with_kvcache(**given)


def test_descales_of_other_types_are_refused():
    q, k, v = (torch.randn(B, 5, heads, D) for heads in (N, NKV, NKV))
    for name in ("q_descale", "k_descale", "v_descale"):
        with pytest.raises(ValueError, match=rf"{name}: given, want None \(q has no 8 bits\)"):
            flash_attn_func(q, k, v, **{name: ONES})
        with pytest.raises(ValueError, match=rf"{name}: given, want None \(type of k_cache is torch.float32\)"):
            flash_attn_with_kvcache(q, k, v, **{name: ONES})
        with pytest.raises(ValueError, match=rf"{name}: given, want None \(packed keys"):
            flash_attn_varlen_func(*(t.flatten(0, 1) for t in (q, k, v)), sums([5] * B), sums([5] * B), 5, 5, **{name: ONES})
    eight = q.to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="k.dtype=torch.float32, want torch.float8_e4m3fn"):
        flash_attn_func(eight, k, v)
