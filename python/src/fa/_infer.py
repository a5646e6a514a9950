"""Fused inference: attention of prompts, chunks and decode steps, in every layout and form of cache of the NPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _fa
from ._attention import NAMES, arrays_of, check_arrays, compute, empty_like_of, integers, options_of
from ._context import chosen_context
from ._decode import SCALES, listed, readable, unpacked_shape_of
from ._fa import Context
from ._layout import infer_shapes
from ._prompt import NAMES_OF_LENGTHS, output_dtype, unsigned

UNLIMITED = 2**63 - 1
# Argument names: {the library's name: the name here}.
_ARRAYS = {"q_rope": "query_rope", "q_scale": "q_scale", "q_padding": "query_padding", "kv_padding": "key_padding"}
_ARRAYS |= {"k_prefix": "key_prefix", "v_prefix": "value_prefix"}
_NAMES = NAMES | NAMES_OF_LENGTHS | _ARRAYS | {"mask.pre": "pre_tokens", "mask.next": "next_tokens"}
QUANTIZATION = "deq_scale1", "quant_scale1", "deq_scale2", "quant_scale2", "quant_offset2"
_ARRAYS |= {name: name for name in ("pse", "dense_mask", "sink", "block_table", *SCALES, *QUANTIZATION)}


def infer_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    query_rope: Any = None,
    key_rope: Any = None,
    layout: str = "BNSD",
    head_num: int = 0,
    head_num_kv: int = 0,
    scale: float | None = None,
    sparse_mode: int = 0,
    pre_tokens: int = UNLIMITED,
    next_tokens: int = UNLIMITED,
    dense_mask: Any = None,
    pse: Any = None,
    sink: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    query_padding: Any = None,
    key_padding: Any = None,
    key_prefix: Any = None,
    value_prefix: Any = None,
    block_table: Any = None,
    block_size: int = 0,
    kv_dtype: str | None = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    k_offset: Any = None,
    v_offset: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    antiquant_per_token: bool = False,
    deq_scale1: Any = None,
    quant_scale1: Any = None,
    deq_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    return_lse: bool = False,
    infinite_lse: bool = False,
    context: Context | None = None,
) -> Any:
    """Computes softmax(mask(scale * Q K^T + pse)) V of prompts, chunks and decode steps in one call. A sequence has the
    bits that it has in `decode_attention` with up to 16 rows, and in `flash_attention` with more.

    Args:
        q, k, v: as in `decode_attention`, in the layout's left side. Layouts are BSH, BSND, BNSD, TND, NTD, NSD (B is 1),
            BNSD_BSND, BSH_BNSD, BSND_BNSD, BSH_NBSD, BSND_NBSD, BNSD_NBSD ([N, B, S, D]), TND_NTD and NTD_TND. Keys may
            be a list of one array per batch element. With block_table they are pages in any layout: [pages, page size,
            Nkv * D], [pages, Nkv, page size, D], [pages, page size, Nkv, D], or [pages, Nkv, D / D0, page size, D0],
            where D0 elements have 32 bytes.
        head_num, head_num_kv: N and Nkv. Layouts with H need head_num. Otherwise each number is checked if it is > 0.
        sparse_mode: 0 keeps pairs within pre_tokens and next_tokens if there is a dense_mask, else all pairs. 1 uses
            dense_mask alone; 2 is causal, aligned top-left. 3 is causal, aligned to the last row and the last key. 4 is
            the band of pre_tokens and next_tokens with that alignment. 9 is a tree of drafts: dense_mask says which of
            the last Sq keys each row sees, and all earlier keys are seen. A single row without query_rope, in a layout
            that is not packed, keeps every key in modes 2 and 3, and has no band in mode 0.
        dense_mask: uint8, int8 or bool, 1 = drop: [Sq, Sk], [B|1, Sq, Sk], [B|1, 1, Sq, Sk] or larger, for single rows
            also [B, Sk]. Modes 2, 3 and 4 take the triangle [2048, 2048], which is checked; mode 9 [B, Sq, Sq].
        lengths_q, lengths_kv: as in `decode_attention`. In packed layouts they are inclusive prefix sums, except for
            keys in pages.
        query_padding, key_padding: int64, one number: how many rows of each tensor follow the last row in use.
        key_prefix, value_prefix: keys and values that come before those of every batch element, with B = 1.
        block_size: the page size, which is checked if it is > 0.
        q_scale: float32, one number per row and head, in the shape of q without D. q, k and v are then all int8, or all
            e4m3 in a form that k and v may have. Probabilities are rounded to this type too; `fa/infer_attention.h` has
            the formulas. The output has the type of query_rope, float16 without it.
        return_lse: whether to return the logarithm of the softmax's sum, float32 [B, N, Sq], packed [T, N].
        infinite_lse: whether the lse of rows without keys is +inf, as on the NPU, instead of -inf.
        others: as in `decode_attention`.

    Returns:
        The output in the layout's right side, or (output, lse). Rows without keys, and rows past a length, are 0.

    Raises:
        The same errors as `flash_attention`.
    """
    given = dict(locals())  # locals() has exactly the arguments here, because no other variable exists yet.
    arrays = arrays_of(given, {"q": "q", "k": "k", "v": "v"} | _ARRAYS)
    del given["lengths_q"], given["lengths_kv"], given["context"], given["return_lse"], given["kv_dtype"]
    del given["key_rope"]
    check_arrays(q=q, optional={"sink": sink, "pse": pse, "query_rope": query_rope})
    arrays["k"], kind = readable("k", listed("k", k), kv_dtype)
    arrays["v"], _ = readable("v", listed("v", v), kv_dtype)
    if q_scale is not None:
        arrays["q"], _ = readable("q", q, kv_dtype)
    arrays |= {"kv_dtype": kind, "k_rope": None if key_rope is None else listed("key_rope", key_rope)}
    arrays |= {name: unsigned(arrays[name]) for name in ("deq_scale1", "deq_scale2")}
    renamed = {"heads_kv": "head_num_kv", "pre": "pre_tokens", "next": "next_tokens"}
    given |= {name: given.pop(here) for name, here in renamed.items()}
    options = options_of(_fa.InferAttentionOptions, given)
    empty = empty_like_of(q)
    value = unpacked_shape_of(arrays["v"], kind or "")
    shape, rows = infer_shapes(layout, head_num, head_num_kv, q.shape, value, block_table is not None)
    scaled = q_scale is not None and query_rope is not None and quant_scale2 is None
    out = empty(shape, query_rope.dtype if scaled else output_dtype(q, quant_scale2))
    lse = empty(rows, None) if return_lse else None
    lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    context = chosen_context(context, q)
    compute(_fa.infer, {**arrays, "out": out, "lse": lse}, options, *lengths, context, names=_NAMES)
    return (out, lse) if return_lse else out
