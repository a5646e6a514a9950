"""Attention of Hugging Face models by `fa`: `import fa.transformers` registers it as "fa".

    import fa.transformers
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fa")

It registers an attention function and a mask function (transformers 5's AttentionInterface and AttentionMaskInterface).
Masks stay rules: causal ones, windows, chunks, packed sequences and padding at either end of a sequence reach the engine
as an interval of keys per query row. Other masks are tensors. A model takes either for the mask that "eager" has.
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
from ._model import support as _model_support
from ._model.calls import count, report
from ._model.masks import mask_of_model
from ._model.model_mask import ModelMask
from ._model.ops import ModelCall, inside, model_attention, rows_of_sequences
from ._pytorch import version_of
from ._torch.dropout import new_state
from ._torch.shapes import keys_side_by_side

__all__ = ["NAME", "attention_forward", "mask_of_model", "report"]

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
    """Computes the attention of a layer, as transformers calls it.

    Args:
        query: [B, N, Sq, D]; float32, bfloat16 or float16. key, value: [B, Nkv, Sk, D] and [B, Nkv, Sk, Dv], N a multiple
            of Nkv.
        attention_mask: None; what `mask_of_model` made; or a tensor that broadcasts to [B, N, Sq, Sk]: bool (True = look
            at the key) or float, added to the scores. Its last dimension may be longer than Sk.
        scaling: None means 1 / sqrt(D).
        is_causal: whether row i looks only at keys j <= i. None takes the module's value, or True if the module has
            none. It counts only without a mask and with more than one row.
        softcap: c turns scaled scores s into c * tanh(s / c), before masks and biases.
        s_aux: [N], sinks: the score of a virtual key whose value is 0.
        position_bias: [B|1, N|1, Sq, Sk], added to the scores. It may require a gradient.
        cu_seq_lens_q, cu_seq_lens_k: prefix sums with a leading 0 of packed sequences, B = 1. They count if the caller
            passed no mask. sliding_window counts if there is no mask at all.
        cache: a PagedAttentionCache of continuous batching. The tokens of all requests are then one sequence, and the
            other arguments say which request has which tokens.

    Returns:
        [B, Sq, N, Dv], and no weights.

    Raises:
        ValueError: an argument is wrong, or a keyword that is not known may change the result; the message names it.
        TypeError: a tensor or a number is something else.
    """
    _model_support.check_keywords(module, others)
    _model_support.check_types(
        {"dropout": dropout, "scaling": scaling, "softcap": softcap, "sliding_window": sliding_window},
        {"query": query, "key": key, "value": value, "attention_mask": attention_mask, "s_aux": s_aux}
        | {"position_bias": position_bias, "cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k},
    )
    count(module)
    if others.get("output_attentions"):
        _logger.warning_once('"fa" returns no attention weights; attn_implementation="eager" does')
    query, key, value = _autocast(query, key, value)
    sink = None if s_aux is None else s_aux.reshape(-1).float()
    if cache is not None:
        batch = others | {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k}
        call = ModelCall(sink=sink, scale=scaling, softcap=softcap or 0.0)
        return _model_pages.attend_pages(module.layer_idx, query, key, value, cache, call, batch), None
    rows = dense_mask = bias = None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    packed = cu_seq_lens_q is not None and query.shape[0] == 1
    ends = cu_seq_lens_q, cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
    if attention_mask is None:
        rows = rows_of_sequences(*ends, query.shape[2], causal, sliding_window) if packed else None
    elif isinstance(attention_mask, ModelMask):
        held = attention_mask.of_layer(query, key)
        rows, dense_mask = (None, held) if held.dtype == torch.bool else (held, None)
        if packed and rows is not None:
            rows = inside(rows, *rows_of_sequences(*ends, query.shape[2], False, None).unbind(-1))
    elif attention_mask.dtype == torch.bool:
        dense_mask = _scores(attention_mask, "attention_mask", query, key)
    else:
        bias = _bias(attention_mask, "attention_mask", query, key)
    if position_bias is not None:
        position_bias = _position_bias(position_bias, query, key)
        bias = position_bias if bias is None else bias + position_bias
    call = ModelCall(
        rows=rows,
        dense_mask=None if dense_mask is None else dense_mask.expand(query.shape[0], -1, query.shape[2], -1),
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


def _scores(given: Tensor, name: str, query: Tensor, key: Tensor) -> Tensor:
    """Returns [B|1, N|1, Sq|1, Sk] from a tensor that broadcasts to the scores and may have more keys.

    Raises:
        ValueError: the tensor does not broadcast.
    """
    want = [query.shape[0], query.shape[1], query.shape[2], key.shape[2]]
    whole = given[(None,) * (4 - given.dim())][..., : want[3]]
    fits = whole.dim() == 4 and all(size in (1, wanted) for size, wanted in zip(whole.shape, want, strict=True))
    if not fits:
        raise ValueError(f"invalid argument: {name}.shape={list(given.shape)}, want {want} (query and key)")
    return whole.expand(-1, -1, -1, want[3])


def _bias(bias: Tensor, name: str, query: Tensor, key: Tensor) -> Tensor:
    """Returns a bias that is added to the scores, in a type that the operator takes together with the query's."""
    if not bias.is_floating_point():
        raise ValueError(f"invalid argument: {name}.dtype={bias.dtype}, want bool or a floating type")
    bias = _scores(bias, name, query, key)
    return bias if bias.dtype in (query.dtype, torch.float32) else bias.to(query.dtype)


def _position_bias(position_bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Works like _bias, with keys side by side in memory. Layers share one bias tensor, so the copy is kept with this
    tensor. No copy is kept where gradients are recorded, because checkpoints compute single layers again."""
    bias = _bias(position_bias, "position_bias", query, key)
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or position_bias.is_inference():
        return keys_side_by_side(bias)
    copied = getattr(position_bias, _COPY, None)
    of = (version_of(position_bias), bias.shape, bias.dtype)
    if copied is None or copied[0] != of:
        copied = of, keys_side_by_side(bias)
        if copied[1] is not bias:
            setattr(position_bias, _COPY, copied)
    return copied[1]


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Returns the tensors in the type of autocast, in which PyTorch's own function computes."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) for t in tensors)


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask_of_model)
_model_pages.accept(NAME)
_model_support.refuse_others(NAME)
