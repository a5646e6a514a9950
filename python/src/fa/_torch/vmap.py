"""Rules of operators for torch.vmap. Some compute the samples one after another. Others merge the vmapped dimension
into another dimension, so that one call computes all samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._pytorch import returns_nothing

Rule = Callable[..., tuple]  # (operator, info, in_dims, *arguments) -> (results, vmapped dimension per result)


class Fold(NamedTuple):
    """Merges the vmapped dimension into another axis, on which the samples follow one another."""

    size: int

    def stacked(self, tensor: Tensor, dim: int | None, axis: int) -> Tensor:
        """Returns the tensor with the vmapped dimension moved to `axis`. A tensor without a vmapped dimension is
        repeated for all samples.
        """
        if dim is not None:
            return tensor.movedim(dim, axis)
        return tensor.unsqueeze(axis).expand(*tensor.shape[:axis], self.size, *tensor.shape[axis:])

    def fold(self, tensor: Tensor | None, dim: int | None, axis: int) -> Tensor | None:
        return None if tensor is None else self.stacked(tensor, dim, axis).flatten(axis, axis + 1)

    def unfold(self, tensor: Tensor, axis: int) -> Tensor:
        return tensor.unflatten(axis, (self.size, tensor.shape[axis] // self.size))


def one_by_one(operator: Any, info: Any, in_dims: tuple, *arguments: Any) -> tuple:
    """Computes the samples one after another. The results have the vmapped dimension first."""
    results = []
    for sample in range(info.batch_size):
        result = operator(*(_sample(a, dim, sample) for a, dim in zip(arguments, in_dims, strict=True)))
        results.append(result if isinstance(result, tuple) else (result,))
    if returns_nothing(operator):
        return None, None
    stacked = tuple(torch.stack(same) for same in zip(*results, strict=True))
    return (stacked, (0,) * len(stacked)) if isinstance(result, tuple) else (stacked[0], 0)


def _sample(argument: Any, dim: Any, sample: int) -> Any:
    """Returns the part of an argument that belongs to a sample: of a tensor, or of each tensor in a list."""
    if isinstance(argument, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_sample(a, d, sample) for a, d in zip(argument, dim, strict=True)]
    return argument.select(dim, sample) if isinstance(dim, int) else argument


def of_no_samples(operator: Any, in_dims: tuple, arguments: tuple) -> tuple:
    """Returns results for 0 samples, with the shapes of one sample's results. In autograd's graph the results depend on
    all floating-point arguments, as the results for one or more samples do.
    """
    pairs = tuple(zip(arguments, in_dims, strict=True))
    results = operator(*(_without_contents(a, dim) for a, dim in pairs))
    if returns_nothing(operator):
        return None, None
    nothing = sum(a.sum() * 0 for a in arguments if isinstance(a, Tensor) and a.is_floating_point())

    def empty(sample: Tensor) -> Tensor:
        made = torch.zeros((0, *sample.shape), dtype=sample.dtype, device="cpu")
        return made + nothing.to(made.dtype) if made.is_floating_point() else made

    if isinstance(results, Tensor):
        return empty(results), 0
    return tuple(empty(result) for result in results), (0,) * len(results)


def _without_contents(tensor: Any, dim: Any) -> Any:
    """Returns a tensor with the shape and type of one sample, but no contents. Returns any other argument unchanged."""
    if isinstance(tensor, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_without_contents(t, d) for t, d in zip(tensor, dim, strict=True)]
    if not isinstance(tensor, Tensor):
        return tensor
    shape = [size for axis, size in enumerate(tensor.shape) if axis != dim]
    return torch.empty(shape, dtype=tensor.dtype, device="meta")


def by_batch(layout_at: int, unless: tuple[int, ...] = ()) -> Rule:
    """Returns the rule of an operator whose tensors have the batch first: one call computes all samples. In layouts
    other than BSND, and if an argument with a number in `unless` is given, samples are computed one after another."""

    def rule(operator, info, in_dims, *arguments):
        if arguments[layout_at] != "BSND" or any(arguments[place] is not None for place in unless):
            return one_by_one(operator, info, in_dims, *arguments)
        fold = Fold(info.batch_size)
        folded = (
            fold.fold(a, dim, 0) if isinstance(a, Tensor) else a for a, dim in zip(arguments, in_dims, strict=True)
        )
        results = operator(*folded)
        # a gradient without elements has no dimension for the samples
        given = tuple(0 if t.dim() > 1 else None for t in results)
        return tuple(t if axis is None else fold.unfold(t, axis) for t, axis in zip(results, given, strict=True)), given

    return rule
