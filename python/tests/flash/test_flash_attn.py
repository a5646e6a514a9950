"""The functions of flash_attn 2 in fa.flash_attn, compared with attention by its definition."""

import random
import threading

import fa.flash_attn
import pytest
import torch
from fa.flash_attn import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from flash_cases import check, expected, random_case
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("one_torch_thread")
UNIT = torch.finfo(torch.float32).eps / 2


def of_batch(case, q, k, v, slopes, kept):
    """Returns the function reference(dtype) that `check` takes, for the batch q, k, v."""

    def reference(dtype):
        own = [slopes if slopes is None or slopes.dim() == 1 else slopes[b] for b in range(len(q))]
        drop = [None if kept is None else kept[b] for b in range(len(q))]
        return torch.stack([expected(case, dtype, q[b], k[b], v[b], own[b], drop[b])[0] for b in range(len(q))])

    return reference


def check_statistics(case, q, k, v, slopes, lse, s_dmask):
    """Checks the statistics of one sequence: lse [N, Sq], s_dmask [N, Sq, Sk]."""
    _, want, probabilities = expected(case, torch.float64, q, k, v, slopes, None)
    want = torch.where(want == -torch.inf, torch.inf, want)
    assert torch.equal(torch.isinf(lse), torch.isinf(want))
    bound = 64 * UNIT * (1 + case.d**0.5 * want[torch.isfinite(want)].abs())
    assert ((lse - want)[torch.isfinite(want)].abs() <= bound).all()
    if case.options["dropout_p"] > 0:
        assert s_dmask.dtype == q.dtype
        bound = torch.finfo(q.dtype).eps * probabilities + 1e-5
        assert ((s_dmask.double().abs() - probabilities).abs() <= bound).all()
    else:
        assert s_dmask is None


@pytest.mark.parametrize("seed", range(40))
def test_fixed_lengths(seed):
    case = random_case(seed, same_lengths=True)
    batch, sq, sk = len(case.lengths_q), case.lengths_q[0], case.lengths_k[0]
    form = random.choice(("separate", "kv", "qkv"))
    slopes = case.alibi_slopes(batch)
    options = {**case.options, "alibi_slopes": slopes, "return_attn_probs": True}
    if form == "qkv":
        case.heads_kv, case.dv, sk = case.heads, case.d, sq
        qkv = case.random(batch, sq, 3, case.heads, case.d)
        sources, (q, k, v) = [qkv], qkv.unbind(2)
        out, lse, s_dmask = flash_attn_qkvpacked_func(qkv, **options)
    elif form == "kv":
        case.dv = case.d
        q, kv = case.random(batch, sq, case.heads, case.d), case.random(batch, sk, 2, case.heads_kv, case.d)
        sources, (k, v) = [q, kv], kv.unbind(2)
        out, lse, s_dmask = flash_attn_kvpacked_func(q, kv, **options)
    else:
        q, k = case.random(batch, sq, case.heads, case.d), case.random(batch, sk, case.heads_kv, case.d)
        v = case.random(batch, sk, case.heads_kv, case.dv)
        sources = [q, k, v]
        out, lse, s_dmask = flash_attn_func(q, k, v, **options)
    kept = None if s_dmask is None else ~torch.signbit(s_dmask)
    assert out.dtype == case.dtype and lse.dtype == torch.float32 and lse.shape == (batch, case.heads, sq)
    for b in range(batch):
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
        check_statistics(case, q[b], k[b], v[b], own, lse[b], None if s_dmask is None else s_dmask[b])
    check([out], sources, of_batch(case, q, k, v, slopes, kept), torch.randn_like(out), str(case))


def sums(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


@pytest.mark.parametrize("seed", range(40))
def test_packed_sequences(seed):
    case = random_case(seed, same_lengths=False)
    form = random.choice(("separate", "kv", "qkv"))
    if form == "qkv":
        case.lengths_k = case.lengths_q
    cu_q, cu_k = sums(case.lengths_q), sums(case.lengths_k)
    batch, rest = len(case.lengths_q), random.choice((0, 3))  # the last `rest` rows are in no sequence
    total_q, total_k = int(cu_q[-1]) + rest, int(cu_k[-1]) + rest
    longest_q, longest_k = max(case.lengths_q) + rest, max(case.lengths_k)
    slopes = case.alibi_slopes(batch)
    options = {**case.options, "alibi_slopes": slopes, "return_attn_probs": True}
    if form == "qkv":
        case.heads_kv, case.dv = case.heads, case.d
        qkv = case.random(total_q, 3, case.heads, case.d)
        sources, (q, k, v) = [qkv], qkv.unbind(1)
        out, lse, s_dmask = flash_attn_varlen_qkvpacked_func(qkv, cu_q, longest_q, **options)
        longest_k = longest_q
    elif form == "kv":
        case.dv = case.d
        q, kv = case.random(total_q, case.heads, case.d), case.random(total_k, 2, case.heads_kv, case.d)
        sources, (k, v) = [q, kv], kv.unbind(1)
        lengths = cu_q, cu_k, longest_q, longest_k
        out, lse, s_dmask = flash_attn_varlen_kvpacked_func(q, kv, *lengths, **options)
    else:
        q, k = case.random(total_q, case.heads, case.d), case.random(total_k, case.heads_kv, case.d)
        v = case.random(total_k, case.heads_kv, case.dv)
        sources = [q, k, v]
        out, lse, s_dmask = flash_attn_varlen_func(q, k, v, cu_q, cu_k, longest_q, longest_k, **options)
    assert lse.shape == (case.heads, total_q) and lse.dtype == torch.float32
    assert s_dmask is None or s_dmask.shape == (batch, case.heads, longest_q, longest_k)
    spans = [(*cu_q[b : b + 2].tolist(), *cu_k[b : b + 2].tolist()) for b in range(batch)]

    def of(b, q0, q1, k0, k1):
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
        part = None if s_dmask is None else s_dmask[b, :, : q1 - q0, : k1 - k0]
        return (q[q0:q1], k[k0:k1], v[k0:k1], own), part

    def reference(dtype):
        parts = []
        for b, span in enumerate(spans):
            inputs, part = of(b, *span)
            parts.append(expected(case, dtype, *inputs, None if part is None else ~torch.signbit(part))[0])
        return torch.cat([*parts, torch.zeros(rest if total_q else 0, case.heads, case.dv, dtype=dtype)])

    for b, span in enumerate(spans):
        inputs, part = of(b, *span)
        check_statistics(case, *inputs, lse[:, span[0] : span[1]], part)
        if part is not None:
            padding = s_dmask[b].clone()
            padding[:, : span[1] - span[0], : span[3] - span[2]] = 0
            assert not padding.any()
    assert (lse[:, int(cu_q[-1]) :] == torch.inf).all()
    check([out], sources, reference, torch.randn_like(out), str(case))


def test_dropout_drops_as_often_as_it_says_and_by_pytorchs_generator():
    q, k, v = (torch.randn(2, 256, 4, 16) for _ in range(3))
    torch.manual_seed(3)
    out, _, s_dmask = flash_attn_func(q, k, v, 0.3, return_attn_probs=True)
    pairs = s_dmask.numel()
    # The number of dropped pairs is binomial. The bound is six standard deviations.
    assert abs(torch.signbit(s_dmask).float().mean().item() - 0.3) <= 6 * (0.3 * 0.7 / pairs) ** 0.5
    torch.manual_seed(3)
    assert torch.equal(out, flash_attn_func(q, k, v, 0.3))
    assert not torch.equal(out, flash_attn_func(q, k, v, 0.3))


@pytest.mark.parametrize("slopes", [None, torch.rand(2), torch.rand(0, 2)])
def test_nothing(slopes):
    """Computes calls without sequences, calls without rows, and calls without keys."""
    options = {"alibi_slopes": slopes, "return_attn_probs": True}
    q, k = torch.randn(0, 4, 2, 8, requires_grad=True), torch.randn(0, 5, 2, 8)
    out, lse, s_dmask = flash_attn_func(q, k, k, 0.1, **options)
    assert out.shape == q.shape and lse.shape == (0, 2, 4) and s_dmask.shape == (0, 2, 4, 5)
    rows, cu = torch.randn(3, 2, 8, requires_grad=True), sums([])
    out, lse, s_dmask = flash_attn_varlen_func(rows, rows, rows, cu, cu, 0, 0, 0.1, **options)
    assert not out.any() and (lse == torch.inf).all() and s_dmask.shape == (0, 2, 0, 0)
    assert not torch.autograd.grad(out.sum(), rows)[0].any()
    q, k = torch.randn(2, 3, 2, 8, requires_grad=True), torch.randn(2, 0, 2, 8)
    out, lse, _ = flash_attn_func(q, k, k, return_attn_probs=True)
    assert not out.any() and (lse == torch.inf).all() and not torch.autograd.grad(out.sum(), q)[0].any()


def test_deterministic_and_two_calls_give_the_same_bits():
    q, k, v = (torch.randn(2, 100, 4, 32, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    results = []
    for deterministic in (False, True, True):
        out = flash_attn_func(q, k, v, causal=True, deterministic=deterministic)
        results.append((out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))))
    for first, second, third in zip(*results, strict=True):
        assert torch.equal(first, second) and torch.equal(first, third)


def inputs(sq=12, sk=20, dtype=torch.float32):
    q = torch.randn(2, sq, 4, 16, dtype=dtype, requires_grad=True)
    return q, *(torch.randn(2, sk, 2, 16, dtype=dtype, requires_grad=True) for _ in range(2))


def packed_inputs():
    q = torch.randn(30, 4, 16, requires_grad=True)
    k, v = (torch.randn(41, 2, 16, requires_grad=True) for _ in range(2))
    return q, k, v, sums([10, 0, 20]), sums([11, 7, 23]), 20, 23


CALLS = {
    "fixed": lambda: (lambda q, k, v: flash_attn_func(q, k, v, causal=True, window_size=(5, 0)), inputs()),
    "probabilities": lambda: (
        lambda q, k, v: flash_attn_func(q, k, v, 0.1, alibi_slopes=SLOPES, return_attn_probs=True),
        inputs(),
    ),
    "packed": lambda: (
        lambda *arguments: flash_attn_varlen_func(*arguments, 0.1, alibi_slopes=SLOPES, return_attn_probs=True),
        packed_inputs(),
    ),
}
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.1])


@pytest.mark.parametrize("name", CALLS)
def test_compiled_without_graph_breaks(name):
    call, arguments = CALLS[name]()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    results = []
    for function in (call, compiled):
        torch.manual_seed(5)
        out = function(*arguments)
        out = out if isinstance(out, tuple) else (out,)
        results.append([*out, *torch.autograd.grad(out[0].square().sum(), arguments[:3])])
    for eager, own in zip(*results, strict=True):
        assert torch.equal(eager, own)


@pytest.mark.parametrize("name", CALLS)
def test_checkpoint_repeats_dropout(name):
    call, arguments = CALLS[name]()

    def first(*given):
        out = call(*given)
        return out[0] if isinstance(out, tuple) else out

    results = []
    for run in (first, lambda *given: checkpoint(first, *given, use_reentrant=False)):
        torch.manual_seed(5)
        results.append(torch.autograd.grad(run(*arguments).square().sum(), arguments[:3]))
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again)


def test_inference_mode_and_autocast():
    q, k, v = inputs()
    want = flash_attn_func(q, k, v)
    with torch.inference_mode():
        assert torch.equal(flash_attn_func(q, k, v), want)
    with torch.autocast("cpu", torch.bfloat16):
        out = flash_attn_func(q, k, v)
        assert torch.equal(out, flash_attn_func(q.bfloat16(), k.bfloat16(), v.bfloat16()))
    assert out.dtype == torch.bfloat16
    assert [d.dtype for d in torch.autograd.grad(out.sum(), (q, k, v))] == [torch.float32] * 3


def test_threads():
    q, k, v = inputs()
    want = torch.autograd.grad(flash_attn_func(q, k, v, causal=True).square().sum(), (q, k, v))
    results = [None] * 4

    def run(i):
        results[i] = torch.autograd.grad(flash_attn_func(q, k, v, causal=True).square().sum(), (q, k, v))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert all(torch.equal(own, other) for own, other in zip(result, want, strict=True))


def test_vmap_is_sample_by_sample():
    q, k, v = (t.detach() for t in inputs())
    many = torch.stack([q, q + 1, q * 2])
    call = lambda query: flash_attn_func(query, k, v, causal=True, softcap=3.0)
    assert torch.equal(torch.func.vmap(call)(many), torch.stack([call(one) for one in many]))
    gradient = torch.func.grad(lambda query: call(query).square().sum())
    assert torch.equal(torch.func.vmap(gradient)(many), torch.stack([gradient(one) for one in many]))


def test_second_derivative_is_refused_and_statistics_are_constants():
    q, k, v = inputs()
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    assert not lse.requires_grad
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        dq.sum().backward()


def test_operators_are_as_pytorch_wants_them():
    q, k, v, cu_q, cu_k, longest_q, longest_k = packed_inputs()
    optional = (None, SLOPES, None, torch.tensor([3, 4]), cu_q, cu_k, None, None, longest_q, longest_k)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(
        torch.ops.fa.flash_attention.default, (q, k, v, *optional, None, -1, 0, 0, 0.0, 0.9), test_utils=checks
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"dropout_p": 1.0}, "dropout_p=1.0"),
        ({"dropout_p": -0.1}, "dropout_p=-0.1"),
        ({"softmax_scale": float("nan")}, "softmax_scale=nan"),
        ({"softcap": -1.0}, "softcap=-1.0"),
        ({"window_size": (1, 2, 3)}, "window_size"),
        ({"alibi_slopes": torch.rand(3)}, r"alibi_slopes.shape=\[3\]"),
        ({"alibi_slopes": torch.rand(4).double()}, "alibi_slopes.dtype"),
        ({"q": torch.rand(2, 12, 4)}, "q.shape"),
        ({"q": torch.rand(2, 12, 4, 16).double()}, "q.dtype"),
        ({"k": torch.rand(2, 20, 2, 16).bfloat16()}, "k.dtype"),
        ({"k": torch.rand(2, 20, 2, 8)}, r"k.shape\[3\]=8, want 16 \(q.shape\[3\]\)"),
        ({"k": torch.rand(3, 20, 2, 16)}, r"k.shape\[0\]=3"),
        ({"k": torch.rand(2, 20, 3, 16)}, r"k.shape\[2\]=3, want a divisor of 4"),
        ({"v": torch.rand(2, 21, 2, 16)}, r"v.shape\[1\]=21"),
        ({"v": torch.rand(2, 20, 1, 16)}, r"v.shape\[2\]=1"),
    ],
)
def test_bad_arguments_are_named(wrong, says):
    q, k, v = inputs()
    with pytest.raises(ValueError, match=f"^invalid argument: {says}"):
        flash_attn_func(**{"q": q, "k": k, "v": v, **wrong})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cu_seqlens_q": sums([10, 0, 21])}, r"cu_seqlens_q\[3\]=31, want at most 30"),
        ({"cu_seqlens_k": torch.tensor([1, 2, 3, 4]).int()}, r"cu_seqlens_k\[0\]=1, want 0"),
        ({"cu_seqlens_k": torch.tensor([0, 5, 3, 4]).int()}, r"cu_seqlens_k\[2\]=3, want at least 5"),
        ({"cu_seqlens_k": sums([3, 3])}, r"cu_seqlens_k.shape\[0\]=3, want 4"),
        ({"cu_seqlens_q": sums([10, 0, 20]).long()}, "cu_seqlens_q.dtype"),
        ({"max_seqlen_q": 19}, "max_seqlen_q=19, want at least 20"),
        ({"max_seqlen_k": 22}, "max_seqlen_k=22, want at least 23"),
        ({"k": torch.rand(2, 41, 2, 16)}, "k.shape"),
        ({"alibi_slopes": torch.rand(2, 4)}, "alibi_slopes.shape"),
    ],
)
def test_bad_arguments_of_packed_sequences_are_named(wrong, says):
    names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
    with pytest.raises(ValueError, match=f"^invalid argument: {says}"):
        flash_attn_varlen_func(**{**dict(zip(names, packed_inputs(), strict=True)), **wrong})


def test_errors_name_the_packed_tensor():
    q = torch.rand(2, 12, 4, 16)
    with pytest.raises(ValueError, match=r"^invalid argument: kv.shape\[3\]=3, want a divisor of 4 \(heads of q\)"):
        flash_attn_kvpacked_func(q, torch.rand(2, 20, 2, 3, 16))
    with pytest.raises(ValueError, match=r"^invalid argument: kv.shape\[2\]=3, want 2"):
        flash_attn_kvpacked_func(q, torch.rand(2, 20, 3, 2, 16))
    with pytest.raises(ValueError, match=r"^invalid argument: cu_seqlens\[1\]=13, want at most 12"):
        flash_attn_varlen_qkvpacked_func(torch.rand(12, 3, 4, 16), sums([13]), 13)
    with pytest.raises(ValueError, match=r"^invalid argument: max_seqlen=11, want at least 12"):
        flash_attn_varlen_qkvpacked_func(torch.rand(12, 3, 4, 16), sums([12]), 11)
    with pytest.raises(TypeError, match="^q: want a torch.Tensor"):
        flash_attn_func([1.0], q, q)


def test_what_is_exported():
    assert fa.flash_attn.__version__ == "2.8.4+fa"
    assert all(callable(getattr(fa.flash_attn, name)) for name in fa.flash_attn.__all__ if name != "__version__")
