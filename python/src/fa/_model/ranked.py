"""Attention of transformers' models over the ranks of a process group: the functions that replace "sdpa" and "fa".

A mask that transformers describes must be a band of the whole sequence here: row i looks at key j if j - i is in a
range. It passes through the model as int64 [1, 1, 1, 2]: how far before and after its row a key may be. A mask of four
dimensions that the caller made has this rank's rows and the keys of all ranks.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from .._errors import in_names
from .._fa import Mask
from .._torch.agreement import Agreed, Proposal, agree
from .._torch.call import EVERY_KEY, Call
from .._torch.dropout import new_state
from .._torch.ranked import NAMES, Attention, Ranks, attend, ranks_of
from .._torch.ranked_models import current
from .._torch.sdpa import autocast
from .._torch.shapes import broadcast_attention, check_types, rows_in_memory
from .._torch.shards import rows_held
from .calls import count
from .masks import Unlisted, parts_of
from .support import check_keywords

_REPLACED = ("sdpa", "fa")
_UNLIMITED = (1 << 63) - 1
_NAMES = NAMES | {"q": "query", "k": "key", "v": "value", "sink": "s_aux", "mask.pre": "attention_mask"}


def replace(undo: contextlib.ExitStack) -> None:
    """Registers the functions of this module and a check of positions with transformers. `undo` restores what was
    there."""
    before = masking_utils._preprocess_mask_arguments
    undo.callback(setattr, masking_utils, "_preprocess_mask_arguments", before)
    masking_utils._preprocess_mask_arguments = _with_checked_positions(before)
    for interface, function in ((AttentionInterface, attention_forward), (AttentionMaskInterface, mask_of_model)):
        registered = interface()
        for name in _REPLACED:
            if name in registered:
                undo.callback(interface.register, name, registered[name])
                interface.register(name, function)


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
    cache: Any = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Computes the attention of a layer for this rank's rows [B, N, S, D], with the arguments that transformers passes.
    Returns [B, S, N, Dv], and None in place of weights."""
    settings = current()

    def prepare() -> tuple[Ranks, Attention]:
        ranks = ranks_of(**settings)
        for name, given in (("position_bias", position_bias), ("cache", cache)):
            if given is not None:
                raise ValueError(f"invalid argument: {name}: not taken over ranks")
        check_keywords(module, others)
        count(module)
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        more, rows = {"softcap": softcap or 0.0}, None
        if attention_mask is None:
            more["mask"] = Mask.causal_top_left() if causal else Mask.none()
        elif attention_mask.dtype == torch.int64 and attention_mask.shape == (1, 1, 1, 2):
            more["mask"] = _mask(*attention_mask.flatten().tolist())
        else:
            rows = attention_mask
        q, k, v, rows = autocast(query, key, value, rows)
        check_types(q, k, v, rows, "attention_mask")
        shapes = broadcast_attention(q.shape, k.shape, v.shape, True)
        out = q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[-1])).transpose(1, 2)
        call = Call.of_rule(
            EVERY_KEY,
            "BNSD",
            scaling,
            sink=None if s_aux is None else s_aux.reshape(-1).float(),
            dropout_state=new_state(dropout),
            keep_prob=1.0 - dropout,
            **rows_in_memory(rows, shapes, "attention_mask"),
        )
        return ranks, Attention(q, k, v, call, out=out, more=more)

    out = attend(settings["group"], prepare, lambda error: in_names(error, _NAMES))[0]
    return out.transpose(1, 2), None


def _mask(before: int, behind: int) -> Mask:
    if behind == _UNLIMITED and before == _UNLIMITED:
        return Mask.none()
    return Mask.causal_top_left() if behind == 0 and before == _UNLIMITED else Mask.band_top_left(before, behind)


def mask_of_model(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """Makes the mask of a model, with the arguments of transformers' sdpa_mask. If the mask is no band of the whole
    sequence, raises ValueError on all ranks."""
    settings = current()
    group = settings["group"]

    def rows() -> Proposal:
        ranks = ranks_of(**settings)
        if int(q_offset) != 0 or kv_offset != 0 or kv_length != q_length:
            raise ValueError("invalid argument: past_key_values: not taken over ranks, want none")
        if attention_mask is not None and not bool(attention_mask.all()):
            raise ValueError("invalid argument: attention_mask: padding is not taken over ranks")
        return Proposal(ranks, ranks.facts(), [q_length])

    whole = _whole(agree(group, "rows of a mask", rows))

    def band() -> Proposal:
        try:
            found = _band(mask_function, whole)
        except Unlisted:
            text = "want causal masks, windows, or none, and no packed sequences"
            raise ValueError(f"invalid argument: mask_function: not taken over ranks, {text}") from None
        return Proposal(found, {"mask_function": found}, [])

    return torch.tensor(agree(group, "mask", band).prepared, dtype=torch.int64, device="cpu").view(1, 1, 1, 2)


def _whole(agreed: Agreed) -> int:
    """Returns the number of rows of the whole sequence. Raises ValueError on all ranks if a rank has no rows, because
    models of transformers fail without rows.
    """
    counts = [numbers[0] for numbers in agreed.numbers]
    if 0 in counts:
        text = f"{counts} on the ranks, want some on each: {sum(counts)} rows are cut into blocks of 128"
        raise ValueError(f"invalid argument: input_ids: rows {text}")
    return sum(counts)


def _band(function: Callable, whole: int) -> tuple[int, int]:
    """Returns how far before and after its row a key may be, in a sequence of `whole` rows."""
    kind, closure = parts_of(function)
    match kind:
        case "all":
            return _UNLIMITED, _UNLIMITED
        case "causal":
            return _UNLIMITED, 0
        case "window":
            return closure["sliding_window"] - 1, _UNLIMITED
        case "window_both_ways":
            return closure["sliding_window"], closure["sliding_window"]
        case "chunk":
            if (chunk := closure["chunk_size"]) < whole:
                text = f"{chunk}, want at least {whole}, the rows of the sequence: chunks are not taken over ranks"
                raise ValueError(f"invalid argument: attention_chunk_size={text}")
            return _UNLIMITED, _UNLIMITED
        case "and":
            bands = [_band(part, whole) for part in closure["mask_functions"]]
            return min(before for before, _ in bands), min(behind for _, behind in bands)
    raise Unlisted


def _with_checked_positions(before: Callable) -> Callable:
    """Returns a function that checks position_ids and then calls `before` without them. transformers would see packed
    sequences in rows that are no neighbours in the whole sequence."""

    @functools.wraps(before)
    def preprocess(config, inputs_embeds, attention_mask, past_key_values, position_ids, *others, **keywords):
        if position_ids is not None and config._attn_implementation in _REPLACED:
            _check_positions(position_ids, inputs_embeds.shape[1])
            position_ids = None
        return before(config, inputs_embeds, attention_mask, past_key_values, position_ids, *others, **keywords)

    return preprocess


def _check_positions(given: Tensor, rows: int) -> None:
    """Raises ValueError on all ranks unless each rank's position_ids are the positions of its rows."""
    settings = current()
    group = settings["group"]

    def count() -> Proposal:
        ranks = ranks_of(**settings)
        return Proposal(ranks, ranks.facts(), [rows])

    agreed = agree(group, "rows of a model", count)
    whole = _whole(agreed)
    held = rows_held(whole, group, agreed.prepared)

    def compare() -> Proposal:
        hint = f"position_ids=positions({whole})[None] has the positions of this rank's rows"
        if given.shape[-1] != rows:
            text = f".shape={list(given.shape)}, want [1, {rows}]"
            raise ValueError(f"invalid argument: position_ids{text}: {hint}")
        if len(held) == rows and not bool((given == held).all()):
            wrong = (given != held).reshape(-1, rows)
            first = int(wrong.any(0).to(torch.uint8).argmax())
            got = given.reshape(-1, rows)[wrong[:, first]][0, first].item()
            raise ValueError(f"invalid argument: position_ids: {got}, want {held[first].item()}: {hint}")
        return Proposal(None, {}, [])

    agree(group, "positions of a model", compare)
