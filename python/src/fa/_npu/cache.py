"""torch_npu's functions that merge results by their lse, and those that move rows into paged caches and out of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from .._cache import check_integers
from .._errors import own_names
from .._torch import cache_ops
from .._torch.operators import call as call_operator
from .calls import checked

_FORMS = {"Norm": "BnBsND", "PA_NZ": "NZ"}
_SCENES = "is not served (compressed heads: scenes 3, 4 and 5)"


def npu_attention_update(
    lse: Sequence[Tensor], local_out: Sequence[Tensor], update_type: int
) -> tuple[Tensor, Tensor | None]:
    """Merges partial results of attention, each over one of several disjoint sets of keys, by their lse.

    Args:
        lse: float32 [M] for every part. An infinite lse marks a row for which the part has no keys.
        local_out: [M,D] for every part; float32, bfloat16 or float16.
        update_type: 1 returns the lse of the merged result too; 0 returns None in its place.

    Returns:
        out, [M,D] of local_out's type, summed in float32 and rounded once, and lse, float32 [M]. A row without keys has
        out 0 and lse +inf.

    Raises:
        ValueError: an argument is wrong.
    """
    if update_type not in (0, 1):
        raise ValueError(f"invalid argument: update_type={update_type}, want 0 or 1")
    for name, tensors in (("lse", lse), ("local_out", local_out)):
        if not isinstance(tensors, (list, tuple)):
            raise TypeError(f"{name}: want a list of Tensors, got {type(tensors).__name__}")
        for i, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name}[{i}]: want a Tensor, got {type(tensor).__name__}")
    if not local_out or len(lse) != len(local_out):
        raise ValueError(f"invalid argument: local_out has {len(local_out)} tensors, want {max(len(lse), 1)} (lse)")
    tensors = list(lse), list(local_out)
    out, whole = call_operator(cache_ops.merge_by_lse, [*lse, *local_out], *tensors, update_type == 1)
    return out, whole if update_type == 1 else None


def _form(cache_mode: str | None) -> str:
    form = _FORMS.get("Norm" if cache_mode is None else cache_mode)
    if form is None:
        raise ValueError(f'invalid argument: cache_mode="{cache_mode}", want "Norm" or "PA_NZ"')
    return form


def _check_scene(key: Tensor, **refused: Tensor | None) -> None:
    for name, tensor in refused.items():
        if tensor is not None:
            raise ValueError(f"invalid argument: {name} {_SCENES}")
    if key.dim() == 4:
        raise ValueError(f"invalid argument: key: a tensor of 4 dimensions {_SCENES}")


def _scatter(
    key: Tensor, value: Tensor | None, slots: Tensor, caches: tuple[Tensor, Tensor | None], form: str, slot_name: str
) -> None:
    with own_names({"slot_mapping": slot_name, "form": "cache_mode"}):
        tensors = (key, value, slots, *caches)
        call_operator(cache_ops.scatter, tensors, *tensors, form)


@checked
def npu_scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Writes rows of keys and values into paged caches, in place. Every place is checked before anything is written.

    Args:
        key, value: [T,N,D] and [T,N,Dv], of any type with elements of 1, 2, 4 or 8 bytes. An empty value leaves
            value_cache alone.
        key_cache, value_cache: with cache_mode "Norm" [pages,rows,N,D]; with "PA_NZ" [pages,N,D/L,rows,L] or
            [pages,N*D/L,rows,L], where L is any divisor of D. None means "Norm".
        slot_mapping: int32 or int64 [T], page * page size + row. A negative place skips its row. If several rows have
            the same place, the last of them is stored.

    Raises:
        ValueError: an argument is wrong, or compress_lens, compress_seq_offsets or seq_lens is given.
    """
    _check_scene(key, compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    has_value = value.numel() > 0
    caches = key_cache, value_cache if has_value else None
    _scatter(key, value if has_value else None, slot_mapping, caches, _form(cache_mode), "slot_mapping")


@checked
def npu_scatter_pa_kv_cache_functional(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> tuple[Tensor, Tensor]:
    """Calls `npu_scatter_pa_kv_cache` for rows [T,N,D] with copies of the two caches, and returns the copies.

    Raises:
        ValueError: as in `npu_scatter_pa_kv_cache`.
    """
    caches = key_cache.clone(), value_cache.clone()
    refused = {"compress_lens": compress_lens, "compress_seq_offsets": compress_seq_offsets, "seq_lens": seq_lens}
    npu_scatter_pa_kv_cache(key, value, *caches, slot_mapping, **refused, cache_mode=cache_mode)
    return caches


@checked
def npu_scatter_pa_cache(
    key: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    key_cache: Tensor,
) -> Tensor:
    """Writes rows of keys [T,N,D] into the paged cache key_cache [pages,rows,N,D], in place, and returns key_cache.

    Raises:
        ValueError: as in `npu_scatter_pa_kv_cache`.
    """
    _check_scene(key, compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    _scatter(key, None, slot_mapping, (key_cache, None), "BnBsND", "slot_mapping")
    return key_cache


@checked
def _npu_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor
) -> None:
    """Writes rows [T,N,D] as `npu_scatter_pa_kv_cache` does with cache_mode "Norm".

    Raises:
        ValueError: as in `npu_scatter_pa_kv_cache`.
    """
    _check_scene(key)
    _scatter(key, value, slot_indices, (key_cache, value_cache), "BnBsND", "slot_indices")


@checked
def npu_gather_pa_kv_cache(
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seq_offset: Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
) -> None:
    """Reads the rows of sequences out of paged caches into key and value, one sequence after another.

    Args:
        key_cache, value_cache: [pages,rows,N,D] if key has three dimensions, [pages,N*D/L,rows,L] if it has two.
        block_tables: int32 or int64 [B,n], the pages of each sequence.
        seq_lens: int32 or int64 [B], the number of rows of each sequence; with is_seq_lens_cumsum their prefix sums
            [B+1], which begin with 0.
        key, value: [T,N,D] and [T,N,Dv], or [T,N*D] and [T,N*Dv]. Rows past T are dropped; rows past the last sequence
            stay as they are. A row is 0 where the table ends or names no page.
        seq_offset: int32 or int64 [B], how many rows to skip at each sequence's beginning, a multiple of the page size.

    Raises:
        ValueError: an argument is wrong. Nothing has been written then.
    """
    form = "NZ" if key.dim() == 2 else "BnBsND"
    with own_names({"block_table": "block_tables"}):
        tensors = key_cache, value_cache, block_tables, seq_lens, seq_offset, key, value
        call_operator(cache_ops.gather, tensors, *tensors, form, is_seq_lens_cumsum)


@checked
def npu_gather_pa_kv_cache_functional(
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seq_offset: Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
) -> tuple[Tensor, Tensor]:
    """Calls `npu_gather_pa_kv_cache` with copies of key and value, [T,N,D] or [T,N*D], and returns the copies.

    Raises:
        ValueError: as `npu_gather_pa_kv_cache`.
    """
    rows = key.clone(), value.clone()
    keywords = {"seq_offset": seq_offset, "is_seq_lens_cumsum": is_seq_lens_cumsum}
    npu_gather_pa_kv_cache(key_cache, value_cache, block_tables, seq_lens, *rows, **keywords)
    return rows


def _check_shapes(**tensors: tuple[Tensor, tuple[int | None, ...]]) -> None:
    """Raises ValueError for a tensor that does not have the shape given with it, in which None stands for any size."""
    for name, (tensor, shape) in tensors.items():
        wanted = all(want in (None, size) for size, want in zip(tensor.shape, shape, strict=False))
        if tensor.dim() != len(shape) or not wanted:
            want = ",".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"invalid argument: {name}.shape={list(tensor.shape)}, want [{want}]")


@checked
def npu_gather_selection_kv_cache(
    selection_k_rope: Tensor,
    selection_kv_cache: Tensor,
    selection_kv_block_table: Tensor,
    selection_kv_block_status: Tensor,
    selection_topk_indices: Tensor,
    full_k_rope: Tensor,
    full_kv_cache: Tensor,
    full_kv_block_table: Tensor,
    full_kv_actual_seq: Tensor,
    full_q_actual_seq: Tensor,
    *,
    selection_topk_block_size: int = 64,
) -> Tensor:
    """Copies the blocks of keys that each query has selected into the query's own pages, in the order of its list.

    Args:
        selection_k_rope, selection_kv_cache: [pages,rows,R] and [pages,rows,C], written in place. Empty ropes are not
            copied.
        selection_kv_block_table: int32 [B*S*H,n], the pages of each query.
        selection_kv_block_status: int32 [B,S,H,K+1], [B*S,H,K+1] or [B*S*H,K+1], written in place: the
            block ids that were copied, then -1, and in the last entry the number of rows. Blocks that the pages already
            have are copied again.
        selection_topk_indices: int32 [B,S,H,K] or [B*S,H,K]. A list ends at its first negative entry. An entry past the
            last block is skipped.
        full_k_rope, full_kv_cache, full_kv_block_table: [pages,rows,R], [pages,rows,C] and int32 [B,n].
        full_kv_actual_seq, full_q_actual_seq: int32 [B]. Query s sees full_kv_actual_seq - (full_q_actual_seq - 1 - s)
            keys; queries from full_q_actual_seq on see none.
        selection_topk_block_size: the number of keys in a block.

    Returns:
        The number of rows copied for each query, int32 [B*S*H].

    Raises:
        ValueError: an argument is wrong. Nothing has been written then.
    """
    if selection_topk_block_size < 1:
        raise ValueError(f"invalid argument: selection_topk_block_size={selection_topk_block_size}, want >= 1")
    check_integers(
        selection_kv_block_table=selection_kv_block_table,
        selection_kv_block_status=selection_kv_block_status,
        selection_topk_indices=selection_topk_indices,
        full_kv_block_table=full_kv_block_table,
        full_kv_actual_seq=full_kv_actual_seq,
        full_q_actual_seq=full_q_actual_seq,
    )
    _check_shapes(
        full_kv_block_table=(full_kv_block_table, (None, None)),
        full_kv_cache=(full_kv_cache, (None, None, None)),
        selection_kv_cache=(selection_kv_cache, (None, None, full_kv_cache.shape[-1])),
    )
    batch, lists = full_kv_block_table.shape[0], tuple(selection_topk_indices.shape)
    whole = lists[:1] == (batch,) if len(lists) == 4 or batch == 0 else len(lists) == 3 and lists[0] % batch == 0
    if not whole or len(lists) not in (3, 4):
        raise ValueError(f"invalid argument: selection_topk_indices.shape={list(lists)}, want [B,S,H,K] or [B*S,H,K]")
    rows, entries = math.prod(lists[:-1]), lists[-1] + 1
    status = (rows, entries) if selection_kv_block_status.dim() == 2 else (*lists[:-1], entries)
    _check_shapes(
        selection_kv_block_table=(selection_kv_block_table, (rows, None)),
        selection_kv_block_status=(selection_kv_block_status, status),
        full_kv_actual_seq=(full_kv_actual_seq, (batch,)),
        full_q_actual_seq=(full_q_actual_seq, (batch,)),
    )
    if full_k_rope.numel() > 0:
        _check_shapes(full_k_rope=(full_k_rope, (*full_kv_cache.shape[:2], None)))
        _check_shapes(selection_k_rope=(selection_k_rope, (*selection_kv_cache.shape[:2], full_k_rope.shape[-1])))
    names = {"key": "full_kv_cache", "value": "full_k_rope"}
    names |= {"key_cache": "selection_kv_cache", "value_cache": "selection_k_rope"}
    tensors = (
        selection_k_rope,
        selection_kv_cache,
        selection_kv_block_table,
        selection_kv_block_status,
        selection_topk_indices,
        full_k_rope,
        full_kv_cache,
        full_kv_block_table,
        full_kv_actual_seq,
        full_q_actual_seq,
    )
    with own_names(names):
        return call_operator(cache_ops.gather_selection, tensors, *tensors, selection_topk_block_size)


@checked
def npu_gather_selection_kv_cache_functional(
    selection_k_rope: Tensor,
    selection_kv_cache: Tensor,
    selection_kv_block_table: Tensor,
    selection_kv_block_status: Tensor,
    selection_topk_indices: Tensor,
    full_k_rope: Tensor,
    full_kv_cache: Tensor,
    full_kv_block_table: Tensor,
    full_kv_actual_seq: Tensor,
    full_q_actual_seq: Tensor,
    *,
    selection_topk_block_size: int = 64,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Calls `npu_gather_selection_kv_cache` with copies of the first four tensors. Returns the copies and the
    function's result [B*S*H].

    Raises:
        ValueError: as `npu_gather_selection_kv_cache`.
    """
    written = (selection_k_rope, selection_kv_cache, selection_kv_block_table, selection_kv_block_status)
    copies = tuple(tensor.clone() for tensor in written)
    full = full_k_rope, full_kv_cache, full_kv_block_table, full_kv_actual_seq, full_q_actual_seq
    keywords = {"selection_topk_block_size": selection_topk_block_size}
    lengths = npu_gather_selection_kv_cache(*copies, selection_topk_indices, *full, **keywords)
    return *copies, lengths
