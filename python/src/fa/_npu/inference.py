"""torch_npu's functions for inference: they check arguments, allocate results and call fused inference."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._attention import integers
from .._decode import unpacked_shape_of
from .._errors import own_names
from .._infer import UNLIMITED
from .._layout import infer_shapes
from .._pytorch import version_of
from .._torch.infer import InferCall, Lengths, infer_into
from .dtypes import dtype_of

MAX_TOKENS = 2147483647
_EIGHT_BITS = torch.int8, torch.float8_e4m3fn
_FLOATS = torch.float32, torch.float16, torch.bfloat16

PACKED_LAYOUTS = "TND", "NTD", "TND_NTD", "NTD_TND"
ROWS_AXIS = {"BNSD": 2, "BSND": 1, "BSH": 1, "NSD": 1}  # {left side of a layout: axis of the rows}
_HEADS_AXIS = {"BNSD": 1, "BSND": 2, "NSD": 0, "TND": 1, "NTD": 0}


class Inference(NamedTuple):
    """The arguments of a function for inference. `names` maps members to the function's argument names where the names
    differ.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    names: dict[str, str]
    layout: str
    heads: int
    heads_kv: int
    scale: float
    query_rope: Optional[Tensor] = None
    key_rope: Optional[Tensor] = None
    pse: Optional[Tensor] = None
    dense_mask: Optional[Tensor] = None
    lengths_q: Lengths = None
    lengths_kv: Lengths = None
    q_padding: Optional[Tensor] = None
    kv_padding: Optional[Tensor] = None
    k_prefix: Optional[Tensor] = None
    v_prefix: Optional[Tensor] = None
    length_prefix: Lengths = None
    block_table: Optional[Tensor] = None
    block_size: int = 0
    q_scale: Optional[Tensor] = None  # has the shape of the query without D
    k_scale: Optional[Tensor] = None  # these four have the shapes that fa.decode_attention takes
    v_scale: Optional[Tensor] = None
    k_offset: Optional[Tensor] = None
    v_offset: Optional[Tensor] = None
    antiquant_scale: Optional[Tensor] = None
    antiquant_offset: Optional[Tensor] = None
    antiquant_per_token: bool = False
    product_scales: tuple = (None, None, None)  # deq_scale1, quant_scale1, deq_scale2
    quant_scale2: Optional[Tensor] = None
    quant_offset2: Optional[Tensor] = None
    sink: Optional[Tensor] = None
    sparse_mode: int = 0
    pre_tokens: int = MAX_TOKENS
    next_tokens: int = MAX_TOKENS
    return_lse: bool = False
    out_dtype: int | torch.dtype | None = None

    @classmethod
    def of(cls, given: dict[str, Any], names: dict[str, str], **own: Any) -> Inference:
        """Makes an Inference from a function's arguments. `names` are {member: argument} where the names differ. `own`
        gives the members that are not read from the arguments."""
        own["names"] = names
        members = (name for name in cls._fields if names.get(name, name) in given and name not in own)
        call = cls(**own, **{name: given[names.get(name, name)] for name in members})
        return call._replace(layout=call.layout.upper())

    def refuse(self, name: str, why: str) -> ValueError:
        return ValueError(f"invalid argument: {self.names.get(name, name)}{why}")

    @property
    def packed(self) -> bool:
        return self.layout in PACKED_LAYOUTS

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shapes of the output and of the lse."""
        value = unpacked_shape_of(self.value)
        paged = self.block_table is not None
        out, rows = infer_shapes(self.layout, self.heads, self.heads_kv, self.query.shape, value, paged)
        return out, (*rows, 1)

    def result_dtype(self) -> torch.dtype:
        """Returns the type of the output. Raises ValueError for an out_dtype that it cannot have."""
        eight_bits = self.query.dtype in _EIGHT_BITS
        if self.quant_scale2 is not None:
            own = torch.int8
        elif eight_bits:
            own = torch.float16 if self.query_rope is None else self.query_rope.dtype
        else:
            own = self.query.dtype
        if self.out_dtype is None:
            return own
        given = dtype_of(self.out_dtype, "out_dtype")
        if given == own or (eight_bits and self.quant_scale2 is None and given in _FLOATS):
            return given
        raise self.refuse("out_dtype", f"={self.out_dtype}, want None or the number of {own}")

    def results(self) -> tuple[Tensor, Tensor]:
        """Allocates the results of the call."""
        shape, rows = self.shapes()
        out = self.query.new_empty(shape, dtype=self.result_dtype())
        return out, self.query.new_empty(rows if self.return_lse else 0, dtype=torch.float32)


def refuse_given(why: str, **arguments: Any) -> None:
    """Raises ValueError, which says `why`, for the first argument that is not None."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"invalid argument: {name} is not served ({why})")


def attend(call: Inference, results: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Returns the output and the lse, [B, N, Sq, 1], packed [T, N, 1], +inf for a row without keys. Without return_lse,
    the lse has no elements. The backward of both results raises NotImplementedError.

    Args:
        results: the two tensors into which the call writes, instead of new ones. Without return_lse, the second may have
            any shape and type, and is not written.
    """
    if call.heads <= 0:
        raise call.refuse("heads", f"={call.heads}, want >= 1")
    _check_heads_kv(call)
    if call.length_prefix is not None and call.k_prefix is None and call.v_prefix is None:
        raise call.refuse("length_prefix", f": given, want None ({call.names['k_prefix']} is missing)")
    recorded = {name: t for name, t in call._asdict().items() if isinstance(t, Tensor) and t.requires_grad}
    out, lse = call.results() if results is None else results
    if results is not None:
        shape, rows = call.shapes()
        _check_result("out[0]", out, shape, call.result_dtype())
        if call.return_lse:
            _check_result("out[1]", lse, rows, torch.float32)
    _compute(call._replace(**{name: tensor.detach() for name, tensor in recorded.items()}), out, lse)
    if results is None and recorded and torch.is_grad_enabled():
        return _WithoutGradient.apply(out, lse, *recorded.values())
    return out, lse


class _WithoutGradient(torch.autograd.Function):
    """Returns two results unchanged. For autograd they depend on the inputs, but their backward raises
    NotImplementedError."""

    @staticmethod
    def forward(ctx, out, lse, *_):
        return out.view_as(out), lse.view_as(lse)

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError("attention of inference: there is no gradient")


def _check_heads_kv(call: Inference) -> None:
    """Checks the number of KV heads, on which the shape of the output depends. Without heads_kv, compares `heads` with
    the heads of keys. Also checks keys whose last dimension holds heads and columns.
    """
    fused = call.layout.startswith("BSH")
    key = unpacked_shape_of(call.key)
    heads_kv = call.heads_kv or call.heads
    if heads_kv < 0 or call.heads % heads_kv:
        raise call.refuse("heads_kv", f"={call.heads_kv}, want a divisor of {call.heads}")
    if not call.heads_kv and (own := _heads_of_keys(call, key)) not in (None, heads_kv):
        raise call.refuse("heads_kv", f"={call.heads_kv}, want {own} (key)")
    if len(key) != 3 or (call.block_table is None and not fused) or call.query.dim() < 3:
        return
    size = call.query.shape[-1] // (call.heads if fused else 1)
    if size and key[2] % size == 0 and key[2] // size != heads_kv:
        raise call.refuse("heads_kv", f"={call.heads_kv}, want {key[2] // size} (key)")


def _heads_of_keys(call: Inference, key: tuple[int, ...]) -> int | None:
    """Returns the number of KV heads if keys have a dimension for heads. Returns None if they have none, or if the
    query does not have `heads` heads.
    """
    if call.block_table is not None:
        return key[1] if len(key) == 5 else None
    axis = _HEADS_AXIS.get(call.layout.partition("_")[0])
    shape = tuple(call.query.shape)
    if axis is None or len(key) <= axis or len(shape) <= axis or shape[axis] != call.heads:
        return None
    return key[axis]


def _check_result(name: str, result: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(result.shape) != shape:
        raise ValueError(f"invalid argument: {name}.shape={list(result.shape)}, want {list(shape)}")
    if result.dtype != dtype:
        raise ValueError(f"invalid argument: {name}.dtype={result.dtype}, want {dtype}")
    if result.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"invalid argument: {name}: requires a gradient, want a tensor that does not")


def _compute(call: Inference, out: Tensor, lse: Tensor) -> None:
    mask = _unverified_mask(call)
    infer = InferCall(
        q_rope=call.query_rope,
        k_rope=() if call.key_rope is None else [call.key_rope],
        block_table=call.block_table,
        q_padding=call.q_padding,
        kv_padding=call.kv_padding,
        k_prefix=_prefix(call, "k_prefix"),
        v_prefix=_prefix(call, "v_prefix"),
        q_scale=call.q_scale,
        k_scale=call.k_scale,
        v_scale=call.v_scale,
        k_offset=call.k_offset,
        v_offset=call.v_offset,
        antiquant_scale=call.antiquant_scale,
        antiquant_offset=call.antiquant_offset,
        antiquant_per_token=call.antiquant_per_token,
        deq_scale1=call.product_scales[0],
        quant_scale1=call.product_scales[1],
        deq_scale2=call.product_scales[2],
        quant_scale2=call.quant_scale2,
        quant_offset2=call.quant_offset2,
        pse=call.pse,
        dense_mask=mask,
        sink=call.sink,
        layout=call.layout,
        heads=call.heads,
        heads_kv=call.heads_kv or call.heads,
        scale=call.scale,
        sparse_mode=call.sparse_mode,
        pre=_unlimited(call.pre_tokens),
        next=_unlimited(call.next_tokens),
        block_size=call.block_size,
        infinite_lse=True,
    )
    results = out, lse if call.return_lse else None
    with own_names(call.names):
        infer_into(*results, call.query, [call.key], [call.value], infer, call.lengths_q, call.lengths_kv)
    if call.sparse_mode in _TRIANGLES and mask is not None and _can_be_verified(mask):
        _verified[_state(mask)] = call.dense_mask


_TRIANGLES = 2, 3, 4  # the sparse modes that take the compressed mask
_verified: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # checked masks, by address, type and version


def _state(mask: Tensor) -> tuple:
    return mask.data_ptr(), mask.dtype, tuple(mask.shape), mask.stride(), version_of(mask)


def _can_be_verified(mask: Tensor) -> bool:
    return not torch.compiler.is_compiling() and type(mask) is Tensor and not mask.is_meta


def _unverified_mask(call: Inference) -> Tensor | None:
    """Returns the mask that the library reads. The library only checks that a compressed mask is the triangle. So a
    compressed mask that the library has already checked is left out.

    Raises:
        ValueError: sparse_mode is 2, 3 or 4 and there is no mask. Only single rows without ropes, in layouts that are
            not packed, need none.
    """
    mask = call.dense_mask
    if call.sparse_mode not in _TRIANGLES:
        return mask
    if mask is not None:
        return None if _can_be_verified(mask) and _verified.get(_state(mask)) is mask else mask
    axis = ROWS_AXIS.get(call.layout.partition("_")[0], 0)
    single = not call.packed and call.query.dim() > axis and call.query.shape[axis] == 1
    if not single or call.query_rope is not None:
        raise call.refuse("dense_mask", f": missing, want [2048,2048] (sparse_mode {call.sparse_mode})")
    return None


def _unlimited(tokens: int) -> int:
    return UNLIMITED if tokens >= MAX_TOKENS else tokens


def _prefix(call: Inference, name: str) -> Tensor | None:
    """Returns the rows of the shared prefix that are in use."""
    prefix: Tensor | None = getattr(call, name)
    if prefix is None or call.length_prefix is None:
        return prefix
    lengths = integers(call.length_prefix, call.names["length_prefix"])
    axis = ROWS_AXIS.get(call.layout.partition("_")[0], 0)
    if prefix.dim() <= axis:
        return prefix  # the library refuses its shape
    if len(lengths) != 1 or not 0 <= lengths[0] <= prefix.shape[axis]:
        raise call.refuse("length_prefix", f"={lengths}, want one of 0..{prefix.shape[axis]} (rows of the prefix)")
    return prefix.narrow(axis, 0, lengths[0])
