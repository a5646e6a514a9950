"""Calls of memory_efficient_attention with every kind of attn_bias, and what they compute in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import reference
import torch
from torch import Tensor
from xformers.ops.fmha import attn_bias as biases

B, M, N, H, K, KV = 2, 21, 34, 4, 16, 24
ROWS, KEYS = [5, 1, 9, 6], [7, 3, 9, 15]  # lengths of packed sequences; their sums are M and N
PAGE = 8
TABLE = torch.tensor([[6, 0], [3, 5], [1, 7], [4, 2]], dtype=torch.int32)
PADDED = {"q_seqlen": ROWS, "kv_padding": 16, "kv_seqlen": [3, 0, 9, 15]}  # one has rows before key 0
GAPPY = {"q_seqlen": ROWS, "kv_seqstarts": [8, 40, 0, 20, 43], "kv_seqlen": [7, 3, 9, 15]}  # two spans overlap
PAGED = {"q_seqlen": ROWS, "kv_seqlen": [7, 3, 9, 15], "block_tables": TABLE, "page_size": PAGE}
LATER = GAPPY | {"kv_seqstarts": [3, 21, 39, 48, 64]}  # each begins in one of its two pages


class Case(NamedTuple):
    """A bias, the number of keys of a call with the bias, and whether the bias divides packed tensors into
    sequences.
    """

    make: Callable[[], Any]
    keys: int = N
    packed: bool = True


def _tensor() -> Tensor:
    bias = torch.randn(B, H, M, N, generator=torch.Generator().manual_seed(3))
    bias[0, :, : M - 1, : N - 1] = -torch.inf
    return bias


def _block_diagonal(*lengths: list[int]) -> biases.BlockDiagonalMask:
    return biases.BlockDiagonalMask.from_seqlens(*lengths)


def _later(kind: type) -> Any:
    """Returns a bias of sequences that begin within their pages. (The classes' own from_seqlens raises an error.)"""
    unpaged = biases.BlockDiagonalGappyKeysMask.from_seqlens(**LATER)
    return unpaged.make_paged(TABLE, PAGE, notional_padding=2 * PAGE, paged_type=kind)


CASES = {
    type(None): Case(lambda: None, packed=False),
    Tensor: Case(_tensor, packed=False),
    torch.nn.Parameter: Case(lambda: torch.nn.Parameter(_tensor(), requires_grad=False), packed=False),
    biases.LowerTriangularMask: Case(biases.LowerTriangularMask, packed=False),
    biases.LowerTriangularMaskWithTensorBias: Case(
        lambda: biases.LowerTriangularMask().add_bias(_tensor()), packed=False
    ),
    biases.LowerTriangularFromBottomRightMask: Case(biases.LowerTriangularFromBottomRightMask, 13, packed=False),
    biases.LowerTriangularFromBottomRightLocalAttentionMask: Case(
        lambda: biases.LowerTriangularFromBottomRightMask().make_local_attention(6), 13, packed=False
    ),
    biases.LocalAttentionFromBottomRightMask: Case(
        lambda: biases.LocalAttentionFromBottomRightMask(4, 2), packed=False
    ),
    biases.BlockDiagonalMask: Case(lambda: _block_diagonal(ROWS, KEYS)),
    biases.BlockDiagonalCausalMask: Case(lambda: _block_diagonal([7, 3, 9, 2], [5, 0, 9, 20]).make_causal()),
    biases.BlockDiagonalCausalFromBottomRightMask: Case(
        lambda: _block_diagonal(ROWS, KEYS).make_causal_from_bottomright()
    ),
    biases.BlockDiagonalCausalLocalAttentionMask: Case(
        lambda: _block_diagonal([7, 3, 9, 2], [5, 4, 9, 16]).make_local_attention(3)
    ),
    biases.BlockDiagonalCausalLocalAttentionFromBottomRightMask: Case(
        lambda: _block_diagonal(ROWS, KEYS).make_local_attention_from_bottomright(3)
    ),
    biases.BlockDiagonalPaddedKeysMask: Case(lambda: biases.BlockDiagonalPaddedKeysMask.from_seqlens(**PADDED), 64),
    biases.BlockDiagonalCausalWithOffsetPaddedKeysMask: Case(
        lambda: biases.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(**PADDED), 64
    ),
    biases.BlockDiagonalLocalAttentionPaddedKeysMask: Case(
        lambda: biases.BlockDiagonalPaddedKeysMask.from_seqlens(**PADDED).make_local_attention(3, 1), 64
    ),
    biases.BlockDiagonalCausalLocalAttentionPaddedKeysMask: Case(
        lambda: biases.BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local(**PADDED, window_size=3), 64
    ),
    biases.BlockDiagonalGappyKeysMask: Case(lambda: biases.BlockDiagonalGappyKeysMask.from_seqlens(**GAPPY), 43),
    biases.BlockDiagonalCausalWithOffsetGappyKeysMask: Case(
        lambda: biases.BlockDiagonalCausalWithOffsetGappyKeysMask.from_seqlens(**GAPPY), 43
    ),
    biases.PagedBlockDiagonalPaddedKeysMask: Case(
        lambda: biases.PagedBlockDiagonalPaddedKeysMask.from_seqlens(**PAGED), 64
    ),
    biases.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask: Case(
        lambda: biases.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(**PAGED), 64
    ),
    biases.PagedBlockDiagonalGappyKeysMask: Case(lambda: _later(biases.PagedBlockDiagonalGappyKeysMask), 64),
    biases.PagedBlockDiagonalCausalWithOffsetGappyKeysMask: Case(
        lambda: _later(biases.PagedBlockDiagonalCausalWithOffsetGappyKeysMask), 64
    ),
}
"""One bias of each class. In some, sequences have more rows than keys, or rows that see no key."""


def inputs(case: Case, dtype: torch.dtype = torch.float32, heads: int = H) -> tuple[Tensor, Tensor, Tensor]:
    """Returns query, key and value in BMHK."""
    batch = 1 if case.packed else B
    sizes = (M, K), (case.keys, K), (case.keys, KV)
    return tuple(torch.randn(batch, rows, heads, size).to(dtype) for rows, size in sizes)


def materialized(bias: Any, batch: int, rows: int, keys: int, heads: int = H) -> Tensor:
    """Returns what `bias` adds to the scores, float64 [batch, heads, rows, keys]."""
    if bias is None:
        return torch.zeros(batch, heads, rows, keys, dtype=torch.float64)
    if isinstance(bias, Tensor):
        return bias.detach().double()
    shape = batch, heads, rows, keys
    return bias.materialize(shape, torch.float64).expand(shape)


class Exact:
    """Attention of BMHK tensors in float64: the output, the lse [B, H, M], and bounds of errors in the inputs' type."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float | None = None) -> None:
        self.scale = query.shape[-1] ** -0.5 if scale is None else scale
        self.inputs = [t.detach().double().transpose(1, 2).requires_grad_() for t in (query, key, value)]
        self.bias = bias.double().requires_grad_()
        self.dtype = query.dtype
        out, top, total = reference.attention(*self.inputs, scale=self.scale, bias=self.bias)
        self.out = out.transpose(1, 2)
        self.lse = (top + total.log()).detach()

    def bounds(self, d_out: Tensor, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Returns error bounds by name: gradients in BMHK, "lse" in BHM, and "dbias" for every pair."""
        found = reference.tolerances(
            *self.inputs, d_out.transpose(1, 2), dtype or self.dtype, scale=self.scale, bias=self.bias
        )
        return {name: t if name in ("lse", "dbias", "dsink") else t.transpose(1, 2) for name, t in found.items()}

    def gradients(self, d_out: Tensor) -> dict[str, Tensor]:
        given = [*self.inputs, self.bias]
        found = torch.autograd.grad(self.out, given, d_out.double(), retain_graph=True)
        named = dict(zip(("dq", "dk", "dv"), (t.transpose(1, 2) for t in found), strict=False))
        return named | {"dbias": found[3]}

    def check(self, out: Tensor, d_out: Tensor | None = None, **gradients: Tensor) -> None:
        """Checks the output, and gradients by their names."""
        d_out = torch.zeros_like(self.out) if d_out is None else d_out
        bounds, want = self.bounds(d_out), {"out": self.out, **self.gradients(d_out)}
        for name, got in {"out": out, **gradients}.items():
            reference.assert_within(got, want[name], bounds[name], name)

    def check_lse(self, lse: Tensor) -> None:
        """Checks the lse. Its bound is that of a sum of K products, and of a sum of N terms."""
        assert lse.dtype == torch.float32 and lse.shape == self.lse.shape
        without_keys = self.lse == -torch.inf
        assert torch.equal(lse == -torch.inf, without_keys)
        q, k, _ = (t.detach().abs() for t in self.inputs)
        unit = reference.ROUNDOFF
        scores = unit * (4 * q.shape[-1] ** 0.5 + 8) * (q @ k.transpose(-2, -1)).amax(-1) * self.scale
        bias = torch.where(self.bias.isinf(), 0.0, self.bias.detach()).abs().amax(-1)
        bound = scores + unit * (4 * k.shape[2] ** 0.5 + 8 + 4 * (bias + self.lse.abs()))
        zeros = torch.zeros_like(lse)
        got, want, bound = (torch.where(without_keys, zeros, t) for t in (lse, self.lse, bound))
        reference.assert_within(got, want, bound, "lse")
