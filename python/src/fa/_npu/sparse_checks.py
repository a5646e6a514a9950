"""Checks of arguments that the device's functions for sparse attention and indexers share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

INDEXER_PAGES = "PA_BSND"
SECOND_INDEXER_PAGES = "PA_BBND"


def only(**values: tuple[int, tuple[int, ...]]) -> None:
    """Raises ValueError for the first argument whose value is not allowed. Each keyword is (value, allowed values)."""
    for name, (got, allowed) in values.items():
        if got not in allowed:
            raise ValueError(f"invalid argument: {name}={got}, want {' or '.join(map(str, allowed))}")


def at_least(least: int, **values: int) -> None:
    """Raises ValueError for the first argument that is less than `least`."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"invalid argument: {name}={value}, want >= {least}")


def layout_of(name: str, layout: str) -> str:
    if layout.upper() not in ("BSND", "TND"):
        raise ValueError(f'invalid argument: {name}="{layout}", want BSND or TND')
    return layout.upper()


def common_layout(
    query: tuple[str, str], key: tuple[str, str], block_table: Tensor | None = None, pages: str = INDEXER_PAGES
) -> str:
    """Returns the layout of the queries. Raises ValueError unless keys have the same layout, or, with a block_table,
    the layout `pages`. `query` and `key` are the names and the values of the arguments.
    """
    layout = layout_of(*query)
    want, reason = (layout, query[0]) if block_table is None else (pages, "with block_table")
    if key[1].upper() != want:
        raise ValueError(f'invalid argument: {key[0]}="{key[1]}", want {want} ({reason})')
    return layout


def shape_text(tensor: Tensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"


def check_integers(**tensors: Tensor | None) -> None:
    """Raises ValueError for the first tensor that is not None and is not int32 or int64 [n]."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want torch.int32 or torch.int64")
        if tensor.dim() != 1:
            raise ValueError(f"invalid argument: {name}.shape={shape_text(tensor)}, want 1 dimension")


def without_zero(name: str, sums: Tensor | None, rows: Tensor | None = None) -> Tensor | None:
    """Returns prefix sums without their leading 0. If the packed tensor `rows` is not empty, at least one sum must
    follow the 0.
    """
    if sums is None:
        return None
    if sums.dim() != 1 or sums.numel() == 0 or int(sums[0]) != 0:
        raise ValueError(f"invalid argument: {name}={sums.tolist()}, want prefix sums that begin with 0")
    if sums.numel() == 1 and rows is not None and rows.dim() > 0 and rows.shape[0] > 0:
        raise ValueError(f"invalid argument: {name} has 1 entry, want [B+1] for {rows.shape[0]} rows")
    return sums[1:]


def sums_without_zeros(q: Tensor, k: Tensor, **sums: Tensor | None) -> list[Tensor | None]:
    """Returns both prefix sums, of queries and of keys, without their leading 0. Both must have the same number of
    entries.
    """
    (q_name, of_q), (k_name, of_k) = sums.items()
    ends = [without_zero(q_name, of_q, q), without_zero(k_name, of_k, k)]
    if of_q is not None and of_k is not None and of_q.numel() != of_k.numel():
        raise ValueError(f"invalid argument: {k_name} has {of_k.numel()} entries, want {of_q.numel()} ({q_name})")
    return ends


def say_with_zeros(*sums: str) -> Callable[[str, str, str], str]:
    """Returns a function that writes an argument in an error. The library gets prefix sums without their leading 0. So
    entry i of the library's `sums` is entry i + 1 of the caller's.
    """

    def say(name: str, member: str, index: str) -> str:
        if name in sums and not member and index:
            index = f"[{int(index[1:-1]) + 1}]"
        return f"{name}{member}{index}"

    return say
