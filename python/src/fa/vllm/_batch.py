"""A step of vLLM, a batch of requests with different numbers of tokens and of keys, as calls of the engine."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _fa
from .._attention import compute as compute_arrays
from .._context import context_of_tensors
from .._errors import made, own_names
from .._torch.engine import compute
from ..flash_attn._call import logsumexp, mask_of

FEW_ROWS = 16
"""Up to this number of query rows, decode divides the keys of a request among threads."""

_SCALE_THEN_ADD = 0  # pse type

# The engine's names of tensors: {name: what vLLM calls it}.
NAMES = {"q": "query", "k": "kv_cache", "v": "kv_cache", "sink": "sinks", "pse": "alibi_slopes", "out": "output"}


class Layer(NamedTuple):
    """What an attention layer does to scores."""

    scale: float
    left: int = -1
    """How many keys a token sees before the key at its position; -1 means all."""
    right: int = -1
    """How many keys a token sees after that key, unless the call is causal; -1 means all."""
    softcap: float = 0.0
    slopes: tuple[float, ...] | None = None
    """Per head: slope * (key - position) is added to the score, after the soft cap."""


class Group(NamedTuple):
    """Neighbouring requests that one call computes. Each has `rows` tokens."""

    tokens: slice
    rows: int
    lengths: list[int]
    """The number of keys of each request, its own tokens included."""
    block_table: Tensor
    """int32 [requests, blocks]."""
    causal: bool


def groups_of(
    starts: Sequence[int], lengths: Sequence[int], block_table: Tensor, causal: bool | Sequence[bool]
) -> list[Group]:
    """Divides a batch into groups. Request i has tokens starts[i] to starts[i + 1] and lengths[i] keys; its last token
    stands at its last key. Requests without tokens belong to no group."""
    of_request = [causal] * len(lengths) if isinstance(causal, bool) else list(causal)
    groups, begin = [], 0
    while begin < len(lengths):
        kind = starts[begin + 1] - starts[begin], of_request[begin]
        end = begin + 1
        while end < len(lengths) and (starts[end + 1] - starts[end], of_request[end]) == kind:
            end += 1
        if kind[0] > 0:
            tokens = slice(starts[begin], starts[end])
            groups.append(Group(tokens, kind[0], list(lengths[begin:end]), block_table[begin:end], kind[1]))
        begin = end
    return groups


@functools.lru_cache
def _decode_options(layer: Layer, causal: bool) -> _fa.DecodeAttentionOptions:
    mask = mask_of(layer.left, 0 if causal else layer.right)
    return made(
        _fa.DecodeAttentionOptions, {"layout": "BSND", "mask": mask, "scale": layer.scale, "softcap": layer.softcap}
    )


@functools.lru_cache
def _packed_options(layer: Layer, causal: bool) -> _fa.AttentionOptions:
    mask = mask_of(layer.left, 0 if causal else layer.right)
    given = {"scale": layer.scale, "softcap": layer.softcap, "pse_type": _SCALE_THEN_ADD}
    return made(_fa.AttentionOptions, {"layout": "TND", "mask": mask, **given})


def _bias_of(slopes: tuple[float, ...], rows: int, keys: int) -> Tensor:
    """Returns the biases slope * (key - position), float32 [N, rows, keys], of the last `rows` positions."""
    back = torch.arange(rows - 1, -1, -1, dtype=torch.float32)
    distance = torch.arange(1 - keys, 1, dtype=torch.float32) + back[:, None]
    return torch.tensor(slopes, dtype=torch.float32)[:, None, None] * distance


def _bias_rows(rows: int, sinks: Tensor | None) -> int:
    """Returns for how many rows a request of `rows` tokens needs biases of their own. Without sinks one row stands for
    all: a row's biases differ from the last row's by a number, which changes no softmax."""
    return 1 if sinks is None else rows


class Batch:
    """The calls of a step, the same for all layers that share a block table."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.few_rows = all(group.rows <= FEW_ROWS for group in groups)
        self._biases: dict[tuple[int, int, tuple[float, ...]], Tensor] = {}

    def _bias(self, at: int, slopes: tuple[float, ...], sinks: Tensor | None) -> Tensor:
        """Returns the biases of a group, [requests, N, rows or 1, keys]. Past a request's keys they hold any numbers."""
        group = self.groups[at]
        rows = _bias_rows(group.rows, sinks)
        if (at, rows, slopes) not in self._biases:
            result = torch.zeros(len(group.lengths), len(slopes), rows, max(group.lengths))
            for of_request, keys in zip(result, group.lengths, strict=True):
                of_request[..., :keys] = _bias_of(slopes, rows, keys)
            self._biases[at, rows, slopes] = result
        return self._biases[at, rows, slopes]

    def attend(
        self, layer: Layer, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, output: Tensor
    ) -> None:
        """Writes the attention of query [tokens, N, D] over pages [blocks, block, Nkv, D] into the requests' rows of
        output [tokens, N, Dv]."""
        for at, group in enumerate(self.groups):
            q, out = (t[group.tokens].unflatten(0, (-1, group.rows)) for t in (query, output))
            tensors = {"q": q, "k": key, "v": value, "block_table": group.block_table, "sink": sinks}
            tensors["pse"] = None if layer.slopes is None else self._bias(at, layer.slopes, sinks)
            with own_names(NAMES):
                compute(_fa.decode, tensors, {"out": out}, _decode_options(layer, group.causal), (), group.lengths)


def attend_latent(
    scale: float,
    query: tuple[Tensor, Tensor],
    cache: Tensor,
    rows: int,
    lengths: list[int],
    block_table: Tensor,
) -> tuple[Tensor, Tensor]:
    """Computes causal attention of the last `rows` tokens of each request over latent pages.

    Args:
        query: [T, N, L] and [T, N, R].
        cache: [blocks, block, L + R]. A row is the key, its first L columns are the value.

    Returns:
        The output [T, N, L] and lse, float32 [T, N].
    """
    latent, rope = query
    size = latent.shape[-1]
    key = cache[:, :, None, :size]
    out = latent.new_empty(latent.shape)
    lse = latent.new_empty((len(lengths), latent.shape[1], rows), dtype=torch.float32)
    tensors: dict[str, Any] = {"q": latent.unflatten(0, (-1, rows)), "k": key, "v": key, "block_table": block_table}
    if rope.shape[-1] > 0:
        tensors |= {"q_rope": rope.unflatten(0, (-1, rows)), "k_rope": cache[:, :, None, size:]}
    results = {"out": out.unflatten(0, (-1, rows)), "lse": lse}
    with own_names(NAMES):
        compute(_fa.decode, tensors, results, _decode_options(Layer(scale), True), (), lengths)
    return out, lse.transpose(1, 2).flatten(0, 1)


def attend_packed(
    layer: Layer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends: tuple[list[int], list[int]],
    causal: bool,
    sinks: Tensor | None,
    output: Tensor,
    need_lse: bool = False,
) -> Tensor | None:
    """Writes the attention of packed sequences, [T, N, D] over [keys, Nkv, D], into output [T, N, Dv]. Rows past the
    last sequence are left as they are.

    Args:
        ends: where the tokens and where the keys of each sequence end.

    Returns:
        With need_lse the lse, float32 [N, T], -inf for rows without keys.
    """
    tokens, keys = slice(0, ends[0][-1]), slice(0, ends[1][-1])
    tensors = {"q": query[tokens], "k": key[keys], "v": value[keys], "sink": sinks}
    if layer.slopes is not None:
        rows, lengths = ([end - begin for begin, end in zip([0, *of], of, strict=False)] for of in ends)
        sizes = ((_bias_rows(count, sinks), length) for count, length in zip(rows, lengths, strict=True))
        tensors["pse"] = torch.cat([_bias_of(layer.slopes, *size).flatten() for size in sizes])
    results = {"out": output[tokens]}
    statistics = ()
    if need_lse:
        statistics = [query.new_empty(query[tokens].shape[:2], dtype=torch.float32) for _ in range(2)]
        results |= zip(("softmax_max", "softmax_sum"), statistics, strict=True)
    with own_names(NAMES):
        compute(_fa.forward, tensors, results, _packed_options(layer, causal), *ends)
    return logsumexp(*statistics, -torch.inf) if need_lse else None


def write_rows(key: Tensor, value: Tensor | None, slots: Tensor, caches: tuple[Tensor, Tensor | None], form: str) -> None:
    """Writes key [T, Nkv, D] and value [T, Nkv, Dv] to their slots of the caches. Rows of slot -1 and rows past the
    slots are not written."""
    rows = slots.shape[0]
    arrays = {"key": key[:rows], "value": None if value is None else value[:rows], "slot_mapping": slots}
    arrays |= zip(("key_cache", "value_cache"), caches, strict=True)
    compute_arrays(_fa.scatter_rows, arrays, form, context_of_tensors())
