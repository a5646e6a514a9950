"""The operators on arrays. Each function allocates its results and calls the extension module `_fa`."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from . import _fa
from ._context import chosen_context, torch_of
from ._errors import ERRORS, argument_error, in_names, made, unfit
from ._fa import Context, Mask
from ._layout import output_shape, statistics_shape


class AttentionOutput(NamedTuple):
    """The results of `flash_attention` in the call's layout: out [B, N, Sq, Dv], and statistics [B, N, Sq] of each
    softmax."""

    out: Any
    """[B, N, Sq, Dv] in the call's layout, of the query's type."""
    softmax_max: Any
    """float32 [B, N, Sq], TND [T, N]: the largest score of each row, in the natural-log domain."""
    softmax_sum: Any
    """float32 [B, N, Sq], TND [T, N]: the sum of exp(score - softmax_max) of each row, before dropout."""


class AttentionGradients(NamedTuple):
    """Gradients with the shapes and types of their arguments. A gradient is None if its argument is absent, or if the
    caller did not ask for it.

    dq: [B, N, Sq, D] in the call's layout; dk, dv: [B, Nkv, Sk, D | Dv]; dpse: as pse; dsink: as sink.
    """

    dq: Any
    dk: Any
    dv: Any
    dq_rope: Any
    dk_rope: Any
    dpse: Any
    dsink: Any


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    layout: str = "BNSD",
    head_num: int = 0,
    scale: float | None = None,
    mask: Mask | None = None,
    dense_mask: Any = None,
    query_rope: Any = None,
    key_rope: Any = None,
    pse: Any = None,
    pse_type: int = 1,
    q_start: int = 0,
    kv_start: int = 0,
    keep_prob: float = 1.0,
    drop_mask: Any = None,
    seed: int | None = None,
    offset: int = 0,
    sink: Any = None,
    softcap: float = 0.0,
    cu_q: Iterable[int] | None = None,
    cu_kv: Iterable[int] | None = None,
    context: Context | None = None,
) -> AttentionOutput:
    """Computes out = dropout(softmax(mask(score))) V with score = scale * Q K^T and the biases below.

    The layout says which shape an array has: BNSD [B,N,S,D], BSND [B,S,N,D], BSH [B,S,N·D], SBH [S,B,N·D], TND [T,N,D]
    (packed sequences), BNSD_BSND (inputs BNSD, output BSND). Any strides are taken. An input is copied if a stride is
    negative. It is also copied if its innermost stride is not 1, unless it is a sink.

    Args:
        q: [B, N, Sq, D]; float32, bfloat16 or float16.
        k, v: [B, Nkv, Sk, D] and [B, Nkv, Sk, Dv], type of q; N a multiple of Nkv.
        head_num: N, which BSH and SBH need. Other layouts check it if it is > 0.
        scale: any finite number; None means 1 / sqrt(D + Drope).
        mask: which keys each row sees; None means all keys.
        dense_mask: uint8 or bool, 1 = drop: [Sq,Sk], [1,1,Sq,Sk], [B,1,Sq,Sk], [B,N,Sq,Sk]; TND: [maxSq,maxSk].
        query_rope, key_rope: [B, N, Sq, Drope], [B, Nkv, Sk, Drope]. Scores are then Q K^T + Qr Kr^T.
        pse: position bias. Types 0 (scale * QK + pse) and 1 (scale * (QK + pse)) take [B|1, N, Sq|1, Sk], or compressed
            [B|1, N, 1024, Sk], in the type of q or float32; for TND the bias is flat. Types 2 and 3 take slopes,
            float32 [N] or [B, N]. Type 2 multiplies them by the distance between key j + kv_start and query i +
            q_start, type 3 by the square root of this distance.
        keep_prob: the share of pairs that dropout keeps, in (0, 1]. A share below 1 needs drop_mask or seed.
        drop_mask: uint8 bits, LSB first, 1 = keep, bit-contiguous over [B,N,Sq,Sk].
        seed, offset: the state of the Philox generator that draws the dropout mask. `generate_dropout_mask` returns
            this mask as bits.
        sink: float32 [N], or one per row [B|1, N, Sq] (TND [T, N]), the score of a virtual key whose value is 0.
        softcap: c > 0 turns scale * QK into c * tanh(scale * QK / c), before pse; 0 means none.
        cu_q, cu_kv: for TND, inclusive prefix sums of the lengths. A leading 0 is an empty first sequence.
        context: threads and instruction set; None means the default (`set_default_context`).

    Returns:
        Output and statistics, arrays of q's kind (NumPy or PyTorch). A row without keys has out 0, max -FLT_MAX and sum
        FLT_MAX. The bits do not depend on the number of threads, the batch or the layout.

    Raises:
        ValueError: an argument is wrong. The message gives its name, its value and the wanted value.
        TypeError: an argument is no array. MemoryError: out of memory.
    """
    call = BoundCall(dict(locals()))  # locals() has exactly the arguments here, because no other variable exists yet.
    results = call.results()
    compute(_fa.forward, {**call.arrays, **results}, *call.rest)
    return AttentionOutput(*results.values())


def flash_attention_grad(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    d_out: Any,
    softmax_max: Any,
    softmax_sum: Any,
    *,
    need_dpse: bool = False,
    need_dsink: bool = False,
    **keywords: Any,
) -> AttentionGradients:
    """Computes the gradients of `flash_attention`, called with the same keywords. The same seed and offset drop the
    same pairs.

    Args:
        out, softmax_max, softmax_sum: results of the forward call. Statistics may be [B,N,Sq] or [B,N,Sq,8].
        d_out: gradient of out, with its shape and type.
        need_dpse: whether to compute the gradient of pse, or of the slopes for pse types 2 and 3. A compressed pse has
            no gradient.
        need_dsink: whether to compute the gradient of sink.

    Returns:
        The gradients. dk and dv are summed over the query heads that share a KV head. With the context's default
        accumulation the bits do not depend on the number of threads.

    Raises:
        The same errors as `flash_attention`.
    """
    call = BoundCall({"q": q, "k": k, "v": v, **keywords_of_attention(keywords)})
    gradients = call.gradients(need_dpse, need_dsink)
    results = {"out": out, "d_out": d_out, "softmax_max": softmax_max, "softmax_sum": softmax_sum}
    compute(_fa.backward, {**call.arrays, **results, **call.named(gradients)}, *call.rest)
    return gradients


def ring_attention_update(
    prev_out: Any,
    prev_softmax_max: Any,
    prev_softmax_sum: Any,
    cur_out: Any,
    cur_softmax_max: Any,
    cur_softmax_sum: Any,
    *,
    layout: str = "SBH",
    head_num: int = 0,
    context: Context | None = None,
) -> AttentionOutput:
    """Merges two partial results of attention, over disjoint sets of keys, into the result over their union.

    Args:
        prev_out, cur_out: arrays in the layout's shape; float32, bfloat16 or float16.
        prev_softmax_max, ...: float32 [B, N, S] (TND [T, N]), or with a last dimension of 8 equal copies.
        head_num: N, for BSH and SBH. 0 takes it from the statistics.

    Returns:
        Arrays of prev_out's kind. If a row has no keys in one result, the row of the other result is returned
        unchanged.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(prev_out=prev_out, prev_softmax_max=prev_softmax_max, prev_softmax_sum=prev_softmax_sum)
    empty = empty_like_of(prev_out)
    out = empty(prev_out.shape, prev_out.dtype)
    softmax_max = empty(prev_softmax_max.shape, None)
    softmax_sum = empty(prev_softmax_sum.shape, None)
    arrays = {
        "prev_out": prev_out,
        "prev_max": prev_softmax_max,
        "prev_sum": prev_softmax_sum,
        "cur_out": cur_out,
        "cur_max": cur_softmax_max,
        "cur_sum": cur_softmax_sum,
        "out": out,
        "softmax_max": softmax_max,
        "softmax_sum": softmax_sum,
    }
    compute(_fa.merge, arrays, layout, head_num, chosen_context(context, prev_out), names=_MERGE_NAMES)
    return AttentionOutput(out, softmax_max, softmax_sum)


def generate_dropout_mask(
    seed: int, offset: int, keep_prob: float, bits: int, *, context: Context | None = None
) -> np.ndarray:
    """Returns a call's dropout mask, one bit per pair (1 = keep): uint8, LSB first, ceil(bits / 8) bytes.

    Bit f belongs to flat element f of [B, N, Sq, Sk]. For TND, the sequences follow one another. Raises ValueError.
    """
    bits = integer(bits, "bits")
    if bits < 0:
        raise ValueError(f"invalid argument: bits={bits}, want >= 0")
    mask = np.empty((bits + 7) // 8, np.uint8)
    compute(_fa.dropout_mask, {"mask": mask}, seed, offset, keep_prob, bits, chosen_context(context, mask))
    return mask


class DescribedArray:
    """Stands for an argument of a call that `fa.plan` describes: a shape and a type, and perhaps the array."""

    def __init__(self, shape: Iterable[int], dtype: Any, array: Any = None) -> None:
        self.shape, self.dtype, self.array = tuple(shape), dtype, array

    @property
    def dtype_name(self) -> str:
        return dtype_name(self.dtype)


class DescribedCall(Exception):
    """Raised instead of calling the extension with described arrays. It has the call's function and arguments."""

    def __init__(self, function: Callable, arrays: dict[str, Any], rest: tuple, names: dict[str, str]) -> None:
        super().__init__()
        self.function, self.arrays, self.rest, self.names = function, arrays, rest, names


# Arguments of fa's functions whose names differ from the library's: {the library's name: the name here}.
NAMES = {
    "q_rope": "query_rope",
    "k_rope": "key_rope",
    "q_index": "query_index",
    "k_index": "key_index",
    "heads": "head_num",
    "heads_kv": "head_num_kv",
    "dropout": "seed",
    "pair_mask": "dense_mask",
}
_MERGE_NAMES = NAMES | {
    "prev_max": "prev_softmax_max",
    "prev_sum": "prev_softmax_sum",
    "cur_max": "cur_softmax_max",
    "cur_sum": "cur_softmax_sum",
}


def check_arrays(
    *, optional: dict[str, Any] | None = None, names: dict[str, str] | None = None, **arrays: Any
) -> None:
    """Raises TypeError for an argument that is no array. `optional` arguments may be None. The error names an argument
    as `names` says."""
    for name, array in {**arrays, **(optional or {})}.items():
        if (array is not None or name in arrays) and not (hasattr(array, "shape") and hasattr(array, "dtype")):
            error = argument_error(TypeError, name, f": want an array, got {type(array).__name__}")
            raise in_names(error, names or {})


def arrays_of(given: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Removes the arrays from a call's arguments, and returns them under the library's names. `names` are {the
    library's name: the name here}."""
    take = given.pop
    return {name: take(here) for name, here in names.items()}


def options_of(kind: type, given: dict[str, Any]) -> Any:
    """Makes the options of a call from its remaining arguments, after arrays, lengths and context have been removed."""
    given["heads"] = given.pop("head_num")
    return made(kind, given, NAMES)


def integer(value: Any, name: str) -> int:
    """Returns the value as an int. If it is no integer, raises TypeError, which names the argument `name`."""
    try:
        return operator.index(value)
    except TypeError:
        raise argument_error(TypeError, name, f": want an integer, got {type(value).__name__}") from None


def integers(values: Iterable[int] | None, name: str = "lengths") -> list[int]:
    """Returns the values as ints. Raises TypeError for a value that is no integer, and ValueError for a value that
    exceeds 64 bits. The error names the argument `name`."""
    if values is None:
        return []
    try:
        values = values.tolist() if hasattr(values, "tolist") else values
        listed = list(map(operator.index, values))
    except TypeError:
        raise argument_error(TypeError, name, f": want integers, got {values!r}") from None
    for value in (min(listed), max(listed)) if listed else ():
        if not -(1 << 63) <= value < 1 << 63:
            index = f"[{listed.index(value)}]"
            raise argument_error(ValueError, name, f"={value}, want an integer of 64 bits", index=index)
    return listed


def compute(function: Callable, arrays: dict[str, Any], *rest: Any, names: dict[str, str] = NAMES) -> None:
    """Calls function(arrays, *rest). Raises ValueError for an array that requires a gradient, because autograd would
    not see the call. Errors name arguments as `names` says."""
    if isinstance(next(iter(arrays.values())), DescribedArray):
        raise DescribedCall(function, arrays, rest, names)
    try:
        _check_no_derivative_is_lost(arrays)
        function(arrays, *rest)
    except ERRORS as error:
        named = in_names(unfit(error, function, arrays, *rest), names)
        if named is error:
            raise
        raise named from None


@functools.cache
def _of_pytorch() -> Any:
    """Returns fa._pytorch, the module of PyTorch's private interfaces. That module imports PyTorch, so it is imported
    only here."""
    from . import _pytorch

    return _pytorch


def _check_no_derivative_is_lost(arrays: dict[str, Any]) -> None:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    private = _of_pytorch()
    backward, forward = torch.is_grad_enabled(), private.in_forward_mode() and private.forward_mode_is_enabled()
    if not backward and not forward:
        return
    for name, array in _one_by_one(arrays):
        if not isinstance(array, torch.Tensor):
            continue
        if backward and array.requires_grad:
            want = "here want a detached tensor, or torch.no_grad()"
            words = f": requires a gradient, which fa.torch and fa.torch_npu compute; {want}"
            raise argument_error(ValueError, name, words)
        if forward and torch.autograd.forward_ad.unpack_dual(array).tangent is not None:
            words = ": has a tangent, want none: there is no forward-mode derivative"
            raise argument_error(ValueError, name, words)


def _one_by_one(arrays: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, array in arrays.items():
        if isinstance(array, list):
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(array))
        else:
            yield name, array


def empty_like_of(array: Any) -> Callable[[Iterable[int], Any], Any]:
    """Returns a function empty(shape, dtype) that allocates a result: with PyTorch if `array` is its tensor, otherwise
    with NumPy. dtype None means float32. If `array` is a DescribedArray, so is the result.

    If memory cannot hold a result, the function returns a single element, broadcast to the shape. The library then
    checks the other arguments before it reports the lack of memory.
    """
    torch = torch_of(array)
    if isinstance(array, DescribedArray):
        return lambda shape, dtype: DescribedArray(shape, "float32" if dtype is None else dtype)

    def empty(shape: Iterable[int], dtype: Any) -> Any:
        shape = tuple(shape)
        if torch is not None:
            dtype = getattr(torch, "float32" if dtype is None else dtype_name(dtype), torch.float32)
            try:
                return torch.empty(shape, dtype=dtype, device="cpu")
            except RuntimeError:
                return torch.empty((), dtype=dtype, device="cpu").expand(shape)
        dtype = _numpy_dtype(dtype)
        try:
            return np.empty(shape, dtype)
        except (MemoryError, ValueError):
            return np.lib.stride_tricks.as_strided(np.empty((), dtype), shape, (0,) * len(shape))

    return empty


def dtype_name(dtype: Any) -> str:
    """Returns the name of a PyTorch or NumPy type, for example "int8" for torch.int8, np.int8 and np.dtype("int8")."""
    return dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")


def _numpy_dtype(dtype: Any) -> np.dtype:
    """Returns the NumPy type, or float32 if NumPy lacks the type. The library then refuses the array."""
    try:
        return np.dtype("float32" if dtype is None else dtype_name(dtype))
    except TypeError:
        return np.dtype("float32")


class BoundCall:
    """The arguments of `flash_attention`, converted for the extension."""

    def __init__(self, given: dict[str, Any]) -> None:
        cu_q, cu_kv, context = given.pop("cu_q"), given.pop("cu_kv"), given.pop("context")
        self.arrays = arrays_of(given, _ARRAYS)
        q, k, v = self.arrays["q"], self.arrays["k"], self.arrays["v"]
        check_arrays(q=q, k=k, v=v, optional={name: self.arrays[name] for name in _SHAPED}, names=NAMES)
        self.layout, self.heads = given["layout"], given["head_num"]
        options = options_of(_fa.AttentionOptions, given)
        self.rest = options, integers(cu_q, "cu_q"), integers(cu_kv, "cu_kv"), chosen_context(context, q)
        self.empty = empty_like_of(q)
        self.pse_is_slopes = given["pse_type"] >= 2

    def results(self) -> dict[str, Any]:
        """Allocates out and the statistics."""
        query, key, value = (tuple(self.arrays[name].shape) for name in ("q", "k", "v"))
        out = output_shape(self.layout, self.heads, query, key, value)
        statistics = statistics_shape(self.layout, self.heads, query)
        return {
            "out": self.empty(out, self.arrays["q"].dtype),
            "softmax_max": self.empty(statistics, None),
            "softmax_sum": self.empty(statistics, None),
        }

    def gradients(self, dpse: bool, dsink: bool) -> AttentionGradients:
        """Allocates the gradients: those of pse and sink only if `dpse` and `dsink` are true."""
        wanted = {"pse": dpse, "sink": dsink}
        sources = (self.arrays[name] if wanted.get(name, True) else None for name in ("q", "k", "v", *_SHAPED))
        return AttentionGradients(*(None if t is None else self.empty(t.shape, t.dtype) for t in sources))

    def named(self, gradients: AttentionGradients) -> dict[str, Any]:
        """Returns the gradients under the library's names. The gradient of slopes in pse is named dslopes."""
        named = gradients._asdict()
        if self.pse_is_slopes:
            named["dslopes"] = named.pop("dpse")
        return named


def keywords_of_attention(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the keywords of `flash_attention` with its defaults where `given` has none. Raises TypeError for an
    unknown keyword."""
    for name in given:
        if name not in _DEFAULTS:
            raise argument_error(TypeError, name, f": unknown, want one of {', '.join(_DEFAULTS)}")
    return _DEFAULTS | given


_DEFAULTS: dict[str, Any] = flash_attention.__kwdefaults__ or {}
_SHAPED = ("q_rope", "k_rope", "pse", "sink")
_ARRAYS = {name: NAMES.get(name, name) for name in ("q", "k", "v", *_SHAPED, "dense_mask", "drop_mask")}
