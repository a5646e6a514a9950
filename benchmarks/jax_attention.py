"""Times fa.jax.dot_product_attention against jax.nn's: forward, gradient, decode and a tiny call.

    python benchmarks/jax_attention.py [--repeats 9]

Both are compiled first, and run in turn in one process. Their results are compared. The program prints the smallest CPU
time of all threads and the smallest elapsed time.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import fa.jax

FUNCTIONS = {"jax.nn": jax.nn.dot_product_attention, "fa": fa.jax.dot_product_attention}


def arrays(dtype, rows, keys, heads, heads_kv, size, gradient):
    rng = np.random.default_rng(0)
    shapes = [(1, rows, heads, size), (1, keys, heads_kv, size), (1, keys, heads_kv, size)]
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes + shapes[:1] * gradient]


def compiled(function, causal, gradient, given):
    def forward(*x):
        return function(*x, is_causal=causal)

    def both(query, key, value, d_out):
        return jax.vjp(forward, query, key, value)[1](d_out)

    return jax.jit(both if gradient else forward).lower(*given).compile()


def measure(programs, given, repeats, calls):
    """Returns the smallest (CPU, elapsed) seconds of one call of each program. An untimed call of the same program
    comes first, because XLA frees the memory of the previous call during the next one."""
    best = {name: (np.inf, np.inf) for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            jax.block_until_ready(program(*given))
            cpu, start = time.process_time(), time.perf_counter()
            for _ in range(calls):
                jax.block_until_ready(program(*given))
            now = (time.process_time() - cpu) / calls, (time.perf_counter() - start) / calls
            best[name] = tuple(min(pair) for pair in zip(best[name], now, strict=True))
    return best


def compare(label, dtype, sizes, causal, gradient, repeats, calls=1):
    given = arrays(dtype, *sizes, gradient)
    programs = {name: compiled(f, causal, gradient, given) for name, f in FUNCTIONS.items()}
    results = [jax.tree.leaves(program(*given)) for program in programs.values()]
    for theirs, ours in zip(*results, strict=True):
        theirs, ours = (np.asarray(x, np.float32) for x in (theirs, ours))
        # The bound allows a few roundings to the type, and one rounding to float32 per key.
        roundings = 16 * float(jnp.finfo(dtype).eps) + sizes[1] * float(jnp.finfo(jnp.float32).eps)
        assert np.abs(theirs - ours).max() <= roundings * np.abs(theirs).max(), label
    best = measure(programs, given, repeats, calls)
    (cpu, wall), (own_cpu, own_wall) = best["jax.nn"], best["fa"]
    memory = [program.memory_analysis().temp_size_in_bytes / 2**20 for program in programs.values()]
    milliseconds = "".join(f"{1e3 * x:10.3f}" for x in (cpu, own_cpu, wall, own_wall))
    print(f"{label:28}{milliseconds}{cpu / own_cpu:8.1f}{wall / own_wall:8.1f}{memory[0]:9.1f}{memory[1]:8.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    print(f"jax {jax.__version__}, {len(jax.devices())} device, milliseconds and MiB")
    columns = "".join(f"{name:>10}" for name in ("CPU jax", "CPU fa", "jax.nn", "fa"))
    print(f"{'':28}{columns}{'CPU':>8}{'time':>8}{'MiB jax':>9}{'fa':>8}")
    for gradient in (False, True):
        for dtype in (jnp.float32, jnp.bfloat16):
            for rows, size in ((1024, 64), (2048, 128)):
                label = f"{dtype.__name__} {rows}, {size}{' gradient' * gradient}"
                compare(label, dtype, (rows, rows, 16, 16, size), True, gradient, repeats)
    for dtype in (jnp.float32, jnp.bfloat16):
        compare(f"{dtype.__name__} decode", dtype, (1, 4096, 32, 8, 128), False, False, repeats, 10)
        compare(f"{dtype.__name__} tiny", dtype, (64, 64, 4, 4, 32), False, False, repeats, 100)


if __name__ == "__main__":
    main()
