"""The functions that `fa.torch` has for FlexAttention: arguments are checked, prepared and computed here."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.attention.flex_attention as host
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from ..._errors import ERRORS
from ..._pytorch import dq_write_order, transforms_are_active
from ..engine import is_plain
from ..entered import context
from ..sdpa import autocast
from ..shapes import own_arguments
from .attention import Call, Engine, Results, by_operations
from .mask import Kept, Sizes, kept_of
from .score import Bias, Form, Unserved, bias_of, form_of
from .trace import INDICES, Indexing, Node, Untraceable, evaluate, over_indices, trace

_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class _Prepared(NamedTuple):
    kept: Kept
    form: Form
    bias: Bias | None
    by_operations: Callable[..., Tensor] | None
    """score_mod for vectors of indices, if PyTorch's operations compute it."""
    captured: list[Tensor]
    why: str


@torch.compiler.disable
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

    The function is not compiled: torch.compile leaves its graph for the call. `explain_flex_attention` says how a call
    is computed. Rows without keys are 0, and their log-sum-exp is -inf. Scores of a score_mod that the engine lacks are
    computed by PyTorch's operations, in slabs of query rows. The bits of such calls, and of the gradients of captured
    tensors, may depend on the number of PyTorch's threads. No captured tensor may change before the backward.

    Returns:
        [B, Hq, L, Ev] in the order of query's strides. With return_aux, this and an AuxOutput of float32 [B, Hq, L];
        with return_lse, this and the log-sum-exp.

    Raises:
        ValueError: an argument is wrong. NotImplementedError: an argument is a nested tensor, or has not 4 dimensions.
        RuntimeError: in the backward, if a captured tensor that it reads again has been written to.
    """
    query, key, value, prepared = _prepared(query, key, value, score_mod, block_mask, enable_gqa, kernel_options)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
                         "return_aux=AuxRequest(lse=True) instead.")
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    results = _computed(query, key, value, prepared, scale)
    out = _in_order(results.out, query)
    if return_aux is not None:
        lse, max_scores = (getattr(results, name) if getattr(return_aux, name) else None for name in ("lse", "max_scores"))
        return out, host.AuxOutput(lse, max_scores)
    return (out, results.lse) if return_lse else out


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
    *_, prepared = _prepared(query, key, value, score_mod, block_mask, enable_gqa, kernel_options)
    kept = prepared.kept
    mask = "intervals of keys per row" if kept.rows is not None else f"pairs, because {kept.reason}"
    if prepared.by_operations is not None:
        return f"mask: {mask}\nscore: by PyTorch's operations in slabs of rows, because {prepared.why}"
    bias = prepared.bias.words if prepared.bias else "evaluated in slabs of rows"
    return f"mask: {mask}\nscore: by the engine: {prepared.form}" + f" (bias: {bias})" * bool(prepared.form.biases)


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
    kept = Kept(sizes, _traced_mask(mask_mod), None, ())
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


def _traced_mask(mask_mod: Callable[..., Tensor]) -> Node:
    try:
        node = trace("mask_mod", mask_mod)
    except Untraceable as reason:
        raise ValueError(f"invalid argument: mask_mod: {reason}, want operators of whole tensors") from None
    if node.dtype != torch.bool:
        raise ValueError(f"invalid argument: mask_mod: want a function that returns torch.bool, got {node.dtype}")
    return node


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, enable_gqa: bool, kernel_options: Any) -> None:
    """Raises PyTorch's errors, and those for arguments that PyTorch takes and `fa` does not."""
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
        if not is_plain(tensor):
            raise ValueError(f"invalid argument: {name}: want a plain tensor on the CPU, got {type(tensor).__name__} on "
                             f"{tensor.device}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError("Expect query and key/value to have the same embedding dimension but got "
                         f"E={query.shape[-1]} and E={key.shape[-1]}.")
    if any(t.dim() != 4 for t in named.values()):
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    (batch, heads), (batch_kv, heads_kv) = query.shape[:2], key.shape[:2]
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(f"invalid argument: value.shape={list(value.shape)}, want {list(key.shape[:3])} (key) and Ev")
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
    backend = (kernel_options or {}).get("BACKEND", "AUTO")
    if backend != "AUTO":
        raise ValueError(f"invalid argument: kernel_options['BACKEND']={backend!r}, want 'AUTO'")


def _check_mask(mask: Any, query: Tensor, key: Tensor) -> None:
    if not isinstance(mask, BlockMask):
        raise TypeError(f"block_mask: want a BlockMask, got {type(mask).__name__}")
    if mask.kv_num_blocks.device.type != "cpu":
        raise RuntimeError(f"Expect q/k/v and block_mask to be on the same device but got {query.device} and "
                           f"{mask.kv_num_blocks.device}.")
    rows, keys = mask.seq_lengths
    if min(mask.BLOCK_SIZE) == 1 << 30 or (rows, keys) == (query.shape[2], key.shape[2]):  # 2^30: no blocks at all
        return
    made = (f"block_mask was created for block_mask.shape={mask.shape} but got q_len={query.shape[2]} and "
            f"kv_len={key.shape[2]}.")
    if query.shape[2] > rows or key.shape[2] > keys:
        raise ValueError(f"{made} As the block mask was created for a smaller length than you're using it for, you likely "
                         "need to create a new block mask.")
    raise ValueError(f"{made} As the block mask was created for a larger length than you're using it for, you can either "
                     "1. create a new block mask with the correct length, or 2. 'adjust' the existing block mask to the "
                     "correct length by calling block_mask._adjust(q_len, kv_len).")


def _prepared(query, key, value, score_mod, block_mask, enable_gqa, kernel_options):
    """Returns query, key and value in the type and batch of the computation, and what the engine makes of the rest."""
    _check(query, key, value, block_mask, enable_gqa, kernel_options)
    query, key, value, _ = autocast(query, key, value, None)
    if block_mask is not None:
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
        kept = kept_of(block_mask, _traced_mask(block_mask.mask_mod), sizes, form.conditions)
    if why:
        return query, key, value, _Prepared(kept, form, None, _scores(score_mod, node), captured, why)
    bias = bias_of(form, kept) if form.biases else None
    return query, key, value, _Prepared(kept, form, bias, None, captured, "")


def _scores(score_mod: Callable[..., Tensor] | None, node: Node | None) -> Callable[..., Tensor]:
    """Returns score_mod as a function of scores [B, H, L, S] and vectors of indices."""
    if score_mod is None:
        return lambda scores, *_: scores
    if node is not None:
        return lambda scores, *indices: evaluate(node, *indices, score=scores).expand_as(scores)

    def untraced(*inputs):
        with Indexing():
            return score_mod(inputs[-1], *inputs[:-1])

    return lambda scores, *indices: over_indices(untraced, indices, scores, [True] * len(INDICES))


def _computed(query: Tensor, key: Tensor, value: Tensor, prepared: _Prepared, scale: float) -> Results:
    if min(*query.shape[:3], key.shape[2], value.shape[3]) == 0:
        nothing = query[..., :0].sum() + key[..., :0].sum() + value[..., :0].sum()
        out = nothing.expand(*query.shape[:3], value.shape[3]).clone()
        lse = torch.full(query.shape[:3], -math.inf, dtype=torch.float32)
        return Results(out, lse, lse.clone())
    if prepared.by_operations is not None:
        return by_operations(query, key, value, prepared.kept, scale, prepared.by_operations, prepared.captured)
    bias = prepared.bias
    in_slabs = bool(prepared.form.biases) and bias is None
    call = Call(prepared.kept, prepared.form, scale, bias is not None and bias.is_slopes, in_slabs)
    tensors = call.captured if in_slabs else [bias.tensor] if bias is not None else []
    try:
        return Results(*Engine.apply(call, query, key, value, *tensors))
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise own_arguments(error, more={"pse": "score_mod", "dense_mask": "block_mask"}) from None


def _in_order(out: Tensor, query: Tensor) -> Tensor:
    """Returns `out` with strides in the order of query's, but the last dimension innermost."""
    order = sorted(range(3), key=lambda axis: -query.stride(axis))
    like = torch.empty_permuted(out.shape, (*order, 3), dtype=out.dtype)
    return out if out.stride() == like.stride() else like.copy_(out)


class _Replacement:
    """Counts the active contexts of replace_flex_attention. The last one restores PyTorch's functions."""

    def __init__(self) -> None:
        self.lock, self.depth = threading.Lock(), 0
        self.before: tuple[Callable, Callable] | None = None

    def enter(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.before = host.flex_attention, host.create_block_mask
                host.flex_attention, host.create_block_mask = flex_attention, create_block_mask
            self.depth += 1

    def leave(self) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                host.flex_attention, host.create_block_mask = self.before


_replacement = _Replacement()


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
