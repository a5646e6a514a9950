"""The import of fa.xformers adds an operator to xformers, and uninstall removes the operator."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import xformers.ops as xops
from torch.utils.checkpoint import checkpoint
from xformers.ops import common, fmha
from xformers.ops.fmha import dispatch, triton_splitk

import fa.xformers


@pytest.fixture(autouse=True)
def _installed_afterwards():
    yield
    fa.xformers.install()


def small():
    return [torch.randn(1, 5, 2, 8) for _ in range(3)]


def places():
    """Returns all that `install` changes."""
    functions = [
        fmha._dispatch_fw,
        fmha._dispatch_bw,
        dispatch._dispatch_fw,
        dispatch._dispatch_bw,
        fmha._memory_efficient_attention,
        triton_splitk.merge_attentions,
    ]
    lists = fmha.ALL_FW_OPS, fmha.ALL_BW_OPS, common.OPERATORS_REGISTRY
    tables = common.FUNC_TO_XFORMERS_OPERATOR, fmha._OPS_LOOKUP
    kernel = torch._C._dispatch_has_kernel_for_dispatch_key("xformers::fmha_merge_attentions_varargs", "CPU")
    return functions, [list(of) for of in lists], [dict(of) for of in tables], kernel


def test_replaced_and_uninstalled():
    fa.xformers.uninstall()
    before = places()
    assert not before[-1] and fa.xformers.FwOp not in fmha.ALL_FW_OPS
    tensors = small()
    with pytest.raises(NotImplementedError, match="No operator found"):
        xops.memory_efficient_attention(*tensors)
    fa.xformers.install()
    fa.xformers.install()
    assert fmha.ALL_FW_OPS.count(fa.xformers.FwOp) == fmha.ALL_BW_OPS.count(fa.xformers.BwOp) == 1
    out, lse = fmha.memory_efficient_attention_partial(*tensors)
    merged, _ = fmha.merge_attentions([out, out], [lse, lse])
    torch.testing.assert_close(merged, xops.memory_efficient_attention(*tensors))
    fa.xformers.uninstall()
    fa.xformers.uninstall()
    assert places() == before
    with pytest.raises(NotImplementedError, match="No operator found"):
        xops.memory_efficient_attention(*tensors)
    with pytest.raises(NotImplementedError, match="CPU"):
        fmha.merge_attentions([out, out], [lse, lse])


def test_functions_that_other_code_put_there_stay():
    own = fmha._dispatch_fw

    def others(*arguments):
        return own(*arguments)

    fmha._dispatch_fw = others
    fa.xformers.uninstall()
    assert fmha._dispatch_fw is others
    fmha._dispatch_fw = dispatch._dispatch_fw


def test_by_name():
    tensors = small()
    want = xops.memory_efficient_attention(*tensors)
    fa.xformers.uninstall()
    op = fa.xformers.FwOp, fa.xformers.BwOp
    assert torch.equal(xops.memory_efficient_attention(*tensors, op=op), want)
    recorded = [t.requires_grad_() for t in tensors]
    out = xops.memory_efficient_attention(*recorded, op=op)
    assert torch.equal(out, want) and torch.autograd.grad(out.sum(), recorded)[0].shape == out.shape


def test_other_devices_are_not_touched(monkeypatch):
    asked = []

    def choose(*given):
        asked.append(given[0])
        raise LookupError

    for name in ("_choose_forward", "_choose_backward"):
        monkeypatch.setattr(f"fa.xformers._install.{name}", choose)
    meta = fmha.Inputs(*(torch.empty(1, 5, 2, 8, device="meta") for _ in range(3)))
    for function, given in ((fmha._dispatch_fw, (meta, False)), (fmha._dispatch_bw, (meta, None))):
        with pytest.raises(LookupError):
            function(*given)
    assert asked == [meta, meta]
    reasons = fa.xformers.FwOp.not_supported_reasons(meta)
    assert reasons == ["device=meta (supported: {'cpu'})"]


def test_a_padded_lse_is_not_ours():
    bias = fmha.attn_bias.BlockDiagonalMask.from_seqlens([2, 3])
    inp = fmha.Inputs(*small(), attn_bias=bias)
    assert fmha._dispatch_bw(inp, True) is fa.xformers.BwOp
    with pytest.raises(NotImplementedError, match="`faB` is not supported because:\n    LSE is in padded format"):
        fmha._dispatch_bw(inp, False)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(use_reentrant):
    tensors = [t.requires_grad_() for t in small()]
    bias = xops.LowerTriangularMask()
    want = torch.autograd.grad(xops.memory_efficient_attention(*tensors, bias).square().sum(), tensors)
    out = checkpoint(xops.memory_efficient_attention, *tensors, bias, use_reentrant=use_reentrant)
    out.square().sum().backward()
    for t, d in zip(tensors, want, strict=True):
        assert torch.equal(t.grad, d)


@pytest.mark.parametrize("made_inside", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_compiled(packed, made_inside):
    """If the compiled function makes the bias, xformers' own code breaks the graph."""

    def make():
        return fmha.attn_bias.BlockDiagonalCausalMask.from_seqlens([2, 3]) if packed else xops.LowerTriangularMask()

    bias = make()

    def function(*tensors):
        return xops.memory_efficient_attention(*tensors, make() if made_inside else bias).square().sum()

    tensors = [t.requires_grad_() for t in small()]
    want = torch.autograd.grad(function(*tensors), tensors)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=not made_inside)
    got = torch.autograd.grad(compiled(*tensors), tensors)
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


def test_without_xformers():
    program = "import sys; sys.modules['xformers'] = None; import fa.torch; print(1); import fa.xformers"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "1\n" and done.returncode == 1
    hint = "this part of fa needs xformers, which is not installed: pip install 'fa-attention[xformers]'"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {hint}"


def test_fa_imports_it_when_it_is_first_named():
    program = "import sys, fa.torch; assert 'xformers' not in sys.modules; print(fa.xformers.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "fa.xformers\n", done.stderr
