"""Sparse attention, the indexer and its loss, computed in torch by their definitions. Their gradients are those of
autograd.

For every token and key, `counts` says how often the token's list names the key. Attention over the listed keys is dense
attention with the bias ln(count).
"""

from __future__ import annotations

import torch
from torch import Tensor


def counts(indices: Tensor, keys: int, *, block_size: int = 1, causal: bool = True) -> Tensor:
    """Returns, for sparse_indices [B,S1,1,K], how often each list names each key: [B,S1,keys]."""
    batch, rows, _, slots = indices.shape
    result = torch.zeros(batch, rows, keys, dtype=torch.float64)
    for b in range(batch):
        for t in range(rows):
            limit = keys - rows + t + 1 if causal else keys
            for slot in range(min(slots, max(0, -(-limit // block_size)))):
                block = int(indices[b, t, 0, slot])
                if block == -1:
                    break
                result[b, t, block * block_size : max(0, min((block + 1) * block_size, limit))] += 1
    return result


def indexer_scores(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """Returns the indexer's scores [B,S1,S2] in the type of q."""
    return torch.einsum("bthd,bsd,bth->bths", q, k[:, :, 0], torch.ones_like(weights)).relu().mul(
        weights.unsqueeze(-1)
    ).sum(2)


def indexer_size(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """Returns, per score [B,S1,S2], the sum of the magnitudes of its terms."""
    return torch.einsum("bthd,bsd,bth->bts", q.abs(), k[:, :, 0].abs(), weights.abs())


def kl_loss(p: Tensor, scores: Tensor, count: Tensor) -> Tensor:
    """Returns the sum of p ln(p / softmax(scores)) over the selected pairs. p [B,S1,S2] is the target, which has no
    gradient."""
    selected = count > 0
    log_y = torch.log_softmax(torch.where(selected, scores, -torch.inf), -1)
    log_y = torch.where(selected, log_y, 0.0)
    log_p = p.clamp_min(1e-8).log()
    return (selected * p.clamp_min(1e-8) * (log_p - log_y.clamp_min(torch.tensor(1e-8).log().item()))).sum()
