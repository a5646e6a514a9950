"""What the ranks of a process group exchange before a call that they compute together. If one rank has an error, or if
values differ between ranks, every rank raises the error."""

from __future__ import annotations

import hashlib
import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .._fa import ranked_call_tags
from .._pytorch import default_group

_NUMBERS = 4  # the most numbers that one rank's Proposal may have
# The range of message tags for calls. Programs use smaller tags, and MPICH refuses larger ones.
_FIRST_TAG, _LAST_TAG = 1 << 27, 1 << 28
_CALL_TAGS = ranked_call_tags()
_KINDS = {kind.__name__: kind for kind in (ValueError, TypeError, MemoryError, NotImplementedError, RuntimeError)}

_next_calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class Proposal(NamedTuple):
    """What one rank contributes to the agreement on a call."""

    prepared: Any
    """The prepared call, which stays on this rank."""
    facts: Mapping[str, Any]
    """The values that must be equal on all ranks, by name."""
    numbers: Sequence[int]
    """At most four numbers of 64 bits, which every rank gets."""


class Agreed(NamedTuple):
    prepared: Any
    numbers: list[list[int]]
    """The numbers of every rank."""
    first_tag: int
    """The first tag of the call's messages. No message of another call has these tags."""


def process_group(group: Any) -> dist.ProcessGroup:
    """Returns the ProcessGroup that `group` means: itself, the group of a DeviceMesh of one dimension, or the default
    group for None. Raises TypeError for another object, or if this process is not in the group."""
    if group is None:
        return default_group()
    if hasattr(group, "get_group"):
        group = group.get_group()
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group: want a ProcessGroup that this process is in, got {group!r}")
    return group


def gather(group: dist.ProcessGroup, mine: Tensor) -> list[Tensor]:
    """Returns `mine` of every rank. The shape and type of `mine` must be equal on all ranks, and all ranks must call
    this function."""
    parts = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(group.size())]
    group.allgather([parts], [mine.contiguous()]).wait()
    return parts


def agree(group: dist.ProcessGroup, call: str, prepare: Callable[[], Proposal]) -> Agreed:
    """Calls `prepare` on every rank, and compares the facts that it returns. All ranks must call this function.

    Args:
        call: the name of the called function, which must be the same on all ranks.
        prepare: does everything in the call that may fail on one rank alone. Its exception is raised on every rank.

    Raises:
        The exception of `prepare` on the lowest rank where it fails, with the rank's number in the text. ValueError:
        the facts differ between ranks.
    """
    error, prepared, facts, numbers = None, None, {}, ()
    try:
        prepared, facts, numbers = prepare()
    except Exception as raised:
        error = raised
    told = _Told(error, {"call": call, **{name: str(value) for name, value in facts.items()}}, numbers)
    number = _next_calls.get(group, 0)
    records = [part.tolist() for part in gather(group, told.record(number))]
    number = max(record[_NUMBER] for record in records)
    _next_calls[group] = number + 1
    if any(record[_FAILED] for record in records) or len({record[_DIGEST] for record in records}) > 1:
        _raise_first(told.others(group, max(record[_LENGTH] for record in records)), error)
    first_tag = _FIRST_TAG + number % ((_LAST_TAG - _FIRST_TAG) // _CALL_TAGS) * _CALL_TAGS
    return Agreed(prepared, [record[_RECORD:] for record in records], first_tag)


_FAILED, _DIGEST, _LENGTH, _NUMBER, _RECORD = range(5)


class _Told:
    """What a rank sends to the other ranks: a record of fixed size and, only if another rank needs them, a failure and
    facts."""

    def __init__(self, error: Exception | None, facts: dict[str, str], numbers: Sequence[int]) -> None:
        failure = None
        if error is not None:
            kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), None)
            text = str(error) if kind else f"{type(error).__name__}: {error}"
            failure = kind or "RuntimeError", text, getattr(error, "parts", None)
        self.text = pickle.dumps((failure, facts))
        self.failed, self.numbers = failure is not None, list(numbers)

    def record(self, number: int) -> Tensor:
        digest = int.from_bytes(hashlib.blake2b(self.text, digest_size=8).digest(), signed=True, byteorder="little")
        record = [self.failed, digest, len(self.text), number, *self.numbers]
        record += [0] * (_RECORD + _NUMBERS - len(record))
        return torch.tensor(record, dtype=torch.int64, device="cpu")

    def others(self, group: dist.ProcessGroup, longest: int) -> list[tuple[tuple | None, dict[str, str]]]:
        """Returns (failure, facts) of every rank."""
        mine = torch.zeros(longest, dtype=torch.uint8, device="cpu")
        mine[: len(self.text)] = torch.frombuffer(bytearray(self.text), dtype=torch.uint8)
        return [pickle.loads(part.numpy().tobytes()) for part in gather(group, mine)]


def _raise_first(told: list[tuple[tuple | None, dict[str, str]]], mine: Exception | None) -> None:
    for rank, (failure, _) in enumerate(told):
        if failure is not None:
            raise _of_rank(rank, *failure) from mine
    _, want = told[0]
    for rank, (_, facts) in enumerate(told):
        for name in {**want, **facts}:
            if facts.get(name) != want.get(name):
                text = f"rank {rank}: {name}={facts.get(name)}, want {want.get(name)} (rank 0)"
                raise ValueError(f"invalid argument: {text}")


def _of_rank(rank: int, kind: str, text: str, parts: tuple | None) -> Exception:
    """Returns the error of `rank`, with the rank's number in front of its text."""
    prefix = parts[0] if parts else "invalid argument: "
    prefix = prefix if text.startswith(prefix) else ""
    error = _KINDS[kind](f"{prefix}rank {rank}: {text[len(prefix) :]}")
    if parts:
        error.parts = parts[0], f"rank {rank}: ", *parts[1:]
    return error
