"""Calls of dot_product_attention, one for each kind of mask and bias, and their results in float64."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

B, T, S, N, K, H = 2, 37, 53, 4, 2, 16


class Call(NamedTuple):
    """The arrays that may have a gradient, in order (query, key, value, bias), and the keywords of a call."""

    arrays: tuple
    keywords: dict[str, Any] = {}

    def run(self, function: Callable, *arrays: Any, **more: Any) -> Any:
        return function(*(arrays or self.arrays), **self.keywords, **more)


def random(*shape: int, seed: int = 0, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng([*shape, seed]).standard_normal(shape), dtype)


def inputs(dtype: Any = jnp.float32, rows: int = T, keys: int = S, heads: int = N, heads_kv: int = K) -> tuple:
    shapes = (B, rows, heads, H), (B, keys, heads_kv, H), (B, keys, heads_kv, H)
    return tuple(random(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes))


def keep(*shape: int) -> jax.Array:
    """Returns a mask that keeps about two thirds of the pairs, and at least the first key of every row."""
    return jnp.asarray(np.random.default_rng(5).random(shape) < 0.66).at[..., 0].set(True)


def lengths(*given: int) -> jax.Array:
    return jnp.asarray(given, jnp.int32)


_BIASES = [(B, N, T, S), (1, N, T, S), (B, 1, T, S), (B, N, 1, S), (B, N, T, 1), (1, 1, 1, S), (1, 1, T, 1)]
_SEEN = jnp.asarray(np.random.default_rng(6).random((B, N, T, 1)) < 0.66)  # rows that look at keys
_NO_KEYS = jnp.ones((B, 1, T, S), bool).at[:, :, 3:9].set(False).at[1].set(False)

CALLS = {
    "plain": Call(inputs()),
    "one sequence": Call(tuple(x[0] for x in inputs())),
    "one head of keys": Call(inputs(heads_kv=1)),
    "as many heads of keys": Call(inputs(heads_kv=N)),
    "scale": Call(inputs(), {"scale": 0.3}),
    "causal": Call(inputs(), {"is_causal": True}),
    "causal, fewer keys": Call(inputs(rows=S, keys=T), {"is_causal": True}),
    "window": Call(inputs(), {"local_window_size": (7, 3)}),
    "symmetric window": Call(inputs(), {"local_window_size": 5}),
    "causal window": Call(inputs(), {"local_window_size": (7, 3), "is_causal": True}),
    "window beyond the keys": Call(inputs(rows=S, keys=T), {"local_window_size": (4, 1)}),
    "window after the row": Call(inputs(), {"local_window_size": (-2, 6)}),
    "window before the row": Call(inputs(), {"local_window_size": (6, -2)}),
    "huge window": Call(inputs(), {"local_window_size": (2**30, 2**30)}),
    "lengths": Call(inputs(), {"query_seq_lengths": lengths(20, 37), "key_value_seq_lengths": lengths(53, 11)}),
    "lengths of queries": Call(inputs(), {"query_seq_lengths": lengths(0, 5)}),
    "lengths of keys": Call(inputs(), {"key_value_seq_lengths": lengths(0, 5), "is_causal": True}),
    "lengths out of range": Call(
        inputs(), {"query_seq_lengths": lengths(-3, 99), "key_value_seq_lengths": lengths(99, -1)}
    ),
    "lengths, causal window": Call(
        inputs(),
        {"key_value_seq_lengths": lengths(30, 11), "query_seq_lengths": lengths(36, 20), "is_causal": True}
        | {"local_window_size": (6, 6)},
    ),
    "rows without keys": Call(inputs(), {"mask": _NO_KEYS, "query_seq_lengths": lengths(6, 30)}),
    "bias, lengths, window, mask": Call(
        (*inputs(), random(1, N, T, S)),
        {"mask": keep(1, 1, T, S), "key_value_seq_lengths": lengths(53, 20), "local_window_size": (15, 15)},
    ),
    "bias of another type": Call((*inputs(jnp.bfloat16), random(B, N, T, S))),
    "bias of 16 bits": Call((*inputs(), random(B, N, T, S, dtype=jnp.float16))),
    "bias of three dimensions": Call((*inputs(), random(N, T, S))),
    "mask of two dimensions": Call(inputs(), {"mask": keep(T, S)}),
    "one row": Call((*inputs(rows=1), random(B, N, 1, S)), {"mask": keep(B, 1, 1, S)}),
    "bfloat16": Call((*inputs(jnp.bfloat16), random(1, N, T, S, dtype=jnp.bfloat16)), {"is_causal": True}),
    "float16": Call((*inputs(jnp.float16), random(1, N, T, S, dtype=jnp.float16)), {"is_causal": True}),
    "mask of rows": Call(inputs(), {"mask": _SEEN}),
    "mask of rows, window without keys": Call(
        inputs(rows=S, keys=T), {"mask": _SEEN[:, :, :1], "local_window_size": (-2, 6)}
    ),
    "mask and bias of rows, lengths": Call(
        (*inputs(), random(B, 1, T, 1)),
        {"mask": _SEEN, "query_seq_lengths": lengths(20, 37), "key_value_seq_lengths": lengths(53, 11)},
    ),
    "bfloat16, mask and bias of rows": Call((*inputs(jnp.bfloat16), random(1, N, 1, 1)), {"mask": _SEEN}),
    "bfloat16, rows without keys": Call(inputs(jnp.bfloat16), {"mask": _NO_KEYS}),
}
CALLS |= {f"bias {shape}": Call((*inputs(), random(*shape))) for shape in _BIASES}
CALLS |= {
    f"bfloat16 bias {shape}": Call((*inputs(jnp.bfloat16), random(*shape, dtype=jnp.bfloat16))) for shape in _BIASES
}
CALLS |= {f"mask {shape}": Call(inputs(), {"mask": keep(*shape)}) for shape in _BIASES}


def exact(
    query,
    key,
    value,
    bias=None,
    *,
    mask=None,
    scale=None,
    is_causal=False,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
):
    """Returns (out, residual) by the rules of jax.nn, in the types of the arrays and without rounding in between."""
    shape = query.shape
    query, key, value = (x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (query, key, value))
    group = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(x, group, axis=2) for x in (key, value))
    scores = jnp.einsum("btnh,bsnh->bnts", query, key) * (query.shape[-1] ** -0.5 if scale is None else scale)
    rows, keys = jnp.arange(scores.shape[2])[:, None], jnp.arange(scores.shape[3])
    kept = jnp.ones_like(scores, bool) if mask is None else jnp.broadcast_to(mask, scores.shape)
    if bias is not None:
        scores = scores + bias
    if is_causal:
        kept &= keys <= rows
    if local_window_size is not None:
        both = isinstance(local_window_size, int)
        left, right = (local_window_size,) * 2 if both else local_window_size
        kept &= (rows - left <= keys) & (keys <= rows + right)
    in_use = jnp.ones(scores.shape[:3], bool)
    if query_seq_lengths is not None:
        in_use = in_use & (rows[:, 0] < query_seq_lengths[:, None, None])
    if key_value_seq_lengths is not None:
        kept &= keys < key_value_seq_lengths[:, None, None, None]
    kept &= in_use[..., None]
    hidden = -0.7 * float(np.finfo(np.float32).max)
    scores = jnp.where(kept, scores, hidden)
    out = jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores) * in_use[..., None], value)
    residual = jax.scipy.special.logsumexp(scores, axis=-1).swapaxes(1, 2)
    return out.reshape(shape), residual.reshape(shape[:-1])


def in_float64(function: Callable, *trees: Any) -> Any:
    """Returns what `function` computes of the trees' arrays in float64, as NumPy arrays."""

    def wide(x):
        return np.asarray(x, np.float64) if jnp.issubdtype(x.dtype, jnp.floating) else np.asarray(x)

    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, function(*jax.tree.map(lambda x: jnp.asarray(wide(x)), trees)))


def exact_of(call: Call, arrays: tuple) -> tuple:
    fixed = {name: x for name, x in call.keywords.items() if not isinstance(x, jax.Array)}
    held = {name: x for name, x in call.keywords.items() if isinstance(x, jax.Array)}
    return in_float64(lambda a, h: functools.partial(exact, **fixed)(*a, **h), arrays, held)


def exact_gradients_of(call: Call, d_out: jax.Array) -> tuple:
    fixed = {name: x for name, x in call.keywords.items() if not isinstance(x, jax.Array)}
    held = {name: x for name, x in call.keywords.items() if isinstance(x, jax.Array)}
    return in_float64(
        lambda a, h, d: jax.vjp(lambda *x: exact(*x, **fixed, **h)[0], *a)[1](d), call.arrays, held, d_out
    )


def check(got: Any, jaxs: Any, want: np.ndarray, times: int = 2) -> None:
    """Compares a result with the float64 result `want`. Its root-mean-square error may be twice that of jax.nn. Its
    largest error may be `times` that of jax.nn. The ratio of the largest errors varies from 0.7 to 4 with the inputs,
    because each is the error of a single element.

    Both bounds also allow one rounding to the result's type, because jax.nn's own rounding may happen to be exact. For
    the largest error, the rounding is eps times the largest number. For the root mean square, it is eps / 4 times that
    of the numbers: rounding to nearest has a root-mean-square error of eps / 7 to eps / 3.5.
    """
    assert got.shape == jaxs.shape and got.dtype == jaxs.dtype
    largest, eps = np.abs(want).max(initial=0), float(jnp.finfo(got.dtype).eps)
    errors = [np.abs(np.asarray(x, np.float64) - want) for x in (got, jaxs)]
    error, jaxs_error = (x.max(initial=0) for x in errors)
    assert error <= times * jaxs_error + eps * largest, (error, jaxs_error, largest)
    mean, jaxs_mean, mean_value = (np.sqrt(np.mean(np.square(x))) for x in (*errors, want))
    assert mean <= 2 * jaxs_mean + eps / 4 * mean_value, (mean, jaxs_mean, mean_value)
