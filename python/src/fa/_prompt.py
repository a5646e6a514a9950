"""Attention over whole prompts in inference, with padded batches and with int8."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _fa
from ._attention import NAMES, arrays_of, check_arrays, compute, empty_like_of, integers, options_of
from ._context import chosen_context, torch_of
from ._fa import Context, Mask
from ._layout import output_shape, statistics_shape

# For TND, the arguments lengths_q and lengths_kv hold prefix sums, which the library calls cu_q and cu_kv.
NAMES_OF_LENGTHS = NAMES | {"cu_q": "lengths_q", "cu_kv": "lengths_kv"}
_QUANTIZATION = ("deq_scale1", "quant_scale1", "deq_scale2", "quant_scale2", "quant_offset2")
ARRAYS = {
    name: NAMES.get(name, name)
    for name in ("q", "k", "v", "q_rope", "k_rope", "pse", "dense_mask", "sink", *_QUANTIZATION)
}


def output_dtype(q: Any, quant_scale2: Any) -> Any:
    """Returns the type of the output: int8 with quant_scale2, else float16 if q has 8 bits, else the type of q."""
    library = torch_of(q) or np
    if quant_scale2 is not None:
        return library.int8
    eight_bits = str(q.dtype).removeprefix("torch.") in ("int8", "uint8", "float8_e4m3fn")
    return library.float16 if eight_bits else q.dtype


def unsigned(scale: Any) -> Any:
    """Returns the scale, with int64 changed to uint64. torch_npu packs a float32 into int64, but the library takes
    uint64."""
    if str(getattr(scale, "dtype", "")).removeprefix("torch.") != "int64":
        return scale
    return scale.view((torch_of(scale) or np).uint64)


def prompt_flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    layout: str = "BNSD",
    head_num: int = 0,
    head_num_kv: int = 0,
    scale: float | None = None,
    mask: Mask | None = None,
    dense_mask: Any = None,
    query_rope: Any = None,
    key_rope: Any = None,
    pse: Any = None,
    pse_type: int = 0,
    q_start: int = 0,
    kv_start: int = 0,
    softcap: float = 0.0,
    sink: Any = None,
    lengths_q: Iterable[int] | None = None,
    lengths_kv: Iterable[int] | None = None,
    deq_scale1: Any = None,
    quant_scale1: Any = None,
    deq_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    return_statistics: bool = False,
    context: Context | None = None,
) -> Any:
    """Computes softmax(mask(scale * Q K^T + pse)) V over the rows in use. Except with int8, the result has the bits of
    `flash_attention`.

    Args:
        q, k, v: as in `flash_attention`; float32, bfloat16, float16 or int8.
        head_num: N, which BSH and SBH need. Other layouts check it if it is > 0.
        head_num_kv: Nkv, which is checked if it is > 0.
        mask: which keys each row sees. Masks that are aligned bottom-right align the last row in use with the last key
            in use. Sparse modes are 0 to 4.
        dense_mask: uint8, int8 or bool, 1 = drop: [>=Sq, >=Sk], [B|1, >=Sq, >=Sk], [B|1, 1, >=Sq, >=Sk],
            [B, N, >=Sq, >=Sk]; TND: [>=maxSq, >=maxSk].
        query_rope, key_rope: as in `flash_attention`.
        pse: [B|1, N, >=Sq, >=Sk], type of q or float32.
        pse_type, q_start, kv_start: as in `flash_attention`.
        softcap: c > 0 turns scale * QK into c * tanh(scale * QK / c), before pse; 0 means none.
        sink: as in `flash_attention`.
        lengths_q, lengths_kv: how many rows of each batch element are in use. One entry holds for all elements; None
            means all rows. For TND they are inclusive prefix sums. Rows past the length are 0 in every result, and keys
            past it are never read.
        deq_scale1, deq_scale2: scales of Q K^T and of P V, only with int8 inputs. One element each, float32, or
            (u)int64 whose low 32 bits are those of a float32.
        quant_scale1: the scale of the probabilities, only with int8 inputs. One element, float32.
        quant_scale2, quant_offset2: scales and offsets of an int8 output. One element or N * Dv, float32 (bfloat16 if q
            is bfloat16).
        return_statistics: whether to return softmax_max and softmax_sum, float32 [B, N, Sq] (TND [T, N]), as in
            `flash_attention`.

    int8 inputs take no ropes, sink, softcap or statistics, and only pse_type 0.

    Returns:
        The output, an array of q's kind: int8 with quant_scale2, otherwise float16 if q is int8 and q's type if not.
        With return_statistics the result is (output, softmax_max, softmax_sum).

    Raises:
        The same errors as `flash_attention`.
    """
    given = dict(locals())  # locals() has exactly the arguments here, because no other variable exists yet
    arrays = arrays_of(given, ARRAYS)
    del given["lengths_q"], given["lengths_kv"], given["context"], given["return_statistics"]
    check_arrays(q=q, k=k, v=v)
    arrays |= {name: unsigned(arrays[name]) for name in ("deq_scale1", "deq_scale2")}
    given["heads_kv"] = given.pop("head_num_kv")
    options = options_of(_fa.PromptAttentionOptions, given)
    empty = empty_like_of(q)
    out = empty(output_shape(layout, head_num, q.shape, k.shape, v.shape), output_dtype(q, quant_scale2))
    lengths = integers(lengths_q, "lengths_q"), integers(lengths_kv, "lengths_kv")
    results = {"out": out}
    if return_statistics:
        shape = statistics_shape(layout, head_num, q.shape)
        results |= {"softmax_max": empty(shape, None), "softmax_sum": empty(shape, None)}
    compute(_fa.prompt, arrays | results, options, *lengths, chosen_context(context, q), names=NAMES_OF_LENGTHS)
    return tuple(results.values()) if return_statistics else out
