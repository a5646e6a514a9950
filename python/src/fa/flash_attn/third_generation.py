"""The interface of flash_attn 3. The real one is a package of its own, flash_attn_interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._arguments import FP8, at, check_none, check_size, check_tensor, invalid, renamed
from ._cache import Cache, Descales, Rotary, attend_cache
from ._call import Options
from ._dense import Packed, attend
from ._ops import attend_plainly

EMPTY = -torch.inf  # softmax_lse of rows without keys

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Sequence[int | None] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    learnable_sink: Tensor | None = None,
    s_aux: Tensor | None = None,
) -> Any:
    """Computes attention of q [B, Sq, N, D], k [B, Sk, Nkv, D] and v [B, Sk, Nkv, Dv]. All have gradients.

    Other arguments are those of `fa.flash_attn.flash_attn_func`.

    Args:
        qv: [B, Sq, N, Dv]. Scores are then softmax_scale * (q k^T + qv v^T), softmax_scale by default 1 / sqrt(D + Dv).
        q_descale, k_descale, v_descale: float32 [B, Nkv], for q, k and v of float8_e4m3fn or float8_e5m2, all of one
            type: an element stands for its number times the descale of its head, by default 1. Then out is bfloat16,
            and there are no gradients and no qv. Other types refuse descales.
        attention_chunk: c > 0 divides rows and keys into chunks of c places, and a row sees only its own chunk.
        num_splits, pack_gqa, deterministic, sm_margin: accepted; they change nothing.
        learnable_sink, s_aux: two names of one argument, [N]: the score of a virtual key that every row sees. Its value
            is 0.

    Returns:
        out [B, Sq, N, Dv], or with return_attn_probs (out, softmax_lse float32 [B, N, Sq]). Rows without keys are 0,
        and their softmax_lse is -inf.
    """
    descales = Descales(q_descale, k_descale, v_descale)
    if isinstance(q, Tensor) and q.dtype in FP8:
        return _of_eight_bits(q, k, v, descales, _options(locals()))
    check_none("q has no 8 bits", **descales._asdict())
    plain = qv is None and learnable_sink is None and s_aux is None and attention_chunk == 0
    if plain and not return_attn_probs:
        out = attend_plainly(q, k, v, "dense", causal, window_size, softmax_scale, softcap)
        if out is not None:
            return out
    options = _options(locals())
    if options.attention_chunk > 0 and isinstance(q, Tensor) and isinstance(k, Tensor):
        return _in_chunks(q, k, v, options)
    result = attend(q, k, v, options, None, EMPTY)
    return result[:2] if return_attn_probs else result


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Sequence[int | None] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    learnable_sink: Tensor | None = None,
    s_aux: Tensor | None = None,
) -> Any:
    """Computes `flash_attn_func` of packed sequences: q [total_q, N, D], k [total_k, Nkv, D], v [total_k, Nkv, Dv].

    Args:
        cu_seqlens_q, cu_seqlens_k: int32 [B + 1], prefix sums of the sequences' lengths with a leading 0.
        max_seqlen_q, max_seqlen_k: at least the longest lengths.
        seqused_q, seqused_k: int32 [B], how many rows of a sequence are in use, counted from its first row.

    Returns:
        out [total_q, N, Dv], or with return_attn_probs (out, softmax_lse float32 [N, total_q]). Unused rows are 0.
    """
    why = "packed keys have no 8 bits here"
    check_none(why, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    options = _options(locals())
    packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k)
    result = attend(q, k, v, options, packed, EMPTY)
    return result[:2] if return_attn_probs else result


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int | None] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Any = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    learnable_sink: Tensor | None = None,
    s_aux: Tensor | None = None,
) -> Any:
    """Computes `fa.flash_attn.flash_attn_with_kvcache` with the arguments of flash_attn 3.

    Args:
        qv: as in flash_attn_func, but not with pages.
        page_table: called block_table in flash_attn 2.
        cu_seqlens_q, max_seqlen_q: int32 [B + 1] and a number. With them q is packed, [total, N, D].
        cu_seqlens_k_new: int32 [B + 1]. With it k and v are packed, [total, Nkv, D].
        q_descale, k_descale, v_descale: float32 [B, Nkv], for caches of float8_e4m3fn or float8_e5m2: an element stands
            for its number times the descale of its head, by default 1. Then k and v have the caches' type, there is no
            qv and no rotary_cos, and q is float or has the caches' type. Only such a q has a q_descale; its out is
            bfloat16.
        rotary_seqlens: int32 [B], the position of the first new key; None means cache_seqlens.
        scheduler_metadata, num_splits, pack_gqa, sm_margin: accepted; they change nothing.

    Returns:
        out, or with return_softmax_lse (out, softmax_lse float32 [B, N, Sq] or [N, total]).
    """
    descales = Descales(q_descale, k_descale, v_descale)
    options = _options(locals())
    places = cache_seqlens, cache_batch_idx, cache_leftpad, page_table, cu_seqlens_q, cu_seqlens_k_new, max_seqlen_q
    if (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("invalid argument: rotary_sin: want it given together with rotary_cos, or neither")
    rotary = None if rotary_cos is None else Rotary(rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens)
    try:
        cache = Cache(k_cache, v_cache, k, v, *places)
        return attend_cache(q, cache, rotary, options, return_softmax_lse, EMPTY, descales)
    except ValueError as error:
        if not hasattr(error, "parts"):
            raise
        raise renamed(error, {"block_table": "page_table"}) from None


def flash_attn_combine(
    out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Merges partial results, each over one of several disjoint parts of the keys, into the result over all keys.

    Args:
        out_partial: float32 [parts, B, S, N, D], or [parts, total, N, D].
        lse_partial: float32 [parts, B, S, N], or [parts, total, N]; -inf where a part has no keys for a row.
        out: a tensor to which the result is written, or None.
        out_dtype: the type of the result; None means the type of out, or float32 without out.

    Returns:
        out [B, S, N, D] and its lse, float32 [B, S, N].
    """
    packed = isinstance(out_partial, Tensor) and out_partial.dim() == 4
    check_tensor("out_partial", out_partial, "[parts, total, N, D]" if packed else "[parts, B, S, N, D]")
    check_tensor("lse_partial", lse_partial, "[parts, total, N]" if packed else "[parts, B, S, N]", (torch.float32,))
    for axis in range(lse_partial.dim()):
        check_size("lse_partial", lse_partial, axis, out_partial.shape[axis], at(f"out_partial.shape[{axis}]"))
    if out is not None and (out.shape != out_partial.shape[1:] or out.dtype != (out_dtype or out.dtype)):
        raise invalid("out", [out.dtype, *out.shape], f"{out_dtype or out.dtype} {list(out_partial.shape[1:])}")
    lse = torch.logsumexp(lse_partial, 0)
    shares = torch.exp(lse_partial - torch.where(lse == -torch.inf, 0.0, lse))
    total = torch.zeros(out_partial.shape[1:], dtype=torch.float32, device=out_partial.device)
    for share, partial in zip(shares, out_partial, strict=True):
        # A part without keys has a share of 0. Its numbers may be NaN, so they are not read.
        total = total + torch.where(share[..., None] > 0, partial.float(), 0.0) * share[..., None]
    if out is None:
        return total.to(out_dtype or torch.float32), lse
    return out.copy_(total), lse


def get_scheduler_metadata(*arguments: Any, **keywords: Any) -> None:
    """Returns None. The real function plans a call in advance; here every call plans itself."""


def _options(given: dict[str, Any]) -> Options:
    """Returns the options that are among a function's arguments. Raises ValueError if the sink is given twice or the
    chunk is wrong."""
    sink, s_aux, chunk = (given[name] for name in ("learnable_sink", "s_aux", "attention_chunk"))
    if sink is not None and s_aux is not None:
        raise ValueError("invalid argument: s_aux: given together with learnable_sink, want one of them")
    if chunk < 0:
        raise invalid("attention_chunk", chunk, "at least 0")
    return Options.among(given)._replace(sink=sink if s_aux is None else s_aux)


def _of_eight_bits(q: Tensor, k: Tensor, v: Tensor, descales: Descales, options: Options) -> Any:
    """Computes flash_attn_func of q, k and v in 8 bits, as attention over a cache that is full."""
    for name, tensor in (("k", k), ("v", v)):
        check_tensor(name, tensor, "[B, S, N, D]", (q.dtype,))
    check_size("k", k, 0, q.shape[0], at("q.shape[0]"))
    try:
        return attend_cache(q, Cache(k, v), None, options, options.return_attn_probs, EMPTY, descales)
    except ValueError as error:
        if not hasattr(error, "parts"):
            raise
        raise renamed(error, {"k_cache": "k", "v_cache": "v"}) from None


def _in_chunks(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Any:
    """Computes attention with attention_chunk. Only packed sequences can have chunks, so each batch element becomes a
    packed sequence."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, "[B, S, N, D]")
    check_size("k", k, 0, q.shape[0], at("q.shape[0]"))
    check_size("v", v, 0, k.shape[0], at("k.shape[0]"))
    batch = torch.arange(q.shape[0] + 1, dtype=torch.int32)
    packed = Packed(batch * q.shape[1], batch * k.shape[1], q.shape[1], k.shape[1])
    flat = options._replace(qv=None if options.qv is None else options.qv.flatten(0, 1), return_attn_probs=True)
    out, lse, _ = attend(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), flat, packed, EMPTY)
    out = out.unflatten(0, q.shape[:2])
    if not options.return_attn_probs:
        return out
    return out, lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
