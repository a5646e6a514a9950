"""The operators as PyTorch's custom operators, with autograd and with kernels for tensors without contents.

`fa::attention` and `fa::attention_backward` speak the device's vocabulary of masks (`sparse_mode`), which has all that
`fa.torch` and `fa.torch_npu` need; sparse_mode 2 and 3 without a mask are the causal rules, anchored top-left and
bottom-right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _attention, _prompt
from .._errors import argument_error
from .._fa import Mask
from .._layout import output_shape, statistics_shape
from .autograd import register_autograd, register_no_derivative

UNSIGNED_64 = (1 << 64) - 1

LIBRARY = torch.library.Library("fa", "FRAGMENT")


# Rules of which keys a row looks at, as modes of a call without a mask.
EVERY_KEY, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = 1, 2, 3

SEQUENCE_AXIS = {"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0, "TND": 0}


class Call(NamedTuple):
    """Everything of an attention call but query, key and value, in the order of the operators' arguments."""

    query_rope: Optional[Tensor]
    key_rope: Optional[Tensor]
    pse: Optional[Tensor]
    dense_mask: Optional[Tensor]
    drop_mask: Optional[Tensor]
    dropout_state: Optional[Tensor]  # int64 [2]: seed, offset
    sink: Optional[Tensor]
    layout: str
    heads: int
    scale: Optional[float]
    sparse_mode: int
    pre_tokens: int
    next_tokens: int
    prefix: list[int]
    cu_q: list[int]
    cu_kv: list[int]
    pse_type: int
    q_start: int
    kv_start: int
    keep_prob: float
    statistics: str

    @classmethod
    def of_rule(cls, rule: int, layout: str, scale: float | None, **others: Any) -> Call:
        """The number of heads is that of the tensors; pse is added to scaled scores."""
        call = {
            "layout": layout,
            "heads": 0,
            "scale": scale,
            "sparse_mode": rule,
            "pre_tokens": 0,
            "next_tokens": 0,
            "pse_type": 1 if others.get("pse") is None else 0,
            "q_start": 0,
            "kv_start": 0,
            "keep_prob": 1.0,
            "statistics": "rows",
            **others,
        }
        lists = {name: call.get(name, []) for name in ("prefix", "cu_q", "cu_kv")}
        return cls(**{name: call.get(name) for name in cls._fields} | lists)

    def keywords(self) -> dict[str, Any]:
        """Those of `fa.flash_attention`."""
        seed, offset = (None, 0) if self.dropout_state is None else self.dropout_state.tolist()
        return {
            "layout": self.layout,
            "head_num": self.heads,
            "scale": self.scale,
            "mask": Mask.from_sparse_mode(
                self.sparse_mode, self.pre_tokens, self.next_tokens, self.prefix, self.dense_mask is not None
            ),
            "dense_mask": self.dense_mask,
            "query_rope": self.query_rope,
            "key_rope": self.key_rope,
            "pse": self.pse,
            "pse_type": self.pse_type,
            "q_start": self.q_start,
            "kv_start": self.kv_start,
            "keep_prob": self.keep_prob,
            "drop_mask": self.drop_mask,
            "seed": None if seed is None else seed & UNSIGNED_64,
            "offset": offset & UNSIGNED_64,
            "sink": self.sink,
            "cu_q": self.cu_q,
            "cu_kv": self.cu_kv,
        }


# Names and types of the operators' arguments after query, key and value: those of Call.
_CALL_SCHEMA = (
    "Tensor? query_rope, Tensor? key_rope, Tensor? pse, Tensor? dense_mask, Tensor? drop_mask, Tensor? dropout_state, "
    "Tensor? sink, str layout, SymInt heads, float? scale, SymInt sparse_mode, SymInt pre_tokens, SymInt next_tokens, "
    "SymInt[] prefix, SymInt[] cu_q, SymInt[] cu_kv, SymInt pse_type, SymInt q_start, SymInt kv_start, "
    "float keep_prob, str statistics"
)
_COPIES = 8  # of the device's statistics


def _expanded_statistics(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if call.statistics == "rows" else (*shape, _COPIES)


def by_sequence(rows: Tensor, cu_q: list[int]) -> Tensor:
    """[T,N,8] in the device's order: one block [N,Sq_b,8] per sequence, one after another."""
    blocks = torch.empty_like(rows)
    begin = 0
    for end in cu_q:
        blocks[begin:end].view(-1).copy_(rows[begin:end].transpose(0, 1).reshape(-1))
        begin = end
    blocks[begin:] = rows[begin:]
    return blocks


def by_row(blocks: Tensor, cu_q: list[int]) -> Tensor:
    """The reverse of `by_sequence`."""
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
    """ValueError unless `sums`, from place `first` on, are prefix sums of the lengths of packed sequences in `tokens`
    rows. (Rows after the last belong to no sequence.)"""
    for i, end in enumerate(sums[first:], first):
        least = sums[i - 1] if i else 0
        if end < least:
            before = (" (", ("cu_q", "", f"[{i - 1}]"), ")") if i else ()
            raise argument_error(ValueError, "cu_q", f"={end}, want >= {least}", *before, index=f"[{i}]")
        if end > tokens:
            raise argument_error(ValueError, "cu_q", f"={end}, want <= {tokens}", index=f"[{i}]")


def _check_by_sequence(out: Tensor, **statistics: Tensor) -> None:
    """ValueError unless the statistics by sequence of `out`, [T, N, D], are [T, N, 8]."""
    want = [*out.shape[:2], _COPIES]
    for name, tensor in statistics.items():
        if list(tensor.shape) != want:
            raise argument_error(ValueError, name, f"={list(tensor.shape)}, want {want}", member=".shape")


def _check_samples_are_written_apart(operator: Any, in_dims: tuple) -> None:
    """RuntimeError, as PyTorch's own operators raise it under vmap, for a tensor that all samples would write."""
    for argument, dim in zip(operator._schema.arguments, in_dims, strict=True):
        if argument.alias_info is not None and argument.alias_info.is_write and dim is None:
            raise RuntimeError(f"vmap: {operator.name()} writes {argument.name} in place, which all samples share")


def operator(schema: str) -> Callable[[Callable], Any]:
    """Defines fa::NAME, and makes the decorated function its CPU kernel. (torch.library.custom_op would import
    torch._dynamo in the first call, which takes a second.)"""
    LIBRARY.define(schema)
    name = schema[: schema.index("(")]

    def vmap_rule(info, in_dims, *arguments):
        from .vmap import RULES, of_no_samples, sample_by_sample

        own = getattr(torch.ops.fa, name).default
        _check_samples_are_written_apart(own, in_dims)
        if info.batch_size == 0:
            return of_no_samples(own, in_dims, arguments)
        rule = RULES.get(name) or sample_by_sample(own)
        return rule(info, in_dims, *arguments)

    def register(kernel: Callable) -> Any:
        LIBRARY.impl(name, kernel, "CPU")
        torch.library.register_vmap(f"fa::{name}", vmap_rule, lib=LIBRARY)
        return getattr(torch.ops.fa, name).default

    return register


def attention_kernel(query, key, value, *arguments):
    """out, softmax_max, softmax_sum; statistics [B,N,Sq] ("rows"), with 8 copies ("copies"), or those "by_sequence"."""
    call = Call(*arguments)
    out, softmax_max, softmax_sum = _attention.flash_attention(query, key, value, **call.keywords())
    if call.statistics != "rows":
        softmax_max, softmax_sum = (_copies(s) for s in (softmax_max, softmax_sum))
    if call.statistics == "by_sequence":
        softmax_max, softmax_sum = (by_sequence(s, call.cu_q) for s in (softmax_max, softmax_sum))
    return out, softmax_max, softmax_sum


def _copies(statistics: Tensor) -> Tensor:
    """The device's copies of every number. (Tensor.repeat takes more than twice as long for few.)"""
    return statistics.unsqueeze(-1).expand(*statistics.shape, _COPIES).contiguous()


attention = operator(f"attention(Tensor query, Tensor key, Tensor value, {_CALL_SCHEMA}) -> (Tensor, Tensor, Tensor)")(
    attention_kernel
)


@torch.library.register_fake("fa::attention", lib=LIBRARY)
def _(query, key, value, *arguments):
    call = Call(*arguments)
    statistics = _expanded_statistics(call, statistics_shape(call.layout, call.heads, query.shape))
    out = query.new_empty(output_shape(call.layout, call.heads, query.shape, key.shape, value.shape))
    return out, *(query.new_empty(statistics, dtype=torch.float32) for _ in range(2))


@operator(
    "attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor d_out, Tensor softmax_max, "
    f"Tensor softmax_sum, bool need_dpse, bool need_dsink, {_CALL_SCHEMA}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def attention_backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *arguments):
    """dq, dk, dv, dq_rope, dk_rope, dpse, dsink. A gradient without an argument, or not asked for, has no elements."""
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


@torch.library.register_fake("fa::attention_backward", lib=LIBRARY)
def _(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *arguments):
    call = Call(*arguments)
    wanted = (
        query,
        key,
        value,
        call.query_rope,
        call.key_rope,
        call.pse if need_dpse else None,
        call.sink if need_dsink else None,
    )
    return tuple(query.new_empty(0) if source is None else source.new_empty(source.shape) for source in wanted)


_ROPES_AND_BIASES = {"query_rope": 3, "key_rope": 4, "pse": 5, "sink": 6}  # their places among the gradients


def _setup_context(ctx, inputs, output):
    query, key, value, *arguments = inputs
    call = Call(*arguments)
    tensors = (call.query_rope, call.key_rope, call.pse, call.dense_mask, call.drop_mask, call.dropout_state, call.sink)
    ctx.save_for_backward(query, key, value, *output, *tensors)
    ctx.call = call._replace(**dict.fromkeys(Call._fields[: len(tensors)]))
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, needs_input_grad, d_out, *_):
    query, key, value, out, softmax_max, softmax_sum, *tensors = ctx.saved_tensors
    call = Call(*tensors, *ctx.call[len(tensors) :])
    needs = Call(*needs_input_grad[3:])
    gradients = attention_backward(
        query, key, value, out, d_out, softmax_max, softmax_sum, needs.pse, needs.sink, *call
    )
    places = (_ROPES_AND_BIASES.get(name) if need else None for name, need in zip(Call._fields, needs, strict=True))
    return *gradients[:3], *(None if place is None else gradients[place] for place in places)


register_autograd(LIBRARY, attention, _setup_context, _backward)
register_no_derivative(LIBRARY, attention_backward, "second derivative")


def _sums_after_0(cu_q: Tensor, tokens: int) -> list[int]:
    """Of prefix sums with a leading 0."""
    if cu_q.dim() != 1 or cu_q.shape[0] == 0:
        raise argument_error(ValueError, "cu_q", f"={list(cu_q.shape)}, want [sequences + 1]", member=".shape")
    if cu_q.is_floating_point() or cu_q.is_complex() or cu_q.dtype == torch.bool:
        raise argument_error(ValueError, "cu_q", f"={cu_q.dtype}, want torch.int64", member=".dtype")
    sums = cu_q.tolist()
    if sums[0] != 0:
        raise argument_error(ValueError, "cu_q", f"={sums[0]}, want 0", index="[0]")
    _check_sums(sums, 1, tokens)
    return sums[1:]


@operator(
    "ring_attention_update(Tensor prev_out, Tensor prev_max, Tensor prev_sum, Tensor cur_out, Tensor cur_max, "
    "Tensor cur_sum, Tensor? cu_q, str layout, bool by_sequence) -> (Tensor, Tensor, Tensor)"
)
def merge(prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum, cu_q, layout, by_sequence_):
    """out, softmax_max, softmax_sum; `cu_q`: prefix sums with a leading 0, for statistics by sequence."""
    statistics = prev_max, prev_sum, cur_max, cur_sum
    lengths = []
    if by_sequence_:
        _check_by_sequence(prev_out, prev_max=prev_max, prev_sum=prev_sum, cur_max=cur_max, cur_sum=cur_sum)
        lengths = _sums_after_0(cu_q, prev_out.shape[0])
        statistics = [by_row(s, lengths) for s in statistics]
    out, *merged = _attention.ring_attention_update(prev_out, *statistics[:2], cur_out, *statistics[2:], layout=layout)
    return out, *(by_sequence(s, lengths) if by_sequence_ else s for s in merged)


register_no_derivative(LIBRARY, merge, "gradient")


@torch.library.register_fake("fa::ring_attention_update", lib=LIBRARY)
def _(prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum, cu_q, layout, by_sequence_):
    return tuple(t.new_empty(t.shape) for t in (prev_out, prev_max, prev_sum))


class PromptCall(NamedTuple):
    """Everything of a prompt call but query, key and value, in the order of the operator's arguments."""

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


@operator(
    "prompt_attention(Tensor query, Tensor key, Tensor value, Tensor? pse, Tensor? dense_mask, Tensor? deq_scale1, "
    "Tensor? quant_scale1, Tensor? deq_scale2, Tensor? quant_scale2, Tensor? quant_offset2, str layout, SymInt heads, "
    "SymInt heads_kv, float scale, SymInt sparse_mode, SymInt pre_tokens, SymInt next_tokens, SymInt[] lengths_q, "
    "SymInt[] lengths_kv) -> Tensor"
)
def prompt_attention(query, key, value, *arguments):
    """The output. It has no gradient."""
    call = PromptCall(*arguments)
    mask = Mask.from_sparse_mode(call.sparse_mode, call.pre_tokens, call.next_tokens, [], call.dense_mask is not None)
    return _prompt.prompt_flash_attention(
        *(t.detach() for t in (query, key, value)),
        layout=call.layout,
        head_num=call.heads,
        head_num_kv=call.heads_kv,
        scale=call.scale,
        mask=mask,
        dense_mask=call.dense_mask,
        pse=call.pse,
        lengths_q=call.lengths_q,
        lengths_kv=call.lengths_kv,
        deq_scale1=call.deq_scale1,
        quant_scale1=call.quant_scale1,
        deq_scale2=call.deq_scale2,
        quant_scale2=call.quant_scale2,
        quant_offset2=call.quant_offset2,
    )


register_no_derivative(LIBRARY, prompt_attention, "gradient")


@torch.library.register_fake("fa::prompt_attention", lib=LIBRARY)
def _(query, key, value, *arguments):
    call = PromptCall(*arguments)
    shape = output_shape(call.layout, call.heads, query.shape, key.shape, value.shape)
    return query.new_empty(shape, dtype=_prompt.output_dtype(query, call.quant_scale2))
