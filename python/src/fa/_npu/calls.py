"""Translates torch_npu's arguments to those of the library's operators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import torch
from torch import Tensor

from .._attention import integers
from .._errors import own_names
from .._torch import ops as _torch_ops
from .._torch.call import SEQUENCE_AXIS, UNSIGNED_64, Call
from .._torch.dtensors import as_everywhere, register_shardings
from .._torch.operators import call as call_operator
from .._torch.operators import tensors_of

Forward = tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]

# The library's argument names, and torch_npu's.
TENSOR_NAMES = {"q": "query", "k": "key", "v": "value", "q_rope": "query_rope", "k_rope": "key_rope"}
_NAMES = TENSOR_NAMES | {
    "dense_mask": "atten_mask",
    "drop_mask": "dropout_mask",
    "heads": "head_num",
    "layout": "input_layout",
    "mask.pre": "pre_tokens",
    "mask.next": "next_tokens",
    "mask.prefix": "prefix",
    "q_start": "q_start_idx",
    "kv_start": "kv_start_idx",
    "cu_q": "actual_seq_qlen",
    "cu_kv": "actual_seq_kvlen",
    "dropout": "seed",
}
PROMPT_NAMES = _NAMES | {
    "heads": "num_heads",
    "heads_kv": "num_key_value_heads",
    "pse": "pse_shift",
    "cu_q": "actual_seq_lengths",
    "cu_kv": "actual_seq_lengths_kv",
    "lengths_q": "actual_seq_lengths",
    "lengths_kv": "actual_seq_lengths_kv",
    "scale": "scale_value",
}


RING_NAMES = {
    "prev_out": "prev_attn_out",
    "prev_max": "prev_softmax_max",
    "prev_sum": "prev_softmax_sum",
    "cur_out": "cur_attn_out",
    "cur_max": "cur_softmax_max",
    "cur_sum": "cur_softmax_sum",
    "cu_q": "actual_seq_qlen",
}
V1_NAMES = _NAMES | {"mask.pre": "pre_tockens", "mask.next": "next_tockens"}
_GRAD = {"scale": "scale_value", "out": "attention_in", "d_out": "dy"}
GRAD_NAMES = _NAMES | _GRAD
GRAD_V1_NAMES = V1_NAMES | _GRAD


def checked(function: Callable) -> Callable:
    """The function with a check of its tensors and texts by its annotations. TypeError names the first wrong argument.
    """
    kinds = {"Tensor": (Tensor,), "Tensor | None": (Tensor, type(None)), "str": (str,)}
    names = tuple(inspect.signature(function).parameters)
    wanted = {name: kinds[kind] for name, kind in function.__annotations__.items() if kind in kinds}

    @functools.wraps(function)
    def call(*arguments, **keywords):
        for name, value in (*zip(names, arguments, strict=False), *keywords.items()):
            if name in wanted and not isinstance(value, wanted[name]):
                raise TypeError(f"{name}: want a {function.__annotations__[name]}, got {type(value).__name__}")
        register_shardings(*arguments, *keywords.values())
        return function(*arguments, **keywords)

    return call


def biases(pse, atten_mask, sink, query_rope=None, key_rope=None):
    return {"pse": pse, "dense_mask": atten_mask, "sink": sink, "query_rope": query_rope, "key_rope": key_rope}


def scalars(scale, keep_prob, sparse_mode, pre_tokens, next_tokens, pse_type=1, q_start_idx=None, kv_start_idx=None):
    starts = kv_start_idx and pse_type >= 2  # the device ignores both without kv_start_idx
    return {
        "scale": scale,
        "keep_prob": keep_prob,
        "sparse_mode": sparse_mode,
        "pre_tokens": pre_tokens,
        "next_tokens": next_tokens,
        "pse_type": pse_type,
        "q_start": q_start_idx[0] if starts and q_start_idx else 0,
        "kv_start": kv_start_idx[0] if starts else 0,
    }


def _without_padding(sums: list[int]) -> list[int]:
    """Turns zeros after the last sum into sequences without rows, as the device does. They fill up a list of fixed
    size."""
    used = len(sums)
    while used > 0 and sums[used - 1] == 0:
        used -= 1
    return sums[:used] + [sums[used - 1]] * (len(sums) - used) if used else sums


def lengths(prefix, actual_seq_qlen, actual_seq_kvlen):
    return {
        "prefix": integers(prefix, "prefix"),
        "cu_q": _without_padding(integers(actual_seq_qlen, "actual_seq_qlen")),
        "cu_kv": _without_padding(integers(actual_seq_kvlen, "actual_seq_kvlen")),
    }


def npu_call(head_num, input_layout, biases, scalars, lengths, softmax_layout, drop_mask, dropout_state):
    layout = input_layout.upper()
    if layout not in ("BNSD", "BSND", "BSH", "SBH", "TND"):
        raise ValueError(f'invalid argument: input_layout="{input_layout}", want BNSD, BSND, BSH, SBH or TND')
    if softmax_layout not in ("", "TND", "same_as_input"):
        raise ValueError(f'invalid argument: softmax_layout="{softmax_layout}", want "", "TND" or "same_as_input"')
    if head_num <= 0:
        raise ValueError(f"invalid argument: head_num={head_num}, want >= 1")
    if not 0 <= scalars["sparse_mode"] <= 8:
        raise ValueError(f"invalid argument: sparse_mode={scalars['sparse_mode']}, want 0..8")
    biases = {**biases, "pse": _pse(biases["pse"], layout, scalars["pse_type"])}
    if biases["dense_mask"] is None:
        # In training the device computes all pairs in every mode without a mask.
        scalars = {**scalars, "sparse_mode": 0}
        lengths = {**lengths, "prefix": []}
    return Call(
        **biases,
        **scalars,
        **lengths,
        layout=layout,
        heads=head_num,
        drop_mask=None if drop_mask is None else drop_mask.reshape(-1),
        dropout_state=dropout_state,
        statistics="by_sequence" if layout == "TND" and softmax_layout == "" else "copies",
    )


def _pse(pse: Tensor | None, layout: str, pse_type: int) -> Tensor | None:
    """Flattens the biases that TND takes in any shape."""
    compressed = pse is not None and pse.dim() == 4 and pse.shape[2] == 1024
    return pse if pse is None or layout != "TND" or pse_type >= 2 or compressed else pse.reshape(-1)


def signed(value: int) -> int:
    """The same 64 bits as an int64."""
    value &= UNSIGNED_64
    return value - (1 << 64) if value >> 63 else value


def _state(seed: int, offset: int, query: Tensor) -> Tensor:
    state = torch.tensor([signed(seed), signed(offset)], dtype=torch.int64, device="cpu")
    return as_everywhere(state, query)


def _numels(call: Call, query: Tensor, key: Tensor) -> int:
    axis = SEQUENCE_AXIS[call.layout]
    return pairs(call, query, query.shape[axis], key.shape[axis])


def pairs(call: Call, query: Tensor, sq: int, sk: int) -> int:
    """The number of pairs of all heads, for sequences of so many rows. A dropout mask has one bit per pair."""
    if call.layout == "TND":
        ends = zip([0, *call.cu_q], [0, *call.cu_kv], call.cu_q, call.cu_kv, strict=False)
        return call.heads * sum((q_end - q_begin) * (k_end - k_begin) for q_begin, k_begin, q_end, k_end in ends)
    return query.shape[1 if call.layout == "SBH" else 0] * call.heads * sq * sk


_TENSORS = tensors_of(Call)


def _attend(query: Tensor, key: Tensor, value: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    tensors = query, key, value, *call[:_TENSORS]
    return call_operator(_torch_ops.attention, tensors, query, key, value, *call)


def forward(
    query, key, value, head_num, input_layout, biases, scalars, lengths, *, dropout, softmax_layout, names=_NAMES
) -> Forward:
    drop_mask, seed, offset = dropout
    state = None
    if scalars["keep_prob"] == 1:
        seed = offset = 0
    elif drop_mask is None:
        if seed == 0 and offset == 0:
            seed = int(torch.randint(1, 1 << 62, (), device="cpu"))
        state = _state(seed, offset, query)
    with own_names(names):
        call = npu_call(head_num, input_layout, biases, scalars, lengths, softmax_layout, drop_mask, state)
        out, softmax_max, softmax_sum = _attend(query, key, value, call)
    return out, softmax_max, softmax_sum, query.new_empty(0), seed, offset, _numels(call, query, key)


def forward_on_tensors(
    query, key, value, head_num, input_layout, biases, scalars, lengths, *, softmax_layout
) -> tuple[Tensor, ...]:
    """Runs as `forward`, but seed and offset are tensors, and the seed comes from PyTorch's generator."""
    seed, offset = (torch.zeros(1, dtype=torch.int64, device="cpu") for _ in range(2))
    state = None
    if scalars["keep_prob"] != 1:
        seed = torch.randint(1, 1 << 62, (1,), device="cpu")
        state = as_everywhere(torch.cat([seed, offset]), query)
    with own_names(V1_NAMES):
        call = npu_call(head_num, input_layout, biases, scalars, lengths, softmax_layout, None, state)
        out, softmax_max, softmax_sum = _attend(query, key, value, call)
    return out, softmax_max, softmax_sum, query.new_empty(0), seed, offset


def state_of(seed: Tensor | None, offset: Tensor | None, keep_prob: float) -> Tensor | None:
    """The dropout state of a backward call whose seed and offset are tensors. Raises ValueError if dropout lacks them.
    """
    if keep_prob == 1:
        return None
    for name, tensor in (("seed", seed), ("offset", offset)):
        if tensor is None or tensor.numel() != 1 or tensor.dtype != torch.int64:
            got = "missing" if tensor is None else f"{tensor.dtype} of {list(tensor.shape)}"
            raise ValueError(f"invalid argument: {name}: {got}, want torch.int64 of one element (keep_prob < 1)")
    return torch.cat([seed.reshape(1), offset.reshape(1)])


def backward(
    tensors, head_num, input_layout, biases, scalars, lengths, *, softmax_layout, names, seed_and_offset=None, state=None
):
    """Gradients of a forward. seed_and_offset are integers; otherwise `state` has seed and offset."""
    for name, tensor in zip(("attention_in", "dy", "softmax_max", "softmax_sum"), tensors[3:], strict=True):
        if tensor is None:
            raise ValueError(f"invalid argument: {name}: missing")
    if scalars["keep_prob"] != 1 and seed_and_offset is not None:
        state = _state(*seed_and_offset, tensors[0])
    needs = biases["pse"] is not None, biases["sink"] is not None
    with own_names(names):
        call = npu_call(head_num, input_layout, biases, scalars, lengths, softmax_layout, None, state)
        dq, dk, dv, dq_rope, dk_rope, dpse, dsink = _torch_ops.attention_backward(*tensors, *needs, *call)
    dq_rope, dk_rope = (None if call.query_rope is None else rope for rope in (dq_rope, dk_rope))
    return dq, dk, dv, dpse if needs[0] else None, dq_rope, dk_rope, dsink if needs[1] else None
