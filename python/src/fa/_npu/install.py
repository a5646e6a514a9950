"""What a script for the NPU uses outside of the package torch_npu: `.npu()`, `torch.npu` and the device "npu".

All of these mean the CPU here: tensors stay where they are, and `fa.torch_npu` computes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .._pytorch import function_modes, pop_function_mode, push_function_mode
from . import index_score as _index_score
from . import quantized_sparse as _quantized
from . import selected_blocks as _selected
from . import shared_kv as _shared_kv


class _CpuForNpu(TorchFunctionMode):
    """While this mode is active, PyTorch's functions get "cpu" for each argument that is "npu" or "npu:N"."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        named, options = tuple(map(_cpu_for_npu, args)), {name: _cpu_for_npu(value) for name, value in given.items()}
        if func is torch.device and (named, options) != (args, given):
            return torch.device("cpu")  # tensors on the CPU have no index
        return func(*named, **options)


_mode = _CpuForNpu()
_undo: ExitStack | None = None  # not None while installed

# The functions that NPU programs look up outside of the package torch_npu: {name: function}.
_C_ASCEND = _quantized.C_ASCEND | _selected.C_ASCEND | _index_score.C_ASCEND | _shared_kv.C_ASCEND
_CUSTOM = _quantized.CUSTOM | _shared_kv.CUSTOM
_CANN_OPS = _quantized.CANN_OPS | _index_score.CANN_OPS | _shared_kv.CANN_OPS


def install(force: bool = False) -> None:
    """Makes `import torch_npu` find `fa.torch_npu`, and the device "npu" mean the CPU, until `uninstall`.

    `torch.npu` has one device. Unless the real package is imported, `torch.ops.npu` has the functions of
    `fa.torch_npu`, and `torch.ops._C_ascend`, `torch.ops.custom` and `cann_ops_transformer.ops` have those that the
    device's programs find there. `Tensor.npu()` and `Module.npu()` return self. PyTorch's functions take "npu" and
    "npu:N" as devices in the thread that called `install`. A second call changes nothing.

    Args:
        force: whether to install even if the real package can be imported. Modules that have imported it keep it.

    Raises:
        ValueError: the real package can be imported, and force is not given.
    """
    global _undo
    if _undo is not None:
        return
    own = sys.modules["fa.torch_npu"]
    real = sys.modules.get("torch_npu") not in (None, own)
    if not force and sys.modules.get("torch_npu") is not own and importlib.util.find_spec("torch_npu") is not None:
        raise ValueError("invalid argument: force=False, want True: the package torch_npu itself can be imported")
    _undo = ExitStack()
    npu = _npu_module()
    _set_module(_undo, "torch_npu", own)
    _set_module(_undo, "torch.npu", npu)
    for owner, value in ((torch, npu), (own, npu), (torch.Tensor, _itself), (torch.nn.Module, _itself)):
        _set_attribute(_undo, owner, "npu", value)
    for name in () if real else own.__all__:
        if name.lstrip("_").startswith("npu_"):
            _set_attribute(_undo, torch.ops.npu, name, getattr(own, name))
    for namespace, functions in () if real else ((torch.ops._C_ascend, _C_ASCEND), (torch.ops.custom, _CUSTOM)):
        for name, function in functions.items():
            _set_attribute(_undo, namespace, name, function)
    if not real:
        cann, ops = ModuleType("cann_ops_transformer", own.__doc__), ModuleType("cann_ops_transformer.ops", own.__doc__)
        vars(ops).update(_CANN_OPS)
        vars(cann).update(_CANN_OPS, ops=ops)
        _set_module(_undo, "cann_ops_transformer", cann)
        _set_module(_undo, "cann_ops_transformer.ops", ops)
    push_function_mode(_mode)


def uninstall() -> None:
    """Undoes `install`. Without an earlier `install`, nothing changes.

    Raises:
        RuntimeError: another thread called `install`.
    """
    global _undo
    if _undo is None:
        return
    modes = function_modes()
    if _mode not in modes:
        raise RuntimeError("uninstall: another thread called install, want the same thread")
    above = modes[modes.index(_mode) + 1 :]
    for _ in (_mode, *above):
        pop_function_mode()
    for mode in above:
        push_function_mode(mode)
    _undo.close()
    _undo = None


def _cpu_for_npu(value: Any) -> Any:
    return "cpu" if isinstance(value, str) and (value == "npu" or value.startswith("npu:")) else value


def _itself(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    return self


def _npu_module() -> ModuleType:
    npu = ModuleType("torch.npu", "The one device of `fa.torch_npu.install`: this CPU.")
    for name in ("device_count", "is_available", "set_device", "synchronize"):
        setattr(npu, name, getattr(torch.cpu, name))
    vars(npu).update(current_device=lambda: 0, empty_cache=lambda: None)
    vars(npu).update(manual_seed=torch.manual_seed, manual_seed_all=torch.manual_seed, __getattr__=_not_served)
    return npu


def _not_served(name: str) -> Any:
    raise AttributeError(f"torch.npu.{name} is not served by fa.torch_npu.install()")


def _set_module(undo: ExitStack, name: str, module: ModuleType) -> None:
    if name in sys.modules:
        undo.callback(sys.modules.__setitem__, name, sys.modules[name])
    else:
        undo.callback(sys.modules.pop, name, None)
    sys.modules[name] = module


def _set_attribute(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    if hasattr(owner, name):
        undo.callback(setattr, owner, name, getattr(owner, name))
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)
