"""Checks which models, and which keywords of their layers, `fa` supports."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from transformers import PreTrainedModel
from transformers.utils import logging

from .._pytorch import forward_hooks, is_compiled
from .calls import has_called

_logger = logging.get_logger("transformers.fa")

# Keywords that transformers passes to an attention function, but that do not change its result.
HARMLESS = frozenset(
    {
        "cache_position",
        "deterministic",
        "kernel_options",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)


# The arguments of attention_forward that may not be None.
REQUIRED = frozenset({"query", "key", "value", "dropout"})


def check_keywords(module: Module, keywords: dict[str, Any]) -> None:
    """Raises ValueError for an unknown keyword that is a tensor of three or more dimensions, because it may select keys
    or change scores."""
    for name, value in keywords.items():
        if name not in HARMLESS and isinstance(value, Tensor) and value.dim() >= 3:
            text = f'"fa" does not know the keyword {name} of {type(module).__name__}; it may change the result.'
            raise ValueError(f'{text} Use attn_implementation="eager"')


def check_batching(lists: Tensor | None, sinks: Tensor | None) -> None:
    """Raises ValueError for arguments that are not supported with continuous batching."""
    for given, what in ((lists, "sparse selection"), (sinks, "sinks of rows")):
        if given is not None:
            raise ValueError(f'"fa" serves no {what} in continuous batching')


def sinks_of(query: Tensor, s_aux: Tensor | None, sinks: Tensor | None) -> Tensor | None:
    """Returns the scores of a virtual key, float32 [N], or [B, N, Sq] with `sinks`.

    Raises:
        ValueError: sinks are not floating [B, N, Sq, 1], or s_aux next to sinks is not [N].
    """
    of_heads = None if s_aux is None else s_aux.reshape(-1).float()
    if sinks is None:
        return of_heads
    want = [*query.shape[:3], 1]
    if not sinks.is_floating_point():
        raise ValueError(f"invalid argument: sinks.dtype={sinks.dtype}, want a floating type")
    if list(sinks.shape) != want:
        raise ValueError(f"invalid argument: sinks.shape={list(sinks.shape)}, want {want} (query)")
    of_rows = sinks.squeeze(-1).float()
    if of_heads is None:
        return of_rows
    if of_heads.shape[0] != query.shape[1]:
        text = f"s_aux.shape[0]={of_heads.shape[0]}, want {query.shape[1]} (query.shape[1])"
        raise ValueError(f"invalid argument: {text}")
    # The weights of two virtual keys, whose values are 0, add up. With -inf in both, gradients would be NaN.
    least = torch.finfo(torch.float32).min
    return torch.logaddexp(of_rows.clamp(min=least), of_heads[:, None].clamp(min=least))


def selection_of(
    module: Module, query: Tensor, key: Tensor, indices: Tensor | None, block_indices: Tensor | None
) -> tuple[Tensor | None, int]:
    """Returns lists [B, H, Sq, K] of keys and 0, or lists of blocks and the size of a block. H divides N, and H divides
    Nkv or is a multiple of Nkv.

    Raises:
        ValueError: an argument has another shape or type, both are given, or the module has no block size.
    """
    if indices is not None and block_indices is not None:
        raise ValueError("invalid argument: block_indices: given together with indices, want one of them")
    (batch, heads, rows), heads_kv = query.shape[:3], key.shape[1]
    if indices is not None:
        _check_lists("indices", indices, [batch, rows])
        return indices[:, None], 0
    if block_indices is not None:
        own = block_indices.shape[1] if block_indices.dim() == 4 else 0
        fits = own > 0 and heads % own == 0 and 0 in (own % heads_kv, heads_kv % own)
        _check_lists("block_indices", block_indices, [batch, own if fits else heads_kv, rows])
        block = getattr(getattr(module, "indexer", None), "block_size", None)
        if not isinstance(block, int) or block < 1:
            name = f"{type(module).__name__}.indexer.block_size"
            raise ValueError(f"invalid argument: {name}={block}, want an integer >= 1")
        return block_indices, block
    return None, 0


def _check_lists(name: str, lists: Tensor, sizes: list[int]) -> None:
    if lists.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"invalid argument: {name}.dtype={lists.dtype}, want torch.int32 or torch.int64")
    if list(lists.shape[:-1]) != sizes:
        want = f"[{', '.join(map(str, sizes))}, K]"
        raise ValueError(f"invalid argument: {name}.shape={list(lists.shape)}, want {want} (query and key)")


def check_types(numbers: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Raises TypeError for an argument in `numbers` that is no number, or one in `tensors` that is no tensor. An
    argument may be None unless it is in REQUIRED.
    """
    for name, value in (numbers | tensors).items():
        fits = hasattr(value, "__float__") if name in numbers else isinstance(value, Tensor)
        if not (fits or (value is None and name not in REQUIRED)):
            want = "a number" if name in numbers else "a torch.Tensor"
            optional = "" if name in REQUIRED else " or None"
            raise TypeError(f"{name}: want {want}{optional}, got {type(value).__name__}")


def check_no_codes(**tensors: Tensor) -> None:
    """Raises ValueError for keys or values of 8 bits that have no scale."""
    for name, tensor in tensors.items():
        if tensor.dtype.itemsize == 1:
            want = "floats, or what the update of a CompressedCache returned, unchanged"
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want {want}")


def check_of_codes(inputs: dict[str, Tensor | None], **refused: Any) -> None:
    """Checks a call whose keys are those of a CompressedCache. Raises ValueError for an argument that is not served
    together with them, and for inputs that require a gradient."""
    for name, value in refused.items():
        if value is not None:
            raise ValueError(f"invalid argument: {name}: given, want None with the keys of a CompressedCache")
    for name, tensor in inputs.items():
        if torch.is_grad_enabled() and tensor is not None and tensor.requires_grad:
            words = "requires a gradient, and there is none with the keys of a CompressedCache; want torch.no_grad()"
            raise ValueError(f"invalid argument: {name}: {words}")


def check_scales(codes: dict[str, Tensor], scales: tuple[Tensor, Tensor]) -> None:
    """Raises ValueError unless each row has one scale."""
    for (name, tensor), scale in zip(codes.items(), scales, strict=True):
        if tensor.shape[:-1] != scale.shape[:-1]:
            want = f"[{', '.join(map(str, scale.shape[:-1]))}, D] (its scale)"
            raise ValueError(f"invalid argument: {name}.shape={list(tensor.shape)}, want {want}")


def check_dimensions(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dim() != 4:
            raise ValueError(f"invalid argument: {name}.shape={list(tensor.shape)}, want 4 dimensions (BNSD)")


def check_model(model: PreTrainedModel, name: str) -> None:
    """Raises ValueError for a model that has its own attention code. If a model passes this check but calls no
    attention function, it gets a warning after its first forward."""
    kind = type(model)
    if kind._supports_sdpa or kind._supports_attention_backend:
        # transformers reads the model's source to find whether its attention can be chosen. A model defined in a
        # notebook has no source. For a composite model, transformers calls this check for each part.
        whole = kind.__module__.startswith("transformers.models.") and not model.config.sub_configs
        own = whole and not kind._can_set_attn_implementation()
        why = "its attention functions are not chosen by name" if own else None
    else:
        why = "_supports_sdpa and _supports_attention_backend are both False"
    if why is not None:
        raise ValueError(
            f'{kind.__name__} does not take attn_implementation="{name}": transformers marks it as a model with attention '
            f'code of its own ({why}). Use attn_implementation="eager", or name the parts of a model: '
            '{"text_config": "fa", "vision_config": "eager"}'
        )
    forward_hooks(model).setdefault(_HOOK, _warn_unless_called)


_HOOK = -1  # PyTorch itself gives no hook this id


def _warn_unless_called(model: PreTrainedModel, *_: Any) -> None:
    """Warns after a model's first forward if the model has not called `fa`. Calls in compiled code are not counted, so
    compiled models and models with compiled parts get no warning."""
    if torch.compiler.is_compiling():
        return
    forward_hooks(model).pop(_HOOK, None)
    asked = (model.config._attn_implementation or "").removeprefix("paged|") == "fa"
    if asked and not has_called(model) and not any(map(is_compiled, model.modules())):
        _logger.warning(f'{type(model).__name__} was given attn_implementation="fa" and calls no attention function')


def refuse_others(name: str) -> None:
    """Makes transformers call `check_model` whenever a model gets the attention `name`."""
    correct, switch = PreTrainedModel.get_correct_attn_implementation, PreTrainedModel.set_attn_implementation
    if hasattr(correct, "__wrapped__"):
        return

    @functools.wraps(correct)
    def get_correct_attn_implementation(self, requested_attention, *arguments, **keywords):
        if (requested_attention or "").removeprefix("paged|") == name:
            check_model(self, name)
        return correct(self, requested_attention, *arguments, **keywords)

    @functools.wraps(switch)
    def set_attn_implementation(self, attn_implementation, *arguments, **keywords):
        asked = attn_implementation.get("", "") if isinstance(attn_implementation, dict) else attn_implementation
        if (asked or "").removeprefix("paged|") == name and not self._can_set_attn_implementation():
            check_model(self, name)  # transformers itself would only leave the model as it is
        configs = [module.config for module in self.modules() if isinstance(module, PreTrainedModel)]
        before = [config._attn_implementation for config in configs]
        try:
            return switch(self, attn_implementation, *arguments, **keywords)
        except ValueError:
            # A part may be refused after others have been switched. All parts then get their former attention back.
            for config, attention in zip(configs, before, strict=True):
                config._attn_implementation_internal = attention
            raise

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation
    PreTrainedModel.set_attn_implementation = set_attn_implementation
