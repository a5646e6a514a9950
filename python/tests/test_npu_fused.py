"""Fused inference of fa.torch_npu in every layout and form of keys: all give the same bits, and agree with float64."""

import pytest
import torch
from npu_sequences import (
    LAYOUTS,
    PACKED,
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

N, NKV, D, DV, SCALE, PAGE = 6, 2, 32, 16, 0.2, 16
ROWS, KEYS = [1, 20, 4, 0], [70, 33, 0, 17]
MASKED = {"atten_mask": TRIANGLE, "sparse_mode": 3}


def fused(query, key, value, layout, **keywords):
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale": SCALE, "softmax_lse_flag": True, "input_layout": layout}
    return torch_npu.npu_fused_infer_attention_score(query, key, value, **{**call, **keywords})


def inputs_of(dtype=torch.float32, rows=ROWS, keys=KEYS, columns=D):
    torch.manual_seed(7)
    return parts(N, rows, columns, dtype), parts(NKV, keys, columns, dtype), parts(NKV, keys, DV, dtype)


def in_layout(layout, q, k, v, rows=ROWS, keys=KEYS, **keywords):
    """Returns the results of each sequence of one call."""
    left, right = LAYOUTS[layout]
    packed = layout in PACKED
    lengths = sums(rows) if packed else rows, sums(keys) if packed else keys
    call = {"actual_seq_lengths": lengths[0], "actual_seq_lengths_kv": lengths[1], **keywords}
    out, lse = fused(*(arranged(t, left) for t in (q, k, v)), layout, **call)
    return separated(out, right, rows, N), lse_of(lse, layout, rows)


def kept(rows=ROWS, keys=KEYS):
    return [causal(row, key) for row, key in zip(rows, keys, strict=True)]


def equal(got, want):
    return all(torch.equal(*pair) for results in zip(got, want, strict=True) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_bits_of_bnsd(layout, dtype):
    q, k, v = inputs_of(dtype)
    want = in_layout("BNSD", q, k, v, **MASKED)
    assert_sequences(*want, list(zip(q, k, v, kept(), strict=True)), scale=SCALE)
    assert equal(in_layout(layout, q, k, v, **MASKED), want)


@pytest.mark.parametrize("form", ["BnBsH", "BnNBsD", "BnBsND", "NZ"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_form_of_pages_has_the_bits_of_keys_without_pages(layout, form):
    q, k, v = inputs_of(torch.bfloat16)
    left, right = LAYOUTS[layout]
    table, pages = table_of(KEYS, PAGE)
    caches = [paged(t, form, table, pages, PAGE) for t in (k, v)]
    lengths = sums(ROWS) if layout in PACKED else ROWS
    for block_size in (0, PAGE):
        call = {"block_table": table, "block_size": block_size, "actual_seq_lengths": lengths}
        out, lse = fused(arranged(q, left), *caches, layout, actual_seq_lengths_kv=KEYS, **call, **MASKED)
        got = separated(out, right, ROWS, N), lse_of(lse, layout, ROWS)
        assert equal(got, in_layout("BNSD", q, k, v, **MASKED))


@pytest.mark.parametrize("layout", ["BNSD", "BSH_NBSD", "TND", "NTD_TND"])
def test_rows_that_belong_to_no_sequence_are_0_and_have_an_infinite_lse(layout):
    q, k, v = inputs_of()
    left, right = LAYOUTS[layout]
    if layout in PACKED:
        more = torch.full((N, 3, D), torch.nan)
        out, lse = fused(
            arranged([*q, more], left), arranged(k, left), arranged(v, left), layout,
            actual_seq_lengths=sums(ROWS), actual_seq_lengths_kv=torch.tensor(sums(KEYS)),
        )
        outside = separated(out, right, [sum(ROWS), 3], N)[1], lse_of(lse, layout, [sum(ROWS), 3])[1]
    else:
        out, lse = fused(
            *(arranged(t, left) for t in (q, k, v)), layout,
            actual_seq_lengths=torch.tensor(ROWS), actual_seq_lengths_kv=KEYS,
        )
        whole = separated(out, right, [20] * 4, N), lse_of(lse, layout, [20] * 4)
        outside = [torch.cat([part[:, rows:] for part, rows in zip(parts_, ROWS, strict=True)], 1) for parts_ in whole]
    assert (outside[0] == 0).all() and torch.isposinf(outside[1]).all() and outside[1].numel() > 0


def test_a_list_of_one_length_holds_for_all_and_of_more_than_b_the_first_count():
    q, k, v = inputs_of(rows=[5] * 3, keys=[40] * 3)
    tensors = [arranged(t, "BNSD") for t in (q, k, v)]
    want = fused(*tensors, "BNSD", actual_seq_lengths=[3] * 3, actual_seq_lengths_kv=[31] * 3)
    for lengths in ([3], [31]), ([3, 3, 3, 9], [31, 31, 31, 77]):
        got = fused(*tensors, "BNSD", actual_seq_lengths=lengths[0], actual_seq_lengths_kv=lengths[1])
        assert equal([got], [want])


def test_nsd_is_one_batch_element():
    q, k, v = inputs_of(rows=[5], keys=[40])
    want, lse = fused(q[0][None], k[0][None], v[0][None], "BNSD")
    out, own = fused(q[0], k[0], v[0], "NSD")
    assert torch.equal(out, want[0]) and torch.equal(own, lse)


@pytest.mark.parametrize("paddings", [(2, 9), (-1, 0), (0, -3)])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BSH_BNSD", "BNSD_NBSD"])
def test_left_padding_is_a_call_on_the_slices(layout, paddings):
    rows, keys = [3, 18, 1], [40, 2, 19]
    q, k, v = inputs_of(rows=rows, keys=keys)
    want = in_layout("BNSD", q, k, v, rows, keys, **MASKED)
    sizes = 22, 60
    ends = [size - max(padding, 0) for size, padding in zip(sizes, paddings, strict=True)]

    def padded(sequences, size, end):
        before = (end - part.shape[1] for part in sequences)
        shifted = [
            torch.cat([torch.full((part.shape[0], first, part.shape[2]), torch.nan), part], 1)
            for part, first in zip(sequences, before, strict=True)
        ]
        return arranged(shifted, LAYOUTS[layout][0], size)

    out, lse = fused(
        padded(q, sizes[0], ends[0]), *(padded(t, sizes[1], ends[1]) for t in (k, v)), layout, **MASKED,
        query_padding_size=torch.tensor([paddings[0]]), kv_padding_size=torch.tensor([paddings[1]]),
        actual_seq_lengths=rows, actual_seq_lengths_kv=keys,
    )
    whole = separated(out, LAYOUTS[layout][1], [sizes[0]] * 3, N), lse_of(lse, layout, [sizes[0]] * 3)
    got = [[part[:, ends[0] - n : ends[0]] for part, n in zip(parts_, rows, strict=True)] for parts_ in whole]
    assert equal(got, want)
    for b, n in enumerate(rows):
        outside = torch.ones(sizes[0], dtype=torch.bool)
        outside[ends[0] - n : ends[0]] = False
        assert (whole[0][b][:, outside] == 0).all() and torch.isposinf(whole[1][b][:, outside]).all()


def test_left_padding_past_the_first_key():
    """If the padding exceeds the free rows of a sequence, a single query has no keys, as on the device. Several queries
    are refused.
    """
    q, k, v = inputs_of(rows=[1, 1], keys=[30, 8])
    tensors = [arranged(t, "BNSD") for t in (q, k, v)]
    call = {"kv_padding_size": torch.tensor([5]), "actual_seq_lengths_kv": [30, 8]}
    tensors[1:] = (torch.nan_to_num(t) for t in tensors[1:])
    out, lse = fused(*tensors, "BNSD", **call)
    assert (out[0] == 0).all() and torch.isposinf(lse[0]).all() and torch.isfinite(lse[1]).all()
    with pytest.raises(ValueError, match="kv_padding_size"):
        fused(tensors[0].expand(-1, -1, 2, -1), *tensors[1:], "BNSD", **call)


@pytest.mark.parametrize("used", [None, 11, 0])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BSND_BNSD", "BSH_NBSD"])
def test_a_shared_prefix_is_a_call_on_the_joined_keys(layout, used):
    q, k, v = inputs_of()
    size = 13 if used is None else used
    prefix = [part[0] for part in (parts(NKV, [13], D), parts(NKV, [13], DV))]
    lengths = {} if used is None else {"actual_shared_prefix_len": [used]}
    left = LAYOUTS[layout][0]
    shared = {name: arranged([t], left) for name, t in zip(("key", "value"), prefix, strict=True)}
    got = in_layout(
        layout, q, k, v, key_shared_prefix=shared["key"], value_shared_prefix=shared["value"], **lengths, **MASKED
    )
    joined = [[torch.cat([t[:, :size], part], 1) for part in own] for t, own in zip(prefix, (k, v), strict=True)]
    keys = [size + n for n in KEYS]
    assert_sequences(*got, list(zip(q, *joined, kept(keys=keys), strict=True)), scale=SCALE)
    assert equal(got, in_layout("BNSD", q, *joined, keys=keys, **MASKED))


@pytest.mark.parametrize("layout", ["BNSD", "BSH", "TND", "pages"])
def test_mode_9_is_a_tree_over_the_last_rows(layout):
    rows, keys = [4, 2, 1], [40, 2, 19]
    q, k, v = inputs_of(rows=rows, keys=keys)
    drops = [torch.rand(n, n) < 0.4 for n in rows]
    keep = [torch.cat([torch.ones(n, key - n, dtype=torch.bool), ~drop], 1)
            for n, key, drop in zip(rows, keys, drops, strict=True)]
    if layout in ("BNSD", "BSH"):
        mask = torch.ones(3, 4, 4, dtype=torch.int8)
        for b, (n, drop) in enumerate(zip(rows, drops, strict=True)):
            mask[b, :n, :n] = drop
    else:
        mask = torch.cat([drop.flatten() for drop in drops])
    call = {"atten_mask": mask, "sparse_mode": 9}
    if layout == "pages":
        table, pages = table_of(keys, PAGE)
        caches = [paged(t, "NZ", table, pages, PAGE) for t in (k, v)]
        out, lse = fused(arranged(q, "TND"), *caches, "TND", actual_seq_lengths=sums(rows), actual_seq_lengths_kv=keys,
                         block_table=table, block_size=PAGE, **call)
        got = separated(out, "TND", rows, N), lse_of(lse, "TND", rows)
    else:
        got = in_layout(layout, q, k, v, rows, keys, **call)
    assert_sequences(*got, list(zip(q, k, v, keep, strict=True)), scale=SCALE)


@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["BNSD", "BSH_BNSD"])
def test_modes_with_lengths_in_use(layout, mode):
    rows, keys = [3, 20], [40, 33]
    q, k, v = inputs_of(rows=rows, keys=keys)
    i, j = torch.arange(20)[:, None], torch.arange(40)
    drop = torch.rand(2, 1, 20, 40) < 0.3
    masks = {0: drop, 1: drop[:1, 0]}
    tokens = {"pre_tokens": 9, "next_tokens": 4}
    keep = []
    for b, (n, size) in enumerate(zip(rows, keys, strict=True)):
        corner = i + size - n
        rule = {
            0: ~drop[b, 0] & (j >= i - 9) & (j <= i + 4), 1: ~drop[0, 0], 2: j <= i, 3: j <= corner,
            4: (j >= corner - 9) & (j <= corner + 4),
        }[mode]
        keep.append(rule[:n, :size])
    got = in_layout(layout, q, k, v, rows, keys, sparse_mode=mode, atten_mask=masks.get(mode, TRIANGLE), **tokens)
    assert_sequences(*got, list(zip(q, k, v, keep, strict=True)), scale=SCALE)


@pytest.mark.parametrize("layout", ["BNSD", "TND", "NTD_TND", "pages"])
def test_sinks_ropes_and_biases(layout):
    q, k, v = inputs_of(torch.bfloat16, columns=D)
    rope_q, rope_k = parts(N, ROWS, 16, torch.bfloat16), parts(NKV, KEYS, 16, torch.bfloat16)
    sink = torch.randn(N).to(torch.bfloat16)
    call = {"learnable_sink": sink, "num_query_heads": N, "num_key_value_heads": NKV, "softmax_scale": SCALE,
            "return_softmax_lse": True, **MASKED}
    name, left = ("TND", "TND") if layout == "pages" else (layout, LAYOUTS[layout][0])
    tensors = [arranged(t, left) for t in (q, k, v)]
    ropes = [arranged(t, left) for t in (rope_q, rope_k)]
    lengths = [sums(ROWS), sums(KEYS)] if name in PACKED else [ROWS, KEYS]
    if layout == "pages":
        table, pages = table_of(KEYS, PAGE)
        tensors[1:] = (paged(t, "NZ", table, pages, PAGE) for t in (k, v))
        ropes[1] = paged(rope_k, "NZ", table, pages, PAGE)
        lengths[1] = KEYS
        call |= {"block_table": table, "block_size": PAGE}
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(
        *tensors, query_rope=ropes[0], key_rope=ropes[1], input_layout=name, actual_seq_qlen=lengths[0],
        actual_seq_kvlen=lengths[1], **call,
    )
    got = separated(out, LAYOUTS[name][1], ROWS, N), lse_of(lse, name, ROWS)
    joined = [[torch.cat(pair, -1) for pair in zip(*both, strict=True)] for both in ((q, rope_q), (k, rope_k))]
    for b in range(len(ROWS)):
        own = [[results[b]] for results in got]
        if KEYS[b] == 0:  # an element without keys has no sink either
            assert (own[0][0] == 0).all() and torch.isposinf(own[1][0]).all()
        else:
            assert_sequences(*own, [(joined[0][b], joined[1][b], v[b], kept()[b])], scale=SCALE, sink=sink.float())


def test_a_mask_that_single_rows_ignore_counts_as_checked_only_if_it_was():
    q, k, v = (arranged(t, "BNSD") for t in inputs_of(rows=[1, 1], keys=[30, 8]))
    wrong = TRIANGLE.clone()
    wrong[7, 3] = 1
    with pytest.raises(ValueError, match="atten_mask"):
        fused(q, k, v, "BNSD", sparse_mode=3, atten_mask=wrong)
    with pytest.raises(ValueError, match="atten_mask"):
        fused(q.expand(-1, -1, 3, -1), k, v, "BNSD", sparse_mode=3, atten_mask=wrong)
