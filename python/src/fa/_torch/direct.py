"""scaled_dot_product_attention of plain tensors in eager mode, without PyTorch's dispatcher. This saves much of the
time of tiny calls, which take microseconds.

An operator goes through the dispatcher twice, and its tensors go through DLPack's Python protocol. Both take several
times as long as the computation of a tiny call. The operator is still called for second derivatives, and if anything
but autograd's backward observes calls: a transform, a mode, a tracer, a profiler or a subclass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import Tensor

from .. import _context, _fa
from .._errors import made
from .._fa import Mask
from .._pytorch import unwatched
from .call import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT, EVERY_KEY, Call
from .engine import attend, attend_backward, is_plain, possible, recorded
from .ops import attention_backward
from .padding import is_large, is_same_for_rows, rule_of_padding
from .shapes import fuses_with

_RULES = {
    EVERY_KEY: Mask.none(),
    CAUSAL_TOP_LEFT: Mask.causal_top_left(),
    CAUSAL_BOTTOM_RIGHT: Mask.causal(),
}


def attend_plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor | None:
    """Computes scaled_dot_product_attention of plain tensors [B, N, S, E] with equal B, if nothing observes the call.
    Returns None for other or wrong arguments, and under autocast."""
    if type(is_causal) is not bool or type(enable_gqa) is not bool or torch.is_autocast_enabled("cpu"):
        return None
    if attn_mask is not None:
        return None if is_causal else _attend_with_mask(query, key, value, attn_mask, scale, enable_gqa)
    rule = CAUSAL_TOP_LEFT if is_causal else EVERY_KEY
    options = options_of(False, rule, scale)
    if recorded(query, key, value):
        if not _fa.attends(query, key, value, options, enable_gqa):
            return None
        return _Formula.apply(query, key, value, None, None, rule, scale, query.shape[3] == value.shape[3])
    context = _context.context_of_tensors()
    try:
        return _fa.attend(query, key, value, None, None, None, options, enable_gqa, False, context, "as query")
    except ValueError:  # the general path reports the error with the caller's argument names
        return None


def _attend_with_mask(query, key, value, attn_mask, scale, enable_gqa) -> Tensor | None:
    """Computes attention with a mask. Returns None if a gradient is recorded, because autograd must see how the mask
    broadcasts. Returns None for a padding mask in a large call, because the operator turns it into a rule. Returns None
    for a mask that is not contiguous, because its inverse would take more memory."""
    if not is_plain(attn_mask) or not attn_mask.is_contiguous() or recorded(query, key, value, attn_mask):
        return None
    biased = attn_mask.dtype is not torch.bool
    if not biased and attn_mask.dim() and (not is_plain(query) or is_large(query, attn_mask.shape[-1])):
        if is_same_for_rows(attn_mask):
            return None
    mask = attn_mask if biased else ~attn_mask
    options, context = options_of(biased, EVERY_KEY, scale), _context.context_of_tensors()
    order = "as query" if fuses_with(attn_mask) else "dense"
    try:
        return _fa.attend_masked(query, key, value, mask, options, enable_gqa, order, context)
    except ValueError:
        return None


def attend_directly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dense_mask: Tensor | None,
    pse: Tensor | None,
    rule: int,
    scale: float | None,
    fused: bool,
) -> Tensor:
    """Computes attention [B, N, L, Ev] from the arguments of fa::attention in layout BNSD. `fused` is the result of
    `shapes.fused`."""
    if recorded(query, key, value, pse):
        return _Formula.apply(query, key, value, dense_mask, pse, rule, scale, fused)
    options, dense_mask = _of_mask(dense_mask, pse, rule, scale)
    return attend(query, key, value, dense_mask, pse, None, options, "as query" if fused else "dense", False)


def _of_mask(dense_mask: Tensor | None, pse: Tensor | None, rule: int, scale: float | None) -> tuple:
    """Returns the options and the mask of a forward. If the options express a padding mask as intervals of keys, the
    returned mask is None. The backward does not use this function: with intervals, the order of additions to dQ, and so
    the bits of a sequence, would depend on the other sequences.
    """
    mask = None if dense_mask is None else rule_of_padding(dense_mask, rule)
    if mask is None:
        return options_of(pse is not None, rule, scale), dense_mask
    return _new_options(pse is not None, mask, scale), None


def options_of(biased: bool, rule: int, scale: float | None) -> _fa.AttentionOptions:
    if scale is None or type(scale) is float:
        return _kept_options(biased, rule, scale)
    return _new_options(biased, _RULES[rule], scale)


def _new_options(biased: bool, mask: Mask, scale: float | None) -> _fa.AttentionOptions:
    """Makes the options. A bias is added to the scaled scores."""
    given = {"layout": "BNSD", "scale": scale, "mask": mask, "pse_type": 0 if biased else 1}
    return made(_fa.AttentionOptions, given)


@functools.lru_cache
def _kept_options(biased: bool, rule: int, scale: float | None) -> _fa.AttentionOptions:
    return _new_options(biased, _RULES[rule], scale)


class _Formula(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, dense_mask, pse, rule, scale, fused):
        options, dropped = _of_mask(dense_mask, pse, rule, scale)
        order = "as query" if fused else "dense"
        results = attend(query, key, value, dropped, pse, None, options, order, True)
        ctx.save_for_backward(query, key, value, dense_mask, pse, *results)
        ctx.settings = rule, scale
        ctx.fused = fused
        return results[0]

    @staticmethod
    def backward(ctx, d_out):
        dq, dk, dv, *dpse = _backward(d_out, ctx.saved_tensors, *ctx.settings, ctx.fused, ctx.needs_input_grad[4])
        return dq, dk, dv, None, *(dpse or [None]), None, None, None


def _backward(d_out, tensors, rule, scale, fused, need_dpse) -> Iterable[Tensor]:
    """Returns dq, dk and dv, and with need_dpse also dpse."""
    if torch.is_grad_enabled() or not unwatched():
        return _by_operator(d_out, tensors, rule, scale, need_dpse)
    options = options_of(tensors[4] is not None, rule, scale)
    if not need_dpse:
        gradients = _fa.attend_backward(*tensors, d_out, options, fused, _context.context_of_tensors())
        if gradients is not None:
            return gradients
    if not possible(d_out, *tensors):
        return _by_operator(d_out, tensors, rule, scale, need_dpse)
    return attend_backward((*tensors[:5], None), tensors[5:], d_out, options, fused, need_dpse).values()


def _by_operator(d_out, tensors, rule, scale, need_dpse) -> Iterable[Tensor]:
    query, key, value, dense_mask, pse, out, softmax_max, softmax_sum = tensors
    call = Call.of_rule(rule, "BNSD", scale, pse=pse, dense_mask=dense_mask)
    arguments = (query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, False)
    dq, dk, dv, _, _, dpse, _ = attention_backward(*arguments, *call)
    return (dq, dk, dv, dpse) if need_dpse else (dq, dk, dv)
