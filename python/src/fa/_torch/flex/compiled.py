"""flex_attention under torch.compile: one operator for the forward and one for the backward.

Dynamo traces score_mod and mask_mod, as it does for PyTorch's flex_attention, and hands their graphs and the tensors
that they capture to `traced`. The operators take the captured tensors, and a number that identifies the two graphs. The
kernels of the operators read the graphs as `flex_attention` reads functions, so a compiled call has the bits of an
eager one.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.nn.attention.flex_attention import BlockMask

from ..._pytorch import HigherOrder, after_autograd, any_requires_grad, as_outermost, below_autograd
from .. import autograd
from ..operators import operator
from .attention import Results
from .prepare import check, computed, in_order

_LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
_SETTINGS = (
    "Tensor query, Tensor key, Tensor value, Tensor[] of_mask, Tensor[] captured, SymInt[] numbers, SymInt[] sizes, "
    "int graphs, float scale, bool enable_gqa"
)


class _Functions:
    """score_mod and mask_mod as Dynamo's graphs, and which of the values that they capture are tensors."""

    def __init__(self, score_mod: GraphModule, mask_mod: GraphModule, captured: tuple[list, list]) -> None:
        self.graphs = score_mod, mask_mod
        self.are_tensors = [[isinstance(value, Tensor) for value in values] for values in captured]
        modules = [m for graph in self.graphs for m in graph.modules() if isinstance(m, GraphModule)]
        self.code = repr([*(module.code for module in modules), self.are_tensors])
        self.targets = [node.target for module in modules for node in module.graph.nodes]

    def bound(self, tensors: list[Tensor], numbers: list[int]) -> list[Callable[..., Tensor]]:
        """Returns both functions with these captured tensors and numbers."""
        rest: dict[bool, Any] = {True: iter(tensors), False: iter(numbers)}
        captured = [[next(rest[is_tensor]) for is_tensor in kinds] for kinds in self.are_tensors]
        return [functools.partial(_applied, graph, values) for graph, values in zip(self.graphs, captured, strict=True)]


def _applied(graph: GraphModule, captured: list, *inputs: Tensor) -> Tensor:
    return graph(*inputs, *captured)


_functions: dict[int, _Functions] = {}
_lock = threading.Lock()


def _number_of(functions: _Functions) -> int:
    """Returns the number that stands for the two graphs in calls of the operators. It is a hash of their code, so it is
    the same in another process. One pair of graphs per code is kept forever, because a compiled program may call it at
    any time.
    """
    number = int.from_bytes(hashlib.sha256(functions.code.encode()).digest()[:7], "big")
    with _lock:
        while _functions.setdefault(number, functions).targets != functions.targets:  # other functions
            number += 1
    return number


class _Traced(HigherOrder):
    """The function whose calls Dynamo puts into its graph. If Dynamo cannot trace score_mod or mask_mod, this function
    is called outside of a graph, with the Python functions.
    """

    def __init__(self) -> None:
        super().__init__("fa_flex_attention")
        self.__name__, self.__module__ = "flex_attention", __name__  # Dynamo chooses by the name how it traces a call

    def __call__(self, query, key, value, score_mod, mask, scale, options, of_score=(), of_mask=()):
        *given, mask_mod = mask
        lists, sizes = [t for t in given[:4] if t is not None], given[4:]
        if torch.compiler.is_exporting():
            raise NotImplementedError("fa.torch.flex_attention: torch.export cannot save score_mod and mask_mod")
        if not isinstance(score_mod, GraphModule):
            mask = _block_mask(lists, sizes, mask_mod)
            return _outside(query, key, value, score_mod, mask, options["enable_gqa"], scale)
        captured = list(of_score), list(of_mask)
        number = _number_of(_Functions(score_mod, mask_mod, captured))
        tensors, tensors_of_mask = ([value for value in values if isinstance(value, Tensor)] for values in captured)
        numbers = [value for values in captured for value in values if not isinstance(value, Tensor)]
        of_mask = lists + tensors_of_mask
        return forward(query, key, value, of_mask, tensors, numbers, sizes, number, scale, **options)


traced = _Traced()


_outside = torch.compiler.disable(computed)


def _block_mask(lists: list[Tensor], sizes: list[int], mask_mod: Callable[..., Tensor]) -> BlockMask | None:
    if not lists:
        return None
    every = dict.fromkeys((*_LISTS, "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"))
    every |= dict(zip(_LISTS, lists, strict=False))
    return BlockMask((sizes[0], sizes[1]), **every, BLOCK_SIZE=(sizes[2], sizes[3]), mask_mod=mask_mod)


def score_itself(score: Tensor, *_: Tensor) -> Tensor:
    return score


def every_pair(b: Tensor, *_: Tensor) -> Tensor:
    return b >= 0


def _called(query, key, value, of_mask, captured, numbers, sizes, graphs, scale, enable_gqa, known=None) -> Results:
    """Computes a call of the operators. `of_mask` has the BlockMask's lists, then the tensors that mask_mod
    captures.
    """
    if graphs not in _functions:
        raise RuntimeError("fa.torch.flex_attention: score_mod and mask_mod were compiled in another process")
    functions = _functions[graphs]
    count = len(of_mask) - sum(functions.are_tensors[1])
    score_mod, mask_mod = functions.bound([*captured, *of_mask[count:]], numbers)
    mask = _block_mask(of_mask[:count], sizes, mask_mod)
    with as_outermost():
        return computed(query, key, value, score_mod, mask, enable_gqa, scale, known)


def _fake(query, key, value, *_):
    check(query, key, value, lambda tensor: tensor.is_cpu)
    statistics = query.shape[:3]
    out = in_order(query.new_empty((*statistics, value.shape[3])), query)
    return out, *(query.new_empty(statistics, dtype=torch.float32) for _ in range(3))


def _refuse(*_):
    raise ValueError("invalid argument: query: is inside a transform of torch.func, such as vmap, want a plain call")


def _fake_backward(needs, d_out, d_lse, out, lse, max_scores, total, query, key, value, of_mask, captured, *_):
    inputs = zip((query, key, value, *captured), needs, strict=True)
    return [tensor.new_empty(tensor.shape) for tensor, need in inputs if need]


@operator(
    "flex_attention_backward(bool[] needs, Tensor? d_out, Tensor? d_lse, Tensor out, Tensor lse, Tensor max_scores, "
    f"Tensor total, {_SETTINGS}) -> Tensor[]",
    fake=_fake_backward,
    vmap=_refuse,
    derivative=autograd.none_of_lists,
)
def backward(needs, d_out, d_lse, out, lse, max_scores, total, query, key, value, of_mask, captured, *settings):
    """Returns gradients of the tensors among query, key, value and captured that need one. The graphs are read again,
    and autograd runs in this kernel.
    """
    with as_outermost(), torch.enable_grad():
        given = zip((query, key, value, *captured), needs, strict=True)
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in given]
        known = Results(out.detach(), lse, max_scores, total)
        results = _called(*leaves[:3], of_mask, leaves[3:], *settings, known=known)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = [None] * len(wanted)
        # A result without a gradient function depends on no tensor that needs a gradient, so it is left out.
        pairs = [(r, d) for r, d in zip(results, (d_out, d_lse), strict=False) if d is not None and r.requires_grad]
        if pairs:
            results_of, d_results = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(results_of, wanted, d_results, allow_unused=True)
    found = zip(wanted, gradients, strict=True)
    return [torch.zeros_like(w, memory_format=torch.contiguous_format) if g is None else g.contiguous() for w, g in found]


def _derivative(own: Any) -> Callable:
    """Returns the forward's kernel for autograd. autograd.reverse takes no lists of tensors."""

    def below(keyset, arguments):
        with below_autograd():
            return own.redispatch(keyset & after_autograd, *arguments)

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx, keyset, settings, query, key, value, of_mask, *captured):
            results = below(keyset, (query, key, value, of_mask, list(captured), *settings))
            ctx.save_for_backward(query, key, value, *results, *captured, *of_mask)
            ctx.settings, ctx.count = settings, len(captured)
            ctx.mark_non_differentiable(*results[2:])
            ctx.set_materialize_grads(False)
            return results

        @staticmethod
        def backward(ctx, d_out, d_lse, *_):
            query, key, value, *rest = ctx.saved_tensors
            results, captured, of_mask = rest[:4], rest[4 : 4 + ctx.count], rest[4 + ctx.count :]
            needs = [ctx.needs_input_grad[place] for place in (2, 3, 4, *range(6, 6 + ctx.count))]
            given = query, key, value, of_mask, captured, *ctx.settings
            found = iter(backward(needs, d_out, d_lse, *results, *given))
            of_tensors = [next(found) if need else None for need in needs]
            return None, None, *of_tensors[:3], None, *of_tensors[3:]

    def kernel(keyset, query, key, value, of_mask, captured, *settings):
        if torch.is_grad_enabled() and any_requires_grad(query, key, value, *captured):
            return Formula.apply(keyset, settings, query, key, value, of_mask, *captured)
        return below(keyset, (query, key, value, of_mask, captured, *settings))

    return kernel


@operator(
    f"flex_attention({_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)", fake=_fake, vmap=_refuse, derivative=_derivative
)
def forward(query, *arguments):
    """Returns out, lse, max_scores and the sums of weights."""
    with torch.no_grad():
        return tuple(_called(query, *arguments))
