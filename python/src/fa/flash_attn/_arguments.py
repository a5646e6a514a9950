"""Checks of the shapes, types and numbers in a call. The operators check the values of lengths. Errors use flash_attn's
argument names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import argument_error, in_names

TYPES = (torch.float32, torch.bfloat16, torch.float16)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)  # caches may have these types, and then q may have them too


# Parts of an error: words, or an argument that `at` has marked.
Words = str | tuple[str]


def at(path: str) -> tuple[str]:
    """Marks the path of an argument in an error, such as "k.shape[2]"."""
    return (path,)


def _pieces(path: str) -> tuple[str, str, str]:
    """Returns (name, member, index) of an argument's path, so that the argument can be renamed."""
    head, bracket, index = path.rpartition("[") if path.endswith("]") else (path, "", "")
    name, dot, member = head.partition(".")
    return name, dot + member, bracket + index


def invalid(path: str, got: Any, want: str, *more: Words) -> ValueError:
    name, member, index = _pieces(path)
    words = (word if isinstance(word, str) else _pieces(*word) for word in more)
    return argument_error(ValueError, name, f"={got}, want {want}", *words, member=member, index=index)


def renamed(error: ValueError, names: dict[str, str], parts_at: int | None = None) -> Exception:
    """Returns the error with the caller's names, to which `names` maps the names in the error.

    parts_at: the dimension of the caller's tensor along which its parts, such as k and v, lie. The parts lack it.
    """

    def axis(name: str, member: str, index: str) -> str:
        own = index.strip("[]")
        if parts_at is not None and name in names.values() and member == ".shape" and own.isdigit():
            index = f"[{int(own) + (int(own) >= parts_at)}]"
        return f"{name}{member}{index}"

    return in_names(error, names, axis)


def check_tensor(name: str, tensor: Any, shape: str, dtypes: Sequence[torch.dtype] = TYPES) -> None:
    """Checks a tensor's number of dimensions and type. `shape` names its dimensions, as in "[B, S, N, D]"."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: want a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dim() != shape.count(",") + 1:
        raise invalid(f"{name}.shape", list(tensor.shape), shape)
    if tensor.dtype not in dtypes:
        raise invalid(f"{name}.dtype", tensor.dtype, " or ".join(map(str, dtypes)))
    if not (tensor.is_cpu or tensor.is_meta):
        raise invalid(f"{name}.device", tensor.device, "cpu")


def check_same_type(name: str, tensor: Tensor, other: str, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype:
        raise invalid(f"{name}.dtype", tensor.dtype, f"{dtype} (", at(f"{other}.dtype"), ")")


def check_size(name: str, tensor: Tensor, axis: int, want: int, *source: Words) -> None:
    if tensor.shape[axis] != want:
        raise invalid(f"{name}.shape[{axis}]", tensor.shape[axis], f"{want} (", *source, ")")


def check_heads(name: str, tensor: Tensor, axis: int, heads: int) -> None:
    own = tensor.shape[axis]
    if own == 0 or heads % own != 0:
        raise invalid(f"{name}.shape[{axis}]", own, f"a divisor of {heads} (heads of ", at("q"), ")")


def check_attention(q: Tensor, k: Tensor, v: Tensor, packed: bool) -> None:
    """Checks q [B, Sq, N, D], k [B, Sk, Nkv, D], v [B, Sk, Nkv, Dv], or packed [total, N, D]."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, "[total, N, D]" if packed else "[B, S, N, D]")
    for name, tensor in (("k", k), ("v", v)):
        check_same_type(name, tensor, "q", q.dtype)
    if not packed:
        check_size("k", k, 0, q.shape[0], at("q.shape[0]"))
    rows = k.dim() - 2
    for axis in range(rows):
        check_size("v", v, axis, k.shape[axis], at(f"k.shape[{axis}]"))
    check_heads("k", k, rows, q.shape[rows])
    check_size("v", v, rows, k.shape[rows], at(f"k.shape[{rows}]"))
    check_size("k", k, rows + 1, q.shape[rows + 1], at(f"q.shape[{rows + 1}]"))
    check_head_sizes(q=q, v=v)


def check_head_sizes(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not 1 <= tensor.shape[-1] <= 1024:
            raise invalid(f"{name}.shape[-1]", tensor.shape[-1], "1..1024")


def window(window_size: Sequence[int | None], causal: bool) -> tuple[int, int]:
    """Returns (left, right) of a window, where -1 means no limit on that side. window_size may be a tensor of two
    numbers, and None in it means -1."""
    if len(window_size) != 2:
        raise invalid("window_size", window_size, "(left, right)")
    left, right = [-1 if side is None else max(int(side), -1) for side in window_size]
    return left, 0 if causal else right


def check_slopes(alibi_slopes: Tensor | None, batch: int, heads: int) -> None:
    """Checks that slopes are float32, [N] or [B, N]."""
    if alibi_slopes is None:
        return
    if not isinstance(alibi_slopes, Tensor):
        raise TypeError(f"alibi_slopes: want a torch.Tensor, got {type(alibi_slopes).__name__}")
    if alibi_slopes.dtype != torch.float32:
        raise invalid("alibi_slopes.dtype", alibi_slopes.dtype, "torch.float32")
    if tuple(alibi_slopes.shape) not in ((heads,), (batch, heads)):
        raise invalid("alibi_slopes.shape", list(alibi_slopes.shape), f"[{heads}] or [{batch}, {heads}]")


def check_integers(name: str, tensor: Tensor | None, shape: str, dtypes=(torch.int32,)) -> None:
    """Checks an optional tensor of integers, such as lengths or block_table."""
    if tensor is not None:
        check_tensor(name, tensor, shape, dtypes)


def check_none(why: str, *parts: Words, **arguments: Any) -> None:
    """Raises ValueError for an argument that is not None. The reason is `why`, then `parts`."""
    for name, value in arguments.items():
        if value is not None:
            words = (part if isinstance(part, str) else _pieces(*part) for part in parts)
            raise argument_error(ValueError, name, f": given, want None ({why}", *words, ")")


def autocast(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Returns the tensors in the type of autocast, if it is on."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if isinstance(t, Tensor) and t.dtype in TYPES else t for t in tensors)
