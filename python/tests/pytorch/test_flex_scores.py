"""score_mod of fa.torch.flex_attention: its forms, the gradients of captured tensors, and the log-sum-exp."""

import functools

import pytest
import torch
import torch.nn.attention.flex_attention as host
from flex_calls import (AS_INTERVALS, BATCH, FORMS, HEADS, KEYS, MASKS, ROWS, SHUFFLED, SIZE, SLOPES, SORTED, VECTORS,
                        causal, check, documents, doubled, gradients, indices, naive, no_worse, pairs, q, random_qkv)
from reference import ROUNDOFF, assert_within, tolerances
from torch.nn.attention.flex_attention import AuxRequest

import fa.torch
from fa._torch.flex import attention
from fa._torch.flex import mask as mask_module
from fa._torch.flex.score import bias_of, form_of
from fa._torch.flex.trace import trace
from fa.torch import create_block_mask, explain_flex_attention, flex_attention

pytestmark = pytest.mark.usefixtures("one_torch_thread")
ONE = torch.tensor(1.0)


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


@pytest.mark.parametrize("name", ["slopes", "any", "the score"])
@pytest.mark.parametrize("masked", ["causal", "only the first rows", "every third"])
def test_log_sum_exp_and_maximum(name, masked):
    (score_mod, (*_, bias)), keep = FORMS[name], pairs(MASKS[masked])
    mask = create_block_mask(MASKS[masked], BATCH, HEADS, ROWS, KEYS)
    tensors = random_qkv(torch.float32, size_v=24)
    out, aux = flex_attention(*tensors, score_mod, mask, return_aux=AuxRequest(lse=True, max_scores=True))
    assert aux.lse.dtype == aux.max_scores.dtype == torch.float32 and not aux.max_scores.requires_grad
    empty = ~keep.any(-1)
    assert bool(empty.any()) == (masked == "only the first rows")
    assert all((t[empty] == -torch.inf).all() for t in (aux.lse, aux.max_scores)) and (out[empty] == 0).all()
    query, key, _ = doubled(tensors)
    added = torch.zeros(1) if bias is None else bias(*indices()).double()
    scores = (query @ key.transpose(2, 3) * SIZE**-0.5 + added).masked_fill(~keep, -torch.inf)
    # The error of a score as in reference.tolerances. A maximum is off by at most the largest error of a kept score.
    sizes = query.abs() @ key.abs().transpose(2, 3) * SIZE**-0.5
    bound = (ROUNDOFF * ((4 * SIZE**0.5 + 8) * sizes + 4 * added.abs())).masked_fill(~keep, 0.0)
    assert_within(aux.max_scores[~empty], scores.amax(-1)[~empty], bound.amax(-1)[~empty], "max_scores")
    no_worse([out, aux.lse], tensors, score_mod, keep)
    lse = flex_attention(*tensors, score_mod, mask, return_lse=True)[1]
    assert torch.equal(lse, aux.lse)
    (alone,) = gradients([lse], [tensors[0]], [torch.ones(lse.shape)])
    assert alone.isfinite().all() and alone.any()
    assert flex_attention(*tensors, return_aux=AuxRequest())[1] == (None, None)


def test_results_are_those_of_pytorch():
    host_flex = functools.partial(host.flex_attention, kernel_options=None)
    host._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, before = True, host._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    # score_mod, and its largest derivative by the score
    given = {"sine": (SLABS["sine"], 3.0), "cap and slopes": (FORMS["cap and slopes"][0], 1.0)}
    try:
        for name, (score_mod, slope) in given.items():
            mask = create_block_mask(AS_INTERVALS["causal documents"], None, None, ROWS, KEYS)
            tensors = [t.detach().double() for t in random_qkv()]
            # score_mod multiplies the error of a score by at most `slope`. The sum slope * score + bias does the same,
            # so its bounds serve here.
            score = slope * SIZE**-0.5 * (tensors[0] @ tensors[1].transpose(2, 3))
            bias = score_mod(score / slope, *indices()) - score
            bounds = tolerances(*tensors, torch.zeros_like(tensors[0]), torch.float32, scale=slope * SIZE**-0.5, bias=bias,
                                keep=pairs(AS_INTERVALS["causal documents"]))
            request = {"return_aux": AuxRequest(lse=True)}
            (want, aux), (got, own) = (f(*tensors, score_mod, mask, **request) for f in (host_flex, flex_attention))
            # The bounds are proportional to the unit roundoff, which is float64's here. They are doubled because both
            # functions have errors.
            both = 2 * (torch.finfo(torch.float64).eps / 2 / ROUNDOFF)
            for part, mine, theirs in (("out", got, want), ("lse", own.lse, aux.lse)):
                assert mine.dtype == theirs.dtype == torch.float64
                assert_within(mine, theirs, both * bounds[part], f"{name}: {part}")
    finally:
        host._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = before


LENGTH = 400  # PyTorch's operators use several threads for so many pairs
SHARED = {  # captured tensors of which many pairs read one element
    "a scalar": ((), lambda t, b, h, i, j: t * torch.sin(i * 0.1 * j)),
    "heads": ((HEADS,), lambda t, b, h, i, j: t[h] * torch.cos(i * 0.1) + torch.sin(t[0] * j)),
    "slopes": ((HEADS,), lambda t, b, h, i, j: t[h] * (j - i)),
    "one table": ((2 * LENGTH,), lambda t, b, h, i, j: t[i - j + LENGTH]),
    "tables": ((HEADS, 2 * LENGTH), lambda t, b, h, i, j: t[h, i - j + LENGTH]),
    "few": ((HEADS, 8), lambda t, b, h, i, j: t[h, (i + j) % 8]),
    "of all heads": ((LENGTH, LENGTH), lambda t, b, h, i, j: t[i, j]),
    "per key": ((LENGTH,), lambda t, b, h, i, j: t[j]),
    "per row": ((LENGTH,), lambda t, b, h, i, j: t[i]),
}


@pytest.mark.parametrize("name", SHARED)
def test_bits_do_not_depend_on_threads(name):
    shape, made = SHARED[name]
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH)
    captured = torch.randn(shape).requires_grad_()
    tensors = random_qkv(rows=LENGTH, keys=LENGTH)
    results = []
    for threads in (1, 2, 7):
        fa.set_default_context(fa.Context(threads=threads))
        torch.set_num_threads(threads)
        out = flex_attention(*tensors, lambda s, b, h, i, j: s + made(captured, b, h, i, j), mask)
        results.append([out, *torch.autograd.grad(out, [*tensors, captured], out.detach())])
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["a scalar", "heads", "per row", "operations"])
def test_gradients_of_16_bits_are_summed_in_float32(name, dtype, monkeypatch):
    """The gradient of a 16-bit tensor differs from the gradient of the same numbers in float32 only by two
    roundings.
    """
    monkeypatch.setattr(attention, "_BIASES", 1)  # slabs of 128 rows
    monkeypatch.setattr(attention, "_SCORES", 1)  # slabs of one row
    shape, made = {
        "a scalar": ((), lambda t, s, h, i, j: s + t * torch.sin(i * 0.1 * j)),
        "heads": ((HEADS,), lambda t, s, h, i, j: s + t[h] * torch.cos(i * 0.1 * j)),
        "per row": ((LENGTH,), lambda t, s, h, i, j: s + t[i] * torch.cos(j * 0.1)),
        "operations": ((HEADS,), lambda t, s, h, i, j: torch.sin(s) + t[h] * torch.cos(i * 0.1 * j)),
    }[name]
    tensors = [t.detach() for t in random_qkv(rows=LENGTH, keys=LENGTH)]
    if name == "operations":
        tensors = [t[:1, :2, :100] for t in tensors]
    d_out = torch.randn(tensors[0].shape)
    narrow = torch.randn(shape).to(dtype)

    def gradient(captured):
        captured = captured.requires_grad_()
        out = flex_attention(*tensors, lambda s, b, *at: made(captured, s, *at))
        return torch.autograd.grad(out, captured, d_out)[0]

    want, got = gradient(narrow.float()), gradient(narrow)
    assert got.dtype == dtype
    assert (got.float() - want).abs().max() <= torch.finfo(dtype).eps * want.abs().max()


@pytest.mark.parametrize("by_name", [True, False])
def test_the_gradient_of_a_bias_that_heads_share_has_one_head(by_name, monkeypatch):
    table, shapes, compute = torch.randn(ROWS, KEYS, requires_grad=True), [], attention.compute

    def recording(function, inputs, results, options):
        shapes.append(results["dpse"].shape)
        compute(function, inputs, results, options)

    monkeypatch.setattr(attention, "compute", recording)
    flex_attention(*random_qkv(), lambda s, b, h, i, j: s + table[i, j if by_name else 1 * j]).sum().backward()
    assert shapes == [(1, 1, ROWS, KEYS)] and table.grad.shape == (ROWS, KEYS)


@pytest.mark.parametrize("shape", [(ROWS, KEYS), (HEADS,)])
def test_the_gradient_of_a_bias_does_not_have_the_default_type(shape):
    captured = torch.randn(shape, requires_grad=True)
    score_mod = (lambda s, b, h, i, j: s + captured[i, j]) if len(shape) == 2 else (
        lambda s, b, h, i, j: s - captured[h] * (i - j).abs())
    tensors = random_qkv()

    def gradient():
        return torch.autograd.grad(flex_attention(*tensors, score_mod).sum(), captured)[0]

    want = gradient()
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(gradient(), want)
    finally:
        torch.set_default_dtype(torch.float32)


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
    assert bias.tensor.shape == (1, 1, ROWS, KEYS) and bias.tensor.stride(3) == 1
    assert bias.tensor.untyped_storage().nbytes() == table.nbytes
