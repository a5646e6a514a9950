"""Computes flash_attn_with_kvcache of flash_attn 2 and 3, and flash_attn_varlen_func over pages. The arguments have the
same names for both versions.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from ._arguments import (
    at,
    FP8,
    TYPES,
    check_heads,
    check_head_sizes,
    check_integers,
    check_none,
    check_same_type,
    check_size,
    check_tensor,
    invalid,
    renamed,
)
from ._cache_ops import CachePlaces, attend_by_operator
from ._call import FlashCall, Options
from ._dense import Packed, check_packed, checked_options, length
from .layers.rotary import check_rotation, packed_positions, rotated

_INTEGERS = (torch.int32, torch.int64)


class Cache(NamedTuple):
    """The caches, the lengths and places of keys in them, and the new keys that the call adds."""

    k_cache: Tensor
    v_cache: Tensor
    k: Optional[Tensor] = None
    v: Optional[Tensor] = None
    cache_seqlens: int | Tensor | None = None
    cache_batch_idx: Optional[Tensor] = None
    cache_leftpad: Optional[Tensor] = None
    block_table: Optional[Tensor] = None
    cu_seqlens_q: Optional[Tensor] = None
    cu_seqlens_k_new: Optional[Tensor] = None
    max_seqlen_q: Optional[int] = None

    @property
    def capacity(self) -> int:
        """Returns the most keys that a sequence may have in the caches."""
        return self.k_cache.shape[1] * (1 if self.block_table is None else self.block_table.shape[1])


class Descales(NamedTuple):
    """Scales of q, keys and values in 8 bits, float32 [sequences, Nkv]; None means 1."""

    q_descale: Optional[Tensor] = None
    k_descale: Optional[Tensor] = None
    v_descale: Optional[Tensor] = None


class Rotary(NamedTuple):
    rotary_cos: Tensor
    rotary_sin: Tensor
    interleaved: bool
    seqlens: Optional[Tensor] = None  # None means cache_seqlens


def attend_cache(
    q: Tensor,
    cache: Cache,
    rotary: Rotary | None,
    options: Options,
    need_lse: bool,
    empty: float,
    descales: Descales = Descales(),
) -> Any:
    """Returns out, or with need_lse (out, softmax_lse [B, N, S] or [N, total]). Rows without keys have the softmax_lse
    `empty`. There are no gradients."""
    q, qv, k, v = _as_cached(cache.k_cache, q, options.qv, cache.k, cache.v)
    cache = cache._replace(k=k, v=v)
    compressed = _is_compressed(cache)
    if not compressed:
        _check_no_descales(cache, descales)
    elif isinstance(q, Tensor) and q.dtype == cache.k_cache.dtype:
        q = q.to(torch.bfloat16)  # exact
    else:
        check_none("q has no 8 bits", q_descale=descales.q_descale)
    sequences = check_query(q, cache)
    check_cache(q, cache, sequences)
    given = checked_options(q, cache.v_cache, qv, options, sequences)
    if qv is not None and cache.block_table is not None:
        raise invalid("qv", "given", "None with pages")
    if isinstance(cache.cache_seqlens, int):
        cache = cache._replace(cache_seqlens=torch.full((sequences,), cache.cache_seqlens, dtype=torch.int32))
    k_descale, v_descale = checked_descales(cache, descales, sequences) if compressed else (None, None)
    if compressed:
        why = "type of ", at("k_cache"), f" is {cache.k_cache.dtype}"
        check_none(*why, qv=qv, rotary_cos=None if rotary is None else rotary.rotary_cos)
    if rotary is not None:
        check_rotary(q, cache, rotary)
        q, cache = _turned(q, cache, rotary, local=given["left"] >= 0 or given["right"] >= 0)
    call = FlashCall(
        cu_q=cache.cu_seqlens_q,
        cu_k=cache.cu_seqlens_k_new,
        max_q=q.shape[0] if cache.max_seqlen_q is None else length(cache.max_seqlen_q),
        **given | {name: _constant(given[name]) for name in ("qv", "sink")},
    )
    where = CachePlaces(*cache[cache._fields.index("cache_seqlens") :][:4], k_descale, v_descale, need_lse)
    tensors = (_constant(t) for t in (q, cache.k_cache, cache.v_cache, cache.k, cache.v))
    out, lse = attend_by_operator(*tensors, where, call)
    if not need_lse:
        return out
    lse = torch.where(lse == -torch.inf, empty, lse)
    return out, lse.t().contiguous() if q.dim() == 3 else lse.unflatten(0, q.shape[:2]).transpose(1, 2).contiguous()


def attend_pages(
    q: Tensor, k: Tensor, v: Tensor, options: Options, packed: Packed, block_table: Tensor, empty: float
) -> Any:
    """Computes flash_attn_varlen_func over pages. Returns out, or with return_attn_probs (out, softmax_lse, None)."""
    if options.dropout_p != 0.0:
        raise invalid("dropout_p", options.dropout_p, "0 with ", at("block_table"))
    packed = check_packed(packed)
    lengths = packed.cu_seqlens_k.diff()
    where = {"block_table": block_table, "cu_seqlens_q": packed.cu_seqlens_q, "max_seqlen_q": packed.max_seqlen_q}
    try:
        cache = Cache(k, v, cache_seqlens=lengths, **where)
        result = attend_cache(q, cache, None, options, options.return_attn_probs, empty)
    except ValueError as error:
        if not hasattr(error, "parts"):
            raise
        names = {"k_cache": "k", "v_cache": "v", "cache_seqlens": "cu_seqlens_k.diff()"}
        raise renamed(error, names) from None
    return (*result, None) if options.return_attn_probs else result


def check_query(q: Tensor, cache: Cache) -> int:
    """Checks q and the lengths of queries, and returns the number of sequences."""
    packed = cache.cu_seqlens_q is not None
    check_tensor("q", q, "[total, N, D]" if packed else "[B, S, N, D]")
    check_head_sizes(q=q)
    if not packed:
        return q.shape[0]
    check_tensor("cu_seqlens_q", cache.cu_seqlens_q, "[B + 1]", (torch.int32,))
    if cache.cu_seqlens_q.shape[0] == 0:
        raise invalid("cu_seqlens_q.shape", [0], "[B + 1]")
    return cache.cu_seqlens_q.shape[0] - 1


def _is_compressed(cache: Cache) -> bool:
    return isinstance(cache.k_cache, Tensor) and cache.k_cache.dtype in FP8


def _check_no_descales(cache: Cache, descales: Descales) -> None:
    held = cache.k_cache.dtype if isinstance(cache.k_cache, Tensor) else None
    check_none("type of ", at("k_cache"), f" is {held}", **descales._asdict())


def checked_descales(cache: Cache, descales: Descales, sequences: int) -> tuple[Tensor, Tensor]:
    """Returns the factors of scores and of values, float32 [sequences, Nkv]. The factor of scores is q_descale *
    k_descale."""
    heads = cache.k_cache.shape[2]
    for name, scale in descales._asdict().items():
        if scale is None:
            continue
        check_tensor(name, scale, "[B, Nkv]", (torch.float32,))
        check_size(name, scale, 0, sequences, "sequences")
        check_size(name, scale, 1, heads, at("k_cache.shape[2]"))
    ones = torch.ones((sequences, heads), dtype=torch.float32)
    q, k, v = (ones if scale is None else scale.detach() for scale in descales)
    return q * k, v


def check_cache(q: Tensor, cache: Cache, sequences: int) -> None:
    paged = cache.block_table is not None
    form = "[pages, page size, N, D]" if paged else "[B, S, N, D]"
    for name in ("k_cache", "v_cache"):
        tensor = getattr(cache, name)
        check_tensor(name, tensor, form, (*TYPES, *FP8))
        check_same_type(name, tensor, *_type_of_keys(q, cache))
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise invalid(f"{name}.stride(-1)", tensor.stride(-1), "1: a cache is never copied")
    for axis in range(3):
        check_size("v_cache", cache.v_cache, axis, cache.k_cache.shape[axis], at(f"k_cache.shape[{axis}]"))
    check_heads("k_cache", cache.k_cache, 2, q.shape[-2])
    check_size("k_cache", cache.k_cache, 3, q.shape[-1], at("q.shape[-1]"))
    check_head_sizes(v_cache=cache.v_cache)
    check_integers("block_table", cache.block_table, "[B, pages]")
    for name in ("cache_seqlens", "cache_batch_idx", "cache_leftpad", "block_table"):
        tensor = getattr(cache, name)
        if name != "block_table" and not isinstance(tensor, int):
            check_integers(name, tensor, "[B]", _INTEGERS)
        if isinstance(tensor, Tensor):
            check_size(name, tensor, 0, sequences, "sequences")
    if paged and cache.cache_batch_idx is not None:
        raise invalid("cache_batch_idx", "given", "None with ", at("block_table"))
    if paged and (cache.block_table.shape[1] == 0 or cache.k_cache.shape[1] == 0):
        raise invalid("block_table.shape", list(cache.block_table.shape), "at least one page of at least one key")
    if not paged and cache.cache_batch_idx is None:
        if cache.k_cache.shape[0] < sequences:
            raise invalid("k_cache.shape[0]", cache.k_cache.shape[0], f"at least {sequences} (sequences)")
    check_new(q, cache, sequences)


def _type_of_keys(q: Tensor, cache: Cache) -> tuple[str, torch.dtype]:
    """Returns the type of caches and new keys, after the name of the argument that has it."""
    return ("k_cache", cache.k_cache.dtype) if _is_compressed(cache) else ("q", q.dtype)


def check_new(q: Tensor, cache: Cache, sequences: int) -> None:
    """Checks the new keys and values, if there are any."""
    if (cache.k is None) != (cache.v is None):
        raise invalid("k" if cache.k is None else "v", None, "a tensor, as the other is given")
    if cache.k is None:
        return
    if cache.cache_seqlens is None:
        raise invalid("cache_seqlens", None, "the lengths behind which k and v are written")
    packed = cache.cu_seqlens_k_new is not None
    rows = 1 if packed else 2
    for name, new, source in (("k", cache.k, cache.k_cache), ("v", cache.v, cache.v_cache)):
        check_tensor(name, new, "[total, N, D]" if packed else "[B, S, N, D]", (*TYPES, *FP8))
        check_same_type(name, new, *_type_of_keys(q, cache))
        check_size(name, new, rows, source.shape[2], at(f"{name}_cache.shape[2]"))
        check_size(name, new, rows + 1, source.shape[3], at(f"{name}_cache.shape[3]"))
    if not packed:
        check_size("k", cache.k, 0, sequences, "sequences")
    for axis in range(rows):
        check_size("v", cache.v, axis, cache.k.shape[axis], at(f"k.shape[{axis}]"))
    check_integers("cu_seqlens_k_new", cache.cu_seqlens_k_new, "[B + 1]")
    if packed:
        check_size("cu_seqlens_k_new", cache.cu_seqlens_k_new, 0, sequences + 1, "sequences + 1")


def check_rotary(q: Tensor, cache: Cache, rotary: Rotary) -> None:
    if cache.k is None:
        raise invalid("k", None, "a tensor, as rotary_cos is given")
    packed = cache.cu_seqlens_q is not None
    names = "rotary_cos", "rotary_sin"
    check_rotation(q, *rotary[:2], "[total, N, D]" if packed else "[B, S, N, D]", names)
    if rotary.rotary_cos.shape[0] < cache.capacity:
        raise invalid("rotary_cos.shape[0]", rotary.rotary_cos.shape[0], f"at least {cache.capacity} (keys in a cache)")
    check_integers("rotary_seqlens", rotary.seqlens, "[B]", _INTEGERS)
    if rotary.seqlens is not None:
        check_size("rotary_seqlens", rotary.seqlens, 0, cache.cache_seqlens.shape[0], "sequences")


def _turned(q: Tensor, cache: Cache, rotary: Rotary, local: bool) -> tuple[Tensor, Cache]:
    """Returns q and the cache, with q and the new keys rotated by their positions. Unless `local`, all queries of a
    sequence have the position of its first new key."""
    starts = cache.cache_seqlens if rotary.seqlens is None else rotary.seqlens
    tables = rotary.rotary_cos, rotary.rotary_sin

    def positions(x: Tensor, cu_seqlens: Tensor | None, step: int) -> Tensor:
        if cu_seqlens is not None:
            return packed_positions(x.shape[0], starts, cu_seqlens, step)
        return starts[:, None] + step * torch.arange(x.shape[1])

    of_q = positions(q, cache.cu_seqlens_q, int(local))
    k = rotated(cache.k, *tables, positions(cache.k, cache.cu_seqlens_k_new, 1), rotary.interleaved)
    return rotated(q, *tables, of_q, rotary.interleaved), cache._replace(k=k)


def _as_cached(k_cache: Tensor, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Returns the tensors. Under autocast they get the type of the caches."""
    if not (torch.is_autocast_enabled("cpu") and isinstance(k_cache, Tensor) and k_cache.dtype in TYPES):
        return tensors
    return tuple(t.to(k_cache.dtype) if isinstance(t, Tensor) and t.dtype in TYPES else t for t in tensors)


def _constant(tensor: Tensor | None) -> Tensor | None:
    return tensor.detach() if tensor is not None and tensor.requires_grad else tensor
