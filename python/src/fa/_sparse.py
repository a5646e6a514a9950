"""Sparse top-k attention, the lightning indexer that chooses its keys, and the losses that train the indexer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import _fa
from ._attention import NAMES, check_arrays, integer, integers
from ._errors import argument_error, made
from ._fa import Context
from ._sparse_results import Results, integer_type, row_statistics_shape, statistics_shape


class SparseAttentionOutput(NamedTuple):
    """The results of `sparse_flash_attention`: out [B, S1, N, Dv] and statistics [B, 1, S1, N], for TND without B."""

    out: Any
    """The query's type, [B, S1, N, Dv], TND [T, N, Dv]."""
    softmax_max: Any
    """float32 [B, 1, S1, N], TND [1, T, N]; natural-log domain, 0 for a row without keys. A sink is counted in."""
    softmax_sum: Any
    """float32 of the same shape; 0 for a row without keys. A sink is counted in."""
    p_head_mean: Any = None
    """float32 [B, S1, K], TND [T, K]: the mean over the heads of each entry's probability. None if it was not asked
    for."""


class SparseAttentionGradients(NamedTuple):
    """Gradients with the shapes and types of their arguments. The gradient of an absent argument is None.

    dq: [B, S1, N, D], TND [T, N, D]; dk, dv: [B, S2, 1, D | Dv]; dq_rope, dk_rope: as dq and dk, with the ropes' head
    size; dsink: float32 [N].
    """

    dq: Any
    dk: Any
    """Without a value, dk holds the value's gradient too."""
    dv: Any
    dq_rope: Any
    dk_rope: Any
    dsink: Any


class IndexerGradients(NamedTuple):
    """Gradients with the shapes and types of their arguments.

    dq: [B, S1, N, D], TND [T, N, D]; dk: [B, S2, 1, D]; dweights: [B, S1, N].
    """

    dq: Any
    dk: Any
    dweights: Any


class IndexerStatistics(NamedTuple):
    """Softmax maximum and sum of the indexer's scores: float32 [B, 1, S1], TND [1, T]; 0 and 0 for a row without
    keys."""

    softmax_max_index: Any
    softmax_sum_index: Any


class IndexerLoss(NamedTuple):
    """A loss and its gradients. The gradients have the shapes and types of the indexer's q [B, S1, N, D], k [B, S2, 1,
    D] and weights."""

    dq_index: Any
    dk_index: Any
    dweights: Any
    loss: Any
    """float32, one element."""


class GivenLossGradients(NamedTuple):
    """The gradients of a loss with a given target, and the softmax of the indexer's scores, which is float32 [B, S1, K]
    and 0 for an entry without a key."""

    dq_index: Any
    dk_index: Any
    dweights: Any
    softmax_index: Any


def _attention_options(*values: Any) -> _fa.SparseAttentionOptions:
    names = "layout", "scale", "block_size", "sparse_mode", "check_indices", "row_format"
    return made(_fa.SparseAttentionOptions, dict(zip(names, values, strict=True)))


def _checked_format(row_format: Any, q: Any) -> list[int]:
    """Returns (columns, rope, tile). Raises ValueError if q has fewer columns than the rope part."""
    numbers = integers(row_format, "row_format")
    if len(numbers) != 3:
        raise argument_error(ValueError, "row_format", f"={tuple(numbers)}, want (columns, rope, tile)")
    last = len(q.shape) - 1
    if last >= 0 and not 0 <= numbers[1] <= q.shape[last]:
        want = f"={numbers[1]}, want 0..{q.shape[last]} ("
        raise argument_error(ValueError, "row_format.rope", want, ("q", ".shape", f"[{last}]"), ")")
    return numbers


def sparse_flash_attention(
    q: Any,
    k: Any,
    v: Any,
    sparse_indices: Any,
    *,
    layout: str = "BSND",
    scale: float | None = None,
    block_size: int = 1,
    sparse_mode: int = 3,
    query_rope: Any = None,
    key_rope: Any = None,
    sink: Any = None,
    block_table: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    value_size: int | None = None,
    row_format: tuple[int, int, int] | None = None,
    need_p_head_mean: bool = False,
    check_indices: bool = True,
    context: Context | None = None,
) -> SparseAttentionOutput:
    """Computes softmax(scale * Q K_sel^T) V_sel: each query token attends to the keys in its list.

    Args:
        q: [B, S1, N, D]; layout "TND": [T, N, D]. float32, bfloat16 or float16.
        k: [B, S2, 1, D], type of q. With block_table it is pages [blocks, block size, 1, D].
        v: as k with Dv columns; None means the first Dv columns of k.
        sparse_indices: int32 or int64 [B, S1, 1, K]. Each number names a block of block_size keys of the token's own
            batch element. A list ends at its first -1. A block that is listed twice counts twice. Keys that sparse_mode
            does not let the token see are skipped.
        scale: any finite number; None means 1 / sqrt(D + Drope).
        block_size: 1 to 128.
        sparse_mode: 3 lets token t see the keys below keys - queries + t + 1, and 0 lets it see any key.
        query_rope, key_rope: [B, S1, N, Drope] and [B, S2, 1, Drope]. Scores are then Q K^T + Qr Kr^T.
        sink: float32 [N], the score of a virtual key in every list. Its value is 0. A row without other keys then has
            max = sink and sum = 1.
        block_table: int32 [B, n]. Key j lies in page block_table[b][j // block size].
        lengths_q, lengths_kv: how many rows are in use: inclusive prefix sums for TND, otherwise lengths per batch
            element, also with pages.
        value_size: Dv if v is None; by default D, or with row_format the number of its columns.
        row_format: (columns, rope, tile) of quantised keys, whose type is int8 or float8_e4m3fn, in NumPy int8. A row
            of bytes has `columns` numbers, `rope` columns of q's type, and one float32 scale per `tile` numbers. D is
            columns + rope. v is None or has such rows too. There are no query_rope and no gradients.
        need_p_head_mean: whether to return the probability of each entry, averaged over the heads, for the indexer's
            loss. It needs block_size 1.
        check_indices: whether to raise ValueError for an entry that is no block of the sequence. If False, such an
            entry is skipped.

    Raises:
        The same errors as `flash_attention`.
    """
    optional = {"v": v, "query_rope": query_rope, "key_rope": key_rope, "sink": sink}
    check_arrays(q=q, k=k, sparse_indices=sparse_indices, optional=optional)
    results = Results(
        q,
        q=q,
        k=k,
        v=v,
        q_rope=query_rope,
        k_rope=key_rope,
        sparse_indices=sparse_indices,
        sink=sink,
        block_table=block_table,
    )
    columns, rope, tile = (0, 0, 0) if row_format is None else _checked_format(row_format, q)
    size = v.shape[-1] if v is not None and row_format is None else q.shape[-1] - rope
    if value_size is not None and (v is None or row_format is not None):
        size = integer(value_size, "value_size")
    indices = tuple(sparse_indices.shape)
    output = SparseAttentionOutput(
        results.out("out", (*q.shape[:-1], size), q.dtype),
        results.out("softmax_max", statistics_shape(q)),
        results.out("softmax_sum", statistics_shape(q)),
        results.out("p_head_mean", (*indices[:-2], *indices[-1:])) if need_p_head_mean else None,
    )
    options = _attention_options(layout, scale, block_size, sparse_mode, check_indices, (columns, rope, tile))
    results.run(_fa.sparse_forward, options, lengths_q, lengths_kv, context)
    return output


def sparse_flash_attention_grad(
    q: Any,
    k: Any,
    v: Any,
    sparse_indices: Any,
    out: Any,
    d_out: Any,
    softmax_max: Any,
    softmax_sum: Any,
    *,
    layout: str = "BSND",
    scale: float | None = None,
    block_size: int = 1,
    sparse_mode: int = 3,
    query_rope: Any = None,
    key_rope: Any = None,
    sink: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    check_indices: bool = True,
    context: Context | None = None,
) -> SparseAttentionGradients:
    """Computes the gradients of `sparse_flash_attention` from its arguments and results. The bits do not depend on the
    number of threads.

    Args:
        out, softmax_max, softmax_sum: results of the forward call.
        d_out: gradient of out, [B, S1, N, Dv], TND [T, N, Dv], type of out.

    Raises:
        The same errors as `flash_attention`.
    """
    optional = {"v": v, "query_rope": query_rope, "key_rope": key_rope, "sink": sink}
    check_arrays(q=q, k=k, sparse_indices=sparse_indices, optional=optional)
    results = Results(
        q,
        q=q,
        k=k,
        v=v,
        q_rope=query_rope,
        k_rope=key_rope,
        sparse_indices=sparse_indices,
        sink=sink,
        out=out,
        d_out=d_out,
        softmax_max=softmax_max,
        softmax_sum=softmax_sum,
    )
    gradients = SparseAttentionGradients(
        results.out_like("dq", q),
        results.out_like("dk", k),
        results.out_like("dv", v),
        results.out_like("dq_rope", query_rope),
        results.out_like("dk_rope", key_rope),
        results.out_like("dsink", sink),
    )
    options = _attention_options(layout, scale, block_size, sparse_mode, check_indices, (0, 0, 0))
    results.run(_fa.sparse_backward, options, lengths_q, lengths_kv, context)
    return gradients


def lightning_indexer(
    q: Any,
    k: Any,
    weights: Any,
    *,
    sparse_count: int = 2048,
    layout: str = "BSND",
    sparse_mode: int = 3,
    block_table: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    q_scale: Any = None,
    k_scale: Any = None,
    cmp_ratio: int = 1,
    residual_kv: Iterable[int] | None = None,
    used_q: Iterable[int] | None = None,
    used_kv: Iterable[int] | None = None,
    index_offset: Any = None,
    need_values: bool = True,
    values_dtype: Any = None,
    context: Context | None = None,
) -> tuple[Any, Any]:
    """Chooses the sparse_count keys with the largest scores for each query token. A key's score is the sum of weights *
    max(0, q . k) over the heads.

    Args:
        q: [B, S1, N, D]; layout "TND": [T, N, D]. float32, bfloat16 or float16.
        k: [B, S2, 1, D], type of q. With block_table it is pages [blocks, block size, 1, D].
        weights: [B, S1, N], type of q or float32. There is no scale argument: multiply the weights by the scale.
        sparse_mode, block_table, lengths_q, lengths_kv: as in `sparse_flash_attention`.
        q_scale, k_scale: the scales of q and k of type int8 or float8_e4m3fn: [B, S1, N], and [B, S2, 1] or [B, S2]. A
            score is then k_scale times the sum of weights * q_scale * max(0, q . k).
        cmp_ratio: how many tokens a key stands for. residual_kv, one per batch element, counts the tokens that follow
            the tokens of the last key. With sparse_mode 3 token t sees the first (keys * cmp_ratio + residual_kv -
            queries + t + 1) // cmp_ratio keys.
        used_q, used_kv: with TND, how many rows of each sequence are in use; by default all.
        index_offset: int32 [B, S1, 1] or [B], added to each index that is not -1.
        values_dtype: type of the scores: by default that of q, or float32 if q has scales.

    Returns:
        sparse_indices and their scores. The indices are int32 [B, S1, 1, K], in the order of descending scores; if
        scores are equal, the lower index comes first. Unused indices are -1. The scores are -inf where unused; without
        need_values they are None.

    Raises:
        The same errors as `flash_attention`.
    """
    optional = {"q_scale": q_scale, "k_scale": k_scale, "index_offset": index_offset}
    check_arrays(q=q, k=k, weights=weights, optional=optional)
    results = Results(q, q=q, k=k, weights=weights, block_table=block_table, **optional)
    shape = (*q.shape[:-2], 1, integer(sparse_count, "sparse_count"))
    indices = results.out("sparse_indices", shape, integer_type(q))
    own_dtype = q.dtype if q_scale is None else None
    values = results.out("sparse_values", shape, values_dtype or own_dtype) if need_values else None
    given = {"layout": layout, "sparse_mode": sparse_mode, "cmp_ratio": integer(cmp_ratio, "cmp_ratio")}
    lists = {"used_q": used_q, "used_kv": used_kv, "residual_kv": residual_kv}
    options = made(_fa.LightningIndexerOptions, given | {name: integers(x, name) for name, x in lists.items()})
    results.run(_fa.indexer, options, lengths_q, lengths_kv, context)
    return indices, values


def lightning_indexer_grad(
    q: Any,
    k: Any,
    weights: Any,
    sparse_indices: Any,
    d_values: Any,
    *,
    layout: str = "BSND",
    sparse_mode: int = 3,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    check_indices: bool = True,
    context: Context | None = None,
) -> IndexerGradients:
    """Computes the gradients of the scores that `lightning_indexer` returns, from its arguments and its indices.

    Args:
        d_values: gradient of the scores, [B, S1, 1, K] or [B, S1, K], type of q or float32.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(q=q, k=k, weights=weights)
    results = Results(q, q=q, k=k, weights=weights, sparse_indices=sparse_indices, d_values=d_values)
    gradients = IndexerGradients(
        results.out_like("dq", q), results.out_like("dk", k), results.out_like("dweights", weights)
    )
    given = {"layout": layout, "sparse_mode": sparse_mode, "check_indices": check_indices}
    options = made(_fa.LightningIndexerGradOptions, given)
    results.run(_fa.indexer_backward, options, lengths_q, lengths_kv, context)
    return gradients


def _loss(
    call: Callable,
    inputs: dict[str, Any],
    options: Any,
    lengths_q: Iterable[int] | None,
    lengths_kv: Iterable[int] | None,
    context: Context | None,
) -> IndexerLoss:
    check_arrays(**{name: inputs[name] for name in ("q_index", "k_index", "weights")}, names=NAMES)
    results = Results(inputs["q_index"], **inputs)
    loss = IndexerLoss(
        results.out_like("dq_index", inputs["q_index"]),
        results.out_like("dk_index", inputs["k_index"]),
        results.out_like("dweights", inputs["weights"]),
        results.out("loss", (1,)),
    )
    results.run(call, options, lengths_q, lengths_kv, context)
    return loss


def sparse_lightning_indexer_grad_kl_loss(
    q: Any,
    k: Any,
    query_index: Any,
    key_index: Any,
    weights: Any,
    sparse_indices: Any,
    softmax_max: Any,
    softmax_sum: Any,
    *,
    layout: str = "BSND",
    scale: float | None = None,
    sparse_mode: int = 3,
    query_rope: Any = None,
    key_rope: Any = None,
    sink: Any = None,
    p_head_mean: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    reduction: str = "sum",
    target: str = "head-mean",
    check_indices: bool = True,
    context: Context | None = None,
) -> IndexerLoss:
    """Computes the KL loss that trains the indexer, and its gradients. The loss compares the attention's probabilities
    of the selected keys with the softmax of the indexer's scores of these keys.

    Args:
        q, k, query_rope, key_rope, sparse_indices, softmax_max, softmax_sum, scale: arguments and results of
            `sparse_flash_attention` with block_size 1.
        query_index, key_index, weights: arguments of `lightning_indexer`: [B, S1, N, D], [B, S2, 1, D], [B, S1, N].
        sink: the sinks of `sparse_flash_attention`, float32 [N]. The heads' probabilities of a key are then summed, and
            divided by the number of heads minus the sum of the sinks' probabilities.
        p_head_mean: a result of `sparse_flash_attention` without sinks. With it the attention's scores are not computed
            again.
        reduction: "sum" over tokens or "mean".
        target: "head-mean", the mean of the heads' probabilities, or "l1", this mean divided by its sum over the
            selection.

    Raises:
        The same errors as `flash_attention`.
    """
    inputs = {
        "q": q,
        "k": k,
        "q_rope": query_rope,
        "k_rope": key_rope,
        "q_index": query_index,
        "k_index": key_index,
        "weights": weights,
        "sparse_indices": sparse_indices,
        "softmax_max": softmax_max,
        "softmax_sum": softmax_sum,
        "sink": sink,
        "p_head_mean": p_head_mean,
    }
    given = {
        "layout": layout,
        "scale": scale,
        "sparse_mode": sparse_mode,
        "reduction": reduction,
        "target": target,
        "check_indices": check_indices,
    }
    options = made(_fa.SparseIndexerLossOptions, given)
    return _loss(_fa.sparse_indexer_loss, inputs, options, lengths_q, lengths_kv, context)


def sparse_lightning_indexer_kl_loss_grad(
    query_index: Any,
    key_index: Any,
    weights: Any,
    sparse_indices: Any,
    target: Any,
    *,
    layout: str = "BSND",
    sparse_mode: int = 3,
    cmp_ratio: int = 1,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    used_q: Iterable[int] | None = None,
    used_kv: Iterable[int] | None = None,
    residual_kv: Iterable[int] | None = None,
    check_indices: bool = True,
    context: Context | None = None,
) -> GivenLossGradients:
    """Computes the gradients of a KL loss whose target is given. With p the target and y the softmax of the indexer's
    scores of a list, a score's gradient is y * sum(p) - p.

    Args:
        query_index, key_index, weights, sparse_indices: as in `sparse_lightning_indexer_grad_kl_loss`.
        target: float32 [B, S1, K], TND [T, K]: the probability of each entry of sparse_indices.
        cmp_ratio, used_q, used_kv, residual_kv: as in `lightning_indexer`.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(query_index=query_index, key_index=key_index, weights=weights, sparse_indices=sparse_indices)
    results = Results(
        query_index,
        q_index=query_index,
        k_index=key_index,
        weights=weights,
        sparse_indices=sparse_indices,
        p_head_mean=target,
    )
    gradients = GivenLossGradients(
        results.out_like("dq_index", query_index),
        results.out_like("dk_index", key_index),
        results.out_like("dweights", weights),
        results.out("softmax_index", (*sparse_indices.shape[:-2], *sparse_indices.shape[-1:])),
    )
    results.out("loss", (1,))
    names = NAMES | {"p_head_mean": "target"}
    lists = {"used_q": used_q, "used_kv": used_kv, "residual_kv": residual_kv}
    given = {"layout": layout, "sparse_mode": sparse_mode, "check_indices": check_indices}
    given |= {"cmp_ratio": integer(cmp_ratio, "cmp_ratio")} | {name: integers(x, name) for name, x in lists.items()}
    options = made(_fa.GivenIndexerLossOptions, given)
    results.run(_fa.sparse_indexer_loss, options, lengths_q, lengths_kv, context, names)
    return gradients


def dense_lightning_indexer_softmax_lse(
    query_index: Any,
    key_index: Any,
    weights: Any,
    *,
    layout: str = "BSND",
    sparse_mode: int = 3,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    context: Context | None = None,
) -> IndexerStatistics:
    """Computes the softmax statistics of the indexer's scores, which `dense_lightning_indexer_grad_kl_loss` takes.

    Let I be the scores that `lightning_indexer` gives to all keys that sparse_mode allows. The statistics are max I and
    the sum of exp(I - max I). Rows without keys, and rows past their length, get 0 and 0, which add nothing to that
    loss.

    Args:
        query_index, key_index, weights: q [B, S1, N, D], k [B, S2, 1, D] and weights [B, S1, N] of
            `lightning_indexer`, without pages.
        sparse_mode, lengths_q, lengths_kv: as in `sparse_flash_attention`.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(query_index=query_index, key_index=key_index, weights=weights)
    results = Results(query_index, q_index=query_index, k_index=key_index, weights=weights)
    shape = row_statistics_shape(query_index)
    statistics = IndexerStatistics(results.out("softmax_max_index", shape), results.out("softmax_sum_index", shape))
    options = made(_fa.DenseIndexerLseOptions, {"layout": layout, "sparse_mode": sparse_mode})
    results.run(_fa.dense_indexer_lse, options, lengths_q, lengths_kv, context)
    return statistics


def dense_lightning_indexer_grad_kl_loss(
    q: Any,
    k: Any,
    query_index: Any,
    key_index: Any,
    weights: Any,
    softmax_max: Any,
    softmax_sum: Any,
    softmax_max_index: Any,
    softmax_sum_index: Any,
    *,
    layout: str = "BSND",
    scale: float | None = None,
    sparse_mode: int = 3,
    query_rope: Any = None,
    key_rope: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    reduction: str = "sum",
    target: str = "head-mean",
    context: Context | None = None,
) -> IndexerLoss:
    """Computes `sparse_lightning_indexer_grad_kl_loss` over all keys that sparse_mode allows, in place of a selection.
    The attention may have several key heads.

    Args:
        q, k: [B, S1, N, D] and [B, S2, Nkv, D].
        softmax_max, softmax_sum: statistics of the attention, float32 [B, Nkv, S1, N / Nkv].
        softmax_max_index, softmax_sum_index: statistics of the indexer's scores, float32 [B, 1, S1], TND [1, T].

    Raises:
        The same errors as `flash_attention`.
    """
    inputs = {
        "q": q,
        "k": k,
        "q_rope": query_rope,
        "k_rope": key_rope,
        "q_index": query_index,
        "k_index": key_index,
        "weights": weights,
        "softmax_max": softmax_max,
        "softmax_sum": softmax_sum,
        "softmax_max_index": softmax_max_index,
        "softmax_sum_index": softmax_sum_index,
    }
    given = {
        "layout": layout,
        "scale": scale,
        "sparse_mode": sparse_mode,
        "reduction": reduction,
        "target": target,
    }
    options = made(_fa.DenseIndexerLossOptions, given)
    return _loss(_fa.dense_indexer_loss, inputs, options, lengths_q, lengths_kv, context)
