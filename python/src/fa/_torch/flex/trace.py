"""Traces a mask_mod or score_mod, which are functions of scalars, to a graph of operators, and evaluates such graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..._pytorch import DispatchMode, version_of, written_arguments

ATEN = torch.ops.aten
INDICES = ("b", "h", "q_idx", "kv_idx")
SCORE = "score"
DEPTH = 100  # the most operators in a chain that recursive functions follow
_SAME = (ATEN.alias.default, ATEN.clone.default, ATEN.lift_fresh.default)  # the result is the argument


class Node:
    """A tensor of a traced function: an input (score, b, h, q_idx or kv_idx), a captured tensor, or an operator's
    result, whose arguments are nodes and constants."""

    def __init__(self, like: Tensor, name: str = "", tensor: Tensor | None = None, call: tuple | None = None) -> None:
        self.dtype, self.dim = like.dtype, like.dim()
        self.name, self.tensor, self.is_local = name, tensor, False
        self.function, self.arguments, self.keywords = call or (None, (), {})
        self.packet = getattr(self.function, "overloadpacket", None)
        self.inputs: list[Node] = []
        every = self.arguments, self.keywords
        _mapped(lambda given: self.inputs.append(given) if isinstance(given, Node) else None, every)
        self.depth: int = 1 + max((node.depth for node in self.inputs), default=0)
        self.depends: frozenset[str] = frozenset([name] if name else []).union(*(node.depends for node in self.inputs))

    def __iter__(self) -> Iterator[Node]:
        """Yields every node that this node needs, each once and after its arguments. This node comes last."""
        seen: set[int] = set()
        waiting = [(self, False)]
        while waiting:
            node, is_ready = waiting.pop()
            if is_ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                waiting += [(node, True), *((below, False) for below in reversed(node.inputs))]

    def captured(self) -> list[Tensor]:
        """Returns the captured tensors, and those that the function made of numbers."""
        return [node.tensor for node in self if node.tensor is not None]

    def number(self) -> float | None:
        """Returns the value of a node without inputs and captured tensors that change, and None for other nodes."""
        if self.depends or self.dim or any(node.tensor is not None and node.tensor.dim() for node in self):
            return None
        return None if any(t.requires_grad for t in self.captured()) else evaluate(self).item()

    def key(self) -> tuple:
        """Returns a value that changes if the function changes, or if a captured tensor is replaced or written to."""
        places = {id(node): place for place, node in enumerate(self)}

        def told(value: Any) -> Any:
            return f"node {places[id(value)]}" if isinstance(value, Node) else repr(value)

        def of(node: Node) -> tuple:
            tensor = node.tensor
            if tensor is not None and node.is_local:
                return tensor.dtype, tensor.shape, str(tensor.tolist())
            if tensor is not None:
                return (id(tensor), tensor.item()) if tensor.numel() == 1 else state_of(tensor)
            return node.name, node.function, str(_mapped(told, (node.arguments, node.keywords)))

        return tuple(map(of, self))

    def __str__(self) -> str:
        if self.name or self.tensor is not None:
            return self.name or (f"a tensor {list(self.tensor.shape)}" if self.tensor.dim() else "a number")
        if self.depth > DEPTH:
            return f"{self.packet.__name__}(...)"
        given = _mapped(str, (*self.arguments, *self.keywords.values())) if self.depends else ["..."]
        return f"{self.packet.__name__}({', '.join(map(str, given))})".replace("'", "")


def state_of(tensor: Tensor) -> tuple:
    """Returns a value that is equal for the same tensor without a write in between. Tensors of inference mode do not
    count writes, so the value is never equal for them."""
    return (object(),) if tensor.is_inference() else (id(tensor), version_of(tensor))


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns the arguments of an operator with `function` applied to each of them, and to the elements of lists."""
    if isinstance(value, (list, tuple)):
        return [_mapped(function, item) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(function, item) for name, item in value.items()}
    return function(value)


class Untraceable(Exception):
    """Raised for a function that no graph describes. The text is the reason."""

    def __init__(self, reason: str, captured: list[Tensor]) -> None:
        super().__init__(reason)
        self.captured = captured


class Unchanged:
    """Remembers captured tensors, which the backward reads again. Writes to tensors of inference mode go unnoticed."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.states = [(tensor, version_of(tensor)) for tensor in tensors if not tensor.is_inference()]

    def check(self) -> None:
        for tensor, version in self.states:
            if version_of(tensor) != version:
                raise RuntimeError("fa.torch.flex_attention: score_mod or mask_mod has captured a tensor "
                                   f"{list(tensor.shape)} that was written to between forward and backward")


class Indexing(TorchFunctionMode):
    """Records the indexing of a tensor by scalar tensors as an operator. PyTorch would convert scalar indices to
    numbers.
    """

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is Tensor.__getitem__:
            tensor, places = arguments
            places = places if isinstance(places, tuple) else (places,)
            if all(type(place) is int or isinstance(place, Tensor) for place in places):
                return ATEN.index(tensor, [torch.as_tensor(place) for place in places])
        return function(*arguments, **(keywords or {}))


class _Recorder(DispatchMode):
    def __init__(self, function: Callable, inputs: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.function, self.reason = function, ""
        self.nodes = {id(tensor): Node(tensor, name) for name, tensor in inputs.items()}
        self.alive: list[Any] = list(inputs.values())
        self.outside: dict[int, Tensor] = {}  # captured tensors by the address of their memory

    def node(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self.nodes:
            self.nodes[id(value)] = Node(value, tensor=value)
            self.alive.append(value)
            self.outside[value.untyped_storage().data_ptr()] = value
        return self.nodes[id(value)]

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        nodes, named = _mapped(self.node, (arguments, keywords or {}))
        if function is ATEN.lift_fresh.default:  # torch.tensor calls it
            self.outside.pop(arguments[0].untyped_storage().data_ptr(), None)
            nodes[0].tensor, nodes[0].is_local = arguments[0].clone(), True  # the function may write into it
        recorded = function
        for place, (argument, written) in enumerate(written_arguments(function)):
            value = arguments[place] if place < len(arguments) else (keywords or {}).get(argument.name)
            if written and isinstance(value, Tensor):
                recorded = self._out_of_place(function, value, place)
        result = function(*arguments, **(keywords or {}))
        if function in _SAME:
            self.nodes[id(result)] = nodes[0]
        elif isinstance(result, Tensor):
            self.nodes[id(result)] = Node(result, call=(recorded, nodes, named))
        elif not isinstance(result, (int, float, bool)) or nodes[0].depends:
            self.reason = self.reason or f"{function.name()} is no operator of one tensor"
        self.alive.append(result)
        return result

    def _out_of_place(self, function: Any, written: Tensor, place: int) -> Any:
        """Returns the operator that computes what `function` writes into its argument, a tensor of the trace."""
        memory = written.untyped_storage().data_ptr()
        if memory in self.outside:
            raise ValueError(f"{self.function[0]} changes {_name_of(self.outside[memory], self.function[1])}")
        views = [t for t in self.alive if isinstance(t, Tensor) and t.untyped_storage().data_ptr() == memory]
        name, _, overload = function.name().removeprefix("aten::").partition(".")
        packet = getattr(ATEN, name.removesuffix("_"), None) if name.endswith("_") and place == 0 else None
        own = getattr(packet, overload or "default", None)
        if own is None or any(view is not written for view in views):
            self.reason = self.reason or f"{function.name()} writes in place"
        return own


def _name_of(tensor: Tensor, function: Callable) -> str:
    """Returns the name by which a function refers to a tensor."""
    code = getattr(function, "__code__", None)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False) if code else ()
    held = {name: cell.cell_contents for name, cell in cells}
    if code:
        held |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    memory = tensor.untyped_storage().data_ptr()
    names = [n for n, t in held.items() if isinstance(t, Tensor) and t.untyped_storage().data_ptr() == memory]
    return names[0] if names else "a captured tensor"


def trace(name: str, function: Callable, dtype: torch.dtype | None = None) -> Node:
    """Returns the node of the function's result. `dtype` is the score's type, or None for a function of indices alone.

    Raises:
        Untraceable: the function depends on the value of an input, or writes in place in a way that is not understood.
        ValueError: it writes into a captured tensor. `name` is the argument's name.
    """
    inputs = {} if dtype is None else {SCORE: torch.zeros((), dtype=dtype)}
    inputs |= {index: torch.zeros((), dtype=torch.int64) for index in INDICES}
    recorder = _Recorder((name, function), inputs)
    with torch.no_grad(), Indexing(), recorder:
        result = function(*inputs.values())
    if not isinstance(result, Tensor):
        raise ValueError(f"invalid argument: {name}: want a function that returns a tensor, got {type(result).__name__}")
    node = recorder.node(result)
    if recorder.reason:
        captured = [node.tensor for node in recorder.nodes.values() if node.tensor is not None]
        raise Untraceable(recorder.reason, captured)
    if node.dim:
        raise ValueError(f"invalid argument: {name}: want a function that returns a scalar, got {list(result.shape)}")
    return node


class _Expanded(torch.autograd.Function):
    """tensor.expand(shape), whose gradient has the same bits for any number of threads."""

    @staticmethod
    def forward(ctx, tensor, shape):
        ctx.shape = tensor.shape
        return tensor.expand(shape)

    @staticmethod
    def backward(ctx, gradient):
        return reduced(gradient, ctx.shape), None


def expanded(tensor: Tensor, shape: torch.Size) -> Tensor:
    return tensor if tensor.shape == shape else _Expanded.apply(tensor, shape)


def reduced(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Returns the sums over the dimensions that have the size 1 in `shape`. Each step adds one half of a dimension to
    its other half, because the order of PyTorch's own sums depends on the number of threads. 16-bit numbers are summed
    in float32 and rounded once.
    """
    dtype, tensor = tensor.dtype, widened(tensor)
    for axis, size in enumerate(shape):
        while size == 1 < tensor.shape[axis]:
            half = tensor.shape[axis] // 2
            first, second, rest = tensor.split((half, half, tensor.shape[axis] % 2), axis)
            tensor = torch.cat((first + second, rest), axis)
    return tensor.to(dtype)


def widened(tensor: Tensor) -> Tensor:
    """Returns a tensor of a 16-bit type as float32, in which its gradients are summed."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


class _Index(torch.autograd.Function):
    """tensor[places], whose gradient has the same bits for any number of threads. The gradient is summed in float64,
    because PyTorch then adds in the order of the elements.
    """

    @staticmethod
    def forward(ctx, tensor, *places):
        ctx.save_for_backward(*places)
        ctx.like = tensor.shape, tensor.dtype
        return ATEN.index(tensor, list(places))

    @staticmethod
    def backward(ctx, gradient):
        (shape, dtype), places = ctx.like, ctx.saved_tensors
        sums = torch.zeros(shape, dtype=torch.float64).index_put_(places, gradient.double(), accumulate=True)
        return sums.to(dtype), *(None for _ in places)


# Operators that compute each element by itself, though PyTorch does not say so, and operators that fill a scalar.
_POINTWISE = {ATEN.floor_divide, ATEN._to_copy, ATEN.detach, ATEN.lift_fresh_copy}
_POINTWISE |= {ATEN.scalar_tensor, ATEN.new_ones, ATEN.new_zeros, ATEN.new_full}


def _broadcasts(node: Node) -> bool:
    """Returns whether a node may be computed for broadcast tensors of indices: it is a scalar made of scalars, or an
    element of a captured tensor."""
    if node.packet is ATEN.index:
        tensor, places = node.arguments
        return tensor.tensor is not None and None not in places and len(places) == tensor.dim
    if any(below.dim for below in node.inputs):
        return False
    return node.function is None or node.packet in _POINTWISE or torch.Tag.pointwise in node.function.tags


def evaluate(node: Node, *indices: Tensor, score: Tensor | None = None, others: Mapping[int, Tensor] = {}) -> Tensor:
    """Returns the values of a node, [B, H, L, S], for vectors of indices b, h, q_idx and kv_idx. A dimension on which
    the node does not depend has the size 1.

    Args:
        score: [B, H, L, S]. others: {id of a captured tensor: the tensor that replaces it}.
    """
    steps = list(node)
    broadcast = all(map(_broadcasts, steps))

    def replay(*inputs):
        given = dict(zip((*INDICES, SCORE), inputs, strict=True))
        made: dict[Node, Tensor] = {}
        for step in steps:
            if step.function is None:
                value = given[step.name] if step.name else others.get(id(step.tensor), step.tensor)
            else:
                written = step.arguments, step.keywords
                values = {below: made[below] for below in step.inputs}
                if broadcast and any(value.requires_grad for value in values.values()) and step.packet is not ATEN.index:
                    shape = torch.broadcast_shapes(*(value.shape for value in values.values()))
                    # An operator with a float32 result converts its inputs. They are converted here, so that gradients
                    # are summed in float32 and rounded last.
                    wide = widened if step.dtype == torch.float32 else lambda value: value
                    values = {below: expanded(wide(value), shape) for below, value in values.items()}
                arguments, keywords = _mapped(lambda x: values[x] if isinstance(x, Node) else x, written)
                if broadcast and step.packet is ATEN.index:
                    value = _Index.apply(arguments[0], *arguments[1])
                else:
                    value = step.function(*arguments, **keywords)
            # In PyTorch's choice of types, a scalar counts less than a tensor with dimensions. So it gets four
            # dimensions.
            made[step] = value.view(1, 1, 1, 1) if broadcast and value.dim() == 0 else value
        return made[node]

    if broadcast:
        shapes = [[-1 if axis == place else 1 for axis in range(4)] for place in range(4)]
        return replay(*(index.view(shape) for index, shape in zip(indices or [ZERO] * 4, shapes, strict=True)), score)
    used = [score is not None or name in node.depends for name in INDICES]
    return over_indices(replay, indices or (ZERO,) * 4, score, used)


ZERO = torch.zeros(1, dtype=torch.int64)


def over_indices(function: Callable, indices: tuple[Tensor, ...], score: Tensor | None, used: list[bool]) -> Tensor:
    """Maps function(b, h, q_idx, kv_idx, score) over the dimensions that are `used`, the last one innermost. The other
    dimensions of the result have the size 1."""
    for place in reversed(range(len(INDICES))):
        if used[place]:
            axes = [None] * len(INDICES)
            axes[place] = 0
            function = torch.vmap(function, in_dims=(*axes, None if score is None else 0))
    inputs = [index if use else ZERO[0] for index, use in zip(indices, used, strict=True)]
    result = function(*inputs, ZERO if score is None else score)
    for place, use in enumerate(used):
        result = result if use else result.unsqueeze(place)
    return result
