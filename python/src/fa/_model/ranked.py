"""Attention of transformers' models over the ranks of a process group: the functions that stand for "sdpa" and "fa".

A mask that transformers describes is a rule of the whole sequence here, j - i within a band, and travels through the
model as int64 [1, 1, 1, 2]: how far before and behind its row a key may stand. A mask of four dimensions that the
caller made has own rows and the keys of all ranks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from .._errors import in_names
from .._fa import Mask
from .._torch.agreement import Proposal, agree
from .._torch.dropout import new_state
from .._torch.ops import EVERY_KEY, Call
from .._torch.ranked import NAMES, Attention, Ranks, attend, ranks_of
from .._torch.ranked_models import current
from .._torch.sdpa import autocast
from .._torch.shapes import broadcast_attention, check_types, rows_in_memory
from .._torch.shards import rows_held
from .masks import Unlisted, parts_of

_UNLIMITED = (1 << 63) - 1
_NAMES = NAMES | {"q": "query", "k": "key", "v": "value", "sink": "s_aux", "mask.pre": "attention_mask"}


def replace(undo: contextlib.ExitStack) -> None:
    """Registers the functions below; `undo` registers those before them."""
    for interface, function in ((AttentionInterface, attention_forward), (AttentionMaskInterface, mask_of_model)):
        registered = interface()
        for name in ("sdpa", "fa"):
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
    """The attention of a layer, as transformers calls it, of own rows [B, N, S, D]. Returns [B, S, N, Dv], no weights."""
    settings = current()

    def prepare() -> tuple[Ranks, Attention]:
        ranks = ranks_of(**settings)
        for name, given in (("position_bias", position_bias), ("cache", cache)):
            if given is not None:
                raise ValueError(f"invalid argument: {name}: not taken over ranks")
        causal = module.is_causal if is_causal is None else is_causal
        mask, rows = None, None
        if attention_mask is None:
            mask = Mask.causal_top_left() if causal else Mask.none()
        elif attention_mask.dtype == torch.int64 and attention_mask.shape == (1, 1, 1, 2):
            mask = _mask(*attention_mask.flatten().tolist())
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
        return ranks, Attention(q, k, v, call, out=out, mask=mask, softcap=softcap or 0.0)

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
    """The mask function; arguments as transformers' sdpa_mask. ValueError, on all ranks, for a mask that is no band of
    the whole sequence."""
    settings = current()
    group = settings["group"]

    def rows() -> Proposal:
        ranks = ranks_of(**settings)
        if int(q_offset) != 0 or kv_offset != 0 or kv_length != q_length:
            raise ValueError("invalid argument: past_key_values: not taken over ranks, want none")
        if attention_mask is not None and not bool(attention_mask.all()):
            raise ValueError("invalid argument: attention_mask: padding is not taken over ranks")
        return Proposal(ranks, ranks.facts(), [q_length])

    agreed = agree(group, "rows of a mask", rows)
    whole = sum(numbers[0] for numbers in agreed.numbers)
    held = rows_held(whole, group, agreed.prepared)

    def band() -> Proposal:
        try:
            found = _band(mask_function, held)
        except Unlisted:
            text = "want causal masks, windows, or none, and no packed sequences"
            raise ValueError(f"invalid argument: attention_mask: not taken over ranks, {text}") from None
        return Proposal(found, {"attention_mask": found}, [])

    return torch.tensor(agree(group, "mask", band).prepared, dtype=torch.int64, device="cpu").view(1, 1, 1, 2)


def _band(function: Callable, held: Tensor) -> tuple[int, int]:
    """How far before and behind its row a key may stand."""
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
        case "by_position":
            # Rows that are not neighbours in the whole sequence look like packed sequences.
            positions = closure["position_ids"]
            if positions.shape[-1] != len(held):
                raise Unlisted
            if not bool((positions == held).all()):
                given, want = positions[positions != held][0].item(), held[(positions != held).any(0)][0].item()
                text = f"{given}, want {want}: the positions of this rank's rows"
                raise ValueError(f"invalid argument: position_ids: {text}")
            return _band(closure["mask_function"], held)
        case "and":
            kinds = {parts_of(part)[0]: part for part in closure["mask_functions"]}
            if "same_sequence" in kinds and "by_position" in kinds:
                del kinds["same_sequence"]
            bands = [_band(part, held) for part in kinds.values()]
            return min(before for before, _ in bands), min(behind for _, behind in bands)
    raise Unlisted
