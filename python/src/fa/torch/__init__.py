"""PyTorch's scaled_dot_product_attention, computed by `fa`; the way to give it to a model that calls PyTorch's; and
attention of few queries over a cache."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.overrides import handle_torch_function, has_torch_function_variadic

from .._torch import modules as _torch_modules
from .._torch.decode import decode_attention
from .._torch.direct import attend_plainly, unwatched
from .._torch.dropout import new_state
from .._torch.ops import CAUSAL_BOTTOM_RIGHT, CAUSAL_TOP_LEFT, EVERY_KEY
from .._torch.sdpa import attend

__all__ = ["decode_attention", "replace_scaled_dot_product_attention", "scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * Q K^T + attn_mask) V with dropout, as torch.nn.functional has it, forward and backward.

    Args:
        query: [..., N, L, E]; float32, bfloat16 or float16, on the CPU.
        key, value: [..., N, S, E] and [..., N, S, Ev]. All dimensions before the last two broadcast.
        attn_mask: broadcasts to [..., N, L, S]: bool, True = look at the key; or of query's type or float32, added to
            the scores. It may require a gradient. Of torch.nn.attention.bias also causal_upper_left, which is
            is_causal, and causal_lower_right: row i looks at keys j <= i + S - L.
        dropout_p: in [0, 1); its seed comes from PyTorch's generator.
        is_causal: row i looks at keys j <= i, also where L and S differ; not together with attn_mask.
        scale: None: 1 / sqrt(E).
        enable_gqa: the heads of query may be a multiple of those of key and of those of value.

    Nested tensors of layout torch.jagged, [B, N, j, E] or [B, j, E] with j ragged, give a nested tensor: each sequence
    looks at its own keys. There is no attn_mask then. Layout torch.strided is refused. DTensors sharded by batch or by
    heads are computed where they lie, unless there is dropout, for which every rank gets them whole. Other classes that
    have a __torch_function__ (the proxies of torch.fx among them) are given this function, as they are PyTorch's.

    Returns:
        [..., N, L, Ev]. Rows that look at no key are 0. The strides are those of PyTorch's function.

    Raises:
        ValueError: an argument is wrong. TypeError: one is no tensor.
    """
    if dropout_p == 0.0 and unwatched():
        out = attend_plainly(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        if out is not None:
            return out
    as_rule = isinstance(attn_mask, CausalBias)
    overriding = (query, key, value, None if as_rule else attn_mask)
    if has_torch_function_variadic(*overriding) and not any(isinstance(t, NestedTensor) for t in overriding):
        keywords = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        own = scaled_dot_product_attention
        return handle_torch_function(own, overriding, query, key, value, attn_mask=attn_mask, **keywords)
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    rule = CAUSAL_TOP_LEFT if is_causal else EVERY_KEY
    if as_rule:
        attn_mask, rule = None, _rule_of(attn_mask, query, key)
    return attend(query, key, value, attn_mask, new_state(dropout_p), dropout_p, rule, scale, enable_gqa)


class _Replacement:
    """PyTorch's functions; they are put back when the last of all contexts, in any thread, is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._before: tuple[Callable, Callable, bool] | None = None

    def enter(self) -> None:
        functional, mha = torch.nn.functional, torch.backends.mha
        with self._lock:
            if self._depth == 0:
                own = functional.scaled_dot_product_attention, functional.multi_head_attention_forward
                self._before = *own, mha.get_fastpath_enabled()
                _torch_modules.replaced = own[1]
                functional.scaled_dot_product_attention = scaled_dot_product_attention
                functional.multi_head_attention_forward = _torch_modules.multi_head_attention_forward
                mha.set_fastpath_enabled(False)
                self._give_scripts(own[1])
            self._depth += 1

    def leave(self) -> None:
        functional, mha = torch.nn.functional, torch.backends.mha
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                functional.scaled_dot_product_attention, functional.multi_head_attention_forward, fast = self._before
                mha.set_fastpath_enabled(fast)
                torch.jit._builtins._get_builtin_table().pop(id(scaled_dot_product_attention), None)

    @staticmethod
    def _give_scripts(multi_head_attention_forward: Callable) -> None:
        """torch.jit.script, which compiles the source of Python functions, finds PyTorch's own behind the replacements."""
        torch.jit._builtins._register_builtin(scaled_dot_product_attention, "aten::scaled_dot_product_attention")
        # As torch.jit.script_if_tracing says what to compile in place of a function.
        own = {"__script_if_tracing_wrapper": True, "__original_fn": multi_head_attention_forward}
        _torch_modules.multi_head_attention_forward.__dict__.update(own)


_replacement = _Replacement()


@contextlib.contextmanager
def replace_scaled_dot_product_attention() -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is the one above, in all threads.

    Code that looks the function up there when it calls it is served: transformers and most models. A copy that was
    imported by name before stays what it was. torch.nn.MultiheadAttention and torch.nn.Transformer's layers are served
    in all their modes: multi_head_attention_forward is replaced too, which returns weights without asking for the
    function, and the fast path of inference, which asks for neither, is switched off. Without it rows of padding hold
    numbers where it leaves zeros, and nested tensors of layout torch.strided are refused.

    torch.jit.script compiles PyTorch's own functions, also within it; torch.jit.trace and torch.compile record this one.

    Contexts nest and overlap, in one thread or in many: what was in force before the first of them is put back when the
    last is left.
    """
    _replacement.enter()
    try:
        yield
    finally:
        _replacement.leave()


def _rule_of(mask: CausalBias, query: Tensor, key: Tensor) -> int:
    """The rule of a mask that is a rule; such a mask has nothing in memory."""
    if mask.variant == CausalVariant.UPPER_LEFT or mask.seq_len_q == mask.seq_len_kv:
        return CAUSAL_TOP_LEFT
    want = [query.shape[-2], key.shape[-2]]
    if [mask.seq_len_q, mask.seq_len_kv] != want:
        raise ValueError(f"invalid argument: attn_mask.shape={[mask.seq_len_q, mask.seq_len_kv]}, want {want}")
    return CAUSAL_BOTTOM_RIGHT


def _check(query, key, value, attn_mask, dropout_p, is_causal) -> None:
    """Checks that do not concern shapes or types."""
    for name, tensor in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "attn_mask"):
            raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
    if not isinstance(is_causal, (int, torch.SymBool)):
        raise TypeError(f"is_causal: want a bool, got {type(is_causal).__name__}")
    if attn_mask is not None and is_causal:
        raise ValueError("invalid argument: attn_mask: given together with is_causal, want one of them")
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"invalid argument: dropout_p={dropout_p}, want at least 0 and less than 1")
