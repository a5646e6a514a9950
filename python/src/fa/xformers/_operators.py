"""The classes that xformers chooses among: they say which inputs `fa` takes, and compute them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Optional

import torch
from torch import Tensor
from xformers.ops.fmha.common import (
    AttentionBwOpBase,
    AttentionFwOpBase,
    AttentionOpBase,
    Context,
    Gradients,
    Inputs,
)

from .._torch.ops import attention, attention_backward
from ._attend import attend, gradients
from ._biases import RULES, tensor_of


class _Op(AttentionOpBase):
    SUPPORTED_DEVICES = {"cpu"}
    SUPPORTED_DTYPES = {torch.float32, torch.bfloat16, torch.float16}
    SUPPORTED_MIN_K = 1
    SUPPORTED_MAX_K = 1024
    SUPPORTED_ATTN_BIAS_TYPES: Iterable[Any] = tuple(RULES)
    SUPPORTS_DROPOUT = True
    SUPPORTS_CUSTOM_SCALE = True
    SUPPORTS_DIFFERENT_VALUE_EMBED = True
    SUPPORTS_OUTPUT_DTYPE = True
    SUPPORTS_PARTIAL = True
    SUPPORTS_BMGHK = True

    @classmethod
    def not_supported_reasons(cls, d: Inputs) -> list[str]:
        """Returns the package's reasons and ours why these inputs are not taken, or an empty list."""
        if isinstance(d.attn_bias, torch.nn.Parameter):  # is as good as a tensor
            d = replace(d, attn_bias=d.attn_bias.detach())
        # The package gives the reason "bf16 is only supported ..." for every device that is not Nvidia's. The reason is
        # wrong for `fa`.
        reasons = [text for text in super().not_supported_reasons(d) if not text.startswith("bf16 is only supported")]
        if d.key.dtype != d.query.dtype:  # keys are packed numbers of 4 bits
            reasons.append(f"dtype={d.key.dtype} (supported: {cls.SUPPORTED_DTYPES})")
        bias = tensor_of(d.attn_bias)
        if bias is not None and bias.dtype not in (d.query.dtype, torch.float32):
            reasons.append(f"attn_bias.dtype={bias.dtype} (supported: {d.query.dtype}, torch.float32)")
        if d.p == 1.0:
            reasons.append("p=1.0 (supported: less than 1)")
        return reasons


class _WithoutGradient(torch.autograd.Function):
    """Returns an output and its lse unchanged. A backward through either raises an error. The package's own functions
    would compute gradients, which would be wrong after a merge, because merges pass no gradient to the lse.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, lse: Tensor, *inputs: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        return out.view_as(out), lse.view_as(lse)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        want = "want memory_efficient_attention, or the functions of xformers.ops.fmha.merge_training"
        raise NotImplementedError(f"fa.xformers: an output that comes with its lse has no gradient, {want}")


class FwOp(_Op, AttentionFwOpBase):
    """Computes the forward on CPUs."""

    OPERATOR = attention
    NAME = "faF"

    @classmethod
    def apply(cls, inp: Inputs, needs_gradient: bool) -> tuple[Tensor, Optional[Context]]:
        """Computes attention. Without needs_gradient, autograd records it if an input requires a gradient."""
        if not needs_gradient:
            return attend(inp, False)
        with torch.no_grad():
            out, context = attend(inp, True)
        assert context is not None
        if context.rng_state is not None:
            context.op_bw = BwOp
        given = inp.query, inp.key, inp.value, tensor_of(inp.attn_bias)
        out, context.lse = _WithoutGradient.apply(out, context.lse, *given)
        return out, context


class BwOp(_Op, AttentionBwOpBase):
    """Computes the gradients of FwOp, and those of other forwards, from the lse."""

    OPERATOR = attention_backward
    NAME = "faB"
    SUPPORTS_ATTN_BIAS_GRAD = True

    @classmethod
    def apply(cls, ctx: Context, inp: Inputs, grad: Tensor) -> Gradients:
        """Computes the gradients from that of the output, `grad`."""
        with torch.no_grad():
            return gradients(ctx, inp, grad)
