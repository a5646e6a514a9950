"""PyTorch operators for dense attention, for merging partial results, and for attention over a prompt."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _attention, _prompt
from .._errors import argument_error
from .._fa import Mask
from .._layout import output_shape, statistics_shape
from . import autograd
from .attention_fold import fold_attention, fold_attention_backward
from .call import BATCH_AXIS, Call
from .operators import operator, schema_of, tensors_of, without_contents
from .vmap import Fold, one_by_one


_COPIES = 8  # the device stores each statistic 8 times


def _expanded_statistics(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if call.statistics == "rows" else (*shape, _COPIES)


def by_sequence(rows: Tensor, cu_q: list[int]) -> Tensor:
    """Returns statistics [T,N,8] in the device's order: the blocks [N,Sq_b,8] of the sequences follow one another."""
    blocks = torch.empty_like(rows)
    begin = 0
    for end in cu_q:
        blocks[begin:end].view(-1).copy_(rows[begin:end].transpose(0, 1).reshape(-1))
        begin = end
    blocks[begin:] = rows[begin:]
    return blocks


def by_row(blocks: Tensor, cu_q: list[int]) -> Tensor:
    """Returns statistics by sequence as [T,N,8], as the reverse of `by_sequence`."""
    blocks = blocks.contiguous()
    rows = torch.empty_like(blocks)
    begin = 0
    for end in cu_q:
        _, heads, copies = blocks.shape
        rows[begin:end] = blocks[begin:end].view(heads, end - begin, copies).transpose(0, 1)
        begin = end
    rows[begin:] = blocks[begin:]
    return rows


def _check_sums(sums: list[int], first: int, tokens: int) -> None:
    """Raises ValueError unless sums[first:] do not decrease and do not exceed `tokens`. (Later rows belong to no
    sequence.)
    """
    for i, end in enumerate(sums[first:], first):
        least = sums[i - 1] if i else 0
        if end < least:
            before = (" (", ("cu_q", "", f"[{i - 1}]"), ")") if i else ()
            raise argument_error(ValueError, "cu_q", f"={end}, want >= {least}", *before, index=f"[{i}]")
        if end > tokens:
            raise argument_error(ValueError, "cu_q", f"={end}, want <= {tokens}", index=f"[{i}]")


def _check_by_sequence(out: Tensor, **statistics: Tensor) -> None:
    """Raises ValueError unless the statistics of `out` [T, N, D] have the shape [T, N, 8]. They lie as [N, Sq_b, 8]."""
    want = [*out.shape[:2], _COPIES]
    for name, tensor in statistics.items():
        if list(tensor.shape) != want:
            raise argument_error(ValueError, name, f"={list(tensor.shape)}, want {want}", member=".shape")


def _fake_backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *arguments):
    call = Call(*arguments)
    biases = call.pse if need_dpse else None, call.sink if need_dsink else None
    return without_contents(query, query, key, value, call.query_rope, call.key_rope, *biases)


@operator(
    "attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, bool need_dpse, bool need_dsink, {schema_of(Call)}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
    vmap=fold_attention_backward,
    derivative=autograd.none("second derivative"),
)
def attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *arguments):
    """Returns dq, dk, dv, dq_rope, dk_rope, dpse and dsink. The gradient of an absent argument has no elements. dpse
    has elements only with need_dpse, and dsink only with need_dsink."""
    call = Call(*arguments)
    if call.statistics == "by_sequence":
        _check_sums(call.cu_q, 0, query.shape[0])
        _check_by_sequence(query, softmax_max=softmax_max, softmax_sum=softmax_sum)
        softmax_max, softmax_sum = (by_row(s, call.cu_q) for s in (softmax_max, softmax_sum))
    gradients = _attention.flash_attention_grad(
        query,
        key,
        value,
        out,
        d_out,
        softmax_max,
        softmax_sum,
        need_dpse=need_dpse,
        need_dsink=need_dsink,
        **call.keywords(),
    )
    return tuple(query.new_empty(0) if gradient is None else gradient for gradient in gradients)


def _fake_attention(query, key, value, *arguments):
    call = Call(*arguments)
    statistics = _expanded_statistics(call, statistics_shape(call.layout, call.heads, query.shape))
    out = query.new_empty(output_shape(call.layout, call.heads, query.shape, key.shape, value.shape))
    return out, *(query.new_empty(statistics, dtype=torch.float32) for _ in range(2))


@operator(
    f"attention(Tensor query, Tensor key, Tensor value, {schema_of(Call)}) -> (Tensor, Tensor, Tensor)",
    fake=_fake_attention,
    vmap=fold_attention,
    derivative=autograd.of_attention(
        Call,
        tensors_of(Call),
        attention_backward,
        others=("query_rope", "key_rope", "pse", "sink"),
        asked=("pse", "sink"),
    ),
)
def attention(query, key, value, *arguments):
    """Returns out, softmax_max and softmax_sum. call.statistics chooses the form of the statistics: "rows" is [B,N,Sq],
    "copies" repeats each number 8 times, "by_sequence" is the device's order for packed sequences."""
    call = Call(*arguments)
    out, softmax_max, softmax_sum = _attention.flash_attention(query, key, value, **call.keywords())
    if call.statistics != "rows":
        softmax_max, softmax_sum = (_copies(s) for s in (softmax_max, softmax_sum))
    if call.statistics == "by_sequence":
        softmax_max, softmax_sum = (by_sequence(s, call.cu_q) for s in (softmax_max, softmax_sum))
    return out, softmax_max, softmax_sum


def _copies(statistics: Tensor) -> Tensor:
    """Returns each number 8 times, in a new last dimension. (For few numbers, Tensor.repeat takes twice as long.)"""
    return statistics.unsqueeze(-1).expand(*statistics.shape, _COPIES).contiguous()


def _sums_after_0(cu_q: Tensor, tokens: int) -> list[int]:
    """Checks prefix sums that begin with 0, and returns the sums after this 0."""
    if cu_q.dim() != 1 or cu_q.shape[0] == 0:
        raise argument_error(ValueError, "cu_q", f"={list(cu_q.shape)}, want [sequences + 1]", member=".shape")
    if cu_q.is_floating_point() or cu_q.is_complex() or cu_q.dtype == torch.bool:
        raise argument_error(ValueError, "cu_q", f"={cu_q.dtype}, want torch.int64", member=".dtype")
    sums = cu_q.tolist()
    if sums[0] != 0:
        raise argument_error(ValueError, "cu_q", f"={sums[0]}, want 0", index="[0]")
    _check_sums(sums, 1, tokens)
    return sums[1:]


def _fold_merge(operator, info, in_dims, *arguments):
    *tensors, cu_q, layout, by_sequence = arguments
    if by_sequence:
        return one_by_one(operator, info, in_dims, *arguments)
    fold = Fold(info.batch_size)
    axes = (BATCH_AXIS.get(layout, 0), 0, 0)
    folded = (fold.fold(t, dim, axis) for t, dim, axis in zip(tensors, in_dims[:6], axes * 2, strict=True))
    results = operator(*folded, None, layout, False)
    return tuple(fold.unfold(t, axis) for t, axis in zip(results, axes, strict=True)), axes


@operator(
    "ring_attention_update(Tensor prev_out, Tensor prev_max, Tensor prev_sum, Tensor cur_out, Tensor cur_max, "
    "Tensor cur_sum, Tensor? cu_q, str layout, bool by_sequence) -> (Tensor, Tensor, Tensor)",
    fake=lambda *arguments: without_contents(arguments[0], *arguments[:3]),
    vmap=_fold_merge,
    derivative=autograd.none("gradient"),
)
def merge(prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum, cu_q, layout, by_sequence_):
    """Returns out, softmax_max and softmax_sum. For statistics by sequence, `cu_q` has prefix sums from 0 on."""
    statistics = prev_max, prev_sum, cur_max, cur_sum
    lengths = []
    if by_sequence_:
        _check_by_sequence(prev_out, prev_max=prev_max, prev_sum=prev_sum, cur_max=cur_max, cur_sum=cur_sum)
        lengths = _sums_after_0(cu_q, prev_out.shape[0])
        statistics = [by_row(s, lengths) for s in statistics]
    out, *merged = _attention.ring_attention_update(prev_out, *statistics[:2], cur_out, *statistics[2:], layout=layout)
    return out, *(by_sequence(s, lengths) if by_sequence_ else s for s in merged)


class PromptCall(NamedTuple):
    """The arguments of the operator prompt_attention except query, key and value, in the operator's order."""

    pse: Optional[Tensor]
    dense_mask: Optional[Tensor]
    deq_scale1: Optional[Tensor]
    quant_scale1: Optional[Tensor]
    deq_scale2: Optional[Tensor]
    quant_scale2: Optional[Tensor]
    quant_offset2: Optional[Tensor]
    layout: str
    heads: int
    heads_kv: int
    scale: float
    sparse_mode: int
    pre_tokens: int
    next_tokens: int
    lengths_q: list[int]
    lengths_kv: list[int]


def _fold_prompt(operator, info, in_dims, *arguments):
    call = PromptCall(*arguments[3:])
    shared = all(t is None or t.dim() == 2 or t.shape[0] == 1 for t in (call.pse, call.dense_mask))
    if call.layout == "TND" or not shared or any(dim is not None for dim in in_dims[3 : 3 + tensors_of(PromptCall)]):
        return one_by_one(operator, info, in_dims, *arguments)
    fold = Fold(info.batch_size)
    axis = BATCH_AXIS.get(call.layout, 0)
    folded = (fold.fold(t, dim, axis) for t, dim in zip(arguments[:3], in_dims[:3], strict=True))
    lengths = (lengths * (1 if len(lengths) == 1 else info.batch_size) for lengths in (call.lengths_q, call.lengths_kv))
    call = call._replace(**dict(zip(("lengths_q", "lengths_kv"), lengths, strict=True)))
    return fold.unfold(operator(*folded, *call), axis), axis


def _fake_prompt(query, key, value, *arguments):
    call = PromptCall(*arguments)
    shape = output_shape(call.layout, call.heads, query.shape, key.shape, value.shape)
    return query.new_empty(shape, dtype=_prompt.output_dtype(query, call.quant_scale2))


@operator(
    f"prompt_attention(Tensor query, Tensor key, Tensor value, {schema_of(PromptCall)}) -> Tensor",
    fake=_fake_prompt,
    vmap=_fold_prompt,
    derivative=autograd.none("gradient"),
)
def prompt_attention(query, key, value, *arguments):
    """Returns the output, which has no gradient."""
    given = PromptCall(*arguments)._asdict()
    rule = (given.pop(name) for name in ("sparse_mode", "pre_tokens", "next_tokens"))
    given["mask"] = Mask.from_sparse_mode(*rule, [], given["dense_mask"] is not None)
    given["head_num"], given["head_num_kv"] = given.pop("heads"), given.pop("heads_kv")
    return _prompt.prompt_flash_attention(*(t.detach() for t in (query, key, value)), **given)
