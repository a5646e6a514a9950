"""Shapes of results. If inputs fit no layout, these functions return some shape, and the library reports the error."""

from __future__ import annotations

from collections.abc import Sequence

Shape = tuple[int, ...]


def output_shape(layout: str, heads: int, query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> Shape:
    """Returns the shape of the attention output: the query's shape with the value's head size."""
    try:
        if layout in ("BSH", "SBH"):
            heads_kv = key[2] // (query[2] // heads)
            return query[0], query[1], heads * (value[2] // heads_kv)
        if layout == "BNSD_BSND":
            return query[0], query[2], query[1], value[3]
    except (IndexError, ZeroDivisionError):
        return tuple(query)
    return (*query[:-1], *value[-1:])


def decode_output_shape(
    layout: str, heads: int, query: Sequence[int], key: Sequence[int], value: Sequence[int], paged: bool
) -> Shape:
    """Returns the shape of a decode's output. Pages may be [pages, page size, Nkv * D] although the query has a
    dimension for heads."""
    apart = len(query) == (3 if layout == "TND" else 4)
    if paged and len(key) == len(value) == 3 and apart and query[-1] > 0 and key[2] >= query[-1]:
        value = (*value[:2], value[2] // (key[2] // query[-1]))
        return (query[0], query[2], query[1], value[2]) if layout == "BNSD_BSND" else (*query[:-1], value[2])
    return output_shape(layout, heads, query, key, value)


def statistics_shape(layout: str, heads: int, query: Sequence[int]) -> Shape:
    """Returns the shape of softmax_max and softmax_sum: [B, N, Sq], TND [T, N]."""
    try:
        if layout == "BSND":
            return query[0], query[2], query[1]
        if layout == "BSH":
            return query[0], heads, query[1]
        if layout == "SBH":
            return query[1], heads, query[0]
    except IndexError:
        pass
    return tuple(query[:-1])
