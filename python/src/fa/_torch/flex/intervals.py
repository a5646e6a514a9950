"""Finds the interval of keys that each row keeps, for masks that are combinations of comparisons.

A comparison is recognised if its two sides can be separated: a function of the row on one side, a function of the key
on the other, which never decreases or never increases from key to key. A binary search then finds the interval. Causal
masks, windows, prefixes, lengths, chunks and documents with sorted names have this form. The function of the key is
evaluated for every key, and the function of the row for every row. No pair is evaluated.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import torch
from torch import Tensor

from .trace import ATEN, DEPTH, Node, evaluate

_COMPARISONS = {
    ATEN.lt: operator.lt,
    ATEN.le: operator.le,
    ATEN.gt: operator.gt,
    ATEN.ge: operator.ge,
    ATEN.eq: operator.eq,
}
_OPPOSITE = {operator.lt: operator.ge, operator.le: operator.gt, operator.gt: operator.le, operator.ge: operator.lt}
_MIRRORED = {operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt, operator.ge: operator.le}
_AND = (ATEN.bitwise_and, ATEN.logical_and)
_OR = (ATEN.bitwise_or, ATEN.logical_or)
_NOT = (ATEN.bitwise_not, ATEN.logical_not)


_FAR = 1 << 61  # no integer in a sum is greater than this, so that sums do not overflow


class Unlisted(Exception):
    """Raised for a mask that is not known to keep one interval of keys per row. The text is the reason."""


class Intervals(NamedTuple):
    """A row keeps the keys begin <= j < end. Both are int64 [B|1, H|1, L]."""

    begin: Tensor
    end: Tensor

    def kept(self, keys: Tensor) -> Tensor:
        """Returns bool [B|1, H|1, L, S] for a vector of keys."""
        return (self.begin[..., None] <= keys) & (keys < self.end[..., None])

    def both(self, other: Intervals) -> Intervals:
        return Intervals(torch.maximum(self.begin, other.begin), torch.minimum(self.end, other.end))

    def either(self, other: Intervals) -> Intervals:
        """Returns the union. Raises Unlisted if a row's intervals have a gap between them."""
        empty, others_empty = self.begin >= self.end, other.begin >= other.end
        apart = (self.begin > other.end) | (other.begin > self.end)
        if bool((apart & ~empty & ~others_empty).any()):
            raise Unlisted("a row keeps two intervals of keys")

        def of(least, mine, others):
            return torch.where(empty, others, torch.where(others_empty, mine, least(mine, others)))

        return Intervals(
            of(torch.minimum, self.begin, other.begin),
            of(torch.maximum, self.end, other.end),
        )

    def rows(self) -> Tensor | None:
        """Returns int32 [B|1, L, 2] for the engine. Returns None if heads differ, or if the rows are not in
        the order that Mask::Rows wants."""
        if self.begin.shape[1] != 1:
            return None
        begin, end = self.begin[:, 0], self.end[:, 0]
        kept = begin < end
        for ends in (begin, end):
            most = torch.where(kept, ends, 0).cummax(1).values
            if bool(((ends < most) & kept).any()):
                return None
        over = torch.where(kept, 0, most).cummax(1).values  # the greatest end of the rows above the last empty row
        if bool(((begin < over) & kept).any()):
            return None
        return torch.stack((begin, end), -1).to(torch.int32)


class Finder:
    """Finds the intervals of masks for vectors of indices b, h, q_idx and kv_idx."""

    def __init__(self, *indices: Tensor) -> None:
        self.indices, self.rows, self.keys = indices, len(indices[2]), len(indices[3])

    def find(self, node: Node, negated: bool = False) -> Intervals:
        """Returns the intervals that the bool node keeps, or those that it does not keep if `negated`."""
        if node.depth > DEPTH:
            raise Unlisted(f"{node} has more than {DEPTH} operators in a chain")
        return Intervals(*(t.expand(*t.shape[:2], self.rows) for t in self._find(node, negated)))

    def _find(self, node: Node, negated: bool) -> Intervals:
        kind = node.packet
        if "kv_idx" not in node.depends:
            kept = evaluate(node, *self.indices)[..., 0] ^ negated
            return Intervals(torch.zeros_like(kept, dtype=torch.int64), kept * self.keys)
        if kind in _NOT:
            return self._find(node.arguments[0], not negated)
        if kind in _AND + _OR:
            parts = node.arguments[:2]
            if any(not isinstance(part, Node) or part.dtype != torch.bool for part in parts):
                raise Unlisted(f"{node} combines integers")
            one, other = (self._find(part, negated) for part in parts)
            return one.both(other) if (kind in _AND) != negated else one.either(other)
        if kind in _COMPARISONS:
            return self._compared(node, negated)
        raise Unlisted(f"{node} is no comparison")

    def _compared(self, node: Node, negated: bool) -> Intervals:
        (left, right), compare = node.arguments[:2], _COMPARISONS[node.packet]
        if negated and compare is operator.eq:
            raise Unlisted(f"not {node} may keep two intervals")
        compare = _OPPOSITE[compare] if negated else compare
        if isinstance(right, Node) and right.packet is ATEN.abs:
            left, right, compare = right, left, _MIRRORED.get(compare, compare)
        if left.packet is ATEN.abs and compare in (operator.lt, operator.le):  # |x| <= c: x <= c and -x <= c
            inside = left.arguments[0]
            return self._ordered(inside, right, compare, 1).both(self._ordered(inside, right, compare, -1))
        return self._ordered(left, right, compare, 1)

    def _ordered(self, left: Node, right: Node | int | float, compare, sign: int) -> Intervals:
        """Returns the intervals of compare(sign * left, right)."""
        types = [torch.int64 if type(side) in (int, bool) else getattr(side, "dtype", None) for side in (left, right)]
        if types[0] != types[1] and any(kind is None or kind.is_floating_point for kind in types):
            raise Unlisted(f"{left} and {right} have different types")
        terms = [(*pair, sign) for pair in _terms(left)] + [(*pair, -1) for pair in _terms(right)]
        most, limit = _FAR // (2 * len(terms)), 0
        if type(right) is int:  # the sum on the left stays below _FAR, so this limit changes no comparison
            terms.pop()
            limit = max(-_FAR, min(right, _FAR))
        if any(type(term) is int and abs(term) > most for term, *_ in terms):
            raise Unlisted(f"{left} may overflow")
        rows, keys = torch.full((1, 1, 1), -limit), torch.zeros((1, 1, 1), dtype=torch.int64)
        for term, times, factor in terms:
            if isinstance(term, Node) and "kv_idx" in term.depends:
                keys = keys - factor * times * self._values(term, most)[..., 0, :]
            else:
                rows = rows + factor * times * (self._values(term, most)[..., 0] if isinstance(term, Node) else term)
        return _found(rows, keys.expand(*keys.shape[:2], self.keys), compare)

    def _values(self, term: Node, most: int) -> Tensor:
        values = evaluate(term, *self.indices)
        values = values.double() if values.is_floating_point() else values.to(torch.int64)
        if values.is_floating_point() and bool(values.isnan().any()):
            raise Unlisted(f"{term} is NaN")
        if not values.is_floating_point() and bool(((values < -most) | (values > most)).any()):
            raise Unlisted(f"{term} may overflow")
        return values


def _terms(value: Node | int) -> list[tuple[Node | int, int]]:
    """Returns (term, factor) for the terms of a sum. No term depends on both the row and the key."""
    if not isinstance(value, Node) or not {"q_idx", "kv_idx"} <= value.depends:
        return [(value, 1)]
    if value.dtype == torch.int64 and not value.keywords:
        if value.packet is ATEN.neg:
            return [(term, -times) for term, times in _terms(value.arguments[0])]
        if value.packet in (ATEN.add, ATEN.sub):
            left, right = value.arguments[:2]
            factor = 1 if value.packet is ATEN.add else -1
            return _terms(left) + [(term, factor * times) for term, times in _terms(right)]
    raise Unlisted(f"{value} mixes row and key")


def _found(rows: Tensor, keys: Tensor, compare) -> Intervals:
    """Returns the intervals of compare(rows [B|1, H|1, L|1], keys [B|1, H|1, S])."""
    steps = keys.diff(dim=-1)
    if bool((steps < 0).any()):
        if bool((steps > 0).any()):
            raise Unlisted("the mask's value per key goes up and down")
        rows, keys = -rows, -keys
        compare = _MIRRORED.get(compare, compare)
    leading = torch.broadcast_shapes(rows.shape[:2], keys.shape[:2])
    rows, keys = (t.expand(*leading, -1).contiguous() for t in (rows, keys))

    def place(right: bool) -> Tensor:
        return torch.searchsorted(keys, rows, right=right)

    zero, every = torch.zeros_like(rows, dtype=torch.int64), torch.full_like(rows, keys.shape[-1], dtype=torch.int64)
    if compare is operator.eq:
        return Intervals(place(False), place(True))
    if compare in (operator.gt, operator.ge):  # the row's value is greater
        return Intervals(zero, place(compare is operator.ge))
    return Intervals(place(compare is operator.lt), every)
