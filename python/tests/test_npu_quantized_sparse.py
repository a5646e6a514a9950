"""torch_npu's sparse attention over quantised keys, and the indexers of quantised or compressed keys."""

import math

import pytest
import torch

import fa
from fa import torch_npu
from fa._npu.quantized_sparse import C_ASCEND, CANN_OPS, CUSTOM

CODES = [torch.int8, torch.float8_e4m3fn]


def draw_codes(shape, dtype, spread=3.0):
    if dtype == torch.int8:
        return torch.randint(-127, 128, shape, dtype=torch.int8)
    return (torch.randn(shape) * spread).to(dtype)


def rows_of(shape, codes, dtype, columns=512, rope=64, tile=128):
    """Returns packed rows [*shape, bytes], and the numbers [*shape, columns + rope] for which they stand."""
    numbers = draw_codes((*shape, columns), codes)
    ropes = torch.randn(*shape, rope).to(dtype)
    tiles = math.ceil(columns / tile)
    scales = torch.rand(*shape, tiles) / (64 if codes == torch.int8 else 3)
    parts = numbers.view(torch.int8), ropes.view(torch.int8), scales.view(torch.int8)
    widened = numbers.double() * scales.double().repeat_interleave(tile, -1)[..., :columns]
    return torch.cat(parts, -1).view(codes), torch.cat([widened, ropes.double()], -1)


def attend(query, keys, lists, columns, scale, limits, sinks=None):
    """Computes sparse attention in double: query [S1,N,D], keys [S2,D], lists [S1,K]. Returns out, max and sum."""
    out = torch.zeros(*query.shape[:2], columns, dtype=torch.float64)
    top, total = (torch.zeros(query.shape[:2], dtype=torch.float64) for _ in range(2))
    for t, row in enumerate(lists.tolist()):
        ids = [key for key in row if 0 <= key < limits[t]]
        scores = scale * query[t].double() @ keys[ids].T
        if sinks is not None:
            scores = torch.cat([scores, sinks.double()[:, None]], -1)
        if scores.shape[-1] == 0:
            continue
        top[t] = scores.amax(-1)
        p = (scores - top[t][:, None]).exp()
        total[t] = p.sum(-1)
        out[t] = p[:, : len(ids)] @ keys[ids, :columns] / total[t][:, None]
    return out, top, total


def call_of_vllm(query, pages, lists, table, lengths_q, lengths_kv, scale):
    """Returns the arguments of the call in vllm-ascend's sfa_v1.py, which reads the values from the keys."""
    return {
        "query": query,
        "key": pages,
        "value": pages,
        "sparse_indices": lists,
        "scale_value": scale,
        "sparse_block_size": 1,
        "block_table": table,
        "actual_seq_lengths_query": lengths_q,
        "actual_seq_lengths_kv": lengths_kv,
        "layout_query": "TND",
        "layout_kv": "PA_BSND",
        "sparse_mode": 3,
        "attention_mode": 2,
        "quant_scale_repo_mode": 1,
        "tile_size": 128,
        "key_quant_mode": 2,
        "value_quant_mode": 2,
        "rope_head_dim": 64,
    }


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_calls_of_vllm_and_of_torch_npu(codes, dtype):
    torch.manual_seed(1)
    heads, block, sq, sk = 16, 16, [3, 2], [60, 33]
    pages, numbers = rows_of((9, block, 1), codes, dtype)
    table = torch.randperm(9)[:8].view(2, 4).int()
    table = torch.cat([table, torch.full((2, 1), -1, dtype=torch.int32)], 1)
    query = torch.randn(sum(sq), heads, 576).to(dtype)
    lists = torch.stack([torch.randperm(60)[:40] for _ in range(5)]).int()
    lists[:, 35:] = -1
    lists[3:] = torch.where(lists[3:] < 33, lists[3:], torch.tensor(-1, dtype=torch.int32)).sort(-1, True).values
    lengths = torch.tensor([3, 5], dtype=torch.int32), torch.tensor(sk, dtype=torch.int32)
    scale = 576**-0.5
    given = call_of_vllm(query, pages, lists[:, None], table, *lengths, scale)
    out, top, total = C_ASCEND["npu_kv_quant_sparse_flash_attention"](**given, return_softmax_lse=True)
    assert out.dtype == dtype and out.shape == (5, heads, 512) and top.shape == total.shape == (1, 5, heads)
    # 16-bit keys are rounded once. In float32 only sums are rounded. The 576 terms of a score have both signs, so the
    # k-th partial sum is about sqrt(k) / 576 of the sum of magnitudes. Random roundings of 2**-24 then add up to half
    # of 2**-24 of the sum of magnitudes. The bound 2**-22 is eight times as large.
    unit = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-22}[dtype]
    for b, (first, count) in enumerate([(0, 3), (3, 2)]):
        keys = numbers.view(9, block, 576)[table[b, :4].long()].flatten(0, 1)[: sk[b]]
        limits = [sk[b] - sq[b] + t + 1 for t in range(count)]
        rows = slice(first, first + count)
        want, want_top, want_sum = attend(query[rows], keys, lists[rows], 512, scale, limits)
        # Rounded rows change a score by unit times the magnitude of its terms, and a probability by twice that.
        magnitude = scale * (query[rows].double().abs() @ keys.abs().T).amax()
        error = 4 * unit * (magnitude + 1) * (keys.abs().amax() + 1)
        assert (out[rows].double() - want).abs().amax() <= error
        assert (top[0, rows].double() - want_top).abs().amax() <= 4 * unit * (magnitude + 1)
        assert ((total[0, rows].double() - want_sum) / want_sum).abs().amax() <= 8 * unit * (magnitude + 1)
    without = C_ASCEND["npu_kv_quant_sparse_flash_attention"](**given)
    assert torch.equal(without[0], out) and without[1].numel() == without[2].numel() == 0
    modes = {name: given.pop(name) for name in ("key_quant_mode", "value_quant_mode")}
    assert torch.equal(torch_npu.npu_kv_quant_sparse_flash_attention(**given, **modes), out)
    if codes == torch.float8_e4m3fn:
        given |= {"key": pages.view(torch.int8), "value": pages.view(torch.uint8), "key_dtype": 292, "value_dtype": 36}
        assert torch.equal(torch_npu.npu_kv_quant_sparse_flash_attention(**given, **modes), out)


@pytest.mark.parametrize("codes", CODES)
def test_sinks_separate_values_and_exact_rows(codes):
    torch.manual_seed(2)
    query = torch.randn(2, 3, 4, 40, dtype=torch.bfloat16)
    rows, _ = rows_of((2, 30, 1), codes, torch.bfloat16, columns=32, rope=8, tile=16)
    values, _ = rows_of((2, 30, 1), codes, torch.bfloat16, columns=32, rope=8, tile=16)
    for part in (rows, values):
        part.view(torch.int8)[..., 48:] = torch.tensor([0.25, 0.5]).view(torch.int8)
    plain = [
        torch.cat(
            [
                part[..., :32].float() * torch.tensor([0.25, 0.5]).repeat_interleave(16),
                part.view(torch.int8)[..., 32:48].contiguous().view(torch.bfloat16).float(),
            ],
            -1,
        ).bfloat16()
        for part in (rows, values)
    ]
    lists = torch.stack([torch.randperm(30)[:12] for _ in range(6)]).view(2, 3, 1, 12).int()
    sinks = torch.randn(4)
    given = {"tile_size": 16, "rope_head_dim": 8, "sparse_mode": 0, "sinks": sinks}
    got = torch_npu.npu_kv_quant_sparse_flash_attention(query, rows, values, lists, 0.2, 2, 2, **given)
    want = torch_npu.npu_sparse_flash_attention(
        query, plain[0], plain[1][..., :32].contiguous(), lists, 0.2, sparse_mode=0, sinks=sinks
    )[0]
    assert torch.equal(got, want), "exactly representable rows have the bits of plain rows"
    assert torch.equal(
        fa.sparse_flash_attention(
            query, rows, values, lists, scale=0.2, sparse_mode=0, sink=sinks, row_format=(32, 8, 16)
        ).out,
        want,
    )
    with pytest.raises(NotImplementedError, match="there is no gradient of quantised keys"):
        torch_npu.npu_kv_quant_sparse_flash_attention(
            query.requires_grad_(), rows, values, lists, 0.2, 2, 2, **given
        ).sum().backward()


def test_mistakes_of_rows_are_named():
    query, rows = torch.randn(1, 2, 3, 40), torch.zeros(1, 9, 1, 72, dtype=torch.int8)
    lists = torch.zeros(1, 2, 1, 4, dtype=torch.int32)

    def refused(message, **given):
        given = {"tile_size": 16, "rope_head_dim": 8, "key_quant_mode": 2, "value_quant_mode": 2} | given
        with pytest.raises(ValueError, match="^invalid argument: " + message):
            torch_npu.npu_kv_quant_sparse_flash_attention(query, rows, rows, lists, 1.0, **given)

    refused("key_quant_mode=1, want 2", key_quant_mode=1)
    refused("value_quant_mode=0, want 2", value_quant_mode=0)
    refused("attention_mode=1, want 0 or 2", attention_mode=1)
    refused("quant_scale_repo_mode=0, want 1", quant_scale_repo_mode=0)
    refused("key_dequant_scale: given, want None", key_dequant_scale=query)
    refused("value_dequant_scale: given, want None", value_dequant_scale=query)
    refused(r"rope_head_dim=40, want 0\.\.39 \(query.shape\[3\]\)", rope_head_dim=40)
    refused("tile_size=0, want at least 1", tile_size=0)
    refused(r"key.shape\[3\]=72, want 80 \(bytes per row\)", tile_size=8)
    refused(r"key_dtype=290 \(HiFloat8\) is not served", key_dtype=290)
    refused('layout_kv="PA_BSND", want BSND', layout_kv="PA_BSND")
    refused(r"sparse_mode=4, want 0 or 3", sparse_mode=4)
    refused(r"value.dtype=f8e4m3, want i8", value_dtype=292)
    refused(r"value.dtype=f8e4m3, want i8", value_dtype=292, layout_query="bsnd", layout_kv="bsnd")
    whole = query
    for query, message in (
        (whole[0, 0, 0, 0], r"query.shape=\[\], want 4 dimensions \(BSND\)"),
        (whole[0], r"query.shape=\[2,3,40\], want 4 dimensions \(BSND\)"),
        (whole[..., :0], r"query.shape\[3\]=0, want >= 1"),
    ):
        refused(message)


def test_mistakes_of_row_formats_are_named():
    q, k = torch.randn(1, 2, 3, 8), torch.zeros(1, 9, 1, 24, dtype=torch.int8)
    lists = torch.zeros(1, 2, 1, 4, dtype=torch.int32)
    for row_format, message in (
        ((4, 44, 1), r"row_format.rope=44, want 0\.\.8 \(q.shape\[3\]\)"),
        ((4, -1, 1), r"row_format.rope=-1, want 0\.\.8 \(q.shape\[3\]\)"),
        ((4, 4), r"row_format=\(4, 4\), want \(columns, rope, tile\)"),
    ):
        with pytest.raises(ValueError, match="^invalid argument: " + message):
            fa.sparse_flash_attention(q, k, None, lists, row_format=row_format)


def indexer_scores(query, key, weights, q_scale, k_scale):
    """Computes the scores [S1, S2] in double."""
    products = torch.einsum("tnd,sd->tns", query.double(), key.double()).clamp_min(0)
    return k_scale.double() * torch.einsum("tn,tns->ts", weights.double() * q_scale.double(), products)


def check_selection(indices, values, scores, limits, unit=1e-5):
    """Compares chosen keys, and their scores, with scores in float64.

    Scores are sums of up to 512 products, whose random roundings are sqrt(512) 2^-24 = 1.3e-6 of the magnitudes of the
    terms. The default of `unit` allows magnitudes up to seven times the largest score. bfloat16 scores also have a
    relative rounding error of 2^-9.
    """
    for t, limit in enumerate(limits):
        used = min(indices.shape[-1], limit)
        chosen = indices[t, :used].long()
        assert (indices[t, used:] == -1).all() and len(set(chosen.tolist())) == used
        assert used == 0 or chosen.max() < limit
        error = unit * (scores[t, :limit].abs().amax().item() + 1) if limit else 0
        if used:
            smallest = scores[t, chosen].amin()
            rest = torch.ones(limit, dtype=torch.bool).index_fill(0, chosen, False)
            assert not rest.any() or scores[t, :limit][rest].amax() <= smallest + error
        if values is not None:
            assert (values[t, :used].double() - scores[t, chosen]).abs().le(error).all()
            assert (values[t, used:] == -math.inf).all()


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("paged", [False, True])
def test_quant_lightning_indexer(codes, paged):
    torch.manual_seed(3)
    query, key = draw_codes((5, 8, 64), codes), draw_codes((6, 16, 1, 64), codes)
    weights, q_scale = torch.randn(5, 8).half(), torch.rand(5, 8)
    k_scale = torch.rand(6, 16)
    if codes == torch.int8:
        q_scale, k_scale = q_scale.half(), k_scale.half()
    table = torch.tensor([[4, 1, 0], [5, 2, 3]], dtype=torch.int32)
    lengths, sk = [3, 5], [40, 33]
    given = {"layout_query": "TND", "layout_key": "TND", "sparse_count": 10}
    rows = [(key[table[b].long()].reshape(-1, 64), k_scale[table[b].long()].reshape(-1)) for b in range(2)]
    if paged:
        given |= {"block_table": table, "layout_key": "PA_BSND"}
        of_keys = {"actual_seq_lengths_query": lengths, "actual_seq_lengths_key": sk}
        indices = torch_npu.npu_quant_lightning_indexer(query, key, weights, q_scale, k_scale, 0, 0, **given, **of_keys)
    else:
        packed = [torch.cat([rows[b][i][: sk[b]] for b in range(2)]) for i in range(2)]
        of_keys = {"actual_seq_lengths_query": lengths, "actual_seq_lengths_key": [40, 73]}
        indices = torch_npu.npu_quant_lightning_indexer(
            query, packed[0][:, None], weights, q_scale, packed[1][:, None], 0, 0, **given, **of_keys
        )
    assert indices.dtype == torch.int32 and indices.shape == (5, 1, 10)
    for b, part in enumerate([slice(0, 3), slice(3, 5)]):
        keys, scales = rows[b][0][: sk[b]], rows[b][1][: sk[b]]
        scores = indexer_scores(query[part], keys, weights[part], q_scale[part], scales)
        count = part.stop - part.start
        check_selection(indices[part, 0], None, scores, [sk[b] - count + t + 1 for t in range(count)])


@pytest.mark.parametrize("codes", [None, *CODES])
@pytest.mark.parametrize("ratio", [1, 4])
@pytest.mark.parametrize("layout", ["BSND", "TND"])
def test_the_second_indexers_of_cann_ops_transformer(codes, ratio, layout):
    torch.manual_seed(4)
    sq, sk, residual, offsets = [4, 2], [21, 13], [ratio - 1, 0], [7, 1000]
    dtype = torch.bfloat16
    query = torch.randn(2, 4, 8, 64).to(dtype) if codes is None else draw_codes((2, 4, 8, 64), codes)
    key = torch.randn(2, 21, 1, 64).to(dtype) if codes is None else draw_codes((2, 21, 1, 64), codes)
    weights, q_scale, k_scale = torch.randn(2, 4, 8), torch.rand(2, 4, 8), torch.rand(2, 21, 1)
    tensors = [query, key, weights] if codes is None else [query, key, weights, q_scale, k_scale]
    given = {"mask_mode": 3, "cmp_ratio": ratio, "return_value": 1, "layout_q": layout, "layout_k": layout}
    given |= {"cmp_residual_k": torch.tensor(residual, dtype=torch.int32), "metadata": torch.zeros(1024).int()}
    used = [torch.tensor(lengths, dtype=torch.int32) for lengths in (sq, sk)]
    if layout == "TND":
        rows = zip(tensors, [sq, sk, sq, sq, sk], strict=False)
        packed = [torch.cat([t[b, : n[b]] for b in range(2)]) for t, n in rows]
        given |= {"cu_seqlens_q": torch.tensor([0, 4, 6]).int(), "cu_seqlens_k": torch.tensor([0, 21, 34]).int()}
        given["output_idx_offset"] = torch.tensor([7] * 4 + [1000] * 2, dtype=torch.int32)[:, None]
    else:
        packed, given = tensors, given | {"seqused_q": used[0], "seqused_k": used[1]}
        given["output_idx_offset"] = torch.tensor(offsets, dtype=torch.int32)
    name = "lightning_indexer" if codes is None else "quant_lightning_indexer"
    mode = [] if codes is None else [2 if codes == torch.int8 else 1]
    indices, values = CANN_OPS[name](*packed, 6, *mode, **given)
    assert values.dtype == (torch.float32 if codes is None else torch.bfloat16)
    for b in range(2):
        part = indices[b, : sq[b], 0] if layout == "BSND" else indices[sum(sq[:b]) : sum(sq[: b + 1]), 0]
        scores_of = values[b, : sq[b], 0] if layout == "BSND" else values[sum(sq[:b]) : sum(sq[: b + 1]), 0]
        ones = torch.ones(sq[b], 8), torch.ones(sk[b])
        scales = (q_scale[b, : sq[b]], k_scale[b, : sk[b], 0]) if codes is not None else ones
        scores = indexer_scores(query[b, : sq[b]], key[b, : sk[b], 0], weights[b, : sq[b]], *scales)
        limits = [max(0, min(sk[b], (sk[b] * ratio + residual[b] - sq[b] + t + 1) // ratio)) for t in range(sq[b])]
        own = torch.where(part == -1, part, part - offsets[b])
        check_selection(own, scores_of, scores, limits, unit=1e-5 if codes is None else 2**-8)
    alone, nothing = CANN_OPS[name](*packed, 6, *mode, **(given | {"return_value": 0}))
    assert torch.equal(alone, indices) and nothing.numel() == 0


def test_the_quantised_indexer_of_vllm_counts_original_tokens():
    torch.manual_seed(5)
    query, pages = draw_codes((4, 8, 64), torch.int8), draw_codes((5, 8, 1, 64), torch.int8)
    weights, q_scale, k_scale = torch.randn(4, 8).half(), torch.rand(4, 8).half(), torch.rand(5, 8).half()
    table, tokens = torch.tensor([[3, 1], [0, 4]], dtype=torch.int32), torch.tensor([50, 23], dtype=torch.int32)
    lengths = torch.tensor([2, 4], dtype=torch.int32)
    names = ("layout_query", "layout_key", "sparse_count", "cmp_ratio", "return_value", "metadata")
    given = dict(zip(names, ("TND", "PA_BSND", 5, 4, True, None), strict=True))
    for functions in (C_ASCEND["npu_vllm_quant_lightning_indexer"], CUSTOM["npu_quant_lightning_indexer"]):
        indices, values = functions(
            query,
            pages,
            weights,
            q_scale,
            k_scale,
            actual_seq_lengths_query=lengths,
            actual_seq_lengths_key=tokens,
            block_table=table,
            **given,
        )
        for b in range(2):
            part, count = slice(2 * b, 2 * b + 2), tokens[b].item() // 4
            keys = pages[table[b].long()].reshape(-1, 64)[:count]
            scales = k_scale[table[b].long()].reshape(-1)[:count]
            scores = indexer_scores(query[part], keys, weights[part], q_scale[part], scales)
            limits = [(tokens[b].item() - 2 + t + 1) // 4 for t in range(2)]
            check_selection(indices[part, 0], values[part, 0], scores, limits)


@pytest.mark.parametrize("tokens", [[6, 6], [9, 7], [8, 8], [3, 13]])
def test_the_quantised_indexer_of_vllm_takes_sums_of_tokens(tokens):
    torch.manual_seed(6)
    ratio, sq = 4, [1, 2]
    sk = [count // ratio for count in tokens]
    query, key = draw_codes((3, 8, 64), torch.int8), draw_codes((sum(sk), 1, 64), torch.int8)
    weights, q_scale, k_scale = torch.randn(3, 8).half(), torch.rand(3, 8).half(), torch.rand(sum(sk), 1).half()
    given = {"layout_query": "TND", "layout_key": "TND", "sparse_count": 3, "cmp_ratio": ratio, "return_value": True}
    ends = torch.tensor([tokens[0], sum(tokens)], dtype=torch.int32)
    indices, values = CUSTOM["npu_quant_lightning_indexer"](
        query,
        key,
        weights,
        q_scale,
        k_scale,
        actual_seq_lengths_query=torch.tensor([1, 3], dtype=torch.int32),
        actual_seq_lengths_key=ends,
        **given,
    )
    for b, part in enumerate([slice(0, 1), slice(1, 3)]):
        rows = slice(sum(sk[:b]), sum(sk[: b + 1]))
        scores = indexer_scores(query[part], key[rows, 0], weights[part], q_scale[part], k_scale[rows, 0])
        limits = [(tokens[b] - sq[b] + t + 1) // ratio for t in range(sq[b])]
        check_selection(indices[part, 0], values[part, 0], scores, limits)


def quantised_case(codes, batch=2, sq=4, sk=21):
    torch.manual_seed(7)
    query, key = draw_codes((batch, sq, 8, 64), codes), draw_codes((batch, sk, 1, 64), codes)
    return query, key, torch.randn(batch, sq, 8), torch.rand(batch, sq, 8), torch.rand(batch, sk)


@pytest.mark.parametrize("codes", CODES)
def test_bits_do_not_depend_on_layouts_pages_and_neighbours(codes):
    tensors, sq, sk = quantised_case(codes), [3, 4], [21, 13]
    used = {"seqused_q": torch.tensor(sq), "seqused_k": torch.tensor(sk)}
    given = {"mask_mode": 3, "cmp_ratio": 4, "cmp_residual_k": torch.tensor([3, 0]), "return_value": 1}
    indexer, mode = CANN_OPS["quant_lightning_indexer"], 2 if codes == torch.int8 else 1
    padded = indexer(*tensors, 6, mode, **given, **used)
    packed = [t.flatten(0, 1) for t in tensors]
    sums = {"cu_seqlens_q": torch.tensor([0, 4, 8]), "cu_seqlens_k": torch.tensor([0, 21, 42])}
    in_tnd = indexer(*packed, 6, mode, layout_q="TND", layout_k="TND", **given, **sums, **used)
    table = torch.tensor([[5, 0, 2], [1, 4, 3]], dtype=torch.int32)
    pages, scales = torch.zeros(6, 8, 1, 64).to(codes), torch.full((6, 8), math.nan)
    for b in range(2):
        for row in range(sk[b]):
            page = table[b, row // 8], row % 8
            pages[page], scales[page] = tensors[1][b, row], tensors[4][b, row]
    paged = {"block_table": table, "layout_k": "PA_BBND"}
    in_pages = indexer(tensors[0], pages, *tensors[2:4], scales, 6, mode, **paged, **given, **used)
    cu_q = {"cu_seqlens_q": sums["cu_seqlens_q"], "layout_q": "TND"}
    both = indexer(packed[0], pages, *packed[2:4], scales, 6, mode, **paged, **given, **cu_q, **used)
    for b in range(2):
        rows = slice(4 * b, 4 * b + sq[b])
        one = {name: value[b : b + 1] for name, value in (used | {"cmp_residual_k": given["cmp_residual_k"]}).items()}
        alone = indexer(*(t[b : b + 1] for t in tensors), 6, mode, **(given | one))
        for i in range(2):
            want = padded[i][b, : sq[b]]
            assert torch.equal(in_tnd[i][rows], want) and torch.equal(both[i][rows], want)
            assert torch.equal(in_pages[i][b, : sq[b]], want) and torch.equal(alone[i][0, : sq[b]], want)
    with pytest.raises(ValueError, match='layout_k="PA_BSND", want PA_BBND'):
        indexer(tensors[0], pages, *tensors[2:4], scales, 6, mode, block_table=table, layout_k="PA_BSND", **used)


@pytest.mark.parametrize("codes", CODES)
def test_bits_of_rows_do_not_depend_on_layouts_pages_and_neighbours(codes):
    torch.manual_seed(8)
    query = torch.randn(2, 3, 4, 40, dtype=torch.bfloat16)
    rows, _ = rows_of((2, 20, 1), codes, torch.bfloat16, columns=32, rope=8, tile=16)
    lists = torch.stack([torch.randperm(18)[:12] for _ in range(6)]).view(2, 3, 1, 12).int()
    given = {"tile_size": 16, "rope_head_dim": 8, "sparse_mode": 0}
    attend_rows = torch_npu.npu_kv_quant_sparse_flash_attention
    want = attend_rows(query, rows, rows, lists, 0.2, 2, 2, **given)
    table = torch.tensor([[7, 2, 4], [1, 5, 0]], dtype=torch.int32)
    pages = torch.zeros(8, 8, 1, rows.shape[-1], dtype=torch.int8).view(codes)
    for b in range(2):
        for row in range(20):
            pages[table[b, row // 8], row % 8] = rows[b, row]
    paged = {"block_table": table, "layout_kv": "PA_BSND", "actual_seq_lengths_kv": [20, 20]}
    assert torch.equal(attend_rows(query, pages, pages, lists, 0.2, 2, 2, **given, **paged), want)
    tnd = {"layout_query": "TND", "layout_kv": "TND", "actual_seq_lengths_query": [3, 6]}
    packed = [t.flatten(0, 1) for t in (query, rows, lists)]
    out = attend_rows(
        packed[0], packed[1], packed[1], packed[2], 0.2, 2, 2, **given, **tnd, actual_seq_lengths_kv=[20, 40]
    )
    assert torch.equal(out, want.flatten(0, 1))
    for b in range(2):
        one = [t[b : b + 1] for t in (query, rows, rows, lists)]
        assert torch.equal(attend_rows(*one, 0.2, 2, 2, **given)[0], want[b])


def test_mistakes_of_indexers_are_named():
    query, key = torch.zeros(1, 3, 2, 16, dtype=torch.int8), torch.zeros(1, 9, 1, 16, dtype=torch.int8)
    weights, q_scale, k_scale = torch.ones(1, 3, 2), torch.ones(1, 3, 2), torch.ones(1, 9, 1)

    def refused(message, function, *arguments, **given):
        with pytest.raises(ValueError, match="^invalid argument: " + message):
            function(*arguments, **given)

    quant = query, key, weights, q_scale, k_scale
    indexer, second = torch_npu.npu_quant_lightning_indexer, CANN_OPS["quant_lightning_indexer"]
    refused("query_quant_mode=1, want 0", indexer, *quant, 1, 0)
    refused("key_quant_mode=2, want 0", indexer, *quant, 0, 2)
    refused("sparse_count=0, want >= 1", indexer, *quant, 0, 0, sparse_count=0)
    refused(r"query_dequant_scale.shape\[2\]=1, want 2", indexer, query, key, weights, q_scale[..., :1], k_scale, 0, 0)
    refused(r"key_dequant_scale.shape\[1\]=8, want 9", indexer, query, key, weights, q_scale, k_scale[:, :8], 0, 0)
    refused("query.dtype=f32, want i8 or f8e4m3", indexer, query.float(), key.float(), *quant[2:], 0, 0)
    refused("quant_mode=3 .* is not served", second, *quant, 4, 3)
    refused(r"quant_mode=4 \(HiFloat8\) is not served", second, *quant, 4, 4)
    refused("quant_mode=0, want 1 or 2", second, *quant, 4, 0)
    refused("query.dtype=torch.int8, want torch.float8_e4m3fn", second, *quant, 4, 1)
    refused("cu_seqlens_q: given, want None", second, *quant, 4, 2, cu_seqlens_q=torch.tensor([0, 3]))
    packed = query[0], key[0], weights[0], q_scale[0], k_scale[0]
    tnd = {"layout_q": "TND", "layout_k": "TND"}
    refused("cu_seqlens_q: missing", second, *packed, 4, 2, **tnd)
    sums = {"cu_seqlens_q": torch.tensor([1, 3]), "cu_seqlens_k": torch.tensor([0, 9])}
    refused(r"cu_seqlens_q=\[1, 3\], want prefix sums that begin with 0", second, *packed, 4, 2, **tnd, **sums)
    for cu_q, cu_k, message in (
        ([0, 3, 2], [0, 9, 9], r"cu_seqlens_q\[2\]=2, want >= 3 \(cu_seqlens_q\[1\]\)"),
        ([0, 2, 50], [0, 9, 9], r"cu_seqlens_q\[2\]=50, want <= 3 \(query.shape\[0\]\)"),
        ([0, 3], [0, 10], r"cu_seqlens_k\[1\]=10, want <= 9 \(key.shape\[0\]\)"),
        ([0, 1, 3], [0, 5, 6, 9], r"cu_seqlens_k has 4 entries, want 3 \(cu_seqlens_q\)"),
        ([0], [0], r"cu_seqlens_q has 1 entry, want \[B\+1\] for 3 rows"),
    ):
        sums = {"cu_seqlens_q": torch.tensor(cu_q), "cu_seqlens_k": torch.tensor(cu_k)}
        refused(message, second, *packed, 4, 2, **tnd, **sums)
    lengths = {"actual_seq_lengths_query": torch.tensor([3]), "actual_seq_lengths_key": torch.tensor([99])}
    compressed = lengths | {"layout_query": "TND", "layout_key": "TND", "cmp_ratio": 4}
    message = r"keys of actual_seq_lengths_key\[0\]=24, want <= 9 \(key.shape\[0\]\)"
    refused(message, CUSTOM["npu_quant_lightning_indexer"], *packed, **compressed)
    refused("cmp_ratio=0, want 1", second, *quant, 4, 2, cmp_ratio=0)
    refused("mask_mode=4, want 0 or 3", second, *quant, 4, 2, mask_mode=4)
    residual = torch.tensor([4])
    refused(r"cmp_residual_k\[0\]=4, want 0\.\.3", second, *quant, 4, 2, cmp_ratio=4, cmp_residual_k=residual)
    refused("return_value=2, want 0 or 1", second, *quant, 4, 2, return_value=2)
    refused("max_seqlen_q=-2, want >= -1", second, *quant, 4, 2, max_seqlen_q=-2)
    refused("topk=0, want >= 1", second, *quant, 0, 2)


def test_metadata_operators_check_their_arguments():
    zeros = torch.zeros(1024, dtype=torch.int32)
    lengths = {"actual_seq_lengths_query": torch.tensor([2, 4]), "actual_seq_lengths_key": torch.tensor([50, 23])}
    of_vllm = {"num_heads_q": 64, "num_heads_k": 1, "head_dim": 128, "query_quant_mode": 0, "key_quant_mode": 0}
    of_vllm |= lengths | {"batch_size": 2, "max_seqlen_q": 2, "max_seqlen_k": 50, "layout_query": "TND"}
    of_vllm |= {"layout_key": "PA_BSND", "sparse_count": 512, "sparse_mode": 3, "cmp_ratio": 4, "device": "npu:0"}
    of_vllm |= {"pre_tokens": (1 << 63) - 1, "next_tokens": (1 << 63) - 1}
    of_cann = {"num_heads_q": 64, "num_heads_k": 1, "head_dim": 128, "topk": 512, "layout_q": "TND"}
    of_cann |= {"layout_k": "PA_BBND", "cu_seqlens_q": torch.tensor([0, 2, 4]), "seqused_k": torch.tensor([12, 5])}

    def refused(message, function, given, kind=ValueError, **wrong):
        with pytest.raises(kind, match=message):
            function(**(given | wrong))

    vllm = C_ASCEND["npu_vllm_quant_lightning_indexer_metadata"]
    assert torch.equal(vllm(**of_vllm), zeros)
    refused("num_heads_q: want an integer", vllm, of_vllm, TypeError, num_heads_q="many")
    refused("unexpected keyword argument 'spam'", vllm, of_vllm, TypeError, spam=3)
    refused('layout_query="nope", want BSND or TND', vllm, of_vllm, layout_query="nope")
    refused('layout_key="PA_BBND", want TND or PA_BSND', vllm, of_vllm, layout_key="PA_BBND")
    refused("num_heads_k=2, want 1", vllm, of_vllm, num_heads_k=2)
    refused("query_quant_mode=1, want 0", vllm, of_vllm, query_quant_mode=1)
    refused("sparse_mode=4, want 0 or 3", vllm, of_vllm, sparse_mode=4)
    refused("sparse_count=0, want >= 1", vllm, of_vllm, sparse_count=0)
    refused("batch_size=-1, want >= 0", vllm, of_vllm, batch_size=-1)
    refused("cmp_ratio=0, want 1", vllm, of_vllm, cmp_ratio=0)
    wrong = torch.ones(2)
    refused("actual_seq_lengths_key.dtype=torch.float32", vllm, of_vllm, actual_seq_lengths_key=wrong)
    refused(r"query.shape=\[1,2\], want 1", vllm, of_vllm, actual_seq_lengths_query=torch.ones(1, 2).int())
    cann, quantised = CANN_OPS["lightning_indexer_metadata"], CANN_OPS["quant_lightning_indexer_metadata"]
    assert torch.equal(cann(**of_cann), zeros)
    assert torch.equal(quantised(**of_cann, quant_mode=2), zeros)
    for function, given in ((cann, of_cann), (quantised, of_cann | {"quant_mode": 1})):
        refused("topk=0, want >= 1", function, given, topk=0)
        refused("mask_mode=1, want 0 or 3", function, given, mask_mode=1)
        refused("max_seqlen_k=-2, want >= -1", function, given, max_seqlen_k=-2)
        refused("cu_seqlens_q=.*, want prefix sums", function, given, cu_seqlens_q=torch.tensor([1, 2]))
        refused('layout_k="BSND", want TND or PA_BBND', function, given, layout_k="BSND")
        refused("cmp_residual_k.dtype", function, given, cmp_residual_k=wrong)
    refused("quant_mode=4, want 1 or 2", quantised, of_cann, quant_mode=4)


def test_the_calls_of_deepseek_v4_for_the_device():
    query, key, weights, q_scale, k_scale = quantised_case(torch.int8, batch=1)
    given = {"layout_query": "TND", "layout_key": "PA_BSND", "sparse_count": 5, "sparse_mode": 3, "cmp_ratio": 4}
    given |= {"query_quant_mode": 0, "key_quant_mode": 0}
    given |= {"actual_seq_lengths_query": torch.tensor([4]), "actual_seq_lengths_key": torch.tensor([86])}
    tensors = {"query": query[0], "weights": weights[0], "query_dequant_scale": q_scale[0]}
    paged = {"key": key, "key_dequant_scale": k_scale, "block_table": torch.zeros(1, 1, dtype=torch.int32)}
    torch_npu.install()
    try:
        custom = torch.ops.custom
        sizes = {"num_heads_q": 8, "num_heads_k": 1, "head_dim": 64}
        metadata = custom.npu_quant_lightning_indexer_metadata(**given, **sizes)
        indices, _ = custom.npu_quant_lightning_indexer(**tensors, **paged, **given, metadata=metadata)
    finally:
        torch_npu.uninstall()
    scores = indexer_scores(query[0], key[0, :, 0], weights[0], q_scale[0], k_scale[0])
    check_selection(indices[:, 0], None, scores, [min(21, (86 - 4 + t + 1) // 4) for t in range(4)])


def test_install_gives_the_names_of_other_packages():
    torch_npu.install()
    try:
        import cann_ops_transformer
        from cann_ops_transformer.ops import lightning_indexer, quant_lightning_indexer_metadata

        assert lightning_indexer is CANN_OPS["lightning_indexer"] is cann_ops_transformer.lightning_indexer
        assert torch.equal(quant_lightning_indexer_metadata(64, 1, 128, 2048, 1), torch.zeros(1024, dtype=torch.int32))
        for name, function in C_ASCEND.items():
            assert getattr(torch.ops._C_ascend, name) is function
        assert torch.ops.custom.npu_quant_lightning_indexer is CUSTOM["npu_quant_lightning_indexer"]
        assert torch.ops.npu.npu_quant_lightning_indexer is torch_npu.npu_quant_lightning_indexer
    finally:
        torch_npu.uninstall()
    with pytest.raises(ModuleNotFoundError):
        import cann_ops_transformer.ops  # noqa: F401
    assert not hasattr(torch.ops._C_ascend, "npu_kv_quant_sparse_flash_attention")


def test_opcheck():
    query, key = torch.zeros(1, 3, 2, 16, dtype=torch.int8), torch.ones(1, 9, 1, 16, dtype=torch.int8)
    weights, q_scale, k_scale = torch.ones(1, 3, 2), torch.ones(1, 3, 2), torch.ones(1, 9)
    lists = [q_scale, k_scale, None, None, None, None, None, None, None, "BSND", 4, 3, 1, "float32"]
    torch.library.opcheck(torch.ops.fa.indexer_selection, (query, key, weights, *lists))
    rows, indices = torch.zeros(1, 9, 1, 32, dtype=torch.int8), torch.zeros(1, 3, 1, 4, dtype=torch.int32)
    call = [indices, None, None, None, None, "BSND", 0.5, 1, 3, 4, 16]
    torch.library.opcheck(torch.ops.fa.quantized_sparse_attention, (torch.randn(1, 3, 2, 16), rows, None, *call))


def test_plans_of_shapes():
    row_bytes = 512 + 64 * 4 + 4 * 4
    lists = {"sparse_indices": (1, 4, 1, 8)}
    plan = fa.plan("sparse-forward", (1, 4, 64, 576), (1, 99, 1, row_bytes), None, **lists, row_format=(512, 64, 128))
    assert "rows of i8 with scales" in str(plan)
    scales = {"q_scale": (1, 4, 8), "k_scale": (1, 99), "index_offset": (1,), "cmp_ratio": 4, "residual_kv": [3]}
    plan = fa.plan("indexer", (1, 4, 8, 64), (1, 99, 1, 64), (1, 4, 8), **scales, sparse_count=8)
    assert str(plan).startswith("indexer, i8: 1 sequences, 4 tokens")
