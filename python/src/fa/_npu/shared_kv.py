"""The device's functions for attention over original and compressed keys (SparseFlashMla, sparse_attn_sharedkv)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _shared_kv
from .._attention import integers
from .._errors import own_names
from .._torch.lengths import as_tensor
from .._torch.shared_kv import SharedKvCall, shared_kv_attention
from .calls import checked
from .dtypes import typed
from .sparse_checks import only

_METADATA_ENTRIES = 1024
_Lengths = Tensor | Sequence[int] | None

# Argument names: {the library's name: the device's name}.
_SAME = ("q", "ori_kv", "cmp_kv", "ori_topk_length", "cmp_topk_length", "cmp_ratio")
_MLA_NAMES = {name: name for name in _SAME} | {
    "ori_indices": "ori_sparse_indices",
    "cmp_indices": "cmp_sparse_indices",
    "cu_q": "cu_seqlens_q",
    "cu_ori": "cu_seqlens_ori_kv",
    "cu_cmp": "cu_seqlens_cmp_kv",
    "used_q": "seqused_q",
    "used_ori": "seqused_ori_kv",
    "used_cmp": "seqused_cmp_kv",
    "cmp_residual": "cmp_residual_kv",
    "ori_mask": "ori_mask_mode",
    "cmp_mask": "cmp_mask_mode",
    "window_left": "ori_win_left",
    "window_right": "ori_win_right",
    "scale": "softmax_scale",
    "sink": "sinks",
    "layout": "layout_q",
}
_MLA_GRAD_NAMES = _MLA_NAMES | {"out": "attn_out", "d_out": "dout", "lse": "softmax_lse"}
_L1_NAMES = _MLA_NAMES | {
    "cmp_kv": "key",
    "lse": "softmax_lse",
    "cmp_indices": "sparse_indices",
    "cmp_topk_length": "topk_length",
    "cu_cmp": "cu_seqlens_k",
    "used_cmp": "seqused_k",
    "cmp_residual": "cmp_residual_k",
    "cmp_mask": "mask_mode",
}
_SHAREDKV_NAMES = _MLA_NAMES | {
    "used_ori": "seqused_kv",
    "used_cmp": "(seqused_kv // cmp_ratio)",
    "row_format.tile": "tile_size",
    "row_format.rope": "rope_head_dim",
}


def _prefix_sums(name: str, cu_seqlens: _Lengths) -> list[int] | None:
    """Returns prefix sums without their leading 0."""
    if cu_seqlens is None:
        return None
    first, *sums = integers(cu_seqlens, name) or [0]
    if first != 0:
        raise ValueError(f"invalid argument: {name}[0]={first}, want 0")
    return sums


def _key_layout(layout_q: str, layout_kv: str, name: str, pages: str | None) -> bool:
    """Returns whether keys lie in pages. Raises ValueError if the layouts of queries and keys cannot be combined."""
    if layout_q not in ("BSND", "TND"):
        raise ValueError(f'invalid argument: layout_q="{layout_q}", want BSND or TND')
    if pages is not None and layout_kv == pages:
        return True
    if layout_kv != layout_q:
        other = "" if pages is None else f" or {pages}"
        raise ValueError(f'invalid argument: {name}="{layout_kv}", want {layout_q} (layout_q){other}')
    return False


def _keywords(given: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Returns the arguments in `given` by the library's names. `names` are {the library's name: the device's name}."""
    return {
        name: _prefix_sums(own, given[own]) if name.startswith("cu_") else given[own]
        for name, own in names.items()
        if own in given
    }


def _call_of(given: dict[str, Any]) -> SharedKvCall:
    """Makes the operator's arguments from `given`, which has the library's argument names. Absent arguments get their
    defaults.
    """
    lengths = {}
    for name in _shared_kv._LENGTHS:
        value = given.get(name)
        lengths[name] = value if value is None or isinstance(value, Tensor) else as_tensor(integers(value, name))
    defaults = {"ori_indices_are_slots": False, "row_rope": 0, "row_tile": 0}
    members = {name: given.get(name, defaults.get(name)) for name in SharedKvCall._fields}
    return SharedKvCall(**members | lengths)


def _attend(given: dict[str, Any], paged: bool, names: dict[str, str], **more: Any) -> tuple[Tensor, Tensor]:
    """Computes `sparse_flash_mla` from its arguments. `given` may lack the entry of an absent length or list. Errors
    name arguments as `names` says.
    """
    tables: dict[str, Any] = {}  # without pages, the entries are None
    for name, kv in (("ori_block_table", given["ori_kv"]), ("cmp_block_table", given["cmp_kv"])):
        tables[name] = given[name] if paged else None
        if paged and kv is not None and tables[name] is None:
            raise ValueError(f"invalid argument: {name}: missing, want int32 [B, n] (layout_kv)")
    with own_names(names):
        keywords = _keywords(given, _MLA_NAMES)
        tensors = [keywords.get(name) for name in ("q", "ori_kv", "cmp_kv", "sink")]
        out, lse = shared_kv_attention(*tensors, *_call_of(keywords | tables | more))
    return out, lse if given["return_softmax_lse"] else given["q"].new_empty(0, dtype=torch.float32)


@checked
def sparse_flash_mla(
    q: Tensor,
    ori_kv: Tensor | None = None,
    cmp_kv: Tensor | None = None,
    ori_sparse_indices: Tensor | None = None,
    cmp_sparse_indices: Tensor | None = None,
    ori_block_table: Tensor | None = None,
    cmp_block_table: Tensor | None = None,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_ori_kv: _Lengths = None,
    cu_seqlens_cmp_kv: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_ori_kv: _Lengths = None,
    seqused_cmp_kv: _Lengths = None,
    cmp_residual_kv: _Lengths = None,
    ori_topk_length: Tensor | None = None,
    cmp_topk_length: Tensor | None = None,
    sinks: Tensor | None = None,
    metadata: Tensor | None = None,
    softmax_scale: float = 1.0,
    cmp_ratio: int = 1,
    ori_mask_mode: int = 0,
    cmp_mask_mode: int = 0,
    ori_win_left: int = -1,
    ori_win_right: int = -1,
    layout_q: str = "BSND",
    layout_kv: str = "BSND",
    topk_value_mode: int = 1,
    return_softmax_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes attention over a window of original keys and over compressed keys, in one softmax.

    Args:
        q: [B,S1,N,D] in layout_q "BSND", [T,N,D] in "TND"; float32, bfloat16, float16.
        ori_kv, cmp_kv: [B,S2,1,D], or in layout_kv "PA_BBND" pages [blocks,block size,1,D].
        ori_sparse_indices, cmp_sparse_indices: int32 [B,S1,1,K], lists of keys, each up to its first -1.
        ori_block_table, cmp_block_table: int32 [B,n], ignored without pages.
        cu_seqlens_q, cu_seqlens_ori_kv, cu_seqlens_cmp_kv: lists or int tensors [B+1] with a leading 0, for TND.
        seqused_q, seqused_ori_kv, seqused_cmp_kv: lists or int tensors [B], how many rows are in use.
        cmp_residual_kv: [B], the tokens after the last compressed key, ignored with ori_kv.
        ori_mask_mode, cmp_mask_mode, ori_win_left, ori_win_right, cmp_ratio: as in `fa.shared_kv_attention`.
        metadata: not used.

    Returns:
        The output, as q, and softmax_lse, float32 [B,1,S1,N], TND [1,T,N]. The lse is inf for a row without keys.
        Without return_softmax_lse it has no elements. q, ori_kv, cmp_kv and sinks have gradients, lse has none.

    Raises:
        ValueError: an argument is wrong, or a backward meets keys in pages.
    """
    only(topk_value_mode=(topk_value_mode, (1,)))
    return _attend(locals(), _key_layout(layout_q, layout_kv, "layout_kv", "PA_BBND"), _MLA_NAMES)


@checked
def sparse_flash_mla_grad(
    q: Tensor,
    dout: Tensor,
    attn_out: Tensor,
    softmax_lse: Tensor,
    ori_kv: Tensor | None = None,
    cmp_kv: Tensor | None = None,
    ori_sparse_indices: Tensor | None = None,
    cmp_sparse_indices: Tensor | None = None,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_ori_kv: _Lengths = None,
    cu_seqlens_cmp_kv: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_ori_kv: _Lengths = None,
    seqused_cmp_kv: _Lengths = None,
    cmp_residual_kv: _Lengths = None,
    ori_topk_length: Tensor | None = None,
    cmp_topk_length: Tensor | None = None,
    sinks: Tensor | None = None,
    metadata: Tensor | None = None,
    softmax_scale: float = 1.0,
    cmp_ratio: int = 1,
    ori_mask_mode: int = 0,
    cmp_mask_mode: int = 0,
    ori_win_left: int = -1,
    ori_win_right: int = -1,
    layout_q: str = "BSND",
    layout_kv: str = "BSND",
) -> tuple[Tensor, ...]:
    """Computes dq, d_ori_kv, d_cmp_kv, d_sinks and the L1 norms of both lists from the arguments of `sparse_flash_mla`
    and its results attn_out [B,S1,N,D] and softmax_lse; dout is the gradient of attn_out. The L1 norms have the shapes
    of the lists. The result for an absent argument has no elements. Raises ValueError for a wrong argument."""
    _key_layout(layout_q, layout_kv, "layout_kv", None)
    with own_names(_MLA_GRAD_NAMES):
        gradients = _shared_kv.shared_kv_attention_grad(**_keywords(locals(), _MLA_GRAD_NAMES))
    return tuple(q.new_empty(0) if gradient is None else gradient for gradient in gradients)


@checked
def sparse_flash_mla_softmax_l1_norm(
    q: Tensor,
    key: Tensor,
    softmax_lse: Tensor,
    sparse_indices: Tensor | None = None,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_k: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_k: _Lengths = None,
    cmp_residual_k: _Lengths = None,
    topk_length: Tensor | None = None,
    metadata: Tensor | None = None,
    softmax_scale: float = 1.0,
    cmp_ratio: int = 1,
    mask_mode: int = 0,
    layout_q: str = "BSND",
    layout_k: str = "BSND",
) -> Tensor:
    """Computes one L1 norm of `sparse_flash_mla_grad` alone. For each entry of sparse_indices [B,S1,1,K], it is the
    mean over the heads of the key's probability. Without sparse_indices the shape is [B,S1,1,S2], TND [T1,1,T2], and
    column j stands for key j of the sequence. key is [B,S2,1,D], TND [T2,1,D]. Raises ValueError for a wrong
    argument.
    """
    _key_layout(layout_q, layout_k, "layout_k", None)
    with own_names(_L1_NAMES):
        gradients = _shared_kv.shared_kv_attention_grad(
            ori_kv=None, out=None, d_out=None, l1_norm_of_keys=True, **_keywords(locals(), _L1_NAMES)
        )
    return gradients.cmp_l1_norm


@checked
def npu_sparse_attn_sharedkv(
    q: Tensor,
    *,
    ori_kv: Tensor | None = None,
    cmp_kv: Tensor | None = None,
    ori_sparse_indices: Tensor | None = None,
    cmp_sparse_indices: Tensor | None = None,
    ori_block_table: Tensor | None = None,
    cmp_block_table: Tensor | None = None,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_ori_kv: _Lengths = None,
    cu_seqlens_cmp_kv: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_kv: _Lengths = None,
    sinks: Tensor | None = None,
    metadata: Tensor | None = None,
    softmax_scale: float | None = 0,
    cmp_ratio: int = 0,
    ori_mask_mode: int = 4,
    cmp_mask_mode: int = 3,
    ori_win_left: int = 127,
    ori_win_right: int = 0,
    layout_q: str = "BSND",
    layout_kv: str = "PA_ND",
    return_softmax_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes `sparse_flash_mla` for inference, where the compressed keys come from the original ones.

    Args:
        ori_kv, cmp_kv: in layout_kv "PA_ND" pages [blocks,block size,1,D].
        ori_block_table, cmp_block_table: int32 [B,n], ignored without pages.
        cu_seqlens_ori_kv, cu_seqlens_cmp_kv: prefix sums of packed keys, ignored with pages.
        seqused_kv: a list or an int tensor [B], the number of original keys of each batch element, even if ori_kv is
            None. Each element has seqused_kv // cmp_ratio compressed keys.
        ori_sparse_indices: int32 [T,1,K], rows of the pages (block * block size + row) up to the first negative entry.
            They replace the window; ori_block_table and ori_mask_mode are then not used.
        softmax_scale: 0 or None means 1 / sqrt(D).
        cmp_ratio: 0 means 1.
        metadata: not used.

    Returns:
        As `sparse_flash_mla`.

    Raises:
        ValueError: an argument is wrong.
    """
    return _attend_sharedkv(locals())


@checked
def npu_kv_quant_sparse_attn_sharedkv(
    q: Tensor,
    kv_quant_mode: int,
    ori_kv: Tensor | None = None,
    cmp_kv: Tensor | None = None,
    ori_sparse_indices: Tensor | None = None,
    cmp_sparse_indices: Tensor | None = None,
    ori_block_table: Tensor | None = None,
    cmp_block_table: Tensor | None = None,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_ori_kv: _Lengths = None,
    cu_seqlens_cmp_kv: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_kv: _Lengths = None,
    sinks: Tensor | None = None,
    metadata: Tensor | None = None,
    tile_size: int = 0,
    rope_head_dim: int = 0,
    softmax_scale: float | None = 0.0,
    cmp_ratio: int = 0,
    ori_mask_mode: int = 4,
    cmp_mask_mode: int = 3,
    ori_win_left: int = 127,
    ori_win_right: int = 0,
    layout_q: str = "BSND",
    layout_kv: str = "PA_ND",
    return_softmax_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes `npu_sparse_attn_sharedkv` on quantised keys.

    Args:
        kv_quant_mode: 1.
        ori_kv, cmp_kv: [B,S2,1,bytes], or pages of such rows, typed float8_e4m3fn, uint8 or int8. A row has
            rope_head_dim columns of q's type, e4m3 numbers, one e8m0 scale per tile_size numbers, and padding. A row
            stands for its numbers, and then its rope columns.
        tile_size: at least 1.

    Raises:
        ValueError: an argument is wrong.
    """
    given = dict(locals())
    only(kv_quant_mode=(kv_quant_mode, (1,)))
    if tile_size < 1:
        raise ValueError(f"invalid argument: tile_size={tile_size}, want at least 1")
    for name in ("ori_kv", "cmp_kv"):
        given[name] = typed(given[name], torch.float8_e4m3fn, name)
    return _attend_sharedkv(given, row_rope=rope_head_dim, row_tile=tile_size)


def _attend_sharedkv(given: dict[str, Any], **row_format: int) -> tuple[Tensor, Tensor]:
    """Computes npu_sparse_attn_sharedkv, or its quantised form, by sparse_flash_mla. `row_format` describes quantised
    rows.
    """
    paged = _key_layout(given["layout_q"], given["layout_kv"], "layout_kv", "PA_ND")
    ori_kv, slots = given["ori_kv"], given["ori_sparse_indices"] is not None
    ratio = given["cmp_ratio"] or 1
    keys = integers(given["seqused_kv"], "seqused_kv")
    for b, count in enumerate(keys):
        if count < 0:
            raise ValueError(f"invalid argument: seqused_kv[{b}]={count}, want at least 0")
    mla = given | {"cmp_ratio": ratio, "softmax_scale": given["softmax_scale"] or None}
    if ori_kv is not None:
        mla["seqused_ori_kv"] = keys
    if given["cmp_kv"] is not None and ratio > 0:
        mla["seqused_cmp_kv"] = [count // ratio for count in keys]
        mla["cmp_residual_kv"] = [count % ratio for count in keys] if ori_kv is None else None
    if paged:
        mla["cu_seqlens_ori_kv"] = mla["cu_seqlens_cmp_kv"] = None
    if slots:
        if not paged:
            raise ValueError("invalid argument: ori_sparse_indices: given, want none without layout_kv PA_ND")
        if ori_kv is not None and ori_kv.dim() == 4:
            if not keys:
                raise ValueError("invalid argument: seqused_kv: missing, want the lengths of the original keys")
            # The table is not read, but it must have an entry for each page of the original keys.
            pages = -(-max(keys) // max(ori_kv.shape[1], 1))
            mla["ori_block_table"] = torch.zeros((len(keys), pages), dtype=torch.int32)
        # Any negative entry ends a list. The library takes only -1.
        mla |= {"ori_sparse_indices": given["ori_sparse_indices"].clamp(min=-1), "ori_mask_mode": 0}
    return _attend(mla, paged, _SHAREDKV_NAMES, ori_indices_are_slots=slots, **row_format)


_SIZES = (
    *("num_heads_q", "num_heads_kv", "head_dim", "batch_size", "max_seqlen_q", "max_seqlen_kv", "max_seqlen_ori_kv"),
    *("max_seqlen_cmp_kv", "ori_topk", "cmp_topk"),
)


def _metadata(given: dict[str, Any], pages: str, least_ratio: int) -> Tensor:
    """Checks the arguments of a metadata function, and returns the zeros that are its result."""
    _key_layout(given["layout_q"], given["layout_kv"], "layout_kv", pages)
    for name, modes in (("ori_mask_mode", (0, 3, 4)), ("cmp_mask_mode", (0, 3))):
        if given[name] not in modes:
            *first, last = modes
            raise ValueError(f"invalid argument: {name}={given[name]}, want {', '.join(map(str, first))} or {last}")
    least = dict.fromkeys(_SIZES, 0) | {"cmp_ratio": least_ratio, "ori_win_left": -1, "ori_win_right": -1}
    for name, value in given.items():
        if name in least and operator.index(value) < least[name]:
            raise ValueError(f"invalid argument: {name}={value}, want at least {least[name]}")
        if name.startswith(("cu_seqlens", "seqused", "cmp_residual")):
            integers(value, name)
    if not (given["has_ori_kv"] or given["has_cmp_kv"]):
        raise ValueError("invalid argument: has_ori_kv=False, want True, or has_cmp_kv=True")
    return torch.zeros(_METADATA_ENTRIES, dtype=torch.int32)


@checked
def sparse_flash_mla_metadata(
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_ori_kv: _Lengths = None,
    cu_seqlens_cmp_kv: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_ori_kv: _Lengths = None,
    seqused_cmp_kv: _Lengths = None,
    cmp_residual_kv: _Lengths = None,
    ori_topk_length: Tensor | None = None,
    cmp_topk_length: Tensor | None = None,
    batch_size: int = 0,
    max_seqlen_q: int = 0,
    max_seqlen_ori_kv: int = 0,
    max_seqlen_cmp_kv: int = 0,
    ori_topk: int = 0,
    cmp_topk: int = 0,
    cmp_ratio: int = 1,
    ori_mask_mode: int = 4,
    cmp_mask_mode: int = 3,
    ori_win_left: int = 127,
    ori_win_right: int = 0,
    layout_q: str = "BSND",
    layout_kv: str = "BSND",
    has_ori_kv: bool = True,
    has_cmp_kv: bool = True,
    device: Any = None,
) -> Tensor:
    """Returns zeros, int32 [1024]. On the NPU this tensor says how the work of `sparse_flash_mla` is split. The
    arguments, such as the sizes of q [B,S1,N,D], are checked (ValueError). No operator here reads the zeros.
    """
    return _metadata(locals(), "PA_BBND", 1)


@checked
def npu_sparse_attn_sharedkv_metadata(
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    cu_seqlens_q: _Lengths = None,
    cu_seqlens_ori_kv: _Lengths = None,
    cu_seqlens_cmp_kv: _Lengths = None,
    seqused_q: _Lengths = None,
    seqused_kv: _Lengths = None,
    batch_size: int = 0,
    max_seqlen_q: int = 0,
    max_seqlen_kv: int = 0,
    ori_topk: int = 0,
    cmp_topk: int = 0,
    cmp_ratio: int = -1,
    ori_mask_mode: int = 4,
    cmp_mask_mode: int = 3,
    ori_win_left: int = 127,
    ori_win_right: int = 0,
    layout_q: str = "BSND",
    layout_kv: str = "PA_ND",
    has_ori_kv: bool = True,
    has_cmp_kv: bool = True,
    device: Any = None,
) -> Tensor:
    """Does what `sparse_flash_mla_metadata` does, for `npu_sparse_attn_sharedkv` with q [B,S1,N,D]."""
    return _metadata(locals(), "PA_ND", -1)


@checked
def npu_kv_quant_sparse_attn_sharedkv_metadata(
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    kv_quant_mode: int,
    *,
    tile_size: int = 0,
    rope_head_dim: int = 0,
    **keywords: Any,
) -> Tensor:
    """Does what `npu_sparse_attn_sharedkv_metadata` does, with the rest of its arguments as keywords. kv_quant_mode is
    1. tile_size and rope_head_dim are those of `npu_kv_quant_sparse_attn_sharedkv`."""
    only(kv_quant_mode=(kv_quant_mode, (1,)))
    for name, value in (("tile_size", tile_size), ("rope_head_dim", rope_head_dim)):
        if value < 0:
            raise ValueError(f"invalid argument: {name}={value}, want at least 0")
    return npu_sparse_attn_sharedkv_metadata(num_heads_q, num_heads_kv, head_dim, **keywords)


# The names under which the device's programs find these functions (`fa.torch_npu.install`).
C_ASCEND = CUSTOM = {
    "npu_sparse_attn_sharedkv": npu_sparse_attn_sharedkv,
    "npu_sparse_attn_sharedkv_metadata": npu_sparse_attn_sharedkv_metadata,
    "npu_kv_quant_sparse_attn_sharedkv": npu_kv_quant_sparse_attn_sharedkv,
    "npu_kv_quant_sparse_attn_sharedkv_metadata": npu_kv_quant_sparse_attn_sharedkv_metadata,
}
CANN_OPS = {
    "sparse_flash_mla": sparse_flash_mla,
    "sparse_flash_mla_grad": sparse_flash_mla_grad,
    "sparse_flash_mla_metadata": sparse_flash_mla_metadata,
    "sparse_flash_mla_softmax_l1_norm": sparse_flash_mla_softmax_l1_norm,
}
