"""PyTorch operators that merge partial results by their lse, and that move rows into paged caches and out of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _fa
from .._attention import compute
from .._cache import check_integers, stored
from .._cache import scatter_rows as _scatter_rows
from .._context import chosen_context
from .._errors import argument_error
from . import autograd
from .operators import call, operator


def _merged(lse: list[Tensor], local_out: list[Tensor], need_lse: bool) -> tuple[Tensor, Tensor]:
    first = local_out[0]
    return first.new_empty(first.shape), first.new_empty(first.shape[:1] if need_lse else 0, dtype=torch.float32)


@operator(
    "merge_by_lse(Tensor[] lse, Tensor[] local_out, bool need_lse) -> (Tensor, Tensor)",
    fake=_merged,
    derivative=autograd.none_of_lists,
)
def merge_by_lse(lse, local_out, need_lse):
    """Returns the output and, with need_lse, the lse, which is +inf for a row without keys."""
    out, lse_out = _merged(lse, local_out, need_lse)
    arrays = {"out": out, "lse_out": lse_out if need_lse else None, "lse": list(lse), "local_out": list(local_out)}
    compute(_fa.merge_by_lse, arrays, True, chosen_context(None, out))
    return out, lse_out


@operator(
    "scatter_rows(Tensor key, Tensor? value, Tensor slot_mapping, Tensor(a!) key_cache, Tensor(b!)? value_cache, "
    "str form) -> ()",
    fake=lambda *_: None,
)
def scatter(key, value, slot_mapping, key_cache, value_cache, form):
    """Writes the rows of key and value into the caches, in the slots that slot_mapping lists."""
    _scatter_rows(key, value, slot_mapping, key_cache, value_cache, form=form)


@operator(
    "quantize_rows(Tensor key, Tensor? value, Tensor slot_mapping, Tensor? source_rows, Tensor? key_scale, "
    "Tensor? value_scale, Tensor(a!) key_cache, Tensor(b!)? value_cache, Tensor(c!)? key_scale_cache, "
    "Tensor(d!)? value_scale_cache, str form) -> ()",
    fake=lambda *_: None,
)
def quantize(
    key, value, slots, sources, key_scale, value_scale, key_cache, value_cache, key_scales, value_scales, form
):
    """Writes the rows of key and value into the caches. If 8-bit caches have one scale per row, writes the scales
    too.
    """
    given = {"key_scale": key_scale, "value_scale": value_scale}
    given |= {"key_scale_cache": key_scales, "value_scale_cache": value_scales}
    _scatter_rows(key, value, slots, key_cache, value_cache, source_rows=sources, form=form, **given)


def scatter_rows(
    key: Tensor,
    value: Tensor | None,
    slot_mapping: Tensor,
    key_cache: Tensor,
    value_cache: Tensor | None = None,
    *,
    source_rows: Tensor | None = None,
    key_scale: Tensor | None = None,
    value_scale: Tensor | None = None,
    key_scale_cache: Tensor | None = None,
    value_scale_cache: Tensor | None = None,
    form: str = "BnBsND",
) -> None:
    """Computes `fa.scatter_rows` as an operator of PyTorch, so that torch.compile and torch.func.vmap work. There is no
    gradient.

    Args:
        key, value: [T, N, D] and [T, N, Dv].
        slot_mapping: int32 or int64 [T], the place of each row.
        key_cache, value_cache: caches in `form`, of the rows' types, int8 or float8_e4m3fn.
        others: the arguments of `fa.scatter_rows`.

    Raises:
        ValueError: an argument is wrong, or requires a gradient while gradients are recorded.
        TypeError: an argument is no tensor.
    """
    inputs = {"key": key, "value": value, "slot_mapping": slot_mapping, "source_rows": source_rows}
    inputs |= {"key_scale": key_scale, "value_scale": value_scale}
    caches = {"key_cache": key_cache, "value_cache": value_cache}
    caches |= {"key_scale_cache": key_scale_cache, "value_scale_cache": value_scale_cache}
    for name, tensor in {**inputs, **caches}.items():
        if not isinstance(tensor, Tensor) and (tensor is not None or name in _NEEDED):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
        if torch.is_grad_enabled() and tensor is not None and tensor.requires_grad:
            want = "there is no gradient of a scatter; want a detached tensor, or torch.no_grad()"
            raise argument_error(ValueError, name, f": requires a gradient, and {want}")
    tensors = (*inputs.values(), *caches.values())
    call(quantize, tensors, *tensors, form)


_NEEDED = "key", "slot_mapping", "key_cache"


@operator(
    "gather_rows(Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor seq_lens, Tensor? seq_offset, "
    "Tensor(a!) key, Tensor(b!) value, str form, bool cumulative) -> ()",
    fake=lambda *_: None,
)
def gather(key_cache, value_cache, block_table, seq_lens, seq_offset, key, value, form, cumulative):
    """Writes the rows of all sequences to key and value."""
    check_integers(block_table=block_table, seq_lens=seq_lens, seq_offset=seq_offset)
    arrays = {
        "key_cache": stored("key_cache", key_cache),
        "value_cache": stored("value_cache", value_cache),
        "block_table": block_table,
        "seq_lens": seq_lens,
        "seq_offset": seq_offset,
        "key": stored("key", key, "key_cache", key_cache),
        "value": stored("value", value, "value_cache", value_cache),
    }
    compute(_fa.gather_rows, arrays, form, cumulative, chosen_context(None, key))


@operator(
    "gather_selection(Tensor(a!) selection_k_rope, Tensor(b!) selection_kv_cache, Tensor block_table, "
    "Tensor(c!) block_status, Tensor topk_indices, Tensor full_k_rope, Tensor full_kv_cache, Tensor full_block_table, "
    "Tensor full_kv_actual_seq, Tensor full_q_actual_seq, SymInt block_size) -> Tensor",
    fake=lambda *tensors: tensors[2].new_empty(tensors[2].shape[:1], dtype=torch.int32),
)
def gather_selection(
    k_rope, kv_cache, table, status, indices, full_k_rope, full_kv, full_table, kv_lengths, q_lengths, block_size
):
    """Copies the blocks that each query has selected into the query's pages. Returns each query's number of rows."""
    lists = indices.flatten(0, -2).long()  # of shape [B·S·H, K]
    batch, heads = full_table.shape[0], indices.shape[-2]
    queries = lists.shape[0] // max(batch * heads, 1)
    kv_lengths, q_lengths = kv_lengths.long(), q_lengths.long()
    _check_lengths("full_q_actual_seq", q_lengths, queries)
    _check_lengths("full_kv_actual_seq", kv_lengths, None)
    b = torch.arange(batch).repeat_interleave(queries * heads)
    s = torch.arange(queries).repeat_interleave(heads).repeat(batch)
    keys = torch.where(s < q_lengths[b], kv_lengths[b] - (q_lengths[b] - 1 - s), 0).clamp(min=0)
    blocks = -(-keys // block_size)
    listed = (lists >= 0).long().cumprod(1).bool()  # a list ends at its first negative entry
    kept = listed & (lists < blocks[:, None])
    place = kept.long().cumsum(1) - 1
    row = torch.arange(min(block_size, int(keys.max()) if keys.numel() > 0 else 0))
    key = torch.where(kept, lists, 0)[..., None] * block_size + row
    used = kept[..., None] & (key < keys[:, None, None])
    query = torch.arange(lists.shape[0])[:, None, None].expand_as(key)[used]
    sources = _slots("full_kv_block_table", full_table, b[query], key[used], full_kv.shape)
    to = (place[..., None] * block_size + row).expand_as(key)[used]
    slots = _slots("selection_kv_block_table", table, query, to, kv_cache.shape)
    lengths = used.sum((1, 2), dtype=torch.int32)
    rope = full_k_rope.numel() > 0
    caches = {"key": full_kv, "value": full_k_rope} if rope else {"key": full_kv}
    in_place = all(cache.stride(0) == cache.shape[1] * cache.stride(1) for cache in caches.values())
    rows = [_rows(name, cache, None if in_place else sources) for name, cache in caches.items()]
    _scatter_rows(
        rows[0],
        rows[1] if rope else None,
        slots,
        kv_cache.unsqueeze(2),
        k_rope.unsqueeze(2) if rope else None,
        source_rows=sources if in_place else None,
    )
    states = torch.full((*lists.shape[:1], lists.shape[1] + 1), -1, dtype=torch.int64)
    entry = torch.arange(lists.shape[0])[:, None].expand_as(lists)
    states[entry[kept], place[kept]] = lists[kept]
    states[:, -1] = lengths
    status.copy_(states.view(status.shape))
    return lengths


def _rows(name: str, cache: Tensor, slots: Tensor | None) -> Tensor:
    """Returns all rows of a cache [pages, page size, D], as a view [rows, 1, D]. With slots, returns a copy of the rows
    in these slots.
    """
    if slots is None:
        return cache.flatten(0, 1).unsqueeze(1)
    rows = stored(name, cache)[slots // cache.shape[1], slots % cache.shape[1]]
    return rows.view(cache.dtype).unsqueeze(1)


def _check_lengths(name: str, lengths: Tensor, most: int | None) -> None:
    wrong = ((lengths < 0) | (lengths > (torch.iinfo(torch.int64).max if most is None else most))).nonzero()
    if wrong.numel() > 0:
        at, want = int(wrong[0]), ">= 0" if most is None else f"0..{most}"
        raise argument_error(ValueError, name, f"={int(lengths[at])}, want {want}", index=f"[{at}]")


def _slots(name: str, table: Tensor, lists: Tensor, rows: Tensor, cache: tuple[int, ...]) -> Tensor:
    """Returns the places of `rows` in a cache, as page * page size + row. The pages of row i are in table[lists[i]].
    Raises ValueError for a page that is not in the table or in the cache."""
    pages, page_size = cache[:2]
    column = rows // max(page_size, 1)
    if column.numel() > 0 and int(column.max()) >= table.shape[1]:
        raise argument_error(ValueError, name, f"={table.shape[1]}, want > {int(column.max())}", member=".shape[1]")
    page = table[lists, column].long()
    wrong = ((page < 0) | (page >= pages)).nonzero()
    if wrong.numel() > 0:
        at = int(wrong[0])
        index = f"[{int(lists[at])}][{int(column[at])}]"
        raise argument_error(ValueError, name, f"={int(page[at])}, want 0..{pages - 1}", index=index)
    return page * page_size + rows % page_size
