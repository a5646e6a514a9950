"""PyTorch's scaled_dot_product_attention with fa's kernels in the dispatcher: results, gradients, sizes and strides."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from aten_calls import BACKWARD, FORWARD, calls, kernels  # noqa: F401
from reference import assert_within
from test_sdpa import DTYPES, bounds_of, random_qkv
from test_strides import INPUTS, agree

import fa.torch

attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def gradients(leaves, d_out, *arguments, **keywords):
    out = F.scaled_dot_product_attention(*leaves, *arguments, **keywords)
    return [out, *torch.autograd.grad(out, leaves, d_out)]


def check(calls, tensors, mask=None, **keywords):
    """Compares the output and the gradients with PyTorch's in float64."""
    d_out = torch.randn(tensors[0].shape).to(tensors[0].dtype)
    doubled = mask.double() if mask is not None and mask.is_floating_point() else mask
    want = gradients([t.double().requires_grad_() for t in tensors], d_out.double(), doubled, **keywords)
    calls.clear()
    got = gradients([t.detach().requires_grad_() for t in tensors], d_out, mask, **keywords)
    assert calls == {FORWARD: 1, BACKWARD: 1}
    bounds = bounds_of(*tensors, mask, d_out, **keywords)
    for name, g, w, bound in zip(("out", "dq", "dk", "dv"), got, want, bounds, strict=False):
        assert g.dtype == tensors[0].dtype
        assert_within(g, w, bound, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("sq", "sk"), [(24, 24), (19, 31), (31, 19), (1, 33)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_types_and_lengths(calls, dtype, sq, sk, is_causal):
    check(calls, random_qkv(sq=sq, sk=sk, dtype=dtype), is_causal=is_causal)


@pytest.mark.parametrize("heads_kv", [1, 2])
def test_grouped_heads_and_scale(calls, heads_kv):
    check(calls, random_qkv(heads_kv=heads_kv), enable_gqa=True, scale=0.3)


@pytest.mark.parametrize("shape", [(19, 31), (1, 31), (19, 1), (2, 1, 19, 31), (2, 4, 1, 31), (1, 4, 19, 31)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "float", "query"])
def test_masks(calls, shape, kind):
    tensors = random_qkv(dtype=torch.bfloat16)
    mask = torch.rand(shape) < 0.7
    if kind != "bool":
        mask = torch.randn(shape).masked_fill(~mask, -torch.inf)
    check(calls, tensors, mask.bfloat16() if kind == "query" else mask)


def test_a_mask_whose_columns_lie_apart(calls):
    check(calls, random_qkv(), torch.randn(31, 19).t())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_are_those_of_fa_torch(calls, dtype, masked):
    q, k, v = random_qkv(dtype=dtype)
    mask = torch.randn(19, 31) if masked else None
    assert torch.equal(attend(q, k, v, attn_mask=mask)[0], fa.torch.scaled_dot_product_attention(q, k, v, mask))
    assert calls[FORWARD] == 1


@pytest.mark.parametrize("masked", [False, True])
def test_logsumexp(calls, masked):
    """The bound allows four roundings each for the maximum and the logarithm, and the error of a score. A score is a
    sum of 16 products, whose error is that of `tolerances`.
    """
    q, k, v = random_qkv()
    mask = torch.randn(19, 31).masked_fill(torch.rand(19, 31) < 0.3, -torch.inf) if masked else None
    if masked:
        mask[3] = -torch.inf
    out, lse = attend(q, k, v, attn_mask=mask)
    scores = q.double() @ k.double().transpose(2, 3) / 4 + (0.0 if mask is None else mask.double())
    want = torch.logsumexp(scores, -1)
    sizes = (q.double().abs() @ k.double().abs().transpose(2, 3)).amax(-1) / 4
    bound = 2.0**-24 * ((4 * 16**0.5 + 8) * sizes + 8 + 4 * scores.masked_fill(scores == -torch.inf, 0).abs().amax(-1))
    if masked:
        assert (out[:, :, 3] == 0).all() and (lse[:, :, 3] == 0).all()
        want[:, :, 3] = 0
    assert_within(lse, want, bound)


def test_a_row_without_keys_has_no_gradient(calls):
    q, k, v = (t.requires_grad_() for t in random_qkv())
    mask = torch.zeros(19, 31).index_fill(0, torch.tensor([3]), -torch.inf)
    F.scaled_dot_product_attention(q, k, v, mask).sum().backward()
    assert calls == {FORWARD: 1, BACKWARD: 1}
    assert (q.grad[:, :, 3] == 0).all() and all(torch.isfinite(t.grad).all() for t in (q, k, v))


def is_taken(q, k, v):
    """Returns whether the operator takes these tensors: four dimensions, equal batches, as many key heads as value
    heads, and values with the query's head size.
    """
    if q.dim() != 4 or q.shape[3] != v.shape[3]:
        return False
    return q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]


def as_meta(*tensors):
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]


@pytest.mark.parametrize(
    "name", [name for name, make in INPUTS.items() if is_taken(*make()) and make()[0].shape[3] > 0]
)
@pytest.mark.parametrize("masked", [False, True])
def test_sizes_and_strides_are_those_of_the_meta_kernels(calls, name, masked):
    q, k, v = INPUTS[name]()
    mask = torch.randn(q.shape[2], k.shape[2]) if masked else None
    own = attend(q, k, v, attn_mask=mask)
    for result, promised in zip(own, attend(*as_meta(q, k, v), attn_mask=mask), strict=True):
        agree(result, promised)
    d_out = torch.randn_like(q)
    assert torch.isfinite(own[0]).all()
    results = attend_backward(d_out, q, k, v, *own, 0.0, False, attn_mask=mask)
    promised = attend_backward(*as_meta(d_out, q, k, v, *own), 0.0, False, attn_mask=mask)
    for result, want in zip(results, promised, strict=True):
        agree(result, want)
    assert all(torch.isfinite(t).all() for t in results)
    assert calls == {FORWARD: 1, BACKWARD: 1}


def test_without_rows_or_keys_everything_is_zero(calls):
    q, k, v = random_qkv()
    d_out = torch.randn_like(q)
    for rows, keys in ((0, 31), (19, 0)):
        tensors = q[:, :, :rows], k[:, :, :keys], v[:, :, :keys]
        out, lse = attend(*tensors)
        assert not out.any() and not lse.any() and lse.shape == (2, 4, rows)
        assert not any(t.any() for t in attend_backward(d_out[:, :, :rows], *tensors, out, lse, 0.0, False))
    assert calls == {FORWARD: 2, BACKWARD: 2}


def test_float64_is_pytorchs(calls):
    q, k, v = random_qkv(dtype=torch.float64)
    mask = torch.randn(19, 31, dtype=torch.float64)
    own = attend(q, k, v, 0.0, False, attn_mask=mask, scale=0.2)
    own += attend_backward(q, q, k, v, *own, 0.0, False, attn_mask=mask, scale=0.2)
    assert calls == {FORWARD: 1, BACKWARD: 1}
    fa.torch.deactivate()
    want = attend(q, k, v, 0.0, False, attn_mask=mask, scale=0.2)
    want += attend_backward(q, q, k, v, *want, 0.0, False, attn_mask=mask, scale=0.2)
    assert all(torch.equal(o, w) for o, w in zip(own, want, strict=True))


@pytest.mark.parametrize("masked", [False, True])
def test_heads_above_1024_are_pytorchs(calls, masked):
    tensors = [torch.randn(1, 2, 5, 1025) for _ in range(3)]
    mask = torch.randn(5, 5) if masked else None
    d_out = torch.randn_like(tensors[0])
    own = gradients([t.requires_grad_() for t in tensors], d_out, mask)
    assert calls == {FORWARD: 1, BACKWARD: 1}
    fa.torch.deactivate()
    want = gradients(tensors, d_out, mask)
    assert all(torch.equal(o, w) for o, w in zip(own, want, strict=True))


@pytest.mark.parametrize("first", ["PyTorch", "fa"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_forward_of_one_and_a_backward_of_the_other(calls, first, masked):
    """Runs the forward of PyTorch and the backward of fa, and the reverse. The gradients must stay within the bounds of
    `tolerances`.
    """
    tensors = random_qkv()
    mask = torch.randn(19, 31).masked_fill(torch.rand(19, 31) < 0.3, -torch.inf) if masked else None
    d_out = torch.randn_like(tensors[0])
    double = None if mask is None else mask.double()
    want = gradients([t.double().requires_grad_() for t in tensors], d_out.double(), double)
    calls.clear()
    leaves = [t.detach().requires_grad_() for t in tensors]
    if first == "PyTorch":
        fa.torch.deactivate()
    out = F.scaled_dot_product_attention(*leaves, mask)
    (fa.torch.activate if first == "PyTorch" else fa.torch.deactivate)()
    got = torch.autograd.grad(out, leaves, d_out)
    assert calls == ({BACKWARD: 1} if first == "PyTorch" else {FORWARD: 1})
    for g, w, bound in zip(got, want[1:], bounds_of(*tensors, mask, d_out)[1:], strict=False):
        assert_within(g, w, bound)


WRONG = {
    "dropout": (lambda q, k, v: attend(q, k, v, 0.5), r"dropout_p=0.5, want 0"),
    "bool mask": (lambda q, k, v: attend(q, k, v, attn_mask=torch.ones(19, 31) > 0), r"attn_mask.dtype=torch.bool"),
    "type of mask": (
        lambda q, k, v: attend(q, k, v, attn_mask=torch.ones(19, 31).half()),
        r"attn_mask.dtype=torch.float16",
    ),
    "mask of 3": (lambda q, k, v: attend(q, k, v, attn_mask=torch.ones(4, 19, 31)), r"attn_mask.shape=\[4, 19, 31\]"),
    "size of mask": (lambda q, k, v: attend(q, k, v, attn_mask=torch.ones(18, 31)), r"attn_mask.shape=\[18, 31\]"),
    "dimensions": (lambda q, k, v: attend(q, k[0], v), r"key.shape=\[4, 31, 16\], want 4 dimensions"),
    "types": (lambda q, k, v: attend(q, k, v.half()), r"value.dtype=torch.float16, want torch.float32"),
    "batch": (lambda q, k, v: attend(q, k[:1], v), r"key.shape\[0\]=1, want 2"),
    "size of values": (lambda q, k, v: attend(q, k, v[..., :8]), r"value.shape\[3\]=8, want 16"),
    "heads of values": (lambda q, k, v: attend(q, k, v[:, :2]), r"value.shape\[1\]=2, want 4"),
    "heads": (lambda q, k, v: attend(q, k[:, :3], v[:, :3]), r"key.shape\[1\]=3, want a divisor of 4"),
    "keys": (lambda q, k, v: attend(q, k, v[:, :, :30]), r"value.shape\[2\]=30, want 31"),
    "scale": (lambda q, k, v: attend(q, k, v, scale=float("nan")), r"scale=nan"),
    "logsumexp": (lambda q, k, v: attend_backward(q, q, k, v, q, q[0, 0], 0.0, False), r"logsumexp.shape"),
    "out": (lambda q, k, v: attend_backward(q, q, k, v, k, q[..., 0], 0.0, False), r"out.shape\[2\]=31, want 19"),
    "grad_out": (
        lambda q, k, v: attend_backward(k, q, k, v, q, q[..., 0], 0.0, False),
        r"grad_out.shape\[2\]=31, want 19",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(calls, name):
    call, words = WRONG[name]
    with pytest.raises(RuntimeError, match=f"^_scaled_dot_product_flash_attention_for_cpu(_backward)?: .*{words}"):
        call(*random_qkv())
    assert sum(calls.values()) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_compiled_forward_and_backward(calls, dynamic, grouped):
    torch.compiler.reset()

    @torch.compile(fullgraph=True, dynamic=dynamic)
    def compiled(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True, enable_gqa=grouped) + 1

    for rows in (19, 24):
        tensors = random_qkv(sq=rows, heads_kv=2 if grouped else 4)
        leaves = [t.detach().requires_grad_() for t in tensors]
        d_out = torch.randn_like(tensors[0])
        calls.clear()
        got = torch.autograd.grad(compiled(*leaves), leaves, d_out)
        assert calls == {FORWARD: 1, BACKWARD: 1}
        want = gradients([leaves[0] * 2, *leaves[1:]], d_out, is_causal=True, enable_gqa=grouped)
        for g, w, factor in zip(got, want[1:], (2, 1, 1), strict=True):
            assert torch.equal(g, factor * w)


def test_autocast_inference_mode_and_vmap(calls):
    q, k, v = random_qkv()
    with torch.autocast("cpu", torch.bfloat16):
        out = F.scaled_dot_product_attention(q, k, v)
    assert out.dtype == torch.bfloat16
    want = F.scaled_dot_product_attention(q, k, v)
    with torch.inference_mode():
        assert torch.equal(F.scaled_dot_product_attention(q, k, v), want)
    samples = torch.func.vmap(F.scaled_dot_product_attention)(q[:, None], k[:, None], v[:, None])
    assert torch.equal(samples[:, 0], want)
    assert calls[FORWARD] >= 4


def test_bits_do_not_depend_on_threads_or_batch(calls):
    q, k, v = random_qkv(sq=200, sk=200)
    results = []
    threads = torch.get_num_threads()
    try:
        for number, batch in itertools.product((1, 2, 3), (slice(0, 2), slice(1, 2))):
            torch.set_num_threads(number)
            leaves = [t[batch].detach().requires_grad_() for t in (q, k, v)]
            results.append([t[-1:] for t in gradients(leaves, torch.ones_like(leaves[0]))])
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(torch.equal(t, first) for t, first in zip(result, results[0], strict=True))
    assert calls == {FORWARD: 6, BACKWARD: 6}
