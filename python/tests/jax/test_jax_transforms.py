"""Transformations of fa.jax.dot_product_attention: vmap, jit, scan, checkpoint, shards, export."""

import itertools
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import B, N, S, T, inputs, keep, lengths, random

import fa.jax

attention = fa.jax.dot_product_attention
SAMPLES = 3
# The shapes of all arrays of a call.
SHAPES = [x.shape for x in inputs()] + [(1, N, T, S), (B, 1, T, S), (B,), (B,)]
NAMES = ["query", "key", "value", "bias", "mask", "query_seq_lengths", "key_value_seq_lengths"]


def arrays(mapped):
    """Returns the arrays of a call. Those with a place in `mapped` have an axis of samples there."""
    made = []
    for number, (name, shape) in enumerate(zip(NAMES, SHAPES, strict=True)):
        axis = mapped.get(name)
        shape = shape if axis is None else (*shape[:axis], SAMPLES, *shape[axis:])
        if name == "mask":
            made.append(keep(*shape).at[..., 3:5, :].set(False))  # two rows without keys
        elif name.endswith("lengths"):
            made.append(jnp.asarray(np.random.default_rng(number).integers(0, 50, shape), jnp.int32))
        else:
            made.append(random(*shape, seed=number))
    return made


def call(query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths):
    of = {"query_seq_lengths": query_seq_lengths, "key_value_seq_lengths": key_value_seq_lengths}
    return attention(query, key, value, bias, mask, **of)


def gradients(*given):
    out, vjp = jax.vjp(lambda *x: call(*x, *given[4:]), *given[:4])
    return out, *vjp(jnp.cos(out))


ALONE = [{name: 0} for name in NAMES]
SETS = [
    {"query": 0, "key": 0, "value": 0},
    {"query": 1, "key": 0, "value": 2, "bias": 0},
    {"key": 0, "value": 0, "mask": 1},
    {"query": 0, "bias": 1, "key_value_seq_lengths": 0},
    dict.fromkeys(NAMES, 0),
]


@pytest.mark.parametrize("mapped", ALONE + SETS, ids=lambda m: ",".join(m))
@pytest.mark.parametrize("batch", [1, B])
def test_vmap_has_the_bits_of_single_calls(mapped, batch, monkeypatch):
    shapes = [(batch, *s[1:]) if s[0] == B else s for s in SHAPES]
    monkeypatch.setattr(sys.modules[__name__], "SHAPES", shapes)
    given = arrays(mapped)
    axes = [mapped.get(name) for name in NAMES]
    got = jax.jit(jax.vmap(gradients, in_axes=axes))(*given)
    for i in range(SAMPLES):
        one = [x if a is None else jnp.take(x, i, a) for x, a in zip(given, axes, strict=True)]
        for mine, single in zip(got, gradients(*one), strict=True):
            np.testing.assert_array_equal(mine[i], single)


def test_vmap_twice():
    query, key, value = (random(2, 3, *x.shape, seed=i) for i, x in enumerate(inputs()))
    inner = jax.vmap(attention, (0, None, 0))
    got = jax.vmap(inner, (0, 0, None))(query, key[:, 0], value[0])
    for i, j in itertools.product(range(2), range(3)):
        np.testing.assert_array_equal(got[i, j], attention(query[i, j], key[i, 0], value[0, j]))


def test_vmap_copies_nothing_that_is_not_mapped():
    def memory(samples):
        query, key = jnp.ones((samples, 1, 8, 2, 16)), jnp.ones((1, 4096, 2, 16))
        lowered = jax.jit(jax.vmap(attention, (0, None, None))).lower(query, key, key)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert memory(16) < 4096 * 2 * 16 * 4


def test_jit_traces_once():
    traced = []

    @jax.jit
    def layer(*given):
        traced.append(1)
        return gradients(*given)

    given = arrays({})
    first = layer(*given)
    for mine, again in zip(first, layer(*given[:5], lengths(*[7] * B), lengths(*[9] * B)), strict=True):
        assert mine.shape == again.shape
    assert len(traced) == 1
    before = fa.jax._attend._cache_size()
    call(*given), call(*given)
    assert fa.jax._attend._cache_size() <= before + 1


def test_scan_while_and_checkpoint():
    query, key, value = inputs()

    def step(x, _):
        return attention(x, key, value), None

    scanned, _ = jax.lax.scan(step, query, length=3)
    looped = jax.lax.fori_loop(0, 3, lambda i, x: step(x, None)[0], query)
    by_hand = query
    for _ in range(3):
        by_hand = attention(by_hand, key, value)
    np.testing.assert_array_equal(scanned, by_hand)
    np.testing.assert_array_equal(looped, by_hand)

    def loss(function, *given):
        return jnp.square(function(*given)).sum()

    kept = jax.grad(partial(loss, attention), (0, 1, 2))(query, key, value)
    again = jax.grad(partial(loss, jax.checkpoint(attention)), (0, 1, 2))(query, key, value)
    for mine, other in zip(kept, again, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_memory_does_not_grow_with_pairs():
    rows = 2048
    given = [jnp.ones((1, rows, 2, 16))] * 3
    own = 3 * rows * 2 * 16 * 4  # the bytes of query, key and value

    def loss(*x):
        return attention(*x, is_causal=True).sum()

    for function, results in ((attention, 1), (jax.grad(loss, (0, 1, 2)), 3)):
        analysis = jax.jit(function).lower(*given).compile().memory_analysis()
        assert analysis.temp_size_in_bytes <= 1.1 * (own + results * own / 3)


@pytest.mark.parametrize("bias, mask", [((1, 1, 1024, 1024), None), ((1, 4, 1024, 1), (1, 4, 1024, 1))])
def test_what_heads_or_keys_share_is_not_expanded(bias, mask):
    given = [jnp.ones((1, 1024, 4, 16))] * 3 + [jnp.zeros(bias)]
    bytes_given = sum(x.nbytes for x in given)

    def loss(*x):
        return attention(*x, mask=None if mask is None else jnp.ones(mask, bool)).sum()

    analysis = jax.jit(jax.grad(loss, (0, 1, 2, 3))).lower(*given).compile().memory_analysis()
    assert analysis.temp_size_in_bytes <= 1.1 * 2 * bytes_given  # inputs and results


def test_forward_mode_and_second_derivatives_are_jaxs_errors():
    query, key, value = inputs()
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: attention(x, key, value), (query,), (query,))
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: jax.grad(lambda y: attention(y, key, value).sum())(x).sum())(query)


TARGETS = [jax.export.DisabledSafetyCheck.custom_call(name) for name in ("fa_attention_forward", "fa_attention_backward")]


def test_export_needs_the_names_of_both_targets():
    given = inputs()
    function = jax.jit(jax.grad(lambda *x: attention(*x).sum()))
    with pytest.raises(ValueError, match="fa_attention_forward"):
        jax.export.export(function)(*given)
    exported = jax.export.export(function, disabled_checks=TARGETS)(*given)
    np.testing.assert_array_equal(jax.jit(exported.call)(*given), function(*given))


def test_other_platforms_get_jaxs_code():
    given = inputs()
    function = jax.jit(lambda *x: attention(*x, is_causal=True))
    exported = jax.export.export(function, platforms=["cpu", "cuda"], disabled_checks=TARGETS)(*given)
    text = exported.mlir_module()
    assert "fa_attention_forward" in text and "stablehlo.case" in text and "dot_general" in text
    only = jax.export.export(function, platforms=["cuda"])(*given).mlir_module()
    assert "fa_attention" not in only and "dot_general" in only


@pytest.mark.parametrize("program", ["shard_map", "partitioned", "propagated", "explicit", "explicit_beside_manual"])
def test_two_devices(program):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("two_devices.py"), program],
        env=os.environ | flags,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == "ok\n", done.stderr
