"""Scales of compressed keys and values in the functions of fa.torch_npu for inference: modes, shapes, pages, errors."""

import re

import pytest
import torch
from reference import to_layout
from test_decode import B, D, LENGTHS, N, NKV, PAGE, SCALE, S, assert_right, paged_pair, random_qkv
from test_npu_decode import fused, incre

import fa
import fa.torch_npu as torch_npu


def test_int8_keys_of_both_faces():
    q = random_qkv(sq=1)[0]
    k, v = (torch.randint(-128, 128, (B, NKV, S, D), dtype=torch.int8) for _ in range(2))
    scales = 0.02 + 0.01 * torch.rand(2, NKV, 1, D)
    want = incre(q, k, v, antiquant_scale=scales)
    assert_right(want, q, k * scales[0], v * scales[1])
    assert torch.equal(fused(q, k, v, key_antiquant_scale=scales[0], value_antiquant_scale=scales[1])[0], want)
    per_token = torch.full((B, S), 0.02)
    call = {"num_query_heads": N, "num_key_value_heads": NKV, "softmax_scale": SCALE, "input_layout": "BNSD"}
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        q, k, v, **call, actual_seq_kvlen=LENGTHS, dequant_scale_key=per_token, dequant_scale_value=per_token,
        key_quant_mode=1, value_quant_mode=1,
    )
    assert_right(out, q, k * 0.02, v * 0.02)


MODES = {  # (mode of keys, mode of values): shapes of the scales on the device, and their shapes in fa.decode_attention
    (0, 0): ((1,), (1, 1, 1, 1)),
    (2, 2): ((NKV,), (1, NKV, 1, 1)),
    (3, 3): ((B, NKV, S), (B, NKV, S, 1)),
    (1, 1): ((B, S), (B, 1, S, 1)),
    (1, 0): ((B, S), (B, 1, S, 1), (1,), (1, 1, 1, 1)),
    (2, 0): ((NKV,), (1, NKV, 1, 1), (NKV, 1, 32), (1, NKV, 1, 32)),
    (3, 2): ((B, NKV, S + 3), (B, NKV, S + 3, 1), (NKV,), (1, NKV, 1, 1)),
    (1, 3): ((B, S + 5), (B, 1, S + 5, 1), (1, B, NKV, S), (B, NKV, S, 1)),
}


@pytest.mark.parametrize("kind", [torch.int8, torch.int32, torch.float8_e4m3fn])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("rows", [1, 3])
def test_modes_of_separate_scales(rows, modes, kind):
    q, size = torch.randn(B, N, rows, 32), 32
    k, v = codes_of(kind, size), codes_of(kind, size)
    shapes, wide_shapes = (MODES[modes] * 2)[0:4:2], (MODES[modes] * 2)[1:4:2]
    scales = [0.02 + 0.01 * torch.rand(shape) for shape in shapes]
    offsets = [None, None] if kind == torch.float8_e4m3fn else [torch.randn(shape) for shape in shapes]
    named = dict(zip(("key_antiquant_scale", "value_antiquant_scale"), scales, strict=True))
    named |= dict(zip(("key_antiquant_offset", "value_antiquant_offset"), offsets, strict=True))
    mode = dict(zip(("key_antiquant_mode", "value_antiquant_mode"), modes, strict=True))
    out, lse = fused(q, k, v, **named, **mode, softmax_lse_flag=True)
    wide = {name: None if t is None else t.view(own) for name, t, own in zip(
        ("k_scale", "v_scale", "k_offset", "v_offset"), (*scales, *offsets), wide_shapes * 2, strict=True)}
    want, want_lse = fa.decode_attention(q, k, v, lengths_kv=LENGTHS, scale=SCALE, return_lse=True, **wide)
    assert_close = torch.testing.assert_close  # both add the same numbers, but in different orders
    assert_close(out, want, rtol=1e-5, atol=1e-5)
    assert_close(lse[..., 0], want_lse, rtol=1e-5, atol=1e-5)
    second = {"dequant_scale_key": scales[0], "dequant_scale_value": scales[1], "dequant_offset_key": offsets[0]}
    second |= {"dequant_offset_value": offsets[1], "key_quant_mode": modes[0], "value_quant_mode": modes[1]}
    call = {"num_query_heads": N, "num_key_value_heads": NKV, "softmax_scale": SCALE, "input_layout": "BNSD"}
    again, _ = torch_npu.npu_fused_infer_attention_score_v2(q, k, v, **call, **second, actual_seq_kvlen=LENGTHS)
    assert torch.equal(again, out)


def codes_of(kind, size):
    """Returns random keys [B, Nkv, S, size]; int32 hold eight numbers of 4 bits each."""
    if kind == torch.int8:
        return torch.randint(-128, 128, (B, NKV, S, size), dtype=torch.int8)
    if kind == torch.int32:
        return torch.randint(-(2**31), 2**31, (B, NKV, S, size // 8)).to(torch.int32)
    return torch.randn(B, NKV, S, size).to(kind)


@pytest.mark.parametrize(("mode", "shape", "want", "paged"), [
    (0, (NKV, D // 4), f"[1], [{NKV}, 1, {D}], [{NKV}, {D}] or [{NKV * D}]", False),
    (0, (NKV, 1), f"[1], [{NKV}, 1, {D}], [{NKV}, {D}] or [{NKV * D}]", False),
    (0, (D,), f"[1], [{NKV}, 1, {D}], [{NKV}, {D}] or [{NKV * D}]", False),
    (1, (B, S - 1), f"[{B}, >={S}]", False),
    (1, (1, S), f"[{B}, >={S}]", False),
    (2, (NKV, 1), f"[{NKV}]", False),
    (3, (B, NKV, 1), f"[{B}, {NKV}, >={S}]", False),
    (3, (1, 1, S), f"[{B}, {NKV}, >={S}]", False),
    (1, (B + 1, S), f"[{B}, S]", True),
    (3, (B, NKV + 1, S), f"[{B}, {NKV}, S]", True),
    (4, (1, PAGE), f"[9, {PAGE}]", True),
    (4, (9, PAGE + 1), f"[9, {PAGE}]", True),
    (5, (9, 1, PAGE), f"[9, {NKV}, {PAGE}]", True),
])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_a_scale_of_another_shape_is_refused(layout, mode, shape, want, paged):
    q = random_qkv(sq=1)[0]
    k, v = (codes_of(torch.int8, D) for _ in range(2))
    keywords = {"key_antiquant_mode": mode, "value_antiquant_mode": mode}
    keywords |= {"key_antiquant_scale": torch.ones(shape), "value_antiquant_scale": torch.ones(shape)}
    if paged:
        k, v = (torch.zeros(9, NKV, PAGE, D, dtype=torch.int8) for _ in range(2))
        keywords |= {"block_table": torch.zeros(B, -(-S // PAGE), dtype=torch.int32), "block_size": PAGE}
    words = re.escape(f"key_antiquant_scale.shape={list(shape)}, want {want} (mode {mode})")
    with pytest.raises(ValueError, match=f"^invalid argument: {words}$"):
        fused(q, k, v, layout, **keywords)


def rows_packed(tensor, layout):
    """Returns a tensor [B, N, S, D] in the layout TND or NTD."""
    packed = tensor.transpose(0, 1).flatten(1, 2)
    return packed.transpose(0, 1) if layout == "TND" else packed


@pytest.mark.parametrize("layout", ["TND", "NTD"])
def test_packed_keys_have_scales_per_tensor_column_and_head(layout):
    q = random_qkv(sq=3)[0]
    k, v = (codes_of(torch.int8, D) for _ in range(2))
    packed = [rows_packed(t, layout) for t in (q, k, v)]
    lengths = {"actual_seq_lengths": [3, 6, 9][:B], "actual_seq_lengths_kv": [S, 2 * S, 3 * S][:B]}
    for mode, shape in (0, (1,)), (0, (NKV, 1, D)), (0, (NKV * D,)), (2, (NKV,)):
        scale = 0.02 + 0.01 * torch.rand(shape)
        call = {"key_antiquant_scale": scale, "value_antiquant_scale": scale}
        call |= {"key_antiquant_mode": mode, "value_antiquant_mode": mode}
        want = fused(q, k, v, **call, actual_seq_lengths_kv=None)[0]
        call |= {"num_heads": N, "num_key_value_heads": NKV, "input_layout": layout, "scale": SCALE}
        out = torch_npu.npu_fused_infer_attention_score(*packed, **call, **lengths)[0]
        assert torch.equal(out, rows_packed(want, layout))
    for mode, shape in (1, (B, NKV)), (1, (1, B * S)), (1, (B, S)), (3, (B, NKV, S)), (3, (B * S, NKV, S)):
        scale = torch.ones(shape)
        call |= {"key_antiquant_scale": scale, "value_antiquant_scale": scale, "value_antiquant_mode": mode}
        for key_mode, name in (mode, "key"), (2, "value"):
            call["key_antiquant_mode"] = key_mode
            call["key_antiquant_scale"] = scale if key_mode == mode else torch.ones(NKV)
            words = rf"^invalid argument: {name}_antiquant_mode={mode}, want 0 or 2 \(packed keys without pages\)$"
            with pytest.raises(ValueError, match=words):
                torch_npu.npu_fused_infer_attention_score(*packed, **call, **lengths)


@pytest.mark.parametrize(("mode", "shape"), [
    (0, (1,)), (0, (NKV, 1, D)), (0, (NKV * D,)), (1, (1, S)), (2, (NKV,)), (3, (1, NKV, S)), (3, (1, NKV, S + 4)),
])
def test_scales_of_one_sequence_without_a_batch(mode, shape):
    q = random_qkv(sq=3)[0]
    k, v = (codes_of(torch.int8, D) for _ in range(2))
    scale = 0.02 + 0.01 * torch.rand(shape)
    call = {"key_antiquant_scale": scale, "value_antiquant_scale": scale, "actual_seq_lengths_kv": None}
    call |= {"key_antiquant_mode": mode, "value_antiquant_mode": mode}
    want = fused(q[:1], k[:1], v[:1], **call)[0]
    call |= {"num_heads": N, "num_key_value_heads": NKV, "input_layout": "NSD", "scale": SCALE}
    assert torch.equal(torch_npu.npu_fused_infer_attention_score(q[0], k[0], v[0], **call)[0], want[0])


@pytest.mark.parametrize(("kind", "layout"), [
    (torch.int8, "BNSD"), (torch.int8, "BSND"), (torch.int8, "BSH"), (torch.int32, "BNSD"), (torch.int32, "BSND"),
])
def test_compressed_keys_with_a_shared_prefix_are_the_joined_keys(layout, kind):
    q, size, used = torch.randn(B, N, 4, 32), 32, 7
    k, v = codes_of(kind, size), codes_of(kind, size)
    prefixes = [codes_of(kind, size)[:1, :, :9] for _ in range(2)]
    scales = [0.02 + 0.01 * torch.rand(NKV) for _ in range(2)]
    call = {"key_antiquant_scale": scales[0], "value_antiquant_scale": scales[1], "key_antiquant_mode": 2}
    call["value_antiquant_mode"] = 2
    k_prefix, v_prefix = (to_layout(t, layout) for t in prefixes)
    shared = {"key_shared_prefix": k_prefix, "value_shared_prefix": v_prefix, "actual_shared_prefix_len": [used]}
    out, _ = fused(q, k, v, layout, **call, **shared)
    joined = [torch.cat([t[:, :, :used].expand(B, -1, -1, -1), own], 2) for t, own in zip(prefixes, (k, v), strict=True)]
    want, _ = fused(q, *joined, **call, actual_seq_lengths_kv=[used + length for length in LENGTHS])
    assert torch.equal(out, want)


def test_separate_scales_count_instead_of_combined_ones():
    q = random_qkv(sq=1)[0]
    k, v = (codes_of(torch.int8, D) for _ in range(2))
    separate = {"key_antiquant_scale": torch.tensor([0.02]), "value_antiquant_scale": torch.tensor([0.03])}
    want = fused(q, k, v, **separate)[0]
    for more in ({"antiquant_scale": torch.ones(2, B, S), "antiquant_mode": 1}, {"antiquant_offset": torch.ones(2)}):
        assert torch.equal(fused(q, k, v, **separate, **more)[0], want)
    with pytest.raises(ValueError, match=r"^invalid argument: antiquant_scale: missing \(key.dtype is i4x8\)"):
        incre(torch.randn(B, N, 1, 32), *(codes_of(torch.int32, 32) for _ in range(2)))


@pytest.mark.parametrize(("mode", "front"), [(1, (B,)), (3, (B, NKV))])
def test_scales_per_token_of_pages_may_have_more_rows(mode, front):
    q = random_qkv(sq=1)[0]
    k, v = (codes_of(torch.int8, D).float() for _ in range(2))
    *pages, table = paged_pair(k, v)
    pages = [page.nan_to_num(99).to(torch.int8) for page in pages]
    rows = table.shape[1] * PAGE
    scales = [0.02 + 0.01 * torch.rand(*front, rows + more) for more in (3, 0)]
    call = {"key_antiquant_scale": scales[0], "value_antiquant_scale": scales[1], "block_table": table}
    call |= {"key_antiquant_mode": mode, "value_antiquant_mode": mode, "block_size": PAGE}
    out, _ = fused(q, *pages, **call)
    k_scale, v_scale = (scale[..., :S].reshape(B, -1, S, 1) for scale in scales)
    assert_right(out, q, k * k_scale, v * v_scale)


def test_a_scale_per_column_and_one_per_token():
    q = random_qkv(sq=1)[0]
    k, v = (codes_of(torch.int8, D) for _ in range(2))
    columns, token = 0.02 + 0.01 * torch.rand(NKV, 1, D), 0.02 + 0.01 * torch.rand(1, B, S)
    mixed = {"key_antiquant_scale": columns, "value_antiquant_scale": token}
    out, _ = fused(q, k, v, **mixed, key_antiquant_mode=0, value_antiquant_mode=1)
    assert_right(out, q, k * columns, v * token[0][:, None, :, None])
    for shape in ((NKV, D), (NKV * D,), (1, NKV, D)):
        same, _ = fused(q, k, v, **mixed | {"key_antiquant_scale": columns.reshape(shape)}, value_antiquant_mode=1)
        assert torch.equal(same, out)


@pytest.mark.parametrize("mode", [4, 5])
def test_pages_have_scales_per_row(mode):
    q = random_qkv(sq=1)[0]
    k, v = (codes_of(torch.int8, D).float() for _ in range(2))
    scales = [(0.02 + 0.01 * torch.rand(B, NKV if mode == 5 else 1, S, 1)) for _ in range(2)]
    *pages, table = paged_pair(k, v)
    *paged_scales, _ = paged_pair(*scales)
    pages = [page.nan_to_num(99).to(torch.int8) for page in pages]
    named = [scale[..., 0] if mode == 5 else scale[:, 0, :, 0] for scale in paged_scales]
    call = {"key_antiquant_scale": named[0], "value_antiquant_scale": named[1]}
    call |= {"key_antiquant_mode": mode, "value_antiquant_mode": mode, "block_table": table, "block_size": PAGE}
    out, _ = fused(q, *pages, **call)
    assert_right(out, q, k * scales[0], v * scales[1])


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_int4_in_int32_with_combined_scales(layout):
    q, (k, v) = torch.randn(B, N, 1, 32), (codes_of(torch.int32, 32) for _ in range(2))
    scales = 0.1 + 0.1 * torch.rand(2, NKV, 32)
    call = {"lengths_kv": LENGTHS, "scale": SCALE, "antiquant_scale": scales}
    want = fa.decode_attention(q, k, v, **call)
    out = incre(q, k, v, layout, antiquant_scale=scales)
    assert torch.equal(out, want)
    with pytest.raises(ValueError, match="num_key_value_heads=3, want 2"):
        incre(q, k, v, layout, antiquant_scale=scales, num_key_value_heads=3)
