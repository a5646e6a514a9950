"""Attention of sequences that lie on several processes, over any process group of torch.distributed that moves CPU
tensors (gloo, mpi): `from fa.torch import context_parallel as cp`.

Every rank of the group holds some rows of a sequence. It passes these rows and gets the same rows of the output. The
same is true of gradients. **The bits are those of one process** that has the whole sequence, for any number of ranks
and any cut at multiples of 128 rows. docs/distributed.md explains the cuts and the communication.

Arguments that all functions here share:

    group: a ProcessGroup, or a DeviceMesh of one dimension; None means the default group.
    cut: which rows a rank holds. "zigzag" cuts the sequence into 2 P chunks for P ranks. Rank r has chunks r and 2 P -
        1 - r, so that all ranks have equal work under a causal mask. "contiguous" gives rank r chunk r of P. A list
        has, for each rank, the intervals (begin, end) of its rows, in the order in which the rank holds them. The
        intervals of all ranks cover the sequence once. Chunks are multiples of 128 rows, except the last, which takes
        the rest.

All functions except `positions` and `traffic` are collective. Every rank of the group calls them in the same order,
even a rank that holds no rows. An error of one rank, or a disagreement between ranks, raises the same exception on
every rank before tensors are sent. An exception of the group, for example at its time-out after a rank has died,
becomes a RuntimeError.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.nn.functional import pad

from .._npu.ranked import npu_fusion_attention
from .._torch.agreement import process_group
from .._torch.call import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT, EVERY_KEY, Call
from .._torch.dropout import new_state
from .._torch.ranked import NAMES, Attention, Cut, Ranks, attend, ranks_of, traffic
from .._torch.ranked_models import enabled
from .._torch.sdpa import autocast, check_arguments
from .._torch.shapes import (
    as_bnsd,
    as_given,
    broadcast_attention,
    check_types,
    empty_like,
    fused,
    own_arguments,
    rows_in_memory,
)
from .._torch.shards import positions, shard, unshard

__all__ = ["enable", "npu_fusion_attention", "positions", "scaled_dot_product_attention", "shard", "traffic", "unshard"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    group: Any = None,
    cut: Cut = "zigzag",
    strategy: str = "auto",
) -> Tensor:
    """Computes `fa.torch.scaled_dot_product_attention` of sequences that lie on all ranks of the group, forward and
    backward.

    Args:
        query: [..., N, L, E], this rank's rows; float32, bfloat16 or float16. Everything but the numbers of rows must
            be the same on all ranks.
        key, value: [..., N, S, E] and [..., N, S, Ev], this rank's rows by the same cut.
        attn_mask: a tensor that broadcasts to [..., N, L, S] with this rank's rows of query and all rows of key: bool
            (True = look at the key), or float, added to the scores. A float mask with L rows may have a gradient. The
            rows of a mask stay on their rank, so strategy "heads" is refused. Or causal_upper_left or
            causal_lower_right of torch.nn.attention.bias, with the sizes of the whole sequences.
        dropout_p: in [0, 1); the seed comes from PyTorch's generator on rank 0.
        is_causal: whether row i of the whole query looks only at keys j <= i of the whole key. Not together with
            attn_mask.
        scale, enable_gqa: as in `fa.torch.scaled_dot_product_attention`.
        group, cut: see the description of the module.
        strategy: what is sent. "sequence" sends keys and values, a few heads at a time, to every rank whose rows look
            at them. "heads" sends some heads of whole sequences to each rank, and the results back. "auto" takes the
            strategy with the shorter predicted time. The bits do not depend on the strategy.

    Returns:
        [..., N, L, Ev], this rank's rows, with the strides that `fa.torch.scaled_dot_product_attention` gives them.
        Gradients have this rank's rows too. Either all ranks must call backward, or none.

    Raises:
        ValueError, TypeError: an argument of some rank is wrong, or the ranks disagree about one; the text names the
        rank. RuntimeError: the group has failed.
    """
    group = process_group(group)
    shapes = None
    rule_sizes = None

    def prepare() -> tuple[Ranks, Attention]:
        nonlocal shapes, rule_sizes
        ranks = ranks_of(group, cut, strategy)
        rule, rule_sizes = _rule(attn_mask, is_causal)
        in_memory = None if rule_sizes is not None else attn_mask
        check_arguments(query, key, value, in_memory, dropout_p, is_causal, scale)
        q, k, v, mask = autocast(query, key, value, in_memory)
        _check_plain(query=q, key=k, value=v)
        check_types(query=q, key=k, value=v, attn_mask=mask)
        if mask is not None:
            _check_plain(attn_mask=mask)
        shapes = broadcast_attention(q.shape, k.shape, v.shape, enable_gqa)
        own_scale = scale
        if q.shape[-1] == 0:  # without columns all scores are 0
            q, k, own_scale = pad(q, (0, 1)), pad(k, (0, 1)), 1.0
        as_query = fused(q, k, v, mask, dropout_p > 0.0, enable_gqa)
        q = as_bnsd(q, shapes, shapes.heads)
        k, v = as_bnsd(k, shapes, shapes.heads_kv), as_bnsd(v, shapes, shapes.heads_kv)
        others = {"dropout_state": new_state(dropout_p), "keep_prob": 1.0 - dropout_p}
        others |= rows_in_memory(mask, shapes, "attn_mask")
        out = empty_like(q) if as_query else None
        return ranks, Attention(q, k, v, Call.of_rule(rule, "BNSD", own_scale, **others), out=out)

    def check(sq: int, sk: int) -> None:
        if rule_sizes is not None and rule_sizes != (sq, sk):
            got, want = list(rule_sizes), [sq, sk]
            raise ValueError(f"invalid argument: attn_mask.shape={got}, want {want} (rows of all ranks)")

    out = attend(group, prepare, _in_own_names, check)[0]
    return as_given(out, shapes)


_SDPA_NAMES = NAMES | {
    "heads": "query.shape[-3]",
    "heads_kv": "key.shape[-3]",
    "dtype": "query.dtype",
    "head size": "query.shape[-1]",
    "head size of v": "value.shape[-1]",
    "mask.kind": "is_causal",
}


def _in_own_names(error: Exception) -> Exception:
    return own_arguments(error, more=_SDPA_NAMES)


def _check_plain(**tensors: Tensor) -> None:
    """Raises ValueError for nested tensors and for classes other than Tensor and Parameter."""
    for name, tensor in tensors.items():
        if tensor.is_nested or type(tensor) not in (Tensor, torch.nn.Parameter):
            kind = "nested tensor" if tensor.is_nested else type(tensor).__name__
            raise ValueError(f"invalid argument: {name}: a {kind}, want a torch.Tensor of this rank's rows")


def _rule(attn_mask: Any, is_causal: bool) -> tuple[int, tuple[int, int] | None]:
    """Returns the rule that says which keys a row sees, and the sizes of a mask of torch.nn.attention.bias."""
    if attn_mask is None:
        return (CAUSAL_TOP_LEFT if is_causal else EVERY_KEY), None
    if is_causal:
        raise ValueError("invalid argument: attn_mask: given together with is_causal, want one of them")
    if not isinstance(attn_mask, CausalBias):
        return EVERY_KEY, None
    upper = attn_mask.variant == CausalVariant.UPPER_LEFT
    return (CAUSAL_TOP_LEFT if upper else CAUSAL_BOTTOM_RIGHT), (attn_mask.seq_len_q, attn_mask.seq_len_kv)


def enable(group: Any = None, cut: Cut = "zigzag", strategy: str = "auto") -> contextlib.AbstractContextManager[None]:
    """While this context lasts, all attention in a model is computed over the ranks: `with cp.enable(group, cut):
    model(x)`.

    torch.nn.functional.scaled_dot_product_attention is the function of this module, in all threads, for code that looks
    it up there at each call. torch.nn.MultiheadAttention and torch.nn.Transformer's layers work with
    need_weights=False. Models of transformers work with attn_implementation "sdpa" and "fa", and with causal masks,
    windows and attention in both directions. The caller passes `positions(...)[None]` as their `position_ids`. A mask
    of four dimensions that the caller passes to the model has this rank's rows and all keys: `shard(mask, dim=-2)`.
    Padding masks, packed sequences and caches of earlier tokens raise ValueError.

    Backward may run outside the context. Contexts nest, and the innermost one counts. A call of this function without
    `with` gives a RuntimeWarning.
    """
    return enabled(scaled_dot_product_attention, _replace_in_models, process_group(group), cut, strategy)


def _replace_in_models(undo: contextlib.ExitStack) -> None:
    if "transformers.masking_utils" in sys.modules:
        from .._model import ranked

        ranked.replace(undo)
