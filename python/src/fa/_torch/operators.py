"""Registers fa's operators with PyTorch: kernels, shapes of results, rules for torch.vmap and derivatives."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from .._pytorch import written_arguments
from .autograd import Derivative
from .engine import possible, recorded
from .vmap import Rule, of_no_samples, one_by_one

LIBRARY = torch.library.Library("fa", "FRAGMENT")
_KERNELS: dict[Any, Callable] = {}

_TYPES = {
    Tensor: "Tensor",
    Optional[Tensor]: "Tensor?",
    Sequence[Tensor]: "Tensor[]",
    int: "SymInt",
    list[int]: "SymInt[]",
    float: "float",
    Optional[float]: "float?",
    bool: "bool",
    str: "str",
}


def schema_of(call: type) -> str:
    """Returns the part of an operator's schema that lists the members of the tuple class `call` as arguments."""
    return ", ".join(f"{_TYPES[kind]} {name}" for name, kind in typing.get_type_hints(call).items())


@functools.cache
def tensors_of(call: type) -> int:
    """Returns how many of the first members of the tuple class `call` are tensors."""
    kinds = list(typing.get_type_hints(call).values())
    return next(i for i, kind in enumerate(kinds) if kind not in (Tensor, Optional[Tensor]))


def operator(
    schema: str, *, fake: Callable, vmap: Rule = one_by_one, derivative: Derivative | None = None
) -> Callable[[Callable], Any]:
    """Defines the operator fa::NAME of this schema, with the decorated function as its CPU kernel.
    (torch.library.custom_op would import torch._dynamo in the first call, which takes a second.)

    Args:
        fake: returns results that have shapes and types but no contents, from the operator's arguments.
        vmap: the function that computes all samples under torch.vmap: rule(operator, info, in_dims, *arguments).
        derivative: None means that the inputs never require a gradient.
    """
    name = schema[: schema.index("(")]

    def register(kernel: Callable) -> Any:
        LIBRARY.define(schema)
        made = getattr(torch.ops.fa, name).default
        kernel = _counting_writes(made, kernel)
        LIBRARY.impl(name, kernel, "CPU")

        def rule(info, in_dims, *arguments):
            _check_samples_are_written_apart(made, in_dims, arguments)
            if info.batch_size == 0:
                return of_no_samples(made, in_dims, arguments)
            return vmap(made, info, in_dims, *arguments)

        torch.library.register_fake(f"fa::{name}", fake, lib=LIBRARY)
        torch.library.register_vmap(f"fa::{name}", rule, lib=LIBRARY)
        if derivative is not None:
            LIBRARY.impl(name, derivative(made), "Autograd", with_keyset=True)
        _KERNELS[made] = kernel
        return made

    return register


def call(operator: Any, tensors: Sequence[Tensor | None], *arguments: Any) -> Any:
    """Returns the operator's results. `tensors` are the tensors among its arguments. If nothing observes or records the
    call, the kernel runs without PyTorch's dispatcher, which would take longer than a tiny call."""
    if possible(*tensors) and not recorded(*tensors):
        return _KERNELS[operator](*arguments)
    return operator(*arguments)


def without_contents(like: Tensor, *sources: Tensor | None) -> tuple[Tensor, ...]:
    """Allocates a gradient for each source. The gradient of an absent source has no elements."""
    return tuple(like.new_empty(0) if source is None else source.new_empty(source.shape) for source in sources)


def _counting_writes(operator: Any, kernel: Callable) -> Callable:
    """Returns the kernel. If the operator writes arguments in place, the returned kernel also counts the writes. By
    these counts autograd finds tensors that were overwritten before their use in a backward."""
    places = [place for place, (_, written) in enumerate(written_arguments(operator)) if written]
    if not places:
        return kernel

    @functools.wraps(kernel)
    def counting(*arguments):
        results = kernel(*arguments)
        torch.autograd.graph.increment_version([t for t in map(arguments.__getitem__, places) if t is not None])
        return results

    return counting


def _check_samples_are_written_apart(operator: Any, in_dims: tuple, arguments: tuple) -> None:
    """Raises RuntimeError, as PyTorch's own operators do, if the operator writes into a tensor that all samples
    share."""
    for (argument, written), dim, given in zip(written_arguments(operator), in_dims, arguments, strict=True):
        if written and dim is None and given is not None:
            raise RuntimeError(f"vmap: {operator.name()} writes {argument.name} in place, which all samples share")
