"""Positions of latent attention on CPUs.

vLLM's CPU kernel reads a query [T, N, R] as T * N rows. It rotates the first T rows only, so the tokens that vLLM
generates depend on the batch. The kernel is right for [T, N * R]. Modules that do not call the kernel, such as
DeepSeek's YaRN, are right for [T, N, R] only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.mla import MultiHeadLatentAttentionWrapper
from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding


def every_head(rotary: Any, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Rotates query [T, N, R] and key [T, R] or [T, 1, R] to positions [T]."""
    if isinstance(rotary, RotaryEmbedding):  # its forward_cpu calls the kernel
        rotated, key_rotated = rotary(positions, query.flatten(1), key.flatten(1))
    else:
        rotated, key_rotated = rotary(positions, query, key.reshape(key.shape[0], 1, -1))
    return rotated.view(query.shape), key_rotated.view(key.shape)


class EveryHead(torch.nn.Module):
    """Calls vLLM's rotary module through `every_head`."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return every_head(self.rotary, positions, query, key)


@MultiHeadLatentAttentionWrapper.register_oot
class LatentAttention(MultiHeadLatentAttentionWrapper):
    """Takes the place of vLLM's layer when this module is imported."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.rotary_emb is not None:
            self.rotary_emb = EveryHead(self.rotary_emb)
