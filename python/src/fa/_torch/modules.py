"""A multi_head_attention_forward for torch.nn.functional. fa computes its output even if the caller wants weights.

PyTorch's own function calls scaled_dot_product_attention only if the caller wants no weights.
"""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from torch import Tensor

from .._pytorch import canonical_mask, in_projection, in_projection_packed, mha_shape_check, none_or_dtype
from .dropout import dropout_bits, new_state, unpacked
from .sdpa import attend
from .shapes import check_types

replaced = F.multi_head_attention_forward  # PyTorch's function, before it is replaced
_PARAMETERS = inspect.signature(replaced).parameters.values()
_NAMES = tuple(p.name for p in _PARAMETERS)
_DEFAULTS = {p.name: p.default for p in _PARAMETERS if p.default is not p.empty}


def multi_head_attention_forward(*arguments, **keywords) -> tuple[Tensor, Tensor | None]:
    """Computes multi-head attention with the arguments and results of PyTorch's function: the output [L, B, E], or [L,
    E] without a batch, and the weights after dropout. Weights are [B, N, L, S], or [B, L, S] if averaged over the
    heads. Without a batch they lack B. If a row looks at no key, its weights are 0."""
    given = {**_DEFAULTS, **dict(zip(_NAMES, arguments, strict=False)), **keywords}
    static = given.get("static_k") is not None or given.get("static_v") is not None
    # is_causal without a mask is an error, which PyTorch's function reports.
    causal_without_mask = given["is_causal"] and given["attn_mask"] is None
    overridden = torch.overrides.has_torch_function(tuple(given.values()))
    if not given["need_weights"] or static or causal_without_mask or overridden:
        return replaced(*arguments, **keywords)
    return _with_weights(**given)


def _with_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    dropout_p: float,
    training: bool,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    average_attn_weights: bool,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    **projection,
) -> tuple[Tensor, Tensor]:
    batched = mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    check_types(query=query, key=query, value=query, attn_mask=None)
    mask = _merged_mask(query, key, num_heads, key_padding_mask, attn_mask)
    q, k, v, added = _projected(query, key, value, **projection)
    mask = mask if mask is None or added == 0 else F.pad(mask, (0, added))
    q, k, v = (t.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for t in (q, k, v))
    dropout_p = dropout_p if training else 0.0
    state = new_state(dropout_p)
    out = attend(q, k, v, mask, state, dropout_p).permute(2, 0, 1, 3).flatten(-2)
    out = F.linear(out, out_proj_weight, out_proj_bias)
    weights = _weights(q, k, mask, state, dropout_p)
    weights = weights.mean(1) if average_attn_weights else weights
    return (out, weights) if batched else (out.squeeze(1), weights.squeeze(0))


def _merged_mask(query, key, num_heads, key_padding_mask, attn_mask) -> Tensor | None:
    """Returns key_padding_mask and attn_mask as one mask [B|1, N|1, L|1, S] that is added to the scores."""
    rows, batch, _ = query.shape
    keys = key.shape[0]
    padding = canonical_mask(
        mask=key_padding_mask,
        mask_name="key_padding_mask",
        other_type=none_or_dtype(attn_mask),
        other_name="attn_mask",
        target_type=query.dtype,
    )
    mask = canonical_mask(
        mask=attn_mask,
        mask_name="attn_mask",
        other_type=None,
        other_name="",
        target_type=query.dtype,
        check_other=False,
    )
    if mask is not None:
        want = (rows, keys) if mask.dim() == 2 else (batch * num_heads, rows, keys)
        if tuple(mask.shape) != want:
            raise ValueError(f"invalid argument: attn_mask.shape={list(mask.shape)}, want {list(want)}")
        mask = mask[None, None] if mask.dim() == 2 else mask.unflatten(0, (batch, num_heads))
    if padding is None:
        return mask
    if tuple(padding.shape) != (batch, keys):
        raise ValueError(f"invalid argument: key_padding_mask.shape={list(padding.shape)}, want {[batch, keys]}")
    padding = padding[:, None, None]
    return padding if mask is None else mask + padding


def _projected(
    query,
    key,
    value,
    *,
    embed_dim_to_check,
    in_proj_weight,
    in_proj_bias,
    use_separate_proj_weight,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    bias_k,
    bias_v,
    add_zero_attn,
    **_,
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Returns q, k and v as [rows, B, E], and how many keys bias_k and add_zero_attn have added to the given keys."""
    if query.shape[-1] != embed_dim_to_check:
        raise ValueError(f"invalid argument: query.shape[-1]={query.shape[-1]}, want {embed_dim_to_check}")
    if use_separate_proj_weight:
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = in_projection(query, key, value, q_proj_weight, k_proj_weight, v_proj_weight, *biases)
    else:
        q, k, v = in_projection_packed(query, key, value, in_proj_weight, in_proj_bias)
    given = k.shape[0]
    if bias_k is not None:
        k, v = (torch.cat([t, b.to(t.dtype).expand(1, t.shape[1], -1)]) for t, b in ((k, bias_k), (v, bias_v)))
    if add_zero_attn:
        k, v = (F.pad(t, (0, 0, 0, 0, 0, 1)) for t in (k, v))
    return q, k, v, k.shape[0] - given


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, state: Tensor | None, dropout_p: float) -> Tensor:
    """Returns the attention weights [B, N, L, S] in query's type."""
    scores = query.float() @ key.float().transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
        nothing = torch.isneginf(mask).all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    else:
        weights = torch.softmax(scores, -1)
    if state is not None:
        pairs = weights.numel()
        keep = unpacked(dropout_bits(state, 1.0 - dropout_p, pairs), pairs).view(weights.shape)
        weights = weights * keep / (1.0 - dropout_p)
    return weights.to(query.dtype)
