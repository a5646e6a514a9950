"""Attention over caches of keys and values as custom operators: the caches are read where they lie, and written in
place."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from .. import _context, _fa
from .._torch_direct import _arrays
from .._torch_ops import LIBRARY, operator
from ._cache_keys import Keys, bias_of, keys_in_pages, keys_in_rows
from ._cache_places import Places, append, check_pages, pieces_of_cache, places_of
from ._call import FlashCall, engine_inputs, logsumexp, mask_of
from ._sequences import Piece, boundaries, check_longest, runs_of


class CacheCall(NamedTuple):
    """Everything of a call but q, the caches and what is added to them, in the order of the operators' arguments."""

    qv: Optional[Tensor]
    slopes: Optional[Tensor]
    sink: Optional[Tensor]
    cache_seqlens: Optional[Tensor]
    cache_batch_idx: Optional[Tensor]
    cache_leftpad: Optional[Tensor]
    block_table: Optional[Tensor]
    cu_q: Optional[Tensor]  # given: q [total, N, D]; else [B, S, N, D]
    cu_new: Optional[Tensor]  # of k and v, likewise
    max_q: int
    scale: Optional[float]
    left: int
    right: int
    chunk: int
    softcap: float


_CALL_SCHEMA = (
    "Tensor? qv, Tensor? slopes, Tensor? sink, Tensor? cache_seqlens, Tensor? cache_batch_idx, Tensor? cache_leftpad, "
    "Tensor? block_table, Tensor? cu_q, Tensor? cu_new, SymInt max_q, float? scale, SymInt left, SymInt right, "
    "SymInt chunk, float softcap"
)


@operator(f"cache_attention(Tensor q, Tensor k_cache, Tensor v_cache, {_CALL_SCHEMA}) -> (Tensor, Tensor)")
def cache_attention(q, k_cache, v_cache, *arguments):
    """out as q lies, and lse, float32 [total, N], -inf for rows without keys."""
    return _compute(q, k_cache, v_cache, None, None, CacheCall(*arguments))


@operator(
    "append_cache_attention(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, "
    f"{_CALL_SCHEMA}) -> (Tensor, Tensor)"
)
def append_cache_attention(q, k_cache, v_cache, k, v, *arguments):
    """As cache_attention, once k and v are written into the caches."""
    return _compute(q, k_cache, v_cache, k, v, CacheCall(*arguments))


def _results(q: Tensor, v_cache: Tensor) -> tuple[Tensor, Tensor]:
    rows, heads = q.shape[:-2].numel(), q.shape[-2]
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1])), q.new_empty((rows, heads), dtype=torch.float32)


@torch.library.register_fake("fa::cache_attention", lib=LIBRARY)
def _(q, k_cache, v_cache, *arguments):
    return _results(q, v_cache)


@torch.library.register_fake("fa::append_cache_attention", lib=LIBRARY)
def _(q, k_cache, v_cache, k, v, *arguments):
    return _results(q, v_cache)


def _row_boundaries(q: Tensor, call: CacheCall) -> list[int]:
    if call.cu_q is None:
        return [b * q.shape[1] for b in range(q.shape[0] + 1)]
    sums = boundaries("cu_seqlens_q", call.cu_q, q.shape[0])
    check_longest("max_seqlen_q", call.max_q, sums)
    return sums


def _added(sequences: int, k: Tensor | None, call: CacheCall) -> list[int]:
    if k is None:
        return [0] * sequences
    if call.cu_new is None:
        return [k.shape[1]] * sequences
    sums = boundaries("cu_seqlens_k_new", call.cu_new, k.shape[0])
    return [end - begin for begin, end in zip(sums, sums[1:], strict=False)]


def _compute(q, k_cache, v_cache, k, v, call: CacheCall) -> tuple[Tensor, Tensor]:
    cu_q = _row_boundaries(q, call)
    sequences, pages = len(cu_q) - 1, call.block_table is not None
    capacity = k_cache.shape[1] * (call.block_table.shape[1] if pages else 1)
    slots = sequences if pages else k_cache.shape[0]
    added = _added(sequences, k, call)
    given = call.cache_seqlens, call.cache_batch_idx, call.cache_leftpad
    places = places_of(sequences, capacity, slots, added, *given)
    if pages:
        check_pages(call.block_table, places, k_cache.shape[0], k_cache.shape[1])
    if k is not None:
        for cache, new in ((k_cache, k), (v_cache, v)):
            append(cache, new.reshape(-1, *new.shape[-2:])[: sum(added)], places, call.block_table)
    return _attend(q, k_cache, v_cache, cu_q, places, call)


def _attend(q, k_cache, v_cache, cu_q: list[int], places: Places, call: CacheCall) -> tuple[Tensor, Tensor]:
    rows = q.reshape(-1, *q.shape[-2:])
    out = q.new_empty((*rows.shape[:-1], v_cache.shape[-1]))
    lse = q.new_full(rows.shape[:2], -torch.inf, dtype=torch.float32)
    out[cu_q[-1] :] = 0
    pieces = pieces_of_cache(cu_q, places, call.chunk)
    for begin, end in runs_of([piece.q_end - piece.q_begin for piece in pieces]):
        run = pieces[begin:end]
        own = slice(run[0].q_begin, run[-1].q_end)
        query, own_out, own_lse = (t[own].unflatten(0, (len(run), -1)) for t in (rows, out, lse))
        if call.qv is not None:
            qv = call.qv.reshape(-1, *call.qv.shape[-2:])[own].unflatten(0, (len(run), -1))
            _with_qv(query, qv, k_cache, v_cache, run, places, call, own_out, own_lse)
            continue
        if call.block_table is None:
            keys = keys_in_rows(k_cache, v_cache, run, places)
        else:
            keys = keys_in_pages(k_cache, v_cache, run, call.block_table)
        _without_qv(query, keys, run, call, own_out, own_lse)
    return out.view(*q.shape[:-1], v_cache.shape[-1]), lse


def _without_qv(query: Tensor, keys: Keys, run: list[Piece], call: CacheCall, out: Tensor, lse: Tensor) -> None:
    """query, out [B, S, N, D], lse [B, S, N]."""
    rows = query.shape[1]
    if call.slopes is None:
        return _decode(query, keys, None, mask_of(call.left, call.right), call, out, lse)
    if call.right == 0 or rows == 1:
        # No key stands after a row: its bias is that of the last row and a number, which the softmax does not see.
        bias = bias_of(call.slopes, run, keys, 0)
        _decode(query, keys, bias, mask_of(call.left, call.right), call, out, lse)
        back = torch.arange(rows - 1, -1, -1, dtype=torch.float32)[:, None]
        own = call.slopes if call.slopes.dim() == 1 else call.slopes[[piece.owner for piece in run]][:, None]
        lse += own * back
        return None
    for i in range(rows):
        back, row = rows - 1 - i, slice(i, i + 1)
        bias, mask = bias_of(call.slopes, run, keys, back), mask_of(call.left, call.right, back)
        _decode(query[:, row], keys, bias, mask, call, out[:, row], lse[:, row])
    return None


def _decode(query: Tensor, keys: Keys, bias: Tensor | None, mask, call: CacheCall, out: Tensor, lse: Tensor) -> None:
    own = query.new_empty((query.shape[0], query.shape[2], query.shape[1]), dtype=torch.float32)
    inputs = {"query": query, "block_table": keys.block_table, "dense_mask": keys.dense_mask, "pse": bias}
    arrays = _arrays({**inputs, "sink": call.sink}, {"out": out, "lse": own})
    for name, tensors in (("key", keys.key), ("value", keys.value)):
        arrays[name] = to_dlpack(tensors[0]) if len(tensors) == 1 else [to_dlpack(tensor) for tensor in tensors]
    options = _fa.DecodeAttentionOptions(
        layout="BSND", heads=0, scale=call.scale, mask=mask, softcap=call.softcap, antiquant_per_token=False
    )
    lengths = keys.lengths if len(keys.key) == 1 else []
    _fa.decode(arrays, options, [], lengths, _context.chosen_context(None))
    lse.copy_(own.transpose(1, 2))


def _with_qv(query, qv, k_cache, v_cache, run: list[Piece], places: Places, call: CacheCall, out, lse) -> None:
    """By the dense engine, which adds two products; element by element, as each has its own keys."""
    numbers = {"scale": call.scale, "left": call.left, "right": call.right, "softcap": call.softcap}
    absent = dict.fromkeys(("slopes", "dropout_state", "cu_q", "cu_k", "used_q", "used_k"))
    for i, piece in enumerate(run):
        span = places.slots[piece.owner], slice(piece.k_begin, piece.k_end)
        key, value = k_cache[span][None], v_cache[span][None]
        own = FlashCall(qv=qv[i : i + 1], sink=call.sink, max_q=0, max_k=0, chunk=0, keep_prob=1.0, **absent, **numbers)
        statistics = [query.new_empty((1, query.shape[2], query.shape[1]), dtype=torch.float32) for _ in range(2)]
        results = dict(zip(("softmax_max", "softmax_sum"), statistics, strict=True))
        arrays = _arrays(engine_inputs(query[i : i + 1], key, value, own, None), {"out": out[i : i + 1], **results})
        _fa.forward(arrays, own.options("BSND", 0, 0), [], [], _context.chosen_context(None))
        lse[i] = logsumexp(*statistics, -torch.inf, call.sink)[0].t()
