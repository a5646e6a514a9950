"""Sequences of queries and keys for the tests of fused inference, and the layouts and pages in which they are passed.

Rows that belong to no sequence are NaN, and so are pages that no block table names.
"""

from __future__ import annotations

import torch
from reference import assert_within, attention, tolerances
from torch import Tensor
from torch.nn.functional import pad

PACKED = "TND", "NTD", "TND_NTD", "NTD_TND"
# {input_layout: (layout of the inputs, layout of the output)}
LAYOUTS = {name: (name.split("_")[0], name.split("_")[-1]) for name in (
    "BSH", "BSND", "BNSD", "TND", "NTD", "BNSD_BSND", "BSH_BNSD", "BSND_BNSD", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD",
    "TND_NTD", "NTD_TND",
)}
_ORDER = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "NBSD": (1, 0, 2, 3)}
TRIANGLE = torch.ones(2048, 2048, dtype=torch.int8).triu(1)


def sums(lengths: list[int]) -> list[int]:
    return torch.tensor(lengths).cumsum(0).tolist()


def parts(heads: int, lengths: list[int], columns: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Returns random rows [N, S_b, D] of each sequence."""
    return [torch.randn(heads, length, columns).to(dtype) for length in lengths]


def arranged(sequences: list[Tensor], layout: str, rows: int | None = None) -> Tensor:
    """Returns the sequences in one tensor of the layout BSH, BSND, BNSD, NBSD, TND or NTD, with `rows` rows each."""
    if layout in ("TND", "NTD"):
        packed = torch.cat(sequences, 1)
        return packed.transpose(0, 1).contiguous() if layout == "TND" else packed
    rows = max(part.shape[1] for part in sequences) if rows is None else rows
    heads, _, columns = sequences[0].shape
    padded = torch.full((len(sequences), heads, rows, columns), torch.nan).to(sequences[0].dtype)
    for b, part in enumerate(sequences):
        padded[b, :, : part.shape[1]] = part
    if layout == "BSH":
        return padded.transpose(1, 2).flatten(2)
    return padded.permute(_ORDER[layout]).contiguous()


def separated(tensor: Tensor, layout: str, lengths: list[int], heads: int) -> list[Tensor]:
    """Returns the rows [N, S_b, D] of each sequence of a tensor, as the reverse of `arranged`."""
    if layout in ("TND", "NTD"):
        rows = tensor.transpose(0, 1) if layout == "TND" else tensor
        return [rows[:, end - length : end] for end, length in zip(sums(lengths), lengths, strict=True)]
    if layout == "BSH":
        tensor, layout = tensor.unflatten(-1, (heads, -1)), "BSND"
    return [rows[:, :length] for rows, length in zip(tensor.permute(_ORDER[layout]), lengths, strict=True)]


def lse_of(lse: Tensor, layout: str, lengths: list[int]) -> list[Tensor]:
    """Returns the lse [N, S_b] of each sequence."""
    rows = lse.transpose(0, 1) if layout in PACKED else lse
    return [part[..., 0] for part in separated(rows, "NTD" if layout in PACKED else "BNSD", lengths, 0)]


def table_of(lengths: list[int], page: int) -> tuple[Tensor, int]:
    """Returns a block table of pages in random order, whose unused entries are -1, and the number of pages."""
    counts = [-(-length // page) for length in lengths]
    order = torch.randperm(sum(counts) + 2, dtype=torch.int32)
    table = torch.full((len(lengths), max(*counts, 1) + 1), -1, dtype=torch.int32)
    for b, (end, count) in enumerate(zip(sums(counts), counts, strict=True)):
        table[b, :count] = order[end - count : end]
    return table, sum(counts) + 2


def paged(sequences: list[Tensor], form: str, table: Tensor, pages: int, page: int) -> Tensor:
    """Returns the sequences' rows in pages of the form BnBsH, BnNBsD, BnBsND or NZ."""
    heads, _, columns = sequences[0].shape
    cache = torch.full((pages, heads, page, columns), torch.nan).to(sequences[0].dtype)
    for b, part in enumerate(sequences):
        for j in range(part.shape[1]):
            cache[table[b, j // page], :, j % page] = part[:, j]
    if form == "NZ":
        size = 32 // cache.element_size()
        return cache.unflatten(-1, (columns // size, size)).transpose(2, 3).contiguous()
    if form == "BnNBsD":
        return cache
    rows_first = cache.transpose(1, 2).contiguous()
    return rows_first if form == "BnBsND" else rows_first.flatten(2)


def assert_sequences(outs: list[Tensor], lses: list[Tensor] | None, inputs: list[tuple], **features) -> None:
    """Compares the results of each sequence with float64. Each entry of `inputs` is (q, k, v) or (q, k, v, keep)."""
    for b, (q, k, v, *keep) in enumerate(inputs):
        if q.shape[1] == 0:
            assert outs[b].shape == (*q.shape[:2], v.shape[2])
            continue
        kept = keep[0] if keep else torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        given = features | {"keep": pad(kept, (0, 1))}
        q, k, v = q[None], *(pad(t, (0, 0, 0, 1))[None] for t in (k, v))  # one key more, which no row keeps
        want, top, total = attention(*(t.double() for t in (q, k, v)), **given)
        bounds = tolerances(q, k, v, torch.zeros_like(want), outs[b].dtype, **given)
        assert_within(outs[b][None], want, bounds["out"], f"out of sequence {b}")
        if lses is None:
            continue
        there = total[0] > 0
        assert torch.isposinf(lses[b][~there]).all()
        want = (top + total.log())[0][there]
        assert_within(lses[b][there], want, bounds["lse"][0][there], f"lse of sequence {b}")


def causal(rows: int, keys: int) -> Tensor:
    """Returns the causal mask [Sq, S] in which the last row keeps all keys."""
    return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
