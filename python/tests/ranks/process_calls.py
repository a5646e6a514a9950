"""The functions that test_processes.py calls in child processes. A child imports this module to find them."""

import numpy as np

import fa

SEEDS = [1, 2, 3]


def attention(seed):
    """Returns the output of an attention call that several threads share, as bytes."""
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((2, 4, 150, 32), dtype=np.float32) for _ in range(3))
    out, _, _ = fa.flash_attention(q, k, v)
    return out.tobytes()


class Rows:
    """A dataset whose items are outputs of attention calls."""

    def __len__(self):
        return len(SEEDS)

    def __getitem__(self, at):
        return np.frombuffer(attention(SEEDS[at]), dtype=np.uint8).copy()
