"""Decode attention of PyTorch tensors: a custom operator, and plain eager calls that bypass the dispatcher."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _context, _decode, _fa
from .._attention import integers
from .._errors import made, own_names
from .._fa import Mask, PairMask
from .._layout import decode_output_shape, statistics_shape
from .._prompt import output_dtype
from .._pytorch import unwatched
from . import autograd
from .engine import compute, is_plain, possible, recorded
from .lengths import as_tensor
from .operators import operator, schema_of

UNLIMITED = 2**63 - 1


class DecodeCall(NamedTuple):
    """All arguments of the operator except query, keys and values, in the operator's order."""

    lengths_q: Optional[Tensor] = None  # int32 or int64 [B] or [1]
    lengths_kv: Optional[Tensor] = None
    query_rope: Optional[Tensor] = None
    block_table: Optional[Tensor] = None
    k_scale: Optional[Tensor] = None
    v_scale: Optional[Tensor] = None
    k_offset: Optional[Tensor] = None
    v_offset: Optional[Tensor] = None
    antiquant_scale: Optional[Tensor] = None
    antiquant_offset: Optional[Tensor] = None
    deq_scale1: Optional[Tensor] = None
    quant_scale1: Optional[Tensor] = None
    deq_scale2: Optional[Tensor] = None
    pse: Optional[Tensor] = None
    dense_mask: Optional[Tensor] = None
    sink: Optional[Tensor] = None
    quant_scale2: Optional[Tensor] = None
    quant_offset2: Optional[Tensor] = None
    layout: str = "BNSD"
    heads: int = 0
    scale: Optional[float] = None
    rule: str = "none"  # which method of Mask makes the mask
    pre: int = 0  # how many keys a band has before and after the row's place
    next: int = 0
    softcap: float = 0.0
    antiquant_per_token: bool = False
    return_lse: bool = False
    key_rope: Sequence[Tensor] = ()
    kv_dtype: str = ""  # "int4": keys and values are bytes that hold two numbers of 4 bits each

    def mask(self) -> Mask:
        make = getattr(Mask, self.rule)
        return make(self.pre, self.next) if self.rule.startswith("band") else make()

    def tensors(self) -> dict[str, Tensor | None]:
        """Returns the tensors that the library reads."""
        return dict(zip(_TENSORS, self[_TENSOR_SLICE], strict=True))


_TENSOR_SLICE = slice(2, DecodeCall._fields.index("layout"))
_TENSORS = DecodeCall._fields[_TENSOR_SLICE]
# The members that have the names of arguments of decode_attention.
_ALIKE = frozenset(DecodeCall._fields[2:])

# The members that are options. _NUMBERS are the options that have the same name in the library.
_OPTIONS = slice(DecodeCall._fields.index("layout"), DecodeCall._fields.index("return_lse"))
_NUMBERS = DecodeCall._fields[DecodeCall._fields.index("next") + 1 : _OPTIONS.stop]


def _shapes(query: Tensor, key: list[Tensor], value: list[Tensor], call: DecodeCall) -> tuple[tuple, tuple]:
    """Returns the shapes of the output and of lse."""
    keys = _decode.unpacked_shape_of(key, call.kv_dtype), _decode.unpacked_shape_of(value, call.kv_dtype)
    out = decode_output_shape(call.layout, call.heads, query.shape, *keys, call.block_table is not None)
    return out, statistics_shape(call.layout, call.heads, query.shape) if call.return_lse else (0,)


def _results(query: Tensor, key: list[Tensor], value: list[Tensor], call: DecodeCall) -> tuple[Tensor, Tensor]:
    out, lse = _shapes(query, key, value, call)
    return query.new_empty(out, dtype=output_dtype(query, call.quant_scale2)), query.new_empty(lse, dtype=torch.float32)


def _one_or_all(tensors: Sequence[Tensor]) -> Tensor | list[Tensor]:
    return tensors[0] if len(tensors) == 1 else list(tensors)


@operator(
    f"decode_attention(Tensor query, Tensor[] key, Tensor[] value, {schema_of(DecodeCall)}) -> (Tensor, Tensor)",
    fake=lambda query, key, value, *arguments: _results(query, key, value, DecodeCall(*arguments)),
    derivative=autograd.none_of_lists,
)
def decode_operator(query, key, value, *arguments):
    """Returns the output and the lse, which has no elements without return_lse. There is no gradient."""
    call = DecodeCall(*arguments)
    given = call._asdict()
    del given["rule"], given["pre"], given["next"]
    given["head_num"], given["mask"] = given.pop("heads"), call.mask()
    given["key_rope"] = _one_or_all(call.key_rope) if call.key_rope else None
    given["kv_dtype"] = call.kv_dtype or None
    result = _decode.decode_attention(query, _one_or_all(key), _one_or_all(value), **given)
    return result if call.return_lse else (result, query.new_empty(0, dtype=torch.float32))


@functools.lru_cache
def _options(layout, heads, scale, rule, pre, next_, *numbers) -> _fa.DecodeAttentionOptions:
    mask = DecodeCall(rule=rule, pre=pre, next=next_).mask()
    given = {"layout": layout, "heads": heads, "scale": scale, "mask": mask, **dict(zip(_NUMBERS, numbers, strict=True))}
    return made(_fa.DecodeAttentionOptions, given)


def _directly(query, key, value, lengths_q, lengths_kv, call: DecodeCall) -> tuple[Tensor, Tensor]:
    """Computes the operator without the dispatcher. Lengths are lists, as the extension takes them."""
    out, lse = _results(query, key, value, call)
    inputs = {"q": query, **call.tensors()}
    inputs["q_rope"] = inputs.pop("query_rope")
    inputs["k"], inputs["v"] = _one_or_all(key), _one_or_all(value)
    inputs["k_rope"] = _one_or_all(call.key_rope) if call.key_rope else None
    results = {"out": out, "lse": lse} if call.return_lse else {"out": out}
    compute(_fa.decode, inputs, results, _options(*call[_OPTIONS]), lengths_q, lengths_kv)
    return out, lse


def attend_cached(
    query: Tensor,
    key: Sequence[Tensor],
    value: Sequence[Tensor],
    lengths_q: Tensor | Sequence[int] | None,
    lengths_kv: Tensor | Sequence[int] | None,
    call: DecodeCall,
) -> tuple[Tensor, Tensor]:
    """Returns the output and the lse. The caller has checked that the arguments are tensors, and `call` has no
    lengths."""
    key, value = list(key), list(value)
    if possible(query, *key, *value, *call.key_rope, *call[_TENSOR_SLICE]):
        lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
        return _directly(query, key, value, *lengths, call)
    call = call._replace(lengths_q=as_tensor(lengths_q), lengths_kv=as_tensor(lengths_kv))
    return decode_operator(query, key, value, *call)


@torch.compiler.disable
def _attend_pairs(query, key, value, lengths_q, lengths_kv, call: DecodeCall) -> tuple[Tensor, Tensor]:
    """Works like `attend_cached` for a call whose dense_mask is a PairMask, which no operator takes."""
    for name, tensor in _named(query, key, value, call):
        if not is_plain(tensor):
            kind = type(tensor).__name__
            raise ValueError(f"invalid argument: {name}: want a plain CPU tensor (with a fa.PairMask), got {kind}")
    lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    return _directly(query, key, value, *lengths, call)


# Argument names: {the library's name: the name in decode_attention}.
_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "q_rope": "query_rope",
    "k_rope": "key_rope",
    "heads": "head_num",
    "pair_mask": "dense_mask",
    "cu_q": "lengths_q",
    "mask.pre": "window",
    "mask.next": "window",
}


def decode_attention(
    query: Tensor,
    key: Tensor | Sequence[Tensor],
    value: Tensor | Sequence[Tensor],
    *,
    lengths_kv: Tensor | Sequence[int] | None = None,
    lengths_q: Tensor | Sequence[int] | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | Sequence[Tensor] | None = None,
    block_table: Tensor | None = None,
    layout: str = "BNSD",
    head_num: int = 0,
    scale: float | None = None,
    is_causal: bool = False,
    window: tuple[int, int] | None = None,
    dense_mask: Tensor | PairMask | None = None,
    pse: Tensor | None = None,
    softcap: float = 0.0,
    sink: Tensor | None = None,
    kv_dtype: str | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    k_offset: Tensor | None = None,
    v_offset: Tensor | None = None,
    antiquant_scale: Tensor | None = None,
    antiquant_offset: Tensor | None = None,
    antiquant_per_token: bool = False,
    deq_scale1: Tensor | None = None,
    quant_scale1: Tensor | None = None,
    deq_scale2: Tensor | None = None,
    quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None,
    return_lse: bool = False,
) -> Any:
    """Computes `fa.decode_attention` as an operator of PyTorch, so that torch.compile, torch.func.vmap and
    inference_mode work.

    Args:
        lengths_kv, lengths_q: integers [B] or [1], as tensors or as sequences of ints. For layout TND, lengths_q holds
            inclusive prefix sums [B].
        is_causal: whether the last query in use looks at no key after the last key in use, the query before it at no
            key after the last but one, and so on.
        window: (left, right), how many keys a query looks at before and after that key; -1 means all. With is_causal,
            right counts as 0.
        dense_mask: as in `fa.decode_attention`, or a fa.PairMask, which torch.compile leaves out of its graphs.
        others: the arguments of `fa.decode_attention`.

    Returns:
        The output; with return_lse (output, lse). There is no gradient.

    Raises:
        ValueError: an argument is wrong, or requires a gradient while gradients are recorded.
        TypeError: an argument is no tensor.
    """
    compressed = k_scale, v_scale, k_offset, v_offset, antiquant_scale, antiquant_offset
    quantized = *compressed, deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2
    if kv_dtype is query_rope is key_rope is None and all(tensor is None for tensor in quantized) and unwatched():
        tensors = query, key, value, block_table, dense_mask, pse, sink
        options = layout, head_num, scale, is_causal, window, softcap
        found = _plainly(tensors, options, lengths_q, lengths_kv, return_lse)
        if found is not None:
            return found
    given = {name: value for name, value in locals().items() if name in _ALIKE}
    keys, values = _tensors("key", key), _tensors("value", value)
    # The addresses of int4 bytes say whether the library can read them as int32. A tensor that a transform or a
    # compiler traces has no address yet.
    later = kv_dtype == "int4" and not possible(*(t for t in (*keys, *values) if isinstance(t, Tensor)))
    given["kv_dtype"] = kv_dtype if later else ""
    if not later:
        keys, values = _typed("key", keys, kv_dtype), _typed("value", values, kv_dtype)
    given["key_rope"] = () if key_rope is None else _tensors("key_rope", key_rope)
    given["rule"], given["pre"], given["next"] = _rule(is_causal, window)
    call = DecodeCall(heads=head_num, **given)
    _check(query, keys, values, call)
    attend = _attend_pairs if isinstance(dense_mask, PairMask) else attend_cached
    with own_names(_NAMES):
        out, lse = attend(query, keys, values, lengths_q, lengths_kv, call)
    return (out, lse) if return_lse else out


def _plainly(tensors: tuple, options: tuple, lengths_q: Any, lengths_kv: Any, return_lse: bool) -> Any:
    """Computes decode_attention in one call of the extension. Returns None if the call has other or wrong arguments."""
    if recorded(*tensors):
        return None
    try:
        chosen = _plain_options(*options)
        context = _context.context_of_tensors()
        return _fa.attend_cache(*tensors, chosen, lengths_q, lengths_kv, False, return_lse, context)
    except (TypeError, ValueError):  # the general path reports the error with the caller's argument names
        return None


@functools.lru_cache(typed=True)
def _plain_options(layout, head_num, scale, is_causal, window, softcap) -> _fa.DecodeAttentionOptions:
    fixed = all(type(number) is int for number in (head_num, *(window or ())))
    if not fixed or type(softcap) is not float or not (scale is None or type(scale) is float):
        raise TypeError("want numbers that do not change")
    return _options(layout, head_num, scale, *_rule(is_causal, window), softcap, False)


def _tensors(name: str, given: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if isinstance(given, Tensor):
        return [given]
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name}: want a torch.Tensor or a list of them, got {type(given).__name__}")
    return list(given)


def _typed(name: str, tensors: list[Tensor], kv_dtype: str | None) -> list[Tensor]:
    """Returns keys or values in the type that kv_dtype gives to their bytes."""
    if kv_dtype is None or not all(isinstance(tensor, Tensor) for tensor in tensors):
        return tensors  # _check names the argument that is no tensor
    read, kind = _decode.readable(name, _one_or_all(tensors), kv_dtype)
    tensors = read if isinstance(read, list) else [read]
    own = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}.get(kind)
    return tensors if own is None else [tensor.view(own) for tensor in tensors]


def _rule(is_causal: bool, window: tuple[int, int] | None) -> tuple[str, int, int]:
    """Returns the name of the method of Mask that makes the mask, and the method's two arguments."""
    left, right = (-1, -1) if window is None else window
    if left < -1 or right < -1:
        raise ValueError(f"invalid argument: window={(left, right)}, want (left, right) >= -1")
    if is_causal:
        right = 0
    if left == -1 and right == -1:
        return "none", 0, 0
    if left == -1 and right == 0:
        return "causal", 0, 0
    return "band", UNLIMITED if left == -1 else left, UNLIMITED if right == -1 else right


def _named(query: Tensor, keys: list[Tensor], values: list[Tensor], call: DecodeCall) -> list[tuple[str, Tensor]]:
    """Returns what must be tensors, by the names of decode_attention's arguments."""
    lists = (("key", keys), ("value", values), ("key_rope", call.key_rope))
    named = [(name if len(list_) == 1 else f"{name}[{i}]", t) for name, list_ in lists for i, t in enumerate(list_)]
    given = [(name, tensor) for name, tensor in call.tensors().items() if tensor is not None]
    given = [(name, tensor) for name, tensor in given if name != "dense_mask" or not isinstance(tensor, PairMask)]
    return [("query", query), *named, *given]


def _check(query: Tensor, keys: list[Tensor], values: list[Tensor], call: DecodeCall) -> None:
    """Checks everything except shapes and types."""
    recorded = torch.is_grad_enabled()
    for name, tensor in _named(query, keys, values, call):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
        if recorded and tensor.requires_grad:
            raise ValueError(
                f"invalid argument: {name}: requires a gradient, and there is none of a decode; "
                "want a detached tensor, or torch.no_grad()"
            )
