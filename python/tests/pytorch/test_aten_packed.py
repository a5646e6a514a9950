"""torch.nn.attention.varlen on CPUs, by fa's kernels in the dispatcher."""

import random

import pytest
import torch
from aten_calls import PACKED_BACKWARD, PACKED_FORWARD, PACKED_FORWARD_INTO, calls, kernels  # noqa: F401
from reference import assert_within, attention, tolerances

from fa._aten import activation, packed
from fa.torch import activate, deactivate

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this PyTorch has no varlen_attn")
AuxRequest, varlen_attn = varlen.AuxRequest, varlen.varlen_attn
varlen_attn_out = getattr(varlen, "varlen_attn_out", None)  # PyTorch 2.13 and later

N, D = 4, 16
LSE = AuxRequest(lse=True)
WINDOWS = [(-1, -1), (-1, 0), (4, 0), (-1, 3), (0, 0), (0, -1), (2, 5)]


def sums(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def kept(rows, keys, window):
    """Returns which pairs a window keeps. Its diagonal ends at the last row and the last key."""
    places = torch.arange(rows)[:, None] + keys - rows
    behind = places - torch.arange(keys)
    left, right = window
    return ((behind <= left) | (left < 0)) & ((-behind <= right) | (right < 0))


class Packed:
    """Random packed sequences: query, key and value, the prefix sums of their lengths, and their largest lengths."""

    def __init__(self, dtype=torch.float32, heads_kv=N, rest=0):
        self.lengths_q, self.lengths_k = [7, 0, 20, 1, 33], [9, 4, 13, 1, 33]
        self.cu_q, self.cu_k = sums(self.lengths_q), sums(self.lengths_k)
        total_q, total_k = sum(self.lengths_q) + rest, sum(self.lengths_k)
        shapes = (total_q, N, D), (total_k, heads_kv, D), (total_k, heads_kv, D)
        self.tensors = [torch.randn(shape).to(dtype) for shape in shapes]
        self.places = self.cu_q, self.cu_k, max(self.lengths_q), max(self.lengths_k)

    def sequences(self, used=None):
        """Yields the rows and the keys of each sequence, as slices."""
        for b, (rows, keys) in enumerate(zip(self.lengths_q, used or self.lengths_k, strict=True)):
            begin_q, begin_k = int(self.cu_q[b]), int(self.cu_k[b])
            yield slice(begin_q, begin_q + rows), slice(begin_k, begin_k + keys)


def one(*tensors):
    """Returns tensors [S, N, D] as [1, N, S, D]."""
    return [t.transpose(0, 1)[None] for t in tensors]


def check_sequence(q, k, v, d_out, out, lse, window, scale, gradients=None):
    """Compares one sequence with float64."""
    if q.shape[0] == 0 or k.shape[0] == 0:
        assert not out.any() and (lse == torch.inf).all()
        return
    keep = kept(q.shape[0], k.shape[0], window)
    leaves = [t.detach().double().requires_grad_() for t in (q, k, v)]
    exact, top, total = attention(*one(*leaves), scale=scale, keep=keep)
    bounds = tolerances(*one(q, k, v, d_out), q.dtype, scale=scale, keep=keep)
    assert_within(one(out)[0], exact, bounds["out"], "out")
    seen = keep.any(-1)
    assert (lse[:, ~seen] == torch.inf).all()
    # The bound has six roundings (of the maximum, the logarithm and their sum) and the error of a score of D products.
    sizes = torch.einsum("snd,tnd->nst", q.double().abs(), k.double().abs().repeat_interleave(N // k.shape[1], 1))
    bound = 2.0**-24 * ((4 * D**0.5 + 8) * sizes.amax(-1) * scale + 8 + 6 * top[0].abs()) + (
        0 if q.dtype == torch.float32 else 4e-6
    )
    want = (top + total.clamp_min(1e-300).log())[0]
    assert_within(lse[:, seen], want[:, seen], bound[:, seen], "lse")
    if gradients is not None:
        wanted = torch.autograd.grad(exact, leaves, one(d_out.double())[0])
        for name, got, want in zip(("dq", "dk", "dv"), gradients, wanted, strict=True):
            assert_within(one(got)[0], one(want)[0], bounds[name], name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("heads_kv", [N, 2])
def test_forward_and_backward(calls, dtype, window, heads_kv):
    case = Packed(dtype, heads_kv)
    leaves = [t.requires_grad_() for t in case.tensors]
    scale = random.Random(str(window)).choice((D**-0.5, 0.4))
    out, lse = varlen_attn(
        *leaves, *case.places, window_size=window, scale=scale, enable_gqa=heads_kv < N, return_aux=LSE
    )
    d_out = torch.randn(out.shape).to(dtype)
    gradients = torch.autograd.grad(out, leaves, d_out)
    assert calls == {PACKED_FORWARD: 1, PACKED_BACKWARD: 1}
    assert lse.shape == (N, out.shape[0]) and lse.dtype == torch.float32
    for rows, keys in case.sequences():
        own = [t[s].detach() for t, s in zip(leaves, (rows, keys, keys), strict=True)]
        parts = [t[s] for t, s in zip(gradients, (rows, keys, keys), strict=True)]
        check_sequence(*own, d_out[rows], out.detach()[rows], lse.detach()[:, rows], window, scale, parts)


USED = [0, 0, 5, 1, 30]


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_keys_in_use_and_pages(calls, paged, window):
    """Rows and pages that are not in use hold NaN."""
    case = Packed(rest=3 if paged else 0)
    q, k, v = case.tensors
    page = 16
    keys, values, table = k.clone(), v.clone(), None
    for (_, whole), used in zip(case.sequences(), USED, strict=True):
        keys[whole][used:], values[whole][used:] = torch.nan, torch.nan
    if paged:
        order = torch.randperm(20)
        pages = [torch.full((20, page, N, D), torch.nan) for _ in range(2)]
        table, free = torch.full((5, 4), 10**6, dtype=torch.int32), iter(order.tolist())
        for b, ((_, whole), used) in enumerate(zip(case.sequences(), USED, strict=True)):
            for i in range(0, used, page):
                number = table[b, i // page] = next(free)
                count = min(page, used - i)
                for to, source in zip(pages, (k, v), strict=True):
                    to[number, :count] = source[whole][i : i + count]
        keys, values = pages
    places = case.cu_q, None if paged else case.cu_k, max(case.lengths_q), max(case.lengths_k)
    given = {"window_size": window, "seqused_k": torch.tensor(USED, dtype=torch.int32), "block_table": table}
    results = []
    for splits in (None, 1, 4):
        results.append(varlen_attn(q, keys, values, *places, return_aux=LSE, num_splits=splits, **given))
    out, lse = results[0]
    assert all(torch.equal(o, out) and torch.equal(s, lse) for o, s in results[1:])
    assert calls == {PACKED_FORWARD: 3}
    for rows, own in case.sequences(USED):
        check_sequence(q[rows], k[own], v[own], q[rows], out[rows], lse[:, rows], window, D**-0.5)
    rest = slice(sum(case.lengths_q), None)
    assert (out[rest] == 0).all() and (lse[:, rest] == torch.inf).all()
    if varlen_attn_out is not None:
        into = torch.full((q.shape[0], 2 * N, D), torch.nan)[:, ::2]
        returned, own_lse = varlen_attn_out(into, q, keys, values, *places, return_aux=LSE, **given)
        assert returned is into and torch.equal(into, out) and torch.equal(own_lse, lse)
        assert calls == {PACKED_FORWARD: 3, PACKED_FORWARD_INTO: 1}


def test_lengths_of_pages_may_be_prefix_sums(calls):
    q, pages = torch.randn(5, N, D), torch.randn(3, 16, N, D)
    table = torch.tensor([[2, 0], [1, 0]], dtype=torch.int32)
    given = sums([2, 3]), sums([20, 7]), 3, 20
    out = varlen_attn(q, pages, pages, *given, block_table=table)
    used = torch.tensor([20, 7], dtype=torch.int32)
    assert torch.equal(out, varlen_attn(q, pages, pages, *given, block_table=table, seqused_k=used))


@pytest.mark.parametrize("sequences", [0, 1, 2])
@pytest.mark.parametrize("rest", [0, 3])
@pytest.mark.parametrize("keys", [0, 5])
def test_without_rows_everything_is_zero(calls, sequences, rest, keys):
    q, k = torch.randn(rest, N, D, requires_grad=True), torch.randn(keys, N, D, requires_grad=True)
    places = sums([0] * sequences), sums([keys] + [0] * (sequences - 1) if sequences else []), 0, keys
    out, lse = varlen_attn(q, k, k, *places, return_aux=LSE)
    assert out.shape == q.shape and not out.any() and lse.shape == (N, rest) and (lse == torch.inf).all()
    assert not any(t.any() for t in torch.autograd.grad(out, (q, k), torch.ones_like(out)))
    assert calls == {PACKED_FORWARD: 1, PACKED_BACKWARD: 1}


def test_slopes_of_packed_sequences(calls):
    """The last rows belong to no sequence."""
    case = Packed(rest=3)
    slopes = torch.rand(5, N)
    used = torch.tensor(USED, dtype=torch.int32)
    for given in ({}, {"seqused_k": used}):
        out, lse, *_ = call(case, alibi_slopes=slopes, **given)
        for b, (rows, keys) in enumerate(case.sequences(USED if given else None)):
            own = (case.tensors[0][rows], *(t[keys] for t in case.tensors[1:]))
            if own[0].shape[0] and own[1].shape[0]:
                lengths = own[0].shape[0], own[1].shape[0]
                alone = Packed()
                alone.tensors, alone.places = own, (*(sums([n]) for n in lengths), *lengths)
                want, want_lse, *_ = call(alone, alibi_slopes=slopes[b])
                assert torch.equal(out[rows], want) and torch.equal(lse[:, rows], want_lse)
            else:
                assert (out[rows] == 0).all() and (lse[:, rows] == torch.inf).all()
        assert (out[61:] == 0).all() and (lse[:, 61:] == torch.inf).all()


def test_slopes(calls):
    q, k, v = (torch.randn(2, 9, N, D) for _ in range(3))
    slopes = torch.rand(2, N)
    attend = torch.ops.aten._flash_attention_forward
    out, lse, *state, debug = attend(q, k, v, None, None, 9, 9, 0.0, True, False, alibi_slopes=slopes)
    assert lse.shape == (2, N, 9) and debug.numel() == 0 and [t.dtype for t in state] == [torch.uint64] * 2
    distance = (torch.arange(9)[:, None] - torch.arange(9)).abs()
    bias = -slopes[:, :, None, None] * distance
    keep = distance.new_ones(9, 9).tril().bool()
    want, _, _ = attention(*(t.transpose(1, 2).double() for t in (q, k, v)), scale=0.25, keep=keep, bias=bias.double())
    given = (t.transpose(1, 2) for t in (q, k, v, q))
    bounds = tolerances(*given, torch.float32, scale=0.25, keep=keep, bias=bias)
    assert_within(out.transpose(1, 2), want, bounds["out"])
    assert calls == {PACKED_FORWARD: 1}


def test_whole_batches_have_the_bits_of_packed_sequences(calls):
    cu = sums([9, 9])
    whole = [torch.randn(2, 9, N, D, requires_grad=True) for _ in range(3)]
    flat = [t.detach().flatten(0, 1).requires_grad_() for t in whole]
    results = []
    for tensors, places in ((whole, (None, None)), (flat, (cu, cu))):
        out, lse, *_ = torch.ops.aten._flash_attention_forward(*tensors, *places, 9, 9, 0.0, True, False)
        results.append([lse, out, *torch.autograd.grad(out, tensors, torch.ones_like(out))])
    (lse, *own), (packed_lse, *packed) = results
    assert torch.equal(packed_lse.unflatten(1, (2, 9)).transpose(0, 1), lse)
    assert all(torch.equal(o.flatten(0, 1), p) for o, p in zip(own, packed, strict=True))
    assert calls == {PACKED_FORWARD: 2, PACKED_BACKWARD: 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_kernels_have_the_same_bits(monkeypatch, dtype):
    """Keys of the last case lie in pages."""
    compiled = activation.library()
    if compiled is None:
        pytest.skip("this package has no libfa_torch")
    case, long = Packed(dtype, rest=3), Packed(dtype)
    long.tensors = [torch.randn(300, N, 64).to(dtype) for _ in range(3)]
    long.places = (sums([100, 200]), sums([100, 200]), 200, 200)
    slopes, used = torch.rand(5, N), torch.tensor(USED, dtype=torch.int32)
    order = torch.tensor([[2, 0, 1]] * 5, dtype=torch.int32)

    def results():
        found = []
        for own in (case, long):
            leaves = [t.detach().requires_grad_() for t in own.tensors]
            out, lse, *_ = call(own, tensors=leaves)
            found += [out, lse, *torch.autograd.grad(out, leaves, torch.ones_like(out))]
        found += [*call(case, alibi_slopes=slopes)[:2], *call(case, seqused_k=used)[:2]]
        found += call(case, alibi_slopes=slopes, seqused_k=used)[:2]
        found += call(case, tensors=[case.tensors[0], *pages], seqused_k=used, block_table=order)[:2]
        whole = [t[None] for t in long.tensors]
        return found + [*call(long, tensors=whole, places=(None, None, 300, 300))[:2]]

    pages = [torch.randn(3, 16, N, D).to(dtype) for _ in range(2)]
    of_kernels = []
    for library in (compiled, None):
        monkeypatch.setattr(activation, "library", lambda library=library: library)
        activate()
        of_kernels.append(results())
        deactivate()
    for number, (one, other) in enumerate(zip(*of_kernels, strict=True)):
        assert torch.equal(one, other), number


def meta(*tensors):
    return [
        None if t is None else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1)], ids=str)
def test_sizes_and_strides_are_those_of_the_meta_kernels(calls, order):
    case = Packed()
    q, k, v = (t.permute(order).contiguous().permute([order.index(i) for i in range(3)]) for t in case.tensors)
    cu_q, cu_k, *longest = case.places
    rest = (*longest, 0.0, True, False)
    own = torch.ops.aten._flash_attention_forward(q, k, v, cu_q, cu_k, *rest)
    promised = torch.ops.aten._flash_attention_forward(*meta(q, k, v, cu_q, cu_k), *rest)
    rest = (*longest, 0.0, True)
    own += torch.ops.aten._flash_attention_backward(q, q, k, v, *own[:2], cu_q, cu_k, *rest, *own[2:4])
    promised += torch.ops.aten._flash_attention_backward(
        *meta(q, q, k, v, *own[:2], cu_q, cu_k), *rest, *meta(*own[2:4])
    )
    assert [(t.shape, t.stride(), t.dtype) for t in own] == [(t.shape, t.stride(), t.dtype) for t in promised]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled(calls, backend):
    torch.compiler.reset()
    case = Packed()

    @torch.compile(fullgraph=True, backend=backend)
    def compiled(q, k, v, cu_q, cu_k):
        return varlen_attn(q * 2, k, v, cu_q, cu_k, 33, 33, window_size=(-1, 0)) + 1

    leaves = [t.requires_grad_() for t in case.tensors]
    out = compiled(*leaves, case.cu_q, case.cu_k)
    got = torch.autograd.grad(out, leaves, torch.ones_like(out))
    assert calls == {PACKED_FORWARD: 1, PACKED_BACKWARD: 1}
    doubled = [leaves[0] * 2, *leaves[1:]]
    want = varlen_attn(*doubled, *case.places, window_size=(-1, 0))
    assert torch.equal(out, want + 1)
    for g, w, factor in zip(got, torch.autograd.grad(want, doubled, torch.ones_like(out)), (2, 1, 1), strict=True):
        assert torch.equal(g, factor * w)


def test_opcheck(calls):
    case = Packed()
    operators = torch.ops.torch_attn
    leaves = [t.requires_grad_() for t in case.tensors]
    torch.library.opcheck(operators._varlen_attn, (*leaves, *case.places, True))
    out, lse, state = operators._varlen_attn(*case.tensors, *case.places, True)
    given = (t.detach() for t in (torch.randn_like(out), *case.tensors, out, lse))
    # The backward operator has no derivative, so opcheck does not test autograd.
    parts = ["test_schema", "test_faketensor"]
    torch.library.opcheck(operators._varlen_attn_backward, (*given, *case.places, True, state), test_utils=parts)
    if varlen_attn_out is not None:
        given = (t.detach() for t in (torch.empty_like(out), *case.tensors))
        torch.library.opcheck(operators._varlen_attn_out, (*given, *case.places, True), test_utils=parts)
    assert calls[PACKED_FORWARD] > 1 and calls[PACKED_BACKWARD] > 1


def test_bits_do_not_depend_on_the_batch(calls):
    case = Packed()
    d_out = torch.randn_like(case.tensors[0])

    def results(rows, keys, *places):
        leaves = [t[s].detach().requires_grad_() for t, s in zip(case.tensors, (rows, keys, keys), strict=True)]
        out, lse = varlen_attn(*leaves, *places, window_size=(-1, 0), return_aux=LSE)
        return out, lse.t(), *torch.autograd.grad(out, leaves, d_out[rows])

    together = results(slice(None), slice(None), *case.places)
    for rows, keys in case.sequences():
        lengths = rows.stop - rows.start, keys.stop - keys.start
        alone = results(rows, keys, *(sums([n]) for n in lengths), *lengths)
        for own, whole, part in zip(alone, together, (rows, rows, rows, keys, keys), strict=True):
            assert torch.equal(own, whole[part])


def call(case, *, given=(0.0, True, False), tensors=None, places=None, **keywords):
    return torch.ops.aten._flash_attention_forward(
        *(tensors or case.tensors), *(places or case.places), *given, **keywords
    )


WRONG = {
    "dropout": (lambda c: call(c, given=(0.5, True, False)), "dropout_p=0.5, want 0"),
    "debug mask": (lambda c: call(c, given=(0.0, True, True)), "return_debug_mask=True, want False"),
    "slopes": (lambda c: call(c, alibi_slopes=torch.rand(3)), r"alibi_slopes.shape=\[3\], want \[4\] or \[5, 4\]"),
    "type": (lambda c: call(c, tensors=[t.double() for t in c.tensors]), "query.dtype=torch.float64"),
    "types": (lambda c: call(c, tensors=[c.tensors[0], *(t.half() for t in c.tensors[1:])]), "key.dtype=torch.float16"),
    "sums": (lambda c: call(c, places=(c.cu_q.long(), *c.places[1:])), "cum_seq_q.dtype=torch.int64"),
    "first sum": (lambda c: call(c, places=(c.cu_q + 1, *c.places[1:])), r"cum_seq_q\[0\]=1, want 0"),
    "last sum": (lambda c: call(c, places=(c.cu_q, c.cu_k * 2, *c.places[2:])), r"cum_seq_k\[5\]=120, want at most 60"),
    "numbers of sums": (lambda c: call(c, places=(c.cu_q[:-1], *c.places[1:])), r"cum_seq_k.shape\[0\]=6, want 5"),
    "no sums of keys": (lambda c: call(c, places=(c.cu_q, None, *c.places[2:])), "cum_seq_k=None, want a tensor"),
    "longest": (lambda c: call(c, places=(*c.places[:2], 32, 33)), "max_q=32, want at least 33"),
    "longest keys": (lambda c: call(c, places=(*c.places[:3], 32)), "max_k=32, want at least 33"),
    "keys in use": (
        lambda c: call(c, seqused_k=torch.tensor([9, 4, 14, 1, 33]).int()),
        r"seqused_k\[2\]=14, want 0..13",
    ),
    "scale": (lambda c: call(c, scale=float("inf")), "scale=inf"),
    "heads": (lambda c: call(c, tensors=[c.tensors[0], *(t[:, :3] for t in c.tensors[1:])]), r"key.shape\[1\]=3"),
    "size of values": (
        lambda c: call(c, tensors=[*c.tensors[:2], c.tensors[2][..., :8]]),
        r"value.shape\[2\]=8, want 16",
    ),
    "table": (lambda c: paged(c, torch.zeros(5, 1)), "block_table.dtype=torch.float32"),
    "page": (lambda c: paged(c, torch.full((5, 3), 9).int()), r"block_table\[0\]\[0\]=9, want 0..2"),
    "slopes and pages": (
        lambda c: paged(c, torch.zeros(5, 3).int(), alibi_slopes=torch.rand(N)),
        "alibi_slopes=a tensor, want None, as block_table is given",
    ),
    "capacity": (lambda c: paged(c, torch.zeros(5, 1).int()), r"seqused_k\[4\]=33"),
}


def paged(case, table, **keywords):
    pages = [torch.randn(3, 16, N, D) for _ in range(2)]
    used = torch.tensor(case.lengths_k).int()
    return call(case, tensors=[case.tensors[0], *pages], seqused_k=used, block_table=table, **keywords)


@pytest.mark.parametrize("name", ["alibi_slopes", "seqused_k", "block_table"])
def test_what_the_backward_lacks_has_no_gradient(calls, name):
    case = Packed()
    case.tensors[0].requires_grad_()
    if name == "block_table":
        out = paged(case, torch.zeros(5, 3).int())[0]
    else:
        given = {"alibi_slopes": torch.rand(N), "seqused_k": torch.tensor(case.lengths_k).int()}
        out = call(case, **{name: given[name]})[0]
    with pytest.raises(RuntimeError, match=r"rng_state=\[1, 0\], want zeros: .*" + name):
        out.sum().backward()
    assert calls == {PACKED_FORWARD: 1, PACKED_BACKWARD: 1}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(calls, name):
    wrong, words = WRONG[name]
    with pytest.raises(RuntimeError, match=f"^_flash_attention_forward: .*{words}"):
        wrong(Packed())
    assert calls == {PACKED_FORWARD: 1}


def test_wrong_arguments_of_the_others_are_named(calls, kernels):  # noqa: F811
    case = Packed()
    into = torch.ops.aten._flash_attention_forward_no_dropout_inplace
    backward = torch.ops.aten._flash_attention_backward
    wrong = torch.zeros(70, N, D)
    with pytest.raises(RuntimeError, match=r"out.shape=\[70, 4, 16\], want \[61, 4, 16\]"):
        into(wrong, *case.tensors, *case.places, 0.0, False, False)
    out = torch.full_like(case.tensors[0], 3.0)
    with pytest.raises(RuntimeError, match="out.dtype=torch.float16"):
        into(out.half(), *case.tensors, *case.places, 0.0, False, False)
    with pytest.raises(RuntimeError, match="max_q=2"):
        into(out, *case.tensors, *case.places[:2], 2, 33, 0.0, False, False)
    assert (out == 3).all()
    lse, state = torch.zeros(N, 61), [torch.zeros(size, dtype=torch.uint64) for size in (2, ())]
    with pytest.raises(RuntimeError, match="_flash_attention_backward: .*dropout_p=0.1"):
        backward(out, *case.tensors, out, lse, *case.places, 0.1, False, *state)
    with pytest.raises(RuntimeError, match="_flash_attention_backward: .*logsumexp.shape"):
        backward(out, *case.tensors, out, lse[:, 1:], *case.places, 0.0, False, *state)
    wrong_type, wrong_shape = r"dtype=torch.int64, want torch.uint64", r"shape=\[\], want \[2\]"
    for wrong, words in ((state[0].long(), wrong_type), (state[1], wrong_shape)):
        with pytest.raises(RuntimeError, match=f"_flash_attention_backward: .*rng_state.{words}"):
            backward(out, *case.tensors, out, lse, *case.places, 0.0, False, wrong, state[1])
    whole = [torch.zeros(1, 9, N, D) for _ in range(5)]
    lse, sums_of_keys = torch.zeros(1, N, 9), (None, sums([4]), 9, 9)
    with pytest.raises(RuntimeError, match="_flash_attention_forward: .*cum_seq_k=a tensor, want None, as cum_seq_q"):
        torch.ops.aten._flash_attention_forward(*whole[:3], *sums_of_keys, 0.0, False, False)
    with pytest.raises(RuntimeError, match="_flash_attention_forward_no_dropout_inplace: .*cum_seq_k=a tensor, want"):
        into(whole[3], *whole[:3], *sums_of_keys, 0.0, False, False)
    if kernels == "Python":  # the schema wants a tensor cum_seq_q, and PyTorch's autograd passes an undefined one
        with pytest.raises(RuntimeError, match="_flash_attention_backward: .*cum_seq_k=a tensor, want None"):
            packed.backward(*whole[:5], lse, *sums_of_keys, 0.0, False, *state)


def test_the_quantized_overload_is_refused(calls):
    case = Packed()
    with pytest.raises(RuntimeError, match="_flash_attention_forward.quantized"):
        torch.ops.aten._flash_attention_forward.quantized(
            *case.tensors, *case.places, 0.0, False, False, None, None, None
        )
    assert not calls
