"""torch_npu's npu_fusion_attention over the ranks of a process group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import in_names, own_names
from .._torch.agreement import process_group
from .._torch.call import UNSIGNED_64
from .._torch.ranked import NAMES, Attention, Cut, Ranks, attend, ranks_of
from .calls import V1_NAMES, Forward, as_newest, checked, npu_call, pairs, signed

_MAX_TOKENS = 2147483647
_NAMES = NAMES | V1_NAMES | {"mask": "sparse_mode", "mask.kind": "sparse_mode", "mask.sparse_mode": "sparse_mode"}


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _MAX_TOKENS,
    next_tockens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
    *,
    group: Any = None,
    cut: Cut = "zigzag",
    strategy: str = "auto",
) -> Forward:
    """Computes `fa.torch_npu.npu_fusion_attention` of sequences that lie on all ranks of the group, forward and
    backward.

    Args:
        query, key, value: this rank's rows. For TND the packed rows are cut, so a cut may lie inside a sequence.
        pse, atten_mask: this rank's rows, each with all keys. A tensor that holds for all queries is passed whole, and
            so are the atten_mask of TND and compressed masks (sparse_mode 2, 3, 4, 6, 7 and 8). TND's pse has this
            rank's rows, one sequence after another. If pse has one row, its gradient on every rank is the sum over all
            rows. If all ranks hold 1024 rows, a pse of 1024 rows is each rank's own; otherwise it is the compressed
            form, which has no gradient.
        dropout_mask: refused.
        pre_tockens, next_tockens, prefix, actual_seq_qlen, actual_seq_kvlen: numbers that refer to the whole sequences.
        softmax_layout: for TND "TND" or "same_as_input", [T,N,8], because a rank's rows are no whole sequences.
        sink: all sinks, on every rank. The gradient on every rank is the sum over all rows.
        seed, offset: if both are 0, rank 0 draws a seed for all ranks.
        group, cut, strategy: as in scaled_dot_product_attention.

    Returns:
        attention_out, softmax_max and softmax_sum of the rank's own rows, softmax_out (empty), seed, offset, and numels
        of the whole call.

    Raises:
        The same errors as `scaled_dot_product_attention`.
    """
    given = as_newest(locals())
    group = process_group(group)
    call = None

    @checked
    def arguments(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        input_layout: str,
        pse: Tensor | None,
        atten_mask: Tensor | None,
        sink: Tensor | None,
        dropout_mask: Tensor | None,
    ) -> Attention:
        nonlocal call
        state = None
        facts = {}
        if keep_prob != 1 and dropout_mask is None:
            drawn = seed == 0 and offset == 0
            own = (int(torch.randint(1, 1 << 62, (), device="cpu")), 0) if drawn else (signed(seed), signed(offset))
            state = torch.tensor(own, dtype=torch.int64, device="cpu")
            facts = {"seed": seed, "offset": offset}
        call = npu_call(given, state)
        if call.statistics == "by_sequence":
            raise ValueError('invalid argument: softmax_layout="", want "TND": rows of a rank are no whole sequences')
        return Attention(query, key, value, call, facts=facts)

    def prepare() -> tuple[Ranks, Attention]:
        ranks = ranks_of(group, cut, strategy)
        with own_names(_NAMES):
            return ranks, arguments(query, key, value, input_layout, pse, atten_mask, sink, dropout_mask)

    out, softmax_max, softmax_sum, (sq, sk), state = attend(group, prepare, lambda error: in_names(error, _NAMES))
    statistics = (s.unsqueeze(-1).repeat(*[1] * s.dim(), 8) for s in (softmax_max, softmax_sum))
    used = (n & UNSIGNED_64 for n in state) if call.dropout_state is not None else (0, 0)
    return out, *statistics, query.new_empty(0), *used, pairs(call, query, sq, sk)
