"""The probabilities that return_attn_probs asks for. PyTorch's operators compute them from the inputs and the softmax
statistics. No other part of fa.flash_attn allocates one number per pair."""

from __future__ import annotations

import torch
from torch import Tensor

from .._attention import generate_dropout_mask
from .._context import context_of_tensors
from .._torch import autograd
from .._torch.dropout import unpacked
from .._torch.operators import operator, schema_of
from ._call import FlashCall, logsumexp, pieces_for, runs_for


def _fake(query, key, softmax_max, softmax_sum, *arguments):
    call = FlashCall(*arguments)
    if call.cu_q is None:
        return query.new_empty((query.shape[0], query.shape[2], query.shape[1], key.shape[1]))
    return query.new_empty((call.cu_q.shape[0] - 1, query.shape[1], call.max_q, call.max_k))


@operator(
    f"flash_probabilities(Tensor query, Tensor key, Tensor softmax_max, Tensor softmax_sum, {schema_of(FlashCall)}) "
    "-> Tensor",
    fake=_fake,
    derivative=autograd.constant,
)
def flash_probabilities(query, key, softmax_max, softmax_sum, *arguments):
    """Returns the probabilities in query's type: [B, N, Sq, Sk], or for packed sequences [B, N, max_q, max_k], 0
    outside of a sequence. They are not divided by keep_prob, and those that dropout drops are negative. Needs
    dropout_state."""
    call = FlashCall(*arguments)
    lse = logsumexp(softmax_max, softmax_sum, torch.inf)
    if call.cu_q is None:
        batch, rows, heads, _ = query.shape
        dropped = _dropped(call, 0, batch * heads * rows * key.shape[1])
        dropped = dropped.view(batch, heads, rows, key.shape[1])
        parts = [_signed(query[b], key[b], lse[b], _slopes(call, b), call, dropped[b]) for b in range(batch)]
        return torch.stack(parts) if parts else query.new_empty(dropped.shape)
    pieces, heads = pieces_for(call, query.shape[0], key.shape[0]), query.shape[1]
    result = query.new_zeros((len(pieces), heads, call.max_q, call.max_k))
    for run in runs_for(call, pieces, query.shape[0], key.shape[0]) if pieces else ():
        sizes = [(piece.q_end - piece.q_begin, piece.k_end - piece.k_begin) for piece in run.pieces]
        bits = _dropped(call, run.number, sum(heads * rows * keys for rows, keys in sizes))
        blocks = bits.split([heads * rows * keys for rows, keys in sizes])
        for piece, (rows, keys), block in zip(run.pieces, sizes, blocks, strict=True):
            q, k = query[piece.q_begin : piece.q_end], key[piece.k_begin : piece.k_end]
            own, slopes = lse[:, piece.q_begin : piece.q_end], _slopes(call, piece.owner)
            part = _signed(q, k, own, slopes, call, block.view(heads, rows, keys))
            result[piece.owner, :, :rows, :keys] = part
    return result


def _slopes(call: FlashCall, sequence: int) -> Tensor | None:
    return call.slopes if call.slopes is None or call.slopes.dim() == 1 else call.slopes[sequence]


def _dropped(call: FlashCall, run: int, pairs: int) -> Tensor:
    given = *call.philox(run), call.keep_prob, pairs
    bits = torch.from_numpy(generate_dropout_mask(*given, context=context_of_tensors()))
    return unpacked(bits, pairs) == 0


def _signed(q: Tensor, k: Tensor, lse: Tensor, slopes: Tensor | None, call: FlashCall, dropped: Tensor) -> Tensor:
    """Returns the probabilities [N, Sq, Sk] of one sequence, from q [Sq, N, D], k [Sk, Nkv, D] and lse [N, Sq]."""
    scale = q.shape[-1] ** -0.5 if call.scale is None else call.scale
    keys = k.float().repeat_interleave(q.shape[1] // k.shape[1], 1).permute(1, 2, 0)
    scores = call.capped(q.float().transpose(0, 1) @ keys * scale)
    ahead = torch.arange(k.shape[0]) - torch.arange(q.shape[0])[:, None] - (k.shape[0] - q.shape[0])
    if slopes is not None:
        scores = scores - slopes[:, None, None] * ahead.abs()
    kept = torch.ones_like(ahead, dtype=torch.bool)
    if call.left >= 0:
        kept = kept & (ahead >= -call.left)
    if call.right >= 0:
        kept = kept & (ahead <= call.right)
    probabilities = torch.where(kept, torch.exp(scores - lse[..., None]), 0.0)
    return torch.where(dropped, -probabilities, probabilities).to(q.dtype)
