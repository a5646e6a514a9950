"""Calls the extension on PyTorch's tensors without `fa`'s functions on arrays and without PyTorch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from .. import _context, _fa
from .._pytorch import any_requires_grad, dispatch_keys, unwatched
from .shapes import empty_like

_PLAIN = (Tensor, torch.nn.Parameter)
with torch.inference_mode():
    _MADE_IN_INFERENCE = torch.empty(0, device="cpu")
# The sets of dispatch keys of plain tensors. Tensors with other keys have no memory of their own, or wrap other
# tensors.
_PLAIN_KEYS = {dispatch_keys(tensor).raw_repr() for tensor in (torch.empty(0, device="cpu"), _MADE_IN_INFERENCE)}
# False before PyTorch 2.10. The extension then reads DLPack capsules, and its functions on tensors return None.
_READ_IN_PLACE = _fa.use_torch(
    _PLAIN, dispatch_keys, sorted(_PLAIN_KEYS), torch.empty_strided, torch.empty_like, torch.float32
)


def is_plain(tensor: Any) -> bool:
    """Returns whether `tensor` is exactly a Tensor or a Parameter, with its own memory, and wraps no other tensor."""
    return type(tensor) in _PLAIN and dispatch_keys(tensor).raw_repr() in _PLAIN_KEYS


def possible(*tensors: Tensor | None) -> bool:
    """Returns whether a call with these tensors may bypass the dispatcher."""
    if not unwatched():
        return False
    for tensor in tensors:
        if tensor is not None and not is_plain(tensor):
            return False
    return True


def recorded(*tensors: Any) -> bool:
    """Returns whether autograd records what is computed from these tensors."""
    return torch.is_grad_enabled() and any_requires_grad(*tensors)


class _Result:
    """Gives the extension a new DLPack capsule of a result each time, because the extension can read a capsule only
    once.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_):
        return to_dlpack(self.tensor)


def _capsules(tensors: Tensor | list[Tensor]) -> Any:
    """Makes DLPack capsules in a tenth of the time of Tensor.__dlpack__."""
    return [to_dlpack(tensor) for tensor in tensors] if isinstance(tensors, list) else to_dlpack(tensors)


def compute(
    function: Callable[..., None],
    inputs: dict[str, Tensor | list[Tensor] | None],
    results: dict[str, Tensor],
    options: Any,
    lengths_q: Sequence[int] = (),
    lengths_kv: Sequence[int] = (),
) -> None:
    """Calls a function of the extension, such as _fa.forward, on plain tensors."""
    if _READ_IN_PLACE:
        arrays: dict[str, Any] = {**inputs, **results}
    else:
        arrays = {name: _capsules(tensors) for name, tensors in inputs.items() if tensors is not None}
        arrays |= {name: _Result(tensor) for name, tensor in results.items()}
    function(arrays, options, lengths_q, lengths_kv, _context.context_of_tensors())


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dense_mask: Tensor | None,
    pse: Tensor | None,
    sink: Tensor | None,
    options: _fa.AttentionOptions,
    order: str,
    statistics: bool,
) -> Any:
    """Computes attention in layout BNSD. Returns the output, or with `statistics` (output, softmax_max, softmax_sum).
    `_fa.pyi` explains `order`."""
    context = _context.context_of_tensors()
    given = query, key, value, dense_mask, pse, sink
    results = _fa.attend(*given, options, True, statistics, context, order)
    if results is not None:
        return results
    if order == "as query" and value.shape[3] == query.shape[3]:
        out = empty_like(query)
    else:
        out = _empty((*query.shape[:3], value.shape[3]), query, order == "by row")
    named = {"out": out}
    if statistics:
        named |= {name: query.new_empty(query.shape[:3], dtype=torch.float32) for name in _RESULTS[1:]}
    compute(_fa.forward, dict(zip(_INPUTS, given, strict=True)), named, options)
    return tuple(named.values()) if statistics else out


def attend_backward(
    inputs: tuple[Tensor | None, ...],
    results: tuple[Tensor, ...],
    d_out: Tensor,
    options: _fa.AttentionOptions,
    by_row: bool,
    need_dpse: bool = False,
    need_dsink: bool = False,
) -> dict[str, Tensor]:
    """Returns the gradients of `attend` by name: dq, dk, dv, with need_dpse dpse, and with need_dsink dsink.

    Args:
        inputs: the inputs of `attend`. results: its output and statistics.
        by_row: whether the memory of dq, dk and dv has the order [B, S, N, D], in which PyTorch's fused kernel writes.
    """
    query, key, value, _, pse, sink = inputs
    gradients = {name: _empty(t.shape, t, by_row) for name, t in (("dq", query), ("dk", key), ("dv", value))}
    if need_dpse:
        gradients["dpse"] = pse.new_empty(pse.shape)
    if need_dsink:
        gradients["dsink"] = sink.new_empty(sink.shape)
    named = {**dict(zip(_INPUTS, inputs, strict=True)), **dict(zip(_RESULTS, results, strict=True)), "d_out": d_out}
    compute(_fa.backward, named, gradients, options)
    return gradients


_INPUTS = ("q", "k", "v", "dense_mask", "pse", "sink")
_RESULTS = ("out", "softmax_max", "softmax_sum")


def _empty(shape: Sequence[int], like: Tensor, by_row: bool) -> Tensor:
    """Allocates a tensor [B, N, S, D]. With by_row it lies in memory as [B, S, N, D], and otherwise as its shape
    says."""
    if not by_row:
        return like.new_empty(shape)
    batch, heads, rows, size = shape
    return like.new_empty((batch, rows, heads, size)).transpose(1, 2)
