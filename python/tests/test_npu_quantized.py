"""Fused inference of 8-bit queries, keys and values (query_quant_mode 3) against the formulas in double, as serving
programs call it."""

import numpy as np
import pytest
import torch

import fa
import fa.torch_npu as torch_npu

B, PAGE, LENGTHS = 3, 32, [70, 0, 33]
TABLE = torch.tensor([[4, 0, 2], [9, 9, 9], [1, 3, 9]], dtype=torch.int32)  # no page has the number 9
PAGES = 5
E4M3 = torch.float8_e4m3fn
LARGEST = {torch.int8: 127.0, E4M3: 448.0}


def codes(shape, dtype):
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, dtype=torch.int8)
    return (2 * torch.randn(shape)).to(E4M3)


def rounded(p, dtype):
    """Returns the nearest numbers of the type, in double."""
    if dtype == torch.int8:
        return p.round().clamp(max=127)
    unit = torch.exp2(torch.floor(torch.log2(p.clamp(min=2.0**-6))) - 3)
    return ((p / unit).round() * unit).clamp(max=448)


def formulas(s, v, factor, dtype):
    """Returns output, lse and the error that f32 may make. s [rows, keys] and v [keys, D] are double."""
    if s.shape[1] == 0:
        zeros = s.new_zeros(s.shape[0], v.shape[1])
        return zeros, s.new_full(s.shape[:1], float("inf")), zeros
    p = torch.exp(s - s.amax(1, keepdim=True))
    # The error is relative. Sums of up to 600 products have random roundings of sqrt(600) 2^-24 = 1.5e-6, and exp adds
    # 2 ulp.
    error = 2e-6 * (1 + s.abs().amax())
    total = p.sum(1, keepdim=True)
    step = rounded(factor * p * (1 + error), dtype) - rounded(factor * p * (1 - error), dtype)
    p8 = rounded(factor * p, dtype)
    out = p8 @ v / (factor * total)
    allowed = ((step + error * p8) @ v.abs()) / (factor * total) + error * out.abs()
    return out, s.amax(1) + total[:, 0].log(), allowed


def check(out, lse, want, heads):
    """Compares the results of all batch elements: out [B, heads, D] and lse [B, heads]."""
    unit = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[out.dtype]
    for b, (wanted, wanted_lse, allowed) in enumerate(want):
        difference = (out[b].double() - wanted).abs()
        # The result is rounded to its type, whose smallest positive number is at most 2^-24. So 2^-25 allows for
        # subnormals.
        assert (difference <= allowed + unit * wanted.abs() + 2.0**-25).all(), difference.max()
        assert lse[b].shape == (heads,)
        # The score and the logarithm of the sum each have the relative error of `formulas`, 2e-6. The bound is 2.5
        # times their sum.
        torch.testing.assert_close(lse[b].double(), wanted_lse, rtol=1e-5, atol=1e-5)


def nz(pages, piece):
    """Returns pages [blocks, 1, rows, D] as [blocks, 1, D / piece, rows, piece]."""
    blocks, heads, rows, columns = pages.shape
    split = pages.reshape(blocks, heads, rows, columns // piece, piece)
    return split.transpose(2, 3).contiguous()


@pytest.mark.parametrize("layout", ["BNSD_NBSD", "BSND_NBSD", "TND_NTD"])
@pytest.mark.parametrize("rope", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.int8, E4M3])
def test_decode_of_latent_attention(dtype, rope, layout):
    torch.manual_seed(3)
    heads, size, rope_size, scale = 16, 512, 64, 0.1
    q, pages = codes((B, heads, size), dtype), codes((PAGES, 1, PAGE, size), dtype)
    dsq, dsk, dsv = 0.004 + 0.004 * torch.rand(B, heads), 0.01, 0.02
    if dtype == E4M3:
        dsq, dsk = dsq * 20, 0.3
    qr = (torch.randn(B, heads, rope_size) / (dsq * dsk)[..., None]).clamp(-6e4, 6e4).to(rope)
    kr = torch.randn(PAGES, 1, PAGE, rope_size).to(rope)
    want = []
    for b, length in enumerate(LENGTHS):
        k, kr_b = (torch.cat([t[i, 0] for i in TABLE[b] if i < PAGES] or [t[0, 0, :0]])[:length].double()
                   for t in (pages.float() if dtype == E4M3 else pages, kr))
        qd = (q[b].float() if dtype == E4M3 else q[b]).double()
        s = (qd @ k.T + qr[b].double() @ kr_b.T) * (dsq[b].double() * dsk * scale)[:, None]
        want.append(formulas(s, k * dsv, LARGEST[dtype], dtype))
    axes = {"BNSD_NBSD": lambda t: t[:, :, None], "BSND_NBSD": lambda t: t[:, None], "TND_NTD": lambda t: t}[layout]
    scales = [axes(dsq)] + ([dsq[:, None], dsq[..., None], dsq.flatten()] if layout == "TND_NTD" else [])
    for dsq_given in scales:
        out, lse = torch_npu.npu_fused_infer_attention_score_v2(
            axes(q), nz(pages, 32), nz(pages, 32), query_rope=axes(qr), key_rope=nz(kr, 16), block_table=TABLE,
            actual_seq_qlen=[1, 2, 3] if layout == "TND_NTD" else None, actual_seq_kvlen=LENGTHS,
            num_query_heads=heads, num_key_value_heads=1, softmax_scale=scale, input_layout=layout, block_size=PAGE,
            query_quant_mode=3, key_quant_mode=0, value_quant_mode=0, dequant_scale_query=dsq_given,
            dequant_scale_key=torch.tensor([dsk]), dequant_scale_value=torch.tensor([dsv]), return_softmax_lse=True,
        )
        assert out.dtype == rope
        rows = out.transpose(0, 1) if layout == "TND_NTD" else out[:, :, 0].transpose(0, 1)
        check(rows, lse.reshape(B, heads), want, heads)


@pytest.mark.parametrize("factor", [None, 1.0, 100.0])
@pytest.mark.parametrize("out_dtype", [None, 27, torch.float32])
def test_grouped_queries_of_e4m3(factor, out_dtype):
    torch.manual_seed(4)
    heads, heads_kv, size, scale = 8, 2, 128, 0.08
    q = codes((heads, B, size), E4M3)  # in layout NTD
    k, v = codes((PAGES, heads_kv, PAGE, size), E4M3), codes((PAGES, heads_kv, PAGE, size), E4M3)
    dsq, dsk = 0.2 + 0.2 * torch.rand(heads, B), 0.2 + 0.2 * torch.rand(PAGES, heads_kv, PAGE)
    dsv = torch.tensor([0.5, -2.0])
    want = []
    for b, length in enumerate(LENGTHS):
        per_head = []
        for n in range(heads):
            own = [t[:, n // 4].double() for t in (k.float(), v.float(), dsk)]
            kb, vb, scales = (torch.cat([t[i] for i in TABLE[b] if i < PAGES] or [t[0, :0]])[:length] for t in own)
            s = (q[n, b].float().double()[None] @ kb.T) * dsq[n, b].double() * scales * scale
            per_head.append(formulas(s, vb * dsv[n // 4].double(), factor or 1.0, E4M3))
        want.append([torch.cat(parts) for parts in zip(*per_head, strict=True)])
    call = {} if factor is None else {"quant_scale_p": torch.tensor([factor])}
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(
        q.view(torch.uint8), k.view(torch.int8), v, query_dtype=292, key_dtype=292, block_table=TABLE,
        actual_seq_qlen=[1, 2, 3], actual_seq_kvlen=torch.tensor(LENGTHS), num_query_heads=heads,
        num_key_value_heads=heads_kv, softmax_scale=scale, input_layout="NTD_TND", block_size=PAGE,
        query_quant_mode=3, key_quant_mode=3, value_quant_mode=2, dequant_scale_query=dsq, dequant_scale_key=dsk,
        dequant_scale_value=dsv, out_dtype=out_dtype, return_softmax_lse=True, **call,
    )
    assert out.dtype == {None: torch.float16, 27: torch.bfloat16}.get(out_dtype, out_dtype)
    check(out, lse[..., 0], want, heads)


def grouped(**keywords):
    call = {"query": codes((B, 4, 1, 32), E4M3), "key": codes((B, 2, 8, 32), E4M3), "value": codes((B, 2, 8, 32), E4M3)}
    call |= {"num_query_heads": 4, "num_key_value_heads": 2, "input_layout": "BNSD", "query_quant_mode": 3}
    call |= {"key_quant_mode": 3, "value_quant_mode": 2, "dequant_scale_query": torch.rand(B, 4, 1)}
    return call | {"dequant_scale_key": torch.rand(B, 2, 8), "dequant_scale_value": torch.rand(2)} | keywords


@pytest.mark.parametrize(("keywords", "message"), [
    ({"key_quant_mode": 1}, r"key_quant_mode=1, want 0 or 3 \(query_quant_mode=3\)"),
    ({"value_quant_mode": 0}, r"value_quant_mode=0, want 2 \(query_quant_mode=3\)"),
    ({"key_quant_mode": 0}, r"value_quant_mode=2, want 0 \(query_quant_mode=3\)"),
    ({"dequant_scale_query": torch.ones(5)}, r"dequant_scale_query.shape=\[5\], want \[3, 4, 1\]"),
    ({"dequant_scale_key": None, "dequant_scale_value": None}, "dequant_scale_key: missing"),
    ({"quant_scale_p": torch.tensor([449.0])}, "quant_scale_p=449, want a number above 0, at most 448"),
    ({"learnable_sink": torch.ones(4)}, "learnable_sink: given, want none"),
    ({"pse_shift": torch.ones(1, 4, 1, 8)}, "pse_shift: given, want none"),
    ({"query": torch.ones(B, 4, 1, 32)}, "dequant_scale_query: given, want none"),
    ({"out_dtype": 3}, "out_dtype=3, want None or the number of torch.float16"),
])
def test_refusals(keywords, message):
    torch_npu.npu_fused_infer_attention_score_v2(**grouped())
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_fused_infer_attention_score_v2(**grouped(**keywords))


def test_infer_output_and_out():
    call = grouped(out_dtype=27)
    want, _ = torch_npu.npu_fused_infer_attention_score_v2(**call)
    given = {name: call[name] for name in ("num_query_heads", "num_key_value_heads", "input_layout", "out_dtype")}
    empty, _ = torch_npu._npu_fused_infer_attention_score_v2_infer_output(call["query"], call["value"], **given)
    assert (empty.shape, empty.dtype) == (want.shape, want.dtype)
    out = torch.empty_like(want)
    torch_npu.npu_fused_infer_attention_score_v2.out(**call, out=[out, torch.empty(1)])
    assert torch.equal(out, want)


@pytest.mark.parametrize("dtype", [torch.int8, E4M3])
def test_arrays_give_the_bits_of_tensors(dtype):
    torch.manual_seed(5)
    q, k, v = codes((2, 4, 3, 32), dtype), codes((2, 2, 9, 32), dtype), codes((2, 2, 9, 32), dtype)
    scales = {"q_scale": 0.1 * torch.rand(2, 4, 3), "k_scale": torch.full((1, 1, 1, 1), 0.1)}
    scales["v_scale"] = torch.full((1, 1, 1, 1), 0.3)
    want, want_lse = fa.infer_attention(q, k, v, **scales, sparse_mode=3, return_lse=True)
    kind = "e4m3" if dtype == E4M3 else None
    arrays = [t.view(torch.uint8 if kind else dtype).numpy() for t in (q, k, v)]
    numbers = {name: t.numpy() for name, t in scales.items()}
    out, lse = fa.infer_attention(*arrays, **numbers, kv_dtype=kind, sparse_mode=3, return_lse=True)
    assert want.dtype == torch.float16
    assert np.array_equal(out, want.numpy())
    assert np.array_equal(lse, want_lse.numpy())
