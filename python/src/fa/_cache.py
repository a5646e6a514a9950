"""Merges partial results by their lse, and moves rows of keys and values into paged caches and out of them."""

from __future__ import annotations

from typing import Any

from . import _fa
from ._attention import DescribedArray, check_arrays, compute, dtype_name, empty_like_of
from ._context import chosen_context, torch_of
from ._decode import listed, readable, shape_of
from ._errors import argument_error
from ._fa import Context

# {bytes of an element: a type that the library has}. Arrays of types that the library lacks are moved as a type of
# equal size.
_BY_SIZE = {1: "uint8", 2: "float16", 4: "int32", 8: "int64"}
_FLOATS = "float32", "float16", "bfloat16"  # types whose rows can be quantised
_OWN = ("float32", "float16", "bfloat16", "int8", "uint8", "bool", "int32", "int64")


def merge_by_lse(lse: Any, local_out: Any, *, return_lse: bool = False, context: Context | None = None) -> Any:
    """Merges partial results of attention, each over one of several disjoint sets of keys, by their lse.

    Args:
        lse: a list of one array per part, float32 [M]. -inf or +inf says that the part has no keys for the row.
        local_out: a list of one array per part, [M, D]; float32, bfloat16 or float16, all of one type.
        return_lse: whether to return the lse over all keys too. It is -inf for a row without keys.

    Returns:
        The output [M, D], summed in float32 and rounded once, or (output, lse). A row without keys is 0.

    Raises:
        The same errors as `flash_attention`.
    """
    parts, statistics = listed("local_out", local_out), listed("lse", lse)
    first = parts[0] if isinstance(parts, list) and parts else parts
    if isinstance(first, list):
        raise ValueError("invalid argument: local_out has 0 tensors, want at least one")
    empty = empty_like_of(first)
    out = empty(shape_of(parts), first.dtype)
    lse_out = empty(shape_of(parts)[:1], None) if return_lse else None
    arrays = {"out": out, "lse_out": lse_out, "lse": statistics, "local_out": parts}
    compute(_fa.merge_by_lse, arrays, False, chosen_context(context, first))
    return (out, lse_out) if return_lse else out


def scatter_rows(
    key: Any,
    value: Any,
    slot_mapping: Any,
    key_cache: Any,
    value_cache: Any = None,
    *,
    source_rows: Any = None,
    key_scale: Any = None,
    value_scale: Any = None,
    key_scale_cache: Any = None,
    value_scale_cache: Any = None,
    kv_dtype: str | None = None,
    form: str = "BnBsND",
    context: Context | None = None,
) -> tuple[Any, Any]:
    """Writes rows of keys and values into paged caches, in place. Every place is checked before anything is written.

    Rows of floats are quantised into a cache of int8 or float8_e4m3fn. An element becomes the code nearest to
    x / scale, ties to even, saturated. The scale of such a cache is given, or is written per place and head: the
    largest |x| / 127 (int8) or / 448 (e4m3). A head with a number that is not finite gets the scale NaN and codes of 0.
    `decode_attention` reads these codes and scales. A cache [B, Nkv, S, D] without pages has the form "BnNBsD", and row
    s of element b has the place b * S + s.

    Args:
        key, value: [T, N, D] and [T, N, Dv], of any type of real numbers; value may be None.
        slot_mapping: int32 or int64 [T], the place of each row: page * page size + row. A negative place skips its row.
            If several rows have the same place, the last of them is stored.
        key_cache, value_cache: arrays of key's and value's types, or of 8 bits, in `form`.
        source_rows: int32 or int64 [T]; slot_mapping[t] is the place of row source_rows[t] of key and value. None means
            that row t goes to slot_mapping[t].
        key_scale, value_scale: given scales, float32 [1] or [N], positive and finite.
        key_scale_cache, value_scale_cache: float32 [pages, N, page size, 1] in every form and in any strides: one scale
            per place and head. Each cache of 8 bits needs these or given scales.
        kv_dtype: "e4m3" says that caches of uint8 hold float8_e4m3fn numbers.
        form: "BnBsND" for [pages, page size, N, D], "BnNBsD" for [pages, N, page size, D], or "NZ" for [pages, N,
            D / L, page size, L] or [pages, N * D / L, page size, L].

    Returns:
        key_cache and value_cache.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(
        key=key,
        slot_mapping=slot_mapping,
        key_cache=key_cache,
        optional={
            "value": value,
            "value_cache": value_cache,
            "source_rows": source_rows,
            "key_scale": key_scale,
            "value_scale": value_scale,
            "key_scale_cache": key_scale_cache,
            "value_scale_cache": value_scale_cache,
        },
    )
    check_integers(slot_mapping=slot_mapping, source_rows=source_rows)
    if kv_dtype not in (None, "e4m3"):
        raise argument_error(ValueError, "kv_dtype", f"={kv_dtype!r}, want None or e4m3")
    arrays = {
        **_rows_and_cache("key", key, key_cache, kv_dtype),
        **_rows_and_cache("value", value, value_cache, kv_dtype),
        "slot_mapping": slot_mapping,
        "source_rows": source_rows,
        "key_scale": key_scale,
        "value_scale": value_scale,
        "key_scale_cache": key_scale_cache,
        "value_scale_cache": value_scale_cache,
    }
    compute(_fa.scatter_rows, arrays, form, chosen_context(context, key))
    caches = key_cache, value_cache, key_scale_cache, value_scale_cache
    written = [cache for cache in caches if torch_of(cache)]
    if written:
        torch_of(written[0]).autograd.graph.increment_version(written)
    return key_cache, value_cache


def gather_rows(
    key_cache: Any,
    value_cache: Any,
    block_table: Any,
    seq_lens: Any,
    *,
    seq_offset: Any = None,
    cumulative: bool = False,
    rows: int | None = None,
    form: str = "BnBsND",
    context: Context | None = None,
) -> tuple[Any, Any]:
    """Reads the rows of sequences out of paged caches, one sequence after another.

    Args:
        key_cache, value_cache: arrays of real numbers of any type, in `form` (see `scatter_rows`).
        block_table: int32 or int64 [B, n], the pages of each sequence.
        seq_lens: int32 or int64 [B], the number of rows of each sequence; with cumulative their prefix sums [B + 1],
            which begin with 0.
        seq_offset: int32 or int64 [B], how many rows to skip at each sequence's beginning, a multiple of the page size.
        rows: T; None means the sum of the sequences' rows. `fa.plan` needs it if arrays are given as shapes.

    Returns:
        key [T, N, D] and value [T, N, Dv]. A row is 0 where the table ends or names no page, and past the last
        sequence.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(
        key_cache=key_cache,
        value_cache=value_cache,
        block_table=block_table,
        seq_lens=seq_lens,
        optional={"seq_offset": seq_offset},
    )
    check_integers(block_table=block_table, seq_lens=seq_lens, seq_offset=seq_offset)
    described = isinstance(key_cache, DescribedArray)
    total = 0 if described else _total(seq_lens, block_table.shape[:1], cumulative)
    count = total if rows is None else rows
    empty = empty_like_of(key_cache)
    key, value = (empty(_rows_shape(cache.shape, count, form), cache.dtype) for cache in (key_cache, value_cache))
    if not described:
        for output in (key, value):
            output[total:] = 0
    arrays = {
        "key_cache": stored("key_cache", key_cache),
        "value_cache": stored("value_cache", value_cache),
        "block_table": block_table,
        "seq_lens": seq_lens,
        "seq_offset": seq_offset,
        "key": stored("key", key),
        "value": stored("value", value),
    }
    compute(_fa.gather_rows, arrays, form, cumulative, chosen_context(context, key_cache))
    return key, value


def _rows_and_cache(name: str, rows: Any, cache: Any, kv_dtype: str | None) -> dict[str, Any]:
    """Returns key or value and its cache in types that the extension takes. Rows of floats for a cache of codes stay
    floats; the extension quantises them. Other rows get a type of the same element size.
    """
    into = f"{name}_cache"
    kind = "" if cache is None else dtype_name(cache.dtype)
    if kind and kv_dtype is not None:
        readable(into, cache, kv_dtype)
    codes = kind in ("int8", "float8_e4m3fn") or (kind == "uint8" and kv_dtype == "e4m3")
    if rows is None or not codes or dtype_name(rows.dtype) not in _FLOATS:
        return {name: stored(name, rows), into: stored(into, cache, name, rows)}
    if dtype_name(rows.dtype) == "bfloat16" and not torch_of(rows) and not isinstance(rows, DescribedArray):
        rows = rows.astype("float32")  # exact; NumPy cannot pass bfloat16 to the extension
    cache, word = (cache, None) if kind == "int8" else readable(into, cache, kv_dtype)
    return {name: rows, into: cache, f"{name}_codes": word}


def stored(name: str, array: Any, like_name: str = "", like: Any = None) -> Any:
    """Returns the array, as a type of the library whose elements have the same size if the library lacks the array's
    type. Raises ValueError if there is no such type, or if the array's type is not that of `like`."""
    if array is None or isinstance(array, DescribedArray):
        return array
    torch, kind = torch_of(array), dtype_name(array.dtype)
    if not torch and not _is_number(array.dtype):
        raise argument_error(ValueError, name, f"={kind}, want numbers in this machine's byte order", member=".dtype")
    if like is not None and kind != dtype_name(like.dtype):
        words = f"={kind}, want {dtype_name(like.dtype)} ("
        raise argument_error(ValueError, name, words, (like_name, "", ""), ")", member=".dtype")
    if (kind in _OWN and (torch or kind != "bfloat16")) or kind == "object" or not hasattr(array, "view"):
        return array
    if array.dtype.itemsize not in _BY_SIZE:
        raise argument_error(ValueError, name, f"={kind}, want elements of 1, 2, 4 or 8 bytes", member=".dtype")
    kind = _BY_SIZE[array.dtype.itemsize]
    return array.view(getattr(torch, kind) if torch else kind)


def _is_number(dtype: Any) -> bool:
    """Returns whether elements of this NumPy type are real numbers or bool. The 8-bit floats of other packages are
    of kind V."""
    kind = getattr(dtype, "kind", "f")
    return (kind in "biuf" or kind == "V" and dtype.names is None) and getattr(dtype, "isnative", True)


def check_integers(**arrays: Any) -> None:
    """Checks that these arrays hold integers of a type that the library reads. An array may be None."""
    for name, array in arrays.items():
        kind = "int64" if array is None or isinstance(array, DescribedArray) else dtype_name(array.dtype)
        if kind not in ("int32", "int64"):
            raise argument_error(ValueError, name, f"={kind}, want int32 or int64", member=".dtype")


def _total(seq_lens: Any, sequences: tuple[int, ...], cumulative: bool) -> int:
    """Returns the number of rows of all sequences together. For lengths that the library will refuse, returns 0."""
    wanted = tuple(size + cumulative for size in sequences)
    if tuple(seq_lens.shape) != wanted or wanted == (0,):
        return 0
    return max(int(seq_lens[-1] if cumulative else seq_lens.sum()), 0)


def _rows_shape(cache: Any, rows: int, form: str) -> tuple[int, ...]:
    """Returns the shape of `rows` rows of a cache. If the cache does not fit `form`, returns a shape that the library
    will refuse."""
    if len(cache) == 5:
        return rows, cache[1], cache[2] * cache[4]
    if len(cache) != 4:
        return rows, 1, 1
    if form == "NZ":
        return rows, cache[1] * cache[3]
    return (rows, cache[2] if form == "BnBsND" else cache[1], cache[3])
