"""Attention of Hugging Face models by `fa`: `import fa.transformers` registers it as "fa".

    import fa.transformers
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fa")

It registers an attention function and a mask function (transformers 5's AttentionInterface and AttentionMaskInterface).
Masks stay rules: causal ones, windows, chunks, packed sequences and padding at either end of a sequence reach the engine
as an interval of keys per query row. Other masks are tensors, as "sdpa" has them.
"""

from __future__ import annotations

from . import _needs_transformers  # noqa: F401  # isort: skip
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import logging

from ._model import pages as _model_pages
from ._model.masks import mask_of_model
from ._model.ops import ModelCall, model_attention, rows_of_sequences
from ._torch.dropout import new_state
from ._torch.shapes import keys_side_by_side

__all__ = ["NAME", "attention_forward", "mask_of_model"]

NAME = "fa"
_COPY = "_fa_keys_side_by_side"
_logger = logging.get_logger("transformers.fa")


def attention_forward(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    cache: Any = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention of a layer, as transformers calls it.

    Args:
        query: [B, N, Sq, D]; float32, bfloat16 or float16. key, value: [B, Nkv, Sk, D] and [B, Nkv, Sk, Dv], N a multiple
            of Nkv.
        attention_mask: what `mask_of_model` made: None, int32 [B, 1, Sq, 2] (intervals of keys), or bool [B, 1, Sq, Sk]
            (True = look at the key); or the caller's own: float, added to the scores. The last dimension of a tensor of
            scores may be longer than Sk.
        scaling: None: 1 / sqrt(D).
        is_causal: None: the module's. It counts where there is no mask and more than one row: j <= i.
        softcap: c turns scaled scores s into c * tanh(s / c), before masks and biases.
        s_aux: [N], sinks: a key of that score and value 0.
        position_bias: [B|1, N|1, Sq, Sk], added to the scores. It may require a gradient.
        cu_seq_lens_q, cu_seq_lens_k: prefix sums with a leading 0 of packed sequences, B = 1. They count where there is
            no mask; so does sliding_window then.
        cache: a PagedAttentionCache, of continuous batching: the tokens of all requests are one sequence here, and the
            other arguments say which is whose.

    Returns:
        [B, Sq, N, Dv], and no weights.

    Raises:
        ValueError: an argument is wrong; the message names it.
    """
    if others.get("output_attentions"):
        _logger.warning_once('"fa" returns no attention weights; attn_implementation="eager" does')
    query, key, value = _autocast(query, key, value)
    sink = None if s_aux is None else s_aux.reshape(-1).float()
    if cache is not None:
        batch = others | {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k}
        call = ModelCall(sink=sink, scale=scaling, softcap=softcap or 0.0)
        return _model_pages.attend_pages(module.layer_idx, query, key, value, cache, call, batch), None
    rows = dense_mask = bias = None
    causal = module.is_causal if is_causal is None else is_causal
    if attention_mask is None:
        if cu_seq_lens_q is not None and query.shape[0] == 1:
            ends_k = cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
            rows = rows_of_sequences(cu_seq_lens_q, ends_k, query.shape[2], causal, sliding_window)
    elif attention_mask.dtype == torch.int32:
        rows = attention_mask
    elif attention_mask.dtype == torch.bool:
        dense_mask = attention_mask[..., : key.shape[2]]
    else:
        bias = _bias(attention_mask, query, key)
    if position_bias is not None:
        position_bias = _position_bias(position_bias, query, key)
        bias = position_bias if bias is None else bias + position_bias
    call = ModelCall(
        rows=rows,
        dense_mask=_of_batch(dense_mask, query),
        pse=None if bias is None else bias.expand(-1, query.shape[1], query.shape[2], -1),
        sink=sink,
        dropout_state=new_state(dropout),
        statistics=torch.is_grad_enabled() and _requires_grad(query, key, value, bias, sink),
        is_causal=attention_mask is None and rows is None and causal and query.shape[2] > 1,
        scale=scaling,
        softcap=softcap or 0.0,
        keep_prob=1.0 - dropout,
    )
    return model_attention(query, key, value, call), None


def _requires_grad(*tensors: Tensor | None) -> bool:
    return any(t is not None and t.requires_grad for t in tensors)


def _bias(bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask of the keys that there are, in a type that the operator takes together with the query's."""
    bias = bias[..., : key.shape[2]]
    return bias if bias.dtype in (query.dtype, torch.float32) else bias.to(query.dtype)


def _position_bias(position_bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """As _bias, with keys side by side. Layers share one tensor, so a copy is kept with it; not where gradients are recorded,
    since checkpoints compute layers again one by one."""
    bias = _bias(position_bias, query, key)
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or position_bias.is_inference():
        return keys_side_by_side(bias)
    copied = getattr(position_bias, _COPY, None)
    of = (position_bias._version, bias.shape, bias.dtype)
    if copied is None or copied[0] != of:
        copied = of, keys_side_by_side(bias)
        if copied[1] is not bias:
            setattr(position_bias, _COPY, copied)
    return copied[1]


def _of_batch(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """[B, 1|N, Sq, Sk] of [B|1, 1|N, Sq|1, Sk]."""
    return None if mask is None else mask.expand(query.shape[0], mask.shape[1], query.shape[2], mask.shape[3])


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under autocast, PyTorch's own function computes in its type."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) for t in tensors)


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask_of_model)
_model_pages.accept(NAME)
