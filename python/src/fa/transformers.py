"""Attention of Hugging Face models by `fa`: `import fa.transformers` registers it as "fa".

    import fa.transformers
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fa")

The import registers an attention function and a mask function with AttentionInterface and AttentionMaskInterface of
transformers 5. Causal masks, windows, chunks, packed sequences and padding at either end of a sequence reach the
library as one interval of keys per query row. Other masks are tensors. A model can use both like the mask of "eager".
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
from ._model.caches import CompressedCache, GrowingCache, Int8Cache, scale_of
from ._model.calls import count, report
from ._model.masks import mask_of_model
from ._model.model_mask import ModelMask
from ._model.ops import ModelCall, causal_rows, inside, model_attention, rows_of_sequences
from ._model.selection import check_sizes
from ._pytorch import version_of
from ._torch.dropout import new_state
from ._torch.shapes import keys_side_by_side

__all__ = ["NAME", "CompressedCache", "GrowingCache", "Int8Cache", "attention_forward", "mask_of_model", "report"]

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
    sinks: Tensor | None = None,
    position_bias: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    cache: Any = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Computes the attention of a layer, as transformers calls it.

    Args:
        query: [B, N, Sq, D]; float32, bfloat16 or float16. key, value: [B, Nkv, Sk, D] and [B, Nkv, Sk, Dv], N a multiple
            of Nkv. Or keys and values that the `update` of a CompressedCache returned.
        attention_mask: None; what `mask_of_model` made; or a tensor that broadcasts to [B, N, Sq, Sk]: bool (True = look
            at the key) or float, added to the scores. Its last dimension may be longer than Sk.
        scaling: None means 1 / sqrt(D).
        is_causal: whether row i looks only at keys j <= i. None takes the module's value, or True if the module has
            none. It counts only without a mask and with more than one row.
        softcap: c turns scaled scores s into c * tanh(s / c), before masks and biases.
        s_aux: [N], sinks: the score of a virtual key whose value is 0.
        sinks: [B, N, Sq, 1], one such score per row. It may require a gradient.
        position_bias: [B|1, N|1, Sq, Sk], added to the scores. It may require a gradient.
        indices: int32 [B, Sq, K]: row i looks only at the keys that indices[b, i] lists.
        block_indices: int64 [B, Nkv, Sq, K], -1 for none: row i looks only at keys in the listed blocks of
            module.indexer.block_size keys. Without a mask, it looks only at keys up to its place in position_ids. There
            may be more lists than Nkv, one for each group of query heads.
        cu_seq_lens_q, cu_seq_lens_k: prefix sums with a leading 0 of packed sequences, B = 1. They count if the caller
            passed no mask.
        sliding_window: w: row i looks only at keys j > i - w. It counts if no mask was passed and the layer is causal.
        cache: a PagedAttentionCache of continuous batching. The tokens of all requests are then one sequence, and the
            other arguments say which request has which tokens. cu_seq_lens_k has a tensor per layer type.

    Returns:
        [B, Sq, N, Dv], and no weights.

    Raises:
        ValueError: an argument is wrong, or an unknown keyword may change the result; the message names it.
        TypeError: an argument is no tensor, or no number.
    """
    _model_support.check_keywords(module, others)
    _model_support.check_types(
        {"dropout": dropout, "scaling": scaling, "softcap": softcap, "sliding_window": sliding_window},
        {"query": query, "key": key, "value": value, "attention_mask": attention_mask, "s_aux": s_aux}
        | {"position_bias": position_bias, "sinks": sinks, "indices": indices, "block_indices": block_indices}
        | {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k if cache is None else None},
    )
    _model_support.check_dimensions(query=query, key=key, value=value)
    count(module)
    if others.get("output_attentions"):
        _logger.warning_once('"fa" returns no attention weights; attn_implementation="eager" does')
    scales = scale_of(key), scale_of(value)
    if scales[0] is None or scales[1] is None:
        _model_support.check_no_codes(key=key, value=value)
        query, key, value = _autocast(query, key, value)
    else:
        (query,) = _autocast(query)
        given = {"dropout": dropout or None, "sinks": sinks, "indices": indices, "block_indices": block_indices}
        inputs = {"query": query, "s_aux": s_aux, "position_bias": position_bias, "attention_mask": attention_mask}
        _model_support.check_of_codes(inputs, cache=cache, **given)
        _model_support.check_scales({"key": key, "value": value}, scales)
    sink = _model_support.sinks_of(query, s_aux, sinks)
    lists, block = _model_support.selection_of(module, query, key, indices, block_indices)
    if lists is not None and sinks is not None:
        raise ValueError("invalid argument: sinks: given together with a selection of keys, want one of them")
    if cache is not None:
        _model_support.check_batching(lists, sinks)
        batch = others | {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k}
        call = ModelCall(sink=sink, scale=scaling, softcap=softcap or 0.0)
        return _model_pages.attend_pages(module.layer_idx, query, key, value, cache, call, batch), None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    packed = cu_seq_lens_q is not None and query.shape[0] == 1
    ends = (cu_seq_lens_q, cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k) if packed else None
    rows, dense_mask, bias = _read_mask(attention_mask, query, key, ends, causal, sliding_window)
    if position_bias is not None:
        position_bias = _position_bias(position_bias, query, key)
        bias = position_bias if bias is None else bias + position_bias
    unmasked = attention_mask is None and rows is None
    causal = causal and unmasked and query.shape[2] > 1
    if unmasked and block:
        dense_mask, causal = _up_to_their_places(others.get("position_ids"), query, key), False
    elif causal and not (lists is sliding_window is None):
        rows, causal = causal_rows(query.shape[2], key.shape[2], window=sliding_window), False
    if block and lists.shape[1] > key.shape[1]:
        check_sizes(query, key, value, sink)
        key, value = (t.repeat_interleave(lists.shape[1] // t.shape[1], 1) for t in (key, value))
    call = ModelCall(
        rows=rows,
        dense_mask=None if dense_mask is None else dense_mask.expand(query.shape[0], -1, query.shape[2], -1),
        pse=None if bias is None else bias.expand(-1, query.shape[1], query.shape[2], -1),
        sink=sink,
        dropout_state=new_state(dropout),
        k_scale=scales[0],
        v_scale=scales[1],
        lists=lists,
        block=block,
        statistics=torch.is_grad_enabled() and _requires_grad(query, key, value, bias, sink),
        is_causal=causal,
        scale=scaling,
        softcap=softcap or 0.0,
        keep_prob=1.0 - dropout,
    )
    return model_attention(query, key, value, call), None


def _read_mask(
    attention_mask: Tensor | None,
    query: Tensor,
    key: Tensor,
    ends: tuple[Tensor, Tensor] | None,
    causal: bool,
    window: int | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Returns a mask as (rows, padding, None) or (None, dense_mask, None) for ModelCall, or as (None, None, bias). Without
    a mask, the rows follow from `ends`, the prefix sums of packed sequences."""
    if attention_mask is None:
        return None if ends is None else rows_of_sequences(*ends, query.shape[2], causal, window), None, None
    if isinstance(attention_mask, ModelMask):
        held, padding = attention_mask.of_layer(query, key)
        if held.dtype == torch.int64:
            return None, held, None
        if ends is not None:
            held = inside(held, *rows_of_sequences(*ends, query.shape[2], False, None).unbind(-1))
        return held, padding, None
    if attention_mask.dtype == torch.bool:
        return None, _scores(attention_mask, "attention_mask", query, key), None
    return None, None, _bias(attention_mask, "attention_mask", query, key)


def _requires_grad(*tensors: Tensor | None) -> bool:
    return any(t is not None and t.requires_grad for t in tensors)


def _up_to_their_places(position_ids: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """Returns bool [B|1, 1, Sq, Sk], True for the keys up to each row's place in position_ids. Without position_ids,
    the last row is at the last key."""
    rows, keys = query.shape[2], key.shape[2]
    if position_ids is None:
        position_ids = torch.arange(keys - rows, keys)
    elif position_ids.shape not in ((rows,), (1, rows), (query.shape[0], rows)):
        want = [query.shape[0], rows]
        raise ValueError(f"invalid argument: position_ids.shape={list(position_ids.shape)}, want {want} (query)")
    return torch.arange(keys) <= position_ids.reshape(-1, 1, rows, 1)


def _scores(given: Tensor, name: str, query: Tensor, key: Tensor) -> Tensor:
    """Returns a tensor that broadcasts to the scores, but may have more keys, as [B|1, N|1, Sq|1, Sk].

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
    """Returns a bias for the scores, in a type that the operator allows for query's type."""
    if not bias.is_floating_point():
        raise ValueError(f"invalid argument: {name}.dtype={bias.dtype}, want bool or a floating type")
    bias = _scores(bias, name, query, key)
    return bias if bias.dtype in (query.dtype, torch.float32) else bias.to(query.dtype)


def _position_bias(position_bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Works like _bias, but copies a bias whose keys are not contiguous. The layers of a model share one bias tensor,
    so the copy is stored with this tensor. While gradients are recorded, nothing is stored, because checkpointing may
    compute single layers again.
    """
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
    """Returns the tensors in the type of autocast, as PyTorch's own function does."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) for t in tensors)


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask_of_model)
_model_pages.accept(NAME)
_model_support.refuse_others(NAME)
