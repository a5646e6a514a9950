"""fa's kernels in PyTorch's dispatcher, and how often each has been called."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fa._aten import activation, dense, packed
from fa.torch import activate, deactivate

FORWARD, BACKWARD = dense.FORWARD, dense.BACKWARD
PACKED_FORWARD, PACKED_FORWARD_INTO, PACKED_BACKWARD = packed.FORWARD, packed.FORWARD_INTO, packed.BACKWARD


class Compiled:
    """The calls of libfa_torch's kernels since the last `clear`. It compares with dictionaries as a Counter does."""

    def __init__(self) -> None:
        self.clear()

    @staticmethod
    def _all() -> Counter[str]:
        names = FORWARD, BACKWARD, *activation.PACKED
        return Counter({name: activation.library().fa_torch_calls(name.encode()) for name in names})

    def clear(self) -> None:
        self._before = self._all()

    def _now(self) -> Counter[str]:
        return self._all() - self._before

    def __eq__(self, other: object) -> bool:
        return self._now() == other

    def __getitem__(self, name: str) -> int:
        return self._now()[name]

    def __bool__(self) -> bool:
        return bool(self._now())

    def __repr__(self) -> str:
        return repr(self._now())

    def values(self) -> Any:
        return self._now().values()


def _counted(calls: Counter[str], name: str, kernel: Callable) -> Callable:
    @functools.wraps(kernel)
    def call(*arguments, **keywords):
        calls[name] += 1
        return kernel(*arguments, **keywords)

    return call


@pytest.fixture(params=["Python", "libfa_torch"])
def kernels(request, monkeypatch) -> str:
    """Chooses which kernels an activation takes: those in Python, or those of libfa_torch."""
    if request.param == "Python":
        monkeypatch.setattr(activation, "library", lambda: None)
    elif activation.library() is None:
        pytest.skip("this package has no libfa_torch")
    return request.param


@pytest.fixture
def calls(kernels, monkeypatch) -> Any:
    """Activates the kernels. Returns the numbers of their calls, by operator."""
    made: Any = Compiled() if kernels == "libfa_torch" else Counter()
    if kernels == "Python":
        for name, maker in ((FORWARD, "forward_kernel"), (BACKWARD, "backward_kernel")):
            make = getattr(dense, maker)
            own = lambda original, name=name, make=make: _counted(made, name, make(original))  # noqa: E731
            monkeypatch.setattr(dense, maker, own)
        for name, kernel in activation.PACKED.items():
            monkeypatch.setitem(activation.PACKED, name, _counted(made, name, kernel))
    activate()
    yield made
    deactivate()
