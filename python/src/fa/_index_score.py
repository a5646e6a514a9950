"""The scores of blocks of keys from which MiniMax-M3 selects, and the value of an indexer's KL loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _fa
from ._attention import check_arrays, integer, integers
from ._errors import made
from ._fa import Context
from ._sparse_results import Results

BLOCK_SIZE = 128


def _most_blocks(lengths_kv: list[int], paged: bool) -> int:
    """Returns the number of blocks of the longest sequence. If lengths are wrong, the library refuses them."""
    before = [0] * len(lengths_kv) if paged else [0, *lengths_kv]
    most = max((end - start for start, end in zip(before, lengths_kv, strict=False)), default=0)
    return min(max(-(-most // BLOCK_SIZE), 0), 1 << 40)


def msa_index_score(
    q: Any,
    k: Any,
    *,
    lengths_q: Iterable[int],
    lengths_kv: Iterable[int],
    k_scale: Any = None,
    block_table: Any = None,
    start_loc: Iterable[int] | None = None,
    sparse_mode: int = 3,
    init_blocks: int = 0,
    local_blocks: int = 0,
    columns: int | None = None,
    context: Context | None = None,
) -> Any:
    """Computes, for each head of each query token, the largest product q . k with the keys of each block of 128 keys.

    Args:
        q: [T1, N, D], the tokens of all sequences. float32, bfloat16, float16 or float8_e4m3fn.
        k: [T2, 1, D], type of q, or int8 with k_scale. With block_table it is pages [blocks, block size, 1, D].
        lengths_q: inclusive prefix sums of the numbers of tokens.
        lengths_kv: prefix sums of the numbers of keys, or with block_table the numbers themselves.
        k_scale: the scales of keys of int8, [T2] or [T2, 1], or pages of such numbers. The product of q and a key is
            multiplied by the key's scale.
        block_table: int32 [B, n]. Key j lies in page block_table[b][j // block size].
        start_loc: one number per sequence, the block that counts as the own block of all its tokens. By default each
            token has the block that contains its own position among the keys.
        sparse_mode: 3 lets token t of a sequence see the keys below keys - tokens + t + 1, and 0 lets it see any key.
        init_blocks: the number of first blocks, whose scores become 1e30.
        local_blocks: the number of blocks, up to and including the own block, whose scores become 1e29.
        columns: the number of columns of the result, by default the number of blocks of the longest sequence.

    Returns:
        float32 [N, T1, columns], -inf where a token sees no key.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(q=q, k=k, optional={"k_scale": k_scale})
    rows, keys = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    results = Results(q, q=q, k=k, k_scale=k_scale, block_table=block_table)
    blocks = _most_blocks(keys, block_table is not None) if columns is None else integer(columns, "columns")
    tokens, heads = (q.shape[0], q.shape[1]) if len(q.shape) == 3 else (0, 1)
    score = results.out("score", (heads, tokens, blocks))
    given = {"init_blocks": integer(init_blocks, "init_blocks"), "local_blocks": integer(local_blocks, "local_blocks")}
    given |= {"sparse_mode": sparse_mode, "start_loc": integers(start_loc, "start_loc")}
    results.run(_fa.index_score, made(_fa.MsaIndexScoreOptions, given), rows, keys, context)
    return score


def indexer_kl_loss(
    target: Any, probabilities: Any, *, eps: float = 1e-8, weight: str = "target", context: Context | None = None
) -> Any:
    """Computes the KL loss of an indexer's probabilities Y to a target y: the sum of w * (ln max(P, eps) - ln(Y + eps))
    over all entries, where P is y divided by its row's sum plus eps.

    Args:
        target, probabilities: [..., K] of one shape; float32, bfloat16 or float16.
        eps: at least 0.
        weight: "target" makes w = y, and "normalised" makes w = P.

    Returns:
        The loss, float32, one element.

    Raises:
        The same errors as `flash_attention`.
    """
    check_arrays(target=target, probabilities=probabilities)
    results = Results(target, target=target, probabilities=probabilities)
    loss = results.out("loss", (1,))
    options = made(_fa.IndexerKLLossOptions, {"eps": eps, "weight": weight})
    results.run(_fa.indexer_loss_value, options, (), (), context)
    return loss
