"""torch_npu's functions for sparse attention over quantised keys, and the indexers of quantised or compressed keys.

`fa.torch_npu.install` also offers these functions under the names of other NPU packages (`C_ASCEND`, `CUSTOM`,
`CANN_OPS`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._errors import own_names
from .._torch.given_loss import GivenLossCall, given_loss_gradients
from .._torch.lengths import as_tensor
from .._torch.quantized_sparse import (
    RowsCall,
    SelectionCall,
    indexer_selection,
    quantized_sparse_attention,
)
from .calls import TENSOR_NAMES, checked
from .dtypes import typed
from .indexer_metadata import (
    lightning_indexer_metadata,
    npu_quant_lightning_indexer_metadata,
    quant_lightning_indexer_metadata,
)
from .sparse_checks import (
    SECOND_INDEXER_PAGES,
    at_least,
    common_layout,
    only,
    say_with_zeros,
    shape_text,
    sums_without_zeros,
)

_MAX_TOKENS = 9223372036854775807
_SAY = say_with_zeros("cu_seqlens_q", "cu_seqlens_k")

# Argument names: {the library's name: the function's name}.
_ROW_NAMES = TENSOR_NAMES | {
    "mask": "sparse_mode",
    "block_size": "sparse_block_size",
    "scale": "scale_value",
    "lengths_q": "actual_seq_lengths_query",
    "lengths_kv": "actual_seq_lengths_kv",
    "layout": "layout_query",
    "sink": "sinks",
    "row_format": "key_quant_mode",
    "row_format.columns": "rope_head_dim",
    "row_format.rope": "rope_head_dim",
    "row_format.tile": "tile_size",
}
_QUANT_NAMES = TENSOR_NAMES | {
    "mask": "sparse_mode",
    "lengths_q": "actual_seq_lengths_query",
    "lengths_kv": "actual_seq_lengths_key",
    "layout": "layout_query",
    "q_scale": "query_dequant_scale",
    "k_scale": "key_dequant_scale",
}
_SECOND_NAMES = {
    "weights": "w",
    "mask": "mask_mode",
    "sparse_mode": "mask_mode",
    "sparse_count": "topk",
    "layout": "layout_q",
    "used_q": "seqused_q",
    "used_kv": "seqused_k",
    "residual_kv": "cmp_residual_k",
    "index_offset": "output_idx_offset",
}
_QUANT_SECOND_NAMES = _SECOND_NAMES | {
    "q": "query",
    "k": "key",
    "weights": "weights",
    "q_scale": "query_dequant_scale",
    "k_scale": "key_dequant_scale",
}


def _is_key(key: Tensor, value: Tensor) -> bool:
    return value is key or (
        value.data_ptr() == key.data_ptr()
        and (value.dtype, value.shape, value.stride()) == (key.dtype, key.shape, key.stride())
    )


def _attend_rows(given: dict) -> tuple[Tensor, Tensor, Tensor]:
    """Computes npu_kv_quant_sparse_flash_attention and its statistics from the arguments of either form."""
    only(
        key_quant_mode=(given["key_quant_mode"], (2,)),
        value_quant_mode=(given["value_quant_mode"], (2,)),
        attention_mode=(given["attention_mode"], (0, 2)),
        quant_scale_repo_mode=(given["quant_scale_repo_mode"], (1,)),
    )
    for name in ("key_dequant_scale", "value_dequant_scale"):
        if given[name] is not None:
            raise ValueError(f"invalid argument: {name}: given, want None: scales lie in the rows of key")
    layout = common_layout(
        ("layout_query", given["layout_query"]), ("layout_kv", given["layout_kv"]), given["block_table"]
    )
    query, rope, last = given["query"], given["rope_head_dim"], 2 if layout == "TND" else 3
    if query.dim() != last + 1:
        raise ValueError(f"invalid argument: query.shape={shape_text(query)}, want {last + 1} dimensions ({layout})")
    if query.shape[last] == 0:
        raise ValueError(f"invalid argument: query.shape[{last}]=0, want >= 1")
    if not 0 <= rope < query.shape[last]:
        raise ValueError(
            f"invalid argument: rope_head_dim={rope}, want 0..{query.shape[last] - 1} (query.shape[{last}])"
        )
    key = typed(given["key"], given.get("key_dtype"), "key_dtype")
    value = typed(given["value"], given.get("value_dtype"), "value_dtype")
    assert key is not None and value is not None
    call = RowsCall(
        sparse_indices=given["sparse_indices"],
        sink=given.get("sinks"),
        block_table=given["block_table"],
        lengths_q=as_tensor(given["actual_seq_lengths_query"]),
        lengths_kv=as_tensor(given["actual_seq_lengths_kv"]),
        layout=layout,
        scale=given["scale_value"],
        block_size=given["sparse_block_size"],
        sparse_mode=given["sparse_mode"],
        rope=rope,
        tile=given["tile_size"],
    )
    with own_names(_ROW_NAMES):
        return quantized_sparse_attention(query, key, None if _is_key(key, value) else value, *call)


@checked
def npu_kv_quant_sparse_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sparse_indices: Tensor,
    scale_value: float,
    key_quant_mode: int,
    value_quant_mode: int,
    *,
    key_dequant_scale: Tensor | None = None,
    value_dequant_scale: Tensor | None = None,
    block_table: Tensor | None = None,
    actual_seq_lengths_query: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_kv: Tensor | Sequence[int] | None = None,
    sparse_block_size: int = 1,
    layout_query: str = "BSND",
    layout_kv: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    attention_mode: int = 0,
    quant_scale_repo_mode: int = 1,
    tile_size: int = 128,
    rope_head_dim: int = 64,
    key_dtype: int | torch.dtype | None = None,
    value_dtype: int | torch.dtype | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Computes `npu_sparse_flash_attention` over rows of quantised keys, which are values too.

    Args:
        query: [B,S1,N,D + rope_head_dim] in layout_query "BSND", [T,N,...] in "TND"; float32, bfloat16, float16.
        key: int8 or float8_e4m3fn [B,S2,1,row bytes], or in layout_kv "PA_BSND" pages. A row has D numbers,
            rope_head_dim columns of query's type, and one float32 scale per tile_size numbers.
        value: key, or a tensor of the same row format.
        key_quant_mode, value_quant_mode, attention_mode: 2; attention_mode 0 means the same.
        key_dequant_scale, value_dequant_scale: None.
        key_dtype, value_dtype: None, or the number of a type. 292 and 36 read int8 and uint8 as float8_e4m3fn.
        sinks: float32 [N], the score of a virtual key whose value is 0.
        sparse_indices, ...: as in `npu_sparse_flash_attention`.

    Returns:
        attention_out [B,S1,N,D], type of query. It has no gradient.

    Raises:
        ValueError: an argument is wrong.
    """
    return _attend_rows(locals())[0]


@checked
def kv_quant_sparse_flash_attention_of_vllm(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sparse_indices: Tensor,
    scale_value: float,
    *,
    key_quant_mode: int = 1,
    value_quant_mode: int = 1,
    key_dequant_scale: Tensor | None = None,
    value_dequant_scale: Tensor | None = None,
    block_table: Tensor | None = None,
    actual_seq_lengths_query: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_kv: Tensor | Sequence[int] | None = None,
    sparse_block_size: int = 1,
    layout_query: str = "BSND",
    layout_kv: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    attention_mode: int = 2,
    quant_scale_repo_mode: int = 1,
    tile_size: int = 128,
    rope_head_dim: int = 64,
    return_softmax_lse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `npu_kv_quant_sparse_flash_attention` in the form of torch.ops._C_ascend. The modes must be given as 2.

    Returns:
        attention_out, and softmax_max and softmax_sum, float32 [B,1,S1,N], TND [1,T,N]. Without return_softmax_lse the
        statistics have no elements.
    """
    out, softmax_max, softmax_sum = _attend_rows(locals())
    if return_softmax_lse:
        return out, softmax_max, softmax_sum
    return out, softmax_max.new_empty(0), softmax_sum.new_empty(0)


def _select_quantized(given: dict) -> tuple[Tensor, Tensor]:
    """Computes the indexer of quantised keys from the arguments of its form in torch_npu, in torch.ops.custom or in
    torch.ops._C_ascend.
    """
    only(query_quant_mode=(given["query_quant_mode"], (0,)), key_quant_mode=(given["key_quant_mode"], (0,)))
    query = typed(given["query"], given.get("query_dtype"), "query_dtype")
    key = typed(given["key"], given.get("key_dtype"), "key_dtype")
    assert query is not None and key is not None
    layout = common_layout(
        ("layout_query", given["layout_query"]), ("layout_key", given["layout_key"]), given["block_table"]
    )
    at_least(1, sparse_count=given["sparse_count"])
    call = SelectionCall(
        q_scale=given["query_dequant_scale"],
        k_scale=given["key_dequant_scale"],
        index_offset=None,
        block_table=given["block_table"],
        lengths_q=as_tensor(given["actual_seq_lengths_query"]),
        lengths_kv=as_tensor(given["actual_seq_lengths_key"]),
        used_q=None,
        used_kv=None,
        residual_kv=given.get("residual"),
        layout=layout,
        sparse_count=given["sparse_count"],
        sparse_mode=given["sparse_mode"],
        cmp_ratio=given.get("cmp_ratio", 1),
        values="float32" if given.get("return_value") else "",
    )
    with own_names(_QUANT_NAMES | given.get("names", {})):
        return indexer_selection(query, key, given["weights"], *call)


@checked
def npu_quant_lightning_indexer(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int,
    key_quant_mode: int,
    *,
    actual_seq_lengths_query: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_key: Tensor | Sequence[int] | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    query_dtype: int | torch.dtype | None = None,
    key_dtype: int | torch.dtype | None = None,
) -> Tensor:
    """Chooses the keys with the largest scores for each query token, from quantised queries and keys.

    A key's score is key_dequant_scale times the sum of weights * query_dequant_scale * relu(query . key) over the
    heads.

    Args:
        query: [B,S1,N,D] in layout_query "BSND", [T,N,D] in "TND"; int8 or float8_e4m3fn.
        key: [B,S2,1,D], type of query, or in layout_key "PA_BSND" pages [blocks,block size,1,D].
        weights: [B,S1,N], any float type.
        query_dequant_scale: [B,S1,N], any float type.
        key_dequant_scale: [B,S2,1] or [B,S2], any float type, or pages of such numbers.
        query_quant_mode, key_quant_mode: 0.
        query_dtype, key_dtype: None, or the number of a type. 292 and 36 read int8 and uint8 as float8_e4m3fn.
        actual_seq_lengths_query, ..., sparse_mode: as in `npu_lightning_indexer`.

    Returns:
        sparse_indices, int32 [B,S1,1,K], with -1 in unused entries.

    Raises:
        ValueError: an argument is wrong.
    """
    return _select_quantized(locals())[0]


@checked
def quant_lightning_indexer_of_vllm(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    metadata: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    cmp_ratio: int = 1,
    return_value: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes `npu_quant_lightning_indexer` for compressed keys, as torch.ops._C_ascend and torch.ops.custom do.

    actual_seq_lengths_key counts tokens, of which each key stands for cmp_ratio. The number of keys is this count
    divided by cmp_ratio, rounded down. The remaining tokens follow the last key's tokens.

    Returns:
        sparse_indices, and the scores as float32, which have no elements without return_value.
    """
    given = dict(locals())
    ends = as_tensor(actual_seq_lengths_key)
    if cmp_ratio > 1 and ends is not None and ends.dim() == 1:
        packed = layout_key.upper() == "TND"  # packed sequences give prefix sums instead of lengths
        tokens = ends.diff(prepend=ends.new_zeros(1)) if packed else ends
        keys = tokens // cmp_ratio
        given["actual_seq_lengths_key"] = keys.cumsum(0) if packed else keys
        given["residual"] = tokens % cmp_ratio
        given["names"] = {"lengths_kv": "keys of actual_seq_lengths_key"}
    return _select_quantized(given)


def _second_lengths(given: dict, layout: str) -> tuple[dict[str, Tensor | None], dict[str, str]]:
    """Returns the lengths of the second version's sequences under the library's names, and their names in errors."""
    packed = layout == "TND"
    packed_keys = packed and given.get("block_table") is None
    cu_q, cu_k = given["cu_seqlens_q"], given["cu_seqlens_k"]
    for name, sums, wanted in (("cu_seqlens_q", cu_q, packed), ("cu_seqlens_k", cu_k, packed_keys)):
        if wanted != (sums is not None):
            raise ValueError(f"invalid argument: {name}: {'missing' if wanted else 'given, want None'} (layout)")
    sums_q, sums_k = sums_without_zeros(given["q"], given["k"], cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    used_q, used_k = given["seqused_q"], given["seqused_k"]
    lengths = {
        "lengths_q": sums_q if packed else used_q,
        "lengths_kv": sums_k if packed_keys else used_k,
        "used_q": used_q if packed else None,
        "used_kv": used_k if packed_keys else None,
        "residual_kv": given["cmp_residual_k"],
    }
    names = {
        "lengths_q": "cu_seqlens_q" if packed else "seqused_q",
        "lengths_kv": "cu_seqlens_k" if packed_keys else "seqused_k",
    }
    return lengths, names


def _select_second(given: dict, names: dict[str, str]) -> tuple[Tensor, Tensor]:
    """Computes the second version of the indexers. `given` has the names of `lightning_indexer`."""
    only(return_value=(int(given["return_value"]), (0, 1)))
    at_least(-1, max_seqlen_q=given["max_seqlen_q"])
    at_least(1, topk=given["topk"])
    table = given["block_table"]
    named_layouts = ("layout_q", given["layout_q"]), ("layout_k", given["layout_k"])
    layout = common_layout(*named_layouts, table, SECOND_INDEXER_PAGES)
    lengths, lengths_names = _second_lengths(given, layout)
    call = SelectionCall(
        q_scale=given.get("q_scale"),
        k_scale=given.get("k_scale"),
        index_offset=given["output_idx_offset"],
        block_table=table,
        layout=layout,
        sparse_count=given["topk"],
        sparse_mode=given["mask_mode"],
        cmp_ratio=given["cmp_ratio"],
        values=given["values"] if given["return_value"] else "",
        **lengths,
    )
    with own_names(names | lengths_names, _SAY):
        return indexer_selection(given["q"], given["k"], given["w"], *call)


@checked
def lightning_indexer(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    topk: int,
    *,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    cmp_residual_k: Tensor | None = None,
    block_table: Tensor | None = None,
    output_idx_offset: Tensor | None = None,
    metadata: Tensor | None = None,
    max_seqlen_q: int = -1,
    layout_q: str = "BSND",
    layout_k: str = "BSND",
    mask_mode: int = 0,
    cmp_ratio: int = 1,
    return_value: int = 0,
) -> tuple[Tensor, Tensor]:
    """Computes `npu_lightning_indexer` for compressed keys, each of which stands for cmp_ratio tokens.

    Args:
        q, k: [B,S1,N,D] and [B,S2,1,D]; in layout_q "TND" [T,N,D] and [T,1,D]; in layout_k "PA_BBND" pages.
        w: [B,S1,N], type of q or float32.
        cu_seqlens_q, cu_seqlens_k: for TND, prefix sums [B+1] that begin with 0.
        seqused_q, seqused_k: how many rows of each sequence are in use.
        cmp_residual_k: how many tokens follow the tokens of the last key.
        output_idx_offset: int32 [B,S1,1], [T,1] or [B], added to each index that is not -1.
        mask_mode: 0, or 3, which lets query t of S1 see (S2 * cmp_ratio + cmp_residual_k - S1 + t + 1) // cmp_ratio
            keys.
        metadata, max_seqlen_q: not used.

    Returns:
        sparse_indices, int32 [B,S1,1,topk], and the scores as float32, which have no elements without return_value.
        Both are constants to autograd.

    Raises:
        ValueError: an argument is wrong.
    """
    return _select_second(locals() | {"values": "float32"}, _SECOND_NAMES)


_KL_NAMES = _SECOND_NAMES | {
    "q_index": "q",
    "k_index": "k",
    "query_index": "q",
    "key_index": "k",
    "p_head_mean": "attn_softmax_l1_norm",
}


@checked
def sparse_lightning_indexer_kl_loss_grad(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    sparse_indices: Tensor,
    attn_softmax_l1_norm: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    cmp_residual_k: Tensor | None = None,
    metadata: Tensor | None = None,
    layout_q: str = "BSND",
    layout_k: str = "BSND",
    mask_mode: int = 0,
    cmp_ratio: int = 1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes the gradients of a loss that trains an indexer towards given probabilities p of the selected keys. Let y
    be the softmax of the scores in a list. The gradient of a score is then y * sum(p) - p.

    Args:
        q, k, w, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, cmp_residual_k, mask_mode: as in `lightning_indexer`.
        sparse_indices: int32 [B,S1,1,K], or [T,1,K]. A list ends at its first -1.
        attn_softmax_l1_norm: p of each entry, float32, in the shape of sparse_indices, or without its dimension 1.
        metadata: not used.

    Returns:
        dq, dk, dw, and y in the shape of attn_softmax_l1_norm, which is 0 where an entry has no key.

    Raises:
        ValueError: an argument is wrong.
    """
    layout = common_layout(("layout_q", layout_q), ("layout_k", layout_k))
    lengths, lengths_names = _second_lengths(locals(), layout)
    shape = attn_softmax_l1_norm.shape
    has_head = attn_softmax_l1_norm.dim() == sparse_indices.dim() and shape[-2:-1] == (1,)
    call = GivenLossCall(
        query_index=q,
        key_index=k,
        weights=w,
        sparse_indices=sparse_indices,
        target=attn_softmax_l1_norm.squeeze(-2) if has_head else attn_softmax_l1_norm,
        layout=layout,
        sparse_mode=mask_mode,
        cmp_ratio=cmp_ratio,
        **lengths,
    )
    with own_names(_KL_NAMES | lengths_names, _SAY):
        dq, dk, dw, y = given_loss_gradients(*call)
    return dq, dk, dw, y.view(shape)


_QUANT_MODES = {1: torch.float8_e4m3fn, 2: torch.int8}
_REFUSED_MODES = {3: "MX-quantised float8_e4m3fn", 4: "HiFloat8", 5: "MX-quantised FP4"}


@checked
def quant_lightning_indexer(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    topk: int,
    quant_mode: int,
    *,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    cmp_residual_k: Tensor | None = None,
    block_table: Tensor | None = None,
    output_idx_offset: Tensor | None = None,
    metadata: Tensor | None = None,
    max_seqlen_q: int = -1,
    layout_q: str = "BSND",
    layout_k: str = "BSND",
    mask_mode: int = 0,
    cmp_ratio: int = 1,
    return_value: int = 0,
) -> tuple[Tensor, Tensor]:
    """Computes `lightning_indexer` from quantised queries and keys, with the scores of `npu_quant_lightning_indexer`.

    Args:
        quant_mode: 1 for float8_e4m3fn, 2 for int8.

    Returns:
        sparse_indices, and the scores as bfloat16, which have no elements without return_value.

    Raises:
        ValueError: an argument is wrong.
    """
    if quant_mode in _REFUSED_MODES:
        raise ValueError(f"invalid argument: quant_mode={quant_mode} ({_REFUSED_MODES[quant_mode]}) is not served")
    only(quant_mode=(quant_mode, tuple(_QUANT_MODES)))
    if query.dtype != _QUANT_MODES[quant_mode]:
        raise ValueError(f"invalid argument: query.dtype={query.dtype}, want {_QUANT_MODES[quant_mode]} (quant_mode)")
    given = dict(locals())
    given |= {"q": query, "k": key, "w": weights, "q_scale": query_dequant_scale, "k_scale": key_dequant_scale}
    return _select_second(given | {"values": "bfloat16"}, _QUANT_SECOND_NAMES)


# The functions that other NPU packages offer: {name in that package: function}.
C_ASCEND = {
    "npu_kv_quant_sparse_flash_attention": kv_quant_sparse_flash_attention_of_vllm,
    "npu_vllm_quant_lightning_indexer": quant_lightning_indexer_of_vllm,
    "npu_vllm_quant_lightning_indexer_metadata": npu_quant_lightning_indexer_metadata,
}
CUSTOM = {
    "npu_quant_lightning_indexer": quant_lightning_indexer_of_vllm,
    "npu_quant_lightning_indexer_metadata": npu_quant_lightning_indexer_metadata,
}
CANN_OPS = {
    "lightning_indexer": lightning_indexer,
    "lightning_indexer_metadata": lightning_indexer_metadata,
    "quant_lightning_indexer": quant_lightning_indexer,
    "quant_lightning_indexer_metadata": quant_lightning_indexer_metadata,
    "sparse_lightning_indexer_kl_loss_grad": sparse_lightning_indexer_kl_loss_grad,
}
