"""Translates the arguments of torch_npu's functions for training into those of the library's operators."""

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

# Argument names: {the library's name: torch_npu's name}.
TENSOR_NAMES = {"q": "query", "k": "key", "v": "value", "q_rope": "query_rope", "k_rope": "key_rope"}
NAMES = TENSOR_NAMES | {
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
PROMPT_NAMES = NAMES | {
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
V1_NAMES = NAMES | {"mask.pre": "pre_tockens", "mask.next": "next_tockens"}
_GRAD = {"scale": "scale_value", "out": "attention_in", "d_out": "dy"}
GRAD_NAMES = NAMES | _GRAD
GRAD_V1_NAMES = V1_NAMES | _GRAD


def checked(function: Callable) -> Callable:
    """Returns the function with a check in front. The check compares tensors, texts and numbers with their annotations,
    and raises TypeError for the first argument that does not fit."""
    kinds = {
        "Tensor": (Tensor,),
        "Tensor | None": (Tensor, type(None)),
        "str": (str,),
        "int": (int,),
        "float": (float, int),
    }
    methods = {"int": ("__index__",), "float": ("__float__", "__index__")}  # methods that other libraries' numbers have
    names = tuple(inspect.signature(function).parameters)
    words = {"int": "an integer", "float": "a number"}
    wanted = {name: kinds[kind] for name, kind in function.__annotations__.items() if kind in kinds}

    @functools.wraps(function)
    def call(*arguments, **keywords):
        for name, value in (*zip(names, arguments, strict=False), *keywords.items()):
            if name in wanted and not isinstance(value, wanted[name]):
                kind = function.__annotations__[name]
                if not any(hasattr(value, method) for method in methods.get(kind, ())):
                    raise TypeError(f"{name}: want {words.get(kind, 'a ' + kind)}, got {type(value).__name__}")
        register_shardings(*arguments, *keywords.values())
        return function(*arguments, **keywords)

    return call


def as_newest(given: dict) -> dict:
    """Adds pre_tokens and next_tokens, the newest version's names, to the arguments of an older version."""
    given["pre_tokens"], given["next_tokens"] = given["pre_tockens"], given["next_tockens"]
    return given


def _without_padding(sums: list[int]) -> list[int]:
    """Replaces zeros after the last sum by that sum, which makes them sequences without rows, as on the device.
    Programs fill a list of fixed size with such zeros."""
    used = len(sums)
    while used > 0 and sums[used - 1] == 0:
        used -= 1
    return sums[:used] + [sums[used - 1]] * (len(sums) - used) if used else sums


def npu_call(given: dict, dropout_state: Tensor | None) -> Call:
    """Returns the Call for the arguments of npu_fusion_attention_v2 or of its gradient. Arguments that only newer
    versions have may be missing."""
    prefix, cu_q, cu_kv = (integers(given[name], name) for name in ("prefix", "actual_seq_qlen", "actual_seq_kvlen"))
    head_num, input_layout, softmax_layout = given["head_num"], given["input_layout"], given["softmax_layout"]
    sparse_mode, pse_type, mask = given["sparse_mode"], given.get("pse_type", 1), given["atten_mask"]
    layout = input_layout.upper()
    if layout not in ("BNSD", "BSND", "BSH", "SBH", "TND"):
        raise ValueError(f'invalid argument: input_layout="{input_layout}", want BNSD, BSND, BSH, SBH or TND')
    if softmax_layout not in ("", "TND", "same_as_input"):
        raise ValueError(f'invalid argument: softmax_layout="{softmax_layout}", want "", "TND" or "same_as_input"')
    if head_num <= 0:
        raise ValueError(f"invalid argument: head_num={head_num}, want >= 1")
    if not 0 <= sparse_mode <= 8:
        raise ValueError(f"invalid argument: sparse_mode={sparse_mode}, want 0..8")
    if mask is None:  # without a mask all pairs are kept in every mode, as on the device
        sparse_mode, prefix = 0, []
    drop_mask, q_start, kv_start = given.get("dropout_mask"), given.get("q_start_idx"), given.get("kv_start_idx")
    starts = kv_start and pse_type >= 2  # the device ignores q_start_idx without kv_start_idx
    return Call(
        query_rope=given.get("query_rope"),
        key_rope=given.get("key_rope"),
        pse=_pse(given["pse"], layout, pse_type),
        dense_mask=mask,
        drop_mask=None if drop_mask is None else drop_mask.reshape(-1),
        dropout_state=dropout_state,
        sink=given["sink"],
        layout=layout,
        heads=head_num,
        scale=given["scale"] if "scale" in given else given["scale_value"],
        sparse_mode=sparse_mode,
        pre_tokens=given["pre_tokens"],
        next_tokens=given["next_tokens"],
        prefix=prefix,
        cu_q=_without_padding(cu_q),
        cu_kv=_without_padding(cu_kv),
        pse_type=pse_type,
        q_start=q_start[0] if starts and q_start else 0,
        kv_start=kv_start[0] if starts else 0,
        keep_prob=given["keep_prob"],
        statistics="by_sequence" if layout == "TND" and softmax_layout == "" else "copies",
    )


def _pse(pse: Tensor | None, layout: str, pse_type: int) -> Tensor | None:
    """Flattens a bias of layout TND, which may have any shape. Does not change compressed biases and slopes."""
    compressed = pse is not None and pse.dim() == 4 and pse.shape[2] == 1024
    return pse if pse is None or layout != "TND" or pse_type >= 2 or compressed else pse.reshape(-1)


def signed(value: int) -> int:
    """Returns the low 64 bits of `value` as an int64."""
    value &= UNSIGNED_64
    return value - (1 << 64) if value >> 63 else value


def _state(seed: int | Tensor, offset: int | Tensor, query: Tensor) -> Tensor:
    numbers = (number.item() if isinstance(number, Tensor) else number for number in (seed, offset))
    state = torch.tensor([signed(number) for number in numbers], dtype=torch.int64, device="cpu")
    return as_everywhere(state, query)


def _numels(call: Call, query: Tensor, key: Tensor) -> int:
    axis = SEQUENCE_AXIS[call.layout]
    return pairs(call, query, query.shape[axis], key.shape[axis])


def pairs(call: Call, query: Tensor, sq: int, sk: int) -> int:
    """Returns the number of pairs of a query and a key, summed over heads and batch. A dropout mask has one bit per
    pair. Every sequence has `sq` queries and `sk` keys, except in TND.
    """
    if call.layout == "TND":
        ends = zip([0, *call.cu_q], [0, *call.cu_kv], call.cu_q, call.cu_kv, strict=False)
        return call.heads * sum((q_end - q_begin) * (k_end - k_begin) for q_begin, k_begin, q_end, k_end in ends)
    return query.shape[1 if call.layout == "SBH" else 0] * call.heads * sq * sk


_TENSORS = tensors_of(Call)


def _attend(given: dict, state: Tensor | None, names: dict[str, str]) -> tuple[Call, tuple[Tensor, ...]]:
    """Returns (call, (attention_out, softmax_max, softmax_sum, softmax_out))."""
    inputs = given["query"], given["key"], given["value"]
    with own_names(names):
        call = npu_call(given, state)
        results = call_operator(_torch_ops.attention, (*inputs, *call[:_TENSORS]), *inputs, *call)
    return call, (*results, given["query"].new_empty(0))


def forward(given: dict, names: dict[str, str]) -> Forward:
    """Computes npu_fusion_attention_v2 with these arguments. Errors name arguments as `names` says."""
    query, key, seed, offset, state = given["query"], given["key"], given["seed"], given["offset"], None
    if given["keep_prob"] == 1:
        seed = offset = 0
    elif given["dropout_mask"] is None:
        if seed == 0 and offset == 0:
            seed = int(torch.randint(1, 1 << 62, (), device="cpu"))
        state = _state(seed, offset, query)
    call, results = _attend(given, state, names)
    return *results, seed, offset, _numels(call, query, key)


def forward_on_tensors(given: dict, names: dict[str, str]) -> tuple[Tensor, ...]:
    """Works like `forward`, but returns seed and offset as tensors. If there is dropout, it always draws a seed."""
    seed, offset = (torch.zeros(1, dtype=torch.int64, device="cpu") for _ in range(2))
    state = None
    if given["keep_prob"] != 1:
        seed = torch.randint(1, 1 << 62, (1,), device="cpu")
        state = as_everywhere(torch.cat([seed, offset]), given["query"])
    return *_attend(given, state, names)[1], seed, offset


def _state_of(given: dict) -> Tensor | None:
    """Returns the dropout state for a gradient, from seed and offset as integers or tensors. Raises ValueError if there
    is dropout and one of them is missing or is not one int64."""
    seed, offset = given["seed"], given["offset"]
    if given["keep_prob"] == 1:
        return None
    if not all(number is None or isinstance(number, Tensor) for number in (seed, offset)):
        return _state(seed, offset, given["query"])
    for name, tensor in (("seed", seed), ("offset", offset)):
        if tensor is None or tensor.numel() != 1 or tensor.dtype != torch.int64:
            got = "missing" if tensor is None else f"{tensor.dtype} of {list(tensor.shape)}"
            raise ValueError(f"invalid argument: {name}: {got}, want torch.int64 of one element (keep_prob < 1)")
    return torch.cat([seed.reshape(1), offset.reshape(1)])


def backward(given: dict, names: dict[str, str]) -> tuple[Tensor | None, ...]:
    """Computes npu_fusion_attention_grad_v2 with these arguments. Errors name arguments as `names` says."""
    results = ("attention_in", "dy", "softmax_max", "softmax_sum")
    for name in results:
        if given[name] is None:
            raise ValueError(f"invalid argument: {name}: missing")
    state = _state_of(given)
    needs = given["pse"] is not None, given["sink"] is not None
    tensors = (given[name] for name in ("query", "key", "value", *results))
    with own_names(names):
        call = npu_call(given, state)
        dq, dk, dv, dq_rope, dk_rope, dpse, dsink = _torch_ops.attention_backward(*tensors, *needs, *call)
    dq_rope, dk_rope = (None if call.query_rope is None else rope for rope in (dq_rope, dk_rope))
    return dq, dk, dv, dpse if needs[0] else None, dq_rope, dk_rope, dsink if needs[1] else None
