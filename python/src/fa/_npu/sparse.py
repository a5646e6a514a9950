"""torch_npu's functions for sparse attention, the lightning indexer and the indexer's losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._errors import own_names
from .._torch import sparse_ops as _torch_sparse_ops
from .._torch.lengths import as_tensor
from .._torch.sparse_ops import DenseLossCall, LossCall, SparseCall
from .calls import TENSOR_NAMES, checked
from .sparse_checks import at_least, common_layout, layout_of, only

_MAX_TOKENS = 9223372036854775807

# Argument names: {the library's name: torch_npu's name}.
_NAMES = TENSOR_NAMES | {
    "q_index": "query_index",
    "k_index": "key_index",
    "mask": "sparse_mode",
    "block_size": "sparse_block_size",
    "scale": "scale_value",
    "lengths_q": "actual_seq_lengths_query",
    "lengths_kv": "actual_seq_lengths_kv",
    "layout": "layout_query",
    "sink": "sinks",
}
_INDEXER_NAMES = _NAMES | {"lengths_kv": "actual_seq_lengths_key"}
_GRAD_NAMES = _NAMES | {"lengths_q": "actual_seq_qlen", "lengths_kv": "actual_seq_kvlen", "layout": "layout"}
_LOSS_NAMES = _GRAD_NAMES | {"lengths_kv": "actual_seq_klen"}


def _own_value(key: Tensor, value: Tensor | None) -> Tensor | None:
    """Returns None if `value` is None, is the key, or has the key's memory and no gradient. dk then contains the
    value's gradient. Otherwise returns `value`."""
    if value is None or value is key:
        return None
    same = value.data_ptr() == key.data_ptr() and value.shape == key.shape and value.stride() == key.stride()
    return None if same and not (value.requires_grad or key.requires_grad) else value


@checked
def npu_sparse_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    sparse_indices: Tensor,
    scale_value: float,
    *,
    block_table: Tensor | None = None,
    actual_seq_lengths_query: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_kv: Tensor | Sequence[int] | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    sparse_block_size: int = 1,
    layout_query: str = "BSND",
    layout_kv: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    attention_mode: int = 0,
    return_softmax_lse: bool = False,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes sparse attention: each query token attends to the keys in its own list.

    Args:
        query: [B,S1,N,D] in layout_query "BSND", [T,N,D] in "TND"; float32, bfloat16, float16.
        key, value: [B,S2,1,D], or in layout_kv "PA_BSND" pages [blocks,block size,1,D]. value may be key or None.
        sparse_indices: int32 [B,S1,1,K], numbers of blocks of sparse_block_size keys. A list ends at its first -1.
        actual_seq_lengths_query, actual_seq_lengths_kv: int32 or int64, how many rows are in use. For TND they are
            inclusive prefix sums.
        sparse_mode: 3 lets token t see the keys below keys - queries + t + 1, and 0 lets it see any key.
        pre_tokens, next_tokens: not used.
        attention_mode: 2, or 0, which means the same.
        sinks: float32 [N], the score of a virtual key whose value is 0. It has a gradient.

    Returns:
        attention_out as query, and softmax_max and softmax_sum, float32 [B,1,S1,N], TND [1,T,N], which include the
        sinks. Without return_softmax_lse the statistics have no elements.

    Raises:
        ValueError: an argument is wrong.
    """
    only(attention_mode=(attention_mode, (0, 2)))
    call = SparseCall(
        query_rope=query_rope,
        key_rope=key_rope,
        sink=sinks,
        sparse_indices=sparse_indices,
        block_table=block_table,
        lengths_q=as_tensor(actual_seq_lengths_query),
        lengths_kv=as_tensor(actual_seq_lengths_kv),
        layout=common_layout(("layout_query", layout_query), ("layout_kv", layout_kv), block_table),
        scale=scale_value,
        block_size=sparse_block_size,
        sparse_mode=sparse_mode,
    )
    with own_names(_NAMES):
        out, *statistics = _torch_sparse_ops.sparse_attention(query, key, _own_value(key, value), *call)
    if not return_softmax_lse:
        statistics = [query.new_empty(0, dtype=torch.float32) for _ in statistics]
    return out, *statistics


@checked
def npu_sparse_flash_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    sparse_indices: Tensor,
    d_out: Tensor,
    out: Tensor,
    softmax_max: Tensor,
    softmax_sum: Tensor,
    scale_value: float,
    sparse_block_size: int,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_kvlen: Tensor | Sequence[int] | None = None,
    layout: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    attention_mode: int = 0,
    *,
    sinks: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Computes the gradients dq, dk, dv, dq_rope, dk_rope of `npu_sparse_flash_attention`, and dsinks if `sinks` is
    given. torch_npu's function has no argument `sinks`. The gradient of an absent argument is None. If value is None,
    dk contains the value's gradient too. Softmax statistics that include sinks give the gradients of a call with sinks.
    d_out and out are [B, S1, N, Dv], TND [T, N, Dv].
    """
    only(attention_mode=(attention_mode, (0, 2)))
    call = SparseCall(
        query_rope=query_rope,
        key_rope=key_rope,
        sink=sinks,
        sparse_indices=sparse_indices,
        block_table=None,
        lengths_q=as_tensor(actual_seq_qlen),
        lengths_kv=as_tensor(actual_seq_kvlen),
        layout=layout_of("layout", layout),
        scale=scale_value,
        block_size=sparse_block_size,
        sparse_mode=sparse_mode,
    )
    with own_names(_GRAD_NAMES):
        gradients = _torch_sparse_ops.sparse_attention_backward(
            query, key, value, out, d_out, softmax_max, softmax_sum, *call
        )
    arguments = (query, key, value, query_rope, key_rope)
    found = tuple(None if of is None else gradient for gradient, of in zip(gradients[:5], arguments, strict=True))
    return found if sinks is None else (*found, gradients[5])


@checked
def npu_lightning_indexer(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
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
    return_value: bool = False,
) -> tuple[Tensor, Tensor]:
    """Chooses the keys with the largest scores for each query token.

    A key's score is the sum of weights * relu(query . key) over the heads. The keys are in the order of descending
    scores; if scores are equal, the key with the lower number comes first. Unused entries are -1, their scores -inf.
    The scores have a gradient.

    Args:
        query: [B,S1,N,D] in layout_query "BSND", [T,N,D] in "TND"; float32, bfloat16, float16.
        key: [B,S2,1,D], or in layout_key "PA_BSND" pages [blocks,block size,1,D].
        weights: [B,S1,N], type of query or float32.
        actual_seq_lengths_query, ..., sparse_mode: as in `npu_sparse_flash_attention`.

    Returns:
        sparse_indices, int32 [B,S1,1,K], and sparse_values, their scores. Without return_value sparse_values has no
        elements.

    Raises:
        ValueError: an argument is wrong.
    """
    at_least(1, sparse_count=sparse_count)
    layout = common_layout(("layout_query", layout_query), ("layout_key", layout_key), block_table)
    with own_names(_INDEXER_NAMES):
        indices, values = _torch_sparse_ops.lightning_indexer(
            query,
            key,
            weights,
            block_table,
            as_tensor(actual_seq_lengths_query),
            as_tensor(actual_seq_lengths_key),
            layout,
            sparse_count,
            sparse_mode,
        )
    return indices, values if return_value else query.new_empty(0)


@checked
def npu_lightning_indexer_grad(
    query: Tensor,
    key: Tensor,
    dy: Tensor,
    sparse_indices: Tensor,
    weights: Tensor,
    *,
    actual_seq_lengths_query: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_key: Tensor | Sequence[int] | None = None,
    layout: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes d_query, d_key and d_weights of `npu_lightning_indexer` from dy, the gradient of its sparse_values.

    Args:
        dy: gradient of sparse_values, [B,S1,1,K] or [B,S1,K], type of query or float32.
        sparse_indices: the indices that the indexer returned.

    Raises:
        ValueError: an argument is wrong.
    """
    with own_names(_INDEXER_NAMES | {"d_values": "dy", "layout": "layout"}):
        return _torch_sparse_ops.lightning_indexer_backward(
            query,
            key,
            weights,
            sparse_indices,
            dy,
            as_tensor(actual_seq_lengths_query),
            as_tensor(actual_seq_lengths_key),
            layout_of("layout", layout),
            sparse_mode,
        )


@checked
def npu_dense_lightning_indexer_softmax_lse(
    query_index: Tensor,
    key_index: Tensor,
    weights: Tensor,
    *,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_klen: Tensor | Sequence[int] | None = None,
    layout: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
) -> tuple[Tensor, Tensor]:
    """Computes the softmax maximum and sum of `npu_lightning_indexer`'s scores over all keys that sparse_mode allows.

    They are arguments of `npu_dense_lightning_indexer_grad_kl_loss`.

    Returns:
        softmax_max_index and softmax_sum_index, float32 [B,1,S1], TND [1,T]; 0 and 0 for a row without keys.

    Raises:
        ValueError: an argument is wrong.
    """
    with own_names(_LOSS_NAMES):
        return _torch_sparse_ops.dense_indexer_lse(
            query_index,
            key_index,
            weights,
            as_tensor(actual_seq_qlen),
            as_tensor(actual_seq_klen),
            layout_of("layout", layout),
            sparse_mode,
        )


@checked
def npu_dense_lightning_indexer_grad_kl_loss(
    query: Tensor,
    key: Tensor,
    query_index: Tensor,
    key_index: Tensor,
    weights: Tensor,
    softmax_max: Tensor,
    softmax_sum: Tensor,
    softmax_max_index: Tensor,
    softmax_sum_index: Tensor,
    scale_value: float,
    *,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_klen: Tensor | Sequence[int] | None = None,
    layout: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes `npu_sparse_lightning_indexer_grad_kl_loss` over all keys that sparse_mode allows.

    Args:
        query, key: [B,S1,N,D] and [B,S2,Nkv,D].
        softmax_max, softmax_sum: statistics of the attention, float32 [B,Nkv,S1,N/Nkv], TND [Nkv,T,N/Nkv].
        query_index, key_index, weights: arguments of `npu_lightning_indexer`.
        softmax_max_index, softmax_sum_index: statistics of the indexer's scores, float32 [B,1,S1], TND [1,T].

    Raises:
        ValueError: an argument is wrong.
    """
    call = DenseLossCall(
        query=query,
        key=key,
        query_index=query_index,
        key_index=key_index,
        weights=weights,
        softmax_max=softmax_max,
        softmax_sum=softmax_sum,
        softmax_max_index=softmax_max_index,
        softmax_sum_index=softmax_sum_index,
        query_rope=query_rope,
        key_rope=key_rope,
        lengths_q=as_tensor(actual_seq_qlen),
        lengths_kv=as_tensor(actual_seq_klen),
        layout=layout_of("layout", layout),
        scale=scale_value,
        sparse_mode=sparse_mode,
    )
    with own_names(_LOSS_NAMES):
        return _torch_sparse_ops.dense_indexer_loss(*call)


@checked
def npu_sparse_lightning_indexer_grad_kl_loss(
    query: Tensor,
    key: Tensor,
    query_index: Tensor,
    key_index: Tensor,
    weights: Tensor,
    sparse_indices: Tensor,
    softmax_max: Tensor,
    softmax_sum: Tensor,
    scale_value: float,
    *,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_klen: Sequence[int] | None = None,
    layout: str = "BSND",
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes the KL loss that trains the indexer. It compares the attention's probabilities of the selected keys,
    averaged over the heads, with the softmax of the indexer's scores of these keys.

    Args:
        query, key, sparse_indices, softmax_max, softmax_sum, scale_value: arguments and results of
            `npu_sparse_flash_attention`.
        query_index, key_index, weights: arguments of `npu_lightning_indexer`: [B, S1, N, D], [B, S2, 1, D],
            [B, S1, N].
        sinks: the sinks of the attention, float32 [N], or None. With them the heads' probabilities of a key are summed,
            and divided by the number of heads minus the sum of the sinks' probabilities.

    Returns:
        d_query_index, d_key_index, d_weights and the loss (float32, one element), summed over tokens.

    Raises:
        ValueError: an argument is wrong.
    """
    call = LossCall(
        query=query,
        key=key,
        query_index=query_index,
        key_index=key_index,
        weights=weights,
        sparse_indices=sparse_indices,
        softmax_max=softmax_max,
        softmax_sum=softmax_sum,
        query_rope=query_rope,
        key_rope=key_rope,
        sink=sinks,
        lengths_q=as_tensor(actual_seq_qlen),
        lengths_kv=as_tensor(actual_seq_klen),
        layout=layout_of("layout", layout),
        scale=scale_value,
        sparse_mode=sparse_mode,
    )
    with own_names(_LOSS_NAMES):
        return _torch_sparse_ops.sparse_indexer_loss(*call)
