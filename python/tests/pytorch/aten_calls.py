"""fa's kernels in PyTorch's dispatcher, and how often each has been called."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

import pytest

from fa._aten import activation, dense, packed
from fa.torch import activate, deactivate


def _counted(calls: Counter[str], name: str, kernel):
    @functools.wraps(kernel)
    def call(*arguments, **keywords):
        calls[name] += 1
        return kernel(*arguments, **keywords)

    return call


@pytest.fixture
def calls(monkeypatch) -> Iterator[Counter[str]]:
    """Activates the kernels. Returns the numbers of their calls, by operator."""
    made: Counter[str] = Counter()
    for name, maker in ((dense.FORWARD, "forward_kernel"), (dense.BACKWARD, "backward_kernel")):
        make = getattr(dense, maker)
        monkeypatch.setattr(dense, maker, lambda original, name=name, make=make: _counted(made, name, make(original)))
    for name, kernel in activation.PACKED.items():
        monkeypatch.setitem(activation.PACKED, name, _counted(made, name, kernel))
    activate()
    yield made
    deactivate()


FORWARD, BACKWARD = dense.FORWARD, dense.BACKWARD
PACKED_FORWARD, PACKED_FORWARD_INTO, PACKED_BACKWARD = packed.FORWARD, packed.FORWARD_INTO, packed.BACKWARD
