"""Attention of vLLM's CPU build, computed by `fa`.

With FA_VLLM=1, or after `register()`, vLLM's platform finds the classes of this module where it looks for its own
attention on CPUs. Nothing of vLLM is changed.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ._counts import calls

__all__ = ["calls", "platform_plugin", "plugin", "register", "unregister"]

VARIABLE = "FA_VLLM"
PLATFORM = "FA_VLLM_PLATFORM"
# What FA_VLLM may be: {value: whether latent attention is served too}. Other processes of vLLM inherit the variable.
_VALUES = {"1": True, "dense": False}
# {class that vLLM finds in this module: the module that has it}.
_MODULES = {"AttentionBackend": "_dense", "MLABackend": "_latent", "MLAPrefill": "_latent"}
_MODULES |= {"SparseMLABackend": "_sparse", "CpuPlatform": "_platform"}


def register(*, mla: bool = True) -> None:
    """Makes vLLM, in this process and in those that it starts, compute attention with `fa`. Call it before LLM(...).

    mla: whether latent attention (MLA, as of DeepSeek-V3) is served too.

    On a platform that is no CPU it changes nothing and warns. A second call changes `mla` only.

    Raises:
        ModuleNotFoundError: vLLM is not installed.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        words = "fa.vllm: the platform is %s, not a CPU: nothing is registered"
        _log().warning(words, current_platform.device_type)
        return
    unregister()
    os.environ[VARIABLE] = "1" if mla else "dense"
    if mla:
        _warn_of_latent_hosts()
    for member, override, name in _members():
        if mla or _MODULES[name] == "_dense":
            override(member, f"{__name__}.{name}")
    _forget_choices()


def unregister() -> None:
    """Undoes `register`: engines that start from now on compute attention with vLLM's own code."""
    os.environ.pop(VARIABLE, None)
    for member, _, name in _members():
        if member.get_path() == f"{__name__}.{name}":
            member.clear_override()
    _forget_choices()


def plugin() -> None:
    """vLLM calls this function in each of its processes: calls `register` if FA_VLLM asks for it.

    FA_VLLM=1: all attention that `fa` serves. FA_VLLM=dense: all but latent attention. Without it, or with 0: nothing.
    On the platform of `platform_plugin`, models with sparse attention are `fa`'s in any case.
    """
    _complete_platform()
    value = os.environ.get(VARIABLE, "0")
    if value in ("", "0"):
        return
    if value not in _VALUES:
        raise ValueError(f"{VARIABLE}={value}, want 0, {', '.join(_VALUES)}")
    register(mla=_VALUES[value])


def platform_plugin() -> str | None:
    """vLLM calls this function when it looks for its platform. With FA_VLLM_PLATFORM=1 and vLLM's CPU build it returns
    the name of a class that also serves the sparse attention of DeepSeek-V3.2. Otherwise it returns None. vLLM raises
    an error if the plugins of two packages return a platform.
    """
    if not _platform_is_wanted():
        return None
    from vllm.platforms import cpu_platform_plugin

    return None if cpu_platform_plugin() is None else f"{__name__}.CpuPlatform"


def _platform_is_wanted() -> bool:
    value = os.environ.get(PLATFORM, "0")
    if value not in ("", "0", "1"):
        raise ValueError(f"{PLATFORM}={value}, want 0 or 1")
    return value == "1"


def _complete_platform() -> None:
    """If the platform is `fa`'s, makes vLLM find `fa`'s models with sparse attention, and its layer of latent
    attention. (`plugin` calls this function, not `platform_plugin`, because vLLM ignores exceptions of
    `platform_plugin`.)
    """
    if not _platform_is_wanted():
        return
    from vllm import ModelRegistry
    from vllm.platforms import current_platform

    from ._platform import SPARSE_MODELS, CpuPlatform

    if not isinstance(current_platform, CpuPlatform):
        words = "fa.vllm: %s=1, but vLLM chose the platform %s: nothing of that platform is served"
        _log().warning(words, PLATFORM, type(current_platform).__name__)
        return
    for architecture in SPARSE_MODELS.values():
        ModelRegistry.register_model(architecture, f"{__name__}._sparse:{architecture}")
    importlib.import_module(f"{__name__}._rotary")


def _members() -> list[tuple[Any, Any, str]]:
    """Returns (member of one of vLLM's registries, the registry's function that overrides it, class of this module)."""
    from vllm.v1.attention.backends.mla.prefill.registry import MLAPrefillBackendEnum, register_mla_prefill_backend
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    return [
        (AttentionBackendEnum.CPU_ATTN, register_backend, "AttentionBackend"),
        (AttentionBackendEnum.CPU_MLA, register_backend, "MLABackend"),
        (MLAPrefillBackendEnum.CPU, register_mla_prefill_backend, "MLAPrefill"),
    ]


def _warn_of_latent_hosts() -> None:
    """Warns if vLLM's platform computes latent attention with other classes, although the classes of `fa` are
    registered.
    """
    from .._pytorch import has_amx

    if has_amx():
        _log().warning_once("fa.vllm: the CPU has AMX: vLLM's AMX_MLA computes latent attention, not fa")  # type: ignore
    elif find_spec("zentorch") is not None:
        _log().warning_once("fa.vllm: zentorch is installed: vLLM prefers it for MLA prompts")  # type: ignore


def _forget_choices() -> None:
    """Clears the caches in which vLLM keeps the classes that it chose for earlier layers."""
    for module, function in (
        ("vllm.v1.attention.selector", "_cached_get_attn_backend"),
        ("vllm.v1.attention.backends.mla.prefill.selector", "_auto_select_mla_prefill_backend"),
    ):
        if module in sys.modules:
            getattr(sys.modules[module], function).cache_clear()


def _log() -> logging.Logger:
    from vllm.logger import init_logger

    return init_logger("vllm.fa")


if not TYPE_CHECKING:

    def __getattr__(name: str):
        """Imports a class when vLLM first asks for it. The module of the class imports parts of vLLM that load plugins
        such as this package.
        """
        if name in _MODULES:
            return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
