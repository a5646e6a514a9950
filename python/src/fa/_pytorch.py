"""All uses of PyTorch's private interfaces in `fa`. tests/pytorch/test_private.py says what needs each of them.

Every module of `fa` that needs PyTorch imports this module. So a private name for a single feature is imported inside
the function that needs it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C import _after_autograd_keyset as after_autograd
from torch._C import _any_requires_grad as any_requires_grad
from torch._C import _are_functorch_transforms_active as transforms_are_active
from torch._C import _AutoDispatchBelowAutograd as below_autograd
from torch._C import _disabled_torch_function_impl as no_torch_function
from torch._C import _dispatch_keys as dispatch_keys
from torch._C import _get_tracing_state, _is_torch_function_mode_enabled, _len_torch_dispatch_stack
from torch._C import _is_fwd_grad_enabled as forward_mode_is_enabled
from torch._C import _dispatch_tls_local_exclude_set as excluded_keys
from torch._C import _dispatch_tls_local_include_set as included_keys
from torch._C import _ForceDispatchKeyGuard as with_keys
from torch._functorch.autograd_function import enable_single_level_autograd_function as on_one_level
from torch._ops import HigherOrderOperator as HigherOrder  # noqa: F401
from torch.autograd import _profiler_enabled, forward_ad
from torch.compiler import is_compiling
from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode  # noqa: F401
from torch.utils._pytree import tree_leaves, tree_map

with_forward_mode = forward_ad._set_fwd_grad_enabled
wrapper_of = Tensor._make_wrapper_subclass
mha_shape_check, canonical_mask, none_or_dtype = F._mha_shape_check, F._canonical_mask, F._none_or_dtype
in_projection, in_projection_packed = F._in_projection, F._in_projection_packed


def in_forward_mode() -> bool:
    """Returns whether this thread is computing forward-mode derivatives."""
    return forward_ad._current_level >= 0


def unwatched() -> bool:
    """Returns whether nothing but autograd's backward observes calls in this thread: no compiler, transform or mode."""
    return not (
        is_compiling()
        or transforms_are_active()
        or _len_torch_dispatch_stack() > 0
        or _is_torch_function_mode_enabled()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or _profiler_enabled()
    )


# The dispatch keys that PyTorch excludes by default. A new thread has this default set, because nothing observes its
# calls and autocast is off.
with concurrent.futures.ThreadPoolExecutor(1) as _thread:
    _EXCLUDED = _thread.submit(excluded_keys).result()


@contextlib.contextmanager
def as_outermost() -> Iterator[None]:
    """Lets a kernel use vmap and autograd, even if the dispatcher called the kernel after handling vmap, autograd or a
    mode.
    """
    with with_keys(included_keys(), _EXCLUDED):
        yield


def written_arguments(operator: Any) -> Iterable[tuple[Any, bool]]:
    """Yields (argument, whether the operator writes into it) for each argument in an operator's schema."""
    for argument in operator._schema.arguments:
        yield argument, argument.alias_info is not None and argument.alias_info.is_write


def returns_nothing(operator: Any) -> bool:
    return not operator._schema.returns


def version_of(tensor: Tensor) -> int:
    """Returns a number that grows with each write into the tensor."""
    return tensor._version


def default_group() -> Any:
    """Returns the default process group, which contains all ranks."""
    from torch.distributed.distributed_c10d import _get_default_group

    return _get_default_group()


def script_builtins() -> dict[int, str]:
    """Returns the Python functions that torch.jit.script replaces by operators: {the function's id: the operator}."""
    from torch.jit._builtins import _get_builtin_table

    return _get_builtin_table()


def register_script_builtin(function: Callable, operator: str) -> None:
    from torch.jit._builtins import _register_builtin

    _register_builtin(function, operator)


def function_modes() -> list[Any]:
    """Returns the thread's torch function modes, the innermost last."""
    from torch.overrides import _get_current_function_mode_stack

    return _get_current_function_mode_stack()


def push_function_mode(mode: Any) -> None:
    from torch.overrides import _push_mode

    _push_mode(mode)


def pop_function_mode() -> None:
    from torch.overrides import _pop_mode

    _pop_mode()


def is_jagged(tensor: Any) -> bool:
    """Returns whether `tensor` is a nested tensor of layout torch.jagged."""
    from torch.nested._internal.nested_tensor import NestedTensor

    return isinstance(tensor, NestedTensor)


def nested_view(values: Tensor, offsets: Tensor, lengths: Tensor | None, **known: Any) -> Tensor:
    """Returns a nested tensor that is a view of packed `values`. `known` has the lengths that `known_lengths`
    returns.
    """
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths

    return nested_view_from_values_offsets_lengths(values, offsets, lengths, **known)


def ragged_axis(nested: Tensor) -> int:
    return nested._ragged_idx


def known_lengths(nested: Tensor) -> dict[str, Any]:
    """Returns the shortest and the longest sequence length of a nested tensor; None for a length that is not stored."""
    return {"min_seqlen": nested._maybe_min_seqlen, "max_seqlen": nested._maybe_max_seqlen}


def forward_hooks(module: nn.Module) -> dict[Any, Any]:
    return module._forward_hooks


def is_compiled(module: nn.Module) -> bool:
    """Returns whether a module is compiled: by module.compile(), by torch.compile(module), or by assigning a compiled
    function to module.forward."""
    return module._compiled_call_impl is not None or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")


def has_amx() -> bool:
    """Returns whether PyTorch finds the tile unit of AMX, by which vLLM chooses its latent attention."""
    from torch.cpu import _is_amx_tile_supported

    return _is_amx_tile_supported()


def dq_write_order(block_mask: Any, dq_kv_order: bool) -> tuple[Tensor, Tensor | None]:
    """Returns the fields dq_write_order and dq_write_order_full of a BlockMask."""
    try:
        from torch.nn.attention.flex_attention import _compute_dq_write_order_from_block_mask
    except ImportError:
        raise ValueError("invalid argument: compute_dq_write_order=True, want False before PyTorch 2.13") from None

    return _compute_dq_write_order_from_block_mask(block_mask, dq_kv_order=dq_kv_order)
