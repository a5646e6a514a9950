"""Masks, forms of score_mod and comparisons for the tests of fa.torch.flex_attention.

score_mod and mask_mod are written so that they also take index tensors that broadcast. So the reference evaluates them
without vmap. The reference is autograd through all scores in float64.
"""

import sys

import torch
from reference import FACTOR_GRAD, FACTOR_OUT, assert_no_worse_than_naive, assert_within, tolerances
from torch.nn.attention.flex_attention import and_masks, or_masks

from fa.torch import flex_attention

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


def indices(batch=BATCH, heads=HEADS, rows=ROWS, keys=KEYS):
    sizes = (batch, heads, rows, keys)
    return [torch.arange(size).view([-1 if axis == place else 1 for axis in range(4)]) for place, size in enumerate(sizes)]


def pairs(mask_mod, *sizes):
    at = indices(*sizes)
    return mask_mod(*at).expand([t.numel() for t in at])


def q(*shape, **others):
    return torch.zeros(shape or (1, 2, 4, 8), **others)


def random_qkv(dtype=torch.float32, heads_kv=HEADS, batch_kv=BATCH, size_v=SIZE, rows=ROWS, keys=KEYS):
    shapes = (BATCH, HEADS, rows, SIZE), (batch_kv, heads_kv, keys, SIZE), (batch_kv, heads_kv, keys, size_v)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def naive(query, key, value, score_mod=None, keep=None, scale=None):
    """Returns the output and the log-sum-exp, computed from all scores. The row maximum has no gradient."""
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
    keep, bias, softcap and extra_scale must describe the score_mod and the block_mask of `keywords`.
    """
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


def no_worse(got, tensors, score_mod, keep, captured=()):
    """Checks results and gradients against float64, including gradients of the log-sum-exp. The bounds are multiples of
    the errors of `naive`.
    """
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
