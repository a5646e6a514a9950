"""torch_npu's functions for inference. This module chooses a call's operator, mask and lengths."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._attention import integers
from .._decode import PACKED
from .._errors import own_names
from .._pytorch import version_of
from .._torch import ops as _torch_ops
from .._torch.call import Call
from .._torch.decode import UNLIMITED, DecodeCall, attend_cached
from .._torch.ops import PromptCall

Lengths = Optional[Tensor | Sequence[int]]
MAX_TOKENS = 2147483647

_LAYOUTS = ("BSH", "BSND", "BNSD", "BNSD_BSND", "TND")
_HEADS_AXIS = {"BNSD": 1, "BNSD_BSND": 1, "BSND": 2, "TND": 1}
_ROWS_AXIS = {"BNSD": 2, "BNSD_BSND": 2, "BSND": 1, "BSH": 1}
# A call with at most this many rows is computed by the decode operator. For more rows the prompt operator is faster, so
# it computes the call unless only decode takes its arguments.
_FEW_ROWS = 16


class Inference(NamedTuple):
    """The arguments of a function for inference. `names` maps members to the function's names where they differ."""

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
    block_table: Optional[Tensor] = None
    block_size: int = 0
    k_scale: Optional[Tensor] = None  # the four in the shapes of fa.decode_attention
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


def refuse_given(why: str, **arguments: Any) -> None:
    """Raises ValueError, which says `why`, for the first argument that is not None."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"invalid argument: {name}: given, want none: {why}")


def attend(call: Inference) -> tuple[Tensor, Tensor]:
    """Returns the output and the lse, [B, N, Sq, 1], TND [T, N, 1], +inf for a row without keys. Without return_lse,
    the lse has no elements. The backward of both results raises NotImplementedError."""
    _check(call)
    given = {name: t for name, t in call._asdict().items() if isinstance(t, Tensor)}
    out, lse = _attend(call._replace(**{name: tensor.detach() for name, tensor in given.items()}))
    results = out, torch.where(lse == -torch.inf, torch.inf, lse)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given.values()):
        return _WithoutGradient.apply(*results, *given.values())
    return results


class _WithoutGradient(torch.autograd.Function):
    """Returns two results unchanged. For autograd they depend on the inputs, but their backward raises
    NotImplementedError."""

    @staticmethod
    def forward(ctx, out, lse, *_):
        return out.view_as(out), lse.view_as(lse)

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError("attention of inference: there is no gradient")


def _attend(call: Inference) -> tuple[Tensor, Tensor]:
    if call.block_table is not None:
        if call.layout == "BSH" and call.key.dim() == 4:
            out, lse = _attend(_with_heads(call))
            return out.flatten(-2), lse
        call = _oriented_pages(call)
    if call.query.dtype == torch.int8:
        _check_int8(call)
    if call.layout == "TND":
        out, lse = _packed_pages(call) if call.block_table is not None else _packed(call)
    else:
        rows = call.query.shape[_ROWS_AXIS[call.layout]]
        only_decode = (call.block_table, call.antiquant_scale, call.k_scale, call.sink, call.query_rope)
        few = rows <= _FEW_ROWS or call.return_lse or any(t is not None for t in only_decode)
        out, lse = _decode(call) if few else _prompt(call)
    return out, lse.unsqueeze(-1) if call.return_lse else lse


def _check(call: Inference) -> None:
    """Checks arguments that the library does not check, or for which its errors could not use torch_npu's names."""
    if call.layout not in _LAYOUTS:
        raise call.refuse("layout", f'="{call.layout}", want {", ".join(_LAYOUTS)}')
    if call.heads <= 0:
        raise call.refuse("heads", f"={call.heads}, want >= 1")
    axis = _HEADS_AXIS.get(call.layout)
    right_rank = call.query.dim() == (3 if call.layout == "TND" else 4)
    if axis is not None and right_rank and call.query.shape[axis] != call.heads:
        raise call.refuse("heads", f"={call.heads}, want {call.query.shape[axis]} (query.shape[{axis}])")
    if call.heads_kv < 0 or (call.heads_kv and call.heads % call.heads_kv):
        raise call.refuse("heads_kv", f"={call.heads_kv}, want a divisor of {call.heads}")
    if not 0 <= call.sparse_mode <= 4:
        raise call.refuse("sparse_mode", f"={call.sparse_mode}, want 0..4")
    if (call.query_rope is None) != (call.key_rope is None):
        missing = "q_rope" if call.query_rope is None else "k_rope"
        raise call.refuse(missing, ": missing, want both or none")
    if call.block_table is None:
        _check_heads_kv(call)
        return
    if call.lengths_kv is None:
        raise call.refuse("lengths_kv", ": missing, want the lengths of paged keys")
    for name, pages in (("k", call.key), ("v", call.value), ("k_rope", call.key_rope)):
        if pages is not None and pages.dim() not in (3, 4):
            raise call.refuse(name, f".shape={list(pages.shape)}, want pages of 3 or 4 dimensions")


def _packed_columns(keys: Tensor) -> int:
    """Returns how many columns an element holds: an int32 has eight numbers of 4 bits."""
    return PACKED if keys.dtype == torch.int32 else 1


def _check_heads_kv(call: Inference) -> None:
    """Checks the number of key heads if the keys are not in pages."""
    key = call.key.shape
    if call.layout == "BSH":
        size = call.query.shape[-1] // call.heads
        want = key[-1] * _packed_columns(call.key) // size if size else 0
    elif len(key) == call.query.dim():
        want = key[_HEADS_AXIS[call.layout]]
    else:
        return
    if (call.heads_kv or call.heads) != want:
        raise call.refuse("heads_kv", f"={call.heads_kv}, want {want} (key)")


def _oriented_pages(call: Inference) -> Inference:
    """Returns the call with the dimensions of its pages in the layout's order. Pages of four dimensions are read as
    [pages, Nkv, page size, D], the device's order, if this fits the number of heads and block_size. Otherwise they are
    read as [pages, page size, Nkv, D]."""
    key, heads = call.key.shape, call.heads_kv or call.heads
    if len(key) == 3:
        if call.block_size not in (0, key[1]):
            raise call.refuse("block_size", f"={call.block_size}, want {key[1]} (key.shape[1])")
        size = call.query.shape[-1] // (call.heads if call.layout == "BSH" else 1)
        columns = key[2] * _packed_columns(call.key)
        if size and columns % size == 0 and columns // size != heads:
            raise call.refuse("heads_kv", f"={call.heads_kv}, want {columns // size} (key)")
        return call
    heads_first = key[1] == heads and call.block_size in (0, key[2])
    if not heads_first and not (key[2] == heads and call.block_size in (0, key[1])):
        want = f"want pages of {heads} heads" + (f" and {call.block_size} rows" if call.block_size else "")
        raise call.refuse("k", f".shape={list(key)}, {want}")
    if heads_first != (call.layout in ("BNSD", "BNSD_BSND")):
        rope = None if call.key_rope is None else call.key_rope.transpose(1, 2)
        return call._replace(key=call.key.transpose(1, 2), value=call.value.transpose(1, 2), key_rope=rope)
    return call


def _with_heads(call: Inference) -> Inference:
    """Turns a call of layout BSH into one of layout BSND."""
    for name, part in (("q", call.query), ("q_rope", call.query_rope)):
        if part is not None and (part.dim() != 3 or part.shape[-1] % call.heads != 0):
            raise call.refuse(name, f".shape={list(part.shape)}, want [B, S, {call.heads} * D]")
    return _of_queries(call, lambda rows: rows.unflatten(-1, (call.heads, -1)))._replace(layout="BSND")


def _of_queries(call: Inference, change: Callable[[Tensor], Tensor]) -> Inference:
    """Returns the call with `change` applied to its query and query_rope."""
    rope = None if call.query_rope is None else change(call.query_rope)
    return call._replace(query=change(call.query), query_rope=rope)


def _check_int8(call: Inference) -> None:
    """Raises ValueError for arguments that are not allowed with int8 queries."""
    given = {"q_rope": call.query_rope is not None, "sink": call.sink is not None, "return_lse": call.return_lse}
    for name in given:
        if given[name]:
            raise call.refuse(name, ": given with int8 queries, want none")


_verified: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # checked masks, by address, type and version


def _check_triangle(call: Inference) -> None:
    """Raises ValueError unless the mask is the compressed one: [2048, 2048], ones strictly above the diagonal."""
    mask = call.dense_mask
    if tuple(mask.shape[-2:]) != (2048, 2048) or mask.numel() != 2048 * 2048:
        raise call.refuse("dense_mask", f".shape={list(mask.shape)}, want [2048,2048] (sparse_mode {call.sparse_mode})")
    if torch.compiler.is_compiling() or mask.is_meta or type(mask) is not Tensor:
        return
    key = (mask.data_ptr(), mask.dtype, version_of(mask))
    if _verified.get(key) is mask:
        return
    if not torch.equal(mask.reshape(2048, 2048).bool(), torch.ones(2048, 2048, dtype=torch.bool).triu(1)):
        raise call.refuse("dense_mask", f": want ones strictly above the diagonal (sparse_mode {call.sparse_mode})")
    _verified[key] = mask


class _Masking(NamedTuple):
    rule: str
    pre: int
    next: int
    dense_mask: Optional[Tensor]


def _masking(call: Inference, rows: int, batch: int, packed: bool) -> _Masking:
    """Returns the rule and the mask of a decode. As on the device, a single row sees every key in modes 2 and 3. It
    needs no mask in modes 2, 3 and 4, unless it is packed or has a query_rope. A mask of two dimensions is [B, S] for a
    single row that is not packed, and [Sq, S] otherwise."""
    mask, mode = call.dense_mask, call.sparse_mode
    single = rows == 1 and not packed and call.query_rope is None
    if mode >= 2:
        if mask is not None:
            _check_triangle(call)
        elif not single:
            _checked_mode(call)
        if mode == 4:
            return _Masking("band", _unlimited(call.pre_tokens), _unlimited(call.next_tokens), None)
        return _Masking("none" if single else "causal" if mode == 3 else "causal_top_left", 0, 0, None)
    if mask is None:
        return _Masking("none", 0, 0, None)
    if packed and mask.dim() == 2 and mask.shape[0] != rows:
        raise call.refuse("dense_mask", f".shape={list(mask.shape)}, want [{rows},Sk] (longest query sequence)")
    if mask.dim() == 2 and (packed or rows > 1):
        mask = mask[None]
    if mask.dim() >= 3 and mask.shape[-2] > rows:
        mask = mask[..., :rows, :]
    mask = mask.expand(batch, *mask.shape[1:]) if mask.shape[0] == 1 else mask
    limited = mode == 0 and not single and min(call.pre_tokens, call.next_tokens) < MAX_TOKENS
    rule = "band_top_left" if limited else "none"
    return _Masking(rule, _unlimited(call.pre_tokens), _unlimited(call.next_tokens), mask)


def _unlimited(tokens: int) -> int:
    return UNLIMITED if tokens >= MAX_TOKENS else tokens


def _decode(call: Inference, packed: bool = False) -> tuple[Tensor, Tensor]:
    """Computes the call by the decode operator. `packed` says that the rows are padded packed sequences."""
    rows_axis = _ROWS_AXIS[call.layout]
    rows = call.query.shape[rows_axis] if call.query.dim() > rows_axis else 1
    masking = _masking(call, rows, call.query.shape[0], packed)
    pse = call.pse
    if pse is not None and pse.dim() == 4 and pse.shape[2] > rows:
        pse = pse[:, :, :rows]
    decode = DecodeCall(
        query_rope=call.query_rope,
        key_rope=() if call.key_rope is None else [call.key_rope],
        block_table=call.block_table,
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
        pse=pse,
        dense_mask=masking.dense_mask,
        sink=None if call.sink is None else call.sink.float(),
        quant_scale2=call.quant_scale2,
        quant_offset2=call.quant_offset2,
        layout=call.layout,
        heads=call.heads,
        scale=call.scale,
        rule=masking.rule,
        pre=masking.pre,
        next=masking.next,
        return_lse=call.return_lse,
    )
    with own_names(call.names):
        return attend_cached(call.query, [call.key], [call.value], call.lengths_q, call.lengths_kv, decode)


def _prompt(call: Inference) -> tuple[Tensor, Tensor]:
    prompt = PromptCall(
        pse=call.pse,
        dense_mask=call.dense_mask,
        deq_scale1=call.product_scales[0],
        quant_scale1=call.product_scales[1],
        deq_scale2=call.product_scales[2],
        quant_scale2=call.quant_scale2,
        quant_offset2=call.quant_offset2,
        layout=call.layout,
        heads=call.heads,
        heads_kv=call.heads_kv or call.heads,
        scale=call.scale,
        sparse_mode=_checked_mode(call),
        pre_tokens=call.pre_tokens,
        next_tokens=call.next_tokens,
        lengths_q=integers(call.lengths_q, call.names["lengths_q"]),
        lengths_kv=integers(call.lengths_kv, call.names["lengths_kv"]),
    )
    with own_names(call.names):
        out = _torch_ops.prompt_attention(call.query, call.key, call.value, *prompt)
    return out, call.query.new_empty(0, dtype=torch.float32)


def _checked_mode(call: Inference) -> int:
    """Returns the sparse mode. Raises ValueError for a mode from 2 on without its mask, because the device would then
    drop the mode's rule."""
    if call.sparse_mode >= 2 and call.dense_mask is None:
        raise call.refuse("dense_mask", f": missing, want [2048,2048] (sparse_mode {call.sparse_mode})")
    return call.sparse_mode


def _packed(call: Inference) -> tuple[Tensor, Tensor]:
    """Computes a call of layout TND, in which both lengths_q and lengths_kv are prefix sums."""
    for name in ("lengths_q", "lengths_kv"):
        if getattr(call, name) is None:
            raise call.refuse(name, ": missing, want prefix sums (layout TND)")
    plain = call.query_rope is None and call.sink is None and not call.return_lse
    if call.query.dtype == torch.int8 or (plain and call.quant_scale2 is not None):
        return _prompt(call)
    if call.quant_scale2 is not None:
        raise call.refuse("quant_scale2", ": given with split heads, sinks or lse in layout TND, want none")
    if call.antiquant_scale is not None or call.k_scale is not None:
        name = "k_scale" if call.antiquant_scale is None else "antiquant_scale"
        raise call.refuse(name, ": given in layout TND, want block_table with it")
    dense = Call(
        layout="TND",
        heads=call.heads,
        scale=call.scale,
        sparse_mode=_checked_mode(call),
        pse_type=1 if call.pse is None else 0,  # pse is added after scaling
        query_rope=call.query_rope,
        key_rope=call.key_rope,
        pse=call.pse,
        dense_mask=call.dense_mask,
        sink=None if call.sink is None else call.sink.float(),
        pre_tokens=call.pre_tokens,
        next_tokens=call.next_tokens,
        cu_q=integers(call.lengths_q, call.names["lengths_q"]),
        cu_kv=integers(call.lengths_kv, call.names["lengths_kv"]),
    )
    with own_names(call.names):
        out, top, total = _torch_ops.attention(call.query, call.key, call.value, *dense)
    if not call.return_lse:
        return out, top.new_empty(0)
    absent = (total == 0) | (total == torch.finfo(torch.float32).max)
    return out, torch.where(absent, -torch.inf, top + total.log())


def _packed_pages(call: Inference) -> tuple[Tensor, Tensor]:
    """Computes a call of layout TND over pages. lengths_q are prefix sums, lengths_kv are lengths. The sequences are
    padded to equal numbers of queries, which are few."""
    if call.lengths_q is None:
        raise call.refuse("lengths_q", ": missing, want prefix sums (layout TND)")
    if call.query.dim() != 3:
        raise call.refuse("q", f".shape={list(call.query.shape)}, want [T, N, D]")
    ends = integers(call.lengths_q, call.names["lengths_q"])
    tokens = call.query.shape[0]
    lengths = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    if any(length < 0 for length in lengths) or (ends and ends[-1] > tokens):
        raise call.refuse("lengths_q", f"={ends}, want ascending prefix sums up to {tokens} (query.shape[0])")
    rows = max(lengths, default=0)
    padded = call._replace(layout="BSND", lengths_q=lengths)
    if lengths == [rows] * len(lengths) and rows * len(lengths) == tokens:
        out, lse = _decode(_of_queries(padded, lambda tokens: tokens.unflatten(0, (len(lengths), rows))), packed=True)
        return out.flatten(0, 1), lse.transpose(1, 2).flatten(0, 1) if call.return_lse else lse

    def of_equal_rows(queries: Tensor) -> Tensor:
        pieces = queries[: sum(lengths)].split(lengths)
        return torch.stack([pad(piece, (0, 0, 0, 0, 0, rows - piece.shape[0])) for piece in pieces])

    out, lse = _decode(_of_queries(padded, of_equal_rows), packed=True)

    def packed(rows_of_all: Tensor, unused: float) -> Tensor:
        used = torch.cat([sequence[:length] for sequence, length in zip(rows_of_all, lengths, strict=True)])
        return pad(used, (0,) * (2 * used.dim() - 1) + (tokens - used.shape[0],), value=unused)

    return packed(out, 0), packed(lse.transpose(1, 2), -torch.inf) if call.return_lse else lse
