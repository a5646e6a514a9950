"""Custom operators for attention over caches of keys and values. The caches are read and written in place."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _fa
from .._fa import Mask
from .._torch.engine import compute
from .._torch.operators import call as call_operator
from .._torch.operators import operator, schema_of
from ._cache_keys import Keys, bias_of, keys_in_pages, keys_in_rows
from ._cache_places import Places, append, check_pages, pieces_of_cache, places_of
from ._call import TENSORS, FlashCall, engine_inputs, logsumexp, mask_of
from ._sequences import Piece, boundaries, check_longest, runs_of


class CachePlaces(NamedTuple):
    """Where the keys of a call lie in the caches. The operators take these members before the members of `FlashCall`.
    FlashCall.cu_k then has the prefix sums of the new keys.
    """

    cache_seqlens: Optional[Tensor]
    cache_batch_idx: Optional[Tensor]
    cache_leftpad: Optional[Tensor]
    block_table: Optional[Tensor]
    k_descale: Optional[Tensor]  # float32 [sequences, Nkv], of caches in 8 bits: a key is its code times this
    v_descale: Optional[Tensor]
    need_lse: bool


_PLACES = len(CachePlaces._fields)
_ARGUMENTS = f"{schema_of(CachePlaces)}, {schema_of(FlashCall)}"


def _lse_shape(q: Tensor, need_lse: bool) -> tuple[int, int]:
    return (q.shape[:-2].numel() if need_lse else 0), q.shape[-2]


def _fake(q, v_cache, places) -> tuple[Tensor, Tensor]:
    lse = _lse_shape(q, places.need_lse)
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1])), q.new_empty(lse, dtype=torch.float32)


@operator(
    f"cache_attention(Tensor q, Tensor k_cache, Tensor v_cache, {_ARGUMENTS}) -> (Tensor, Tensor)",
    fake=lambda q, _, v_cache, *arguments: _fake(q, v_cache, CachePlaces(*arguments[:_PLACES])),
)
def cache_attention(q, k_cache, v_cache, *arguments):
    """Returns out in the shape of q, and with need_lse also lse, float32 [total, N], -inf for rows without keys."""
    return _compute(q, k_cache, v_cache, None, None, *arguments)


@operator(
    "append_cache_attention(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, "
    f"{_ARGUMENTS}) -> (Tensor, Tensor)",
    fake=lambda q, _, v_cache, __, ___, *arguments: _fake(q, v_cache, CachePlaces(*arguments[:_PLACES])),
)
def append_cache_attention(q, k_cache, v_cache, k, v, *arguments):
    """Writes k and v into the caches, and then computes cache_attention."""
    return _compute(q, k_cache, v_cache, k, v, *arguments)


def attend_by_operator(q, k_cache, v_cache, k, v, where: CachePlaces, call: FlashCall) -> tuple[Tensor, Tensor]:
    arguments = *where, *call
    tensors = q, k_cache, v_cache, k, v, *where[:-1], *call[:TENSORS]
    if k is None:
        return call_operator(cache_attention, tensors, q, k_cache, v_cache, *arguments)
    return call_operator(append_cache_attention, tensors, q, k_cache, v_cache, k, v, *arguments)


def _row_boundaries(q: Tensor, call: FlashCall) -> list[int]:
    if call.cu_q is None:
        return [b * q.shape[1] for b in range(q.shape[0] + 1)]
    sums = boundaries("cu_seqlens_q", call.cu_q, q.shape[0])
    check_longest("max_seqlen_q", call.max_q, sums)
    return sums


def _added(sequences: int, k: Tensor | None, call: FlashCall) -> list[int]:
    if k is None:
        return [0] * sequences
    if call.cu_k is None:
        return [k.shape[1]] * sequences
    sums = boundaries("cu_seqlens_k_new", call.cu_k, k.shape[0])
    return [end - begin for begin, end in zip(sums, sums[1:], strict=False)]


def _compute(q, k_cache, v_cache, k, v, *arguments) -> tuple[Tensor, Tensor]:
    where, call = CachePlaces(*arguments[:_PLACES]), FlashCall(*arguments[_PLACES:])
    cu_q, table = _row_boundaries(q, call), where.block_table
    sequences, pages = len(cu_q) - 1, table is not None
    capacity = k_cache.shape[1] * (table.shape[1] if pages else 1)
    slots = sequences if pages else k_cache.shape[0]
    added = _added(sequences, k, call)
    places = places_of(sequences, capacity, slots, added, *where[:3])
    if pages:
        check_pages(table, places, k_cache.shape[0], k_cache.shape[1])
    if k is not None:
        new = tuple(t.reshape(-1, *t.shape[-2:])[: sum(added)] for t in (k, v))
        append((k_cache, v_cache), new, places, table)
    return _attend(q, k_cache, v_cache, cu_q, places, where, call)


def _attend(
    q, k_cache, v_cache, cu_q: list[int], places: Places, where: CachePlaces, call: FlashCall
) -> tuple[Tensor, Tensor]:
    rows = q.reshape(-1, *q.shape[-2:])
    out = q.new_empty((*rows.shape[:-1], v_cache.shape[-1]))
    lse = q.new_empty(_lse_shape(q, where.need_lse), dtype=torch.float32)
    if where.need_lse:
        lse.fill_(-torch.inf)
    if cu_q[-1] < out.shape[0]:
        out[cu_q[-1] :] = 0
    pieces = pieces_of_cache(cu_q, places, call.chunk)
    # The extension takes scales per page, not per sequence.
    in_one_call = where.k_descale is None and (call.slopes is None or call.right == 0)
    if where.block_table is not None and in_one_call:
        if pieces:
            _attend_pages(rows, k_cache, v_cache, pieces, where.block_table, call, out, lse if where.need_lse else None)
        return out.view(*q.shape[:-1], v_cache.shape[-1]), lse
    scales = _scales_of_pages(where)
    for begin, end in runs_of([(piece.q_end - piece.q_begin, scales and scales[piece.owner]) for piece in pieces]):
        run = pieces[begin:end]
        own = slice(run[0].q_begin, run[-1].q_end)
        sizes = len(run), run[0].q_end - run[0].q_begin  # Tensor.unflatten takes several times as long as view
        query, own_out = (t[own].view(*sizes, *t.shape[1:]) for t in (rows, out))
        own_lse = lse[own].view(*sizes, lse.shape[1]) if where.need_lse else None
        if call.qv is not None:
            qv = call.qv.reshape(-1, *call.qv.shape[-2:])[own].unflatten(0, (len(run), -1))
            _with_qv(query, qv, k_cache, v_cache, run, places, call, own_out, own_lse)
            continue
        if where.block_table is None:
            keys = keys_in_rows(k_cache, v_cache, run, places)
        else:
            keys = keys_in_pages(k_cache, v_cache, run, where.block_table)
        _without_qv(query, keys._replace(**_descales(run, where)), run, call, own_out, own_lse)
    return out.view(*q.shape[:-1], v_cache.shape[-1]), lse


def _attend_pages(
    rows: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    pieces: list[Piece],
    block_table: Tensor,
    call: FlashCall,
    out: Tensor,
    lse: Tensor | None,
) -> None:
    """Computes all sequences over pages in one call of the extension. The pieces follow each other in rows [T, N, D]
    without gaps. lse is [T, N] or None. Slopes must come with right == 0 (`_without_qv`)."""
    keys = keys_in_pages(k_cache, v_cache, pieces, block_table)
    used = slice(0, pieces[-1].q_end)
    bias, sink, above = None, call.sink, None
    if call.slopes is not None:
        bias, above = bias_of(call.slopes, pieces, keys, 0), _above_last(call.slopes, pieces)
        sink = None if sink is None else sink - above
    inputs = {
        "q": rows[used],
        "k": k_cache,
        "v": v_cache,
        "block_table": keys.block_table,
        "dense_mask": keys.dense_mask,
        "pse": bias,
        "sink": sink,
    }
    results = {"out": out[used]} if lse is None else {"out": out[used], "lse": lse[used]}
    ends = [piece.q_end for piece in pieces]
    options = call.decode_options(mask_of(call.left, call.right), "TND")
    compute(_fa.decode, inputs, results, options, ends, keys.lengths)
    if above is not None and lse is not None:
        lse[used] += above


def _above_last(slopes: Tensor, pieces: list[Piece]) -> Tensor:
    """Returns by how much each row's biases exceed those of its piece's last row, float32 [rows, N]. A row that sees no
    key after its place can be computed with the last row's biases. Its sink must then be lowered by the returned
    number, and its lse comes out lower by the same number.
    """
    rows = torch.tensor([piece.q_end - piece.q_begin for piece in pieces])
    ends, owners = (
        torch.repeat_interleave(torch.tensor(of), rows) for of in zip(*((p.q_end, p.owner) for p in pieces), strict=True)
    )
    back = ends - 1 - torch.arange(pieces[0].q_begin, pieces[-1].q_end)
    return (slopes if slopes.dim() == 1 else slopes[owners]) * back[:, None]


def _scales_of_pages(where: CachePlaces) -> list[list[float]] | None:
    """Returns the scales of each sequence if keys lie in pages. The extension takes scales per page, not per sequence,
    so one call can only compute sequences with equal scales.
    """
    if where.block_table is None or where.k_descale is None:
        return None
    return torch.cat([where.k_descale, where.v_descale], 1).tolist()


def _descales(run: list[Piece], where: CachePlaces) -> dict[str, Tensor]:
    """Returns the scales of a run's keys and values, [B|1, Nkv, 1, 1]."""
    if where.k_descale is None:
        return {}
    owners = [piece.owner for piece in (run if where.block_table is None else run[:1])]
    own = {"k_scale": where.k_descale, "v_scale": where.v_descale}
    return {name: scale[owners][:, :, None, None] for name, scale in own.items()}


def _without_qv(query, keys: Keys, pieces: list[Piece], call: FlashCall, out: Tensor, lse: Tensor | None) -> None:
    """Computes sequences with equal numbers of rows. query and out are [B, S, N, D], lse is [B, S, N] or None."""
    rows = query.shape[1]
    if call.slopes is None:
        return _decode(query, keys, None, mask_of(call.left, call.right), call, out, lse)
    if call.right == 0 or rows == 1:
        above = _above_last(call.slopes, pieces).view(len(pieces), rows, -1)
        own = call if call.sink is None else call._replace(sink=(call.sink - above).transpose(1, 2))
        bias = bias_of(call.slopes, pieces, keys, 0)
        _decode(query, keys, bias, mask_of(call.left, call.right), own, out, lse)
        if lse is not None:
            lse += above
        return None
    for i in range(rows):
        back, row = rows - 1 - i, slice(i, i + 1)
        bias, mask = bias_of(call.slopes, pieces, keys, back), mask_of(call.left, call.right, back)
        _decode(query[:, row], keys, bias, mask, call, out[:, row], None if lse is None else lse[:, row])
    return None


def _decode(
    query: Tensor, keys: Keys, bias: Tensor | None, mask: Mask, call: FlashCall, out: Tensor, lse: Tensor | None
) -> None:
    inputs = {"q": query, "block_table": keys.block_table, "dense_mask": keys.dense_mask, "pse": bias}
    results = {"out": out}
    if lse is not None:
        results["lse"] = query.new_empty((query.shape[0], query.shape[2], query.shape[1]), dtype=torch.float32)
    for name, tensors in (("k", keys.key), ("v", keys.value)):
        inputs[name] = tensors[0] if len(tensors) == 1 else list(tensors)
    inputs["sink"] = call.sink
    inputs["k_scale"], inputs["v_scale"] = keys.k_scale, keys.v_scale
    lengths = keys.lengths if len(keys.key) == 1 else []
    compute(_fa.decode, inputs, results, call.decode_options(mask), (), lengths)
    if lse is not None:
        lse.copy_(results["lse"].transpose(1, 2))


def _with_qv(query, qv, k_cache, v_cache, pieces: list[Piece], places: Places, call: FlashCall, out, lse) -> None:
    """Computes a run of sequences with _fa.forward, which can add a second product, qv v^T, to the scores. It is called
    once per sequence, because the keys of the sequences do not form one tensor."""
    call = call._replace(slopes=None)
    for i, piece in enumerate(pieces):
        span = places.slots[piece.owner], slice(piece.k_begin, piece.k_end)
        key, value = k_cache[span][None], v_cache[span][None]
        inputs = engine_inputs(query[i : i + 1], key, value, call._replace(qv=qv[i : i + 1]), None)
        statistics = [query.new_empty((1, query.shape[2], query.shape[1]), dtype=torch.float32) for _ in range(2)]
        results = dict(zip(("softmax_max", "softmax_sum"), statistics, strict=True))
        compute(_fa.forward, inputs, {"out": out[i : i + 1], **results}, call.options("BSND", 0, 0))
        if lse is not None:
            lse[i] = logsumexp(*statistics, -torch.inf, call.sink)[0].t()
