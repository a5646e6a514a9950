"""fa.plan, which describes what a call of any operator would run."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from typing import Any

from . import _fa, _shared_kv, _sparse
from ._attention import (
    DescribedArray,
    DescribedCall,
    flash_attention,
    flash_attention_grad,
    ring_attention_update,
)
from ._cache import gather_rows, merge_by_lse, scatter_rows
from ._decode import decode_attention
from ._errors import own_names
from ._fa import PlanDescription
from ._index_score import indexer_kl_loss, msa_index_score
from ._infer import infer_attention
from ._prompt import prompt_flash_attention

_OPERATORS: dict[str, Callable] = {
    "forward": flash_attention,
    "backward": flash_attention_grad,
    "prompt": prompt_flash_attention,
    "decode": decode_attention,
    "infer": infer_attention,
    "sparse-forward": _sparse.sparse_flash_attention,
    "sparse-backward": _sparse.sparse_flash_attention_grad,
    "shared-kv": _shared_kv.shared_kv_attention,
    "shared-kv-backward": _shared_kv.shared_kv_attention_grad,
    "indexer": _sparse.lightning_indexer,
    "indexer-backward": _sparse.lightning_indexer_grad,
    "indexer-kl-loss": _sparse.sparse_lightning_indexer_grad_kl_loss,
    "dense-indexer-lse": _sparse.dense_lightning_indexer_softmax_lse,
    "dense-indexer-kl-loss": _sparse.dense_lightning_indexer_grad_kl_loss,
    "indexer-loss-value": indexer_kl_loss,
    "index-score": msa_index_score,
    "merge": ring_attention_update,
    "merge-lse": merge_by_lse,
    "scatter": scatter_rows,
    "gather": gather_rows,
}
_FORWARD_OF = {"backward": "forward", "sparse-backward": "sparse-forward", "shared-kv-backward": "shared-kv"}
# Arguments whose values the plan needs.
_LENGTHS = (
    *("cu_q", "cu_kv", "lengths_q", "lengths_kv", "used_q", "used_kv", "residual_kv", "row_format", "start_loc"),
    *_shared_kv._LENGTHS,
)
_LISTS = ("k", "v", "lse", "local_out")  # arguments that may be a list of arrays
_DTYPES = {  # {the library's name of a type: NumPy's name}
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
    "i32": "int32",
    "i64": "int64",
    "u64": "uint64",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}
_NAMES = {name: short for short, name in _DTYPES.items()}


def plan(op: str, *arrays: Any, dtype: str = "f32", **keywords: Any) -> PlanDescription:
    """Describes what a call would run and why: kernels, tile shape, tasks, FLOPs, memory, load. Nothing is computed.

    Args:
        op: "forward", "backward", "prompt", "decode", "infer", "sparse-forward", "sparse-backward", "shared-kv",
            "shared-kv-backward", "indexer", "indexer-backward", "indexer-kl-loss", "dense-indexer-lse",
            "dense-indexer-kl-loss", "indexer-loss-value", "index-score", "merge", "merge-lse", "scatter" or "gather".
        arrays, keywords: the arguments of the operator's function. A tuple may give the shape in place of an array: (1,
            8, 512, 64) for q [B, N, Sq, D]. For a backward, the results of the forward and d_out may be left out.
        dtype: the type of arrays given as shapes: "f32", "bf16" or "f16", or "float32" and so on; for a prompt also
            "i8". Statistics, scales and sinks are float32, masks bool, lists and tables int32. Keys of a decode are
            int8 if there is a k_scale or an antiquant_scale, uint8 with kv_dtype "e4m3" or "e5m2", and int32 with
            "int4". Keys of sparse attention with a row_format are int8, as are q and k of an indexer with scales. Caches
            of a scatter with scales are int8, or uint8 with kv_dtype "e4m3".

    Raises:
        The same errors as `flash_attention`. ValueError: there is no such op.
    """
    if op not in _OPERATORS:
        raise ValueError(f'invalid argument: op="{op}", want one of {", ".join(_OPERATORS)}')
    dtype = _NAMES.get(dtype, dtype)
    if dtype not in ("f32", "bf16", "f16", "i8"):
        raise ValueError(f'invalid argument: dtype="{dtype}", want one of f32, bf16, f16, i8')
    function = _OPERATORS[op]
    given = inspect.signature(function).bind_partial(*arrays, **keywords).arguments
    given |= given.pop("keywords", {})
    arguments = {name: _described(name, value, _dtype_of(name, dtype, given)) for name, value in given.items()}
    if op in _FORWARD_OF:
        arguments = _of_forward(_FORWARD_OF[op], arguments) | arguments
    elif op == "indexer-backward" and "sparse_indices" in arguments:
        values = DescribedArray(arguments["sparse_indices"].shape, getattr(arguments.get("q"), "dtype", "float32"))
        arguments = {"d_values": values} | arguments
    call = _described_call(function, arguments)
    tensors = {name: _for_extension(array) for name, array in call.arrays.items()}
    with own_names(call.names):
        return getattr(_fa, f"plan_{call.function.__name__}")(tensors, *call.rest)


def _described_call(function: Callable, arguments: dict[str, Any]) -> DescribedCall:
    """Returns the call of the extension that `function` would make, without making it."""
    try:
        function(**arguments)
    except DescribedCall as call:
        return call
    raise AssertionError(function.__name__)


def _of_forward(op: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the results of a forward call with these arguments, and the gradient of its output."""
    own = set(inspect.signature(_OPERATORS[op]).parameters)
    call = _described_call(_OPERATORS[op], {name: value for name, value in arguments.items() if name in own})
    results = {name: call.arrays[name] for name in ("out", "softmax_max", "softmax_sum", "lse") if name in call.arrays}
    return results | {"d_out": results["out"]}


def _dtype_of(name: str, dtype: str, given: dict[str, Any]) -> str:
    """Returns the type of an argument that is given as a shape."""
    if name.endswith("mask"):
        return "uint8" if name == "drop_mask" else "bool"
    if name.endswith("padding"):
        return "int64"
    if name.endswith(("indices", "table", "index_offset", "topk_length")):
        return "int32"
    if name in ("slot_mapping", "source_rows", "seq_lens", "seq_offset"):
        return "int32"
    if "softmax" in name or "scale" in name or "offset" in name or name in ("sink", "lse", "p_head_mean"):
        return "float32"
    if name in ("key_cache", "value_cache"):
        scales = (given.get(scale) for scale in (name.replace("cache", "scale"), name.replace("cache", "scale_cache")))
        if any(scale is not None for scale in scales):
            return "int8" if given.get("kv_dtype") is None else "uint8"
    if name in ("k", "v") and given.get("kv_dtype") is not None:
        return "int32" if given["kv_dtype"] == "int4" else "uint8"
    if name in ("k", "v") and any(given.get(of) is not None for of in ("k_scale", "antiquant_scale", "row_format")):
        return "int8"
    if name == "q" and given.get("q_scale") is not None:
        return "int8"
    return _DTYPES[dtype]


def _described(name: str, value: Any, dtype: str) -> Any:
    if name in _LENGTHS:
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return DescribedArray(value.shape, value.dtype, value)
    if isinstance(value, (list, tuple)) and value and not all(isinstance(item, numbers.Integral) for item in value):
        return [_described(name, item, dtype) for item in value] if name in _LISTS else value
    return DescribedArray(value, dtype) if isinstance(value, tuple) else value


def _for_extension(array: Any) -> Any:
    if isinstance(array, list):
        return [_for_extension(item) for item in array]
    if not isinstance(array, DescribedArray):
        return array
    return array.array if array.array is not None else (_NAMES.get(array.dtype_name, "f32"), *array.shape)
