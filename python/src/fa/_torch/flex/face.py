"""The functions that `fa.torch` has for FlexAttention: arguments are checked, prepared and computed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.attention.flex_attention as host
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from ..._pytorch import dq_write_order
from ..._replaced import Replacement
from ..entered import context
from ..sdpa import autocast
from .attention import Results
from .compiled import every_pair, score_itself, traced
from .mask import Kept, Sizes
from .prepare import check_is_mask, computed, prepared, traced_mask


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: host.AuxRequest | None = None,
) -> Any:
    """Computes torch.nn.attention.flex_attention.flex_attention on CPUs, forward and backward.

    Args:
        query: [B, Hq, L, E]; float32, bfloat16, float16 or float64.
        key, value: [B|1, Hkv, S, E] and [B|1, Hkv, S, Ev], of query's type. Hkv is Hq, or with enable_gqa a divisor.
        score_mod: score_mod(score, b, h, q_idx, kv_idx) returns the score of a pair from the scaled product. Tensors
            that it captures may require gradients.
        block_mask: which pairs are kept. Pairs outside all listed blocks are dropped, pairs in full blocks are kept,
            and mask_mod decides the others.
        scale: None means 1 / sqrt(E).
        kernel_options: has no effect. A BACKEND other than "AUTO" is refused.
        return_aux: asks for the log-sum-exp, which has a gradient, and for the largest score of each row.

    Under torch.compile the call is one operator. Only where Dynamo cannot trace score_mod or mask_mod does the call
    break the graph. `explain_flex_attention` says how a call is computed. Rows without keys are 0, and their log-sum-exp
    is -inf. Scores of a score_mod that the engine lacks are computed by PyTorch's operations, in slabs of query rows.
    The bits of such calls may depend on the number of PyTorch's threads, and so may the gradients of a captured tensor
    of which a pair reads several elements. No captured tensor may change before the backward.

    Returns:
        [B, Hq, L, Ev] in the order of query's strides. With return_aux, this and an AuxOutput of float32 [B, Hq, L];
        with return_lse, this and the log-sum-exp.

    Raises:
        ValueError: an argument is wrong. NotImplementedError: an argument is a nested tensor or has not 4 dimensions, or
            torch.export traces the call.
        RuntimeError: in the backward, if a captured tensor that it reads again has been written to.
    """
    _check_options(kernel_options)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
                         "return_aux=AuxRequest(lse=True) instead.")
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    if torch.compiler.is_compiling():
        results = _compiled(query, key, value, score_mod, block_mask, enable_gqa, scale)
    else:
        results = computed(query, key, value, score_mod, block_mask, enable_gqa, scale)
    out = results.out
    if return_aux is not None:
        lse, max_scores = (getattr(results, name) if getattr(return_aux, name) else None for name in ("lse", "max_scores"))
        return out, host.AuxOutput(lse, max_scores)
    return (out, results.lse) if return_lse else out


def _check_options(kernel_options: Any) -> None:
    backend = (kernel_options or {}).get("BACKEND", "AUTO")
    if backend != "AUTO":
        raise ValueError(f"invalid argument: kernel_options['BACKEND']={backend!r}, want 'AUTO'")


def _compiled(query, key, value, score_mod, block_mask, enable_gqa, scale) -> Results:
    """Calls the function that Dynamo puts into its graph."""
    query, key, value, _ = autocast(query, key, value, None)
    mask = None, None, None, None, 0, 0, 0, 0, every_pair
    if block_mask is not None:
        check_is_mask(block_mask)
        lists = block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices
        mask = *lists, *block_mask.seq_lengths, *block_mask.BLOCK_SIZE, block_mask.mask_mod
    score_mod = score_itself if score_mod is None else score_mod
    return Results(*traced(query, key, value, score_mod, mask, scale, {"enable_gqa": enable_gqa}))


@torch.compiler.disable
def explain_flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: host.AuxRequest | None = None,
) -> str:
    """Returns how `flex_attention` computes a call with the same arguments, query [B, Hq, L, E] and others, and why.
    Nothing is computed.

    The first line is about the kept pairs: intervals of keys per row, or pairs. The second line is about score_mod:
    what the engine makes of it, or which part makes PyTorch's operations compute it.
    """
    _check_options(kernel_options)
    *_, call = prepared(query, key, value, score_mod, block_mask, enable_gqa)
    kept = call.kept
    mask = "intervals of keys per row" if kept.rows is not None else f"pairs, because {kept.reason}"
    if call.by_operations is not None:
        return f"mask: {mask}\nscore: by PyTorch's operations in slabs of rows, because {call.why}"
    bias = call.bias.words if call.bias else "evaluated in slabs of rows"
    return f"mask: {mask}\nscore: by the engine: {call.form}" + f" (bias: {bias})" * bool(call.form.biases)


@torch.compiler.disable
def create_block_mask(
    mask_mod: Callable[..., Tensor],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = 128,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """Returns the BlockMask that torch.nn.attention.flex_attention.create_block_mask returns, without a tensor
    [B, H, Q, K] of all pairs.

    Args:
        mask_mod: mask_mod(b, h, q_idx, kv_idx) returns whether a pair is kept.
        B, H: numbers of batch elements and query heads. None means that mask_mod does not depend on them.
        device: None or a CPU. _compile: has no effect.
        others: as in PyTorch's function.

    Raises:
        ValueError: an argument is wrong.
    """
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError(f"invalid argument: device={device}, want cpu")
    if not isinstance(dq_kv_order, bool):
        raise ValueError("dq_kv_order must be a bool when using create_block_mask")
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    sizes = Sizes(1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    kept = Kept(sizes, traced_mask(mask_mod), None, ())
    some, every = kept.blocks_of_size(size)
    lists = [some & ~every, every] if separate_full_blocks else [some]
    ordered = [part for blocks in lists for part in _ordered(blocks.expand(*sizes[:2], -1, -1))]
    made = BlockMask.from_kv_blocks(*ordered, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))
    if compute_dq_write_order:
        made.dq_write_order, made.dq_write_order_full = dq_write_order(made, dq_kv_order)
        made.dq_kv_order, made.dq_kv_order_spt = None, dq_kv_order
    return made


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the number of listed blocks per row of blocks, and the columns, those of listed blocks first."""
    blocks = blocks.to(torch.int32)
    columns = torch.argsort(blocks, dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(torch.int32), columns.to(torch.int32).contiguous()


_replacement = Replacement(host, flex_attention=flex_attention, create_block_mask=create_block_mask)


@context("fa.torch.replace_flex_attention")
def replace_flex_attention() -> Iterator[None]:
    """While this context lasts, the functions flex_attention and create_block_mask of torch.nn.attention.flex_attention
    are those of fa.torch, in all threads.

    Programs that look the functions up in that module when they run are served. A name that was imported before, and a
    function that torch.compile compiled before, stay PyTorch's. Contexts nest and overlap. A call without `with`
    replaces nothing, and gives a RuntimeWarning.
    """
    _replacement.enter()
    try:
        yield
    finally:
        _replacement.leave()
