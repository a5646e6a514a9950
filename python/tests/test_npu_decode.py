"""The functions of fa.torch_npu for inference over caches: signatures, layouts, sparse modes, pages, lengths,
errors."""

import inspect

import pytest
import torch
from reference import bnsd, to_layout
from test_decode import B, D, LENGTHS, N, NKV, PAGE, SCALE, S, assert_right, kept, paged_pair, random_qkv

import fa
import fa.torch_npu as torch_npu

TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
_MAX = "2147483647"
FACES = {  # names and arguments as the documentation of torch_npu lists them
    "npu_incre_flash_attention": "query, key, value, *, padding_mask=None, atten_mask=None, pse_shift=None, "
    "actual_seq_lengths=None, antiquant_scale=None, antiquant_offset=None, block_table=None, dequant_scale1=None, "
    "quant_scale1=None, dequant_scale2=None, quant_scale2=None, quant_offset2=None, kv_padding_size=None, num_heads=1, "
    "scale_value=1.0, input_layout='BSH', num_key_value_heads=0, block_size=0, inner_precise=1",
    "npu_fused_infer_attention_score": "query, key, value, *, pse_shift=None, atten_mask=None, actual_seq_lengths=None, "
    "actual_seq_lengths_kv=None, dequant_scale1=None, quant_scale1=None, dequant_scale2=None, quant_scale2=None, "
    "quant_offset2=None, antiquant_scale=None, antiquant_offset=None, key_antiquant_scale=None, "
    "key_antiquant_offset=None, value_antiquant_scale=None, value_antiquant_offset=None, block_table=None, "
    "query_padding_size=None, kv_padding_size=None, key_shared_prefix=None, value_shared_prefix=None, "
    "actual_shared_prefix_len=None, query_rope=None, key_rope=None, key_rope_antiquant_scale=None, num_heads=1, "
    f"scale=1.0, pre_tokens={_MAX}, next_tokens={_MAX}, input_layout='BSH', num_key_value_heads=0, sparse_mode=0, "
    "inner_precise=0, block_size=0, antiquant_mode=0, softmax_lse_flag=False, key_antiquant_mode=0, "
    "value_antiquant_mode=0",
    "npu_fused_infer_attention_score_v2": "query, key, value, *, query_rope=None, key_rope=None, pse_shift=None, "
    "atten_mask=None, actual_seq_qlen=None, actual_seq_kvlen=None, block_table=None, dequant_scale_query=None, "
    "dequant_scale_key=None, dequant_offset_key=None, dequant_scale_value=None, dequant_offset_value=None, "
    "dequant_scale_key_rope=None, quant_scale_out=None, quant_offset_out=None, quant_scale_p=None, learnable_sink=None, num_query_heads=1, "
    f"num_key_value_heads=0, softmax_scale=1.0, pre_tokens={_MAX}, next_tokens={_MAX}, input_layout='BSH', "
    "sparse_mode=0, block_size=0, query_quant_mode=0, key_quant_mode=0, value_quant_mode=0, inner_precise=0, "
    "return_softmax_lse=False, query_dtype=None, key_dtype=None, value_dtype=None, query_rope_dtype=None, "
    "key_rope_dtype=None, key_shared_prefix_dtype=None, value_shared_prefix_dtype=None, "
    "dequant_scale_query_dtype=None, dequant_scale_key_dtype=None, dequant_scale_value_dtype=None, "
    "dequant_scale_key_rope_dtype=None, out_dtype=None",
    "_npu_paged_attention": "query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, "
    "context_lens, out, workspace=None",
    "npu_fusion_attention_v3": "query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, "
    f"scale=1.0, keep_prob=1.0, pre_tockens={_MAX}, next_tockens={_MAX}, inner_precise=0, prefix=None, "
    "actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, "
    "softmax_layout='', sink=None",
}


@pytest.mark.parametrize("name", FACES)
def test_signatures(name):
    signature = inspect.signature(getattr(torch_npu, name))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({FACES[name]})"


def incre(q, k, v, layout="BNSD", **keywords):
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale_value": SCALE, "actual_seq_lengths": LENGTHS}
    inputs = (to_layout(t, layout) for t in (q, k, v))
    return bnsd(torch_npu.npu_incre_flash_attention(*inputs, **{**call, "input_layout": layout, **keywords}), layout, N)


def fused(q, k, v, layout="BNSD", **keywords):
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale": SCALE, "actual_seq_lengths_kv": LENGTHS}
    inputs = (to_layout(t, layout) for t in (q, k, v))
    out, lse = torch_npu.npu_fused_infer_attention_score(*inputs, **{**call, "input_layout": layout, **keywords})
    return bnsd(out, layout, N), lse


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_one_query_per_sequence(layout):
    q, k, v = random_qkv(torch.bfloat16, sq=1)
    out = incre(q, k, v, layout)
    assert_right(out, q, k, v)
    assert torch.equal(fused(q, k, v, layout)[0], out)
    drop = torch.rand(B, S) < 0.3
    pse = torch.randn(1, N, 1, S).to(torch.bfloat16)
    masked = incre(q, k, v, layout, atten_mask=drop, pse_shift=pse)
    keep = kept(sq=1) & ~drop[:, None, None]
    assert_right(masked, q, k, v, keep=keep, bias=pse.expand(B, -1, -1, -1))
    assert torch.equal(incre(q, k, v, layout, atten_mask=drop[:, None, None], pse_shift=pse), masked)


@pytest.mark.parametrize("pages", ["heads in one", "heads first", "rows first"])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_pages(layout, pages):
    q, k, v = random_qkv(sq=1)
    want = incre(q, k, v)
    *lists, table = paged_pair(k, v)  # the pages have shape [blocks, Nkv, block size, D]
    change = {
        "heads in one": lambda t: t.transpose(1, 2).flatten(2),
        "heads first": lambda t: t,
        "rows first": lambda t: t.transpose(1, 2).contiguous(),
    }[pages]
    call = {"num_heads": N, "num_key_value_heads": NKV, "input_layout": layout, "block_table": table, "block_size": PAGE}
    inputs = to_layout(q, layout), *map(change, lists)
    out = torch_npu.npu_incre_flash_attention(*inputs, **call, scale_value=SCALE, actual_seq_lengths=LENGTHS)
    assert torch.equal(bnsd(out, layout, N), want)
    out, lse = torch_npu.npu_fused_infer_attention_score(
        *inputs, **call, scale=SCALE, actual_seq_lengths_kv=torch.tensor(LENGTHS), softmax_lse_flag=True
    )
    assert torch.equal(bnsd(out, layout, N), want) and lse.shape == (B, N, 1, 1)


@pytest.mark.parametrize(("mode", "window"), [(0, (None, None)), (3, (None, 0)), (4, (20, 3))])
@pytest.mark.parametrize("rows", [5, 20])
def test_several_queries(rows, mode, window):
    q, k, v = random_qkv(sq=rows)
    lengths = [70, 30, 33]
    tokens = {"pre_tokens": window[0] or 0, "next_tokens": window[1] or 0} if mode == 4 else {}
    mask = {"atten_mask": TRIANGLE, "sparse_mode": mode, **tokens} if mode else {}
    keep = kept(lengths, sq=rows, left=window[0], right=window[1])
    out, none = fused(q, k, v, actual_seq_lengths_kv=lengths, **mask)
    assert_right(out, q, k, v, keep=keep)
    assert none.numel() == 0
    out, lse = fused(q, k, v, "BSND", actual_seq_lengths_kv=lengths, softmax_lse_flag=True, **mask)
    assert lse.shape == (B, N, rows, 1)
    assert_right(out, q, k, v, keep=keep, lse=lse[..., 0])


def test_masks_of_mode_0_are_wider_and_narrowed_by_tokens():
    q, k, v = random_qkv(sq=3)
    drop = torch.rand(8, S + 3) < 0.4
    out, _ = fused(q, k, v, atten_mask=drop, pre_tokens=10, next_tokens=4)
    i, j = torch.arange(3)[:, None], torch.arange(S)
    keep = kept(sq=3) & ~drop[:3, :S] & (j >= i - 10) & (j <= i + 4)
    assert_right(out, q, k, v, keep=keep)


def test_packed_sequences_and_split_heads():
    q, k, v = (t[0].transpose(0, 1).contiguous() for t in random_qkv(sq=S))
    q_rope, k_rope = torch.randn(S, N, 8), torch.randn(S, NKV, 8)
    sink = torch.randn(N)
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(
        q, k, v, query_rope=q_rope, key_rope=k_rope, atten_mask=TRIANGLE, sparse_mode=3, num_query_heads=N,
        num_key_value_heads=NKV, softmax_scale=SCALE, input_layout="TND", actual_seq_qlen=[20, S],
        actual_seq_kvlen=torch.tensor([20, S]), learnable_sink=sink, return_softmax_lse=True,
    )
    assert lse.shape == (S, N, 1)
    for begin, end in ((0, 20), (20, S)):
        joined = (torch.cat(pair, -1)[begin:end].transpose(0, 1)[None] for pair in ((q, q_rope), (k, k_rope)))
        piece = slice(begin, end)
        keep = torch.ones(end - begin, end - begin, dtype=torch.bool).tril()[None, None]
        rows = out[piece].transpose(0, 1)[None], lse[piece, :, 0].T[None]
        assert_right(rows[0], *joined, v[piece].transpose(0, 1)[None], lse=rows[1], keep=keep, sink=sink.float())


@pytest.mark.parametrize("lengths_q", [[1, 1, 1], [2, 0, 1]])
def test_packed_queries_over_pages(lengths_q):
    q, k, v = random_qkv(sq=max(lengths_q))
    *pages, table = paged_pair(k, v, "BSH")
    tokens = torch.cat([q[b, :, :length].transpose(0, 1) for b, length in enumerate(lengths_q)])
    out, lse = torch_npu.npu_fused_infer_attention_score(
        tokens, *pages, num_heads=N, num_key_value_heads=NKV, scale=SCALE, input_layout="TND", block_table=table,
        block_size=PAGE, actual_seq_lengths=torch.tensor(lengths_q).cumsum(0), actual_seq_lengths_kv=LENGTHS,
        atten_mask=TRIANGLE, sparse_mode=3, softmax_lse_flag=True,
    )
    assert out.shape == tokens.shape and lse.shape == (*tokens.shape[:2], 1)
    begin = 0
    for b, length in enumerate(lengths_q):
        own = slice(begin, begin + length)
        begin += length
        if length:
            keys = (t[b : b + 1, :, : LENGTHS[b]] for t in (k, v))
            keep = kept(LENGTHS[b : b + 1], sq=length, keys=LENGTHS[b], right=0)
            rows = out[own].transpose(0, 1)[None], lse[own, :, 0].T[None]
            assert_right(rows[0], q[b : b + 1, :, :length], *keys, lse=rows[1], keep=keep)


def test_split_heads_of_padded_layouts():
    q, k, v = random_qkv(sq=3)
    out, _ = fused(q[..., :16], k[..., :16], v, query_rope=q[..., 16:], key_rope=k[..., 16:])
    assert_right(out, q, k, v)


@pytest.mark.parametrize("pages", ["heads in one", "heads first", "rows first"])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "TND"])
def test_split_heads_in_pages(layout, pages):
    q, k, v = random_qkv(sq=2)
    *lists, table = paged_pair(k, v)  # the pages have shape [blocks, Nkv, block size, D]
    change = {
        "heads in one": lambda t: t.transpose(1, 2).flatten(2),
        "heads first": lambda t: t,
        "rows first": lambda t: t.transpose(1, 2).contiguous(),
    }[pages]
    parts = (lists[0][..., :16], lists[0][..., 16:])
    key, key_rope, value = (change(part.contiguous()) for part in (*parts, lists[1]))
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale": SCALE, "block_table": table, "block_size": PAGE}
    if layout == "TND":
        whole = q.transpose(1, 2).flatten(0, 1)
        call |= {"actual_seq_lengths": [2, 4, 6]}
    else:
        whole = None
    query, query_rope = (
        (whole[..., :16], whole[..., 16:]) if whole is not None else (to_layout(q[..., :16], layout), to_layout(q[..., 16:], layout))
    )
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query, key, value, query_rope=query_rope, key_rope=key_rope, input_layout=layout, actual_seq_lengths_kv=LENGTHS,
        **call,
    )
    got = out.view(B, 2, N, D).transpose(1, 2) if layout == "TND" else bnsd(out, layout, N)
    assert_right(got, q, k, v)


def test_int8_queries_in_pages():
    q, k, v = (torch.randint(-20, 21, t.shape, dtype=torch.int8) for t in random_qkv(sq=1))
    scales = {"dequant_scale1": torch.tensor([0.01]), "quant_scale1": torch.tensor([127.0])}
    scales["dequant_scale2"] = torch.tensor([0.1])
    count = -(-S // PAGE)
    order = torch.arange(B * count, dtype=torch.int32).flip(0).view(B, count)
    lists = [torch.zeros(B * count, NKV, PAGE, D, dtype=torch.int8) for _ in range(2)]
    for to, tensor in zip(lists, (k, v), strict=True):
        for b in range(B):
            for j in range(S):
                to[order[b, j // PAGE], :, j % PAGE] = tensor[b, :, j]
    want = incre(q, k, v, **scales)
    assert torch.equal(incre(q, *lists, block_table=order, block_size=PAGE, **scales), want)
    assert torch.equal(fused(q, *lists, block_table=order, block_size=PAGE, **scales)[0], want)


def test_int8_queries_are_a_prompt_s():
    q, k, v = (torch.randint(-20, 21, t.shape, dtype=torch.int8) for t in random_qkv(sq=4))
    scales = {"deq_scale1": torch.tensor([0.01]), "quant_scale1": torch.tensor([127.0]), "deq_scale2": torch.tensor([0.1])}
    want = fa.prompt_flash_attention(q, k, v, scale=SCALE, lengths_kv=LENGTHS, **scales)
    renamed = {name.replace("deq", "dequant"): value for name, value in scales.items()}
    assert torch.equal(fused(q, k, v, **renamed)[0], want)
    one = fa.prompt_flash_attention(q[:, :, :1].contiguous(), k, v, scale=SCALE, lengths_kv=LENGTHS, **scales)
    assert torch.equal(incre(q[:, :, :1].contiguous(), k, v, **renamed), one)
    for call in (fused, incre):
        with pytest.raises(ValueError, match="dequant_scale1: given, want none"):
            call(*random_qkv(sq=1), **renamed)
    with pytest.raises(ValueError, match="key_rope: given, want none"):
        fused(q, k, v, query_rope=q.half(), key_rope=k.half(), **renamed)


def test_paged_attention_writes_its_output():
    q, k, v = random_qkv(torch.bfloat16, sq=1)
    want = incre(q, k, v)
    *pages, table = paged_pair(k, v, "BSND")
    call = pages, NKV, N, SCALE, table, torch.tensor(LENGTHS, dtype=torch.int32)
    for shape in ((B, N, D), (B, N * D)):
        out = torch.full(shape, torch.nan, dtype=torch.bfloat16)
        assert torch_npu._npu_paged_attention(q[:, :, 0], *call[0], *call[1:], out) is None
        assert torch.equal(out.view(B, N, 1, D), want)
    for wrong, message in (
        ((q[:, :, 0], *pages, NKV + 1, *call[2:], out), r"key_cache.shape=.*want \[blocks, block size, 3"),
        ((q[:, :, 0], *call[0], *call[1:], out[:, :-1]), "out.shape"),
        ((q[:, :, 0], *call[0], *call[1:], out.float()), "out.dtype"),
        ((q, *call[0], *call[1:], out), "query.shape"),
        ((q[:, :, 0], *call[0], *call[1:5], torch.tensor([99, 1, 1]), out), r"context_lens\[0\]=99"),
    ):
        with pytest.raises(ValueError, match=message):
            torch_npu._npu_paged_attention(*wrong)


@pytest.mark.parametrize("layout", ["BNSD", "TND", "pages"])
@pytest.mark.parametrize("sink", [None, torch.zeros(2)])
def test_the_lse_of_rows_without_keys_is_positive_infinity(layout, sink):
    q, k = torch.randn(2, 2, 3, 8), torch.randn(2, 2, 8, 8)
    rows, keys = (t.transpose(1, 2).flatten(0, 1) for t in (q, k))
    inputs, call = {
        "BNSD": ((q, k, k), {"actual_seq_kvlen": [0, 5]}),
        "TND": ((rows, keys, keys), {"actual_seq_qlen": [3, 6], "actual_seq_kvlen": [0, 8]}),
        "pages": ((rows, *[keys.view(4, 4, 16)] * 2), {  # the last row belongs to no sequence
            "actual_seq_qlen": [3, 5], "actual_seq_kvlen": [0, 5],
            "block_table": torch.arange(4).view(2, 2).int(), "block_size": 4, "num_key_value_heads": 2,
        }),
    }[layout]
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(
        *inputs, num_query_heads=2, input_layout="BNSD" if layout == "BNSD" else "TND", learnable_sink=sink,
        return_softmax_lse=True, **call,
    )
    rows = lse[..., 0].transpose(1, 2).flatten(0, 1) if layout == "BNSD" else lse[..., 0]
    empty = torch.arange(6) < 3
    empty[5] |= layout == "pages"
    assert torch.equal(rows, torch.where(empty[:, None], torch.inf, rows)) and rows[~empty].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_update_merges_parts(dtype):
    q, k, v = random_qkv(sq=4)
    cuts = [0, 10, 10, 50, S]
    parts = [
        fused(q, k[:, :, a:b], v[:, :, a:b], actual_seq_lengths_kv=[b - a], softmax_lse_flag=True)
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    lse = [part[1].flatten() for part in parts]
    assert torch.isposinf(lse[1]).all()
    outs = [part[0].flatten(0, 2).to(dtype) for part in parts]
    out, whole = torch_npu.npu_attention_update(lse, outs, 1)
    want, want_lse = fused(q, k, v, actual_seq_lengths_kv=[S], softmax_lse_flag=True)
    assert out.dtype == dtype and torch_npu.npu_attention_update(lse, outs, 0)[1] is None
    # The parts and both results are rounded to `dtype`. The weights of the parts come from lse in float32, with |lse| <
    # 8.
    unit = torch.finfo(dtype).eps + 64 * 2**-24
    assert not ((out - want.flatten(0, 2)).abs().max() > unit * v.abs().max())
    assert not ((whole - want_lse.flatten()).abs().max() > 64 * 2**-24)
    nothing, none = torch_npu.npu_attention_update([torch.full((3,), -torch.inf)] * 2, [torch.ones(3, 4)] * 2, 1)
    assert torch.equal(nothing, torch.zeros(3, 4)) and torch.isposinf(none).all()
    for arguments, message in (
        ((lse, outs[:1], 0), "local_out has 1 tensors, want 4"),
        ((lse, outs, 2), "update_type=2"),
        (([lse[0].double()], outs[:1], 0), r"lse\[0\]"),
        ((lse[:2], [outs[0], outs[0][:, :3]], 0), r"local_out\[1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            torch_npu.npu_attention_update(*arguments)


ONES = torch.ones(1)
PAGES = {"block_table": torch.zeros(B, 5, dtype=torch.int32), "actual_seq_lengths_kv": LENGTHS}


@pytest.mark.parametrize(("keywords", "message"), [
    ({"input_layout": "SBH"}, 'input_layout="SBH"'),
    ({"num_heads": 0}, "num_heads=0"),
    ({"num_heads": 3, "num_key_value_heads": 0, "input_layout": "BNSD_BSND"}, "num_heads=3, want 6"),
    ({"num_heads": 3, "num_key_value_heads": 0}, r"num_heads=3, want 6 \(query.shape\[1\]"),
    ({"num_key_value_heads": 4}, "num_key_value_heads=4, want a divisor of 6"),
    ({"num_key_value_heads": 0}, r"num_key_value_heads=0, want 2 \(key\)"),
    ({"sparse_mode": 5}, r"sparse_mode=5, want 0\.\.4"),
    ({"sparse_mode": 3}, "atten_mask: missing"),
    ({"sparse_mode": 3, "atten_mask": TRIANGLE.T}, r"atten_mask\[0\]\[1\]=0, want 1"),
    ({"sparse_mode": 3, "atten_mask": TRIANGLE[:5]}, r"atten_mask.shape=\[5,2048\], want \[2048,2048\]"),
    ({"actual_seq_lengths_kv": [71]}, r"actual_seq_lengths_kv\[0\]=71"),
    ({"actual_seq_lengths": [3]}, r"actual_seq_lengths\[0\]=3, want 0\.\.2"),
    ({"query_padding_size": ONES}, "query_padding_size.dtype=f32, want i64"),
    ({"kv_padding_size": ONES}, "kv_padding_size.dtype=f32, want i64"),
    ({"key_shared_prefix": ONES}, "value_shared_prefix: missing"),
    ({"antiquant_mode": 2}, "antiquant_mode=2"),
    ({"key_antiquant_scale": ONES}, "value_antiquant_scale: missing"),
    ({"key_antiquant_scale": ONES, "value_antiquant_scale": ONES, "key_antiquant_mode": 5}, "key_antiquant_mode=5"),
    ({"key_antiquant_scale": ONES, "value_antiquant_scale": ONES, "key_antiquant_mode": 6}, "key_antiquant_mode=6, want one"),
    ({**PAGES, "key_antiquant_scale": ONES, "value_antiquant_scale": ONES, "key_antiquant_mode": 1},
     r"key_antiquant_scale.shape=\[1\], want \[3, S\] \(mode 1\)"),
    ({"key_antiquant_scale": torch.ones(3), "value_antiquant_scale": ONES}, r"key_antiquant_scale.shape=\[3\], want \[1\]"),
    ({"key_antiquant_scale": ONES, "value_antiquant_scale": ONES, "key_antiquant_offset": ONES},
     "value_antiquant_offset: missing"),
    ({**PAGES, "key_antiquant_scale": ONES, "value_antiquant_scale": ONES, "value_antiquant_mode": 3},
     r"value_antiquant_scale.shape=\[1\], want \[3, 2, S\] \(mode 3\)"),
    ({"query_rope": torch.zeros(B, N, 2, 4)}, "key_rope: missing"),
    ({"quant_scale2": torch.ones(7)}, "quant_scale2"),
    ({**PAGES, "block_size": 8}, r"block_size=8, want 70 \(key.shape\[2\]\)"),
    ({**PAGES, "actual_seq_lengths_kv": None}, "actual_seq_lengths_kv: missing"),
    ({**PAGES, "query_rope": ONES, "key_rope": ONES}, "key_rope.shape"),
    ({"input_layout": "TND"}, r"query.shape=.*want 3 dimensions \(TND\)"),
])
def test_refusals_name_the_argument(keywords, message):
    q, k, v = random_qkv()
    call = {"num_heads": N, "num_key_value_heads": NKV, "input_layout": "BNSD", **keywords}
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_fused_infer_attention_score(q, k, v, **call)


@pytest.mark.parametrize(("q_columns", "rope_columns", "message"), [
    (16 * N - 1, 8 * N, r"query.shape\[2\]=95, want a multiple of 6 \(num_heads\)"),
    (16 * N, 8 * N - 1, r"query_rope.shape\[2\]=47, want a multiple of 6 \(num_heads\)"),
])
def test_heads_of_bsh_in_pages_are_whole(q_columns, rope_columns, message):
    _, k, v = random_qkv(sq=2)
    keys, values, table = paged_pair(k, v)
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_fused_infer_attention_score(
            torch.zeros(B, 2, q_columns), keys[..., :16], values, query_rope=torch.zeros(B, 2, rope_columns),
            key_rope=keys[..., 16:], actual_seq_lengths_kv=LENGTHS, num_heads=N, num_key_value_heads=NKV,
            input_layout="BSH", block_table=table, block_size=PAGE,
        )


@pytest.mark.parametrize(("keywords", "message"), [
    ({"dequant_scale1": ONES}, "dequant_scale1: given"),
    ({"quant_scale1": ONES}, "quant_scale1: given"),
    ({"kv_padding_size": ONES}, "kv_padding_size.dtype=f32, want i64"),
    ({"input_layout": "TND"}, "input_layout"),
    ({"actual_seq_lengths": [71]}, r"actual_seq_lengths\[0\]=71"),
    ({"scale_value": float("inf")}, "scale_value"),
])
def test_refusals_of_the_incremental_function(keywords, message):
    q, k, v = random_qkv(sq=1)
    call = {"num_heads": N, "num_key_value_heads": NKV, "input_layout": "BNSD", **keywords}
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_incre_flash_attention(q, k, v, **call)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "NSD", "TND", "NTD", "rope"])
def test_a_single_row_has_a_band_in_mode_0_only_if_packed_or_with_split_heads(layout):
    q, k, v = (t[:1] for t in random_qkv(sq=1))
    of = {"NSD": lambda t: t[0], "NTD": lambda t: t[0], "TND": lambda t: t[0].transpose(0, 1), "rope": lambda t: t}
    inputs = [of[layout](t) if layout in of else to_layout(t, layout) for t in (q, k, v)]
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale": SCALE, "pre_tokens": 5, "next_tokens": 3}
    call |= {"input_layout": layout, "atten_mask": torch.zeros(1, S, dtype=torch.int8)}
    if layout == "rope":
        inputs = [*(t[..., :16] for t in inputs[:2]), v]
        call |= {"input_layout": "BNSD", "query_rope": q[..., 16:], "key_rope": k[..., 16:]}
    if layout in ("TND", "NTD"):
        call |= {"actual_seq_lengths": [1], "actual_seq_lengths_kv": [S]}
    out = torch_npu.npu_fused_infer_attention_score(*inputs, **call)[0].reshape(1, N, 1, D)
    keep = torch.ones(1, N, 1, S, dtype=torch.bool)
    if layout in ("TND", "NTD", "rope"):
        keep[..., 4:] = False  # the row's place is key 0, and next_tokens is 3
    assert_right(out, q, k, v, keep=keep)


def test_a_verified_mask_that_changes_is_looked_at_again():
    q, k, v = random_qkv()
    mask = TRIANGLE.clone()
    fused(q, k, v, sparse_mode=3, atten_mask=mask)
    mask[5, 3] = True
    with pytest.raises(ValueError, match=r"atten_mask\[5\]\[3\]=1, want 0"):
        fused(q, k, v, sparse_mode=3, atten_mask=mask)


def test_torch_compile():
    def step(q, k, v, lengths):
        call = {"num_heads": N, "num_key_value_heads": NKV, "input_layout": "BNSD", "scale": SCALE}
        return torch_npu.npu_fused_infer_attention_score(q + 1, k, v, actual_seq_lengths_kv=lengths, **call)[0] * 2

    q, k, v = random_qkv(sq=1)
    lengths = torch.tensor(LENGTHS)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(q, k, v, lengths), step(q, k, v, lengths))


def test_there_is_no_gradient_and_none_is_lost_in_silence():
    q, k, v = random_qkv(sq=1)
    sink = torch.zeros(N, requires_grad=True)
    call = {"num_query_heads": N, "num_key_value_heads": NKV, "input_layout": "BNSD", "return_softmax_lse": True}
    results = torch_npu.npu_fused_infer_attention_score_v2(q, k, v, learnable_sink=sink, **call)
    for result in results:
        with pytest.raises(NotImplementedError, match="there is no gradient"):
            result.sum().backward(retain_graph=True)
    with torch.no_grad():
        plain = torch_npu.npu_fused_infer_attention_score_v2(q, k, v, learnable_sink=sink, **call)
    assert torch.equal(plain[0], results[0]) and not plain[0].requires_grad


def test_the_third_version_has_gradients_and_dropout():
    q, k, v = (t.requires_grad_() for t in random_qkv(sq=9, keys=11))
    for keep_prob in (1.0, 0.7):
        call = {"scale": SCALE, "keep_prob": keep_prob}
        torch.manual_seed(3)
        out, top, total, nothing, seed, offset = torch_npu.npu_fusion_attention_v3(q, k, v, N, "BNSD", **call)
        assert nothing.numel() == 0 and seed.dtype == offset.dtype == torch.int64
        first = torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", **call, seed=int(seed), offset=int(offset))
        assert torch.equal(out, first[0]) and torch.equal(top, first[1])
        d_out = torch.randn_like(out)
        want = torch.autograd.grad(out, (q, k, v), d_out)
        got = torch_npu.npu_fusion_attention_grad_v3(
            q.detach(), k.detach(), v.detach(), d_out, N, "BNSD", softmax_max=top, softmax_sum=total, attention_in=out.detach(),
            scale_value=SCALE, keep_prob=keep_prob, seed=seed, offset=offset,
        )
        for g, w in zip(got[:3], want, strict=True):
            assert torch.equal(g, w)
        assert got[3] is None and got[4] is None
    with pytest.raises(ValueError, match="seed: missing"):
        torch_npu.npu_fusion_attention_grad_v3(
            *(t.detach() for t in (q, k, v)), d_out, N, "BNSD", softmax_max=top, softmax_sum=total, attention_in=out,
            keep_prob=0.7,
        )


def test_the_third_version_takes_lengths_as_tensors_and_goes_into_graphs():
    q, k, v = (t[0].transpose(0, 1).contiguous() for t in random_qkv(sq=S))
    call = {"actual_seq_qlen": [20, S], "actual_seq_kvlen": [20, S], "scale": SCALE}
    want = torch_npu.npu_fusion_attention(q, k, v, N, "TND", **call)[0]
    tensors = {name: torch.tensor(value) if isinstance(value, list) else value for name, value in call.items()}
    assert torch.equal(torch_npu.npu_fusion_attention_v3(q, k, v, N, "TND", **tensors)[0], want)

    def dropped(q, k, v):
        return torch_npu.npu_fusion_attention_v3(q, k, v, N, "BNSD", keep_prob=0.5)[0]

    out = torch.compile(dropped, backend="aot_eager", fullgraph=True)(*random_qkv())
    assert torch.isfinite(out).all()
