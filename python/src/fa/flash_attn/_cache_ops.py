"""Attention over caches of keys and values as custom operators. The caches are read and written in place."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _context, _fa
from .._fa import Mask
from .._torch.direct import arrays_of, possible
from .._torch.ops import LIBRARY, operator
from ._cache_keys import Keys, bias_of, keys_in_pages, keys_in_rows
from ._cache_places import Places, append, check_pages, pieces_of_cache, places_of
from ._call import FlashCall, engine_inputs, logsumexp, mask_of
from ._sequences import Piece, boundaries, check_longest, runs_of


class CacheCall(NamedTuple):
    """All arguments of a call except q, the caches and the new keys and values, in the order of the operators'
    arguments."""

    qv: Optional[Tensor]
    slopes: Optional[Tensor]
    sink: Optional[Tensor]
    cache_seqlens: Optional[Tensor]
    cache_batch_idx: Optional[Tensor]
    cache_leftpad: Optional[Tensor]
    block_table: Optional[Tensor]
    cu_q: Optional[Tensor]  # with it q is [total, N, D], otherwise [B, S, N, D]
    cu_new: Optional[Tensor]  # the same for k and v
    max_q: int
    scale: Optional[float]
    left: int
    right: int
    chunk: int
    softcap: float
    need_lse: bool


_CALL_SCHEMA = (
    "Tensor? qv, Tensor? slopes, Tensor? sink, Tensor? cache_seqlens, Tensor? cache_batch_idx, Tensor? cache_leftpad, "
    "Tensor? block_table, Tensor? cu_q, Tensor? cu_new, SymInt max_q, float? scale, SymInt left, SymInt right, "
    "SymInt chunk, float softcap, bool need_lse"
)


@operator(f"cache_attention(Tensor q, Tensor k_cache, Tensor v_cache, {_CALL_SCHEMA}) -> (Tensor, Tensor)")
def cache_attention(q, k_cache, v_cache, *arguments):
    """out in q's form, and with need_lse lse, float32 [total, N], -inf for rows without keys."""
    return _compute(q, k_cache, v_cache, None, None, CacheCall(*arguments))


@operator(
    "append_cache_attention(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, "
    f"{_CALL_SCHEMA}) -> (Tensor, Tensor)"
)
def append_cache_attention(q, k_cache, v_cache, k, v, *arguments):
    """Writes k and v into the caches, and then computes as cache_attention."""
    return _compute(q, k_cache, v_cache, k, v, CacheCall(*arguments))


def attend_by_operator(q, k_cache, v_cache, k, v, call: CacheCall) -> tuple[Tensor, Tensor]:
    """Runs the right operator for the call, without the dispatcher if nothing watches."""
    if possible(q, k_cache, v_cache, k, v, *call[:9]):
        return _compute(q, k_cache, v_cache, k, v, call)
    if k is None:
        return cache_attention(q, k_cache, v_cache, *call)
    return append_cache_attention(q, k_cache, v_cache, k, v, *call)


def _lse_shape(rows: int, heads: int, call: CacheCall) -> tuple[int, int]:
    return (rows if call.need_lse else 0), heads


@torch.library.register_fake("fa::cache_attention", lib=LIBRARY)
def _(q, k_cache, v_cache, *arguments):
    lse = _lse_shape(q.shape[:-2].numel(), q.shape[-2], CacheCall(*arguments))
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1])), q.new_empty(lse, dtype=torch.float32)


@torch.library.register_fake("fa::append_cache_attention", lib=LIBRARY)
def _(q, k_cache, v_cache, k, v, *arguments):
    lse = _lse_shape(q.shape[:-2].numel(), q.shape[-2], CacheCall(*arguments))
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1])), q.new_empty(lse, dtype=torch.float32)


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
        new = tuple(t.reshape(-1, *t.shape[-2:])[: sum(added)] for t in (k, v))
        append((k_cache, v_cache), new, places, call.block_table)
    return _attend(q, k_cache, v_cache, cu_q, places, call)


def _attend(q, k_cache, v_cache, cu_q: list[int], places: Places, call: CacheCall) -> tuple[Tensor, Tensor]:
    rows = q.reshape(-1, *q.shape[-2:])
    out = q.new_empty((*rows.shape[:-1], v_cache.shape[-1]))
    lse = q.new_full(_lse_shape(*rows.shape[:2], call), -torch.inf, dtype=torch.float32)
    if cu_q[-1] < out.shape[0]:
        out[cu_q[-1] :] = 0
    pieces = pieces_of_cache(cu_q, places, call.chunk)
    for begin, end in runs_of([piece.q_end - piece.q_begin for piece in pieces]):
        run = pieces[begin:end]
        own = slice(run[0].q_begin, run[-1].q_end)
        query, own_out = (t[own].unflatten(0, (len(run), -1)) for t in (rows, out))
        own_lse = lse[own].unflatten(0, (len(run), -1)) if call.need_lse else None
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


def _without_qv(query: Tensor, keys: Keys, run: list[Piece], call: CacheCall, out: Tensor, lse: Tensor | None) -> None:
    """Computes a run of sequences. query and out are [B, S, N, D], lse is [B, S, N] or None."""
    rows = query.shape[1]
    if call.slopes is None:
        return _decode(query, keys, None, mask_of(call.left, call.right), call, out, lse)
    if call.right == 0 or rows == 1:
        # No key follows a row, so its bias is the last row's bias plus a constant, which softmax ignores.
        bias = bias_of(call.slopes, run, keys, 0)
        _decode(query, keys, bias, mask_of(call.left, call.right), call, out, lse)
        if lse is None:
            return None
        back = torch.arange(rows - 1, -1, -1, dtype=torch.float32)[:, None]
        own = call.slopes if call.slopes.dim() == 1 else call.slopes[[piece.owner for piece in run]][:, None]
        lse += own * back
        return None
    for i in range(rows):
        back, row = rows - 1 - i, slice(i, i + 1)
        bias, mask = bias_of(call.slopes, run, keys, back), mask_of(call.left, call.right, back)
        _decode(query[:, row], keys, bias, mask, call, out[:, row], None if lse is None else lse[:, row])
    return None


def _decode(
    query: Tensor, keys: Keys, bias: Tensor | None, mask: Mask, call: CacheCall, out: Tensor, lse: Tensor | None
) -> None:
    inputs = {"q": query, "block_table": keys.block_table, "dense_mask": keys.dense_mask, "pse": bias}
    results = {"out": out}
    if lse is not None:
        results["lse"] = query.new_empty((query.shape[0], query.shape[2], query.shape[1]), dtype=torch.float32)
    for name, tensors in (("k", keys.key), ("v", keys.value)):
        inputs[name] = tensors[0] if len(tensors) == 1 else list(tensors)
    arrays = arrays_of({**inputs, "sink": call.sink}, results)
    options = _fa.DecodeAttentionOptions(
        layout="BSND", heads=0, scale=call.scale, mask=mask, softcap=call.softcap, antiquant_per_token=False
    )
    lengths = keys.lengths if len(keys.key) == 1 else []
    _fa.decode(arrays, options, [], lengths, _context.context_of_tensors())
    if lse is not None:
        lse.copy_(results["lse"].transpose(1, 2))


def _with_qv(query, qv, k_cache, v_cache, run: list[Piece], places: Places, call: CacheCall, out, lse) -> None:
    """Computes a run of sequences with the dense engine, which adds two products, one batch element at a time, because
    each has its own keys."""
    numbers = {"scale": call.scale, "left": call.left, "right": call.right, "softcap": call.softcap}
    absent = dict.fromkeys(("slopes", "dropout_state", "cu_q", "cu_k", "used_q", "used_k"))
    for i, piece in enumerate(run):
        span = places.slots[piece.owner], slice(piece.k_begin, piece.k_end)
        key, value = k_cache[span][None], v_cache[span][None]
        own = FlashCall(qv=qv[i : i + 1], sink=call.sink, max_q=0, max_k=0, chunk=0, keep_prob=1.0, **absent, **numbers)
        statistics = [query.new_empty((1, query.shape[2], query.shape[1]), dtype=torch.float32) for _ in range(2)]
        results = dict(zip(("softmax_max", "softmax_sum"), statistics, strict=True))
        arrays = arrays_of(engine_inputs(query[i : i + 1], key, value, own, None), {"out": out[i : i + 1], **results})
        _fa.forward(arrays, own.options("BSND", 0, 0), [], [], _context.context_of_tensors())
        if lse is not None:
            lse[i] = logsumexp(*statistics, -torch.inf, call.sink)[0].t()
