"""Attention of PyTorch's tensors with a `fa.PairMask`, forward and backward.

A PairMask is no tensor, so it does not pass through the operators of `fa`. The calls here go to the extension, inside a
function of autograd. torch.compile leaves them out of its graphs, and transforms such as vmap are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _fa
from .._errors import ERRORS, made
from .._fa import Mask, PairMask
from .call import UNSIGNED_64
from .dropout import new_state
from .engine import attend, attend_backward, is_plain
from .sdpa import autocast
from .shapes import as_bnsd, as_given, broadcast_attention, check_types, fused, no_elements, own_arguments


def attend_pairs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pairs: PairMask,
    options: _fa.AttentionOptions,
    *,
    pse: Tensor | None = None,
    sink: Tensor | None = None,
    order: str = "dense",
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes attention in layout BNSD, with gradients of query, key, value, pse and sink.

    Args:
        options: options of layout BNSD. A pair is kept if both options.mask and `pairs` keep it. Errors use the
            library's argument names.
        order: the memory order of the output; `_fa.pyi` explains it.

    Returns:
        The output, and softmax_max and softmax_sum [B, N, Sq], which have no gradient.

    Raises:
        ValueError: an argument is wrong, or a tensor is not plain, as under vmap.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value), ("pse", pse), ("sink", sink)):
        if tensor is not None and not is_plain(tensor):
            kind = type(tensor).__name__
            raise ValueError(f"invalid argument: {name}: want a plain CPU tensor (with a fa.PairMask), got {kind}")
    return _Pairs.apply(query, key, value, pse, sink, pairs, options, order)


class _Pairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, pse, sink, pairs, options, order):
        results = attend(query, key, value, pairs, pse, sink, options, order, True)
        ctx.save_for_backward(query, key, value, pse, sink, *results)
        ctx.settings = pairs, options, order
        ctx.mark_non_differentiable(*results[1:])
        return results

    @staticmethod
    def backward(ctx, d_out, *_):
        if torch.is_grad_enabled():
            raise NotImplementedError("with a fa.PairMask there is no second derivative")
        query, key, value, pse, sink, *results = ctx.saved_tensors
        pairs, options, order = ctx.settings
        inputs = query, key, value, pairs, pse, sink
        need_dpse, need_dsink = ctx.needs_input_grad[3:5]
        by_row = order != "dense"
        found = attend_backward(inputs, tuple(results), d_out, options, by_row, need_dpse, need_dsink)
        return *(found.get(name) for name in ("dq", "dk", "dv", "dpse", "dsink")), None, None, None


@torch.compiler.disable
def scaled_dot_product_attention_of_pairs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: PairMask,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Computes fa.torch.scaled_dot_product_attention of checked arguments with a PairMask."""
    query, key, value, _ = autocast(query, key, value, None)
    check_types(query, key, value, None)
    shapes = broadcast_attention(query.shape, key.shape, value.shape, enable_gqa)
    if shapes.heads == 0 or value.shape[-1] == 0:
        return no_elements((*shapes.scores[:-1], value.shape[-1]), query, key, value)
    as_query = fused(query, key, value, None, dropout_p > 0.0, enable_gqa)
    query = as_bnsd(query, shapes, shapes.heads)
    key, value = as_bnsd(key, shapes, shapes.heads_kv), as_bnsd(value, shapes, shapes.heads_kv)
    given: dict[str, Any] = {"layout": "BNSD", "scale": scale, "pse_type": 1}
    given["mask"] = Mask.causal_top_left() if is_causal else Mask.none()
    state = new_state(dropout_p)
    if state is not None:
        seed, offset = (number & UNSIGNED_64 for number in state.tolist())
        given |= {"keep_prob": 1.0 - dropout_p, "seed": seed, "offset": offset}
    try:
        options = made(_fa.AttentionOptions, given)
        out, *_ = attend_pairs(query, key, value, attn_mask, options, order="as query" if as_query else "dense")
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise own_arguments(error) from None
    return as_given(out, shapes)
