"""A step of vLLM, a batch of requests with different numbers of tokens and of keys, as calls of the engine."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _fa
from .._attention import compute as compute_arrays
from .._context import context_of_tensors
from .._errors import made, own_names
from .._torch.engine import compute
from ..flash_attn._call import logsumexp, mask_of
from ..flash_attn._sequences import runs_of

FEW_ROWS = 16
"""A step whose requests have up to this number of tokens counts as decode."""

_SCALE_THEN_ADD = 0  # pse type

SLOPE_ROWS = 128
"""With slopes, the biases of this many neighbouring rows are computed from the position of the last one. In float32
each is rounded as if it were slope * SLOPE_ROWS larger."""

# The engine's names of tensors: {name: what vLLM calls it}.
_SHARED = {"sink": "sinks", "pse": "alibi_slopes"}
_PAGED = {"q": "query", **dict.fromkeys(("k", "v", "k_scale", "v_scale"), "kv_cache"), "out": "output", **_SHARED}
LATENT = {"q_rope": "q", **dict.fromkeys(("k", "v", "k_rope"), "kv_c_and_k_pe_cache")}
ENCODER = {"q": "query", "k": "key", "v": "value", "out": "output", **_SHARED}
_CACHES = dict.fromkeys(("key_cache", "value_cache", "key_scale_cache", "value_scale_cache"), "kv_cache")
LATENT_ROWS = {"key": "kv_c_normed", "value": "k_pe"}


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


class Pages(NamedTuple):
    """Views of a layer's cache, [blocks, Nkv, block, columns], of latent caches [blocks, block, 1, columns]. Caches of
    int8 have scales too, float32 with one column.
    """

    key: Tensor
    value: Tensor | None
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None


class Group(NamedTuple):
    """Consecutive requests that one call computes. Either all of them are causal, or none is."""

    tokens: slice
    ends: list[int]
    """Where the tokens of each request end, counted from the group's first token."""
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
    kinds = [(end > begin, own) for begin, end, own in zip(starts[:-1], starts[1:], of_request, strict=True)]
    groups = []
    for begin, end in runs_of(kinds):
        if kinds[begin][0]:
            first = starts[begin]
            ends = [start - first for start in starts[begin + 1 : end + 1]]
            whole = slice(first, starts[end]), ends, list(lengths[begin:end])
            groups.append(Group(*whole, block_table[begin:end], of_request[begin]))
    return groups


def _cut(group: Group) -> Group:
    """Cuts each request where positions are multiples of SLOPE_ROWS. Returns a group whose requests are the pieces. A
    causal piece needs no keys after its last token. A group that is not causal is returned unchanged.
    """
    if not group.causal:
        return group
    owners, ends, lengths = [], [], []
    for i, (begin, end, keys) in enumerate(zip([0, *group.ends], group.ends, group.lengths, strict=False)):
        position = keys - (end - begin)
        for last in (*range((position // SLOPE_ROWS + 1) * SLOPE_ROWS, keys, SLOPE_ROWS), keys):
            owners.append(i)
            ends.append(end - (keys - last))
            lengths.append(last)
    return group._replace(ends=ends, lengths=lengths, block_table=group.block_table[owners])


@functools.lru_cache
def _decode_options(layer: Layer, causal: bool) -> _fa.DecodeAttentionOptions:
    mask = mask_of(layer.left, 0 if causal else layer.right)
    return made(
        _fa.DecodeAttentionOptions, {"layout": "TND", "mask": mask, "scale": layer.scale, "softcap": layer.softcap}
    )


@functools.lru_cache
def _packed_options(layer: Layer, causal: bool) -> _fa.AttentionOptions:
    mask = mask_of(layer.left, 0 if causal else layer.right)
    given = {"scale": layer.scale, "softcap": layer.softcap, "pse_type": _SCALE_THEN_ADD}
    return made(_fa.AttentionOptions, {"layout": "TND", "mask": mask, **given})


def _from_last(ends: Sequence[int]) -> Tensor:
    """Returns how far each token stands from the last one of its sequence, float32 [T, 1]: 0 or a negative number."""
    rows = torch.tensor([end - begin for begin, end in zip([0, *ends], ends, strict=False)])
    last = torch.repeat_interleave(torch.tensor(ends) - 1, rows)
    return (torch.arange(ends[-1]) - last)[:, None].float()


def _sinks_of_rows(sinks: Tensor | None, slopes: Tensor, ends: Sequence[int]) -> Tensor | None:
    """Returns one sink per token and head, float32 [T, N], for calls in which all tokens of a sequence have the biases
    of its last token. These biases shift all scores of a token by one number. The softmax of the scores alone does not
    change, but a sink must be shifted by the same number.
    """
    return None if sinks is None else sinks + slopes * _from_last(ends)


class Batch:
    """The calls of a step, the same for all layers that share a block table."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        rows = (end - begin for group in groups for begin, end in zip([0, *group.ends], group.ends, strict=False))
        self.few_rows = max(rows, default=0) <= FEW_ROWS
        self._sloped: dict[tuple[float, ...], list[tuple[Group, Tensor]]] = {}

    def _with_biases(self, slopes: tuple[float, ...]) -> list[tuple[Group, Tensor]]:
        """Returns groups of pieces, and for each piece the biases of its last token, float32 [pieces, N, 1, keys].
        Biases past a piece's last key are not used.
        """
        if slopes not in self._sloped:
            groups = [_cut(group) for group in self.groups]
            distances = (
                torch.arange(max(group.lengths)) - (torch.tensor(group.lengths)[:, None, None, None] - 1)
                for group in groups
            )
            of_head = torch.tensor(slopes)[:, None, None]
            self._sloped[slopes] = [
                (group, of_head * distance) for group, distance in zip(groups, distances, strict=True)
            ]
        return self._sloped[slopes]

    def attend(self, layer: Layer, query: Tensor, pages: Pages, sinks: Tensor | None, output: Tensor) -> None:
        """Writes the attention of query [tokens, N, D] over pages into the requests' rows of output [tokens, N, Dv]."""
        if layer.slopes is None:
            for group in self.groups:
                self._call(layer, group, query, pages, sinks, None, output)
            return
        slopes = torch.tensor(layer.slopes)
        for group, bias in self._with_biases(layer.slopes):
            of_rows = _sinks_of_rows(sinks, slopes, group.ends)
            self._call(layer, group, query, pages, of_rows, bias, output)

    def _call(
        self,
        layer: Layer,
        group: Group,
        query: Tensor,
        pages: Pages,
        sinks: Tensor | None,
        bias: Tensor | None,
        output: Tensor,
    ) -> None:
        assert pages.value is not None
        key, value = pages.key.transpose(1, 2), pages.value.transpose(1, 2)
        tensors = {"q": query[group.tokens], "k": key, "v": value, "block_table": group.block_table}
        tensors |= {"sink": sinks, "pse": bias, "k_scale": pages.key_scale, "v_scale": pages.value_scale}
        lengths, results = (group.ends, group.lengths), {"out": output[group.tokens]}
        with own_names(_PAGED):
            compute(_fa.decode, tensors, results, _decode_options(layer, group.causal), *lengths)


def attend_latent(
    scale: float,
    query: tuple[Tensor, Tensor],
    cache: Tensor,
    ends: list[int],
    lengths: list[int],
    block_table: Tensor,
) -> Tensor:
    """Computes causal attention of the last tokens of each request over latent pages.

    Args:
        query: [T, N, L] and [T, N, R].
        ends: where the tokens of each request end.
        cache: [blocks, block, L + R]. A row is the key, its first L columns are the value.

    Returns:
        The output [T, N, L]. Rows past the last request are 0.
    """
    latent, rope = query
    size = latent.shape[-1]
    key = cache[:, :, None, :size]
    out = latent.new_empty(latent.shape)
    tensors: dict[str, Any] = {"q": latent, "k": key, "v": key, "block_table": block_table}
    if rope.shape[-1] > 0:
        tensors |= {"q_rope": rope, "k_rope": cache[:, :, None, size:]}
    with own_names(LATENT):
        compute(_fa.decode, tensors, {"out": out}, _decode_options(Layer(scale), True), ends, lengths)
    return out


def attend_packed(
    layer: Layer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends: tuple[list[int], list[int]],
    causal: bool,
    sinks: Tensor | None,
    output: Tensor,
    names: Mapping[str, str],
    need_lse: bool = False,
) -> Tensor | None:
    """Writes the attention of packed sequences, [T, N, D] over [keys, Nkv, D], into output [T, N, Dv]. Rows past the
    last sequence are left as they are.

    Args:
        ends: where the tokens and where the keys of each sequence end.
        names: the names of the engine's tensors in errors.

    Returns:
        With need_lse the lse, float32 [N, T], -inf for rows without keys.
    """
    tokens, keys = slice(0, ends[0][-1]), slice(0, ends[1][-1])
    tensors = {"q": query[tokens], "k": key[keys], "v": value[keys], "sink": sinks}
    if layer.slopes is not None:
        slopes = torch.tensor(layer.slopes)
        lengths = (end - begin for begin, end in zip([0, *ends[1]], ends[1], strict=False))
        of_sequences = [(slopes[:, None] * torch.arange(1 - length, 1)).flatten() for length in lengths]
        tensors |= {"pse": torch.cat(of_sequences), "sink": _sinks_of_rows(sinks, slopes, ends[0])}
    results = {"out": output[tokens]}
    statistics = ()
    if need_lse:
        statistics = [query.new_empty(query[tokens].shape[:2], dtype=torch.float32) for _ in range(2)]
        results |= zip(("softmax_max", "softmax_sum"), statistics, strict=True)
    with own_names(names):
        compute(_fa.forward, tensors, results, _packed_options(layer, causal), *ends)
    return logsumexp(*statistics, -torch.inf) if need_lse else None


def write_rows(
    key: Tensor,
    value: Tensor | None,
    slots: Tensor,
    caches: Pages,
    form: str,
    names: Mapping[str, str] = {},
) -> None:
    """Writes key [T, Nkv, D] and value [T, Nkv, Dv] to their slots of the caches. Caches of int8 get codes, and one
    scale per token and head. Rows of slot -1 and rows past the slots are not written. `names` has the names of key and
    value in errors.
    """
    rows = slots.shape[0]
    arrays = {"key": key[:rows], "value": None if value is None else value[:rows], "slot_mapping": slots}
    arrays |= zip(("key_cache", "value_cache", "key_scale_cache", "value_scale_cache"), caches, strict=True)
    with own_names({**_CACHES, **names}):
        compute_arrays(_fa.scatter_rows, arrays, form, context_of_tensors())
