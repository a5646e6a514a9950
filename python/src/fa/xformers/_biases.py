"""What xformers' attn_bias objects mean: the keys that a row looks at, and where sequences lie in packed tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from xformers.ops.fmha import attn_bias as biases

from .._errors import argument_error
from .._torch.call import BAND, BAND_TOP_LEFT, CAUSAL, CAUSAL_TOP_LEFT, EVERY_KEY

RULES: dict[type, int] = {
    type(None): EVERY_KEY,
    Tensor: EVERY_KEY,
    biases.LowerTriangularMask: CAUSAL_TOP_LEFT,
    biases.LowerTriangularMaskWithTensorBias: CAUSAL_TOP_LEFT,
    biases.LowerTriangularFromBottomRightMask: CAUSAL,
    biases.LowerTriangularFromBottomRightLocalAttentionMask: BAND,
    biases.LocalAttentionFromBottomRightMask: BAND,
    biases.BlockDiagonalMask: EVERY_KEY,
    biases.BlockDiagonalCausalMask: CAUSAL_TOP_LEFT,
    biases.BlockDiagonalCausalFromBottomRightMask: CAUSAL,
    biases.BlockDiagonalCausalLocalAttentionMask: BAND_TOP_LEFT,
    biases.BlockDiagonalCausalLocalAttentionFromBottomRightMask: BAND,
    biases.BlockDiagonalPaddedKeysMask: EVERY_KEY,
    biases.BlockDiagonalCausalWithOffsetPaddedKeysMask: CAUSAL,
    biases.BlockDiagonalLocalAttentionPaddedKeysMask: BAND,
    biases.BlockDiagonalCausalLocalAttentionPaddedKeysMask: BAND,
    biases.BlockDiagonalGappyKeysMask: EVERY_KEY,
    biases.BlockDiagonalCausalWithOffsetGappyKeysMask: CAUSAL,
    biases.PagedBlockDiagonalPaddedKeysMask: EVERY_KEY,
    biases.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask: CAUSAL,
    biases.PagedBlockDiagonalGappyKeysMask: EVERY_KEY,
    biases.PagedBlockDiagonalCausalWithOffsetGappyKeysMask: CAUSAL,
}
"""The rule of each type that is served, within a sequence."""

_PAGED = (biases.PagedBlockDiagonalPaddedKeysMask, biases.PagedBlockDiagonalGappyKeysMask)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_GAPPY = (biases.BlockDiagonalGappyKeysMask, biases.PagedBlockDiagonalGappyKeysMask)


def rule_of(bias: Any) -> int:
    return EVERY_KEY if isinstance(bias, Tensor) else RULES[type(bias)]


def band_of(bias: Any) -> tuple[int, int]:
    """Returns how many keys before and after its place a row looks at, or zeros if `bias` is not a band."""
    if hasattr(bias, "_window_size"):  # the key at the row's place counts
        return bias._window_size - 1, 0
    return getattr(bias, "window_left", 0), getattr(bias, "window_right", 0)


def tensor_of(bias: Any) -> Tensor | None:
    """Returns the tensor that is added to the scores, if there is one."""
    if isinstance(bias, biases.LowerTriangularMaskWithTensorBias):
        return bias._bias
    return bias if isinstance(bias, Tensor) else None


class Packed(NamedTuple):
    """Sequences in packed tensors. Sequence b has the queries up to ends_q[b], which begin where those of b - 1 end.
    Without a table, its keys are rows k_begins[b] to k_ends[b]. With a table, its key j is row j % page of page
    table[b][j // page], for j from k_begins[b] to k_ends[b]."""

    ends_q: list[int]
    k_begins: list[int]
    k_ends: list[int]
    table: Tensor | None = None  # int32 [sequences, pages of a sequence]
    page: int = 0

    def rows(self, keys: int) -> Tensor | None:
        """Returns the rows of keys, one sequence after another, or None if these are all rows in their order. Raises
        ValueError for a page that is not among `keys` rows."""
        if self.table is None:
            return None
        owner = torch.repeat_interleave(torch.tensor(self.lengths_k()))
        key = torch.cat([torch.arange(*span) for span in zip(self.k_begins, self.k_ends, strict=True)])
        pages = self.table[owner, key // self.page].long()
        wrong = torch.nonzero((pages < 0) | (pages >= keys // self.page))
        if wrong.numel() > 0:
            at = f"[{owner[wrong[0, 0]]}][{key[wrong[0, 0]] // self.page}]"
            want = f"={pages[wrong[0, 0]]}, want 0..{keys // self.page - 1} (pages)"
            raise argument_error(ValueError, "attn_bias", want, member=".block_tables", index=at)
        return pages * self.page + key % self.page

    def lengths_k(self) -> list[int]:
        return [end - begin for begin, end in zip(self.k_begins, self.k_ends, strict=True)]


def packed_of(bias: Any, query: Tensor, key: Tensor) -> Packed | None:
    """Returns the places of the sequences in the rows of query and key, or None for a bias without sequences. Raises
    ValueError for places that do not fit the shapes."""
    if not isinstance(bias, biases.VARLEN_BIASES):
        return None
    if query.shape[0] != 1:
        want = f"={query.shape[0]}, want 1, as attn_bias divides the rows into sequences"
        raise argument_error(ValueError, "query", want, member=".shape[0]")
    rows, keys = query.shape[1], key.shape[1]
    of_q, of_k = bias.q_seqinfo.seqstart_py, bias.k_seqinfo
    _check("q_seqinfo.seqstart_py[-1]", of_q[-1], rows, "query.shape[1]")
    if isinstance(bias, biases.BlockDiagonalMask):
        packed = Packed(of_q[1:], of_k.seqstart_py[:-1], of_k.seqstart_py[1:])
        _check("k_seqinfo.seqstart_py[-1]", of_k.seqstart_py[-1], keys, "key.shape[1]")
    elif isinstance(bias, _PAGED):
        packed = _in_pages(bias, keys)
    elif isinstance(bias, _GAPPY):  # all keys are one page
        begins, ends = zip(*of_k.intervals(), strict=True)
        table = torch.zeros(len(begins), 1, dtype=torch.int32)
        packed = Packed(of_q[1:], list(begins), list(ends), table, max(keys, 1))
    else:
        table = torch.arange(len(of_k.seqlen_py), dtype=torch.int32)[:, None]
        packed = Packed(of_q[1:], [0] * len(of_k.seqlen_py), list(of_k.seqlen_py), table, max(of_k.padding, 1))
        _check("k_seqinfo.seqstart_py[-1]", len(of_k.seqlen_py) * of_k.padding, keys, "key.shape[1]")
    _check("k_seqinfo: sequences", len(packed.k_ends), len(packed.ends_q), "sequences of attn_bias.q_seqinfo")
    _check_spans(packed, keys)
    return packed


def _in_pages(bias: Any, keys: int) -> Packed:
    table, page, of_k = bias.block_tables, bias.page_size, bias.k_seqinfo
    if page < 1 or keys % page != 0:
        raise argument_error(
            ValueError, "attn_bias", f"={page}, want a divisor of {keys} (key.shape[1])", member=".page_size"
        )
    if table.dim() != 2 or table.dtype not in _INTEGERS:
        got = f"={list(table.shape)} of {table.dtype}, want integers [sequences, pages]"
        raise argument_error(ValueError, "attn_bias", got, member=".block_tables")
    _check("block_tables.shape[0]", table.shape[0], len(of_k.seqlen_py), "sequences of attn_bias.k_seqinfo")
    ends = list(of_k.seqlen_py)
    begins = of_k.seqstart_py[: len(ends)] if isinstance(bias, _GAPPY) else [0] * len(ends)
    # Page numbers outside of int32 become numbers that are no page.
    table = table.clamp(-1, 2**31 - 1).int() if table.dtype == torch.int64 else table.int()
    return Packed(bias.q_seqinfo.seqstart_py[1:], begins, ends, table, page)


def _check(member: str, got: int, want: int, source: str) -> None:
    if got != want:
        raise argument_error(ValueError, "attn_bias", f"={got}, want {want} ({source})", member=f".{member}")


def _check_spans(packed: Packed, keys: int) -> None:
    most = keys if packed.table is None else packed.page * packed.table.shape[1]
    for b, (begin, end) in enumerate(zip(packed.k_begins, packed.k_ends, strict=True)):
        if not 0 <= begin <= end <= most:
            got = f": keys {begin} to {end} of sequence {b}, want them within {most} keys"
            raise argument_error(ValueError, "attn_bias", got, member=".k_seqinfo")
