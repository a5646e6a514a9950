"""Adds the operators to the package xformers, and takes them out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Optional

import torch
from torch import Tensor
from xformers.ops import common, fmha
from xformers.ops.fmha import dispatch, triton_splitk
from xformers.ops.fmha.common import AttentionBwOpBase, AttentionFwOpBase, AttentionOp, Inputs

from ._merge import merge_into, merge_lists
from ._operators import BwOp, FwOp

_lock = threading.Lock()
_undo = ExitStack()
_choose_forward, _choose_backward = dispatch._dispatch_fw, dispatch._dispatch_bw
_attention, _merge = fmha._memory_efficient_attention, triton_splitk.merge_attentions


def install() -> None:
    """Adds `FwOp` and `BwOp` to xformers. The import of fa.xformers calls this function. A call after `uninstall` adds
    the operators again.
    """
    with _lock, ExitStack() as undo:
        if FwOp in fmha.ALL_FW_OPS:
            return
        for operators, own in ((fmha.ALL_FW_OPS, FwOp), (fmha.ALL_BW_OPS, BwOp)):
            operators.append(own)
            undo.callback(operators.remove, own)
            common.register_operator(own)
            undo.callback(common.OPERATORS_REGISTRY.remove, own)
            undo.callback(common.FUNC_TO_XFORMERS_OPERATOR.pop, own.OPERATOR)
            fmha._OPS_LOOKUP[own.NAME] = own  # torch.compile passes operators by name
            undo.callback(fmha._OPS_LOOKUP.pop, own.NAME)
        for module in (fmha, dispatch):
            _replace(undo, module, "_dispatch_fw", _dispatch_fw)
            _replace(undo, module, "_dispatch_bw", _dispatch_bw)
        _replace(undo, fmha, "_memory_efficient_attention", _memory_efficient_attention)
        _replace(undo, triton_splitk, "merge_attentions", _merge_attentions)
        kernels = [torch.library.Library("xformers", "IMPL")]
        kernels[0].impl("fmha_merge_attentions_varargs", merge_lists, "CPU")
        undo.callback(kernels.clear)  # PyTorch drops the kernel with the last reference to its library
        _undo.push(undo.pop_all())


def uninstall() -> None:
    """Takes the operators out of xformers, which then is as it was before `install`."""
    with _lock:
        _undo.close()


def _replace(undo: ExitStack, module: Any, name: str, own: Callable) -> None:
    """Puts a function into a module until `undo`. If other code has replaced the function in the meantime, `undo` keeps
    that replacement.
    """
    before = getattr(module, name)

    def restore() -> None:
        if getattr(module, name) is own:
            setattr(module, name, before)

    setattr(module, name, own)
    undo.callback(restore)


def _dispatch_fw(inp: Inputs, needs_gradient: bool) -> type[AttentionFwOpBase]:
    if inp.device.type != "cpu":
        return _choose_forward(inp, needs_gradient)
    return dispatch._run_priority_list("memory_efficient_attention_forward", [FwOp], inp)


def _dispatch_bw(inp: Inputs, varlen_lse_packed: Optional[bool]) -> type[AttentionBwOpBase]:
    if inp.device.type != "cpu":
        return _choose_backward(inp, varlen_lse_packed)
    refused = [(BwOp, ["LSE is in padded format"])] if varlen_lse_packed is False else []
    chosen = [] if refused else [BwOp]
    return dispatch._run_priority_list("memory_efficient_attention_backward", chosen, inp, refused)


def _memory_efficient_attention(inp: Inputs, op: Optional[AttentionOp] = None) -> Tensor:
    """Works like the package's function, but calls on CPUs are recorded by the autograd of `fa`. The package's autograd
    function passes only the lse to the backward. If scores are large, the softmax sum cannot be recovered from the lse.
    The package's function has no backward for five dimensions. It also loses output_dtype, and the gradient of a bias
    within an attn_bias object.
    """
    forward, backward = (None, None) if op is None else op
    if inp.device.type == "cpu" and forward in (None, FwOp) and backward in (None, BwOp):
        return fmha._memory_efficient_attention_forward(inp, forward)
    return _attention(inp, op)


def _merge_attentions(attn_out: Tensor, lse_out: Tensor | None, attn_split: Tensor, lse_split: Tensor) -> None:
    merge = merge_into if attn_out.device.type == "cpu" else _merge
    merge(attn_out, lse_out, attn_split, lse_split)
