"""The pairs that a call keeps: those of a BlockMask and of conditions in score_mod. They are one interval of keys per
row where this can be shown, and otherwise a pair mask, which is evaluated in slabs of query rows."""

from __future__ import annotations

import itertools
import threading
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.weak import WeakIdKeyDictionary

from ..._fa import Mask, PairMask
from .intervals import Finder, Intervals, Unlisted
from .trace import INDICES, Node, evaluate, state_of

PAIRS = 1 << 18  # the most pairs that are evaluated at once


class Sizes(NamedTuple):
    batch: int
    heads: int
    rows: int
    keys: int

    def indices(self) -> tuple[Tensor, ...]:
        return tuple(torch.arange(size) for size in self)


class Blocks(NamedTuple):
    """Which blocks a BlockMask lists, as bool [B|1, H|1, rows of blocks, columns of blocks]."""

    partial: Tensor
    full: Tensor
    size: tuple[int, int]

    @classmethod
    def listed(cls, mask: BlockMask, sizes: Sizes) -> Blocks:
        size = tuple(mask.BLOCK_SIZE)
        shape = -(-sizes.rows // size[0]), -(-sizes.keys // size[1])
        partial = _listed("kv", mask.kv_num_blocks, mask.kv_indices, sizes, shape)
        full = torch.zeros_like(partial[:1, :1])
        if mask.full_kv_num_blocks is not None:
            full = _listed("full_kv", mask.full_kv_num_blocks, mask.full_kv_indices, sizes, shape)
        return cls(partial, full, size)

    def agree(self, intervals: Intervals, keys: int) -> bool:
        """Returns whether the lists keep exactly the pairs in `intervals`, which mask_mod keeps."""
        some, every = blocks_of(intervals, keys, self.size)
        return not bool((some & ~(self.partial | self.full)).any()) and not bool((self.full & ~every).any())

    def of(self, b: Tensor, h: Tensor) -> Blocks:
        """Returns the lists of some batch elements and heads."""
        lists = (t if t.shape[0] == 1 else t[b] for t in self[:2])
        return Blocks(*(t if t.shape[1] == 1 else t[:, h] for t in lists), self.size)

    def pairs(self, lists: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        """Returns bool [B|1, H|1, rows, keys]: the pairs in the blocks of `lists`."""
        return lists[:, :, rows // self.size[0]][..., keys // self.size[1]]

    def partial_keys(self, rows: Tensor, keys: int) -> Tensor:
        """Returns the keys that lie in a partial block with any of the rows."""
        used = self.partial[:, :, rows // self.size[0]].any(0).any(0).any(0)
        return used.repeat_interleave(min(self.size[1], keys))[:keys].nonzero()[:, 0]


def _listed(name: str, counts: Tensor, indices: Tensor, sizes: Sizes, shape: tuple[int, int]) -> Tensor:
    """Returns bool [B|1, H|1, *shape], True for each block in the lists."""
    counts, indices = (t[(None,) * (rank - t.dim())] for t, rank in ((counts, 3), (indices, 4)))
    rows, columns = shape
    words = f"invalid argument: block_mask.{name}_indices"
    if indices.shape[2] < rows or counts.shape[:3] != indices.shape[:3]:
        raise ValueError(f"{words}.shape={list(indices.shape)}, want {rows} rows of blocks")
    for axis, size in enumerate(sizes[:2]):
        if indices.shape[axis] != 1 and indices.shape[axis] != size:
            raise ValueError(f"{words}.shape[{axis}]={indices.shape[axis]}, want 1 or {size}")
    counts, indices = counts[:, :, :rows], indices[:, :, :rows].long()
    used = torch.arange(indices.shape[3]) < counts[..., None]
    wrong = used & ((indices < 0) | (indices >= columns))
    if bool(wrong.any()):
        raise ValueError(f"{words}={indices[wrong][0]}, want 0..{columns - 1}")
    listed = torch.zeros((*indices.shape[:3], columns + 1), dtype=torch.bool)
    return listed.scatter_(3, torch.where(used, indices, columns), True)[..., :columns]


def blocks_of(intervals: Intervals, keys: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns, for each block, whether it has a kept pair, and whether all its pairs are kept. Both are bool
    [B|1, H|1, rows of blocks, columns of blocks]."""
    batch, heads, rows = torch.broadcast_shapes(intervals.begin.shape, intervals.end.shape)
    begins = torch.arange(0, keys, size[1])
    ends = (begins + size[1]).clamp(max=keys)
    some, every = (torch.zeros((batch, heads, -(-rows // size[0]), len(begins)), dtype=torch.bool) for _ in range(2))
    for b in range(batch):
        for h in range(heads):
            for block, first in enumerate(range(0, rows, size[0])):
                begin, end = (t[b, h, first : first + size[0], None] for t in intervals)
                some[b, h, block] = ((begin < ends) & (end > begins) & (begin < end)).any(0)
                every[b, h, block] = ((begin <= begins) & (end >= ends)).all(0)
    return some, every


def pairs_of(node: Node, *indices: Tensor) -> Tensor:
    """Returns the values of a bool node, [B|1, H|1, L, S], evaluated in parts of at most PAIRS pairs."""
    b, h, rows, keys = indices
    b, h = (t if name in node.depends else t[:1] for t, name in ((b, "b"), (h, "h")))
    result = torch.empty((len(b), len(h), len(rows), len(keys)), dtype=torch.bool)
    step = max(1, PAIRS // max(1, len(rows)))
    for i in range(len(b)):
        for j in range(len(h)):
            for k in range(0, len(keys), step):
                part = keys[k : k + step]
                result[i, j, :, k : k + step] = evaluate(node, b[i : i + 1], h[j : j + 1], rows, part)[0, 0]
    return result


def _chosen(intervals: Intervals, b: Tensor, h: Tensor, rows: Tensor) -> Intervals:
    """Returns the intervals of some batch elements, heads and rows."""
    of_rows = (t[..., rows] for t in intervals)
    of_batch = (t if t.shape[0] == 1 else t[b] for t in of_rows)
    return Intervals(*(t if t.shape[1] == 1 else t[:, h] for t in of_batch))


class Condition(NamedTuple):
    node: Node
    negated: bool = False


class Kept:
    """The pairs that a call keeps: all pairs in full blocks, and the pairs in partial blocks that mask_mod keeps.
    Without blocks, they are the pairs that mask_mod keeps. A pair is dropped if one of the `conditions` of score_mod
    drops it.

    intervals: the interval of keys of each row, or None if the kept pairs do not form such intervals. reason: why
        intervals is None.
    """

    def __init__(self, sizes: Sizes, mask_mod: Node | None, blocks: Blocks | None, conditions: tuple[Condition, ...]) -> None:
        self.sizes, self.blocks, self.reason = sizes, blocks, ""
        self.mask_mod, self.conditions = mask_mod, conditions
        self.nodes = [node for node in (mask_mod, *(condition.node for condition in conditions)) if node is not None]
        finder = Finder(*sizes.indices())
        every = Intervals(torch.zeros((1, 1, sizes.rows), dtype=torch.int64), torch.full((1, 1, sizes.rows), sizes.keys))
        self._mod: Intervals | None = None
        self.intervals: Intervals | None = None
        try:
            self._mod = every if mask_mod is None else every.both(finder.find(mask_mod))
            if blocks is not None and not blocks.agree(self._mod, sizes.keys):
                raise Unlisted("the lists of blocks and mask_mod differ")
            both = self._mod
            for condition in self.conditions:
                both = both.both(finder.find(*condition))
            self.rows = both.rows()
            if self.rows is None:
                ordered = "a later row begins or ends before an earlier one, or begins in one above a row without keys"
                raise Unlisted("heads differ" if both.begin.shape[1] != 1 else ordered)
            self.intervals = both
        except Unlisted as reason:
            self.reason, self.rows = str(reason), None
        self._pairs: PairMask | None = None

    def slab(self, begin: int, end: int, b: Tensor | None = None, h: Tensor | None = None) -> Tensor:
        """Returns bool [B|1, H|1, rows, S], True for a kept pair, for the query rows from `begin` to `end`. b and h
        choose batch elements and heads; None means all."""
        every_b, every_h, rows, keys = self.sizes.indices()
        b, h, rows = every_b if b is None else b, every_h if h is None else h, rows[begin:end]
        if self.intervals is not None:
            return _chosen(self.intervals, b, h, rows).kept(keys)
        kept = self._listed(b, h, rows, keys)
        for node, negated in self.conditions:
            kept = kept & (pairs_of(node, b, h, rows, keys) ^ negated)
        return kept

    def _listed(self, b: Tensor, h: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        if self.blocks is None:
            return self._of_mask_mod(b, h, rows, keys)
        blocks = self.blocks.of(b, h)
        kept, partial = (blocks.pairs(lists, rows, keys) for lists in blocks[:2][::-1])
        some = blocks.partial_keys(rows, len(keys))
        of_mod = partial[..., some] & self._of_mask_mod(b, h, rows, keys[some])
        kept = kept.expand(*torch.broadcast_shapes(of_mod.shape[:2], kept.shape[:2]), -1, -1).clone()
        kept[..., some] |= of_mod
        return kept

    def _of_mask_mod(self, b: Tensor, h: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        if self._mod is not None:
            return _chosen(self._mod, b, h, rows).kept(keys)
        return pairs_of(self.mask_mod, b, h, rows, keys)

    def blocks_of_size(self, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Returns which blocks have a kept pair, and which are whole and have all their pairs kept. Both are bool
        [B|1, H|1, rows of blocks, columns of blocks]."""
        (batch, heads), (rows, keys) = self.leading(), self.sizes[2:]
        if self._mod is not None:
            some, every = blocks_of(self._mod, keys, size)
        else:
            shape = batch, heads, -(-rows // size[0]), -(-keys // size[1])
            some, every = (torch.zeros(shape, dtype=torch.bool) for _ in range(2))
            step = size[0] * max(1, PAIRS // max(1, size[0] * keys))
            for begin in range(0, rows, step):
                for b, h in itertools.product(range(batch), range(heads)):
                    slab = self.slab(begin, begin + step, torch.tensor([b]), torch.tensor([h]))[0, 0].view(torch.uint8)
                    for row, kept in enumerate(slab.split(size[0]), begin // size[0]):
                        for found, per_key in ((some, kept.amax(0)), (every, kept.amin(0))):
                            per_key = torch.nn.functional.pad(per_key, (0, shape[3] * size[1] - keys))
                            per_block = per_key.unflatten(-1, (-1, size[1]))
                            found[b, h, row] = per_block.amax(-1) if found is some else per_block.amin(-1)
        every[:, :, rows // size[0] :] = False
        every[..., keys // size[1] :] = False
        return some, every

    def captured(self) -> list[Tensor]:
        """Returns the captured tensors that `slab` reads."""
        return [] if self.intervals is not None else [tensor for node in self.nodes for tensor in node.captured()]

    def leading(self) -> list[int]:
        """Returns for how many batch elements and heads kept pairs are stored: 1 if they are the same for all."""
        used = frozenset[str]().union(*(node.depends for node in self.nodes))
        lists = [] if self.blocks is None else self.blocks[:2]
        named = enumerate(zip(INDICES, self.sizes[:2], strict=False))
        return [n if name in used or any(t.shape[axis] > 1 for t in lists) else 1 for axis, (name, n) in named]

    def rule(self, rows: slice) -> Mask:
        """Returns the engine's rule for some query rows."""
        if self.rows is None:
            return Mask.none()
        of_rows = self.rows[:, rows]
        if bool((of_rows == torch.tensor([0, self.sizes.keys])).all()):
            return Mask.none()
        return Mask.rows(*(t.reshape(-1).numpy() for t in of_rows.unbind(-1)))

    def pairs(self, rows: slice) -> PairMask | Tensor | None:
        """Returns what the engine takes besides the rule: a mask of all rows, or for some rows the pairs that it
        drops."""
        if self.rows is not None:
            return None
        if rows != slice(0, self.sizes.rows):
            kept = self.slab(rows.start, rows.stop)
            return (~kept).expand(self.sizes.batch, self.sizes.heads, -1, -1)
        if self._pairs is None:
            self._pairs = PairMask.from_slabs(self.slab, (*self.leading(), *self.sizes[2:]))
        return self._pairs


_kept = WeakIdKeyDictionary()
_lock = threading.Lock()


def kept_of(mask: BlockMask, mask_mod: Node, sizes: Sizes, conditions: tuple[Condition, ...]) -> Kept:
    """Returns the pairs that a call keeps. They are stored with the BlockMask's first list until a list, a function or
    a captured tensor changes. The pairs are stored with a list, not with the BlockMask, because a compiled call makes a
    new BlockMask with the caller's lists.
    """
    owner = mask.kv_num_blocks
    lists = [mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices]
    lists = [tensor for tensor in lists if tensor is not None]
    nodes = (mask_mod, *(node for node, _ in conditions))
    negated = [condition.negated for condition in conditions]
    key = sizes, mask.BLOCK_SIZE, negated, [*map(state_of, lists)], [node.key() for node in nodes]
    with _lock:
        known, kept, _ = _kept.get(owner, (None, None, None))
    if known != key:
        kept = Kept(sizes, mask_mod, Blocks.listed(mask, sizes), conditions)
        with _lock:
            _kept[owner] = key, kept, lists[1:]  # the key has ids of lists, so the lists must live
    return kept
