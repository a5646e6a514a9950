"""The steps of scaled_dot_product_attention after the check that its arguments are tensors: shapes, types and the
operator."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.nn.functional import pad

from .._errors import ERRORS
from .._fa import PairMask
from .._plan import plan
from .call import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT, EVERY_KEY, Call
from .direct import attend_directly
from .dropout import new_state
from .dtensors import as_everywhere, register_shardings
from .engine import is_plain, possible
from .nested import attend_nested, check_nested
from .ops import attention
from .shapes import (
    AttentionShapes,
    as_bnls,
    as_bnsd,
    as_given,
    broadcast_attention,
    check_broadcasts,
    check_types,
    empty_like,
    fused,
    inverted,
    keys_side_by_side,
    no_elements,
    own_arguments,
)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_state: Tensor | None = None,
    dropout_p: float = 0.0,
    rule: int = EVERY_KEY,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Computes fa.torch.scaled_dot_product_attention. `rule` says which keys a row looks at. If dropout_p is not 0 and
    dropout_state is None, draws a state after it has checked the arguments."""
    query, key, value, attn_mask = autocast(query, key, value, attn_mask)
    check_types(query=query, key=key, value=value, attn_mask=attn_mask)
    if query.is_nested or key.is_nested or value.is_nested:
        return attend_nested(query, key, value, attn_mask, dropout_state, dropout_p, rule, scale, enable_gqa)
    shapes = broadcast_attention(query.shape, key.shape, value.shape, enable_gqa)
    if attn_mask is not None:
        check_broadcasts(attn_mask, shapes)
    dropout_state = new_state(dropout_p) if dropout_state is None else dropout_state
    if shapes.heads == 0 or value.shape[-1] == 0:
        return no_elements((*shapes.scores[:-1], value.shape[-1]), query, key, value, attn_mask)
    if query.shape[-1] == 0:  # without columns all scores are 0
        query, key, scale = pad(query, (0, 1)), pad(key, (0, 1)), 1.0
    if type(query) is not Tensor:
        register_shardings(query, key, value)
        dropout_state = as_everywhere(dropout_state, query)
    dense_mask = pse = None
    if attn_mask is not None:
        mask = as_bnls(attn_mask, shapes)
        dense_mask, pse = (inverted(mask), None) if mask.dtype == torch.bool else (None, keys_side_by_side(mask))
    as_query = fused(query, key, value, attn_mask, dropout_state is not None, enable_gqa)
    query = as_bnsd(query, shapes, shapes.heads)
    key, value = as_bnsd(key, shapes, shapes.heads_kv), as_bnsd(value, shapes, shapes.heads_kv)
    try:
        if dropout_state is None and possible(query, key, value, attn_mask):
            out = attend_directly(query, key, value, dense_mask, pse, rule, scale, as_query)
        else:
            others = {"pse": pse, "dense_mask": dense_mask, "dropout_state": dropout_state}
            out = _by_operator(query, key, value, rule, scale, as_query, keep_prob=1.0 - dropout_p, **others)
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise own_arguments(error) from None
    return as_given(out, shapes)


_NUMBERS = (int, float, np.number, torch.SymInt, torch.SymFloat, Tensor)


def check_arguments(query, key, value, attn_mask, dropout_p, is_causal, scale) -> None:
    """Checks everything except shapes and types."""
    for name, tensor in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "attn_mask"):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
    if not isinstance(is_causal, (int, torch.SymBool)):
        raise TypeError(f"is_causal: want a bool, got {type(is_causal).__name__}")
    for name, number in (("dropout_p", dropout_p), ("scale", scale)):
        if not isinstance(number, _NUMBERS) and not (number is None and name == "scale"):
            raise TypeError(f"{name}: want a number, got {type(number).__name__}")
    if isinstance(attn_mask, CausalBias) and is_causal:
        raise ValueError("invalid argument: attn_mask: given together with is_causal, want one of them")
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"invalid argument: dropout_p={dropout_p}, want at least 0 and less than 1")


def rule_of(mask: CausalBias, query: Tensor, key: Tensor) -> int:
    """Returns the rule that `mask` stands for. Raises ValueError if the mask's sizes are not those of query and key."""
    if mask.variant == CausalVariant.UPPER_LEFT or mask.seq_len_q == mask.seq_len_kv:
        return CAUSAL_TOP_LEFT
    want = [query.shape[-2], key.shape[-2]]
    if [mask.seq_len_q, mask.seq_len_kv] != want:
        raise ValueError(f"invalid argument: attn_mask.shape={[mask.seq_len_q, mask.seq_len_kv]}, want {want}")
    return CAUSAL_BOTTOM_RIGHT


def refusal(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) -> str | None:
    """Returns the text of the error with which fa.torch.scaled_dot_product_attention refuses these arguments, or None
    if it takes them."""
    pairs = attn_mask if isinstance(attn_mask, PairMask) else None
    try:
        attn_mask = None if pairs is not None else attn_mask
        check_arguments(query, key, value, attn_mask, dropout_p, is_causal, scale)
        rule = CAUSAL_TOP_LEFT if is_causal else EVERY_KEY
        if isinstance(attn_mask, CausalBias):
            attn_mask, rule = None, rule_of(attn_mask, query, key)
        if pairs is not None and not all(map(is_plain, (query, key, value))):
            return "invalid argument: query, key, value: want plain CPU tensors (with a fa.PairMask)"
        nested = any(t.is_nested for t in (query, key, value))
        kinds = (query, key, value, attn_mask)
        if not nested:  # an empty tensor has the type that autocast gives, and costs no copy
            kinds = autocast(*(None if t is None else t.new_empty(0) for t in kinds))
        check_types(*kinds)
        if nested:
            check_nested(query, key, value, attn_mask, rule)
        else:
            shapes = broadcast_attention(query.shape, key.shape, value.shape, enable_gqa)
            if attn_mask is not None:
                check_broadcasts(attn_mask, shapes)
            if pairs is not None:
                _check_pairs(pairs, shapes)
        size, size_v = query.shape[-1], value.shape[-1]
        if size > 0 and size_v > 0:
            number = scale.item() if isinstance(scale, Tensor) else scale
            plan("forward", (1, 1, 1, size), (1, 1, 1, size), (1, 1, 1, size_v), scale=number)
    except (TypeError, ValueError) as error:
        return str(own_arguments(error) if hasattr(error, "parts") else error)
    return None


def _check_pairs(pairs: PairMask, shapes: AttentionShapes) -> None:
    """Raises ValueError if the shape of a PairMask does not fit the call."""
    *leading, rows, keys = shapes.scores
    batch = math.prod(leading[:-1])
    wanted = {batch, 1}, {shapes.heads, shapes.heads_kv, 1}, {rows, 1}, {keys}
    for axis, (size, sizes) in enumerate(zip(pairs.shape, wanted, strict=True)):
        if size not in sizes:
            raise ValueError(f"invalid argument: attn_mask.shape[{axis}]={size}, want {max(sizes)}")


def _by_operator(query, key, value, rule, scale, as_query, **others) -> Tensor:
    if not as_query or query.stride(1) >= query.stride(2):
        out = attention(query, key, value, *Call.of_rule(rule, "BNSD", scale, **others))[0]
    else:
        by_row = (t.transpose(1, 2) for t in (query, key, value))
        out = attention(*by_row, *Call.of_rule(rule, "BSND", scale, **others))[0].transpose(1, 2)
    if not as_query:
        return out
    want = empty_like(query)
    return out if out.stride() == want.stride() else want.copy_(out)


def autocast(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Returns the tensors in the type of autocast, as PyTorch's own function does. A float32 mask stays float32."""
    if not torch.is_autocast_enabled("cpu"):
        return query, key, value, attn_mask
    dtype = torch.get_autocast_dtype("cpu")
    sixteen_bits = (torch.float16, torch.bfloat16)
    query, key, value = (t.to(dtype) if t.dtype in (torch.float32, *sixteen_bits) else t for t in (query, key, value))
    if attn_mask is not None and attn_mask.dtype in sixteen_bits:
        attn_mask = attn_mask.to(dtype)
    return query, key, value, attn_mask
