"""Computes FlexAttention: by the engine, in one call or in slabs of query rows, or by PyTorch's operations in slabs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ... import _fa
from ..._errors import made
from ..engine import attend, compute
from ..shapes import empty_like
from .mask import Kept
from .score import Form, values_of
from .trace import Unchanged, widened

_BIASES = 1 << 22  # the most values of a bias in memory
_EMPTY = -torch.finfo(torch.float32).max  # the maximum of a row without keys
_SCORES = 1 << 20  # the most scores in memory that PyTorch's operations compute


class Results(NamedTuple):
    out: Tensor
    lse: Tensor
    max_scores: Tensor
    total: Tensor
    """The sum of the weights of a row, relative to its largest score."""


class Call:
    """What the engine computes: the kept pairs, scale, soft cap and bias."""

    def __init__(
        self, kept: Kept, form: Form, scale: float, is_slopes: bool, in_slabs: bool, known: Results | None
    ) -> None:
        self.kept, self.form, self.is_slopes, self.in_slabs, self.known = kept, form, is_slopes, in_slabs, known
        self.scale = scale * form.scale
        self.slabs = self._slabs() if in_slabs else [slice(0, kept.sizes.rows)]
        self.captured: list[Tensor] = []
        if in_slabs:
            every = {id(t): t for node, _ in form.biases for t in node.captured() if t.is_floating_point()}
            self.captured = list(every.values())
        read_again = [*kept.captured(), *(t for node, _ in form.biases for t in node.captured())]
        self.unchanged = Unchanged(read_again if in_slabs else [])

    def options(self, rows: slice) -> Any:
        pse_type = 2 if self.is_slopes else 0
        given = {"mask": self.kept.rule(rows), "scale": self.scale, "softcap": self.form.softcap}
        return made(_fa.AttentionOptions, {"layout": "BNSD", "pse_type": pse_type, **given})

    def _slabs(self) -> list[slice]:
        """Divides the query rows into slabs. The bias of one slab, [B|1, N|1, rows, S], is in memory at a time."""
        sizes, used = self.kept.sizes, frozenset[str]().union(*(node.depends for node, _ in self.form.biases))
        per_row = (sizes.batch if "b" in used else 1) * (sizes.heads if "h" in used else 1) * sizes.keys
        step = max(128, _BIASES // max(per_row, 1) // 128 * 128)
        return [slice(begin, min(begin + step, sizes.rows)) for begin in range(0, sizes.rows, step)]

    def bias(self, rows: slice, tensors: Sequence[Tensor]) -> Tensor | None:
        """Returns the bias [B|1, N|1, rows|1, S], or the slopes."""
        if not self.in_slabs:
            return tensors[0] if tensors else None
        others = {id(own): given.to(own.dtype) for own, given in zip(self.captured, tensors, strict=True)}
        return values_of(self.form, self.kept, rows.start, rows.stop, others)

    def of_every_head(self, bias: Tensor | None) -> Tensor | None:
        return bias if bias is None or self.is_slopes else bias.detach().expand(-1, self.kept.sizes.heads, -1, -1)


class Engine(torch.autograd.Function):
    """Computes the members of Results from (call, query, key, value, *tensors of the bias). Only out and lse have
    gradients.
    """

    @staticmethod
    def forward(ctx, call, query, key, value, *tensors):
        if call.known is None:
            out, top, total = _forward(call, query, key, value, tensors)
        else:
            out, _, top, total = call.known
            top = top.clamp(min=_EMPTY)
        empty = top == _EMPTY
        lse = torch.where(empty, -math.inf, top + total.log())
        ctx.save_for_backward(query, key, value, out, top, total, *tensors)
        ctx.call = call
        max_scores = torch.where(empty, -math.inf, top)
        ctx.mark_non_differentiable(max_scores, total)
        ctx.set_materialize_grads(False)
        return out, lse, max_scores, total

    @staticmethod
    def backward(ctx, d_out, d_lse, *_):
        if torch.is_grad_enabled():
            raise NotImplementedError("fa.torch.flex_attention: there is no second derivative")
        ctx.call.unchanged.check()
        query, key, value, out, top, total, *tensors = ctx.saved_tensors
        size = value.shape[3]
        d_out = torch.zeros_like(out) if d_out is None else d_out
        given = query, key, value, out, d_out
        if d_lse is not None:
            given = _with_column(*given, d_lse)
        needed = ctx.needs_input_grad[4:]
        gradients, sums = _backward(ctx.call, given, top, total, tensors, needed)
        dq, dk, dv = (t.to(query.dtype) for t in gradients)
        return None, dq, dk, dv[..., :size], *sums


def _forward(call: Call, query: Tensor, key: Tensor, value: Tensor, tensors) -> tuple[Tensor, ...]:
    """Returns out, and the maximum and the sum of each row."""
    parts = []
    order = "dense" if len(call.slabs) > 1 or not _as_query(query, value) else "as query"
    for rows in call.slabs:
        bias, pairs = call.of_every_head(call.bias(rows, tensors)), call.kept.pairs(rows)
        parts.append(attend(query[:, :, rows], key, value, pairs, bias, None, call.options(rows), order, True))
    return parts[0] if len(parts) == 1 else tuple(torch.cat(same, 2) for same in zip(*parts, strict=True))


def _as_query(query: Tensor, value: Tensor) -> bool:
    return query.shape[3] == value.shape[3] and query.stride(3) == 1


def _with_column(query, key, value, out, d_out, d_lse):
    """Adds a column to value, out and d_out, in float32, so that the backward subtracts d_lse from sum(d_out * out)."""
    query, key, value, out, d_out = (t.float() for t in (query, key, value, out, d_out))
    one = value.new_zeros((*value.shape[:3], 1))
    minus = d_out.new_full((*d_out.shape[:3], 1), -1.0)
    value, d_out = torch.cat((value, one), 3), torch.cat((d_out, minus), 3)
    return query, key, value, torch.cat((out, d_lse.float()[..., None]), 3), d_out


def _backward(call: Call, given, top: Tensor, total: Tensor, tensors, needed) -> tuple[list[Tensor], list]:
    """Returns dq, dk and dv, and the gradients of the tensors of the bias. Sums over slabs are in the order of rows."""
    query, key, value, out, d_out = given
    dq_parts: list[Tensor] = []
    dk = dv = None
    sums: list[Any] = [None] * len(tensors)
    for rows in call.slabs:
        with torch.set_grad_enabled(call.in_slabs):
            leaves = tuple(t.detach().requires_grad_(need) for t, need in zip(tensors, needed, strict=True))
            bias = call.bias(rows, leaves)
        of_rows = (t[:, :, rows] for t in (query, out, d_out, top, total))
        dq, dk_part, dv_part, *dbias = _slab_backward(call, rows, key, value, *of_rows, bias, any(needed))
        dq_parts.append(dq)
        if len(call.slabs) > 1:
            dk_part, dv_part = dk_part.float(), dv_part.float()
        dk, dv = (dk_part, dv_part) if dk is None else (dk.add_(dk_part), dv.add_(dv_part))
        if not dbias or not call.in_slabs:
            sums = dbias or sums
            continue
        parts = iter(torch.autograd.grad(bias, [t for t in leaves if t.requires_grad], dbias, allow_unused=True))
        for place, need in enumerate(needed):
            part = next(parts) if need else None
            if part is not None:
                sums[place] = part if sums[place] is None else sums[place] + part
    return [dq_parts[0] if len(dq_parts) == 1 else torch.cat(dq_parts, 2), dk, dv], sums


def _slab_backward(call, rows, key, value, query, out, d_out, top, total, bias, need_bias):
    inputs = {"q": query, "k": key, "v": value, "dense_mask": call.kept.pairs(rows)}
    inputs |= {"pse": call.of_every_head(bias)}
    inputs |= {"out": out, "softmax_max": top, "softmax_sum": total, "d_out": d_out}
    results = {f"d{name}": empty_like(t) for name, t in (("q", query), ("k", key), ("v", value))}
    if need_bias:
        results["dslopes" if call.is_slopes else "dpse"] = torch.empty_like(bias, memory_format=torch.contiguous_format)
    compute(_fa.backward, inputs, results, call.options(rows))
    return results.values()


def by_operations(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Kept,
    scale: float,
    score_mod: Callable[..., Tensor],
    captured: list[Tensor],
) -> Results:
    """Computes any score_mod in slabs of query rows, for which autograd keeps only the inputs. `score_mod` is called
    with scores [1, G, rows, S], vectors of indices, and {id of a captured tensor: the tensor that replaces it}.
    """
    work = torch.promote_types(query.dtype, torch.float32)
    batch, heads, count, _ = query.shape
    group = heads // key.shape[1]
    step = max(1, _SCORES // max(1, group * key.shape[2]))
    b, h, q_idx, kv_idx = kept.sizes.indices()
    unchanged = Unchanged([*captured, *kept.captured()])
    wide = [(own, widened(own)) for own in captured]

    def slab(q, k, v, i, first, begin):  # the backward calls it again
        unchanged.check()
        rows, of_heads = slice(begin, begin + q.shape[2]), slice(first, first + group)
        scores = (q.to(work) @ k.to(work).transpose(2, 3)) * scale
        others = {id(own): given.to(own.dtype) for own, given in wide}
        scores = score_mod(scores, (b[i : i + 1], h[of_heads], q_idx[rows], kv_idx), others).to(work)
        scores = scores.masked_fill(~kept.slab(rows.start, rows.stop, b[i : i + 1], h[of_heads]), -math.inf)
        top = scores.detach().amax(3, keepdim=True)
        empty = top == -math.inf
        weights = (scores - torch.where(empty, 0.0, top)).exp()
        total = weights.sum(3, keepdim=True)
        out = (weights / torch.where(empty, 1.0, total)) @ v.to(work)
        lse = torch.where(empty, -math.inf, top + torch.where(empty, 1.0, total).log())
        return out.to(query.dtype), lse[..., 0], top[..., 0], total.detach()[..., 0]

    batches = []
    with torch.autocast("cpu", enabled=False):
        for i in range(batch):
            groups = []
            for kv in range(key.shape[1]):
                parts = []
                for begin in range(0, count, step):
                    first = kv * group
                    q = query[i : i + 1, first : first + group, begin : begin + step]
                    k, v = key[i : i + 1, kv : kv + 1], value[i : i + 1, kv : kv + 1]
                    parts.append(checkpoint(slab, q, k, v, i, first, begin, use_reentrant=False, preserve_rng_state=False))
                groups.append([torch.cat(same, 2) for same in zip(*parts, strict=True)])
            batches.append([torch.cat(same, 1) for same in zip(*groups, strict=True)])
    return Results(*(torch.cat(same, 0) for same in zip(*batches, strict=True)))
