"""Reads a traced score_mod as scale, soft cap, biases and conditions, in this order, as the engine computes them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .mask import Condition, Kept
from .trace import ATEN, INDICES, SCORE, Node, evaluate, expanded

_COPIES = (ATEN.alias, ATEN.clone, ATEN.detach, ATEN._to_copy)
_MOST = torch.finfo(torch.float32).max
_EXACT = (torch.int32, torch.int64, torch.float32, torch.float64)  # types that do not change a distance


class Unserved(Exception):
    """Raised for a score_mod that `Form` cannot express. The text is the part that does not fit."""


class Form(NamedTuple):
    """score_mod(s) is softcap * tanh(s * scale / softcap) + biases where all conditions hold, else -inf."""

    scale: float = 1.0
    softcap: float = 0.0
    biases: tuple[tuple[Node, int], ...] = ()
    """Nodes that do not depend on the score, each with its sign."""
    conditions: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        parts = [f"scale {self.scale:g}"] if self.scale != 1.0 else []
        parts += [f"soft cap {self.softcap:g}"] if self.softcap else []
        parts += [f"{'+' if sign > 0 else '-'} {node}" for node, sign in self.biases]
        parts += [f"where {'not ' * condition.negated}{condition.node}" for condition in self.conditions]
        return ", ".join(parts) or "the score itself"


def form_of(node: Node) -> Form:
    """Returns the form of a score_mod's result. Raises Unserved if it has none."""
    conditions, biases = [], []
    while (found := _condition(node)) is not None:
        node, condition = found
        conditions.append(condition)
    while (added := _bias(node)) is not None:
        node, bias = added
        biases.append(bias)
    softcap, factor = 0.0, _product(node)
    if factor is not None and factor[0].packet in _TANH:
        inner, times = factor
        scaled = _product(inner.arguments[0])
        if scaled is None or times == 0.0:
            raise Unserved(str(node))
        node, softcap, scale = scaled[0], abs(times), scaled[1] * times
    elif factor is not None:
        node, scale = factor
    if factor is None or node.name != SCORE or max(abs(scale), softcap) > _MOST:
        raise Unserved(str(node))
    return Form(scale, softcap, tuple(biases), tuple(conditions))


_TANH = (ATEN.tanh, "approx::tanh")


def _is_score(value: object) -> bool:
    return isinstance(value, Node) and SCORE in value.depends


def _number(value: object) -> float | None:
    if isinstance(value, Node):
        return value.number()
    return value if isinstance(value, (int, float)) else None


def _condition(node: Node) -> tuple[Node, Condition] | None:
    """Splits where(condition, score, -inf)."""
    if node.packet is ATEN.where and len(node.arguments) == 3:
        condition, kept, other = node.arguments
        negated = _number(kept) == -math.inf
        score, dropped = (other, kept) if negated else (kept, other)
    elif node.packet is ATEN.masked_fill:
        (score, condition, dropped), negated = node.arguments, True
    else:
        return None
    if not _is_score(score) or _is_score(condition) or _number(dropped) != -math.inf or score.dtype != node.dtype:
        return None
    return score, Condition(condition, negated)


def _bias(node: Node) -> tuple[Node, tuple[Node, int]] | None:
    """Splits score + bias and score - bias."""
    if node.packet not in (ATEN.add, ATEN.sub) or node.keywords:
        return None
    left, right = node.arguments[:2]
    if node.packet is ATEN.add and _is_score(right):
        left, right = right, left
    if isinstance(right, (int, float)) and _is_score(left):
        number = torch.tensor(right, dtype=node.dtype)
        right = Node(number, tensor=number)
    if not _is_score(left) or _is_score(right) or not isinstance(right, Node) or left.dtype != node.dtype:
        return None
    return left, (right, 1 if node.packet is ATEN.add else -1)


def _product(node: Node) -> tuple[Node, float] | None:
    """Splits a score that is multiplied by numbers into the score and the product of these numbers."""
    factor = 1.0
    while node.name != SCORE and node.packet not in _TANH and str(node.function) not in ("approx.tanh.default",):
        if not node.arguments:
            return None
        left, right = node.arguments[0], (*node.arguments, None)[1]
        if node.packet is ATEN.neg:
            number = -1.0
        elif node.packet is ATEN.mul:
            left, right = (right, left) if _is_score(right) else (left, right)
            number = _number(right)
        elif node.packet is ATEN.div and not node.keywords:
            divisor = _number(right)
            number = 1.0 / divisor if divisor else None
        else:
            number = None
        if number is None or not math.isfinite(number) or not _is_score(left) or left.dtype != node.dtype:
            return None
        node, factor = left, factor * number
    return node, factor


class Bias(NamedTuple):
    """A bias for the engine: slopes, which it multiplies by -|q_idx - kv_idx|, or a tensor [B|1, N|1, L|1, S]."""

    tensor: Tensor
    is_slopes: bool
    words: str


def bias_of(form: Form, kept: Kept) -> Bias | None:
    """Returns the bias of a form without evaluating it for every pair, or None if that cannot be done. Autograd records
    how the bias is computed from captured tensors.
    """
    if len(form.biases) == 1:
        node, sign = form.biases[0]
        found = _slopes(node, sign, kept) or _view(node, sign, kept)
        if found is not None:
            return found
    if not any("q_idx" in node.depends for node, _ in form.biases):
        return Bias(_of_keys(_sum_of(form, kept.sizes.indices()), kept), False, "a bias per key")
    return None


def _of_keys(values: Tensor, kept: Kept) -> Tensor:
    if values.stride(-1) == 1 and values.shape[-1] == kept.sizes.keys:
        return values
    return expanded(values, torch.Size((*values.shape[:3], kept.sizes.keys))).contiguous()


def _sum_of(form: Form, indices: tuple[Tensor, ...], others: dict[int, Tensor] = {}) -> Tensor:
    parts = [sign * evaluate(node, *indices, others=others).float() for node, sign in form.biases]
    shape = torch.broadcast_shapes(*(part.shape for part in parts))
    return sum(expanded(part, shape) for part in parts)


def _slopes(node: Node, sign: int, kept: Kept) -> Bias | None:
    """Finds slopes * |q_idx - kv_idx|, and slopes * (q_idx - kv_idx) where all kept pairs lie on one side."""
    slopes: list[Node] = []
    distance = None
    factor: float = sign
    rest: list[Node | int | float] = [node]
    while rest:
        part = rest.pop()
        if not isinstance(part, Node):
            factor *= part
        elif not part.depends & {"q_idx", "kv_idx"}:
            slopes.append(part)
        elif part.packet is ATEN.mul:
            rest += part.arguments
        elif part.packet is ATEN.neg:
            factor, rest = -factor, [*rest, part.arguments[0]]
        elif distance is None:
            distance = part
        else:
            return None
    while distance is not None and distance.packet in _COPIES and distance.dtype in _EXACT:
        distance = distance.arguments[0]
    if distance is None or not distance.arguments:
        return None
    absolute = distance.packet is ATEN.abs
    distance = distance.arguments[0] if absolute else distance
    names = [getattr(value, "name", "") for value in distance.arguments]
    if distance.packet is not ATEN.sub or distance.keywords or sorted(names) != ["kv_idx", "q_idx"]:
        return None
    if not absolute:
        if kept.intervals is None:
            return None
        begin, end = kept.intervals
        place = torch.arange(kept.sizes.rows)
        if bool(((end <= place + 1) | (begin >= end)).all()):
            factor = factor if names[0] == "q_idx" else -factor
        elif bool(((begin >= place) | (begin >= end)).all()):
            factor = -factor if names[0] == "q_idx" else factor
        else:
            return None
    values = torch.full((1, kept.sizes.heads, 1, 1), -factor, dtype=torch.float32)
    for part in slopes:
        factors = values, evaluate(part, *kept.sizes.indices()).float()
        shape = torch.broadcast_shapes(*(t.shape for t in factors))
        values = expanded(factors[0], shape) * expanded(factors[1], shape)
    values = values[:, :, 0, 0]
    return Bias(values[0] if values.shape[0] == 1 else values, True, "slopes")


def _view(node: Node, sign: int, kept: Kept) -> Bias | None:
    """Finds a captured tensor that is indexed by some of b, h, q_idx and kv_idx."""
    if node.packet is not ATEN.index or node.arguments[0].tensor is None:
        return None
    tensor, places = node.arguments[0].tensor, node.arguments[1]
    names = [getattr(place, "name", "") for place in places]
    if len(names) != tensor.dim() or len(set(names)) != len(names):
        return None
    if not set(names) <= set(INDICES) or "kv_idx" not in names:
        return None
    sizes = dict(zip(INDICES, kept.sizes, strict=True))
    if any(size < sizes[name] for size, name in zip(tensor.shape, names, strict=True)):
        return None
    tensor = tensor[tuple(slice(sizes[name]) for name in names)]
    order = [names.index(name) for name in INDICES if name in names]
    tensor = tensor.permute(order)
    for axis, name in enumerate(INDICES):
        if name not in names:
            tensor = tensor.unsqueeze(axis)
    tensor = tensor if tensor.dtype == torch.float32 else tensor.float()
    return Bias(_of_keys(tensor if sign > 0 else -tensor, kept), False, f"a tensor {list(tensor.shape)}")


def values_of(form: Form, kept: Kept, begin: int, end: int, others: dict[int, Tensor]) -> Tensor:
    """Returns the sum of the biases for some query rows, float32 [B|1, N|1, rows, S]."""
    b, h, rows, keys = kept.sizes.indices()
    values = _sum_of(form, (b, h, rows[begin:end], keys), others)
    return expanded(values, torch.Size((*values.shape[:2], end - begin, len(keys)))).contiguous()
