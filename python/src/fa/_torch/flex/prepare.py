"""Checks the arguments of a FlexAttention call, and prepares and computes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from ..._errors import ERRORS
from ..._pytorch import transforms_are_active
from ..engine import is_plain
from ..sdpa import autocast
from ..shapes import own_arguments
from .attention import Call, Engine, Results, by_operations
from .mask import Kept, Sizes, kept_of
from .score import Bias, Form, Unserved, bias_of, form_of
from .trace import INDICES, Indexing, Node, Untraceable, evaluate, over_indices, trace, widened

_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Prepared(NamedTuple):
    kept: Kept
    form: Form
    bias: Bias | None
    by_operations: Callable[..., Tensor] | None
    """score_mod for vectors of indices, if PyTorch's operations compute it."""
    captured: list[Tensor]
    why: str


def traced_mask(mask_mod: Callable[..., Tensor]) -> Node:
    try:
        node = trace("mask_mod", mask_mod)
    except Untraceable as reason:
        raise ValueError(f"invalid argument: mask_mod: {reason}, want operators of whole tensors") from None
    if node.dtype != torch.bool:
        raise ValueError(f"invalid argument: mask_mod: want a function that returns torch.bool, got {node.dtype}")
    return node


def check(query: Tensor, key: Tensor, value: Tensor, is_served: Callable[[Tensor], bool] = is_plain) -> None:
    """Raises the errors that PyTorch raises for query, key and value. Also raises errors for tensors that PyTorch takes
    but `fa` does not.
    """
    named = {"query": query, "key": key, "value": value}
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
    if any(t.is_nested for t in named.values()):
        raise NotImplementedError("flex_attention does not support NestedTensor inputs. Convert inputs to dense tensors "
                                  "before calling flex_attention.")
    if transforms_are_active():
        raise ValueError("invalid argument: query: is inside a transform of torch.func, such as vmap, want a plain call")
    for name, tensor in named.items():
        if tensor.dtype != query.dtype:
            raise ValueError("Expected query, key, and value to have the same dtype, but got query.dtype: "
                             f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead.")
        if tensor.dtype not in _TYPES:
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want a float of 16, 32 or 64 bits")
        if not is_served(tensor):
            raise ValueError(f"invalid argument: {name}: want a plain tensor on the CPU, got {type(tensor).__name__} on "
                             f"{tensor.device}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError("Expect query and key/value to have the same embedding dimension but got "
                         f"E={query.shape[-1]} and E={key.shape[-1]}.")
    if any(t.dim() != 4 for t in named.values()):
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(f"invalid argument: value.shape={list(value.shape)}, want {list(key.shape[:3])} (key) and Ev")


def _check_sizes(query: Tensor, key: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    (batch, heads), (batch_kv, heads_kv) = query.shape[:2], key.shape[:2]
    if not enable_gqa and heads != heads_kv:
        raise ValueError("Expect query and key/value to have the same number of heads but got "
                         f"Hq={heads} and Hkv={heads_kv}. Try setting enable_gqa=True for GQA.")
    if heads_kv == 0 or heads % heads_kv:
        raise ValueError("Expect number of query heads to be a multiple of kv heads for GQA but got "
                         f"Hq={heads} and Hkv={heads_kv}.")
    if batch != batch_kv:
        if block_mask is None:
            raise ValueError("Expect query and key/value to have the same batch size, or non-none block_mask, but got "
                             f"block_mask=None, Bq={batch}, and Bkv={batch_kv}.")
        if batch_kv != 1 or block_mask.kv_num_blocks.shape[0] != batch:
            raise ValueError("Expect query and key/value to have the same batch size, or block_mask and query to have "
                             f"the same batch size, but got Bq={batch}, Bkv={batch_kv}, "
                             f"B_block_mask={block_mask.kv_num_blocks.shape[0]}.")


def check_is_mask(mask: Any) -> None:
    if not isinstance(mask, BlockMask):
        raise TypeError(f"block_mask: want a BlockMask, got {type(mask).__name__}")


def _check_mask(mask: BlockMask, query: Tensor, key: Tensor) -> None:
    if mask.kv_num_blocks.device.type != "cpu":
        raise RuntimeError(f"Expect q/k/v and block_mask to be on the same device but got {query.device} and "
                           f"{mask.kv_num_blocks.device}.")
    rows, keys = mask.seq_lengths
    if min(mask.BLOCK_SIZE) == 1 << 30 or (rows, keys) == (query.shape[2], key.shape[2]):  # 2^30 means no blocks
        return
    made = (f"block_mask was created for block_mask.shape={mask.shape} but got q_len={query.shape[2]} and "
            f"kv_len={key.shape[2]}.")
    if query.shape[2] > rows or key.shape[2] > keys:
        raise ValueError(f"{made} As the block mask was created for a smaller length than you're using it for, you likely "
                         "need to create a new block mask.")
    raise ValueError(f"{made} As the block mask was created for a larger length than you're using it for, you can either "
                     "1. create a new block mask with the correct length, or 2. 'adjust' the existing block mask to the "
                     "correct length by calling block_mask._adjust(q_len, kv_len).")


def prepared(query, key, value, score_mod, block_mask, enable_gqa):
    """Returns query, key and value in the type and batch of the computation, and what the engine makes of the rest."""
    check(query, key, value)
    _check_sizes(query, key, block_mask, enable_gqa)
    query, key, value, _ = autocast(query, key, value, None)
    if block_mask is not None:
        check_is_mask(block_mask)
        _check_mask(block_mask, query, key)
    key, value = (t.expand(query.shape[0], -1, -1, -1) for t in (key, value))
    form, why, node, captured = Form(), "", None, list[Tensor]()
    try:
        if score_mod is not None:
            node = trace("score_mod", score_mod, torch.promote_types(query.dtype, torch.float32))
            captured = node.captured()
            form = form_of(node)
    except (Untraceable, Unserved) as reason:
        captured = getattr(reason, "captured", captured)
        why = f"score_mod: {reason} is not of a form that the engine has"
    if query.dtype == torch.float64:
        form, why = Form(), why or "query is float64"
    sizes = Sizes(*query.shape[:3], key.shape[2])
    if block_mask is None:
        kept = Kept(sizes, None, None, form.conditions)
    else:
        kept = kept_of(block_mask, traced_mask(block_mask.mask_mod), sizes, form.conditions)
    if why:
        return query, key, value, Prepared(kept, form, None, _scores(score_mod, node), captured, why)
    bias = bias_of(form, kept) if form.biases else None
    return query, key, value, Prepared(kept, form, bias, None, captured, "")


def _scores(score_mod: Callable[..., Tensor] | None, node: Node | None) -> Callable[..., Tensor]:
    """Returns score_mod as a function of scores [B, H, L, S], vectors of indices, and `others` as in `evaluate`."""
    if score_mod is None:
        return lambda scores, *_: scores
    if node is not None:
        return lambda scores, indices, others: evaluate(node, *indices, score=scores, others=others).expand_as(scores)

    def untraced(*inputs):
        with Indexing():
            return score_mod(inputs[-1], *inputs[:-1])

    return lambda scores, indices, _: over_indices(untraced, indices, scores, [True] * len(INDICES))


def computed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None,
    block_mask: BlockMask | None,
    enable_gqa: bool,
    scale: float,
    known: Results | None = None,
) -> Results:
    """Computes a call. If `known` has the results of a forward, the engine does not compute them again. The output has
    strides in the order of query's.
    """
    results = _computed(*prepared(query, key, value, score_mod, block_mask, enable_gqa), scale, known)
    return results._replace(out=in_order(results.out, query))


def _computed(
    query: Tensor, key: Tensor, value: Tensor, prepared: Prepared, scale: float, known: Results | None
) -> Results:
    if min(*query.shape[:3], key.shape[2], value.shape[3]) == 0:
        nothing = query[..., :0].sum() + key[..., :0].sum() + value[..., :0].sum()
        out = nothing.expand(*query.shape[:3], value.shape[3]).clone()
        lse = torch.full(query.shape[:3], -math.inf, dtype=torch.float32)
        return Results(out, lse, lse.clone(), lse.clone())
    if prepared.by_operations is not None:
        return by_operations(query, key, value, prepared.kept, scale, prepared.by_operations, prepared.captured)
    bias = prepared.bias
    in_slabs = bool(prepared.form.biases) and bias is None
    call = Call(prepared.kept, prepared.form, scale, bias is not None and bias.is_slopes, in_slabs, known)
    tensors = [*map(widened, call.captured)] if in_slabs else [bias.tensor] if bias is not None else []
    try:
        return Results(*Engine.apply(call, query, key, value, *tensors))
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise own_arguments(error, more={"pse": "score_mod", "dense_mask": "block_mask"}) from None


def in_order(out: Tensor, query: Tensor) -> Tensor:
    """Returns `out` with dimensions in the memory order of query's dimensions, except that the last one is
    innermost.
    """
    order = sorted(range(3), key=lambda axis: -query.stride(axis))
    like = torch.empty_permuted(out.shape, (*order, 3), dtype=out.dtype)
    return out if out.stride() == like.stride() else like.copy_(out)
