"""How DTensors shard attention by batch and by heads. torch.distributed asks the operators which shardings they
support.

A call can be sharded by batch, or by query heads together with their KV heads. The shards need no communication. If all
heads share one key head, every shard has the whole key. The key's gradient is then a sum over the shards. With dropout,
every rank computes the whole call, so that the mesh does not change which pairs are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

from .call import Call
from .ops import attention, attention_backward, merge

_BATCH_AXIS = {"BNSD": 0, "BSND": 0, "BSH": 0, "SBH": 1}
_HEAD_AXIS = {"BNSD": 1, "BSND": 2}
_WHOLE = Replicate()


class _Way:
    """A choice of how to shard a call along one dimension of the mesh: the placements of query and out (`main`), of
    statistics, of key and value (`key`), and of the tensors in Call."""

    def __init__(
        self, call: Call, main: Placement, statistics: Placement, key: Placement, **tensors: Placement
    ) -> None:
        self.main, self.statistics, self.key = main, statistics, key
        given = call._asdict()
        self.call = [tensors.get(name, _WHOLE) if hasattr(given[name], "ndim") else None for name in Call._fields]

    def gradient_of(self, name: str) -> Placement:
        """Returns the placement of the gradient of an argument in Call: Partial(), a sum, if the shards share the
        argument."""
        placement = self.call[Call._fields.index(name)]
        return placement if placement is not _WHOLE or self.main is _WHOLE else Partial()


def _splits_evenly(heads: int, mesh: tuple[int, ...]) -> bool:
    """Returns whether every possible number of shards divides `heads`. Such a number is a product of some of the mesh's
    sizes, and at most `heads`."""
    counts = {1}
    for size in mesh:
        counts |= {size * count for count in counts}
    return all(heads % count == 0 for count in counts if count <= heads)


def _ways(query: Any, key: Any, call: Call) -> Iterator[_Way]:
    yield _Way(call, _WHOLE, _WHOLE, _WHOLE)
    if call.layout not in _BATCH_AXIS or call.dropout_state is not None or call.drop_mask is not None:
        return
    axis = _BATCH_AXIS[call.layout]
    batch = query.shape[axis]
    if not call.prefix:
        tensors = {
            name: Shard(0)
            for name, least in (("pse", 2), ("dense_mask", 4), ("sink", 3))
            if (tensor := getattr(call, name)) is not None and tensor.ndim >= least and tensor.shape[0] == batch
        }
        whole = Shard(axis)
        yield _Way(call, whole, Shard(0), whole, query_rope=whole, key_rope=whole, **tensors)
    axis = _HEAD_AXIS.get(call.layout)
    if axis is None or call.heads != 0:  # call.heads is the number of heads of all shards together
        return
    heads, heads_kv = query.shape[axis], key.shape[axis]
    if heads_kv not in (1, heads) and not _splits_evenly(heads_kv, query.mesh.shape):
        return
    mask = call.dense_mask
    by_head = mask is not None and mask.ndim == 4 and mask.shape[1] == heads
    tensors = {"dense_mask": Shard(1)} if by_head else {}
    if call.pse is not None:
        tensors["pse"] = Shard(0 if call.pse.ndim == 1 else 1)
    if call.sink is not None:
        tensors["sink"] = Shard(0 if call.sink.ndim == 1 else 1)
    keys = _WHOLE if heads_kv == 1 else Shard(axis)
    yield _Way(call, Shard(axis), Shard(1), keys, query_rope=Shard(axis), key_rope=keys, **tensors)


def _forward(query, key, value, *arguments):
    ways = _ways(query, key, Call(*arguments))
    return [([way.main, way.statistics, way.statistics], [way.main, way.key, way.key, *way.call]) for way in ways]


def _backward(query, key, value, out, d_out, softmax_max, softmax_sum, need_dpse, need_dsink, *arguments):
    call = Call(*arguments)
    shardings = []
    for way in _ways(query, key, call):
        d_key = Partial() if way.key is _WHOLE and way.main is not _WHOLE else way.key
        others = (
            way.gradient_of(name) if getattr(call, name) is not None and needed else _WHOLE
            for name, needed in (("query_rope", True), ("key_rope", True), ("pse", need_dpse), ("sink", need_dsink))
        )
        inputs = [way.main, way.key, way.key, way.main, way.main, way.statistics, way.statistics, None, None, *way.call]
        shardings.append(([way.main, d_key, d_key, *others], inputs))
    return shardings


def _merge(prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum, cu_q, layout, by_sequence):
    """Returns the possible shardings of the merge: by tokens, by batch, and by heads if the heads have an axis of their
    own. Statistics that are stored per sequence are not sharded.
    """
    shards = {"SBH": ((1, 0), (0, 2)), "TND": ((0, 0), (1, 1))}[layout]
    ways = [(_WHOLE, _WHOLE), *((Shard(out), Shard(row)) for out, row in (() if by_sequence else shards))]
    sums = None if cu_q is None else _WHOLE
    return [([out, row, row], [out, row, row, out, row, row, sums, None, None]) for out, row in ways]


register_sharding(attention)(_forward)
register_sharding(merge)(_merge)
register_sharding(attention_backward)(_backward)
