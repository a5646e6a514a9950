"""The scores of blocks of keys as one of PyTorch's operators."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _index_score
from . import autograd
from .lengths import as_list
from .operators import operator, schema_of


class ScoreCall(NamedTuple):
    """The arguments of the operator index_score, in its order."""

    query: Tensor
    key: Tensor
    k_scale: Optional[Tensor]
    block_table: Optional[Tensor]
    lengths_q: Tensor
    lengths_kv: Tensor
    start_loc: Tensor
    sparse_mode: int
    init_blocks: int
    local_blocks: int
    columns: int


def _fake_score(*arguments):
    call = ScoreCall(*arguments)
    return call.query.new_empty((call.query.shape[1], call.query.shape[0], call.columns), dtype=torch.float32)


@operator(f"index_score({schema_of(ScoreCall)}) -> Tensor", fake=_fake_score, derivative=autograd.constant)
def index_score(*arguments):
    """Returns the scores, which are constants to autograd."""
    given = ScoreCall(*arguments)._asdict()
    lists = {name: as_list(given.pop(name)) for name in ("lengths_q", "lengths_kv", "start_loc")}
    scale = given.pop("k_scale")
    return _index_score.msa_index_score(
        given.pop("query").detach(),
        given.pop("key").detach(),
        k_scale=None if scale is None else scale.detach(),
        **given,
        **lists,
    )
