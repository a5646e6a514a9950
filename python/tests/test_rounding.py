"""On a thread that does not round to nearest, fa still converts the numbers of a call to the nearest floats."""

import contextlib
import ctypes
import platform

import numpy as np
import pytest

import fa

# The values of FE_DOWNWARD and FE_UPWARD in <fenv.h>, by machine.
MODES = {"x86_64": (0x400, 0x800), "aarch64": (0x800000, 0x400000)}[platform.machine()]


@contextlib.contextmanager
def rounding(mode):
    libm = ctypes.CDLL("libm.so.6")
    before = libm.fegetround()
    assert libm.fesetround(mode) == 0
    try:
        yield
    finally:
        libm.fesetround(before)


def dense(**numbers):
    q = np.random.default_rng(1).standard_normal((1, 2, 40, 8), np.float32)
    return lambda: fa.flash_attention(q, q, q, **numbers).out


def prompt(scale):
    q = np.random.default_rng(2).standard_normal((1, 2, 40, 8), np.float32)
    return lambda: fa.prompt_flash_attention(q, q, q, scale=scale)


def sparse(scale):
    q = np.random.default_rng(3).standard_normal((1, 20, 2, 8), np.float32)
    k = np.random.default_rng(4).standard_normal((1, 20, 1, 8), np.float32)
    indices = np.tile(np.arange(4, dtype=np.int32), (1, 20, 1, 1))
    return lambda: fa.sparse_flash_attention(q, k, k, indices, scale=scale).out


# 0.7 is larger than its nearest float, and 0.3 is smaller.
@pytest.mark.parametrize("number", [0.3, 0.7])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: dense(scale=x),
        lambda x: dense(scale=1, softcap=x),
        lambda x: dense(keep_prob=x, seed=5),
        prompt,
        sparse,
    ],
    ids=["scale", "softcap", "keep_prob", "prompt", "sparse"],
)
def test_the_rounding_of_the_thread_changes_no_bit(make, number):
    call = make(number)
    want = call()
    for mode in MODES:
        with rounding(mode):
            got = call()
        assert np.array_equal(got, want), hex(mode)
