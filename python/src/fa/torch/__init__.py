"""PyTorch's scaled_dot_product_attention, computed by `fa`; a context that puts it in place of PyTorch's function; and
attention of few queries over long keys, such as those of a cache."""

from __future__ import annotations

from .. import _needs_torch  # noqa: F401  # isort: skip
import warnings
from collections.abc import Iterator

from torch import Tensor
from torch.nn.attention.bias import CausalBias
from torch.overrides import handle_torch_function, has_torch_function_variadic

from .._aten import registry
from .._fa import PairMask
from .._pytorch import is_jagged, unwatched
from .._torch.call import CAUSAL_TOP_LEFT, EVERY_KEY
from .._torch.cache_ops import scatter_rows
from .._torch.decode import decode_attention
from .._torch.direct import attend_plainly
from .._torch.entered import context
from .._torch.flex.face import create_block_mask, explain_flex_attention, flex_attention, replace_flex_attention
from .._torch.pairs import scaled_dot_product_attention_of_pairs
from .._torch.replacement import replacement
from .._torch.sdpa import attend, check_arguments, refusal, rule_of

__all__ = [
    "activate",
    "can_use",
    "create_block_mask",
    "deactivate",
    "decode_attention",
    "explain_flex_attention",
    "flex_attention",
    "install",
    "replace_flex_attention",
    "replace_scaled_dot_product_attention",
    "scaled_dot_product_attention",
    "scatter_rows",
    "uninstall",
]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | PairMask | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Computes softmax(scale * Q K^T + attn_mask) V with dropout, as torch.nn.functional does, forward and backward.

    Args:
        query: [..., N, L, E]; float32, bfloat16 or float16, on the CPU.
        key, value: [..., N, S, E] and [..., N, S, Ev]. Dimensions before the last two broadcast with query's.
        attn_mask: a tensor that broadcasts to [..., N, L, S]: bool, True = look at the key; or of query's type or
            float32, added to the scores. It may require a gradient. Or a mask of torch.nn.attention.bias:
            causal_upper_left means is_causal, and causal_lower_right lets row i look at keys j <= i + S - L. Or a
            fa.PairMask, which torch.compile leaves out of its graphs.
        dropout_p: the share of pairs that are dropped, in [0, 1). The seed comes from PyTorch's generator.
        is_causal: whether row i looks only at keys j <= i, even if L and S differ. With attn_mask, it looks at the keys
            that both allow.
        scale: None means 1 / sqrt(E).
        enable_gqa: whether key and value may have fewer heads than query: divisors of its number of heads.

    Nested tensors of layout torch.jagged, [B, N, j, E] or [B, j, E] with j ragged, give a nested tensor. Each sequence
    then looks at its own keys, and there is no attn_mask. Layout torch.strided is refused. For DTensors sharded by
    batch or by heads, each rank computes its own shards. With dropout, every rank computes the whole call instead. The
    __torch_function__ of any other class, such as the proxies of torch.fx, is called with this function, as PyTorch's
    function would do.

    Returns:
        [..., N, L, Ev]. Rows that look at no key are 0. The strides are those of PyTorch's function.

    Raises:
        ValueError: an argument is wrong. TypeError: an argument is no tensor.
    """
    if dropout_p == 0.0 and unwatched():
        out = attend_plainly(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        if out is not None:
            return out
    if isinstance(attn_mask, PairMask):
        check_arguments(query, key, value, None, dropout_p, is_causal, scale)
        arguments = query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        return scaled_dot_product_attention_of_pairs(*arguments)
    as_rule = isinstance(attn_mask, CausalBias)
    overriding = (query, key, value, None if as_rule else attn_mask)
    if has_torch_function_variadic(*overriding) and not any(map(is_jagged, overriding)):
        keywords = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        own = scaled_dot_product_attention
        return handle_torch_function(own, overriding, query, key, value, attn_mask=attn_mask, **keywords)
    check_arguments(query, key, value, attn_mask, dropout_p, is_causal, scale)
    rule = CAUSAL_TOP_LEFT if is_causal else EVERY_KEY
    if as_rule:
        attn_mask, rule = None, rule_of(attn_mask, query, key)
    return attend(query, key, value, attn_mask, None, dropout_p, rule, scale, enable_gqa)


def can_use(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | PairMask | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    debug: bool = False,
) -> bool:
    """Returns whether `scaled_dot_product_attention` takes query [..., N, L, E] and the others. Nothing is computed.

    Args:
        debug: whether to warn, with the reason, if the call is not taken, as
            torch.backends.cuda.can_use_flash_attention does.
        others: the arguments of `scaled_dot_product_attention`.
    """
    reason = refusal(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if reason is not None and debug:
        warnings.warn(f"fa.torch.scaled_dot_product_attention: {reason}", stacklevel=2)
    return reason is None


@context("fa.torch.replace_scaled_dot_product_attention")
def replace_scaled_dot_product_attention(fallback: bool = False) -> Iterator[None]:
    """While this context lasts, torch.nn.functional.scaled_dot_product_attention is fa.torch's function, in all
    threads.

    fallback: whether PyTorch's own function computes the calls that fa.torch's refuses (float64, tensors of another
    device, `dropout_p=1`: see `can_use`). A warning then says why. Without fallback such calls raise ValueError or
    TypeError. Among overlapping contexts, one with fallback is enough.

    The replacement reaches code that looks the function up in torch.nn.functional at each call, as transformers and
    most models do. It does not reach code that imported the function by name before. torch.nn.MultiheadAttention and
    torch.nn.Transformer's layers use it in all their modes. For them, multi_head_attention_forward is replaced too,
    because it does not call the function if it returns weights. Their fast path for inference, which calls neither
    function, is switched off. So rows of padding hold numbers where the fast path leaves zeros, and nested tensors of
    layout torch.strided are refused.

    torch.jit.script compiles PyTorch's own functions even within the context; torch.jit.trace and torch.compile record
    those of fa.torch. torch.nn.attention.sdpa_kernel, by which programs choose PyTorch's kernel, has no effect.
    torch.compile cannot enter the context inside a compiled function: enter it around the call.

    Contexts nest and overlap, in one thread or in many. When the last context is left, the functions from before the
    first context are restored. A call of this function without `with` replaces nothing, and gives a RuntimeWarning.
    """
    replacement.enter(scaled_dot_product_attention, fallback)
    try:
        yield
    finally:
        replacement.leave(fallback)


def install(fallback: bool = False) -> None:
    """Replaces the function as `replace_scaled_dot_product_attention` does, but until `uninstall` or the end of the
    program.

    fallback: as in `replace_scaled_dot_product_attention`. A second call of `install` changes it.
    """
    replacement.enter(scaled_dot_product_attention, fallback)
    uninstall()
    _installed.append(fallback)


def uninstall() -> None:
    """Undoes all earlier calls of `install`. Without an earlier call it does nothing."""
    while _installed:
        replacement.leave(_installed.pop())


_installed: list[bool] = []


def activate() -> None:
    """Makes `fa` compute PyTorch's own attention operators on CPUs, in all threads, until `deactivate`.

    torch.nn.functional.scaled_dot_product_attention then reaches `fa` where PyTorch chooses its fused CPU kernel, in
    compiled functions too, and torch.nn.attention.varlen works on CPUs. From PyTorch 2.13 on this is
    torch.nn.attention.activate_flash_attention_impl("fa"). Importing fa.torch registers that name and activates
    nothing. A second call changes nothing.
    """
    registry.activate()


def deactivate() -> None:
    """Undoes `activate`. Without it, does nothing."""
    registry.deactivate()


registry.register()
