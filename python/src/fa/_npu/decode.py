"""torch_npu's functions for inference over caches."""

from __future__ import annotations

import torch
from torch import Tensor

from .calls import checked
from .fused import FUSED_NAMES
from .inference import ROWS_AXIS, Inference, Lengths, attend
from .scales import NO_SCALES

_INCRE_NAMES = FUSED_NAMES | {"scale": "scale_value", "lengths_kv": "actual_seq_lengths"}
_INCRE_NAMES |= {"k_scale": "antiquant_scale", "v_scale": "antiquant_scale"}
_PAGED_NAMES = {
    "q": "query",
    "k": "key_cache",
    "v": "value_cache",
    "heads": "num_heads",
    "heads_kv": "num_kv_heads",
    "lengths_kv": "context_lens",
    "scale": "scale_value",
}


@checked
def npu_incre_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    pse_shift: Tensor | None = None,
    actual_seq_lengths: Lengths = None,
    antiquant_scale: Tensor | None = None,
    antiquant_offset: Tensor | None = None,
    block_table: Tensor | None = None,
    dequant_scale1: Tensor | None = None,
    quant_scale1: Tensor | None = None,
    dequant_scale2: Tensor | None = None,
    quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None,
    kv_padding_size: Tensor | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_size: int = 0,
    inner_precise: int = 1,
) -> Tensor:
    """Computes attention of one query row per sequence over a cache, which is read in place. There is no gradient.

    Args:
        query: [B,N,1,D] in input_layout "BSH", "BSND" or "BNSD"; float32, bfloat16, float16.
        key, value: [B,Nkv,S,D], type of query, int8, or int32 with eight numbers of 4 bits per element, [B,Nkv,S,D/8].
            With block_table they are pages [blocks,block size,Nkv·D] or [blocks,Nkv,block size,D]. Pages of four
            dimensions that do not fit num_key_value_heads and block_size in this order are [blocks,block size,Nkv,D].
        atten_mask: bool, int8 or uint8, 1 = drop: [B,S], [B,1,S], [B,1,1,S].
        pse_shift: [B|1,N,1,S].
        actual_seq_lengths: how many keys of each batch element are in use; one entry holds for all. block_table needs
            it.
        antiquant_scale, antiquant_offset: scales and offsets of int8 and int32 keys and values: [2], or per column.
        quant_scale2, quant_offset2: scales and offsets of an int8 output.
        dequant_scale1, quant_scale1, dequant_scale2: scales that int8 queries need, one element each.
            `npu_prompt_flash_attention` calls them deq_scale1, quant_scale1 and deq_scale2.
        kv_padding_size: int64 [1], how many rows follow the last key in use.

    Raises:
        ValueError: an argument is wrong or refused.
    """
    if input_layout.upper() not in ("BSH", "BSND", "BNSD"):
        raise ValueError(f'invalid argument: input_layout="{input_layout}", want BSH, BSND or BNSD')
    if atten_mask is not None and atten_mask.dim() == 2:
        atten_mask = atten_mask[:, None]
    axis = ROWS_AXIS[input_layout.upper()]
    if atten_mask is not None and atten_mask.dim() > 2 and query.dim() > axis and atten_mask.shape[-2] == 1:
        atten_mask = atten_mask.expand(*atten_mask.shape[:-2], query.shape[axis], -1)
    scales = dequant_scale1, quant_scale1, dequant_scale2
    own = NO_SCALES | {"antiquant_scale": antiquant_scale, "antiquant_offset": antiquant_offset}
    return attend(Inference.of(locals(), _INCRE_NAMES, lengths_q=None, product_scales=scales, **own))[0]


@checked
def _npu_paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
    workspace: Tensor | None = None,
) -> None:
    """Computes attention of one query row per sequence over the sequence's pages, and writes it into `out`.

    Args:
        query: [B,N,D]; float32, bfloat16 or float16.
        key_cache, value_cache: [blocks,block size,Nkv,D], always in this order; type of query. They are read in place.
        block_table: int32 [B,n].
        context_lens: integers [B], the number of keys of each sequence.
        out: [B,N,Dv] or [B,N·Dv], type of query.
        workspace: not needed.

    Raises:
        ValueError: an argument is wrong.
    """
    for name, pages in (("key_cache", key_cache), ("value_cache", value_cache)):
        if pages.dim() != 4 or pages.shape[2] != num_kv_heads:
            want = f"want [blocks, block size, {num_kv_heads} (num_kv_heads), head size]"
            raise ValueError(f"invalid argument: {name}.shape={list(pages.shape)}, {want}")
    if query.dim() != 3:
        raise ValueError(f"invalid argument: query.shape={list(query.shape)}, want [B, N, D]")
    batch, heads, _ = query.shape
    shapes = [batch, heads, value_cache.shape[3]], [batch, heads * value_cache.shape[3]]
    if list(out.shape) not in shapes:
        raise ValueError(f"invalid argument: out.shape={list(out.shape)}, want {shapes[0]} or {shapes[1]}")
    if out.dtype != query.dtype:
        raise ValueError(f"invalid argument: out.dtype={out.dtype}, want {query.dtype}")
    # The pages are passed with their heads first, because `attend` tries this order first, whatever the sizes are.
    call = Inference(
        query.unsqueeze(1),
        key_cache.transpose(1, 2),
        value_cache.transpose(1, 2),
        _PAGED_NAMES,
        "BSND",
        num_heads,
        num_kv_heads,
        scale_value,
        lengths_kv=context_lens,
        block_table=block_table,
        block_size=key_cache.shape[1],
    )
    with torch.no_grad():
        rows = out.unflatten(1, (heads, -1)) if out.dim() == 2 else out
        attend(call, (rows.unsqueeze(1), rows))
