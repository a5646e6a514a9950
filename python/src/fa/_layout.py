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


def infer_shapes(
    layout: str, heads: int, heads_kv: int, query: Sequence[int], value: Sequence[int], paged: bool
) -> tuple[Shape, Shape]:
    """Returns the shapes of the output and of the lse of fused inference. A layout X_Y has inputs X and the output Y.
    The number of dimensions of pages says their form."""
    inputs, _, output = layout.partition("_")
    try:
        sizes = dict(zip(inputs, query, strict=True))
        sizes.setdefault("N", heads)
        if paged and len(value) == 5:
            sizes["D"] = value[2] * value[4]
        else:
            beside = len(value) == 3 if paged else "H" in inputs
            sizes["D"] = value[-1] // (heads_kv or heads) if beside else value[-1]
        sizes["H"] = sizes["N"] * sizes["D"]
        sizes.setdefault("B", 1)
        rows = "TN" if "T" in inputs else "BNS"
        return tuple(sizes[axis] for axis in output or inputs), tuple(sizes[axis] for axis in rows)
    except (KeyError, IndexError, ValueError, ZeroDivisionError):
        return tuple(query), tuple(query[:-1])


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
