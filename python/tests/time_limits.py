"""How long tests wait for what might hang, and what an emulator cannot run."""

import os

import pytest

_SLOWER = 10
"""How many times as long a limit is under an emulator, as in the tests in C++."""


def emulated() -> bool:
    """Whether an emulator of one process (qemu-user) runs this interpreter. It answers /proc/self/exe itself and leaves
    /proc/thread-self/exe to the kernel, which names the emulator."""
    try:
        return os.readlink("/proc/self/exe") != os.readlink("/proc/thread-self/exe")
    except OSError:
        return False


# qemu ends a child whose new thread gets the number of a thread of its parent.
starts_threads_in_a_forked_child = pytest.mark.skipif(emulated(), reason="threads of forked children under qemu")


def seconds(limit: int) -> int:
    """A limit of so many seconds on a busy machine."""
    return limit * _SLOWER if emulated() else limit
