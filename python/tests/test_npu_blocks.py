"""torch_npu's block-sparse attention against its definition in float64: results, gradients, layouts, errors."""

import inspect

import pytest
import torch
from reference import FACTOR_GRAD, FACTOR_OUT, attention

import fa
import fa.torch_npu as torch_npu

SIGNATURES = {
    "npu_block_sparse_attention": "query, key, value, block_sparse_mask, block_shape, *, q_input_layout='TND', "
    "kv_input_layout='TND', num_key_value_heads=1, scale_value=0.0, inner_precise=1, actual_seq_lengths=None, "
    "actual_seq_lengths_kv=None, softmax_lse_flag=0",
    "npu_block_sparse_attention_backward": "d_out, query, key, value, attention_out, softmax_lse, block_sparse_mask, "
    "block_shape, actual_seq_lengths, actual_seq_lengths_kv, q_input_layout, kv_input_layout, num_key_value_heads, "
    "scale_value",
}
N, NKV, D, SCALE, BLOCK = 4, 2, 16, 0.3, (32, 40)
ROWS, KEYS = [150, 0, 97], [300, 40, 129]


def blocks_of(rows, keys, planes=(len(ROWS), N), seed=0):
    counts = -(-max(rows) // BLOCK[0]), -(-max(keys) // BLOCK[1])
    kept = torch.rand(*planes, *counts, generator=torch.Generator().manual_seed(seed)) < 0.4
    kept[:, :, 1] = False  # these rows have no keys
    return kept


def tensors_of(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    make = [(N, ROWS), (NKV, KEYS), (NKV, KEYS), (N, ROWS)]
    return [[torch.randn(1, h, s, D, generator=generator).to(dtype) for s in rows] for h, rows in make]


def arranged(parts, layout):
    """Returns sequences [1,N,S,D] as one tensor. Rows past a length, or behind the last sequence, hold NaN."""
    if layout == "TND":
        packed = torch.cat([part[0].transpose(0, 1) for part in parts])
        return torch.cat([packed, torch.full_like(packed[:1], torch.nan)])
    longest = max(part.shape[2] for part in parts)
    padded = torch.full((len(parts), parts[0].shape[1], longest, parts[0].shape[3]), torch.nan, dtype=parts[0].dtype)
    for b, part in enumerate(parts):
        padded[b, :, : part.shape[2]] = part[0]
    return padded if layout == "BNSD" else padded.transpose(1, 2).contiguous()


def separated(tensor, layout, rows):
    """Undoes `arranged`, and checks that the rows past a length are 0, or +inf in an lse."""
    if layout == "TND":
        rest = tensor[sum(rows) :]
        parts = [part.transpose(0, 1)[None] for part in tensor[: sum(rows)].split(rows)]
    else:
        tensor = tensor if layout == "BNSD" else tensor.transpose(1, 2)
        parts = [tensor[b : b + 1, :, :length] for b, length in enumerate(rows)]
        rest = torch.cat([tensor[b, :, length:].flatten() for b, length in enumerate(rows)])
    assert (rest == (torch.inf if tensor.shape[-1] == 1 else 0)).all()
    return parts


def pairs_of(blocks, b, rows, keys):
    of_rows, of_keys = torch.arange(rows) // BLOCK[0], torch.arange(keys) // BLOCK[1]
    plane = blocks[b if blocks.shape[0] > 1 else 0]
    return plane[:, of_rows][:, :, of_keys].repeat_interleave(N // plane.shape[0], 0)[None]


def computed(parts, d_out, keep):
    """Returns out, lse and the gradients of one sequence in the type of its tensors."""
    leaves = [part.clone().requires_grad_() for part in parts]
    out, top, total = attention(*leaves, scale=SCALE, keep=keep)
    lse = torch.where(total > 0, top + total.log(), torch.inf)
    return [out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, d_out)]


def expect(got, exact, naive, factor):
    error, usual = (got.double() - exact).abs().max(), (naive.double() - exact).abs().max()
    assert error <= factor * usual, (error, usual)


@pytest.mark.parametrize("layout", ["TND", "BNSD", "BSND"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("planes", [(3, N), (1, 1), (3, NKV)])
def test_results_and_gradients(layout, dtype, planes):
    sequences = tensors_of(dtype)
    blocks = blocks_of(ROWS, KEYS, planes)
    q, k, v, d_out = (arranged(parts, layout) for parts in sequences)
    for tensor in (q, k, v):
        tensor.requires_grad_()
    keywords = {"q_input_layout": layout, "kv_input_layout": layout, "num_key_value_heads": NKV, "scale_value": SCALE}
    lengths = {"actual_seq_lengths": ROWS, "actual_seq_lengths_kv": torch.tensor(KEYS)}
    out, lse = torch_npu.npu_block_sparse_attention(q, k, v, blocks, BLOCK, **keywords, **lengths, softmax_lse_flag=1)
    gradients = torch.autograd.grad(out, (q, k, v), d_out)
    direct = torch_npu.npu_block_sparse_attention_backward(
        d_out, q, k, v, out, lse, blocks, BLOCK, ROWS, KEYS, layout, layout, NKV, SCALE
    )
    for one, other in zip(gradients, direct, strict=True):
        assert torch.equal(one, other)
    got = [separated(t, layout, rows) for t, rows in zip((out, lse, *gradients), (ROWS, ROWS, ROWS, KEYS, KEYS))]
    exact, naive = [], []
    for b, (rows, keys) in enumerate(zip(ROWS, KEYS)):
        *parts, d_part = (s[b] for s in sequences)
        keep = pairs_of(blocks, b, rows, keys)
        exact.append(computed([part.double() for part in parts], d_part.double(), keep))
        naive.append(computed(parts, d_part, keep))
        empty = ~keep.any(-1)
        assert (got[1][b][empty] == torch.inf).all() and (got[0][b][empty] == 0).all() and (got[2][b][empty] == 0).all()
        # A score has one rounding per product and per sum. The lse adds the roundings of the exponentials and of the
        # logarithm.
        sizes = SCALE * parts[0].double().abs() @ parts[1].double().abs().repeat_interleave(N // NKV, 1).mT
        lse_of, want = got[1][b][..., 0], exact[b][1]
        bound = 2.0**-24 * (8 + want.abs() + D * sizes.masked_fill(~keep, 0).amax(-1))
        assert ((lse_of - want).abs() <= bound)[~empty].all()
    for x, factor in ((0, FACTOR_OUT), (2, FACTOR_GRAD), (3, FACTOR_GRAD), (4, FACTOR_GRAD)):
        flat = [torch.cat([part[x].flatten() for part in of]) for of in (exact, naive)]
        expect(torch.cat([part.flatten() for part in got[x]]), *flat, factor)


@pytest.mark.parametrize("masked", [False, True])
def test_rows_behind_the_keys_in_use_do_not_change_bits(masked):
    """A sequence of 129 keys has the same bits in a tensor of 129 keys and in longer ones."""
    q, k, v, d_out = (parts[2] for parts in tensors_of())
    layouts = "BNSD", "BNSD", NKV, SCALE

    def computed_in(keys):
        longer = [torch.cat([t, torch.full((1, NKV, keys - KEYS[2], D), torch.nan)], 2) for t in (k, v)]
        blocks = blocks_of([ROWS[2]], [1000], (1, N))[..., : -(-keys // BLOCK[1])] if masked else None
        given = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": NKV, "scale_value": SCALE}
        given |= {"actual_seq_lengths": [ROWS[2]], "actual_seq_lengths_kv": [KEYS[2]], "softmax_lse_flag": 1}
        out, lse = torch_npu.npu_block_sparse_attention(q, *longer, blocks, BLOCK, **given)
        results = torch_npu.npu_block_sparse_attention_backward(
            d_out, q, *longer, out, lse, blocks, BLOCK, [ROWS[2]], [KEYS[2]], *layouts
        )
        return out, lse, results[0], *(t[:, :, : KEYS[2]] for t in results[1:])

    want = computed_in(KEYS[2])
    for keys in (160, 257, 1000):
        assert all(map(torch.equal, computed_in(keys), want)), keys


def test_a_null_mask_keeps_every_block_and_the_default_scale_is_zero():
    q, k, v, _ = (arranged(parts, "BNSD").nan_to_num() for parts in tensors_of())
    call = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": NKV}
    out, lse = torch_npu.npu_block_sparse_attention(q, k, v, None, None, **call)
    assert lse.shape == (0,)
    mean, size = (t.mean(2, keepdim=True).repeat_interleave(N // NKV, 1) for t in (v.double(), v.double().abs()))
    assert ((out - mean).abs() <= 2.0**-24 * max(KEYS) * size).all()  # each key adds a rounding
    every = torch.ones(1, 1, 2, 3, dtype=torch.int8)
    again, _ = torch_npu.npu_block_sparse_attention(q, k, v, every, None, **call)
    assert torch.equal(out, again)


def test_it_is_an_operator_of_pytorch():
    q, k, v, _ = (arranged(parts, "BNSD").nan_to_num() for parts in tensors_of())
    blocks = blocks_of(ROWS, KEYS)
    call = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": NKV, "scale_value": SCALE}

    def compute(q, k, v):
        return torch_npu.npu_block_sparse_attention(q, k, v, blocks, BLOCK, **call, softmax_lse_flag=1)

    want = compute(q, k, v)
    got = torch.compile(compute, fullgraph=True, backend="aot_eager")(q, k, v)
    assert all(torch.equal(one, other) for one, other in zip(want, got, strict=True))


def test_masks_of_blocks_are_masks_of_pairs():
    blocks = blocks_of([200], [300], (1, 2))
    mask = fa.PairMask.from_block_mask(blocks, 200, 300, BLOCK)
    assert mask.shape == (1, 2, 200, 300)
    q, k = torch.randn(1, 2, 200, D), torch.randn(1, 2, 300, D)
    pairs = blocks[0][:, torch.arange(200) // BLOCK[0]][:, :, torch.arange(300) // BLOCK[1]]
    want = fa.flash_attention(q, k, k, dense_mask=(~pairs)[None]).out
    assert torch.equal(fa.flash_attention(q, k, k, dense_mask=mask).out, want)
    assert torch.equal(fa.infer_attention(q, k, k, dense_mask=mask), want)
    band = {"pre_tokens": 90, "next_tokens": 60}  # sparse mode 0 keeps this band
    in_band = fa.infer_attention(q, k, k, dense_mask=mask, **band)
    assert torch.equal(in_band, fa.infer_attention(q, k, k, dense_mask=(~pairs)[None], **band))
    assert not torch.equal(in_band, want)
    with pytest.raises(ValueError, match=r"blocks.shape\[2\]=7, want 5 \(rows\)"):
        fa.PairMask.from_block_mask(blocks, 200, 300, (40, 40))


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    parameters = inspect.signature(getattr(torch_npu, name)).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"


ERRORS = {
    'q_input_layout="BSH", want "TND", "BNSD" or "BSND"': {"q_input_layout": "BSH"},
    'kv_input_layout="TND", want "BNSD"': {"kv_input_layout": "TND"},
    "num_key_value_heads=1, want 2": {"num_key_value_heads": 1},
    "query has 3 dimensions, want 4": {"query": torch.zeros(3, N, D)},
    "block_shape=[32, 0], want two integers >= 1": {"block_shape": (32, 0)},
    "block_shape=[], want two integers >= 1": {"block_shape": ()},
    "actual_seq_lengths has 1 entries, want 3": {"actual_seq_lengths": [3]},
    "actual_seq_lengths_kv[1]=301, want 0..300": {"actual_seq_lengths_kv": [3, 301, 4]},
    "block_sparse_mask.shape[2]=5, want 3 (query)": {"block_shape": (64, 40)},
    "block_sparse_mask.dtype=f32, want u8, bool or i8": {"block_sparse_mask": torch.zeros(3, N, 5, 8)},
    "softmax_lse_flag=2, want 0 or 1": {"softmax_lse_flag": 2},
    "value.dtype=torch.bfloat16, want torch.float32 (query.dtype)": {"value": torch.zeros(3, NKV, 300, D).bfloat16()},
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_the_argument(text):
    q, k, v, _ = (arranged(parts, "BNSD") for parts in tensors_of())
    call = {"query": q, "key": k, "value": v, "block_sparse_mask": blocks_of(ROWS, KEYS), "block_shape": BLOCK}
    call |= {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": NKV, "scale_value": SCALE}
    with pytest.raises(ValueError) as caught:
        torch_npu.npu_block_sparse_attention(**call | ERRORS[text])
    assert text in str(caught.value)


def test_packed_calls_need_lengths():
    q, k, v, _ = (arranged(parts, "TND") for parts in tensors_of())
    with pytest.raises(ValueError, match="actual_seq_lengths: missing"):
        torch_npu.npu_block_sparse_attention(q, k, v, None, None, num_key_value_heads=NKV)
    with pytest.raises(ValueError, match="actual_seq_lengths has 0 entries, want at least 1"):
        lengths = {"actual_seq_lengths": [], "actual_seq_lengths_kv": []}
        torch_npu.npu_block_sparse_attention(q, k, v, None, None, num_key_value_heads=NKV, **lengths)
    with pytest.raises(ValueError, match=r"actual_seq_lengths\[2\]=99, want 0..98"):
        lengths = {"actual_seq_lengths": [150, 0, 99], "actual_seq_lengths_kv": KEYS}
        torch_npu.npu_block_sparse_attention(q, k, v, None, None, num_key_value_heads=NKV, **lengths)
