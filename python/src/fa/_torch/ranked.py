"""Attention over the ranks of a process group. Each rank calls the library on its own rows. Autograd is supported."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _fa
from .._attention import BoundCall, keywords_of_attention
from .._errors import ERRORS, own_names
from .agreement import Proposal, agree
from .call import SEQUENCE_AXIS, UNSIGNED_64, Call

Cut = str | Sequence[Sequence[tuple[int, int]]]

# Arguments that all functions of attention over ranks have: {the library's name: the name in Python}.
NAMES = {
    "shards.cut": "cut",
    "shards.intervals": "cut",
    "shards.sq": "rows of query",
    "shards.sk": "rows of key",
    "shards.strategy": "strategy",
    "dropout.seed": "seed",
    "dropout.offset": "offset",
}


# The sparse modes in which a mask in memory only repeats the mode's rule.
_COMPRESSED = (2, 3, 4, 6, 7, 8)


class Ranks(NamedTuple):
    """The group of ranks that compute together, and how the rows of a sequence are divided among them."""

    group: dist.ProcessGroup
    cut: str
    intervals: list[list[tuple[int, int]]]
    strategy: str

    def shards(self, sq: int, sk: int) -> _fa.Shards:
        """Returns the library's description of the shards. Raises ValueError for an unknown cut or strategy."""
        return _fa.Shards(cut=self.cut, intervals=self.intervals, sq=sq, sk=sk, strategy=self.strategy)

    def facts(self) -> dict[str, Any]:
        return {"cut": self.intervals or self.cut, "strategy": self.strategy}


def ranks_of(group: dist.ProcessGroup, cut: Any, strategy: str = "auto") -> Ranks:
    """Makes Ranks from a cut: "zigzag", "contiguous", or the list of each rank's intervals (begin, end). Raises
    ValueError or TypeError for any other cut."""
    if isinstance(cut, str):
        name, intervals = cut, []
    else:
        name = "intervals"
        try:
            intervals = [[(operator.index(begin), operator.index(end)) for begin, end in rows] for rows in cut]
        except (TypeError, ValueError):
            want = '"zigzag", "contiguous" or the (begin, end) intervals of each rank'
            raise TypeError(f"cut: want {want}, got {cut!r}") from None
    ranks = Ranks(group, name, intervals, strategy)
    with own_names(NAMES):
        ranks.shards(0, 0)
    return ranks


class Attention(NamedTuple):
    """The arguments of an attention call on this rank's rows."""

    query: Tensor
    key: Tensor
    value: Tensor
    call: Call
    """Its dropout_state is this rank's seed and offset. All ranks use the seed and offset of rank 0."""
    out: Tensor | None = None
    """The tensor for the output; None means a new tensor."""
    more: Mapping[str, Any] = {}
    """Keywords of `fa.flash_attention` in place of the call's, or beside them."""
    facts: Mapping[str, Any] = {}
    """Further values that must be equal on all ranks."""

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Returns the tensors that may have a gradient."""
        call = self.call
        return self.query, self.key, self.value, call.query_rope, call.key_rope, call.pse, call.sink

    def rows(self) -> list[int]:
        axis = SEQUENCE_AXIS[self.call.layout]
        return [self.query.shape[axis], self.key.shape[axis]]

    def bound(self) -> BoundCall:
        keywords = keywords_of_attention({**self.call.keywords(), **self.more})
        given = {"q": self.query, "k": self.key, "v": self.value, **keywords}
        return BoundCall({name: _detached(value) for name, value in given.items()})


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class _Forward(NamedTuple):
    attention: Attention
    ranked: _fa.RankedForward
    results: tuple[Tensor, Tensor, Tensor]


def attend(
    group: dist.ProcessGroup,
    prepare: Callable[[], tuple[Ranks, Attention]],
    renamed: Callable[[Exception], Exception],
    check: Callable[[int, int], None] = lambda sq, sk: None,
) -> tuple[Tensor, Tensor, Tensor, tuple[int, int], tuple[int, int]]:
    """Computes attention over the ranks of the group. All ranks must call this function.

    Args:
        prepare: returns this rank's arguments, or raises an error if they are wrong.
        renamed: returns a given error of the library with the caller's argument names.
        check: gets the numbers of rows of the whole query and key, and raises an error if they are wrong. Because all
            ranks know these numbers, it raises the same error on every rank.

    Returns:
        out, softmax_max and softmax_sum of this rank's rows; (sq, sk), the numbers of rows of the whole query and key;
        (seed, offset).
    """

    def propose() -> Proposal:
        ranks, attention = prepare()
        state = attention.call.dropout_state
        seed, offset = (0, 0) if state is None else state.tolist()
        with _told(renamed):
            bound = attention.bound()
            results = bound.results()
            if attention.out is not None:
                results["out"] = attention.out
            recorded = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in attention.tensors())
            ranked = _fa.RankedForward({**bound.arrays, **results}, *bound.rest)
        facts = {**ranks.facts(), **attention.facts, "requires_grad": recorded}
        forward = _Forward(attention, ranked, tuple(results.values()))
        return Proposal((ranks, forward), facts, [*attention.rows(), seed, offset])

    agreed = agree(group, "attention", propose)
    ranks, forward = agreed.prepared
    sq, sk = (sum(numbers[i] for numbers in agreed.numbers) for i in (0, 1))
    check(sq, sk)
    state = tuple(agreed.numbers[0][2:4])
    attention = forward.attention
    if attention.call.dropout_state is not None:
        shared = torch.tensor(state, dtype=torch.int64, device="cpu")
        attention = attention._replace(call=attention.call._replace(dropout_state=shared))
    shards = ranks.shards(sq, sk)
    run = _Run(forward._replace(attention=attention), ranks, shards, agreed.first_tag, renamed)
    return (*_Ranked.apply(run, *attention.tensors()), (sq, sk), state)


class _Run(NamedTuple):
    forward: _Forward
    ranks: Ranks
    shards: _fa.Shards
    first_tag: int
    renamed: Callable[[Exception], Exception]


class _Ranked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *tensors):
        attention = run.forward.attention
        _run(run.forward.ranked, run, attention.call, run.first_tag)
        results = run.forward.results
        ctx.mark_non_differentiable(*results[1:])
        call = attention.call
        mask = None if call.sparse_mode in _COMPRESSED else call.dense_mask
        ctx.save_for_backward(*results, *tensors, call.dropout_state, mask)
        nothing = dict.fromkeys(("query_rope", "key_rope", "pse", "sink", "dense_mask", "dropout_state"))
        plain = attention._replace(query=None, key=None, value=None, call=call._replace(**nothing), out=None)
        ctx.run = run._replace(forward=_Forward(plain, None, ()))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, *_):
        out, softmax_max, softmax_sum, *tensors, dropout_state, mask = ctx.saved_tensors
        query, key, value, query_rope, key_rope, pse, sink = tensors
        run = ctx.run
        attention = run.forward.attention
        biases = {"query_rope": query_rope, "key_rope": key_rope, "pse": pse, "sink": sink}
        call = attention.call._replace(**biases, dropout_state=dropout_state, dense_mask=mask)
        attention = attention._replace(query=query, key=key, value=value, call=call)
        needs = ctx.needs_input_grad[1:]

        def propose() -> Proposal:
            with _told(run.renamed):
                bound = attention.bound()
                gradients = bound.gradients(dpse=needs[5], dsink=needs[6])
                arrays = {
                    **bound.arrays,
                    "out": out,
                    "d_out": d_out,
                    "softmax_max": softmax_max,
                    "softmax_sum": softmax_sum,
                    **bound.named(gradients),
                }
                ranked = _fa.RankedBackward(arrays, *bound.rest)
            return Proposal((ranked, gradients), {"gradients": [g is not None for g in gradients]}, [])

        agreed = agree(run.ranks.group, "gradients of attention", propose)
        ranked, gradients = agreed.prepared
        _run(ranked, run, call, agreed.first_tag)
        return None, *(g if need else None for g, need in zip(gradients, needs, strict=True))


class Traffic(NamedTuple):
    """Bytes of tensors that the calls of this process have sent to and received from other ranks. sent_bytes and
    received_bytes are counted message by message. planned_sent_bytes and planned_received_bytes are what the plans of
    these calls predicted. The counted and predicted numbers are equal. Failed calls are not counted."""

    sent_bytes: int = 0
    received_bytes: int = 0
    planned_sent_bytes: int = 0
    planned_received_bytes: int = 0


_traffic = Traffic()
_traffic_lock = threading.Lock()


def traffic() -> Traffic:
    """Returns the bytes that attention over ranks has sent and received since the process began. `shard` and `unshard`
    do not count.
    """
    return _traffic


def _count(moved: Sequence[int]) -> None:
    global _traffic  # noqa: PLW0603
    with _traffic_lock:
        _traffic = Traffic(*(a + b for a, b in zip(_traffic, moved, strict=True)))


def _run(ranked: Any, run: _Run, call: Call, first_tag: int) -> None:
    state = None if call.dropout_state is None else tuple(n & UNSIGNED_64 for n in call.dropout_state.tolist())
    with _told(run.renamed):
        moved = ranked.run(run.shards, run.ranks.group, first_tag, state)
    _count(moved)


@contextlib.contextmanager
def _told(renamed: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raises the library's errors with the caller's argument names, and keeps their cause. Other errors pass
    unchanged."""
    try:
        yield
    except ERRORS as error:
        if not hasattr(error, "parts"):
            raise
        raise renamed(error) from error.__cause__
