"""PyTorch's operators of this package. One registration gives an operator its kernel, the shapes of its results, its
rule under torch.vmap and its derivative."""

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
    """Returns the schema of the operator's arguments that are the members of the tuple `call`."""
    return ", ".join(f"{_TYPES[kind]} {name}" for name, kind in typing.get_type_hints(call).items())


@functools.cache
def tensors_of(call: type) -> int:
    """Returns the number of tensors with which the tuple `call` begins."""
    kinds = list(typing.get_type_hints(call).values())
    return next(i for i, kind in enumerate(kinds) if kind not in (Tensor, Optional[Tensor]))


def operator(
    schema: str, *, fake: Callable, vmap: Rule = one_by_one, derivative: Derivative | None = None
) -> Callable[[Callable], Any]:
    """Defines fa::NAME, and makes the decorated function its CPU kernel. (torch.library.custom_op would import
    torch._dynamo in the first call, which takes a second.)

    Args:
        fake: makes results without contents from the operator's arguments.
        vmap: the rule that computes all samples: rule(operator, info, in_dims, *arguments).
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
    """Returns the operator's results. Where nothing watches or records, its kernel runs without PyTorch's dispatcher.
    The dispatcher costs several times what a tiny call computes. `tensors` are the tensors among the arguments."""
    if possible(*tensors) and not recorded(*tensors):
        return _KERNELS[operator](*arguments)
    return operator(*arguments)


def without_contents(like: Tensor, *sources: Tensor | None) -> tuple[Tensor, ...]:
    """Allocates gradients of the sources. A gradient without a source has no elements."""
    return tuple(like.new_empty(0) if source is None else source.new_empty(source.shape) for source in sources)


def _counting_writes(operator: Any, kernel: Callable) -> Callable:
    """Returns the kernel, and for an operator that writes arguments in place a kernel that also counts these writes.
    By the count, autograd's backward finds that a tensor which it needs was overwritten."""
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
    """Raises RuntimeError for a tensor that all samples would write, as PyTorch's own operators do under vmap."""
    for (argument, written), dim, given in zip(written_arguments(operator), in_dims, arguments, strict=True):
        if written and dim is None and given is not None:
            raise RuntimeError(f"vmap: {operator.name()} writes {argument.name} in place, which all samples share")
