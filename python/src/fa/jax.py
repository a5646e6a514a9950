"""Attention of JAX programs by `fa`, on CPUs, forward and backward.

    import fa.jax
    out = fa.jax.dot_product_attention(query, key, value, is_causal=True)

`with fa.jax.replace_dot_product_attention():` and `fa.jax.install()` serve programs that look up
`jax.nn.dot_product_attention` when they are traced.
"""

from __future__ import annotations

from . import _needs_jax  # noqa: F401  # isort: skip
import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from . import _xla
from ._replaced import Replacement

try:
    from jax.experimental.shard_alike import shard_alike
except ModuleNotFoundError:  # jax has none since 0.11

    def shard_alike(x: Array, y: Array) -> tuple[Array, Array]:
        return x, jax.lax.select(jax.lax.optimization_barrier(jnp.asarray(True)), y, x)


__all__ = ["dot_product_attention", "install", "replace_dot_product_attention", "uninstall"]

FORWARD, BACKWARD = "fa_attention_forward", "fa_attention_backward"
_DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
_NO_BOUND = 1 << 40  # a window of this size has no bound
_LARGEST = np.finfo(np.float32).max
_HIDDEN = -0.7 * _LARGEST  # the score that jax.nn gives to hidden keys
_jax_nn = jax.nn.dot_product_attention

for _name in (FORWARD, BACKWARD):
    jax.ffi.register_ffi_target(_name, getattr(_xla, _name), platform="cpu")
    jax.ffi.register_ffi_target_as_batch_partitionable(_name)


class _Rule(NamedTuple):
    """The settings of a call, which are static under jit."""

    scale: float
    causal: bool
    window: tuple[int, int] | None


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Computes what jax.nn.dot_product_attention computes, without a matrix of scores.

    Args:
        query: [B, T, N, H] or [T, N, H]. key, value: [B, S, K, H] or [S, K, H], N a multiple of K.
        bias: added to the scores; four dimensions, each full or 1: [B|1, N|1, T|1, S|1]. It has a gradient.
        mask: bool, shaped like bias; True = look at the key.
        scale: None means 1 / sqrt(H).
        is_causal: row i looks at keys j <= i only, also where T and S differ.
        query_seq_lengths, key_value_seq_lengths: int32 [B]. Later keys are hidden, later rows of the output are 0.
        local_window_size: n or (left, right): row i looks at keys i - left to i + right only.
        implementation: None or "fa"; jax.nn takes any other, such as "xla".
        return_residual: whether to return (output, log-sum-exp of the scores) with [B, T, N] or [T, N].

    Returns:
        The output, shaped like query. A row that looks at no key gets the mean of all values, as in jax.nn.

    jax.nn computes float64, integers, empty arrays, a traced scale or window, and everything on other platforms. It
    raises the errors for wrong arguments.
    """
    of_jax = functools.partial(
        _jax_nn,
        query,
        key,
        value,
        bias,
        mask,
        scale=scale,
        is_causal=is_causal,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        return_residual=return_residual,
    )
    if implementation not in (None, "fa"):
        return of_jax(implementation=implementation)
    given = (query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths)
    arrays = [x if x is None or isinstance(x, Array) else jnp.asarray(x) for x in given]
    if not _serves(*arrays):
        return of_jax()
    rule = _rule_of(arrays[0].shape[-1], scale, is_causal, local_window_size)
    if rule is None:
        return of_jax()
    out, residual = _attend(rule, *arrays)
    return (out, residual) if return_residual else out


def _serves(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None,
    mask: Array | None,
    query_seq_lengths: Array | None,
    key_value_seq_lengths: Array | None,
) -> bool:
    """Returns whether `fa` computes the call. jax.nn then finds no error in its arrays."""
    if any(x.ndim not in (1, 2, 3, 4) for x in (query, key, value)) or query.dtype not in _DTYPES:
        return False
    (batch, rows, heads, size), of_key = _shape4(query), _shape4(key)
    keys, heads_kv = of_key[1:3]
    pairs = (batch, heads, rows, keys)
    return (
        0 not in (*pairs, heads_kv, size)
        and of_key == _shape4(value) == (batch, keys, heads_kv, size)
        and query.dtype == key.dtype == value.dtype
        and heads % heads_kv == 0
        and (bias is None or (_spreads(bias, pairs) and _adds(bias.dtype)))
        and (mask is None or (_spreads(mask, pairs) and mask.dtype == bool))
        and all(
            lengths is None or (lengths.shape == (batch,) and lengths.dtype == jnp.int32)
            for lengths in (query_seq_lengths, key_value_seq_lengths)
        )
    )


def _shape4(array: Array) -> tuple[int, ...]:
    return (1,) * (4 - array.ndim) + array.shape


def _adds(dtype: Any) -> bool:
    """Returns whether jax.nn adds a bias of this type: one that has a common type with floating-point numbers."""
    if jnp.issubdtype(dtype, jnp.floating):
        return dtype.itemsize > 1
    return dtype == bool or jnp.issubdtype(dtype, jnp.integer)


def _spreads(array: Array, pairs: Sequence[int]) -> bool:
    return array.ndim <= 4 and all(own in (1, full) for own, full in zip(_shape4(array), pairs, strict=True))


def _rule_of(size: int, scale: Any, causal: Any, window: Any) -> _Rule | None:
    """Returns the settings, or None if one of them is no number that is known now, or is not finite."""
    try:
        scale = 1.0 / math.sqrt(size) if scale is None else float(scale)
        if window is not None:
            left, right = (window, window) if isinstance(window, int) else window
            window = (operator.index(left), operator.index(right))
    except (TypeError, ValueError):
        return None
    return _Rule(scale, bool(causal), window) if abs(scale) <= _LARGEST else None


@functools.partial(jax.jit, static_argnums=0)
def _attend(rule: _Rule, query: Array, key: Array, value: Array, *others: Array | None) -> tuple[Array, Array]:
    """Returns (out, residual). The arrays are those of dot_product_attention."""
    query4, key4, value4 = (x.reshape(_shape4(x)) for x in (query, key, value))
    bias, mask, *lengths = others
    if bias is not None:
        bias = bias.reshape(_shape4(bias)).astype(bias.dtype if bias.dtype == query.dtype else jnp.float32)
    if mask is not None:
        mask = mask.reshape(_shape4(mask))
    out, residual = _in_auto_mode(rule, *_varying_alike(query4, key4, value4, bias, mask, *lengths))
    return out.reshape(query.shape), residual.astype(out.dtype).reshape(query.shape[:-1])


def _varying_alike(*arrays: Array | None) -> list[Array | None]:
    """Inside shard_map, marks each array as varying over every axis over which any of the arrays varies, because an FFI
    call requires equal axes.
    """
    axes = [frozenset() if x is None else jax.typeof(x).manual_axis_type.varying for x in arrays]
    missing = [tuple(frozenset().union(*axes) - own) for own in axes]
    return [jax.lax.pcast(x, m, to="varying") if m and x is not None else x for x, m in zip(arrays, missing, strict=True)]


def _in_auto_mode(rule: _Rule, *arrays: Array | None) -> tuple[Array, Array]:
    """Lets XLA partition the call over the axes of an explicit mesh, as over those of an automatic one. The results
    have the shards of query.
    """
    sharding = jax.typeof(arrays[0]).sharding
    if not any(x is not None and jax.typeof(x).sharding.mesh.explicit_axes for x in arrays):
        return _with_values_per_row(rule, *arrays)
    places = (sharding, NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:3])))
    present = [x for x in arrays if x is not None]

    def call(*given: Array) -> tuple[Array, Array]:
        left = iter(given)
        return _with_values_per_row(rule, *(x if x is None else next(left) for x in arrays))

    return jax.sharding.auto_axes(call, axes=sharding.mesh.explicit_axes, out_sharding=places)(*present)


def _with_values_per_row(
    rule: _Rule, query: Array, key: Array, value: Array, bias: Array | None, mask: Array | None, *lengths: Array | None
) -> tuple[Array, Array]:
    """Applies a bias or mask with one number per row (S = 1) to the results. The handlers broadcast every other
    dimension, but not the keys. Such a bias changes no probability, so its gradient is 0. A bias of -inf hides all keys
    of its row, as a mask of False does.
    """
    per_row = [x for x in (bias, mask) if _is_per_row(x, key)]
    if not per_row:
        return _attention(rule, query, key, value, bias, mask, *lengths)
    if _is_per_row(bias, key):
        bias = per_row[0] = jax.lax.stop_gradient(bias)
    seen, added = jax.lax.platform_dependent(*per_row, cpu=_values_per_row, default=_no_values_per_row)
    # Queries of rows without keys may be NaN or inf, so they are replaced by 0.
    out, residual = _attention(rule, jnp.where(seen, query, 0), key, value, bias, mask, *lengths)
    with_keys = (residual != _HIDDEN)[..., None]
    out *= jnp.where(with_keys & ~(added < jnp.inf), jnp.nan, 1).astype(out.dtype)
    means = jnp.repeat(value.mean(1, jnp.float32, keepdims=True), query.shape[2] // key.shape[2], 2)
    if lengths[0] is not None:
        in_use = jnp.arange(query.shape[1])[:, None, None] < lengths[0].reshape(-1, 1, 1, 1)
        means = jnp.where(in_use, means, 0)
    out = jnp.where(seen, out, means.astype(out.dtype))
    return out, jnp.where(seen & with_keys, residual[..., None] + added, _HIDDEN)[..., 0]


def _is_per_row(x: Array | None, key: Array) -> bool:
    return x is not None and x.shape[3] != key.shape[1]


def _values_per_row(*per_row: Array) -> tuple[Array, Array]:
    """Returns [B|1, T|1, N|1, 1]: whether a row looks at keys, and what is added to its scores."""
    seen, added = jnp.ones((1, 1, 1, 1), bool), jnp.zeros((1, 1, 1, 1))
    for x in (x.swapaxes(1, 2) for x in per_row):
        if x.dtype == bool:
            seen = seen & x
        else:
            added = x.astype(jnp.float32)
            seen = seen & (added != -jnp.inf)
    return seen, added


def _no_values_per_row(*per_row: Array) -> tuple[Array, Array]:
    """Returns what changes nothing, for jax.nn, which gets the arrays themselves."""
    seen, added = _values_per_row(*per_row)
    return jnp.ones_like(seen), jnp.zeros_like(added)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(rule: _Rule, *arrays: Array | None) -> tuple[Array, Array]:
    return _forward(rule, arrays)[0]


def _forward(rule: _Rule, arrays: Sequence[Array | None]) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    """Returns (out, residual), and what the backward wants of the results."""
    on_cpu, by_jax = (functools.partial(f, rule) for f in (_forward_on_cpu, _forward_by_jax))
    out, softmax_max, softmax_sum = jax.lax.platform_dependent(*arrays, cpu=on_cpu, default=by_jax)
    # A row without keys has the maximum -FLT_MAX.
    without_keys = (softmax_sum == _LARGEST) & (softmax_max == -_LARGEST)
    residual = jnp.where(without_keys, _HIDDEN, softmax_max + jnp.log(softmax_sum))
    return (out, residual.swapaxes(1, 2)), (out, softmax_max, softmax_sum)


def _forward_for_gradients(rule: _Rule, *primals: Any) -> tuple[tuple[Array, Array], tuple]:
    arrays = [None if primal is None else primal.value for primal in primals]
    results, kept = _forward(rule, arrays)
    bias = primals[3]
    return results, (arrays, kept, () if bias is not None and bias.perturbed else None)


def _backward(rule: _Rule, saved: tuple, cotangents: tuple) -> tuple[Array | None, ...]:
    (arrays, kept, bias_gradient), d_out = saved, cotangents[0]
    if isinstance(d_out, SymbolicZero):  # the residual has no gradient
        return (None,) * len(arrays)
    with_bias = bias_gradient is not None
    on_cpu, by_jax = (functools.partial(f, rule, with_bias) for f in (_backward_on_cpu, _backward_by_jax))
    gradients = jax.lax.platform_dependent(arrays, kept, d_out, cpu=on_cpu, default=by_jax)
    return (*gradients, *(None,) * (len(arrays) - len(gradients)))


_attention.defvjp(_forward_for_gradients, _backward, symbolic_zeros=True)


def _forward_on_cpu(rule: _Rule, *arrays: Array | None) -> tuple[Array, ...]:
    query = arrays[0]
    batch, rows, heads, _ = query.shape
    statistic = ((batch, heads, rows), jnp.float32)
    out, *statistics = _call(FORWARD, [(query.shape, query.dtype), statistic, statistic], rule, arrays)
    return _sharded_like(query, out), *statistics


def _backward_on_cpu(rule: _Rule, with_bias: bool, arrays: Sequence, kept: tuple, d_out: Array) -> tuple[Array, ...]:
    results = [(x.shape, x.dtype) for x in arrays[: 4 if with_bias else 3]]
    gradients = _call(BACKWARD, results, rule, arrays, kept[0], d_out, *kept[1:])
    return tuple(_sharded_like(x, gradient) for x, gradient in zip(arrays, gradients, strict=False))


def _sharded_like(given: Array, result: Array) -> Array:
    """Gives the result the shards of the given array. XLA does not see by itself which shards a call's results have."""
    manual = jax.typeof(given).manual_axis_type.varying
    return result if manual else shard_alike(given, result)[1]


def _call(name: str, results: Sequence[tuple], rule: _Rule, arrays: Sequence[Array | None], *more: Array) -> tuple:
    """Calls a handler. `results` are shapes and types, `more` the operands after those of the forward. Values per row
    are no operands.
    """
    bias, mask = (None if _is_per_row(x, arrays[1]) else x for x in arrays[3:5])
    query_seq_lengths, key_value_seq_lengths = arrays[5:]
    left, right = (_NO_BOUND, _NO_BOUND) if rule.window is None else rule.window
    right = min(right, 0) if rule.causal else right
    drop = None if mask is None else ~mask
    given = [*arrays[:3], bias, drop, query_seq_lengths, key_value_seq_lengths, *more]
    operands = [x for x in given if x is not None]
    of_query = jax.typeof(arrays[0])
    manual = {}
    if of_query.manual_axis_type.varying:  # inside shard_map
        sharding = NamedSharding(of_query.sharding.mesh, PartitionSpec())
        manual = {"sharding": sharding, "manual_axis_type": of_query.manual_axis_type}
    shapes = tuple(jax.ShapeDtypeStruct(*result, **manual) for result in results)
    call = functools.partial(
        jax.ffi.ffi_call(name, shapes, vmap_method="expand_dims"),
        version=np.int64(_xla.CALL_VERSION),
        written_by=_xla.__version__,
        scale=np.float32(rule.scale),
        left=np.int64(max(min(left, _NO_BOUND), -_NO_BOUND)),
        right=np.int64(max(min(right, _NO_BOUND), -_NO_BOUND)),
        bias=bias is not None,
        mask=mask is not None,
        query_seq_lengths=query_seq_lengths is not None,
        key_value_seq_lengths=key_value_seq_lengths is not None,
    )
    alike = {x.shape[0] for x in (*operands, *shapes)} == {arrays[0].shape[0]}
    return _batch_partitionable(call)(*operands) if alike else call(*operands)


def _batch_partitionable(call: Callable[..., tuple]) -> Callable[..., tuple]:
    """Lets XLA's partitioner cut the first axis of all operands and results. It would also cut an axis of size 1 that
    stands for the whole batch. So a call is marked as partitionable only if the first axis of all operands and results
    is the whole batch. Under vmap it is not marked.
    """

    @custom_vmap
    def marked(*operands: Array) -> tuple:
        with set_xla_metadata(num_batch_dims="1"):
            return call(*operands)

    @marked.def_vmap
    def _(axis_size: int, mapped: Sequence[bool], *operands: Array) -> tuple[tuple, tuple]:
        axes = [0 if is_mapped else None for is_mapped in mapped]
        results = jax.vmap(call, axes, axis_size=axis_size)(*operands)
        return results, (True,) * len(results)

    return marked


def _by_jax(rule: _Rule, arrays: Sequence[Array | None], **more: Any) -> Any:
    query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths = arrays
    return _jax_nn(
        query,
        key,
        value,
        bias,
        mask,
        scale=rule.scale,
        is_causal=rule.causal,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=rule.window,
        **more,
    )


def _forward_by_jax(rule: _Rule, *arrays: Array | None) -> tuple[Array, Array, Array]:
    """Computes the forward by jax.nn. Returns out, the residual in place of the maximum, and 1 in place of the sum."""
    out, residual = _by_jax(rule, arrays, return_residual=True)
    residual = residual.swapaxes(1, 2).astype(jnp.float32)
    return out, residual, jnp.ones_like(residual)


def _backward_by_jax(rule: _Rule, with_bias: bool, arrays: Sequence, kept: tuple, d_out: Array) -> tuple[Array, ...]:
    del kept
    wanted = 4 if with_bias else 3
    return jax.vjp(lambda *inputs: _by_jax(rule, (*inputs, *arrays[wanted:])), *arrays[:wanted])[1](d_out)


_replacement = Replacement(jax.nn, dot_product_attention=dot_product_attention)


@contextlib.contextmanager
def replace_dot_product_attention() -> Iterator[None]:
    """Replaces jax.nn.dot_product_attention in its context. Contexts may nest and overlap.

    Functions that were jitted before the context keep jax.nn's function. Functions that are traced inside keep this
    one.
    """
    _replacement.enter()
    try:
        yield
    finally:
        _replacement.leave()


def install() -> None:
    """Replaces jax.nn.dot_product_attention until uninstall() is called."""
    _replacement.install(True)


def uninstall() -> None:
    """Undoes install(). Does nothing if nothing is installed."""
    _replacement.install(False)
