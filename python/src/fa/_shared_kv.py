"""Attention over a window of original keys and over compressed keys, in one softmax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _fa
from ._attention import check_arrays, integers
from ._errors import made
from ._fa import Context
from ._sparse_results import Results, statistics_shape


class SharedKvOutput(NamedTuple):
    """The results of `shared_kv_attention`: out [B, S1, N, D] and lse [B, 1, S1, N], for TND without B."""

    out: Any
    """The query's type, [B, S1, N, D], TND [T, N, D]."""
    lse: Any
    """float32 [B, 1, S1, N], TND [1, T, N]: the log of the sum of exp(score), with the sink."""


class SharedKvGradients(NamedTuple):
    """Gradients with the shapes and types of their arguments, and the L1 norms, float32 in the shapes of the lists,
    [B, S1, 1, K]. The result for an absent argument is None."""

    dq: Any
    d_ori_kv: Any
    d_cmp_kv: Any
    dsink: Any
    ori_l1_norm: Any
    cmp_l1_norm: Any


_ARRAYS = ("ori_kv", "cmp_kv", "ori_indices", "cmp_indices", "ori_topk_length", "cmp_topk_length", "sink")
_LENGTHS = ("cu_q", "cu_ori", "cu_cmp", "used_q", "used_ori", "used_cmp", "cmp_residual")


def _shared_kv_options(given: dict[str, Any]) -> _fa.SharedKvOptions:
    """Makes the options from a call's arguments {name: value}."""
    options = {name: given[name] for name in ("layout", "scale", "cmp_ratio", "check_indices")}
    options |= {name: given[name] for name in ("ori_mask", "cmp_mask", "window_left", "window_right")}
    options |= {name: integers(given[name], name) for name in _LENGTHS}
    options |= {name: given.get(name, False) for name in ("ori_indices_are_slots", "positive_lse")}
    options |= {name: given.get(name, 0) for name in ("row_rope", "row_tile")}
    return made(_fa.SharedKvOptions, options)


def shared_kv_attention(
    q: Any,
    ori_kv: Any = None,
    cmp_kv: Any = None,
    *,
    ori_indices: Any = None,
    cmp_indices: Any = None,
    ori_topk_length: Any = None,
    cmp_topk_length: Any = None,
    sink: Any = None,
    ori_block_table: Any = None,
    cmp_block_table: Any = None,
    layout: str = "BSND",
    scale: float | None = None,
    cmp_ratio: int = 1,
    ori_mask: int = 0,
    cmp_mask: int = 3,
    window_left: int = -1,
    window_right: int = -1,
    cu_q: Iterable[int] | None = None,
    cu_ori: Iterable[int] | None = None,
    cu_cmp: Iterable[int] | None = None,
    used_q: Iterable[int] | None = None,
    used_ori: Iterable[int] | None = None,
    used_cmp: Iterable[int] | None = None,
    cmp_residual: Iterable[int] | None = None,
    ori_indices_are_slots: bool = False,
    positive_lse: bool = False,
    row_rope: int = 0,
    row_tile: int = 0,
    check_indices: bool = True,
    context: Context | None = None,
) -> SharedKvOutput:
    """Computes softmax(scale * q K^T) K, where K is the list of a token's original keys, followed by its compressed
    keys.

    Args:
        q: [B, S1, N, D]; layout "TND": [T, N, D]. float32, bfloat16 or float16.
        ori_kv, cmp_kv: [B, S2, 1, D], type of q, at least one of them. With a block table, int32 [B, n], they are pages
            [blocks, block size, 1, D].
        ori_indices, cmp_indices: int32 or int64 [B, S1, 1, K], lists of keys. A list ends at its first -1, or after
            ori_topk_length, cmp_topk_length entries, int32 [B, S1, 1]. Without a list a token has all keys that the
            mask allows.
        sink: float32 [N], the score of a virtual key whose value is 0.
        cmp_ratio: tokens per compressed key. Token i has the position t = S2 - S1 + i + 1. Without ori_kv, S2 is
            cmp_ratio times the number of compressed keys, plus cmp_residual.
        ori_mask: 0 allows all original keys, 3 those below t, 4 those in [t - window_left - 1, t + window_right), where
            -1 means no limit. It is 0 with ori_indices.
        cmp_mask: 0 allows all compressed keys, 3 those below t // cmp_ratio.
        cu_q, cu_ori, cu_cmp: only for TND, inclusive prefix sums.
        used_q, used_ori, used_cmp: how many rows of each batch element are in use. Pages need them.
        ori_indices_are_slots: whether ori_indices has rows of the pages instead of keys.
        row_rope, row_tile: with a row_tile above 0, keys are rows of bytes of type float8_e4m3fn (or uint8): row_rope
            columns of q's type, D - row_rope e4m3 numbers, one e8m0 scale per row_tile numbers, and padding. A row
            stands for its numbers, and then its rope columns.
        positive_lse: whether the lse of a row without keys is inf instead of -inf.
        check_indices: whether to raise ValueError for a list entry that is no key. If False, such an entry is skipped.

    Raises:
        The same errors as `flash_attention`.
    """
    given = dict(locals())
    optional = {name: given[name] for name in (*_ARRAYS, "ori_block_table", "cmp_block_table")}
    check_arrays(q=q, optional=optional)
    results = Results(q, q=q, **optional)
    output = SharedKvOutput(results.out("out", q.shape, q.dtype), results.out("lse", statistics_shape(q)))
    results.run(_fa.shared_kv, _shared_kv_options(given), None, None, context)
    return output


def shared_kv_attention_grad(
    q: Any,
    ori_kv: Any,
    cmp_kv: Any,
    out: Any,
    d_out: Any,
    lse: Any,
    *,
    ori_indices: Any = None,
    cmp_indices: Any = None,
    ori_topk_length: Any = None,
    cmp_topk_length: Any = None,
    sink: Any = None,
    layout: str = "BSND",
    scale: float | None = None,
    cmp_ratio: int = 1,
    ori_mask: int = 0,
    cmp_mask: int = 3,
    window_left: int = -1,
    window_right: int = -1,
    cu_q: Iterable[int] | None = None,
    cu_ori: Iterable[int] | None = None,
    cu_cmp: Iterable[int] | None = None,
    used_q: Iterable[int] | None = None,
    used_ori: Iterable[int] | None = None,
    used_cmp: Iterable[int] | None = None,
    cmp_residual: Iterable[int] | None = None,
    check_indices: bool = True,
    need_l1_norm: bool = True,
    l1_norm_of_keys: bool = False,
    context: Context | None = None,
) -> SharedKvGradients:
    """Computes the gradients of `shared_kv_attention` from its arguments and results. The bits do not depend on the
    number of threads.

    Args:
        out, lse: results of the forward call, [B, S1, N, D] and [B, 1, S1, N].
        d_out: gradient of out, with its shape and type. If out and d_out are None, only the L1 norms are computed.
        need_l1_norm: whether to return, for each entry of a list, the mean over the heads of its key's probability.
        l1_norm_of_keys: whether to return the L1 norms of all keys, [B, S1, 1, S2], for a kind of keys that has no
            list. In TND they are [T1, 1, T2]. A sequence's keys fill columns from 0 on, and other columns are 0.

    Raises:
        The same errors as `flash_attention`.
    """
    given = dict(locals())
    optional = {name: given[name] for name in (*_ARRAYS, "out", "d_out")}
    check_arrays(q=q, lse=lse, optional=optional)
    results = Results(q, q=q, lse=lse, **optional)

    def norm(name: str, indices: Any, keys: Any) -> Any:
        if indices is None and l1_norm_of_keys and keys is not None and len(keys.shape) > 2:
            return results.out(name, (*q.shape[:-2], 1, keys.shape[-3]))
        return results.out(name, indices.shape) if need_l1_norm and indices is not None else None

    whole = out is not None or d_out is not None
    gradients = SharedKvGradients(
        results.out_like("dq", q if whole else None),
        results.out_like("d_ori_kv", ori_kv if whole else None),
        results.out_like("d_cmp_kv", cmp_kv if whole else None),
        results.out_like("dsink", sink if whole else None),
        norm("ori_l1_norm", ori_indices, ori_kv),
        norm("cmp_l1_norm", cmp_indices, cmp_kv),
    )
    results.run(_fa.shared_kv_backward, _shared_kv_options(given), None, None, context)
    return gradients
