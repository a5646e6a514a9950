"""torch_npu's functions for inference over caches."""

from __future__ import annotations

import torch
from torch import Tensor

from .calls import PROMPT_NAMES, checked
from .inference import MAX_TOKENS, Inference, Lengths, attend, refuse_given
from .scales import NO_SCALES, SEPARATE, SEPARATE_V2, KeySizes, separate_scales

# Argument names: {the library's name: torch_npu's name}.
_FUSED_NAMES = PROMPT_NAMES | {"product_scales": "dequant_scale1", "scale": "scale", "return_lse": "softmax_lse_flag"}
_FUSED_NAMES |= {"deq_scale1": "dequant_scale1", "deq_scale2": "dequant_scale2"}
_FUSED_NAMES |= {"k_scale": "key_antiquant_scale", "v_scale": "value_antiquant_scale"}
_FUSED_NAMES |= {"k_offset": "key_antiquant_offset", "v_offset": "value_antiquant_offset"}
_INCRE_NAMES = _FUSED_NAMES | {"scale": "scale_value", "lengths_kv": "actual_seq_lengths"}
_INCRE_NAMES |= {"k_scale": "antiquant_scale", "v_scale": "antiquant_scale"}
_FUSED_V2_NAMES = _FUSED_NAMES | {
    "heads": "num_query_heads",
    "scale": "softmax_scale",
    "lengths_q": "actual_seq_qlen",
    "lengths_kv": "actual_seq_kvlen",
    "cu_q": "actual_seq_qlen",
    "cu_kv": "actual_seq_kvlen",
    "antiquant_scale": "dequant_scale_key",
    "antiquant_offset": "dequant_offset_key",
    "k_scale": "dequant_scale_key",
    "v_scale": "dequant_scale_value",
    "k_offset": "dequant_offset_key",
    "v_offset": "dequant_offset_value",
    "quant_scale2": "quant_scale_out",
    "quant_offset2": "quant_offset_out",
    "sink": "learnable_sink",
    "return_lse": "return_softmax_lse",
}
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
        kv_padding_size: refused.

    Raises:
        ValueError: an argument is wrong or refused.
    """
    refuse_given("keys begin in row 0", kv_padding_size=kv_padding_size)
    if input_layout.upper() not in ("BSH", "BSND", "BNSD"):
        raise ValueError(f'invalid argument: input_layout="{input_layout}", want BSH, BSND or BNSD')
    if atten_mask is not None and atten_mask.dim() == 2:
        atten_mask = atten_mask[:, None]
    scales = dequant_scale1, quant_scale1, dequant_scale2
    own = NO_SCALES | {"antiquant_scale": antiquant_scale, "antiquant_offset": antiquant_offset}
    return attend(Inference.of(locals(), _INCRE_NAMES, lengths_q=None, product_scales=scales, **own))[0]


@checked
def npu_fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pse_shift: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Lengths = None,
    actual_seq_lengths_kv: Lengths = None,
    dequant_scale1: Tensor | None = None,
    quant_scale1: Tensor | None = None,
    dequant_scale2: Tensor | None = None,
    quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None,
    antiquant_scale: Tensor | None = None,
    antiquant_offset: Tensor | None = None,
    key_antiquant_scale: Tensor | None = None,
    key_antiquant_offset: Tensor | None = None,
    value_antiquant_scale: Tensor | None = None,
    value_antiquant_offset: Tensor | None = None,
    block_table: Tensor | None = None,
    query_padding_size: Tensor | None = None,
    kv_padding_size: Tensor | None = None,
    key_shared_prefix: Tensor | None = None,
    value_shared_prefix: Tensor | None = None,
    actual_shared_prefix_len: Lengths = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    key_rope_antiquant_scale: Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = MAX_TOKENS,
    next_tokens: int = MAX_TOKENS,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    inner_precise: int = 0,
    block_size: int = 0,
    antiquant_mode: int = 0,
    softmax_lse_flag: bool = False,
    key_antiquant_mode: int = 0,
    value_antiquant_mode: int = 0,
) -> tuple[Tensor, Tensor]:
    """Computes attention of a prompt, or of queries over a cache. There is no gradient.

    Args:
        query: [B,N,Sq,D] in input_layout "BSH", "BSND", "BNSD", "BNSD_BSND" or "TND"; float32, bfloat16, float16, int8.
            int8 needs dequant_scale1, quant_scale1 and dequant_scale2, as in `npu_prompt_flash_attention`.
        key, value: [B,Nkv,S,D], type of query, int8, float8_e4m3fn, or int32 with eight numbers of 4 bits per element,
            [B,Nkv,S,D/8]. With block_table they are pages, which are read in place:
            [blocks,block size,Nkv·D] or [blocks,Nkv,block size,D]. Pages of four dimensions that do not fit
            num_key_value_heads and block_size in this order are [blocks,block size,Nkv,D].
        atten_mask: as in `npu_prompt_flash_attention`. For single queries it is [B,S], [B,1,S] or [B,1,1,S]. For TND it
            is [rows,S] with the rows of the longest query sequence.
        sparse_mode: modes 0 and 1 compute all pairs without atten_mask. With it, mode 0 also keeps only the band of
            pre_tokens and next_tokens. Modes 2, 3 and 4 take the atten_mask [2048,2048] and are refused without it.
            Single queries need no mask, except in TND or with query_rope. For them modes 2 and 3 keep every key, mode 4
            keeps its band, and mode 0 has no band.
        actual_seq_lengths, actual_seq_lengths_kv: how many rows of each batch element are in use; one entry holds for
            all. For TND they are inclusive prefix sums, except for keys in pages, which have lengths.
        antiquant_scale, antiquant_offset: scales and offsets of these keys and values. Mode 0 is per tensor or column,
            mode 1 per token. key_antiquant_scale, ... give them separately, and count instead. They have more modes: 2
            per head [Nkv], 3 per token and head [B,Nkv,S] without block_table, and with it 4 per row [blocks,block
            size] and 5 per row and head [blocks,Nkv,block size]. With block_table, mode 1 is for both. In layout TND,
            scales need block_table.
        query_rope, key_rope: second parts of queries and keys, in the form of query and key, also in pages. Scores are
            then Q K^T + Qr Kr^T. Keys are read in place.
        query_padding_size, kv_padding_size, key_shared_prefix, value_shared_prefix, actual_shared_prefix_len,
            key_rope_antiquant_scale: refused.

    Returns:
        attention_out and softmax_lse, float32 [B,N,Sq,1], TND [T,N,1], +inf for a row without keys. Without
        softmax_lse_flag softmax_lse has no elements.

    Raises:
        ValueError: an argument is wrong or refused.
    """
    refuse_given("rows begin at 0", query_padding_size=query_padding_size, kv_padding_size=kv_padding_size)
    refuse_given(
        "prefixes belong to each batch element's keys",
        key_shared_prefix=key_shared_prefix,
        value_shared_prefix=value_shared_prefix,
        actual_shared_prefix_len=actual_shared_prefix_len,
    )
    refuse_given("split heads are no int8", key_rope_antiquant_scale=key_rope_antiquant_scale)
    if antiquant_mode not in (0, 1):
        raise ValueError(f"invalid argument: antiquant_mode={antiquant_mode}, want 0 (per column) or 1 (per token)")
    keys, values = (key_antiquant_scale, key_antiquant_offset), (value_antiquant_scale, value_antiquant_offset)
    modes, in_pages = (key_antiquant_mode, value_antiquant_mode), (block_table, block_size)
    sizes = [KeySizes.of(t, input_layout, num_key_value_heads or num_heads, *in_pages) for t in (key, value)]
    combined = {"antiquant_scale": antiquant_scale, "antiquant_offset": antiquant_offset}
    combined["antiquant_per_token"] = antiquant_mode == 1
    own = NO_SCALES | (separate_scales(keys, values, modes, sizes, SEPARATE) or combined)
    scales = dequant_scale1, quant_scale1, dequant_scale2
    return attend(Inference.of(locals(), _FUSED_NAMES, product_scales=scales, **own))


@checked
def npu_fused_infer_attention_score_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    pse_shift: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Lengths = None,
    actual_seq_kvlen: Lengths = None,
    block_table: Tensor | None = None,
    dequant_scale_query: Tensor | None = None,
    dequant_scale_key: Tensor | None = None,
    dequant_offset_key: Tensor | None = None,
    dequant_scale_value: Tensor | None = None,
    dequant_offset_value: Tensor | None = None,
    dequant_scale_key_rope: Tensor | None = None,
    quant_scale_out: Tensor | None = None,
    quant_offset_out: Tensor | None = None,
    learnable_sink: Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = MAX_TOKENS,
    next_tokens: int = MAX_TOKENS,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    value_quant_mode: int = 0,
    inner_precise: int = 0,
    return_softmax_lse: bool = False,
    query_dtype: int | None = None,
    key_dtype: int | None = None,
    value_dtype: int | None = None,
    query_rope_dtype: int | None = None,
    key_rope_dtype: int | None = None,
    key_shared_prefix_dtype: int | None = None,
    value_shared_prefix_dtype: int | None = None,
    dequant_scale_query_dtype: int | None = None,
    dequant_scale_key_dtype: int | None = None,
    dequant_scale_value_dtype: int | None = None,
    dequant_scale_key_rope_dtype: int | None = None,
    out_dtype: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes `npu_fused_infer_attention_score` under other argument names, and with sinks.

    Args:
        learnable_sink: [N], the score of a virtual key whose value is 0.
        dequant_scale_key, dequant_offset_key, ...: separate scales and offsets of keys and of values.
        key_quant_mode, value_quant_mode: as key_antiquant_mode and value_antiquant_mode.
        quant_scale_out, quant_offset_out: scales and offsets of an int8 output.
        dequant_scale_query, dequant_scale_key_rope, query_quant_mode and every ..._dtype: refused.
    """
    refuse_given("queries are floats", dequant_scale_query=dequant_scale_query, query_quant_mode=query_quant_mode or None)
    refuse_given("split heads are no int8", dequant_scale_key_rope=dequant_scale_key_rope)
    refuse_given(
        "types are those of the tensors",
        query_dtype=query_dtype,
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        query_rope_dtype=query_rope_dtype,
        key_rope_dtype=key_rope_dtype,
        key_shared_prefix_dtype=key_shared_prefix_dtype,
        value_shared_prefix_dtype=value_shared_prefix_dtype,
        dequant_scale_query_dtype=dequant_scale_query_dtype,
        dequant_scale_key_dtype=dequant_scale_key_dtype,
        dequant_scale_value_dtype=dequant_scale_value_dtype,
        dequant_scale_key_rope_dtype=dequant_scale_key_rope_dtype,
        out_dtype=out_dtype,
    )
    keys, values = (dequant_scale_key, dequant_offset_key), (dequant_scale_value, dequant_offset_value)
    modes = key_quant_mode, value_quant_mode
    heads, in_pages = num_key_value_heads or num_query_heads, (block_table, block_size)
    sizes = [KeySizes.of(t, input_layout, heads, *in_pages) for t in (key, value)]
    own = NO_SCALES | separate_scales(keys, values, modes, sizes, SEPARATE_V2)
    return attend(Inference.of(locals(), _FUSED_V2_NAMES, product_scales=(None, None, None), **own))


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
    result = attend(call)[0].squeeze(1)
    shapes = list(result.shape), list(result.flatten(1).shape)
    if list(out.shape) not in shapes:
        raise ValueError(f"invalid argument: out.shape={list(out.shape)}, want {shapes[0]} or {shapes[1]}")
    if out.dtype != result.dtype:
        raise ValueError(f"invalid argument: out.dtype={out.dtype}, want {result.dtype}")
    with torch.no_grad():
        out.copy_(result.reshape(out.shape))
