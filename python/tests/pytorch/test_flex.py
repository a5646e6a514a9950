"""fa.torch.flex_attention compared with PyTorch's own function and with autograd through all scores in float64.

score_mod and mask_mod are written so that they also take index tensors that broadcast. So the reference evaluates them
without vmap.
"""

import concurrent.futures
import copy
import functools
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.attention.flex_attention as host
from reference import FACTOR_GRAD, FACTOR_OUT, ROUNDOFF, assert_no_worse_than_naive, assert_within, tolerances
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, and_masks, or_masks

import fa.torch
from fa._torch.flex import attention
from fa._torch.flex import mask as mask_module
from fa._torch.flex.score import bias_of, form_of
from fa._torch.flex.trace import trace
from fa.torch import create_block_mask, explain_flex_attention, flex_attention

pytestmark = pytest.mark.usefixtures("one_torch_thread")
BATCH, HEADS, ROWS, KEYS, SIZE = 2, 4, 150, 170, 16
SORTED = torch.arange(KEYS) // 37
SHUFFLED = torch.randint(0, 5, (KEYS,), generator=torch.Generator().manual_seed(3))
VECTORS = torch.randn(KEYS, 3, generator=torch.Generator().manual_seed(4))
LARGE = (1 << 62) * (SORTED - 2)
OF_BATCH = torch.stack((SORTED, torch.arange(KEYS) // 60))


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j <= 40)


def documents(b, h, i, j):
    return SORTED[i] == SORTED[j]


def every(b, h, i, j):
    return (i >= 0) & (j >= 0)


AS_INTERVALS = {
    "causal": causal,
    "later keys": lambda b, h, i, j: j > i + 3,
    "window": window,
    "window by abs": lambda b, h, i, j: (i - j).abs() < 9,
    "window from the right": lambda b, h, i, j: 20 >= (j - i + 3).abs(),
    "prefix": or_masks(causal, lambda b, h, i, j: j < 33),
    "not later": lambda b, h, i, j: ~(j > i),
    "not (later or far)": lambda b, h, i, j: ~((j > i) | (i - j > 30)),
    "documents": documents,
    "causal documents": and_masks(causal, documents),
    "documents of a batch element": lambda b, h, i, j: (OF_BATCH[b, i] == OF_BATCH[b, j]) & (i >= j),
    "names of 8 bits": lambda b, h, i, j: SORTED.to(torch.uint8)[i] == SORTED.to(torch.uint8)[j],
    "chunks": lambda b, h, i, j: i // 32 == j // 32,
    "lengths": lambda b, h, i, j: j < torch.tensor([100, 17])[b],
    "only the first rows": lambda b, h, i, j: causal(b, h, i, j) & (i < 50),
    "falling names": lambda b, h, i, j: -SORTED[i] <= -SORTED[j],
    "floating times": lambda b, h, i, j: (SORTED * 0.5)[i] >= (SORTED * 0.5)[j],
    "in place": lambda b, h, i, j: (i >= j).logical_and_(i < 99),
    "no pair": lambda b, h, i, j: (j < 0) & (i >= 0),
    "rows without keys in the middle": lambda b, h, i, j: (i >= 20) & (j >= 40) | (i < 10) & (j < 40),
    "no least distance": lambda b, h, i, j: i - j >= -sys.maxsize,
    "no window by abs": lambda b, h, i, j: (i - j).abs() <= sys.maxsize,
    "no most distance": lambda b, h, i, j: j - i <= sys.maxsize,
}
AS_PAIRS = {
    "every third": lambda b, h, i, j: (i + j) % 3 == 0,
    "shuffled documents": lambda b, h, i, j: SHUFFLED[i] == SHUFFLED[j],
    "other than its own": lambda b, h, i, j: ~(SORTED[i] == SORTED[j]),
    "two windows": or_masks(window, lambda b, h, i, j: (i - j >= 60) & (i - j <= 70)),
    "windows of heads": lambda b, h, i, j: (i >= j) & (i - j <= h * 20),
    "rows apart": lambda b, h, i, j: (i < 10) | (i >= 20),
    "causal but for some rows": lambda b, h, i, j: (j <= i) & ((i < 10) | (i >= 20)),
    "all rows but one": lambda b, h, i, j: i != 7,
    "a sum that overflows": lambda b, h, i, j: i - j - sys.maxsize <= 0,
    "names that overflow": lambda b, h, i, j: LARGE[i] - LARGE[j] <= 0,
    "rows upside down": lambda b, h, i, j: j <= 150 - i,
    "NaN": lambda b, h, i, j: torch.where(SORTED == 1, torch.nan, SORTED * 1.0)[i] >= (SORTED * 1.0)[j],
    "types that differ": lambda b, h, i, j: i * 0.5 >= j,
    "no elements alone": lambda b, h, i, j: VECTORS[i].mul(VECTORS[j]).sum(-1) > 0,
    "names of 8 bits that overflow": lambda b, h, i, j: (SORTED + 250).to(torch.uint8)[i] - SORTED.to(torch.uint8)[j] < 6,
}
MASKS = AS_INTERVALS | AS_PAIRS


def indices(batch=BATCH, heads=HEADS, rows=ROWS, keys=KEYS):
    sizes = (batch, heads, rows, keys)
    return [torch.arange(size).view([-1 if axis == place else 1 for axis in range(4)]) for place, size in enumerate(sizes)]


def pairs(mask_mod, *sizes):
    at = indices(*sizes)
    return mask_mod(*at).expand([t.numel() for t in at])


def random_qkv(dtype=torch.float32, heads_kv=HEADS, batch_kv=BATCH, size_v=SIZE, rows=ROWS, keys=KEYS):
    shapes = (BATCH, HEADS, rows, SIZE), (batch_kv, heads_kv, keys, SIZE), (batch_kv, heads_kv, keys, size_v)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def naive(query, key, value, score_mod=None, keep=None, scale=None):
    """Returns the output and the log-sum-exp, computed from all scores. The row maximum is a constant."""
    batch, heads, rows, size = query.shape
    key, value = (t.expand(batch, -1, -1, -1).repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
    work = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(work) @ key.to(work).transpose(2, 3) * (size**-0.5 if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *indices(*scores.shape)).expand_as(scores)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    top = scores.detach().amax(-1, keepdim=True)
    empty = top == -torch.inf
    p = (scores - torch.where(empty, 0.0, top)).exp()
    total = p.sum(-1, keepdim=True)
    out = (p / torch.where(empty, 1.0, total)).to(query.dtype).to(work) @ value.to(work)
    lse = torch.where(empty, -torch.inf, top + torch.where(empty, 1.0, total).log())
    return out.to(query.dtype), lse.squeeze(-1)


def gradients(results, tensors, d_results):
    """Returns the gradients of sum(results * d_results). Rows whose result is infinite do not count."""
    total = sum((torch.where(t.isfinite(), t, 0.0) * d.to(t.dtype)).sum() for t, d in zip(results, d_results, strict=True))
    return torch.autograd.grad(total, tensors, allow_unused=True)


def doubled(tensors):
    return [t.detach().double().requires_grad_(t.requires_grad) for t in tensors]


def check(query, key, value, keep=None, bias=None, softcap=0.0, extra_scale=1.0, **keywords):
    """Compares the output and the gradients of query, key and value with float64, within the bounds of reference.py.
    keep, bias, softcap and extra_scale say what score_mod and block_mask mean."""
    out = flex_attention(query, key, value, **keywords)
    d_out = torch.randn(out.shape).to(query.dtype)
    got = [out, *gradients([out], [query, key, value], [d_out])]
    scale = query.shape[3] ** -0.5 * extra_scale
    leaves = doubled([query, key, value])

    def score_mod(scores, *_):
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        return scores if bias is None else scores + bias.detach().double()

    want, _ = naive(*leaves, score_mod, keep, scale)
    want = [want, *gradients([want], leaves, [d_out])]
    bounds = tolerances(*(t.detach() for t in (query, key, value)), d_out, query.dtype, scale=scale, keep=keep, bias=bias,
                        softcap=softcap)
    for name, mine, theirs in zip(("out", "dq", "dk", "dv"), got, want, strict=True):
        assert mine.dtype == query.dtype
        assert_within(mine, theirs, bounds[name], name)
    return d_out, bounds


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, dtype):
    mask = create_block_mask(MASKS[name], BATCH, HEADS, ROWS, KEYS, BLOCK_SIZE=64)
    tensors = random_qkv(dtype)
    check(*tensors, keep=pairs(MASKS[name]), block_mask=mask)
    first = explain_flex_attention(*tensors, block_mask=mask).splitlines()[0]
    assert (first == "mask: intervals of keys per row") == (name in AS_INTERVALS), first


def test_float16():
    mask = create_block_mask(window, None, None, ROWS, KEYS)
    check(*random_qkv(torch.float16), keep=pairs(window), softcap=2.0, score_mod=FORMS["soft cap"][0], block_mask=mask)


@pytest.mark.parametrize("size", [128, (64, 32), (32, 256), 1000], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_block_masks_are_those_of_pytorch(name, size):
    given = MASKS[name], BATCH, HEADS, ROWS, KEYS
    theirs = host.create_block_mask(*given, device="cpu", BLOCK_SIZE=size)
    same_block_masks(create_block_mask(*given, BLOCK_SIZE=size), theirs)


def same_block_masks(mine, theirs):
    assert vars(mine).keys() == vars(theirs).keys()
    for name, value in vars(theirs).items():
        own = getattr(mine, name)
        if isinstance(value, torch.Tensor):
            assert own.dtype == value.dtype and own.shape == value.shape and torch.equal(own, value), name
        else:
            assert own == value, name


@pytest.mark.parametrize("options", [{"separate_full_blocks": False}, {"compute_dq_write_order": True},
                                     {"compute_dq_write_order": True, "dq_kv_order": False}], ids=str)
def test_options_of_block_masks(options):
    given = window, None, None, 300, 260
    same_block_masks(create_block_mask(*given, **options), host.create_block_mask(*given, device="cpu", **options))


@pytest.mark.parametrize("heads_kv", [1, 2])
@pytest.mark.parametrize("batch_kv", [1, BATCH])
def test_shared_keys(heads_kv, batch_kv):
    mask = create_block_mask(window, BATCH, None, ROWS, KEYS)
    check(*random_qkv(heads_kv=heads_kv, batch_kv=batch_kv), keep=pairs(window), block_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 1, 0, 3), (0, 1, 3, 2), (3, 2, 1, 0)], ids=str)
def test_strides(order):
    back = [order.index(axis) for axis in range(4)]
    tensors = [t.detach().permute(order).contiguous().permute(back).requires_grad_() for t in random_qkv(size_v=24)]
    check(*tensors, keep=pairs(causal), block_mask=create_block_mask(causal, None, None, ROWS, KEYS))
    out = flex_attention(*tensors)
    wanted = sorted(range(3), key=lambda axis: -tensors[0].stride(axis))
    assert out.stride() == torch.empty_permuted(out.shape, (*wanted, 3)).stride()


# Lists of blocks: rows of blocks 0 and 1 keep block 1 whole, and block 0 where mask_mod keeps a pair.
def lists(mask_mod):
    one = torch.ones((1, 1, 2), dtype=torch.int32)
    columns = torch.tensor([[0, 1], [0, 1]], dtype=torch.int32)[None, None]
    return BlockMask.from_kv_blocks(one, columns, one, columns.flip(-1), BLOCK_SIZE=(96, 64), mask_mod=mask_mod,
                                    seq_lengths=(ROWS, KEYS))


@pytest.mark.parametrize("mask_mod", [None, causal, AS_PAIRS["every third"]])
def test_lists_of_blocks(mask_mod):
    in_block = (indices()[3] // 64).expand(1, 1, ROWS, KEYS)
    keep = (in_block == 1) | ((in_block == 0) & (pairs(mask_mod) if mask_mod else True))
    check(*random_qkv(), keep=keep.expand(BATCH, HEADS, -1, -1), block_mask=lists(mask_mod))


def test_sliced_and_adjusted_block_masks():
    mask = create_block_mask(window, BATCH, HEADS, ROWS, KEYS)
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        flex_attention(*random_qkv(), block_mask=mask[:, 1:2])
    sliced = mask[:, 1:2]
    sliced.mask_mod = window
    check(*random_qkv(), keep=pairs(window), block_mask=sliced)
    check(*random_qkv(rows=70, keys=90), keep=pairs(window, BATCH, HEADS, 70, 90), block_mask=mask._adjust(70, 90))


def test_what_mask_mod_holds_may_change():
    names, limit = SORTED.clone(), [50]
    mask = create_block_mask(lambda b, h, i, j: (names[i] == names[j]) | (i - j > limit[0]), None, None, ROWS, KEYS)
    mask.full_kv_num_blocks[:] = 0  # the lists of partial blocks decide nothing
    mask.kv_num_blocks[:], mask.kv_indices[:] = 2, torch.tensor([0, 1], dtype=torch.int32)
    for change in (lambda: None, lambda: names.copy_(SHUFFLED), lambda: limit.__setitem__(0, 20)):
        change()
        at = indices()
        keep = (names[at[2]] == names[at[3]]) | (at[2] - at[3] > limit[0])
        check(*random_qkv(), keep=keep.expand(BATCH, HEADS, -1, -1), block_mask=mask)


ONE = torch.tensor(1.0)
SLOPES = torch.tensor([0.5, 0.2, 0.05, 0.01])
FORMS = {  # score_mod, and (extra scale, soft cap, bias)
    "the score": (lambda s, b, h, i, j: s, (1.0, 0.0, None)),
    "scale": (lambda s, b, h, i, j: s * 2 / 3, (2 / 3, 0.0, None)),
    "soft cap": (lambda s, b, h, i, j: 2 * torch.tanh(s / 2), (1.0, 2.0, None)),
    "soft cap below 0": (lambda s, b, h, i, j: torch.tanh(s / 2) * -2, (-1.0, 2.0, None)),
    "scale and cap": (lambda s, b, h, i, j: 3 * torch.tanh(s * 2 / 3), (2.0, 3.0, None)),
    "slopes": (lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs(), (1.0, 0.0, lambda *at: -SLOPES[at[1]] * (at[2] - at[3]).abs())),
    "distance": (lambda s, b, h, i, j: s + (j - i) * 0.1, (1.0, 0.0, lambda *at: (at[3] - at[2]) * 0.1)),
    "cap and slopes": (lambda s, b, h, i, j: 2 * torch.tanh(s / 2) + 0.1 * torch.exp2(-(h + 1.0)) * (j - i),
                       (1.0, 2.0, lambda *at: 0.1 * torch.exp2(-(at[1] + 1.0)) * (at[3] - at[2]))),
    "per key": (lambda s, b, h, i, j: s + torch.sin(j * 1.0 + h), (1.0, 0.0, lambda *at: torch.sin(at[3] * 1.0 + at[1]))),
    "cast to bool": (lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs().bool(),
                     (1.0, 0.0, lambda *at: -SLOPES[at[1]] * (at[2] - at[3]).abs().bool())),
    "signed cast to bool": (lambda s, b, h, i, j: s - SLOPES[h] * (i - j).bool(),
                            (1.0, 0.0, lambda *at: -SLOPES[at[1]] * (at[2] - at[3]).bool())),
    "8 bits": (lambda s, b, h, i, j: s + 0.01 * (i - j).to(torch.uint8),
               (1.0, 0.0, lambda *at: 0.01 * (at[2] - at[3]).to(torch.uint8))),
    "a number": (lambda s, b, h, i, j: s + 1.0, (1.0, 0.0, lambda *at: torch.ones(1, 1, 1, 1))),
    "any": (lambda s, b, h, i, j: s - torch.cos(i * 0.1 * j), (1.0, 0.0, lambda *at: -torch.cos(at[2] * 0.1 * at[3]))),
    "two": (lambda s, b, h, i, j: s + SLOPES[h] - SORTED[i] * 0.1, (1.0, 0.0, lambda *at: SLOPES[at[1]] - SORTED[at[2]] * 0.1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", ["", "causal", "later keys", "every third", "windows of heads"])
@pytest.mark.parametrize("name", FORMS)
def test_forms_of_the_score(name, masked, dtype):
    score_mod, (scale, cap, bias) = FORMS[name]
    mask = create_block_mask(MASKS[masked], BATCH, HEADS, ROWS, KEYS) if masked else None
    keep = pairs(MASKS[masked]) if masked else None
    values = None if bias is None else bias(*indices()).expand(BATCH, HEADS, ROWS, KEYS)
    tensors = random_qkv(dtype)
    check(*tensors, keep=keep, bias=values, softcap=cap, extra_scale=scale, score_mod=score_mod, block_mask=mask)
    assert "score: by the engine" in explain_flex_attention(*tensors, score_mod, mask)


CONDITIONS = {
    "where": lambda s, b, h, i, j: torch.where(i >= j, s, -torch.inf),
    "where not": lambda s, b, h, i, j: torch.where(i < j, -float("inf"), s),
    "masked_fill": lambda s, b, h, i, j: s.masked_fill(i < j, -torch.inf),
    "twice": lambda s, b, h, i, j: torch.where(i >= j, torch.where(j - i > 0, -torch.inf, s), -torch.inf),
}


@pytest.mark.parametrize("masked", ["", "documents", "every third"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_in_the_score(name, masked):
    mask = create_block_mask(MASKS[masked], None, None, ROWS, KEYS) if masked else None
    keep = pairs(causal) & (pairs(MASKS[masked]) if masked else True)
    check(*random_qkv(), keep=keep, score_mod=CONDITIONS[name], block_mask=mask)
    assert "score: by the engine" in explain_flex_attention(*random_qkv(), CONDITIONS[name], mask)


CAPTURED = {  # the captured tensor's shape, and the bias made of it
    "slopes": ((HEADS,), lambda t, b, h, i, j: t[h] * (j - i)),
    "slopes of a batch element": ((BATCH, HEADS), lambda t, b, h, i, j: -t[b, h] * (i - j).abs()),
    "table of distances": ((HEADS, ROWS + KEYS), lambda t, b, h, i, j: t[h, i - j + KEYS]),
    "one table": ((ROWS + KEYS,), lambda t, b, h, i, j: t[i - j + KEYS]),
    "per pair": ((BATCH, HEADS, ROWS, KEYS), lambda t, b, h, i, j: t[b, h, i, j]),
    "per pair of a head": ((HEADS, ROWS + 5, KEYS + 3), lambda t, b, h, i, j: t[h, i, j]),
    "transposed": ((KEYS, ROWS), lambda t, b, h, i, j: t[j, i]),
    "per key": ((BATCH, KEYS), lambda t, b, h, i, j: t[b, j]),
    "per row": ((HEADS, ROWS), lambda t, b, h, i, j: t[h, i]),
    "sum": ((HEADS, 8, 3), lambda t, b, h, i, j: t[h, (i + j) % 8].sum(-1)),
    "of 16 bits": ((HEADS, 8), lambda t, b, h, i, j: t[h, (i + j) % 8].bfloat16().float() + torch.tensor(0.5) * t[h, 0]),
    "product": ((HEADS, 8), lambda t, b, h, i, j: t[h, i % 8] * t[h, j % 8]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", ["causal", "every third"])
@pytest.mark.parametrize("name", CAPTURED)
def test_gradients_of_captured_tensors(name, masked, dtype, monkeypatch):
    monkeypatch.setattr(attention, "_BIASES", 1)  # slabs of 128 rows
    shape, made = CAPTURED[name]
    table = torch.randn(shape).mul_(0.3).requires_grad_()
    tensors = random_qkv(dtype)
    mask, keep = create_block_mask(MASKS[masked], None, None, ROWS, KEYS), pairs(MASKS[masked])
    at, full = indices(), (BATCH, HEADS, ROWS, KEYS)

    def score_mod(s, b, h, i, j):
        return s + made(table, b, h, i, j)

    d_out, bounds = check(*tensors, keep=keep, bias=made(table, *at).expand(full), score_mod=score_mod, block_mask=mask)
    out = flex_attention(*tensors, score_mod, mask)
    (got,) = torch.autograd.grad(out, [table], d_out)
    double = table.detach().double().requires_grad_()
    values = made(double, *at).expand(full)
    want, _ = naive(*doubled(tensors), lambda s, *_: s + values, keep)
    (d_bias,) = torch.autograd.grad(want, [values], d_out.double(), retain_graph=True)
    (want,) = torch.autograd.grad(values, [double], d_bias)
    # An element's gradient is a sum over pairs of weight * dS. At a positive table, the derivative along
    # sign(weight) * x is the sum of |weight| * x.
    positive = double.detach().abs().requires_grad_()
    spread = made(positive, *at).expand(full)
    roundings = ROUNDOFF * (4 * spread.numel() ** 0.5 + 8) * d_bias.abs()
    (bound,) = torch.autograd.grad(spread, [positive], spread.detach().sign() * (bounds["dbias"] + roundings))
    assert_within(got, want, bound, name)


def viewed(t):
    t.view_as(t).add_(1)
    return t


SLABS = {
    "sine": lambda s, b, h, i, j: torch.sin(s * 3),
    "square": lambda s, b, h, i, j: s * s,
    "per head": lambda s, b, h, i, j: s * SLOPES[h],
    "minus": lambda s, b, h, i, j: SLOPES[h] - s,
    "bias under the cap": lambda s, b, h, i, j: torch.tanh(s + SLOPES[h] * i),
    "other than -inf": lambda s, b, h, i, j: torch.where(i >= j, s, -3.0),
    "no score": lambda s, b, h, i, j: SLOPES[h] * (i - j).abs(),
    "in place": lambda s, b, h, i, j: s.clone().sin_(),
    "a view in place": lambda s, b, h, i, j: viewed(s.sin()),
    "bias of a condition": lambda s, b, h, i, j: torch.where(i >= j, s, -torch.inf) + SLOPES[h],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", ["", "window", "windows of heads"])
@pytest.mark.parametrize("name", SLABS)
def test_other_scores_are_computed_in_slabs(name, masked, dtype, monkeypatch):
    monkeypatch.setattr(attention, "_SCORES", 2 * 64 * KEYS)  # three slabs
    mask = create_block_mask(MASKS[masked], BATCH, HEADS, ROWS, KEYS) if masked else None
    keep = pairs(MASKS[masked]) if masked else None
    tensors = random_qkv(dtype, heads_kv=2)
    got = list(flex_attention(*tensors, SLABS[name], mask, enable_gqa=True, return_lse=True))
    no_worse(got, tensors, SLABS[name], keep)
    assert "by PyTorch's operations" in explain_flex_attention(*tensors, SLABS[name], mask, enable_gqa=True)


def no_worse(got, tensors, score_mod, keep, captured=()):
    """Checks results and gradients, those of the log-sum-exp included, against float64 and the naive errors."""
    d_results = [torch.randn(t.shape) for t in got]
    got += gradients(got, [*tensors, *captured], d_results)
    leaves = doubled(tensors)
    want = list(naive(*leaves, score_mod, keep))
    want += gradients(want, [*leaves, *captured], d_results)
    same = list(naive(*tensors, score_mod, keep))
    same += gradients(same, [*tensors, *captured], d_results)
    names = ("out", "lse", "dq", "dk", "dv", *(f"captured {place}" for place in range(len(captured))))
    for name, mine, theirs, plain in zip(names, got, want, same, strict=True):
        if mine is None:
            assert theirs is None or not theirs.any(), name
            continue
        finite = theirs.isfinite()
        assert torch.equal(mine.isfinite(), finite), name
        mine, theirs, plain = (t[finite].flatten() for t in (mine, theirs, plain))
        repeats = -(-4096 // mine.numel())  # the helper wants thousands of elements
        factor = FACTOR_OUT if name in ("out", "lse") else FACTOR_GRAD
        assert_no_worse_than_naive(*(t.repeat(repeats) for t in (mine, theirs, plain)), factor, name)


@pytest.mark.parametrize("name", ["slopes", "any", "the score"])
@pytest.mark.parametrize("masked", ["causal", "only the first rows", "every third"])
def test_log_sum_exp_and_maximum(name, masked):
    score_mod, keep = FORMS[name][0], pairs(MASKS[masked])
    mask = create_block_mask(MASKS[masked], BATCH, HEADS, ROWS, KEYS)
    tensors = random_qkv(torch.float32, size_v=24)
    out, aux = flex_attention(*tensors, score_mod, mask, return_aux=AuxRequest(lse=True, max_scores=True))
    assert aux.lse.dtype == aux.max_scores.dtype == torch.float32 and not aux.max_scores.requires_grad
    scores = score_mod(tensors[0] @ tensors[1].transpose(2, 3) * SIZE**-0.5, *indices()).masked_fill(~keep, -torch.inf)
    torch.testing.assert_close(aux.max_scores, scores.amax(-1))
    empty = ~keep.any(-1)
    assert bool(empty.any()) == (masked == "only the first rows")
    assert (aux.lse[empty] == -torch.inf).all() and (out[empty] == 0).all()
    no_worse([out, aux.lse], tensors, score_mod, keep)
    lse = flex_attention(*tensors, score_mod, mask, return_lse=True)[1]
    assert torch.equal(lse, aux.lse)
    (alone,) = gradients([lse], [tensors[0]], [torch.ones(lse.shape)])
    assert alone.isfinite().all() and alone.any()
    assert flex_attention(*tensors, return_aux=AuxRequest())[1] == (None, None)


def test_results_are_those_of_pytorch():
    host_flex = functools.partial(host.flex_attention, kernel_options=None)
    host._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, before = True, host._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    try:
        for name, score_mod in {"sine": SLABS["sine"], "cap and slopes": FORMS["cap and slopes"][0]}.items():
            mask = create_block_mask(AS_INTERVALS["causal documents"], None, None, ROWS, KEYS)
            tensors = [t.detach().double() for t in random_qkv()]
            request = {"return_aux": AuxRequest(lse=True)}
            (want, aux), (got, own) = (f(*tensors, score_mod, mask, **request) for f in (host_flex, flex_attention))
            torch.testing.assert_close(got, want, rtol=0, atol=64 * torch.finfo(torch.float64).eps, msg=name)
            torch.testing.assert_close(own.lse, aux.lse, rtol=0, atol=64 * torch.finfo(torch.float64).eps)
    finally:
        host._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = before


def test_pairs_are_evaluated_once_and_only_in_partial_blocks(monkeypatch):
    counted, evaluate = [], mask_module.evaluate

    def counting(node, *at):
        counted.append(at[2].numel() * at[3].numel())
        return evaluate(node, *at)

    mask = create_block_mask(lambda b, h, i, j: (i * j) % 7 < 3, None, None, 256, 512)
    mask.kv_num_blocks[:] = 1  # one partial block of four in each row of blocks
    tensors = random_qkv(rows=256, keys=512)
    monkeypatch.setattr(mask_module, "evaluate", counting)
    first = flex_attention(*tensors, block_mask=mask)
    assert sum(counted) == 256 * 128
    assert torch.equal(flex_attention(*tensors, block_mask=mask), first) and sum(counted) == 256 * 128
    made = create_block_mask(lambda b, h, i, j: torch.tensor([3, 1, 2])[j % 3] > i % 3, None, None, 256, 512)
    flex_attention(*tensors, block_mask=made)
    counted.clear()
    flex_attention(*tensors, block_mask=made)
    assert not counted
    counted.append(256 * 128)
    mask.kv_indices[..., 0] += 1
    assert not torch.equal(flex_attention(*tensors, block_mask=mask), first) and sum(counted) == 2 * 256 * 128


def test_block_masks_are_made_in_slabs(monkeypatch):
    sizes, slab = [], mask_module.Kept.slab

    def counting(self, *given):
        kept = slab(self, *given)
        sizes.append(kept.numel())
        return kept

    monkeypatch.setattr(mask_module.Kept, "slab", counting)
    create_block_mask(lambda b, h, i, j: (i + j + h * b) % 3 == 0, 3, 5, 1024, 2048)
    assert sum(sizes) == 3 * 5 * 1024 * 2048 and max(sizes) <= mask_module.PAIRS


def test_bits_do_not_depend_on_threads():
    mask = create_block_mask(documents, None, None, ROWS, KEYS)
    table = torch.randn(HEADS, ROWS + KEYS).requires_grad_()
    tensors = random_qkv()
    results = []
    for threads in (1, 2, 7):
        fa.set_default_context(fa.Context(threads=threads))
        out = flex_attention(*tensors, lambda s, b, h, i, j: s + table[h, i - j + KEYS], mask)
        results.append([out, *torch.autograd.grad(out.square().sum(), [*tensors, table])])
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))


CHANGED = {  # score_mod and mask_mod of a captured tensor t [KEYS]
    "mask": (lambda t, s, b, h, i, j: s + torch.cos(i * 0.1 * j), lambda t, b, h, i, j: t[i] == t[j]),
    "buckets": (lambda t, s, b, h, i, j: s + VECTORS[:, 0][t[(i + j) % 8]], None),
    "operations": (lambda t, s, b, h, i, j: torch.sin(s) * t[j], None),
    "mask of operations": (lambda t, s, b, h, i, j: torch.sin(s), lambda t, b, h, i, j: t[i] == t[j]),
    "untraceable": (lambda t, s, b, h, i, j: viewed(s.sin()) * t[j], None),
}


@pytest.mark.parametrize("name", CHANGED)
def test_writes_between_forward_and_backward_are_refused(name, monkeypatch):
    monkeypatch.setattr(attention, "_BIASES", 1)  # slabs of 128 rows
    score_mod, mask_mod = CHANGED[name]
    captured, tensors = SHUFFLED.clone(), random_qkv()
    mask = mask_mod and create_block_mask(functools.partial(mask_mod, captured), None, None, ROWS, KEYS)
    call = functools.partial(flex_attention, *tensors, functools.partial(score_mod, captured), mask)
    call().sum().backward()
    out = call()
    captured.copy_(SORTED)
    with pytest.raises(RuntimeError, match=r"captured a tensor \[170\] that was written to between forward and back"):
        out.sum().backward()


def test_a_tensor_that_the_function_makes():
    def score_mod(s, b, h, i, j):
        made = torch.tensor(0.0)
        made += 0.5
        return s + made * j

    tensors = random_qkv()
    no_worse([*flex_attention(*tensors, score_mod, return_lse=True)], tensors, score_mod, None)


@pytest.mark.parametrize("score_mod", [lambda s, b, h, i, j: i, lambda s, b, h, i, j: ONE], ids=["index", "captured"])
def test_scores_that_are_inputs(score_mod):
    value = torch.arange(4.0)[:, None].expand(1, 2, 4, 8)
    assert (flex_attention(q(), q(), value, score_mod) == 1.5).all()  # all four weights are 1/4


def test_a_scale_beyond_float32():
    words = explain_flex_attention(q(), q(), q(), lambda s, b, h, i, j: s * 1e30 * 1e30)
    assert "by PyTorch's operations" in words


def test_a_table_is_copied_once_for_all_heads():
    table = torch.randn(KEYS, ROWS)
    form = form_of(trace("score_mod", lambda s, b, h, i, j: s + table[j, i], torch.float32))
    bias = bias_of(form, mask_module.Kept(mask_module.Sizes(BATCH, HEADS, ROWS, KEYS), None, None, ()))
    assert bias.tensor.shape == (1, HEADS, ROWS, KEYS) and bias.tensor.stride(3) == 1
    assert bias.tensor.untyped_storage().nbytes() == table.nbytes


def test_many_masks():
    masks = [lambda b, h, i, j, n=n: (i == n) & (j == n) for n in range(1200)]
    given = or_masks(*masks), None, None, 128, 128
    made = create_block_mask(*given)
    assert made.kv_num_blocks.item() == 1
    rows, keys = indices(1, 1, 128, 128)[2:]
    check(*random_qkv(rows=128, keys=128), keep=(rows == keys).expand(BATCH, HEADS, -1, -1), block_mask=made)


def test_import_without_the_newest_names():
    lines = ["import torch.nn.attention.flex_attention as host", "del host.AuxOutput, host.AuxRequest",
             "import fa.torch, torch", "q = torch.ones(1, 1, 4, 8)", "print(fa.torch.flex_attention(q, q, q).sum().item())"]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.returncode) == ("32.0", 0), run.stderr


def test_two_threads_of_a_program():
    mask = create_block_mask(AS_PAIRS["every third"], None, None, ROWS, KEYS)
    tensors = random_qkv()
    want = flex_attention(*tensors, FORMS["any"][0], mask)
    mask_module._kept.clear()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for got in pool.map(lambda _: flex_attention(*tensors, FORMS["any"][0], mask), range(8)):
            assert torch.equal(got, want)


def test_inference_mode_and_copies_of_block_masks():
    mask, names = create_block_mask(documents, None, None, ROWS, KEYS), SORTED.clone()
    tensors = random_qkv()
    want = flex_attention(*tensors, block_mask=mask)
    for copied in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert torch.equal(flex_attention(*tensors, block_mask=copied), want)
    with torch.inference_mode():
        own = names.clone()
        mask = create_block_mask(lambda b, h, i, j: own[i] == own[j], None, None, ROWS, KEYS)
        assert torch.equal(flex_attention(*tensors, block_mask=mask), want)
        own.copy_(SHUFFLED)
        assert not torch.equal(flex_attention(*tensors, block_mask=mask), want)


def test_autocast_and_no_elements():
    tensors = random_qkv()
    with torch.autocast("cpu", torch.bfloat16):
        out = flex_attention(*tensors)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, flex_attention(*(t.bfloat16() for t in tensors)))
    for rows, keys in ((0, 5), (5, 0)):
        few = random_qkv(rows=rows, keys=keys)
        few[0].data.fill_(torch.inf)
        assert create_block_mask(AS_PAIRS["every third"], None, None, rows, keys).seq_lengths == (rows, keys)
        out, lse = flex_attention(*few, return_lse=True)
        assert out.shape == (BATCH, HEADS, rows, SIZE) and not out.any() and (lse == -torch.inf).all()
        out.sum().backward()
        assert not few[1].grad.any()


def test_second_derivatives_are_refused():
    tensors = random_qkv()
    with pytest.raises(NotImplementedError, match="there is no second derivative"):
        torch.autograd.grad(flex_attention(*tensors).sum(), tensors[:1], create_graph=True)


def test_compiled_calls_break_the_graph_once():
    torch._dynamo.reset()
    tensors = random_qkv()
    mask = create_block_mask(causal, None, None, ROWS, KEYS)

    def layer(q, k, v):
        return flex_attention(q * 2, k, v, FORMS["slopes"][0], mask) + 1

    want = layer(*tensors)
    backend = CompileCounter()
    assert torch.equal(torch.compile(layer, backend=backend)(*tensors), want)
    assert backend.frame_count == 2


def test_replacement():
    own = host.flex_attention, host.create_block_mask
    with fa.torch.replace_flex_attention():
        with fa.torch.replace_flex_attention():
            assert host.flex_attention is flex_attention and host.create_block_mask is create_block_mask
        assert host.flex_attention is flex_attention
    assert (host.flex_attention, host.create_block_mask) == own
    with pytest.warns(RuntimeWarning, match="did nothing"):
        fa.torch.replace_flex_attention()


def q(*shape, **others):
    return torch.zeros(shape or (1, 2, 4, 8), **others)


BUFFER = torch.zeros(4)


def writes(s, b, h, i, j):
    BUFFER[h] += 1
    return s


def adds(s, b, h, i, j):
    return s + BUFFER.add_(1).sum()


SHORT = create_block_mask(causal, 1, 1, 2, 2)
BAD_LISTS = BlockMask.from_kv_blocks(torch.ones((1, 1, 1), dtype=torch.int32), torch.full((1, 1, 1, 1), 9, dtype=torch.int32),
                                     seq_lengths=(4, 4), compute_q_blocks=False)
TWO = create_block_mask(causal, 2, 3, 4, 4)
REFUSED = [
    ((q(), q(), q(dtype=torch.bfloat16)), {}, ValueError, "same dtype, but got query.dtype: torch.float32"),
    ((q(dtype=torch.int8),) * 3, {}, ValueError, "query.dtype=torch.int8, want a float"),
    ((q(), q(device="meta"), q()), {}, ValueError, "key: want a plain tensor on the CPU, got Tensor on meta"),
    ((q(1, 2, 4, 8), q(1, 2, 4, 6), q()), {}, ValueError, "same embedding dimension but got E=8 and E=6"),
    ((q(2, 4, 8),) * 3, {}, NotImplementedError, "must be 4D"),
    ((q(), q(), q(1, 2, 5, 8)), {}, ValueError, r"value.shape=\[1, 2, 5, 8\]"),
    ((q(), q(1, 1, 4, 8), q(1, 1, 4, 8)), {}, ValueError, "Hq=2 and Hkv=1. Try setting enable_gqa"),
    ((q(), q(1, 3, 4, 8), q(1, 3, 4, 8)), {"enable_gqa": True}, ValueError, "multiple of kv heads"),
    ((q(2, 2, 4, 8), q(), q()), {}, ValueError, "block_mask=None, Bq=2, and Bkv=1"),
    ((q(), q(), q()), {"block_mask": SHORT}, ValueError, "created for a smaller length"),
    ((q(1, 2, 1, 8), q(1, 2, 2, 8), q(1, 2, 2, 8)), {"block_mask": SHORT}, ValueError, "created for a larger length"),
    ((q(), q(), q()), {"block_mask": BAD_LISTS}, ValueError, r"block_mask.kv_indices=9, want 0..0"),
    ((q(2, 2, 4, 8),) * 3, {"block_mask": TWO}, ValueError, r"block_mask.kv_indices.shape\[1\]=3, want 1 or 2"),
    ((q(), q(), q()), {"block_mask": q()}, TypeError, "block_mask: want a BlockMask, got Tensor"),
    ((q(), q(), q()), {"score_mod": writes}, ValueError, "score_mod changes BUFFER"),
    ((q(), q(), q()), {"score_mod": adds}, ValueError, "score_mod changes BUFFER"),
    ((q(), q(), q()), {"score_mod": lambda *_: 1}, ValueError, "score_mod: want a function that returns a tensor, got int"),
    ((q(), q(), q()), {"score_mod": lambda s, *_: s[None]}, ValueError, r"score_mod: want a function that returns a scalar"),
    ((q(), q(), q()), {"kernel_options": {"BACKEND": "FLASH"}}, ValueError, r"kernel_options\['BACKEND'\]='FLASH'"),
    ((q(), q(), q()), {"return_lse": True, "return_aux": AuxRequest()}, ValueError, "both return_lse and return_aux"),
    ((q(), q(), q()), {"scale": float("inf")}, ValueError, "scale"),
]


@pytest.mark.parametrize(("tensors", "keywords", "kind", "words"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(tensors, keywords, kind, words):
    with pytest.raises(kind, match=words):
        flex_attention(*tensors, **keywords)
    assert not BUFFER.any()


def test_refusals_of_block_masks_and_transforms():
    with pytest.raises(ValueError, match="device=cuda, want cpu"):
        create_block_mask(causal, 1, 1, 4, 4, device="cuda")
    with pytest.raises(ValueError, match="mask_mod: want a function that returns torch.bool, got torch.int64"):
        create_block_mask(lambda b, h, i, j: i - j, 1, 1, 4, 4)
    with pytest.raises(ValueError, match="mask_mod: aten::_local_scalar_dense is no operator of one tensor, want"):
        create_block_mask(lambda b, h, i, j: i >= j if i > 2 else j > 1, 1, 1, 4, 4)
    with pytest.raises(TypeError, match="key: want a torch.Tensor, got int"):
        flex_attention(q(), 1, q())
    with pytest.raises(ValueError, match="inside a transform of torch.func"):
        torch.vmap(flex_attention)(q(3, 1, 2, 4, 8), q(3, 1, 2, 4, 8), q(3, 1, 2, 4, 8))
    nested = torch.nested.nested_tensor([torch.ones(2, 3)], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match="NestedTensor"):
        flex_attention(nested, nested, nested)
