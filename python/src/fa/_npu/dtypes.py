"""Reads the arguments NAME_dtype of torch_npu's functions, which give the element type of the tensor NAME."""

from __future__ import annotations

import torch
from torch import Tensor

# torch_npu's number of a type is 256 more than the number in aclDataType.
_TORCH_NPU = 256
_TYPES = {
    0: torch.float32,
    1: torch.float16,
    2: torch.int8,
    3: torch.int32,
    4: torch.uint8,
    9: torch.int64,
    10: torch.uint64,
    12: torch.bool,
    27: torch.bfloat16,
    36: torch.float8_e4m3fn,
}
_NOT_SERVED = {34: "HiFloat8", 35: "float8_e5m2", 37: "float8_e8m0", 40: "FP4", 41: "FP4"}
_BYTES = torch.int8, torch.uint8


def dtype_of(number: int | torch.dtype, name: str) -> torch.dtype:
    """Returns the torch.dtype of `number`, a type code of torch_npu or of aclDataType. Errors name the argument
    `name`.
    """
    if isinstance(number, torch.dtype):
        return number
    code = number - _TORCH_NPU if number >= _TORCH_NPU else number
    if code in _NOT_SERVED:
        raise ValueError(f"invalid argument: {name}={number} ({_NOT_SERVED[code]}) is not served")
    if code not in _TYPES:
        raise ValueError(f"invalid argument: {name}={number}, want None or the number of a type")
    return _TYPES[code]


def typed(tensor: Tensor | None, number: int | torch.dtype | None, name: str) -> Tensor | None:
    """Returns the tensor with the element type that the code `number` stands for; None means the tensor's own type. The
    code of float8_e4m3fn reinterprets the bytes of an 8-bit integer tensor.

    Raises:
        ValueError: the type is not served, or the tensor has another type.
    """
    if number is None:
        return tensor
    dtype = dtype_of(number, name)
    if tensor is None or tensor.dtype == dtype:
        return tensor
    if dtype == torch.float8_e4m3fn and tensor.dtype in _BYTES:
        return tensor.view(dtype)
    raise ValueError(f"invalid argument: {name}={number} ({dtype}), want {tensor.dtype}")
