"""Block-sparse attention as PyTorch's custom operators, with autograd and fake tensors."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _fa
from .._errors import made
from .._fa import Mask, PairMask
from . import autograd
from .engine import compute
from .operators import operator, schema_of, without_contents

_ROWS = {"TND": 0, "BNSD": 2, "BSND": 1}  # the dimension of rows


class BlockCall(NamedTuple):
    """The arguments of the operators except query, key and value, in the operators' order."""

    blocks: Optional[Tensor]  # bool, int8 or uint8, 0 = drop; None keeps every block
    layout: str  # TND, BNSD or BSND
    block_rows: int
    block_keys: int
    lengths_q: list[int]  # one per batch element; if empty, which TND does not allow, all rows are in use
    lengths_kv: list[int]
    scale: float

    @property
    def packed(self) -> bool:
        return self.layout == "TND"

    def pairs(self, query: Tensor, key: Tensor) -> PairMask | None:
        if self.blocks is None:
            return None
        axis = _ROWS[self.layout]
        rows, keys = (
            max(lengths, default=0) if self.packed else tensor.shape[axis]
            for tensor, lengths in ((query, self.lengths_q), (key, self.lengths_kv))
        )
        return PairMask.from_block_mask(self.blocks, rows, keys, (self.block_rows, self.block_keys))

    def ends(self) -> tuple[list[int], list[int]]:
        """Returns the lengths as the library takes them: prefix sums in TND."""
        if not self.packed:
            return self.lengths_q, self.lengths_kv
        return list(accumulate(self.lengths_q)), list(accumulate(self.lengths_kv))

    def rule(self, query: Tensor, key: Tensor) -> Mask:
        """Returns the mask with which the backward skips rows and keys past the lengths."""
        if self.packed or not (self.lengths_q or self.lengths_kv):
            return Mask.none()
        batch, rows, keys = query.shape[0], query.shape[_ROWS[self.layout]], key.shape[_ROWS[self.layout]]
        end: list[int] = []
        for used, seen in zip(self.lengths_q or [rows] * batch, self.lengths_kv or [keys] * batch, strict=True):
            end += [seen] * used + [0] * (rows - used)
        return Mask.rows([0] * len(end), end)

    def rows_of(self, lse: Tensor) -> Tensor:
        """Returns an lse as the library takes it: [B,N,S] or [T,N]."""
        rows = lse.squeeze(-1)
        return rows.transpose(1, 2).contiguous() if self.layout == "BSND" else rows


def _fake_backward(query, key, value, *_):
    return without_contents(query, query, key, value)


@operator(
    f"block_sparse_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor lse, "
    f"{schema_of(BlockCall)}) -> (Tensor, Tensor, Tensor)",
    fake=_fake_backward,
    derivative=autograd.none("second derivative"),
)
def block_sparse_attention_backward(query, key, value, out, d_out, lse, *arguments):
    """Returns dq, dk and dv. The library's backward gets the lse as the maximum of the scores, and 1 as the sum of
    exponentials.
    """
    call = BlockCall(*arguments)
    rows = call.rows_of(lse)
    inputs = {"q": query, "k": key, "v": value, "dense_mask": call.pairs(query, key), "out": out, "d_out": d_out}
    inputs |= {"softmax_max": rows, "softmax_sum": torch.ones_like(rows)}
    gradients = {"dq": torch.empty_like(query), "dk": torch.empty_like(key), "dv": torch.empty_like(value)}
    given = {"layout": call.layout, "scale": call.scale, "mask": call.rule(query, key), "pse_type": 1}
    lengths = call.ends() if call.packed else ()
    compute(_fa.backward, inputs, gradients, made(_fa.AttentionOptions, given), *lengths)
    return tuple(gradients.values())


def _lse_shape(query: Tensor) -> tuple[int, ...]:
    return (*query.shape[:-1], 1)


def _fake_attention(query, key, value, *_):
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, query.new_empty(_lse_shape(query), dtype=torch.float32)


@operator(
    f"block_sparse_attention(Tensor query, Tensor key, Tensor value, {schema_of(BlockCall)}) -> (Tensor, Tensor)",
    fake=_fake_attention,
    derivative=autograd.of_attention(BlockCall, 1, block_sparse_attention_backward),
)
def block_sparse_attention(query, key, value, *arguments):
    """Returns the output, and the lse [T,N,1], [B,N,S,1] or, in BSND, [B,S,N,1]. Rows without keys have out 0 and lse
    +inf."""
    call = BlockCall(*arguments)
    out, lse = _fake_attention(query, key, value)
    turned = call.layout == "BSND"
    rows = lse.new_empty((query.shape[0], query.shape[2], query.shape[1])) if turned else lse
    given = {"layout": call.layout, "scale": call.scale, "infinite_lse": True}
    inputs = {"q": query, "k": key, "v": value, "dense_mask": call.pairs(query, key)}
    compute(_fa.infer, inputs, {"out": out, "lse": rows}, made(_fa.InferAttentionOptions, given), *call.ends())
    if turned:
        lse.copy_(rows.transpose(1, 2)[..., None])
    return out, lse
