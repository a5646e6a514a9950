"""Time limits for tests that might hang, and a mark for tests that cannot run under an emulator."""

import os

import pytest

_SLOWER = 10
"""The factor of a limit under an emulator, as in the tests in C++."""


def emulated() -> bool:
    """Returns whether the emulator qemu-user runs this interpreter. For /proc/self/exe qemu-user gives the emulated
    program. For /proc/thread-self/exe the kernel gives qemu itself."""
    try:
        return os.readlink("/proc/self/exe") != os.readlink("/proc/thread-self/exe")
    except OSError:
        return False


# Under qemu, a forked child ends if one of its new threads gets the thread id of a thread of the parent.
starts_threads_in_a_forked_child = pytest.mark.skipif(emulated(), reason="threads of forked children under qemu")


def seconds(limit: int) -> int:
    """Returns `limit` seconds, which is enough on a busy machine, or ten times as many under an emulator."""
    return limit * _SLOWER if emulated() else limit
