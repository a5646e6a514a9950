"""The functions that children of test_processes.py call. They are in a module of their own, which children can import.
"""

import numpy as np

import fa

SEEDS = [1, 2, 3]


def attention(seed):
    """Returns the output of an attention call of several tasks, as bytes."""
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((2, 4, 150, 32), dtype=np.float32) for _ in range(3))
    out, _, _ = fa.flash_attention(q, k, v)
    return out.tobytes()


class Rows:
    """A dataset whose items are computed by the library."""

    def __len__(self):
        return len(SEEDS)

    def __getitem__(self, at):
        return np.frombuffer(attention(SEEDS[at]), dtype=np.uint8).copy()
