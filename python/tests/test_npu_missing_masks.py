"""Calls with sparse_mode 2, 3 or 4 but without atten_mask. Inference refuses most of them, and training computes all
pairs.
"""

import pytest
import torch
from reference import to_layout
from test_decode import B, D, LENGTHS, N, NKV, PAGE, SCALE, S, assert_right, kept, paged_pair, random_qkv

import fa.torch_npu as torch_npu

TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
MISSING = r"atten_mask: missing, want \[2048,2048\] \(sparse_mode {}\)"
SCALES = {"dequant_scale1": torch.ones(1), "quant_scale1": torch.ones(1), "dequant_scale2": torch.ones(1)}
MODES = pytest.mark.parametrize("mode", [2, 3, 4])


def packed(t):
    return t.transpose(1, 2).flatten(0, 1)


def fused(query, key, value, layout, **keywords):
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale": SCALE, "input_layout": layout, **keywords}
    return torch_npu.npu_fused_infer_attention_score(query, key, value, **call)


def fused_v2(query, key, value, layout, **keywords):
    names = {"actual_seq_lengths": "actual_seq_qlen", "actual_seq_lengths_kv": "actual_seq_kvlen"}
    names |= {"softmax_lse_flag": "return_softmax_lse"}
    call = {"num_query_heads": N, "num_key_value_heads": NKV, "softmax_scale": SCALE, "input_layout": layout}
    call |= {names.get(name, name): value for name, value in keywords.items()}
    return torch_npu.npu_fused_infer_attention_score_v2(query, key, value, **call)


FUNCTIONS = pytest.mark.parametrize("function", [fused, fused_v2])


@MODES
@FUNCTIONS
@pytest.mark.parametrize("features", ["plain", "lse", "rope", "pages", "single rows over pages"])
def test_packed_sequences(function, features, mode):
    rows = 1 if "single" in features else 2
    q, k, v = random_qkv(sq=rows)
    call = {"actual_seq_lengths": [rows * (b + 1) for b in range(B)], "sparse_mode": mode}
    call["actual_seq_lengths_kv"] = [S * (b + 1) for b in range(B)]
    inputs = [packed(t) for t in (q, k, v)]
    if features == "lse":
        call["softmax_lse_flag"] = True
    if features == "rope":
        call |= {"query_rope": inputs[0][..., 16:], "key_rope": inputs[1][..., 16:]}
        inputs = [inputs[0][..., :16], inputs[1][..., :16], inputs[2]]
    if "pages" in features:
        *pages, table = paged_pair(k, v)
        inputs = [inputs[0], *pages]
        call |= {"actual_seq_lengths_kv": LENGTHS, "block_table": table, "block_size": PAGE}
    with pytest.raises(ValueError, match=MISSING.format(mode)):
        function(*inputs, "TND", **call)
    function(*inputs, "TND", **call, atten_mask=TRIANGLE)


@MODES
def test_packed_sequences_of_int8(mode):
    q, k, v = (packed(torch.ones(t.shape, dtype=torch.int8)) for t in random_qkv())
    call = {"actual_seq_lengths": [2, 4, 6], "actual_seq_lengths_kv": [70, 140, 210], "sparse_mode": mode}
    with pytest.raises(ValueError, match=MISSING.format(mode)):
        fused(q, k, v, "TND", **call, **SCALES)
    q, k, v = (packed(t) for t in random_qkv())
    with pytest.raises(ValueError, match=MISSING.format(mode)):
        fused(q, k, v, "TND", **call, quant_scale2=torch.ones(1))


@MODES
@FUNCTIONS
@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BNSD_BSND"])
def test_layouts_with_an_axis_of_rows(function, layout, rows, mode):
    inputs = [t if layout == "BNSD_BSND" else to_layout(t, layout) for t in random_qkv(sq=rows)]
    with pytest.raises(ValueError, match=MISSING.format(mode)):
        function(*inputs, layout, sparse_mode=mode)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_a_single_row_keeps_every_key_in_modes_2_and_3_and_its_band_in_mode_4(layout):
    q, k, v = random_qkv(sq=1)
    inputs = [to_layout(t, layout) for t in (q, k, v)]
    every, _ = fused(*inputs, layout, actual_seq_lengths_kv=LENGTHS)
    for mode in (2, 3):
        for mask in (None, TRIANGLE):
            out, _ = fused(*inputs, layout, actual_seq_lengths_kv=LENGTHS, sparse_mode=mode, atten_mask=mask)
            assert torch.equal(out, every)
    band = {"sparse_mode": 4, "pre_tokens": 5, "next_tokens": 0}
    for mask in (None, TRIANGLE):
        out, _ = fused(q, k, v, "BNSD", actual_seq_lengths_kv=LENGTHS, **band, atten_mask=mask)
        assert_right(out, q, k, v, keep=kept(sq=1, left=5, right=0))


def test_a_band_of_mode_0_counts_for_packed_single_rows_alone():
    q, k, v = random_qkv(sq=1)
    *pages, table = paged_pair(k, v)
    drop = torch.rand(1, S) < 0.3
    drop[0, 0] = False
    call = {"actual_seq_lengths_kv": LENGTHS, "block_table": table, "block_size": PAGE, "next_tokens": 4}
    out, _ = fused(q, *pages, "BNSD", **call, atten_mask=drop.expand(B, -1))
    assert_right(out, q, k, v, keep=kept(sq=1) & ~drop)
    out, _ = fused(packed(q), *pages, "TND", **call, atten_mask=drop, actual_seq_lengths=[1, 2, 3])
    assert_right(out[:, :, None], q, k, v, keep=kept(sq=1) & ~drop & (torch.arange(S) <= 4))


@MODES
def test_a_single_row_of_split_heads_has_its_rule(mode):
    q, k, v = random_qkv(sq=1)
    inputs, ropes = (q[..., :16], k[..., :16], v), {"query_rope": q[..., 16:], "key_rope": k[..., 16:]}
    call = {"actual_seq_lengths_kv": LENGTHS, "sparse_mode": mode, "pre_tokens": 5, "next_tokens": 0, **ropes}
    with pytest.raises(ValueError, match=MISSING.format(mode)):
        fused(*inputs, "BNSD", **call)
    out, _ = fused(*inputs, "BNSD", **call, atten_mask=TRIANGLE)
    first = torch.arange(S) < 1
    assert_right(out, q, k, v, keep=first.expand(B, 1, 1, S) if mode == 2 else kept(sq=1, left=5 if mode == 4 else None))


@pytest.mark.parametrize("lengths_q", [[1, 1, 1], [2, 0, 1]])
@pytest.mark.parametrize("mode", [2, 3])
def test_packed_rows_over_pages_have_their_rule_however_many_there_are(mode, lengths_q):
    q, k, v = random_qkv(sq=max(lengths_q))
    *pages, table = paged_pair(k, v)
    tokens = torch.cat([q[b, :, :length].transpose(0, 1) for b, length in enumerate(lengths_q)])
    out, _ = fused(
        tokens, *pages, "TND", actual_seq_lengths=torch.tensor(lengths_q).cumsum(0), actual_seq_lengths_kv=LENGTHS,
        block_table=table, block_size=PAGE, sparse_mode=mode, atten_mask=TRIANGLE,
    )
    begin = 0
    for b, length in enumerate(lengths_q):
        own = out[begin : begin + length].transpose(0, 1)[None]
        begin += length
        if length:
            i, j = torch.arange(length)[:, None], torch.arange(S)
            keep = (j < LENGTHS[b]) & (j <= i + (LENGTHS[b] - length if mode == 3 else 0))
            assert_right(own, q[b : b + 1, :, :length], k[b : b + 1], v[b : b + 1], keep=keep[None, None])


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("layout", ["BNSD", "TND"])
def test_modes_that_keep_all_pairs_need_no_mask(layout, mode):
    q, k, v = random_qkv()
    lengths = {"actual_seq_lengths": [2, 4, 6], "actual_seq_lengths_kv": [70, 140, 210]} if layout == "TND" else {}
    inputs = [packed(t) if layout == "TND" else t for t in (q, k, v)]
    out, _ = fused(*inputs, layout, **lengths, sparse_mode=mode, next_tokens=0)
    out = out.view(B, 2, N, D).transpose(1, 2) if layout == "TND" else out
    assert_right(out, q, k, v, keep=kept([S] * B))


@MODES
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BNSD_BSND", "TND"])
def test_prompt(layout, mode):
    q, k, v = random_qkv()
    lengths = {"actual_seq_lengths": [2, 4, 6], "actual_seq_lengths_kv": [70, 140, 210]} if layout == "TND" else {}
    change = {"TND": packed, "BNSD_BSND": lambda t: t}.get(layout, lambda t: to_layout(t, layout))
    call = {"num_heads": N, "num_key_value_heads": NKV, "input_layout": layout, "sparse_mode": mode, **lengths}
    with pytest.raises(ValueError, match=MISSING.format(mode)):
        torch_npu.npu_prompt_flash_attention(*map(change, (q, k, v)), **call)


_MODES_OF_LAYOUTS = [(layout, mode) for layout in ("BNSD", "BSND", "BSH", "SBH") for mode in range(7)]


@pytest.mark.parametrize(("layout", "mode"), [*_MODES_OF_LAYOUTS, *(("TND", mode) for mode in range(9))])
@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_training_computes_all_pairs(version, mode, layout):
    inputs = [packed(t) if layout == "TND" else to_layout(t, layout) for t in random_qkv()]
    lengths = {"actual_seq_qlen": [2, 4, 6], "actual_seq_kvlen": [70, 140, 210]} if layout == "TND" else {}
    function = getattr(torch_npu, f"npu_fusion_attention{version}")
    next_tokens = {"next_tokens" if version == "_v2" else "next_tockens": 0}
    every = function(*inputs, N, layout, scale=SCALE, **lengths)
    ruled = function(*inputs, N, layout, scale=SCALE, **lengths, **next_tokens, sparse_mode=mode)
    assert all(torch.equal(a, b) for a, b in zip(every[:3], ruled[:3], strict=True))
