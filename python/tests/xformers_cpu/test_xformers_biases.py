"""Each class of attn_bias, forward and backward, against its own `materialize` in float64."""

from __future__ import annotations

import inspect

import biases
import pytest
import torch
import xformers.ops as xops
from biases import CASES, Exact, inputs, materialized
from xformers.ops import fmha

import fa.xformers

TYPES = [torch.float32, torch.bfloat16, torch.float16]
names = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
types = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def exact(bias, query, key, value):
    return Exact(query, key, value, materialized(bias, query.shape[0], query.shape[1], key.shape[1], query.shape[2]))


def test_every_class_of_the_package_is_served():
    of_package = {
        kind
        for _, kind in inspect.getmembers(fmha.attn_bias, inspect.isclass)
        if issubclass(kind, fmha.AttentionBias) and kind is not fmha.AttentionBias
    }
    assert of_package | {type(None), torch.Tensor, torch.nn.Parameter} == set(CASES)
    assert {*fa.xformers.FwOp.SUPPORTED_ATTN_BIAS_TYPES, torch.nn.Parameter} == set(CASES)


@names
@types
def test_forward_and_gradients(kind, dtype):
    case = CASES[kind]
    bias, tensors = case.make(), [t.requires_grad_() for t in inputs(case, dtype)]
    out = xops.memory_efficient_attention(*tensors, attn_bias=bias)
    assert out.dtype == dtype and out.is_contiguous()
    d_out = torch.randn_like(out)
    dq, dk, dv = torch.autograd.grad(out, tensors, d_out)
    exact(bias, *tensors).check(out, d_out, dq=dq, dk=dk, dv=dv)


@names
@types
def test_without_a_gradient(kind, dtype):
    case = CASES[kind]
    bias, tensors = case.make(), inputs(case, dtype)
    out = xops.memory_efficient_attention(*tensors, attn_bias=bias)
    assert out.dtype == dtype and not out.requires_grad
    exact(bias, *tensors).check(out)


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_partial(kind, dtype):
    """The output of the partial call is float32, so 16-bit inputs are computed in float32."""
    case = CASES[kind]
    bias, tensors = case.make(), inputs(case, dtype)
    out, lse = fmha.memory_efficient_attention_partial(*tensors, attn_bias=bias)
    assert out.dtype == torch.float32
    wide = exact(bias, *(t.float() for t in tensors))
    wide.check(out)
    wide.check_lse(lse)


@names
def test_the_backward_from_output_and_lse(kind):
    case = CASES[kind]
    bias, tensors = case.make(), inputs(case)
    out, lse = fmha.memory_efficient_attention_forward_requires_grad(*tensors, attn_bias=bias)
    d_out = torch.randn_like(out)
    dq, dk, dv = fmha.memory_efficient_attention_backward(d_out, out, lse, *tensors, attn_bias=bias)
    exact(bias, *tensors).check(out, d_out, dq=dq, dk=dk, dv=dv)


@names
def test_the_same_bits_for_any_number_of_threads_and_any_strides(kind):
    case = CASES[kind]
    bias, tensors = case.make(), inputs(case)
    lying = [t.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2).requires_grad_() for t in tensors]
    results = []
    for threads, given in ((1, [t.requires_grad_() for t in tensors]), (3, lying)):
        before = fa.set_default_context(fa.Context(threads=threads))
        try:
            out = xops.memory_efficient_attention(*given, attn_bias=bias)
            results.append([out, *torch.autograd.grad(out.square().sum(), given)])
            with torch.no_grad():
                results[-1].append(xops.memory_efficient_attention(*given, attn_bias=bias))
        finally:
            fa.set_default_context(before)
    for one, three in zip(*results, strict=True):
        assert torch.equal(one, three)


@pytest.mark.parametrize(
    "kind", [kind for kind, case in CASES.items() if "Padded" in kind.__name__ or "Gappy" in kind.__name__]
)
def test_keys_that_no_sequence_uses_are_not_read(kind):
    case = CASES[kind]
    bias, (query, key, value) = case.make(), inputs(case)
    used = (materialized(bias, 1, biases.M, case.keys) == 0).any(2)[0, 0]
    want = xops.memory_efficient_attention(query, key, value, attn_bias=bias)
    key[:, ~used], value[:, ~used] = torch.nan, torch.nan
    assert torch.equal(xops.memory_efficient_attention(query, key, value, attn_bias=bias), want)
    tensors = [t.requires_grad_() for t in (query, key, value)]
    out = xops.memory_efficient_attention(*tensors, attn_bias=bias)
    dq, dk, dv = torch.autograd.grad(out.sum(), tensors)
    assert dq.isfinite().all() and (dk[:, ~used] == 0).all() and (dv[:, ~used] == 0).all()
