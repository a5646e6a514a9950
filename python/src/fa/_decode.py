"""Attention of few queries over long keys. Keys in a cache are read in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _fa
from ._attention import (
    DescribedArray,
    arrays_of,
    check_arrays,
    compute,
    dtype_name,
    empty_like_of,
    integers,
    options_of,
)
from ._context import chosen_context, torch_of
from ._errors import argument_error
from ._fa import Context, Mask
from ._layout import decode_output_shape, statistics_shape
from ._prompt import ARRAYS as PROMPT_ARRAYS
from ._prompt import NAMES_OF_LENGTHS, output_dtype

SCALES = "k_scale", "v_scale", "k_offset", "v_offset", "antiquant_scale", "antiquant_offset"
_ARRAYS = PROMPT_ARRAYS | {name: name for name in ("block_table", *SCALES)}

PACKED = 8  # numbers of 4 bits in an element of int32
# For each kv_dtype, the types of the arrays that may hold such elements.
KV_DTYPES = {"e4m3": ("uint8", "float8_e4m3fn"), "e5m2": ("uint8", "float8_e5m2"), "int4": ("uint8", "int32")}


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
    return getattr(_first(keys), "shape", ())


def _first(keys: Any) -> Any:
    return keys[0] if isinstance(keys, (list, tuple)) and keys else keys


def unpacked_shape_of(keys: Any, kv_dtype: str = "") -> tuple[int, ...]:
    """Works like shape_of, but counts the columns of packed numbers of 4 bits. kv_dtype says what uint8 holds."""
    shape = shape_of(keys)
    kind = dtype_name(_first(keys).dtype) if len(shape) > 0 else ""
    packed = {"int32": PACKED, "uint8": PACKED // 4 if kv_dtype == "int4" else 1}.get(kind, 1)
    return (*shape[:-1], shape[-1] * packed) if packed > 1 else shape


def readable(name: str, keys: Any, kv_dtype: str | None) -> tuple[Any, str | None]:
    """Returns keys or values, and the kv_dtype of their bytes, as the extension reads them. Errors call the argument
    `name`.

    Raises:
        ValueError: kv_dtype is unknown, or the arrays do not hold such elements.
    """
    if kv_dtype is not None and kv_dtype not in KV_DTYPES:
        raise argument_error(ValueError, "kv_dtype", f"={kv_dtype!r}, want None or one of {', '.join(KV_DTYPES)}")
    if not isinstance(keys, list):
        return _readable(name, keys, kv_dtype)
    pairs = [_readable(f"{name}[{i}]", array, kv_dtype) for i, array in enumerate(keys)]
    for i, array in enumerate(keys):
        check_format(f"{name}[{i}]", (array, *pairs[i]), f"{name}[0]", (keys[0], *pairs[0]))
    return [array for array, _ in pairs], pairs[0][1] if pairs else None


def check_format(name: str, own: tuple[Any, Any, str | None], first: str, wanted: tuple[Any, Any, str | None]) -> None:
    """Raises ValueError if two arrays have different formats and one of them is read as bytes. Each is given as (array,
    the array as it is read, the kv_dtype of its bytes). The library compares all other types itself.
    """
    if own[2] != wanted[2] and "uint8" in (dtype_name(own[1].dtype), dtype_name(wanted[1].dtype)):
        words = f"={dtype_name(own[0].dtype)}, want {dtype_name(wanted[0].dtype)} ("
        raise argument_error(ValueError, name, words, (first, ".dtype", ""), ")", member=".dtype")


def _readable(name: str, array: Any, kv_dtype: str | None) -> tuple[Any, str | None]:
    kind = dtype_name(array.dtype)
    if kv_dtype is None:
        kv_dtype = next((word for word, kinds in KV_DTYPES.items() if kind in kinds[1:] and kind != "int32"), None)
    elif kind not in KV_DTYPES[kv_dtype]:
        want = " or ".join(KV_DTYPES[kv_dtype])
        raise argument_error(ValueError, name, f"={kind}, want {want} (kv_dtype={kv_dtype!r})", member=".dtype")
    if kv_dtype == "int4" and kind == "uint8":
        size = array.shape[-1] if len(array.shape) > 0 else 0
        if size % 4 != 0:
            words = f"={size}, want a multiple of 4 (two numbers of 4 bits per byte, 8 per int32)"
            raise argument_error(ValueError, name, words, member=".shape", index=f"[{len(array.shape) - 1}]")
        return _viewed(array, "int32"), kv_dtype
    if kind.startswith("float8") and not torch_of(array):  # NumPy has no such type of its own
        return _viewed(array, "uint8"), kv_dtype
    return array, kv_dtype


def _viewed(array: Any, kind: str) -> Any:
    """Returns the array's bytes as elements of this type. An array whose rows are not whole elements is copied."""
    if isinstance(array, DescribedArray):
        inner = None if array.array is None else _viewed(array.array, kind)
        size = 4 if kind == "int32" else 1
        return DescribedArray((*array.shape[:-1], array.shape[-1] // size), kind, inner)
    torch = torch_of(array)
    if kind == "uint8":  # a view with these strides, so that writes reach the array
        return array.view(torch.uint8 if torch else kind)
    strides = array.stride() if torch else array.strides
    address = array.data_ptr() if torch else array.ctypes.data
    whole = strides[-1] == 1 and all(step % 4 == 0 for step in (*strides[:-1], address))
    if torch:
        return (array if whole else array.contiguous().clone()).view(getattr(torch, kind))
    return (array if whole else array.copy()).view(kind)


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
    kv_dtype: str | None = None,
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
    context: Context | None = None,
) -> Any:
    """Computes softmax(mask(scale * Q K^T + pse)) V for few query rows and long keys per sequence, as a server does
    when it generates tokens.

    Keys and values have one of three forms and are read in place, with their strides. Rows and pages that no query
    looks at are not read. An array is copied if a stride is negative. It is also copied if its innermost stride is not
    1, unless it is a sink.

    Args:
        q: [B, N, Sq, D]; float32, bfloat16, float16 or int8, in `layout` (see `flash_attention`). With block_table also
            packed, [T, N, D] (TND).
        k, v: [B, Nkv, S, D] and [B, Nkv, S, Dv], of q's type or compressed; or lists of one [1, Nkv, S_b, D] per
            element; or with block_table pages: [pages, page size, Nkv * D], BNSD also [pages, Nkv, page size, D], BSND
            and TND [pages, page size, Nkv, D]. N is a multiple of Nkv. Compressed are int8; float8_e4m3fn and
            float8_e5m2 of PyTorch or ml_dtypes; and int32 with eight numbers of 4 bits per element, so that the last
            dimension is D / 8.
        query_rope, key_rope: second parts of queries and keys, [B, N, Sq, Drope] and in the form of k. Scores are then
            Q K^T + Qr Kr^T. int8 keys take none.
        head_num: N, which BSH and SBH need. Other layouts check it if it is > 0.
        scale: any finite number; None means 1 / sqrt(D + Drope).
        mask: which keys each row sees. The last query in use is aligned to the last key in use.
        dense_mask: uint8, int8 or bool, 1 = drop: [B, >=S], [B, 1|Sq, >=S], [B, 1|N, 1|Sq, >=S].
        pse: bias, type of q or float32, [B|1, N, 1|Sq, >=S], added to scaled scores.
        softcap: c > 0 turns scale * QK into c * tanh(scale * QK / c), before pse; 0 means none.
        sink: as in `flash_attention`.
        lengths_q, lengths_kv: how many rows of each batch element are in use, counted from its first row. One entry
            holds for all elements; None means all rows. Paged keys need lengths_kv. For TND, lengths_q holds inclusive
            prefix sums of the rows of B sequences. Rows of the output past the length or the last sum are 0.
        block_table: int32 [B, n]. Key j of element b is row j % page size of page block_table[b][j // page size].
        kv_dtype: "e4m3" or "e5m2" says that uint8 keys and values hold 8-bit floats of this type. "int4" says that each
            uint8 holds two numbers of 4 bits, the first in the low bits, so that the last dimension is D / 2. Such
            arrays are copied if a row does not begin at a multiple of 4 bytes.
        k_scale, v_scale, k_offset, v_offset: scales and offsets of compressed keys and values, float32, float16 or
            bfloat16. An element x stands for (x + offset) * scale. The shape is [B|1, Nkv|1, S|1, groups|1] in every
            layout, where groups divides the columns of a head. With block_table and without antiquant_per_token it is
            [pages|1, Nkv|1, page size|1, groups|1]. A dimension of size 1 is broadcast. An offset has the shape of its
            scale.
        antiquant_scale, antiquant_offset: scales and offsets of keys and values in one array, instead of the four
            above. Entry 0 is for keys, entry 1 for values: [2], or per column [2, Nkv, D], [2, Nkv, 1, D] or [2, Nkv *
            D]; with antiquant_per_token per key, [2, B, S], or per key and head, [2, B, Nkv, S].
        deq_scale1, quant_scale1, deq_scale2: scales that an int8 q needs and other types refuse. They mean the same as
            in `prompt_flash_attention`, which gives the same bits. A call with an int8 q takes no antiquant_scale,
            sink, softcap or lse.
        quant_scale2, quant_offset2: scales and offsets of an int8 output, one element or N * Dv, float32 (bfloat16 if q
            is bfloat16).
        return_lse: whether to return the logarithm of the softmax's sum, float32 [B, N, Sq] (TND [T, N]), -inf for a
            row without keys.

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
    arrays["k"], kind = readable("k", listed("k", k), kv_dtype)
    arrays["v"], kind_of_v = readable("v", listed("v", v), given.pop("kv_dtype"))
    if kind != kind_of_v and hasattr(_first(k), "dtype") and hasattr(_first(v), "dtype"):  # not for an empty list
        check_format("v", (_first(v), _first(arrays["v"]), kind_of_v), "k", (_first(k), _first(arrays["k"]), kind))
    arrays["kv_dtype"] = kind
    arrays["k_rope"] = None if key_rope is None else listed("key_rope", key_rope)
    options = options_of(_fa.DecodeAttentionOptions, given)
    empty = empty_like_of(q)
    keys = unpacked_shape_of(arrays["k"]), unpacked_shape_of(arrays["v"])
    shape = decode_output_shape(layout, head_num, q.shape, *keys, block_table is not None)
    out = empty(shape, output_dtype(q, quant_scale2))
    lse = empty(statistics_shape(layout, head_num, q.shape), None) if return_lse else None
    lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    context = chosen_context(context, q)
    compute(_fa.decode, {**arrays, "out": out, "lse": lse}, options, *lengths, context, names=NAMES_OF_LENGTHS)
    return (out, lse) if return_lse else out
