"""Attention of few queries over long keys. Keys in a cache are read in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _fa
from ._attention import arrays_of, check_arrays, compute, empty_like_of, integers, options_of
from ._context import chosen_context
from ._fa import Context, Mask
from ._layout import decode_output_shape, statistics_shape
from ._prompt import ARRAYS as PROMPT_ARRAYS
from ._prompt import output_dtype


_ARRAYS = PROMPT_ARRAYS | {name: name for name in ("block_table", "antiquant_scale", "antiquant_offset")}


def listed(name: str, keys: Any) -> Any:
    """Returns keys or values as the extension takes them: one array, or a list of arrays. Raises TypeError for an
    object that is no array. Errors call the argument `name`."""
    if not isinstance(keys, (list, tuple)):
        check_arrays(**{name: keys})
        return keys
    check_arrays(**{f"{name}[{i}]": array for i, array in enumerate(keys)})
    return list(keys)


def shape_of(keys: Any) -> tuple[int, ...]:
    """Returns the shape of the only array, or of the first array of a list."""
    first = keys[0] if isinstance(keys, (list, tuple)) and keys else keys
    return getattr(first, "shape", ())


def decode_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    query_rope: Any = None,
    key_rope: Any = None,
    layout: str = "BNSD",
    head_num: int = 0,
    scale: float | None = None,
    mask: Mask | None = None,
    dense_mask: Any = None,
    pse: Any = None,
    softcap: float = 0.0,
    sink: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    block_table: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    antiquant_per_token: bool = False,
    deq_scale1: Any = None,
    quant_scale1: Any = None,
    deq_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    return_lse: bool = False,
    context: Context | None = None,
) -> Any:
    """Computes softmax(mask(scale * Q K^T + pse)) V for few query rows and long keys per sequence, as a server does
    when it generates tokens.

    Keys and values have one of three forms and are read in place, with their strides. Rows and pages that no query
    looks at are not read. An array with a negative stride, or an innermost stride that is not 1, is copied.

    Args:
        q: [B, N, Sq, D]; float32, bfloat16, float16 or int8, in `layout` (any but TND; see `flash_attention`).
        k, v: [B, Nkv, S, D] and [B, Nkv, S, Dv], type of q or int8; or lists of one [1, Nkv, S_b, D] per element;
            or with block_table pages: [pages, page size, Nkv * D], BNSD also [pages, Nkv, page size, D], BSND
            [pages, page size, Nkv, D]. N is a multiple of Nkv.
        query_rope, key_rope: second parts of queries and keys, [B, N, Sq, Drope] and in the form of k. Scores are then
            Q K^T + Qr Kr^T. int8 keys take none.
        head_num: N, which BSH and SBH need. Other layouts check it if it is > 0.
        scale: any finite number; None means 1 / sqrt(D + Drope).
        mask: the rule that gives each row its keys. The last query in use is aligned to the last key in use.
        dense_mask: uint8, int8 or bool, 1 = drop: [B, >=S], [B, 1|Sq, >=S], [B, 1|N, 1|Sq, >=S].
        pse: bias, type of q or float32, [B|1, N, 1|Sq, >=S], added to scaled scores.
        softcap: c > 0 turns scale * QK into c * tanh(scale * QK / c), before pse; 0 means none.
        sink: float32 [N], the score of a virtual key whose value is 0.
        lengths_q, lengths_kv: how many rows of each batch element are in use, counted from its first row. One entry
            holds for all elements; None means all rows. Paged keys need lengths_kv. Rows of the output past the length
            are 0.
        block_table: int32 [B, n]. Key j of element b is row j % page size of page block_table[b][j // page size].
        antiquant_scale, antiquant_offset: scales and offsets of int8 keys and values, float32, float16 or bfloat16. An
            element x stands for (x + offset) * scale. Entry 0 is for keys, entry 1 for values: [2], or per column
            [2, Nkv, D], [2, Nkv, 1, D] or [2, Nkv * D]; with antiquant_per_token per key, [2, B, S].
        deq_scale1, quant_scale1, deq_scale2: scales that an int8 q needs and other types refuse. They mean the same as
            in `prompt_flash_attention`, which gives the same bits. A call with an int8 q takes no antiquant_scale,
            sink, softcap or lse.
        quant_scale2, quant_offset2: scales and offsets of an int8 output, one element or N * Dv, float32 (bfloat16 if q
            is bfloat16).
        return_lse: whether to return the logarithm of the softmax's sum, float32 [B, N, Sq], -inf for a row without
            keys.

    Returns:
        The output, [B, N, Sq, Dv] of q's type (float16 for an int8 q), or int8 with quant_scale2. With return_lse the
        result is (output, lse). A row without keys is 0. A batch element has the same bits in every form of keys, in
        any batch, and with any number of threads.

    Raises:
        The same errors as `flash_attention`.
    """
    given = dict(locals())  # locals() has exactly the arguments here, because no other variable exists yet.
    arrays = arrays_of(given, _ARRAYS)
    del given["lengths_q"], given["lengths_kv"], given["context"], given["return_lse"]
    check_arrays(q=q, optional={"sink": sink, "pse": pse, "query_rope": query_rope})
    arrays["k"], arrays["v"] = listed("k", k), listed("v", v)
    arrays["k_rope"] = None if key_rope is None else listed("key_rope", key_rope)
    options = options_of(_fa.DecodeAttentionOptions, given)
    empty = empty_like_of(q)
    shape = decode_output_shape(layout, head_num, q.shape, shape_of(k), shape_of(v), block_table is not None)
    out = empty(shape, output_dtype(q, quant_scale2))
    lse = empty(statistics_shape(layout, head_num, q.shape), None) if return_lse else None
    lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    compute(_fa.decode, {**arrays, "out": out, "lse": lse}, options, *lengths, chosen_context(context, q))
    return (out, lse) if return_lse else out
