"""torch_npu's fused inference functions. For captured graphs, each also has an .out form, a workspace function and a
function that allocates its results.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .calls import PROMPT_NAMES, checked
from .dtypes import typed
from .inference import MAX_TOKENS, Inference, Lengths, attend, refuse_given
from .scales import NO_SCALES, SEPARATE, SEPARATE_V2, KeySizes, scale_of_query, separate_scales

# Argument names: {the library's name: torch_npu's name}.
FUSED_NAMES = PROMPT_NAMES | {"product_scales": "dequant_scale1", "scale": "scale", "return_lse": "softmax_lse_flag"}
FUSED_NAMES |= {"deq_scale1": "dequant_scale1", "deq_scale2": "dequant_scale2"}
FUSED_NAMES |= {"k_scale": "key_antiquant_scale", "v_scale": "value_antiquant_scale"}
FUSED_NAMES |= {"k_offset": "key_antiquant_offset", "v_offset": "value_antiquant_offset"}
FUSED_NAMES |= {"q_padding": "query_padding_size", "kv_padding": "kv_padding_size"}
FUSED_NAMES |= {"k_prefix": "key_shared_prefix", "v_prefix": "value_shared_prefix"}
FUSED_NAMES |= {"length_prefix": "actual_shared_prefix_len"}
_FUSED_V2_NAMES = FUSED_NAMES | {
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
    "q_scale": "dequant_scale_query",
    "quant_scale1": "quant_scale_p",
    "return_lse": "return_softmax_lse",
}
_ROPE_SCALES = "rows of query_rope and key_rope are floats"


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
        query: [B,N,Sq,D] in input_layout "BSH", "BSND", "BNSD", "NSD" (B = 1), "TND" or "NTD"; float32, bfloat16,
            float16, int8. An int8 query needs dequant_scale1, quant_scale1 and dequant_scale2, as in
            `npu_prompt_flash_attention`. In "BNSD_BSND", "BSH_BNSD", "BSND_BNSD", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD",
            "TND_NTD" and "NTD_TND" the output has the layout on the right. NBSD is [N,B,S,D].
        key, value: [B,Nkv,S,D], type of query, int8, float8_e4m3fn, or int32 with eight numbers of 4 bits per element,
            [B,Nkv,S,D/8]. With block_table they are pages in any layout, which are read in place: [blocks,block
            size,Nkv·D], [blocks,Nkv,block size,D], or [blocks,Nkv,D/D0,block size,D0], where D0 elements have 32 bytes.
            Pages of four dimensions that do not fit num_key_value_heads and block_size in this order are [blocks,block
            size,Nkv,D].
        atten_mask: bool, int8 or uint8, 1 = drop: [Sq,S], [B|1,Sq,S] or [B|1,1,Sq,S], or larger; for single queries also
            [B,S]. For sparse_mode 9 it is [B,Sq,Sq]. In packed layouts it is flat, with Sq_b * Sq_b numbers per
            sequence.
        sparse_mode: modes 0 and 1 compute all pairs without atten_mask. With it, mode 0 also keeps only the band of
            pre_tokens and next_tokens. Modes 2, 3 and 4 take the atten_mask [2048,2048] and are refused without it.
            Single queries need no mask, except in packed layouts or with query_rope. For them modes 2 and 3 keep every
            key, mode 0 has no band, and mode 4 keeps its band. In mode 9 atten_mask chooses among the last Sq keys, and
            all others are kept.
        actual_seq_lengths, actual_seq_lengths_kv: how many rows of each batch element are in use; one entry holds for
            all. For packed layouts they are inclusive prefix sums, except for keys in pages, which have lengths.
        antiquant_scale, antiquant_offset: scales and offsets of compressed keys and values. Mode 0 is per tensor or
            column,
            mode 1 per token. key_antiquant_scale, ... give keys and values separate scales, which replace
            antiquant_scale. Separate scales have more modes: 2 per head [Nkv], 3 per token and head [B,Nkv,S], and with
            block_table 4 per row [blocks,block size] and 5 per row and head [blocks,Nkv,block size]. A call cannot
            combine modes 1 or 3 with modes 4 or 5. Packed keys without block_table have only modes 0 and 2.
        query_rope, key_rope: second parts of queries and keys, in the form of query and key, also in pages. Scores are
            then Q K^T + Qr Kr^T.
        query_padding_size, kv_padding_size: int64 [1], left padding: this many unused rows follow the rows in use of
            each batch element.
        key_shared_prefix, value_shared_prefix, actual_shared_prefix_len: keys and values of batch size 1, which precede
            the keys of every batch element, and the number of prefix keys in use.
        key_rope_antiquant_scale: refused.

    Returns:
        attention_out and softmax_lse, float32 [B,N,Sq,1], packed [T,N,1], +inf for a row without keys. Without
        softmax_lse_flag softmax_lse has no elements.

    Raises:
        ValueError: an argument is wrong or refused.
    """
    return attend(_fused(locals()))


def _fused(given: dict[str, Any]) -> Inference:
    refuse_given(_ROPE_SCALES, key_rope_antiquant_scale=given["key_rope_antiquant_scale"])
    if given["antiquant_mode"] not in (0, 1):
        mode = given["antiquant_mode"]
        raise ValueError(f"invalid argument: antiquant_mode={mode}, want 0 (per column) or 1 (per token)")
    combined = {name: given[name] for name in ("antiquant_scale", "antiquant_offset")}
    combined["antiquant_per_token"] = given["antiquant_mode"] == 1
    own = NO_SCALES | (_separate(given, SEPARATE, given["num_heads"]) or combined)
    scales = given["dequant_scale1"], given["quant_scale1"], given["dequant_scale2"]
    return Inference.of(given, FUSED_NAMES, product_scales=scales, **own)


def _separate(given: dict[str, Any], names: Any, heads: int) -> dict[str, Any]:
    """Returns the members of an Inference that hold separate scales of keys and of values."""
    keys, values, modes = (tuple(given[name] for name in group) for group in names)
    sizes = [
        KeySizes.of(given[name], given["input_layout"], given["num_key_value_heads"] or heads, *_pages(given))
        for name in ("key", "value")
    ]
    return separate_scales(keys, values, modes, sizes, names)


def _pages(given: dict[str, Any]) -> tuple[Tensor | None, int]:
    return given["block_table"], given["block_size"]


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
    quant_scale_p: Tensor | None = None,
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
        query_dtype, key_dtype, ...: None, or the tensor's type as a torch.dtype or as a type code of torch_npu. The
            code of float8_e4m3fn reinterprets the bytes of an int8 or uint8 tensor.
        query_quant_mode, dequant_scale_query: mode 3 is for query, key and value of int8 or of float8_e4m3fn, with
            float32 scales in the shape of query without D. The scales may also be flat, or have added dimensions of
            size 1. With key and value mode 0 there is one scale of keys and of values, and query_rope is divided by
            these scales. With key mode 3 and value mode 2 all are float8_e4m3fn, with scales [blocks,Nkv,block size],
            or [B,Nkv,S], and [Nkv].
        quant_scale_p: only for key mode 3: the factor of probabilities before they are rounded, 1 if absent.
        out_dtype: None, or the type of the output. If query has 8 bits and the output does not, it may be any float
            type. None then means query_rope's type, or float16 without query_rope.
        dequant_scale_key_rope: refused.
    """
    return attend(_fused_v2(locals()))


def _fused_v2(given: dict[str, Any]) -> Inference:
    _check_query_mode(given)
    refuse_given(_ROPE_SCALES, dequant_scale_key_rope=given["dequant_scale_key_rope"])
    given = _typed(given)
    if given["query_quant_mode"] == 3:
        if given["key_quant_mode"] == 3 and given["block_table"] is not None:
            given["key_quant_mode"] = 5  # scales per row and head of the pages
        shape = given["query"], given["input_layout"], given["num_query_heads"]
        given["dequant_scale_query"] = scale_of_query(given["dequant_scale_query"], *shape)
    own = NO_SCALES | _separate(given, SEPARATE_V2, given["num_query_heads"])
    return Inference.of(given, _FUSED_V2_NAMES, product_scales=(None, given["quant_scale_p"], None), **own)


def _check_query_mode(given: dict[str, Any]) -> None:
    mode, key, value = (given[f"{name}_quant_mode"] for name in ("query", "key", "value"))
    scaled = mode == 3
    if mode not in (0, 3):
        raise ValueError(f"invalid argument: query_quant_mode={mode}, want 0 or 3")
    if scaled != (given["dequant_scale_query"] is not None):
        state = "missing, want it with" if scaled else "given, want None with"
        raise ValueError(f"invalid argument: dequant_scale_query: {state} query_quant_mode={mode}")
    if scaled and (key, value) not in ((0, 0), (3, 2)):
        wrong, want = ("value", 2 if key == 3 else 0) if key in (0, 3) else ("key", "0 or 3")
        got = given[f"{wrong}_quant_mode"]
        raise ValueError(f"invalid argument: {wrong}_quant_mode={got}, want {want} (query_quant_mode=3)")
    if given["quant_scale_p"] is not None and not (scaled and key == 3):
        want = "want None without query_quant_mode=3, key_quant_mode=3"
        raise ValueError(f"invalid argument: quant_scale_p: given, {want}")


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments, with each tensor in the type that its argument NAME_dtype gives."""
    kinds = {name.removesuffix("_dtype"): name for name in given if name.endswith("_dtype")}
    for tensor, name in kinds.items():
        if tensor in given:
            given[tensor] = typed(given[tensor], given[name], name)
        elif tensor != "out":
            refuse_given(f"there is no {tensor}", **{name: given[name]})
    return given


def _out_form(function: Callable, call_of: Callable[[dict[str, Any]], Inference]) -> Callable:
    """Returns a variant of `function` that writes its results into the tensors out=[attention_out, softmax_lse]."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def write(*arguments: Any, workspace: Tensor | None = None, out: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
        given = signature.bind(*arguments, **keywords)
        given.apply_defaults()
        if not isinstance(out, (list, tuple)) or [isinstance(t, Tensor) for t in out] != [True, True]:
            raise TypeError("out: want [attention_out, softmax_lse], two Tensors")
        return attend(call_of(given.arguments), out)

    keyword = inspect.Parameter.KEYWORD_ONLY
    more = inspect.Parameter("workspace", keyword, default=None), inspect.Parameter("out", keyword)
    write.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])
    write.__doc__ = f"""Computes `{function.__name__}` into out=[attention_out, softmax_lse], and returns these two.

    attention_out is [B,N,Sq,Dv] in the output's layout. Without the flag for the lse, softmax_lse may have any shape
    and type. workspace is ignored.
    """
    return checked(write)


def _workspace_form(function: Callable, name: str) -> Callable:
    """Returns a function that allocates the workspace argument of `function.out`."""

    @functools.wraps(function)
    def workspace(*arguments: Any, **keywords: Any) -> Tensor:
        given = inspect.signature(function).bind(*arguments, **keywords).arguments
        return given["query"].new_empty(1)

    workspace.__name__ = workspace.__qualname__ = name
    workspace.__doc__ = f"""Returns a workspace for `{function.__name__}.out`, which needs none. The arguments are those of
    the function, query [B,N,Sq,D] and so on. The workspace is one element of query's type.
    """
    return checked(workspace)


npu_fused_infer_attention_score.out = _out_form(npu_fused_infer_attention_score, _fused)
npu_fused_infer_attention_score_v2.out = _out_form(npu_fused_infer_attention_score_v2, _fused_v2)
_npu_fused_infer_attention_score_get_max_workspace = _workspace_form(
    npu_fused_infer_attention_score, "_npu_fused_infer_attention_score_get_max_workspace"
)
_npu_fused_infer_attention_score_v2_get_max_workspace = _workspace_form(
    npu_fused_infer_attention_score_v2, "_npu_fused_infer_attention_score_v2_get_max_workspace"
)


@checked
def _npu_fused_infer_attention_score_infer_output(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    input_layout: str = "BSH",
    quant_scale2: Tensor | None = None,
    block_table: Tensor | None = None,
    num_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_lse_flag: bool = False,
    query_rope: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Allocates the results of `npu_fused_infer_attention_score`, with the right shapes and types, but computes
    nothing.

    Args:
        query, value: [B,N,Sq,D] and [B,Nkv,S,Dv] in input_layout, or value in pages. A key between them is ignored, so
            that both (query, value) and (query, key, value) work.
    """
    return _results(locals(), FUSED_NAMES)


@checked
def _npu_fused_infer_attention_score_v2_infer_output(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    query_dtype: int | None = None,
    value_dtype: int | None = None,
    input_layout: str = "BSH",
    quant_scale_out: Tensor | None = None,
    block_table: Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    return_softmax_lse: bool = False,
    query_rope: Tensor | None = None,
    out_dtype: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Allocates the results of `npu_fused_infer_attention_score_v2`, with the right shapes and types, but computes
    nothing.

    Args:
        query, value: [B,N,Sq,D] and [B,Nkv,S,Dv], as in `_npu_fused_infer_attention_score_infer_output`.
    """
    return _results(_typed(locals()), _FUSED_V2_NAMES)


def _results(given: dict[str, Any], names: dict[str, str]) -> tuple[Tensor, Tensor]:
    if given["value"] is None:
        given["value"] = given["key"]
    if given["value"] is None:
        raise TypeError("value: missing")
    return Inference.of(given, names, scale=1.0).results()
