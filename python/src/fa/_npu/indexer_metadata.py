"""The device's metadata operators of the indexers, which on the device say how an indexer's work is split.

`fa` splits the work itself, and no operator reads metadata. So these functions check their arguments and return zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .calls import checked
from .sparse_checks import (
    INDEXER_PAGES,
    SECOND_INDEXER_PAGES,
    at_least,
    check_integers,
    layout_of,
    only,
    without_zero,
)

_MAX_TOKENS = 9223372036854775807
_MOST_RATIO = 1 << 20
_METADATA_SIZE = 1024


def _zeros(
    num_heads_k: int, cmp_ratio: int, query: tuple[str, str], key: tuple[str, str], pages: str
) -> Tensor:
    """Checks the arguments that both metadata functions have, and returns zeros, int32 [1024]. `query` and `key` are
    the names and the values of the layouts.
    """
    only(num_heads_k=(num_heads_k, (1,)))
    if not 1 <= cmp_ratio <= _MOST_RATIO:
        raise ValueError(f"invalid argument: cmp_ratio={cmp_ratio}, want 1..{_MOST_RATIO}")
    allowed = layout_of(*query), pages
    if key[1].upper() not in allowed:
        raise ValueError(f'invalid argument: {key[0]}="{key[1]}", want {" or ".join(allowed)} ({query[0]})')
    return torch.zeros(_METADATA_SIZE, dtype=torch.int32)


@checked
def npu_quant_lightning_indexer_metadata(
    num_heads_q: int,
    num_heads_k: int,
    head_dim: int,
    query_quant_mode: int,
    key_quant_mode: int,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    batch_size: int = 0,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    layout_query: str = "BSND",
    layout_key: str = "BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    pre_tokens: int = _MAX_TOKENS,
    next_tokens: int = _MAX_TOKENS,
    cmp_ratio: int = 1,
    device: str | torch.device | None = "npu",
) -> Tensor:
    """Checks the arguments of torch.ops.custom.npu_quant_lightning_indexer, and returns zeros, int32 [1024].

    Raises:
        ValueError: an argument is wrong.
    """
    only(query_quant_mode=(query_quant_mode, (0,)), key_quant_mode=(key_quant_mode, (0,)))
    only(sparse_mode=(sparse_mode, (0, 3)))
    at_least(1, num_heads_q=num_heads_q, head_dim=head_dim, sparse_count=sparse_count)
    at_least(0, batch_size=batch_size)
    at_least(-1, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k)
    check_integers(
        actual_seq_lengths_query=actual_seq_lengths_query, actual_seq_lengths_key=actual_seq_lengths_key
    )
    layouts = ("layout_query", layout_query), ("layout_key", layout_key)
    return _zeros(num_heads_k, cmp_ratio, *layouts, INDEXER_PAGES)


@checked
def lightning_indexer_metadata(
    num_heads_q: int,
    num_heads_k: int,
    head_dim: int,
    topk: int,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    cmp_residual_k: Tensor | None = None,
    batch_size: int | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    layout_q: str | None = None,
    layout_k: str | None = None,
    mask_mode: int | None = None,
    cmp_ratio: int | None = None,
) -> Tensor:
    """Checks the arguments of cann_ops_transformer.ops.lightning_indexer, and returns zeros, int32 [1024]. None stands
    for that function's default.

    Raises:
        ValueError: an argument is wrong.
    """
    at_least(1, num_heads_q=num_heads_q, head_dim=head_dim, topk=topk)
    at_least(0, batch_size=batch_size or 0)
    at_least(-1, max_seqlen_q=max_seqlen_q or 0, max_seqlen_k=max_seqlen_k or 0)
    only(mask_mode=(mask_mode or 0, (0, 3)))
    check_integers(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        cmp_residual_k=cmp_residual_k,
    )
    for name, sums in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        without_zero(name, sums)
    layouts = ("layout_q", layout_q or "BSND"), ("layout_k", layout_k or "BSND")
    return _zeros(num_heads_k, 1 if cmp_ratio is None else cmp_ratio, *layouts, SECOND_INDEXER_PAGES)


@checked
def quant_lightning_indexer_metadata(
    num_heads_q: int,
    num_heads_k: int,
    head_dim: int,
    topk: int,
    quant_mode: int,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    cmp_residual_k: Tensor | None = None,
    batch_size: int | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    layout_q: str | None = None,
    layout_k: str | None = None,
    mask_mode: int | None = None,
    cmp_ratio: int | None = None,
) -> Tensor:
    """Checks the arguments of cann_ops_transformer.ops.quant_lightning_indexer, and returns zeros, int32 [1024]. None
    stands for that function's default.

    Raises:
        ValueError: an argument is wrong.
    """
    given = dict(locals())
    only(quant_mode=(given.pop("quant_mode"), (1, 2)))
    return lightning_indexer_metadata(**given)
