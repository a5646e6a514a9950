"""Time limits of tests for what might hang, and the tests that an emulator cannot run."""

import os

import pytest

_SLOWER = 10
"""The factor of a limit under an emulator, as in the tests in C++."""


def emulated() -> bool:
    """Whether a user-mode emulator (qemu-user) runs this interpreter. It answers /proc/self/exe itself. It leaves
    /proc/thread-self/exe to the kernel, which names the emulator."""
    try:
        return os.readlink("/proc/self/exe") != os.readlink("/proc/thread-self/exe")
    except OSError:
        return False


# qemu ends a child if a new thread of it gets the number of one of its parent's threads.
starts_threads_in_a_forked_child = pytest.mark.skipif(emulated(), reason="threads of forked children under qemu")


def seconds(limit: int) -> int:
    """Returns a limit of `limit` seconds, which is enough on a busy machine. Under an emulator the limit is longer."""
    return limit * _SLOWER if emulated() else limit
