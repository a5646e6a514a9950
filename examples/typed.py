"""Every interface of the package with its types. `mypy --strict examples/typed.py` finds no errors."""

from typing import Any

import numpy as np
import torch

import fa
import fa.flash_attn
import fa.torch
import fa.torch_npu


def attend(q: np.ndarray[Any, np.dtype[np.float32]]) -> tuple[int, ...]:
    """Computes attention of q [B, N, S, D] to itself, and its gradients. @return the shape of the output"""
    mask: fa.Mask = fa.Mask.band(16, 0)
    context = fa.Context(threads=1)
    output: fa.AttentionOutput = fa.flash_attention(q, q, q, mask=mask, context=context)
    gradients: fa.AttentionGradients = fa.flash_attention_grad(
        q, q, q, output.out, np.ones_like(q), output.softmax_max, output.softmax_sum, mask=mask, context=context
    )
    plan: fa.PlanDescription = fa.plan("forward", q, q, q, mask=mask)
    assert plan.kernels and gradients.dq.shape == q.shape
    shape: tuple[int, ...] = output.out.shape
    return shape


def train(q: torch.Tensor) -> float:
    """Computes attention of q [B, N, S, D] to itself by three interfaces, and the gradient. @return the sum of the
    outputs"""
    by_torch: torch.Tensor = fa.torch.scaled_dot_product_attention(q, q, q, is_causal=True)
    by_flash: torch.Tensor = fa.flash_attn.flash_attn_func(*(q.transpose(1, 2),) * 3, causal=True).transpose(1, 2)
    by_npu: torch.Tensor = fa.torch_npu.npu_fusion_attention(q, q, q, q.shape[1], "BNSD")[0]
    with fa.torch.replace_scaled_dot_product_attention():
        replaced = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert torch.equal(by_torch, by_flash) and torch.equal(by_torch, replaced)
    total = by_torch.sum() + by_npu.sum()
    (gradient,) = torch.autograd.grad(total, q)
    assert gradient.shape == q.shape
    return total.item()


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    print(attend(rng.standard_normal((1, 2, 32, 16), dtype=np.float32)))
    print(train(torch.ones(1, 2, 8, 16, requires_grad=True)))
