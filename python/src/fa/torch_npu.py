"""The attention functions of torch_npu on CPU tensors. A model changes one line: `import fa.torch_npu as torch_npu`.

Names, arguments, defaults and results are torch_npu's, and autograd is supported. The documentation of torch_npu says
what the arguments mean. The differences:

* Sizes have no limits. float32 works wherever the 16-bit types do. Layouts may be in upper or lower case letters.
* A row without keys gives out 0, softmax_max -FLT_MAX, softmax_sum FLT_MAX, whatever inner_precise is.
* Dropout draws other bits than the device's generator. seed = offset = 0 takes a seed from PyTorch's generator; other
  values are used as given. With the returned seed and offset, the backward drops the same pairs.
* Gradients of pse and sink, some of which the device does not write, are computed if autograd needs them.
* padding_mask, inner_precise, gen_mask_parallel and sync are accepted and have no effect.
* Sparse attention reads the value if it is given. If it is the key itself, its gradient is part of the key's. Keys that
  sparse_mode does not allow count neither forward nor backward. The softmax statistics include the sinks.
* The functions for inference have no gradient: the backward of their results raises NotImplementedError.
* A bad argument raises ValueError that names it.

Only these functions are here. `install` adds what scripts look up elsewhere: `.npu()`, `torch.npu`, `torch.ops.npu`, the
device "npu".
"""

from __future__ import annotations

from . import _needs_torch  # noqa: F401  # isort: skip
from collections.abc import Sequence

from torch import Tensor

from ._attention import integers
from ._errors import own_names
from ._npu.calls import (
    GRAD_NAMES,
    GRAD_V1_NAMES,
    NAMES,
    PROMPT_NAMES,
    RING_NAMES,
    V1_NAMES,
    Forward,
    as_newest,
    backward,
    checked,
    forward,
    forward_on_tensors,
)
from ._npu.blocks import npu_block_sparse_attention, npu_block_sparse_attention_backward
from ._npu.cache import (
    _npu_reshape_and_cache,
    npu_attention_update,
    npu_gather_pa_kv_cache,
    npu_gather_pa_kv_cache_functional,
    npu_gather_selection_kv_cache,
    npu_gather_selection_kv_cache_functional,
    npu_scatter_pa_cache,
    npu_scatter_pa_kv_cache,
    npu_scatter_pa_kv_cache_functional,
)
from ._npu.decode import _npu_paged_attention, npu_incre_flash_attention
from ._npu.fused import (
    _npu_fused_infer_attention_score_get_max_workspace,
    _npu_fused_infer_attention_score_infer_output,
    _npu_fused_infer_attention_score_v2_get_max_workspace,
    _npu_fused_infer_attention_score_v2_infer_output,
    npu_fused_infer_attention_score,
    npu_fused_infer_attention_score_v2,
)
from ._npu.index_score import npu_msa_index_score
from ._npu.install import install, uninstall
from ._npu.quantized_sparse import npu_kv_quant_sparse_flash_attention, npu_quant_lightning_indexer
from ._npu.selected_blocks import npu_k2q_csr, npu_sparse_attention_score, npu_sparse_attention_score_prefill
from ._npu.shared_kv import (
    npu_kv_quant_sparse_attn_sharedkv,
    npu_sparse_attn_sharedkv,
    npu_sparse_attn_sharedkv_metadata,
    sparse_flash_mla,
    sparse_flash_mla_grad,
    sparse_flash_mla_metadata,
    sparse_flash_mla_softmax_l1_norm,
)
from ._npu.sparse import (
    npu_dense_lightning_indexer_grad_kl_loss,
    npu_dense_lightning_indexer_softmax_lse,
    npu_lightning_indexer,
    npu_lightning_indexer_grad,
    npu_sparse_flash_attention,
    npu_sparse_flash_attention_grad,
    npu_sparse_lightning_indexer_grad_kl_loss,
)
from ._torch import ops as _torch_ops
from ._torch.ops import PromptCall

__all__ = [
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_fused_infer_attention_score_infer_output",
    "_npu_fused_infer_attention_score_v2_get_max_workspace",
    "_npu_fused_infer_attention_score_v2_infer_output",
    "_npu_paged_attention",
    "_npu_reshape_and_cache",
    "install",
    "npu_attention_update",
    "npu_block_sparse_attention",
    "npu_block_sparse_attention_backward",
    "npu_dense_lightning_indexer_grad_kl_loss",
    "npu_dense_lightning_indexer_softmax_lse",
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "npu_fusion_attention",
    "npu_fusion_attention_grad",
    "npu_fusion_attention_grad_v2",
    "npu_fusion_attention_grad_v3",
    "npu_fusion_attention_v2",
    "npu_fusion_attention_v3",
    "npu_gather_pa_kv_cache",
    "npu_gather_pa_kv_cache_functional",
    "npu_gather_selection_kv_cache",
    "npu_gather_selection_kv_cache_functional",
    "npu_incre_flash_attention",
    "npu_k2q_csr",
    "npu_kv_quant_sparse_attn_sharedkv",
    "npu_kv_quant_sparse_flash_attention",
    "npu_lightning_indexer",
    "npu_lightning_indexer_grad",
    "npu_msa_index_score",
    "npu_prompt_flash_attention",
    "npu_quant_lightning_indexer",
    "npu_ring_attention_update",
    "npu_scatter_pa_cache",
    "npu_scatter_pa_kv_cache",
    "npu_scatter_pa_kv_cache_functional",
    "npu_sparse_attention_score",
    "npu_sparse_attention_score_prefill",
    "npu_sparse_attn_sharedkv",
    "npu_sparse_attn_sharedkv_metadata",
    "npu_sparse_flash_attention",
    "npu_sparse_flash_attention_grad",
    "npu_sparse_lightning_indexer_grad_kl_loss",
    "sparse_flash_mla",
    "sparse_flash_mla_grad",
    "sparse_flash_mla_metadata",
    "sparse_flash_mla_softmax_l1_norm",
    "uninstall",
]

_MAX_TOKENS = 2147483647


@checked
def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _MAX_TOKENS,
    next_tockens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
) -> Forward:
    """Computes attention in training: softmax(mask(scale * Q K^T, pse)) V with dropout, and its statistics.

    Args:
        query: [B,N,Sq,D] in input_layout "BNSD", "BSND", "BSH", "SBH" or "TND"; float32, bfloat16, float16.
        key, value: [B,Nkv,Sk,D], [B,Nkv,Sk,Dv].
        pse: [B|1,N,Sq|1,Sk], or if Sq > 1024 the compressed form [B|1,N,1024,Sk]: the last 1024 rows, from which the
            other rows follow. For TND the elements [N,Sq_b,Sk_b] or [N,Sk_b] of the sequences follow one another, in a
            tensor of any shape. But four dimensions with 1024 rows are the compressed form, [B|1,N,1024,longest Sk].
        atten_mask: bool or uint8, 1 = drop. Without it every sparse_mode computes all pairs, as on the device. Modes 2,
            3, 4, 6, 7 and 8 take the compressed masks ([2048,2048], mode 6 [3072,2048]), whose contents are checked.
        actual_seq_qlen, actual_seq_kvlen: for TND, inclusive prefix sums of the lengths. Zeros at the end stand for
            sequences without rows.
        softmax_layout: for TND. With "" the statistics are one block [N,Sq_b,8] per sequence, one after another. With
            "TND" or "same_as_input" they are [T,N,8].

    Returns:
        attention_out, softmax_max, softmax_sum, softmax_out (empty), seed, offset, numels. Statistics are float32
        [B,N,Sq,8], TND [T,N,8].

    Raises:
        ValueError: an argument is wrong; the device's checks of sparse_mode, pre_tockens, next_tockens and prefix hold.
    """
    return forward(as_newest(locals()), V1_NAMES)


@checked
def npu_fusion_attention_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
) -> Forward:
    """Computes `npu_fusion_attention` with the further arguments query_rope, key_rope, pse_type, q_start_idx and
    kv_start_idx.

    Args:
        query_rope, key_rope: [B,N,Sq,Drope], [B,Nkv,Sk,Drope]. Scores are then Q K^T + Qr Kr^T.
        pse_type: 0 means scale * QK + pse, 1 means scale * (QK + pse). With 2 and 3, pse has slopes, float32 [N] or
            [B,N]. Type 2 multiplies them by the distance between key and query, type 3 by the square root of this
            distance.
        q_start_idx, kv_start_idx: for pse types 2 and 3, their first entries are added to the positions of queries and
            keys. Without kv_start_idx, neither is added.
    """
    return forward(locals(), NAMES)


@checked
def npu_fusion_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _MAX_TOKENS,
    next_tockens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    seed: int = 0,
    offset: int = 0,
    numels: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Computes the gradients dq, dk, dv, dpse, dsink of `npu_fusion_attention`. dpse is None without pse, and dsink is
    None without sink.

    Args:
        dy: gradient of attention_out, with its shape: [B, N, S, D] for input_layout "BNSD".
        softmax_max, softmax_sum, attention_in: results of the forward. attention_in is its attention_out.
        seed, offset: results of the forward, needed if keep_prob < 1.
    """
    dq, dk, dv, dpse, _, _, dsink = backward(as_newest(locals()), GRAD_V1_NAMES)
    return dq, dk, dv, dpse, dsink


@checked
def npu_fusion_attention_grad_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    seed: int = 0,
    offset: int = 0,
    numels: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Computes the gradients dq, dk, dv, dpse, dq_rope, dk_rope, dsink of `npu_fusion_attention_v2`.

    A gradient is None if its argument is absent. The arguments are those of `npu_fusion_attention_grad`, and query_rope
    and key_rope [B, N, S, Drope] in the input layout.
    """
    return backward(locals(), GRAD_NAMES)


@checked
def npu_fusion_attention_v3(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _MAX_TOKENS,
    next_tockens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_kvlen: Tensor | Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Computes `npu_fusion_attention` with lengths, seed and offset as tensors, so that a graph can contain dropout.

    Returns:
        attention_out [B, N, Sq, Dv] in the input layout, softmax_max, softmax_sum, softmax_out (empty), seed, offset.
        The last two are int64 [1], for `npu_fusion_attention_grad_v3`.
    """
    return forward_on_tensors(as_newest(locals()), V1_NAMES)


@checked
def npu_fusion_attention_grad_v3(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _MAX_TOKENS,
    next_tockens: int = _MAX_TOKENS,
    inner_precise: int = 0,
    seed: Tensor | None = None,
    offset: Tensor | None = None,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_kvlen: Tensor | Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Computes the gradients dq, dk, dv, dpse, dsink of `npu_fusion_attention_v3`. dpse is None without pse, and dsink
    is None without sink.

    The arguments are those of `npu_fusion_attention_grad` (dy [B, N, S, D]), but seed and offset are int64 [1], as the
    forward returned them.
    """
    dq, dk, dv, dpse, _, _, dsink = backward(as_newest(locals()), GRAD_V1_NAMES)
    return dq, dk, dv, dpse, dsink


@checked
def npu_prompt_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    pse_shift: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    deq_scale1: Tensor | None = None,
    quant_scale1: Tensor | None = None,
    deq_scale2: Tensor | None = None,
    quant_scale2: Tensor | None = None,
    quant_offset2: Tensor | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    sparse_mode: int = 0,
) -> Tensor:
    """Computes attention over a prompt in inference. There is no gradient.

    Args:
        query: [B,N,Sq,D] in input_layout "BSH", "BSND", "BNSD", "BNSD_BSND" or "TND"; float32, bfloat16, float16, int8.
        atten_mask: bool, int8 or uint8, 1 = drop: [Sq,Sk], [B|1,Sq,Sk] or [B|1,1,Sq,Sk]. It may have more than Sq rows
            and Sk columns. sparse_mode 2, 3 and 4 take [2048,2048], and are refused without it.
        pse_shift: a bias that is added to the scaled scores.
        actual_seq_lengths, actual_seq_lengths_kv: how many rows of each batch element are in use; one entry holds for
            all. For TND they are inclusive prefix sums. Output rows past the length are 0.
        deq_scale1, quant_scale1, deq_scale2: scales that int8 inputs need.
        quant_scale2, quant_offset2: scales and offsets of an int8 output.

    Returns:
        The output: int8 with quant_scale2, otherwise float16 for int8 inputs and query's type for others.

    Raises:
        ValueError: an argument is wrong, or the device's checks of sparse_mode, pre_tokens and next_tokens fail.
    """
    if num_heads <= 0:
        raise ValueError(f"invalid argument: num_heads={num_heads}, want >= 1")
    if not 0 <= sparse_mode <= 4:
        raise ValueError(f"invalid argument: sparse_mode={sparse_mode}, want 0..4")
    if sparse_mode >= 2 and atten_mask is None:
        raise ValueError(f"invalid argument: atten_mask: missing, want [2048,2048] (sparse_mode {sparse_mode})")
    call = PromptCall(
        pse=pse_shift,
        dense_mask=atten_mask,
        deq_scale1=deq_scale1,
        quant_scale1=quant_scale1,
        deq_scale2=deq_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        layout=input_layout.upper(),
        heads=num_heads,
        heads_kv=num_key_value_heads or num_heads,
        scale=scale_value,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        lengths_q=integers(actual_seq_lengths, "actual_seq_lengths"),
        lengths_kv=integers(actual_seq_lengths_kv, "actual_seq_lengths_kv"),
    )
    with own_names(PROMPT_NAMES):
        return _torch_ops.prompt_attention(query, key, value, *call)


@checked
def npu_ring_attention_update(
    prev_attn_out: Tensor,
    prev_softmax_max: Tensor,
    prev_softmax_sum: Tensor,
    cur_attn_out: Tensor,
    cur_softmax_max: Tensor,
    cur_softmax_sum: Tensor,
    *,
    actual_seq_qlen: Tensor | None = None,
    input_layout: str = "SBH",
    input_softmax_layout: str = "",
) -> tuple[Tensor, Tensor, Tensor]:
    """Merges two partial results. Returns attn_out, softmax_max and softmax_sum over the keys of both.

    Args:
        prev_attn_out, cur_attn_out: input_layout "SBH" [S,B,N·D] or "TND" [T,N,D].
        prev_softmax_max, ...: float32 [B,N,S,8], TND [T,N,8]. For TND with input_softmax_layout "" or "SBH", they are
            one block [N,S_b,8] per sequence, one after another.
        actual_seq_qlen: int64, prefix sums of the lengths with a leading 0. Blocks per sequence need it.

    Raises:
        ValueError: an argument is wrong.
    """
    if input_layout not in ("SBH", "TND"):
        raise ValueError(f'invalid argument: input_layout="{input_layout}", want "SBH" or "TND"')
    if input_softmax_layout not in ("", "SBH", "TND"):
        raise ValueError(f'invalid argument: input_softmax_layout="{input_softmax_layout}", want "", "SBH" or "TND"')
    by_sequence = input_layout == "TND" and input_softmax_layout != "TND"
    if by_sequence and actual_seq_qlen is None:
        raise ValueError("invalid argument: actual_seq_qlen: missing, want prefix sums with a leading 0")
    previous = prev_attn_out, prev_softmax_max, prev_softmax_sum
    current = cur_attn_out, cur_softmax_max, cur_softmax_sum
    with own_names(RING_NAMES):
        return _torch_ops.merge(*previous, *current, actual_seq_qlen, input_layout, by_sequence)
