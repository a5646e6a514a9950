"""Tensors whose shapes fit two orders of dimensions. They must be read in the documented order, in every layout and
function."""

import pytest
import torch
from reference import bnsd, to_layout
from test_decode import D, LENGTHS, SCALE, S, assert_right, kept, paged_pair

import fa
import fa.flash_attn as flash_attn
import fa.torch_npu as torch_npu

# Heads, pages and rows have equal sizes, so that a shape does not tell the order of its dimensions.
B = HEADS = PAGE = ROWS = 3
CALL = {"num_heads": HEADS, "num_key_value_heads": HEADS}
BLOCK_SIZES = pytest.mark.parametrize("block_size", [0, PAGE])


def random_qkv(sq=1):
    return [torch.randn(B, HEADS, rows, D) for rows in (sq, S, S)]


def pages_of(k, v, layout):
    k, v, table = paged_pair(k, v, layout, page=PAGE)
    assert k.shape[1] == k.shape[2] == PAGE
    return k, v, table


def packed(t):
    return t.transpose(1, 2).flatten(0, 1)


def keep(sq=1, **window):
    return kept(LENGTHS, sq, S, **window)


def test_paged_attention_has_rows_first():
    q, k, v = random_qkv()
    k_pages, v_pages, table = pages_of(k, v, "BSND")
    out = torch.full((B, HEADS, D), torch.nan)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    torch_npu._npu_paged_attention(q[:, :, 0], k_pages, v_pages, HEADS, HEADS, SCALE, table, lengths, out)
    assert_right(out[:, :, None], q, k, v, keep=keep())


def test_paged_attention_of_as_many_rows_as_heads():
    k, v, q, out = torch.randn(3, 16, 16, 8), torch.randn(3, 16, 16, 8), torch.randn(1, 16, 8), torch.empty(1, 16, 8)
    table, lengths = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([17], dtype=torch.int32)
    torch_npu._npu_paged_attention(q, k, v, 16, 16, 0.3, table, lengths, out)
    keys, values = (torch.cat([t[2], t[0, :1]]).transpose(0, 1)[None] for t in (k, v))
    assert_right(out[:, :, None], q[:, :, None], keys, values, scale=0.3, keep=torch.ones(1, 1, 1, 17).bool())


@BLOCK_SIZES
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BNSD_BSND", "TND"])
def test_pages_that_fit_both_orders_have_heads_first(layout, block_size):
    q, k, v = random_qkv()
    *pages, table = pages_of(k, v, "BNSD")
    call = {"input_layout": layout, "block_table": table, "block_size": block_size}
    query = packed(q) if layout == "TND" else q if layout == "BNSD_BSND" else to_layout(q, layout)
    lengths_q = [1, 2, 3] if layout == "TND" else None
    results = [
        torch_npu.npu_fused_infer_attention_score(
            query, *pages, **call, **CALL, scale=SCALE, actual_seq_lengths=lengths_q, actual_seq_lengths_kv=LENGTHS
        )[0],
        torch_npu.npu_fused_infer_attention_score_v2(
            query, *pages, **call, num_query_heads=HEADS, num_key_value_heads=HEADS, softmax_scale=SCALE,
            actual_seq_qlen=lengths_q, actual_seq_kvlen=LENGTHS,
        )[0],
    ]
    if layout in ("BNSD", "BSND", "BSH"):
        incre = torch_npu.npu_incre_flash_attention
        results.append(incre(query, *pages, **call, **CALL, scale_value=SCALE, actual_seq_lengths=LENGTHS))
    for out in results:
        seen = {"TND": lambda t: t[:, :, None], "BNSD_BSND": lambda t: t.transpose(1, 2)}
        assert_right(seen.get(layout, lambda t: bnsd(t, layout, HEADS))(out), q, k, v, keep=keep())


@pytest.mark.parametrize("layout", ["BNSD", "BSND"])
def test_both_parts_of_split_heads_have_the_order_of_the_keys(layout):
    q, k, v = random_qkv()
    k_pages, v_pages, table = pages_of(k, v, "BNSD")
    parts = (part for t in (to_layout(q, layout), k_pages) for part in (t[..., :16], t[..., 16:]))
    query, query_rope, key, key_rope = parts
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query, key, v_pages, query_rope=query_rope, key_rope=key_rope, input_layout=layout, block_table=table,
        scale=SCALE, actual_seq_lengths_kv=LENGTHS, **CALL,
    )
    assert_right(bnsd(out, layout, HEADS), q, k, v, keep=keep())


@pytest.mark.parametrize(("heads", "page", "block_size"), [(2, 3, 0), (2, 3, 3), (3, 2, 2)])
def test_pages_that_fit_one_order_have_it(heads, page, block_size):
    q, k, v = (t[:, :1].expand(-1, heads, -1, -1).contiguous() for t in random_qkv())
    for order in ("BNSD", "BSND"):
        *pages, table = paged_pair(k, v, order, page=page)
        out = torch_npu.npu_incre_flash_attention(
            q, *pages, input_layout="BNSD", block_table=table, block_size=block_size, num_heads=heads,
            num_key_value_heads=heads, scale_value=SCALE, actual_seq_lengths=LENGTHS,
        )
        assert_right(out, q, k, v, keep=keep())


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BNSD_BSND"])
def test_the_layout_orders_the_pages_of_decode_attention(layout):
    q, k, v = random_qkv()
    *pages, table = pages_of(k, v, "BSND" if layout == "BSND" else "BNSD")
    query = q if layout == "BNSD_BSND" else to_layout(q, layout)
    for call in (fa.decode_attention, fa.torch.decode_attention):
        out = call(query, *pages, layout=layout, scale=SCALE, lengths_kv=LENGTHS, block_table=table)
        assert_right(out.transpose(1, 2) if layout != "BNSD" else out, q, k, v, keep=keep())


def test_pages_of_flash_attn_have_rows_first():
    q, k, v = random_qkv(sq=2)
    *pages, table = pages_of(k, v, "BSND")
    out = flash_attn.flash_attn_with_kvcache(
        q.transpose(1, 2), *pages, cache_seqlens=torch.tensor(LENGTHS, dtype=torch.int32), block_table=table,
        softmax_scale=SCALE,
    )
    assert_right(out.transpose(1, 2), q, k, v, keep=keep(2))


@pytest.mark.parametrize("layout", ["BSND", "BSH", "TND"])
def test_pages_of_other_heads_than_the_call_are_refused(layout):
    q, k, v = random_qkv()
    *pages, table = pages_of(k, v, "BNSD")
    pages = [t.transpose(1, 2).flatten(2) for t in pages]
    query, lengths_q = (packed(q), [1, 2, 3]) if layout == "TND" else (to_layout(q, layout), None)
    with pytest.raises(ValueError, match=r"num_key_value_heads=1, want 3 \(key\)"):
        torch_npu.npu_fused_infer_attention_score(
            query, *pages, input_layout=layout, block_table=table, num_heads=HEADS, num_key_value_heads=1,
            actual_seq_lengths=lengths_q, actual_seq_lengths_kv=LENGTHS,
        )


def test_masks_of_two_dimensions():
    q, k, v = random_qkv(sq=ROWS)
    drop = torch.rand(3, S) < 0.4
    drop[:, 0] = False
    call = {**CALL, "input_layout": "BNSD", "atten_mask": drop}
    of_elements, of_rows = keep(ROWS) & ~drop[:, None, None], keep(ROWS) & ~drop[None, None]
    out = torch_npu.npu_incre_flash_attention(q, k, v, **call, scale_value=SCALE, actual_seq_lengths=LENGTHS)
    assert_right(out, q, k, v, keep=of_elements)
    out, _ = torch_npu.npu_fused_infer_attention_score(q, k, v, **call, scale=SCALE, actual_seq_lengths_kv=LENGTHS)
    assert_right(out, q, k, v, keep=of_rows)
    prompt = {**call, "scale_value": SCALE, "actual_seq_lengths_kv": LENGTHS, "next_tokens": S}
    assert_right(torch_npu.npu_prompt_flash_attention(q, k, v, **prompt), q, k, v, keep=of_rows)
    out = fa.decode_attention(q, k, v, scale=SCALE, lengths_kv=LENGTHS, dense_mask=drop)
    assert_right(out, q, k, v, keep=of_elements)


@pytest.mark.parametrize("lengths_q", [[1, 1, 1], [2, 0, 1], [3, 3, 3]])
def test_masks_of_packed_queries_over_pages_are_those_of_the_longest(lengths_q):
    rows = max(lengths_q)
    q, k, v = random_qkv(sq=rows)
    *pages, table = pages_of(k, v, "BNSD")
    drop = torch.rand(rows, S) < 0.4
    drop[:, 0] = False
    tokens = torch.cat([q[b, :, :length].transpose(0, 1) for b, length in enumerate(lengths_q)])
    call = {
        **CALL, "input_layout": "TND", "scale": SCALE, "block_table": table, "actual_seq_lengths_kv": LENGTHS,
        "actual_seq_lengths": torch.tensor(lengths_q).cumsum(0),
    }
    out, _ = torch_npu.npu_fused_infer_attention_score(tokens, *pages, **call, atten_mask=drop)
    begin = 0
    for b, length in enumerate(lengths_q):
        own = out[begin : begin + length].transpose(0, 1)[None]
        begin += length
        if length:
            kept_here = keep(rows)[b : b + 1, :, :length] & ~drop[None, None, :length]
            assert_right(own, q[b : b + 1, :, :length], k[b : b + 1], v[b : b + 1], keep=kept_here)
    more = torch.cat([drop, torch.ones(2, S, dtype=torch.bool)])
    assert torch.equal(torch_npu.npu_fused_infer_attention_score(tokens, *pages, **call, atten_mask=more)[0], out)


def test_paged_attention_s_output_is_not_of_any_shape():
    q, k, v = random_qkv()
    k_pages, v_pages, table = pages_of(k, v, "BSND")
    arguments = q[:, :, 0], k_pages, v_pages, HEADS, HEADS, SCALE, table, torch.tensor(LENGTHS)
    for shape in ((B, D, HEADS), (B, HEADS, D, 1), (B, HEADS * D, 1)):
        with pytest.raises(ValueError, match=rf"out.shape=.*want \[{B}, {HEADS}, {D}\] or \[{B}, {HEADS * D}\]"):
            torch_npu._npu_paged_attention(*arguments, torch.empty(shape))


def test_a_scale_of_all_keys_may_have_any_number_of_dimensions():
    q, _, _ = random_qkv()
    k, v = (torch.randint(-128, 128, (B, HEADS, S, D), dtype=torch.int8) for _ in range(2))
    for shape in ((), (1,), (1, 1)):
        scale = torch.full(shape, 0.02)
        out, _ = torch_npu.npu_fused_infer_attention_score(
            q, k, v, **CALL, scale=SCALE, input_layout="BNSD", actual_seq_lengths_kv=LENGTHS,
            key_antiquant_scale=scale, value_antiquant_scale=scale,
        )
        assert_right(out, q, k * 0.02, v * 0.02, keep=keep())


def test_lengths_of_single_queries_count():
    q, k, v = random_qkv()
    for function, lengths in (
        (torch_npu.npu_fused_infer_attention_score, {"actual_seq_lengths": [1, 0, 1], "scale": SCALE}),
        (torch_npu.npu_prompt_flash_attention, {"actual_seq_lengths": [1, 0, 1], "scale_value": SCALE}),
    ):
        result = function(q, k, v, **CALL, **lengths, input_layout="BNSD", actual_seq_lengths_kv=LENGTHS)
        out = result[0] if isinstance(result, tuple) else result
        assert torch.count_nonzero(out[1]) == 0
        used = [0, 2]
        assert_right(out[used], q[used], k[used], v[used], keep=keep()[used])
