"""torch_npu's functions for attention with a mask of blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._attention import integers
from .._errors import own_names
from .._torch import block_ops
from .._torch.block_ops import BlockCall
from .._torch.operators import call as call_operator
from .calls import TENSOR_NAMES, checked
from .inference import Lengths

_NAMES = TENSOR_NAMES | {
    "pair_mask": "block_sparse_mask",
    "dense_mask": "block_sparse_mask",
    "blocks": "block_sparse_mask",
    "rows": "query",
    "keys": "key",
    "scale": "scale_value",
    "layout": "q_input_layout",
    "lengths_q": "actual_seq_lengths",
    "lengths_kv": "actual_seq_lengths_kv",
    "cu_q": "actual_seq_lengths",
    "cu_kv": "actual_seq_lengths_kv",
}
_GRAD_NAMES = _NAMES | {"out": "attention_out", "softmax_max": "softmax_lse"}


def check_lengths(name: str, lengths: list[int], batch: int, rows: int, packed: bool) -> None:
    """Checks the lengths of sequences. `rows` is the number of rows per batch element, or in TND of all sequences
    together.
    """
    if len(lengths) != batch:
        raise ValueError(f"invalid argument: {name} has {len(lengths)} entries, want {batch}")
    left = rows
    for b, length in enumerate(lengths):
        if not 0 <= length <= left:
            raise ValueError(f"invalid argument: {name}[{b}]={length}, want 0..{left}")
        left -= length if packed else 0


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_sparse_mask: Tensor | None,
    block_shape: Sequence[int] | None,
    layouts: tuple[str, str],
    num_key_value_heads: int,
    scale_value: float,
    lengths: tuple[Lengths, Lengths],
) -> BlockCall:
    layout, layout_kv = layouts
    if layout not in ("TND", "BNSD", "BSND"):
        raise ValueError(f'invalid argument: q_input_layout="{layout}", want "TND", "BNSD" or "BSND"')
    if layout_kv != layout:
        raise ValueError(f'invalid argument: kv_input_layout="{layout_kv}", want "{layout}" (q_input_layout)')
    packed = layout == "TND"
    rank, heads, rows = (3, 1, 0) if packed else (4, 2, 1) if layout == "BSND" else (4, 1, 2)
    for name, tensor in (("query", query), ("key", key)):
        if tensor.dim() != rank:
            raise ValueError(f"invalid argument: {name} has {tensor.dim()} dimensions, want {rank} ({layout})")
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dtype != query.dtype:
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want {query.dtype} (query.dtype)")
    if key.shape[heads] != num_key_value_heads:
        raise ValueError(f"invalid argument: num_key_value_heads={num_key_value_heads}, want {key.shape[heads]} (key)")
    block = [128, 128] if block_shape is None else integers(block_shape, "block_shape")
    if len(block) != 2 or min(block) < 1:
        raise ValueError(f"invalid argument: block_shape={block}, want two integers >= 1")
    used = [integers(given, name) for given, name in zip(lengths, _LENGTHS, strict=True)]  # type: ignore[arg-type]
    batch = len(used[0]) if packed else query.shape[0]
    for name, given, values, tensor in zip(_LENGTHS, lengths, used, (query, key), strict=True):
        if packed and given is None:
            raise ValueError(f"invalid argument: {name}: missing, want one length per sequence (q_input_layout TND)")
        if given is not None:
            check_lengths(name, values, batch, tensor.shape[rows], packed)
    if batch == 0 and packed:
        raise ValueError("invalid argument: actual_seq_lengths has 0 entries, want at least 1")
    return BlockCall(block_sparse_mask, layout, block[0], block[1], used[0], used[1], float(scale_value))


_LENGTHS = "actual_seq_lengths", "actual_seq_lengths_kv"


@checked
def npu_block_sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_sparse_mask: Tensor | None,
    block_shape: Sequence[int] | None,
    *,
    q_input_layout: str = "TND",
    kv_input_layout: str = "TND",
    num_key_value_heads: int = 1,
    scale_value: float = 0.0,
    inner_precise: int = 1,
    actual_seq_lengths: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_kv: Tensor | Sequence[int] | None = None,
    softmax_lse_flag: int = 0,
) -> tuple[Tensor, Tensor]:
    """Computes attention in which a mask keeps or drops whole blocks of query rows and keys. query, key and value have
    a gradient.

    Args:
        query, key, value: in layout "TND", "BNSD" or "BSND", the same for all; float32, bfloat16 or float16.
        block_sparse_mask: bool, int8 or uint8 [B|1,N|Nkv|1,ceil(Sq/x),ceil(Skv/y)], 0 = drop. In TND, Sq and Skv are
            those of the longest sequences. None keeps every block.
        block_shape: x and y; None means 128 and 128.
        scale_value: the factor of the scores; 0.0 does not stand for a default.
        inner_precise: not used.
        actual_seq_lengths, actual_seq_lengths_kv: lengths, one per batch element. TND needs both.
        softmax_lse_flag: with 1 the lse is returned too.

    Returns:
        The output, and the lse, float32 [T,N,1], [B,N,S,1] or [B,S,N,1]. Without the flag the lse has no elements. Rows
        past a length, and rows without keys, have 0 and an lse of +inf.

    Raises:
        ValueError: an argument is wrong.
    """
    if softmax_lse_flag not in (0, 1):
        raise ValueError(f"invalid argument: softmax_lse_flag={softmax_lse_flag}, want 0 or 1")
    layouts, lengths = (q_input_layout, kv_input_layout), (actual_seq_lengths, actual_seq_lengths_kv)
    tensors = query, key, value
    rest = _call(*tensors, block_sparse_mask, block_shape, layouts, num_key_value_heads, scale_value, lengths)
    with own_names(_NAMES):
        out, lse = call_operator(block_ops.block_sparse_attention, (*tensors, block_sparse_mask), *tensors, *rest)
    return out, lse if softmax_lse_flag == 1 else query.new_empty(0, dtype=torch.float32)


@checked
def npu_block_sparse_attention_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_out: Tensor,
    softmax_lse: Tensor,
    block_sparse_mask: Tensor | None,
    block_shape: Sequence[int] | None,
    actual_seq_lengths: Tensor | Sequence[int] | None,
    actual_seq_lengths_kv: Tensor | Sequence[int] | None,
    q_input_layout: str,
    kv_input_layout: str,
    num_key_value_heads: int,
    scale_value: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the gradients dq, dk and dv of `npu_block_sparse_attention` from its results.

    Args:
        d_out: gradient of attention_out, with its shape and type: [T,N,Dv] in TND.
        softmax_lse: the lse of the forward. A row whose lse is infinite has no keys.

    Raises:
        ValueError: an argument is wrong.
    """
    layouts, lengths = (q_input_layout, kv_input_layout), (actual_seq_lengths, actual_seq_lengths_kv)
    tensors = query, key, value
    rest = _call(*tensors, block_sparse_mask, block_shape, layouts, num_key_value_heads, scale_value, lengths)
    if softmax_lse.shape != (*query.shape[:-1], 1):
        want = [*query.shape[:-1], 1]
        raise ValueError(f"invalid argument: softmax_lse.shape={list(softmax_lse.shape)}, want {want}")
    with own_names(_GRAD_NAMES):
        given = *tensors, attention_out, d_out, softmax_lse
        operator = block_ops.block_sparse_attention_backward
        return call_operator(operator, (*given, block_sparse_mask), *given, *rest)
