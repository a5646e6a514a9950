"""Masks of transformers as intervals: which keys each row looks at, in O(rows) memory.

transformers describes a mask by a function of indices, made of nested closures, and by a padding mask. Most of its own
functions (causal, windows, chunks, packed sequences, blocks, both directions) keep one interval of keys per row, whose
begin and end do not decrease from row to row. This stays true if padding has no gaps. A mask of such intervals becomes
int32 [B, 1, Sq, 2]. Any other mask is computed for slabs of query rows and becomes words, with one bit per pair. Layers
get either form inside a `ModelMask`, which acts as eager's mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling
from transformers import masking_utils

from .._torch.padding import kept_interval
from .model_mask import ModelMask
from .ops import causal_rows, rows_inside
from .words import words_of, words_of_slabs


class Unlisted(Exception):
    """Raised for a mask that may keep more than one interval of keys per row."""


class Size(NamedTuple):
    """The sizes of a mask, and the positions that its first row and its first key have in the whole sequence."""

    batch: int
    rows: int
    keys: int
    q_offset: int
    kv_offset: int


class _Interval(NamedTuple):
    """Row i keeps the keys first[i] <= j <= last[i], as positions in the whole sequence. Both are [B|1, Sq]."""

    first: Tensor
    last: Tensor

    def within(self, first: Tensor | None, last: Tensor | None) -> _Interval:
        return _Interval(
            self.first if first is None else torch.maximum(self.first, first),
            self.last if last is None else torch.minimum(self.last, last),
        )


def _codes() -> dict[Any, str]:
    """Returns the kinds of transformers' mask functions, by code object: {code: name of the kind}."""
    utils = masking_utils
    makers = {
        "window": utils.sliding_window_overlay(1),
        "window_both_ways": utils.sliding_window_bidirectional_overlay(1),
        "chunk": utils.chunked_overlay(1, None),
        "block": utils.blockwise_overlay(None),
        "same_sequence": utils.packed_sequence_mask_function(None),
        "and": utils.and_masks(utils.causal_mask_function),
        "or": utils.or_masks(utils.causal_mask_function),
        "causal": utils.causal_mask_function,
        "all": utils.bidirectional_mask_function,
    }
    remap = getattr(utils, "remap_positions_for_packed_sequence", None)  # of transformers 5.23
    if remap is not None:
        makers["by_position"] = remap(utils.causal_mask_function, None)
    return {function.__code__: name for name, function in makers.items()}


_CODES = _codes()


def parts_of(function: Callable) -> tuple[str, dict[str, Any]]:
    """Returns the kind of a mask function, and the variables in its closure. Raises Unlisted for any other function."""
    code = getattr(function, "__code__", None)
    kind = _CODES.get(code)
    if kind is None:
        raise Unlisted
    cells = function.__closure__ or ()
    return kind, dict(zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True))


def _interval(function: Callable, size: Size, place: Tensor, position: Tensor) -> _Interval:
    """Returns the interval of keys that `function` keeps for each row. A row is at `place` [1, Sq] in the tensors and
    at `position` [B|1, Sq] in its own packed sequence."""
    kind, held = parts_of(function)
    every = _Interval(torch.full_like(place, size.kv_offset), torch.full_like(place, size.kv_offset + size.keys - 1))
    back = place - position  # position + back is a place
    match kind:
        case "all":
            return every
        case "causal":
            return every.within(None, place)
        case "window":
            return every.within(place - (held["sliding_window"] - 1), None)
        case "window_both_ways":
            return every.within(place - held["sliding_window"], place + held["sliding_window"])
        case "chunk":
            chunk, padding = held["chunk_size"], held["left_padding"].reshape(-1, 1)
            first = (position - padding).div(chunk, rounding_mode="floor") * chunk + padding + back
            return every.within(first, first + chunk - 1)
        case "same_sequence":
            return every.within(*_runs(held["packed_sequence_mask"], place))
        case "by_position":
            return _interval(held["mask_function"], size, place, held["position_ids"][:, : size.rows])
        case "and":
            for part in held["mask_functions"]:
                every = every.within(*_interval(part, size, place, position))
            return every
        case "or":
            return _with_blocks(held["mask_functions"], size, place, position)
    raise Unlisted


def _runs(names: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first and the last place of the run of equal `names` [B, S] that contains each `place` [1, Sq]."""
    steps = torch.arange(names.shape[1], device=names.device)
    changes = torch.ones_like(names, dtype=torch.bool)
    changes[:, 1:] = names[:, 1:] != names[:, :-1]
    first = torch.where(changes, steps, 0).cummax(1).values
    ends = torch.ones_like(changes)
    ends[:, :-1] = changes[:, 1:]
    last = torch.where(ends, steps, names.shape[1]).flip(1).cummin(1).values.flip(1)
    return first[:, place[0]], last[:, place[0]]


def _with_blocks(parts: tuple[Callable, ...], size: Size, place: Tensor, position: Tensor) -> _Interval:
    """Returns, for each row, the union of two intervals: the one of the first mask function, and the row's block by the
    second. Raises Unlisted if there are other parts, a block is not one run of positions, or the intervals have a gap
    between them.
    """
    base, *blocks = parts
    if len(blocks) != 1:
        raise Unlisted
    kind, held = parts_of(blocks[0])
    if kind != "block":
        raise Unlisted
    names = held["block_sequence_ids"]
    for row in names:
        runs = row.unique_consecutive()
        runs = runs[runs >= 0]
        if runs.unique().numel() != runs.numel():
            raise Unlisted
    rule = _interval(base, size, place, position)
    first, last = _runs(names, place)
    in_block = names[:, place[0]] >= 0
    apart = in_block & ((first > rule.last + 1) | (last < rule.first - 1))
    if bool(apart.any()):
        raise Unlisted
    return _Interval(
        torch.where(in_block, torch.minimum(rule.first, first), rule.first),
        torch.where(in_block, torch.maximum(rule.last, last), rule.last),
    )


@torch.compiler.disable  # Dynamo fails on the table of code objects
def listed_rows(function: Callable, size: Size, padding: Tensor | None) -> Tensor:
    """Returns the keys [begin, end) that each row keeps, int32 [B, 1, Sq, 2], counted from the first key of the
    tensors. padding is bool [B, Sk], True for a token.

    Raises:
        Unlisted: a row may keep more than one interval, or its interval begins or ends before the interval of a row
            above.
    """
    place = torch.arange(size.rows)[None] + size.q_offset
    interval = _interval(function, size, place, place)
    begins, ends = interval.first - size.kv_offset, interval.last + 1 - size.kv_offset
    if padding is not None:
        first, end, whole = kept_interval(padding)
        if not bool(whole.all()):
            raise Unlisted
        begins, ends = torch.maximum(begins, first[:, None]), torch.minimum(ends, end[:, None])
    begins, ends = torch.broadcast_tensors(begins, ends)
    if not _go_forward(begins, ends):
        raise Unlisted
    rows = torch.stack((begins, ends), -1).to(torch.int32)
    return rows[:, None].expand(size.batch, 1, size.rows, 2)


def _go_forward(begins: Tensor, ends: Tensor) -> bool:
    """Returns whether begins and ends never decrease from row to row. A row without keys counts as an empty interval at
    the largest end so far."""
    if begins.shape[1] == 1:
        return True
    empty = begins >= ends
    ends = torch.where(empty, 0, ends).cummax(1).values if bool(empty.any()) else ends
    begins = torch.where(empty, ends, begins)
    return bool(((begins.diff(dim=1) >= 0) & (ends.diff(dim=1) >= 0)).all())


_BRANCHES = 64  # 4 rounds of a search with 64 branches find one of 2^24 keys


def traced_rows(function: Callable, size: Size, padding: Tensor | None) -> Tensor:
    """Returns what `listed_rows` returns, but padding may have gaps: intervals are only cut to its first and last
    token.

    It reads no closures and no values of tensors, so that a model can be compiled. For each row, it evaluates the
    function to search the ends of the interval around the row's own place. So the mask must keep one interval per row,
    as all of transformers' own masks do.
    """
    if function is masking_utils.causal_mask_function:
        rows = causal_rows(size.rows, size.keys, size.q_offset - size.kv_offset)
        rows = rows.expand(size.batch, 1, size.rows, 2)
        return rows if padding is None else rows_inside(rows, padding)
    batch = torch.arange(size.batch)[:, None, None, None]
    head = torch.zeros((1, 1, 1, 1), dtype=torch.int64)
    row = (torch.arange(size.rows) + size.q_offset)[None, None, :, None]
    least, greatest = size.kv_offset, size.kv_offset + size.keys - 1
    own = row.clamp(least, greatest).expand(size.batch, 1, size.rows, 1)

    def kept(keys: Tensor) -> Tensor:
        there = (keys >= least) & (keys <= greatest)
        return function(batch, head, row, keys.clamp(least, greatest)) & there

    def end(direction: int) -> Tensor:
        at = own
        for round_ in reversed(range(4)):
            steps = torch.arange(_BRANCHES) * (direction * _BRANCHES**round_)
            seen = kept(at + steps).sum(-1, keepdim=True)
            at = at + (seen - 1).clamp(min=0) * (direction * _BRANCHES**round_)
        return at

    begins, ends = end(-1) - least, end(1) + 1 - least
    ends = torch.where(kept(own), ends, begins)
    rows = torch.cat((begins, ends), -1).to(torch.int32)
    return rows if padding is None else rows_inside(rows, padding)


def mask_of_model(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    dtype: torch.dtype = torch.float32,
    **others: Any,
) -> ModelMask | None:
    """Makes the mask of a model. transformers calls this function for the attention "fa", with the arguments of
    eager_mask.

    Returns:
        With `allow_is_bidirectional_skip`, None if rows look both ways without padding. With `allow_is_causal_skip`,
        None if a single row looks at all keys. Otherwise a ModelMask [B, 1, Sq, Sk] of `dtype`, which acts as eager's
        mask. It stores one interval of keys per row, or a bit per pair if a row may keep more than one interval.
    """
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length]
    size = Size(batch_size, q_length, kv_length, q_offset, kv_offset)

    def pairs(begin: int, end: int) -> Tensor:
        sizes = {"batch_size": batch_size, "q_length": end - begin, "kv_length": kv_length}
        places = {"q_offset": q_offset + begin, "kv_offset": kv_offset}
        of_mask = {"mask_function": mask_function, "attention_mask": attention_mask, "use_vmap": use_vmap}
        return masking_utils.sdpa_mask(**sizes, **places, **of_mask, allow_is_causal_skip=False, **others)

    if padding is not None and not is_compiling() and bool(padding.all()):
        padding = None
    if padding is None and allow_is_bidirectional_skip and mask_function is masking_utils.bidirectional_mask_function:
        return None
    if is_compiling():
        if use_vmap:
            return ModelMask(words_of(pairs(0, q_length)), 1, kv_length, dtype)
        padded = None if padding is None else words_of(padding[:, None, None])
        return ModelMask(traced_rows(mask_function, size, padding), 1, kv_length, dtype, padded)
    size = size._replace(q_offset=int(q_offset))
    try:
        held = listed_rows(mask_function, size, padding)
    except Unlisted:
        return ModelMask(words_of_slabs(pairs, batch_size, q_length, kv_length), 1, kv_length, dtype)
    if allow_is_causal_skip and q_length == 1 and bool(((held[..., 0] <= 0) & (held[..., 1] >= kv_length)).all()):
        return None
    return ModelMask(held, 1, kv_length, dtype)
