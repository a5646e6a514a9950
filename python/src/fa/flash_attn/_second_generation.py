"""The functions of flash_attn 2.8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._arguments import check_size, check_tensor, renamed
from ._cache import Cache, Rotary, attend_cache, attend_pages
from ._call import Options
from ._dense import Packed, attend
from ._ops import attend_plainly, lying_as

EMPTY = torch.inf  # the softmax_lse of rows without keys


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Computes attention of q [B, Sq, N, D], k [B, Sk, Nkv, D] and v [B, Sk, Nkv, Dv], of one type: float32, bfloat16,
    float16.

    Row i has the place of key i + Sk - Sq, so masks are aligned to the bottom right.

    Args:
        dropout_p: in [0, 1). The seed comes from PyTorch's generator.
        softmax_scale: None means 1 / sqrt(D).
        causal: whether a row sees no key after its place.
        window_size: (left, right), how many keys before and after its place a row sees; -1 means all.
        softcap: c > 0 turns scores s into c * tanh(s / c).
        alibi_slopes: float32 [N] or [B, N]. Scores get -slope * |i + Sk - Sq - j|. Slopes have no gradient.
        deterministic: accepted without effect, because gradients are always deterministic.
        return_attn_probs: whether to return softmax_lse and S_dmask too.

    Returns:
        out [B, Sq, N, Dv], or with return_attn_probs (out, softmax_lse, S_dmask). softmax_lse is float32 [B, N, Sq].
        S_dmask has the probabilities [B, N, Sq, Sk] in q's type, dropped ones with a changed sign; it is None without
        dropout. Rows without keys are 0, and their softmax_lse is +inf.

    Raises:
        ValueError: an argument is wrong; the message names it. TypeError: an argument is no tensor.
    """
    if dropout_p == 0.0 and alibi_slopes is None and not return_attn_probs:
        out = attend_plainly(q, k, v, "as query", causal, window_size, softmax_scale, softcap)
        if out is not None:
            return out
    options = Options(causal, window_size, softmax_scale, softcap, dropout_p, alibi_slopes, return_attn_probs)
    return lying_as(q, attend(q, k, v, options, None, EMPTY))


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Computes `flash_attn_func` with k and v in one tensor, [B, Sk, 2, Nkv, D]."""
    k, v = _apart("kv", kv, "[B, S, 2, N, D]", 2)
    options = Options(causal, window_size, softmax_scale, softcap, dropout_p, alibi_slopes, return_attn_probs)
    return _named({"k": "kv", "v": "kv"}, q, k, v, options, None)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Computes `flash_attn_func` with q, k and v in one tensor, [B, S, 3, N, D]."""
    q, k, v = _apart("qkv", qkv, "[B, S, 3, N, D]", 3)
    options = Options(causal, window_size, softmax_scale, softcap, dropout_p, alibi_slopes, return_attn_probs)
    return _named({"q": "qkv", "k": "qkv", "v": "qkv"}, q, k, v, options, None)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """Computes `flash_attn_func` of packed sequences: q [total_q, N, D], k [total_k, Nkv, D], v [total_k, Nkv, Dv].

    Args:
        cu_seqlens_q, cu_seqlens_k: int32 [B + 1], prefix sums of the sequences' lengths with a leading 0.
        max_seqlen_q, max_seqlen_k: at least the longest lengths. They are the sizes of S_dmask's last two dimensions.
        block_table: int32 [B, n]. With it keys and values lie in pages [pages, page size, Nkv, D] of any size, and key
            j of sequence b is row j % size of page block_table[b][j // size]. There are then no gradients and no
            dropout.

    Returns:
        out [total_q, N, Dv], or with return_attn_probs (out, softmax_lse, S_dmask). softmax_lse is float32 [N,
        total_q], S_dmask [B, N, max_seqlen_q, max_seqlen_k]. Rows that belong to no sequence are 0.
    """
    packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = Options(causal, window_size, softmax_scale, softcap, dropout_p, alibi_slopes, return_attn_probs)
    if block_table is not None:
        return lying_as(q, attend_pages(q, k, v, options, packed, block_table, EMPTY))
    return lying_as(q, attend(q, k, v, options, packed, EMPTY))


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Computes `flash_attn_varlen_func` with k and v in one tensor, [total_k, 2, Nkv, D]."""
    k, v = _apart("kv", kv, "[total, 2, N, D]", 2)
    packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = Options(causal, window_size, softmax_scale, softcap, dropout_p, alibi_slopes, return_attn_probs)
    return _named({"k": "kv", "v": "kv"}, q, k, v, options, packed)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Computes `flash_attn_varlen_func` with q, k and v in one tensor, [total, 3, N, D]."""
    q, k, v = _apart("qkv", qkv, "[total, 3, N, D]", 3)
    packed = Packed(cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    options = Options(causal, window_size, softmax_scale, softcap, dropout_p, alibi_slopes, return_attn_probs)
    whole = {"q": "qkv", "k": "qkv", "v": "qkv"}
    lengths = {f"{name}_{of}": name for name in ("cu_seqlens", "max_seqlen") for of in "qk"}
    return _named({**whole, **lengths}, q, k, v, options, packed)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Writes k and v into the caches, in place, and then computes attention of q [B, Sq, N, D] over them. No cache is
    copied.

    Row i has the place of key i + Sk - Sq, where Sk counts the new keys too. There are no gradients.

    Args:
        k_cache, v_cache: [slots, S, Nkv, D] and [slots, S, Nkv, Dv], of q's type, innermost stride 1.
        k, v: [B, Snew, Nkv, D] and [B, Snew, Nkv, Dv], which are written after the first cache_seqlens keys.
        rotary_cos, rotary_sin: [positions, rotary_dim / 2], only with k. New key i is rotated by the position
            cache_seqlens + i. Query i is rotated by cache_seqlens + i if the call is causal or has a window, and by
            cache_seqlens otherwise.
        cache_seqlens: int or int32 [B], the number of keys in the caches before the call; None means all.
        cache_batch_idx: int32 [B], each sequence's slot; None means 0, 1, ..., B - 1.
        cache_leftpad: int32 [B], the row of the first key; None means 0.
        block_table: int32 [B, n]. With it the caches are pages [pages, page size, Nkv, D] of any size, and key j of
            sequence b is row j % size of page block_table[b][j // size].
        num_splits: accepted, but it changes nothing.
        others: as in flash_attn_func.

    Returns:
        out [B, Sq, N, Dv], or with return_softmax_lse (out, softmax_lse float32 [B, N, Sq]).
    """
    if (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("invalid argument: rotary_sin: want it given together with rotary_cos, or neither")
    cache = Cache(k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)
    rotary = None if rotary_cos is None else Rotary(rotary_cos, rotary_sin, rotary_interleaved)
    options = Options(causal, window_size, softmax_scale, softcap, alibi_slopes=alibi_slopes)
    return lying_as(q, attend_cache(q, cache, rotary, options, return_softmax_lse, EMPTY))


def _apart(name: str, tensor: Tensor, shape: str, parts: int) -> tuple[Tensor, ...]:
    check_tensor(name, tensor, shape)
    check_size(name, tensor, tensor.dim() - 3, parts, "keys and values" if parts == 2 else "queries, keys and values")
    return tensor.unbind(-3)


def _named(names: dict[str, str], q: Tensor, k: Tensor, v: Tensor, options: Options, packed: Packed | None) -> Any:
    """Calls `attend`. Errors name arguments as `names` says."""
    try:
        return lying_as(q, attend(q, k, v, options, packed, EMPTY))
    except ValueError as error:
        if not hasattr(error, "parts"):
            raise
        raise renamed(error, names, q.dim() - 2) from None
