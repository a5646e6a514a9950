"""Calls that bypass PyTorch's dispatcher give the bits of the operator. If something observes the dispatcher, such as a
mode, the operator is called."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fa.torch_npu as torch_npu
from fa._torch import operators as _torch_operators
from fa._torch import ops as _torch_ops
from fa._torch import sdpa as _torch_sdpa
from fa.torch import scaled_dot_product_attention

B, N, L, S, E = 2, 4, 5, 7, 8


def qkv():
    return [torch.randn(B, N, rows, E) for rows in (L, S, S)]


def run(inputs, mask, d_out, **keywords):
    leaves = [t.detach().requires_grad_() for t in inputs]
    mask = mask if mask is None or mask.dtype == torch.bool else mask.detach().requires_grad_()
    out = scaled_dot_product_attention(*leaves, mask, **keywords)
    sources = leaves if mask is None or mask.dtype == torch.bool else [*leaves, mask]
    with torch.no_grad():
        assert torch.equal(scaled_dot_product_attention(*inputs, mask, **keywords), out)
    return [out, *torch.autograd.grad(out, sources, d_out.expand_as(out))]


CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": lambda: torch.rand(L, S) < 0.7},
    "float": {"attn_mask": lambda: torch.randn(B, 1, L, S)},
    "grouped": {"enable_gqa": True, "scale": 0.3},
}
CHANGES = {
    "dense": lambda t: t,
    "columns": lambda t: t.transpose(-2, -1).contiguous().transpose(-2, -1),  # the innermost stride is 5 or 7
    "rows": lambda t: torch.stack([t, t], -2).flatten(-3, -2)[..., ::2, :],
    "expanded": lambda t: t[:1].expand(B, -1, -1, -1),
    "windows": lambda t: t.flatten(-2).unfold(-1, E, 1)[..., : t.shape[-2], :],  # the last two strides are 1
    "half": lambda t: t.bfloat16(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", CALLS)
def test_the_operator_s_bits(name, change, monkeypatch):
    keywords = dict(CALLS[name])
    mask = keywords.pop("attn_mask", lambda: None)()
    q, k, v = (CHANGES[change](t) for t in qkv())
    if name == "grouped":
        k, v = k[:, :2], v[:, :2]
    d_out = torch.randn(B, N, L, E).to(q.dtype)
    for d_out in (d_out, d_out[:, :, :1, :1]):
        got = run((q, k, v), mask, d_out, **keywords)
        with monkeypatch.context() as patch:
            patch.setattr(_torch_sdpa, "possible", lambda *_: False)
            want = run((q, k, v), mask, d_out, **keywords)
        for g, w in zip(got, want, strict=True):
            assert torch.equal(g, w)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.names.append(function.name())
        return function(*arguments, **(keywords or {}))


def test_who_looks_on_sees_the_operator():
    q, k, v = (t.requires_grad_() for t in qkv())
    with Seen() as mode:
        scaled_dot_product_attention(q, k, v).sum().backward()
    assert {"fa::attention", "fa::attention_backward"} <= set(mode.names)
    out = scaled_dot_product_attention(q, k, v)
    with Seen() as mode:
        out.sum().backward()
    assert "fa::attention_backward" in mode.names
    with torch.profiler.profile() as profile:
        scaled_dot_product_attention(q, k, v)
    assert "fa::attention" in {event.key for event in profile.key_averages()}
    traced = torch.jit.trace(scaled_dot_product_attention, (q, k, v), check_trace=False)
    assert "fa::attention" in str(traced.graph)


def test_the_device_s_face_goes_past_the_dispatcher_in_inference_alone(monkeypatch):
    q, k, v = qkv()
    pse = torch.randn(B, N, L, k.shape[2])

    def call(q, pse):
        return torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", pse=pse, scale=0.5)[:3]

    with Seen() as mode:
        watched = call(q, pse)
    assert "fa::attention" in mode.names
    for given in ((q.clone().requires_grad_(), pse), (q, pse.clone().requires_grad_())):
        recorded = call(*given)
        assert recorded[0].requires_grad and all(map(torch.equal, recorded, watched))
    kernel = _torch_operators._KERNELS[_torch_ops.attention]
    monkeypatch.setattr(_torch_ops, "attention", None)
    monkeypatch.setattr(_torch_operators, "_KERNELS", {None: kernel})
    assert all(map(torch.equal, call(q, pse), watched))


def test_subclasses_see_the_function():
    class Named(torch.Tensor):
        functions = []

        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            cls.functions.append(function)
            return super().__torch_function__(function, types, arguments, keywords or {})

    q, k, v = qkv()
    out = scaled_dot_product_attention(q.as_subclass(Named), k, v)
    assert scaled_dot_product_attention in Named.functions and isinstance(out, Named)
    assert torch.equal(out.as_subclass(torch.Tensor), scaled_dot_product_attention(q, k, v))


def test_a_parameter_is_plain_and_a_changed_input_is_noticed():
    q, k, v = (torch.nn.Parameter(t) for t in qkv())
    out = scaled_dot_product_attention(q, k, v)
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
