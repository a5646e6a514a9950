"""Calls of memory_efficient_attention on CPUs: dimensions, gradients of biases, dropout, types, partial results, and
what is refused."""

from __future__ import annotations

import biases
import pytest
import reference
import torch
import xformers.ops as xops
from biases import CASES, Exact, inputs, materialized
from xformers.ops import fmha
from xformers.ops.fmha.merge_training import memory_efficient_attention_partial_autograd, merge_attentions_autograd

import fa.xformers
from fa.xformers._merge import merged

attention = xops.memory_efficient_attention
DENSE = CASES[type(None)]
OURS = fa.xformers.FwOp, fa.xformers.BwOp


def test_three_dimensions():
    tensors = [torch.randn(6, rows, size, requires_grad=True) for rows, size in ((9, 16), (13, 16), (13, 8))]
    bias = torch.randn(6, 9, 13, requires_grad=True)
    exact = Exact(*(t[:, :, None] for t in tensors), bias.detach()[:, None])
    out = attention(*tensors, attn_bias=bias)
    d_out = torch.randn_like(out)
    dq, dk, dv, dbias = torch.autograd.grad(out, (*tensors, bias), d_out)
    given = {"dq": dq, "dk": dk, "dv": dv}
    exact.check(
        out[:, :, None], d_out[:, :, None], **{n: d[:, :, None] for n, d in given.items()}, dbias=dbias[:, None]
    )
    assert torch.equal(attention(*(t.detach() for t in tensors), attn_bias=bias.detach()), out)
    plain, lse = fmha.memory_efficient_attention_forward_requires_grad(*(t.detach() for t in tensors))
    dq, _, _ = fmha.memory_efficient_attention_backward(d_out, plain, lse, *(t.detach() for t in tensors))
    assert plain.shape == (6, 9, 8) and lse.shape == (6, 1, 9) and dq.shape == (6, 9, 16)


def grouped_inputs(batch, keys, expand, groups=2, heads=3):
    """Returns query, key and value in BMGHK. With expand, heads of a group share keys and values in memory."""
    query = torch.randn(batch, biases.M, groups, heads, biases.K)
    shared = [torch.randn(batch, keys, groups, 1 if expand else heads, size) for size in (biases.K, biases.KV)]
    return query, *(t.expand(-1, -1, -1, heads, -1) for t in shared)


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize("kind", [type(None), *(k for k in CASES if "BlockDiagonal" in k.__name__)])
def test_five_dimensions(kind, expand):
    case = CASES[kind]
    bias, tensors = case.make(), grouped_inputs(1 if case.packed else biases.B, case.keys, expand)
    flat = [t.flatten(2, 3) for t in tensors]
    exact = Exact(*flat, materialized(bias, flat[0].shape[0], biases.M, case.keys, 6))
    out = attention(*tensors, attn_bias=bias)
    exact.check(out.flatten(2, 3))
    _, lse = fmha.memory_efficient_attention_partial(*tensors, attn_bias=bias)
    exact.check_lse(lse.flatten(1, 2))
    given = [t.detach().requires_grad_() for t in tensors]
    out, d_out = attention(*given, attn_bias=bias), torch.randn(out.shape)
    found = [d.flatten(2, 3) for d in torch.autograd.grad(out, given, d_out)]
    exact.check(out.flatten(2, 3), d_out.flatten(2, 3), **dict(zip(("dq", "dk", "dv"), found, strict=True)))


@pytest.fixture
def operands(monkeypatch):
    """Returns a list to which each call of an operator appends its tensors."""
    from fa.xformers import _attend

    seen, real = [], _attend.call
    monkeypatch.setattr(
        _attend, "call", lambda operator, tensors, *given: seen.append(tensors) or real(operator, tensors, *given)
    )
    return seen


def test_heads_that_the_caller_expanded_are_read_once(operands):
    query, key, value = (torch.randn(2, 9, 1, 16).expand(-1, -1, 4, -1) for _ in range(3))
    attention(query.contiguous(), key, value)
    query, grouped, value = (torch.randn(2, 9, 3, 1, 16).expand(-1, -1, -1, 4, -1) for _ in range(3))
    attention(query.contiguous(), grouped, value)
    for heads, given, (_, read, _) in zip((1, 3), (key, grouped), operands, strict=True):
        assert read.shape == (2, 9, heads, 16) and read.data_ptr() == given.data_ptr()


def test_a_bias_of_five_dimensions():
    query, key, value = grouped_inputs(biases.B, biases.N, False)
    bias = torch.randn(biases.B, 2, 3, biases.M, biases.N, requires_grad=True)
    exact = Exact(*(t.flatten(2, 3) for t in (query, key, value)), bias.detach().flatten(1, 2))
    out = attention(query.requires_grad_(), key, value, attn_bias=bias)
    d_out = torch.randn_like(out)
    (dbias,) = torch.autograd.grad(out, bias, d_out)
    exact.check(out.flatten(2, 3), d_out.flatten(2, 3), dbias=dbias.flatten(1, 2))
    with pytest.raises(ValueError, match=r"attn_bias.shape=\[2, 6, 21, 34\], want \[2, 2, 3, 21, 34\]"):
        attention(query, key, value, attn_bias=bias.flatten(1, 2))


@pytest.mark.parametrize("only_bias", [True, False], ids=["bias only", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_the_gradient_of_a_bias(causal, dtype, wide, only_bias):
    """xformers' autograd function does not see a bias inside a mask object. If only the bias requires a gradient, that
    function is not called.
    """
    tensors = [t.requires_grad_(not only_bias) for t in inputs(DENSE, dtype)]
    shape = biases.B, biases.H, biases.M, biases.N
    bias = torch.randn(shape).to(torch.float32 if wide else dtype).requires_grad_()
    given = xops.LowerTriangularMask().add_bias(bias) if causal else bias
    out = attention(*tensors, attn_bias=given)
    d_out = torch.randn_like(out)
    sources = {"dbias": bias} if only_bias else dict(zip(("dq", "dk", "dv", "dbias"), (*tensors, bias), strict=True))
    found = dict(zip(sources, torch.autograd.grad(out, list(sources.values()), d_out), strict=True))
    assert found["dbias"].dtype == bias.dtype
    exact = Exact(*tensors, given.materialize(shape, torch.float64).detach() if causal else bias.detach())
    dbias, want = found.pop("dbias"), exact.gradients(d_out)["dbias"]
    rounded = torch.finfo(bias.dtype).eps / 2 * want.abs() if bias.dtype != torch.float32 else 0.0
    exact.check(out, d_out, **found)
    reference.assert_within(dbias, want, exact.bounds(d_out)["dbias"] + rounded)


@pytest.mark.parametrize("dimensions", [3, 4, 5])
@pytest.mark.parametrize("large", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_row_whose_scores_are_all_as_large(large, dimensions):
    """The query of row 3 is 0, so its scores are exactly `large`, and its probabilities are those of equal scores."""
    heads = {3: (), 4: (4,), 5: (2, 2)}[dimensions]
    sizes = (biases.M, biases.K), (biases.N, biases.K), (biases.N, biases.KV)
    tensors = [torch.randn(2, rows, *heads, size) for rows, size in sizes]
    tensors[0][:, 3] = 0
    bias = torch.zeros(2, *heads, biases.M, biases.N).index_fill(-2, torch.tensor(3), large)
    leaves = [t.requires_grad_() for t in tensors]
    out = attention(*leaves, attn_bias=bias)
    d_out = torch.randn_like(out)
    found = [t.reshape(*t.shape[:2], -1, t.shape[-1]) for t in (out, d_out, *torch.autograd.grad(out, leaves, d_out))]
    flat = [t.detach().reshape(*t.shape[:2], -1, t.shape[-1]) for t in tensors]
    exact = Exact(*flat, torch.zeros(2, flat[0].shape[2], biases.M, biases.N))
    exact.check(*found[:2], **dict(zip(("dq", "dk", "dv"), found[2:], strict=True)))


@pytest.mark.parametrize("op", [(None, None), (None, fa.xformers.BwOp), (fa.xformers.FwOp, None), OURS])
def test_an_op_without_one_of_its_members(op):
    """A member that is None means any operator, as the package declares."""
    tensors = [t.requires_grad_() for t in inputs(DENSE, torch.bfloat16)]
    bias = torch.randn(biases.B, biases.H, biases.M, biases.N, requires_grad=True)
    given = {"attn_bias": xops.LowerTriangularMask().add_bias(bias), "output_dtype": torch.float32}
    results = []
    for own in (None, op):
        out = attention(*tensors, op=own, **given)
        assert out.dtype == torch.float32
        results.append([out, *torch.autograd.grad(out.square().sum(), (*tensors, bias))])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    grouped = [t.unflatten(2, (2, 2)) for t in tensors]
    assert torch.autograd.grad(attention(*grouped, op=op).sum(), tensors)[0].isfinite().all()


def test_another_backward_of_an_op_computes_the_gradients(monkeypatch):
    class Other(fa.xformers.BwOp):
        NAME = "otherB"

        @classmethod
        def apply(cls, *given):
            made.append(1)
            return super().apply(*given)

    made = []
    monkeypatch.setitem(fmha._OPS_LOOKUP, Other.NAME, Other)
    attention(*(t.requires_grad_() for t in inputs(DENSE)), op=(fa.xformers.FwOp, Other)).sum().backward()
    assert made == [1]


@pytest.mark.parametrize("shape", [(1, 1, 21, 34), (1, 4, 21, 34), (2, 1, 1, 34), (2, 4, 21, 1)])
def test_a_broadcast_bias(shape):
    """A bias is expanded with stride 0, and its gradient is summed by autograd's expand."""
    tensors, bias = inputs(DENSE), torch.randn(shape, requires_grad=True)
    expanded = bias.expand(biases.B, biases.H, biases.M, biases.N)
    exact = Exact(*tensors, expanded.detach())
    out = attention(*tensors, attn_bias=expanded)
    d_out = torch.randn_like(out)
    (dbias,) = torch.autograd.grad(out, bias, d_out)
    exact.check(out)
    pairs, bound = exact.gradients(d_out)["dbias"], exact.bounds(d_out)["dbias"]
    size = pairs.abs().sum_to_size(shape)
    reference.assert_within(dbias, pairs.sum_to_size(shape), reference.summed_to(bound, bias.shape, size))


def test_a_broadcast_bias_is_read_where_it_lies(operands):
    bias = torch.randn(1, 1, biases.M, biases.N)
    tensors = inputs(DENSE, torch.bfloat16)
    attention(*tensors, attn_bias=bias.expand(biases.B, biases.H, -1, -1))
    attention(*tensors, attn_bias=bias.bfloat16().expand(biases.B, biases.H, -1, -1), output_dtype=torch.float32)
    assert operands[0][3].data_ptr() == bias.data_ptr()
    assert [tensors[3].stride() for tensors in operands] == [(0, 0, biases.N, 1)] * 2


@pytest.mark.parametrize(
    "kind", [type(None), fmha.attn_bias.BlockDiagonalMask, fmha.attn_bias.BlockDiagonalPaddedKeysMask]
)
def test_dropout(kind):
    """The mean over random masks is the output without dropout. Gradients must use the same kept pairs as the
    output.
    """
    case = CASES[kind]
    bias, tensors = case.make(), [t.requires_grad_() for t in inputs(case)]
    p = 0.25
    torch.manual_seed(1)
    out = attention(*tensors, attn_bias=bias, p=p)
    torch.manual_seed(1)
    detached = [t.detach() for t in tensors]
    assert torch.equal(attention(*detached, attn_bias=bias, p=p), out)
    assert not torch.equal(attention(*detached, attn_bias=bias, p=p), out)
    # The output is linear in the values. So the inner product of dV and V equals that of the output and its gradient.
    ones = torch.randn_like(out)
    (dv,) = torch.autograd.grad(out, tensors[2], ones, retain_graph=True)
    both = [(out.double() * ones).sum(), (dv.double() * tensors[2]).sum()]
    terms = (out.double() * ones).abs().sum() + (dv.double() * tensors[2]).abs().sum()
    assert abs(both[0] - both[1]) <= 64 * reference.ROUNDOFF * terms
    # Dropout drops the share p of each row's probabilities. With equal scores and values of 1, a row's output is a
    # binomial mean.
    zero = [torch.zeros_like(t) for t in detached[:2]]
    rows = attention(*zero, torch.ones_like(detached[2]), attn_bias=bias, p=p)[..., 0].double()
    counts = (materialized(bias, rows.shape[0], biases.M, case.keys) == 0).sum(-1).transpose(1, 2)
    deviation = (p / (1 - p) / counts).sum().sqrt()
    assert 0 < (rows - 1).sum().abs() <= 6 * deviation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "kind", [torch.Tensor, fmha.attn_bias.BlockDiagonalMask, fmha.attn_bias.PagedBlockDiagonalPaddedKeysMask]
)
def test_an_output_in_float32(kind, dtype):
    case = CASES[kind]
    bias, tensors = case.make(), [t.requires_grad_() for t in inputs(case, dtype)]
    out = attention(*tensors, attn_bias=bias, output_dtype=torch.float32)
    assert out.dtype == torch.float32
    exact = Exact(*(t.float() for t in tensors), materialized(bias, tensors[0].shape[0], biases.M, case.keys))
    exact.check(out)
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, tensors, d_out)
    assert all(d.dtype == dtype for d in found)
    bounds, want = exact.bounds(d_out), exact.gradients(d_out)
    for name, d in zip(("dq", "dk", "dv"), found, strict=True):
        reference.assert_within(d, want[name], bounds[name] + torch.finfo(dtype).eps / 2 * want[name].abs(), name)
    with torch.no_grad():
        assert torch.equal(attention(*tensors, attn_bias=bias, output_dtype=torch.float32), out)
    other = {torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}[dtype]
    with pytest.raises(ValueError, match=f"output_dtype={other}, want {dtype} .query.dtype. or torch.float32"):
        attention(*tensors, attn_bias=bias, output_dtype=other)


def test_scale():
    tensors = inputs(DENSE)
    Exact(*tensors, torch.zeros(2, 4, 21, 34), scale=0.7).check(attention(*tensors, scale=0.7))


@pytest.mark.parametrize("sizes", [(0, 5, 5), (2, 0, 5), (2, 5, 0)], ids=["batch", "queries", "keys"])
def test_empty_tensors(sizes):
    batch, rows, keys = sizes
    query, key, value = (torch.randn(batch, n, 3, 16, requires_grad=True) for n in (rows, keys, keys))
    out = attention(query, key, value)
    out.sum().backward()
    assert out.shape == query.shape and not out.any()
    assert all(t.grad.shape == t.shape and not t.grad.any() for t in (query, key, value))


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2])
def test_partial_results_merge_to_the_whole(groups, dtype, stacked):
    case = DENSE._replace(keys=60)
    tensors = inputs(case, dtype)
    grouped = [t.unflatten(2, (2, 2)) for t in tensors] if groups == 2 else tensors
    query, key, value = grouped
    parts = [
        fmha.memory_efficient_attention_partial(query, key[:, keys], value[:, keys])
        for keys in (slice(0, 20), slice(20, 40), slice(40, 60))
    ]
    outs, lses = zip(*parts, strict=True)
    if stacked:
        outs, lses = torch.stack(outs), torch.stack(lses)
    out, lse = fmha.merge_attentions(outs, lses)
    assert out.dtype == torch.float32
    exact = Exact(*(t.float() for t in tensors), torch.zeros(2, 4, biases.M, 60))
    if groups == 2:
        out, lse = out.flatten(2, 3), lse.flatten(1, 2)
    exact.check(out)
    exact.check_lse(lse)
    narrow, none = fmha.merge_attentions(outs, lses, write_lse=False, output_dtype=dtype)
    assert none is None and narrow.dtype == dtype
    assert torch.equal(narrow.flatten(2, -2), out.to(dtype))


def test_a_part_without_keys_counts_for_nothing():
    query, key, value = inputs(DENSE)
    bias = fmha.attn_bias.LocalAttentionFromBottomRightMask(0, 0)
    parts = [
        fmha.memory_efficient_attention_partial(query, k, v, bias)
        for k, v in ((key, value), (key[:, :9], value[:, :9]))
    ]
    outs, lses = zip(*parts, strict=True)
    assert (lses[1][..., : biases.M - 9] == -torch.inf).all()
    out, lse = fmha.merge_attentions(outs, lses)
    assert torch.equal(out[:, : biases.M - 9], outs[0][:, : biases.M - 9])
    nothing = torch.full_like(lses[0], -torch.inf)
    out, lse = fmha.merge_attentions(outs, [nothing, nothing])
    assert not out.any() and (lse == -torch.inf).all()


def test_a_merge_of_16_bits_is_rounded_once():
    parts = [torch.randn(1, 3, 2, 8).bfloat16() for _ in range(2)]
    lses = [torch.randn(1, 2, 3) for _ in range(2)]
    wide, _ = fmha.merge_attentions(parts, lses, output_dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert torch.equal(wide, fmha.merge_attentions([part.float() for part in parts], lses)[0])
    assert torch.equal(wide.bfloat16(), fmha.merge_attentions(parts, lses)[0])


def test_merge_has_no_gradient():
    out, lse = torch.randn(1, 3, 2, 8, requires_grad=True), torch.randn(1, 2, 3)
    with pytest.raises(NotImplementedError, match="Backward pass is not implemented for merge_attentions"):
        fmha.merge_attentions([out, out], [lse, lse])[0].sum().backward()
    with pytest.raises(ValueError, match=r"attn_split\[0\]"):
        fmha.merge_attentions([out.detach().double()] * 2, [lse, lse])


def test_what_a_merge_refuses():
    out, lse = torch.randn(1, 1, 2, 3, 8), torch.randn(1, 1, 2, 3)
    with pytest.raises(ValueError, match="output_dtype=torch.int32, want torch.float32 or "):
        merged([out, out], [lse, lse], torch.int32)
    with pytest.raises(ValueError, match="attn_split has 0 tensors, want at least one"):
        merged([], [], None)
    narrow, own = merged([out[..., :0]] * 2, [lse, lse], None)
    assert narrow.shape == (1, 3, 1, 2, 0) and torch.equal(own, merged([out, out], [lse, lse], None)[1])


def test_a_partial_result_has_no_gradient():
    """A backward through a partial result raises an error. Otherwise training on merged parts would silently lack
    gradients.
    """
    tensors = [t.requires_grad_() for t in inputs(DENSE)]
    out, lse = fmha.memory_efficient_attention_partial(*tensors)
    for result in (out, lse):
        with pytest.raises(NotImplementedError, match="an output that comes with its lse has no gradient"):
            result.sum().backward()
    with torch.no_grad():
        assert not fmha.memory_efficient_attention_partial(*tensors)[0].requires_grad
    bias = torch.zeros(biases.B, biases.H, biases.M, biases.N, requires_grad=True)
    for given in (bias, xops.LowerTriangularMask().add_bias(bias)):
        for call in (fmha.memory_efficient_attention_partial, fmha.memory_efficient_attention_forward_requires_grad):
            with pytest.raises(NotImplementedError, match="an output that comes with its lse has no gradient"):
                call(*(t.detach() for t in tensors), given)[0].sum().backward()


def test_training_on_parts():
    """merge_training's functions compute the backward of each part from the output and the lse of the merged
    attention.
    """
    query, key, value = (t.requires_grad_() for t in inputs(DENSE))
    spans = slice(0, 20), slice(20, None)
    parts = [memory_efficient_attention_partial_autograd(query, key[:, s], value[:, s]) for s in spans]
    out = merge_attentions_autograd(*parts)
    d_out = torch.randn_like(out)
    dq, dk, dv = torch.autograd.grad(out, (query, key, value), d_out)
    exact = Exact(query, key, value, torch.zeros(2, 4, biases.M, biases.N))
    exact.check(out, d_out, dk=dk, dv=dv)
    # dq is the sum of the parts' gradients, each of which is rounded.
    want, bound = exact.gradients(d_out)["dq"], exact.bounds(d_out)["dq"]
    reference.assert_within(dq, want, 2 * bound)


def refused(error, match, *tensors, **keywords):
    for call in (attention, fmha.memory_efficient_attention_forward):
        with pytest.raises(error, match=match):
            call(*tensors, **keywords)


def test_what_is_refused():
    class OwnMask(fmha.AttentionBias):
        pass

    query, key, value = inputs(DENSE)
    none = NotImplementedError
    refused(
        none, "`faF` is not supported because:\n.*attn_bias type is .*OwnMask", query, key, value, attn_bias=OwnMask()
    )
    refused(none, r"`faF`.*\n    dtype=torch.float64 \(supported", *(t.double() for t in (query, key, value)))
    packed = torch.zeros(2, biases.N, 4, 3, dtype=torch.int32)
    refused(none, r"`faF`.*\n    dtype=torch.int32 \(supported", query[..., :3], packed, packed)
    bias = torch.zeros(2, 4, 21, 34)
    refused(none, r"`faF`.*\n    attn_bias.dtype=torch.float64 \(supported", query, key, value, attn_bias=bias.double())
    refused(none, r"`faF`.*\n    attn_bias.dtype=torch.bool \(supported", query, key, value, attn_bias=bias.bool())
    refused(none, r"`faF`.*\n    p=1.0 \(supported: less than 1\)", query, key, value, p=1.0)
    wide = torch.zeros(1, 2, 1, 1025)
    refused(none, r"`faF`.*\n    max\(query.shape\[-1\], value.shape\[-1\]\) > 1024", wide, wide, wide)
    refused(ValueError, "scale=inf", query, key, value, scale=torch.inf)
    with pytest.raises(ValueError, match="Operator `memory_efficient_attention` does not support inputs"):
        attention(*(t.double() for t in (query, key, value)), op=OURS)


@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if case.packed])
def test_packed_sequences_are_one_batch(kind):
    case = CASES[kind]
    tensors = [t.expand(2, -1, -1, -1) for t in inputs(case)]
    # xformers itself refuses a BlockDiagonalMask with a batch of two. fa refuses the other biases.
    for call in (attention, fmha.memory_efficient_attention_partial):
        with pytest.raises(ValueError, match="(?i)query.shape.0.=2, want 1|batch"):
            call(*tensors, attn_bias=case.make())


def test_places_that_do_not_fit_are_refused():
    query, key, value = inputs(CASES[fmha.attn_bias.BlockDiagonalMask])
    made = CASES[fmha.attn_bias.BlockDiagonalMask].make()
    start = r"attn_bias\."
    refused(
        ValueError,
        start + r"q_seqinfo.seqstart_py\[-1\]=21, want 20 .query.shape\[1\]",
        query[:, 1:],
        key,
        value,
        attn_bias=made,
    )
    refused(
        ValueError,
        start + r"k_seqinfo.seqstart_py\[-1\]=34, want 33 .key.shape\[1\]",
        query,
        key[:, 1:],
        value[:, 1:],
        attn_bias=made,
    )
    case = CASES[fmha.attn_bias.PagedBlockDiagonalPaddedKeysMask]
    query, key, value = inputs(case)
    refused(
        ValueError, start + r"page_size=8, want a divisor of 63", query, key[:, 1:], value[:, 1:], attn_bias=case.make()
    )
    wrong = case.make()
    wrong.block_tables = torch.where(biases.TABLE == 7, 8, biases.TABLE)
    refused(ValueError, start + r"block_tables\[2\]\[1\]=8, want 0..7", query, key, value, attn_bias=wrong)
    refused(ValueError, start + r"block_tables\[2\]\[1\]=8, want 0..7", query, key, value, attn_bias=wrong, p=0.5)
    one = fmha.attn_bias.PagedBlockDiagonalPaddedKeysMask.from_seqlens([biases.M], [9], torch.tensor([[3]]), 64)
    refused(ValueError, start + r"block_tables\[0\]\[0\]=3, want 0..0", query, key, value, attn_bias=one)
    unused = case.make()
    unused.block_tables = torch.where(biases.TABLE == 5, -1, biases.TABLE)
    assert torch.equal(
        attention(query, key, value, attn_bias=unused), attention(query, key, value, attn_bias=case.make())
    )
    short = case.make()
    short.block_tables = biases.TABLE[:, :1]
    refused(
        ValueError,
        start + "k_seqinfo: keys 0 to 9 of sequence 2, want them within 8 keys",
        query,
        key,
        value,
        attn_bias=short,
    )
    beyond = case.make()
    beyond.block_tables = torch.where(biases.TABLE == 7, 2**32 + 1, biases.TABLE.long())
    refused(ValueError, start + r"block_tables\[2\]\[1\]=2147483647, want 0..7", *inputs(case), attn_bias=beyond)
    beyond.block_tables = biases.TABLE > 0
    refused(ValueError, start + r"block_tables=\[4, 2\] of torch.bool, want integers", *inputs(case), attn_bias=beyond)
    gappy = CASES[fmha.attn_bias.BlockDiagonalGappyKeysMask]
    query, key, value = inputs(gappy)
    refused(
        ValueError,
        start + "k_seqinfo: keys 40 to 43 of sequence 1",
        query,
        key[:, :42],
        value[:, :42],
        attn_bias=gappy.make(),
    )
