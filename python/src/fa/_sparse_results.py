"""Result arrays of the sparse operators: their allocation and the shapes of statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ._attention import NAMES, compute, empty_like_of, integers
from ._context import chosen_context, torch_of
from ._fa import Context


class Results:
    """The arrays of a call: first its inputs, then the results that the method `out` allocates."""

    def __init__(self, like: Any, **inputs: Any) -> None:
        self.arrays = inputs
        self._like = like
        self._empty: Callable[[Iterable[int], Any], Any] = empty_like_of(like)

    def out(self, name: str, shape: Iterable[int], dtype: Any = None) -> Any:
        self.arrays[name] = self._empty(shape, dtype)
        return self.arrays[name]

    def out_like(self, name: str, source: Any) -> Any:
        return None if source is None else self.out(name, source.shape, source.dtype)

    def run(
        self,
        call: Callable,
        options: Any,
        lengths_q: Iterable[int] | None,
        lengths_kv: Iterable[int] | None,
        context: Context | None,
        names: dict[str, str] = NAMES,
    ) -> None:
        lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
        compute(call, self.arrays, options, *lengths, chosen_context(context, self._like), names=names)


def integer_type(like: Any) -> Any:
    torch = torch_of(like)
    return "int32" if torch is None else torch.int32


def statistics_shape(q: Any) -> tuple[int, ...]:
    """Returns the shape of the statistics: [B, 1, S1, N]; TND [1, T, N]."""
    *batch, rows, heads, _ = q.shape if len(q.shape) >= 3 else (1, 1, 1)
    return (*batch, 1, rows, heads)


def row_statistics_shape(q: Any) -> tuple[int, ...]:
    """Returns the shape of statistics that have one number per token, for all heads: [B, 1, S1]; TND [1, T]."""
    return statistics_shape(q)[:-1]
