"""A rank dies, and the other ranks must get an error. test_context_parallel.py runs these functions."""

import os

import pytest
import torch

import fa._torch.ranked
from fa.torch import context_parallel as cp

SECONDS = 4


def _others_get_an_error(call) -> None:
    with pytest.raises(RuntimeError):
        call()
    os._exit(0)  # the process ends without closing the process group


def leaves_before_the_call(rank, ranks):
    q = torch.randn(1, 2, 256, 8)
    if rank == 1:
        os._exit(0)
    _others_get_an_error(lambda: cp.scaled_dot_product_attention(q, q, q))


def dies_in_the_call(rank, ranks):
    """A rank dies after all ranks have agreed on the call, while the other ranks are in the library."""
    whole = torch.randn(1, 2, 1024, 8)
    q = cp.shard(whole, 2)
    if rank == 1:
        fa._torch.ranked._run = lambda *_: os._exit(0)
    _others_get_an_error(lambda: cp.scaled_dot_product_attention(q, q, q))
