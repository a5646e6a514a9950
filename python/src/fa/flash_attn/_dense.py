"""flash_attn's functions on dense and packed tensors, after q, k and v have been taken out of packed arguments."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._torch.dropout import new_state
from ._arguments import (
    at,
    autocast,
    check_attention,
    check_integers,
    check_size,
    check_slopes,
    check_tensor,
    invalid,
)
from ._call import FlashCall, Options, logsumexp
from ._ops import attend_by_operator
from ._probabilities import flash_probabilities


class Packed(NamedTuple):
    """The lengths and places of sequences in packed tensors."""

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int
    seqused_q: Optional[Tensor] = None
    seqused_k: Optional[Tensor] = None


_UNPACKED = Packed(None, None, 0, 0)


def attend(q: Tensor, k: Tensor, v: Tensor, options: Options, packed: Packed | None, empty: float) -> Any:
    """Returns out, or with return_attn_probs (out, softmax_lse, S_dmask).

    empty: the softmax_lse of a row without keys.
    """
    q, k, v, qv = autocast(q, k, v, options.qv)
    check_attention(q, k, v, packed is not None)
    call = checked_call(q, v, qv, options, packed)
    out, softmax_max, softmax_sum = attend_by_operator(q, k, v, call)
    if not options.return_attn_probs:
        return out
    probabilities = None
    if call.dropout_state is not None:
        probabilities = flash_probabilities(q.detach(), k.detach(), softmax_max, softmax_sum, *call)
    return out, logsumexp(softmax_max, softmax_sum, empty, call.sink), probabilities


def checked_call(q: Tensor, v: Tensor, qv: Tensor | None, options: Options, packed: Packed | None) -> FlashCall:
    if packed is not None:
        packed = check_packed(packed)
    batch = q.shape[0] if packed is None else packed.cu_seqlens_q.shape[0] - 1
    numbers = checked_options(q, v, qv, options, batch)
    lengths = packed or _UNPACKED
    return FlashCall(
        dropout_state=new_state(options.dropout_p),
        cu_q=lengths.cu_seqlens_q,
        cu_k=lengths.cu_seqlens_k,
        used_q=lengths.seqused_q,
        used_k=lengths.seqused_k,
        max_q=lengths.max_seqlen_q,
        max_k=lengths.max_seqlen_k,
        **numbers,
    )


def checked_options(q: Tensor, v: Tensor, qv: Tensor | None, options: Options, batch: int) -> dict[str, Any]:
    """Checks the options and returns the members of a `FlashCall` that are not lengths."""
    options.check()
    check_slopes(options.alibi_slopes, batch, q.shape[-2])
    check_qv(q, v, qv)
    numbers = options.numbers()
    slopes = None if options.alibi_slopes is None else options.alibi_slopes.detach()
    return {"qv": qv, "slopes": slopes, "sink": checked_sink(options.sink, q.shape[-2]), **numbers}


def check_packed(packed: Packed) -> Packed:
    """Checks the lengths, and returns them with max_seqlen_q and max_seqlen_k as numbers. Raises ValueError."""
    check_tensor("cu_seqlens_q", packed.cu_seqlens_q, "[B + 1]", (torch.int32,))
    check_tensor("cu_seqlens_k", packed.cu_seqlens_k, "[B + 1]", (torch.int32,))
    sums = packed.cu_seqlens_q.shape[0]
    if sums == 0:
        raise invalid("cu_seqlens_q.shape", [0], "[B + 1]")
    check_size("cu_seqlens_k", packed.cu_seqlens_k, 0, sums, at("cu_seqlens_q.shape[0]"))
    for name in ("seqused_q", "seqused_k"):
        used = getattr(packed, name)
        check_integers(name, used, "[B]")
        if used is not None:
            check_size(name, used, 0, sums - 1, "sequences")
    return packed._replace(max_seqlen_q=length(packed.max_seqlen_q), max_seqlen_k=length(packed.max_seqlen_k))


def length(number: Any) -> Any:
    """Returns a length as a number. `number` may be a tensor with one element."""
    return int(number) if isinstance(number, Tensor) else number


def check_qv(q: Tensor, v: Tensor, qv: Tensor | None) -> None:
    if qv is None:
        return
    check_tensor("qv", qv, "[B, S, N, Dv]" if q.dim() == 4 else "[total, N, Dv]", (q.dtype,))
    for axis in range(q.dim() - 1):
        check_size("qv", qv, axis, q.shape[axis], at(f"q.shape[{axis}]"))
    check_size("qv", qv, q.dim() - 1, v.shape[-1], at("v.shape[-1]"))


def checked_sink(sink: Tensor | None, heads: int) -> Tensor | None:
    """Checks the sink and returns it as float32 [N]."""
    if sink is None:
        return None
    check_tensor("learnable_sink", sink, "[N]")
    check_size("learnable_sink", sink, 0, heads, "heads of ", at("q"))
    return sink.float()
