"""Attention over two devices. The argument is the name of a function. Prints ok."""

import contextlib
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax_cases import inputs, random

import fa.jax

attention = fa.jax.dot_product_attention
query, key, value = inputs()
bias = random(1, *query.shape[2:0:-1], key.shape[1])
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


def gradients(*arrays):
    out, vjp = jax.vjp(lambda *x: attention(*x, is_causal=True), *arrays)
    return out, *vjp(jnp.cos(out))


def shard_map():
    """Shards the batch, and then the heads. Both devices hold the same bias, so its gradient is the sum of their
    gradients.
    """
    want = gradients(query, key, value, bias)
    batch, heads, one = PartitionSpec("x"), PartitionSpec(None, None, "x"), PartitionSpec()
    of_heads = PartitionSpec(None, "x")
    for tensor, own in ((batch, one), (heads, of_heads)):
        specs = (tensor,) * 3 + (own,)
        mapped = jax.jit(jax.shard_map(attention_of, mesh=mesh, in_specs=specs, out_specs=tensor))

        def both(*arrays, mapped=mapped):
            out, vjp = jax.vjp(mapped, *arrays)
            return out, *vjp(jnp.cos(out))

        for mine, whole in zip(both(query, key, value, bias), want, strict=True):
            np.testing.assert_allclose(mine, whole, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(mapped(query, key, value, bias), want[0])
        assert "all-gather" not in mapped.lower(query, key, value, bias).compile().as_text()


def attention_of(*arrays):
    return attention(*arrays, is_causal=True)


def partitioned():
    """XLA's own partitioner shards the batch. If all arrays have the whole batch, only statistics are gathered. Results
    are also right with one bias for the whole batch, and with keys that vmap does not map.
    """
    of_batch = NamedSharding(mesh, PartitionSpec("x"))
    sharded = [jax.device_put(x, of_batch) for x in (query, key, value)]
    for own in ((), (jnp.concatenate([bias, bias + 1]),), (bias,)):
        given = *sharded, *own
        whole = gradients(query, key, value, *own)
        places = tuple(of_batch if x.shape[0] == 2 else NamedSharding(mesh, PartitionSpec()) for x in whole)
        compiled = jax.jit(gradients, out_shardings=places).lower(*given).compile()
        for mine, other in zip(compiled(*given), whole, strict=True):
            np.testing.assert_array_equal(mine, other)
        text = compiled.as_text()
        gathered = {shape.count(",") for shape in re.findall(r"= \w+(\[[\d,]+\])\S* all-gather\(", text)}
        shared = bool(own) and own[0] is bias
        assert "fa_attention_backward" in text and (3 in gathered) == shared, text
    queries = jnp.stack([query, query + 1])
    mapped = jax.vmap(attention_of, (0, None, None))
    got = jax.jit(mapped)(jax.device_put(queries, of_batch), key, value)
    np.testing.assert_array_equal(got, mapped(queries, key, value))


def layer(*arrays):
    return jnp.tanh(attention_of(*arrays)).sum((0, 1)) @ jnp.ones((query.shape[-1], 3))


def propagated():
    """Results have the shards of the arrays, even if the function does not say so."""
    of_batch = NamedSharding(mesh, PartitionSpec("x"))
    given = [jax.device_put(x, of_batch) for x in (query, key, value)]
    for function in (jax.jit(gradients), jax.jit(jax.grad(lambda *x: layer(*x).sum(), (0, 1, 2)))):
        compiled = function.lower(*given).compile()
        assert not re.search(r"= \w+\[\d+,\d+,\d+,\d+\]\S* all-gather\(", compiled.as_text())
        for mine, whole in zip(compiled(*given), function(query, key, value), strict=True):
            assert mine.sharding.spec[:1] == ("x",)
            np.testing.assert_allclose(mine, whole, rtol=1e-6, atol=1e-6)


def explicit():
    """Meshes of jax.make_mesh are explicit. Results have the same specs as jax.nn's results."""
    own = jax.make_mesh((2,), ("x",))

    def check(both, specs, in_context, jit):
        given = [jax.device_put(x, NamedSharding(own, s)) for x, s in zip((query, key, value, bias), specs, strict=True)]
        with jax.set_mesh(own) if in_context else contextlib.nullcontext():
            got = (jax.jit(both) if jit else both)(*given)
        for mine, whole, spec in zip(got, gradients(query, key, value, bias), (specs[0], *specs), strict=True):
            assert mine.sharding.is_equivalent_to(NamedSharding(own, spec), 4), (mine.sharding, spec)
            np.testing.assert_allclose(mine, whole, rtol=1e-5, atol=1e-5)

    batch, heads = PartitionSpec("x"), PartitionSpec(None, None, "x")
    for specs in ((*[batch] * 3, PartitionSpec()), (*[heads] * 3, PartitionSpec(None, "x"))):
        for in_context in (False, True):
            for jit in (False, True):
                check(gradients, specs, in_context, jit)


def explicit_beside_manual():
    """Heads lie on an explicit axis inside a shard_map over another axis."""
    own = jax.make_mesh((1, 2), ("x", "y"))
    batch = PartitionSpec("x")
    mapped = jax.shard_map(gradients, mesh=own, in_specs=(batch,) * 3, out_specs=(batch,) * 4, axis_names={"x"})
    places = NamedSharding(own, PartitionSpec("x", None, "y"))
    with jax.set_mesh(own):
        got = jax.jit(mapped)(*(jax.device_put(x, places) for x in (query, key, value)))
    for mine, whole in zip(got, gradients(query, key, value), strict=True):
        assert mine.sharding.is_equivalent_to(places, 4)
        np.testing.assert_allclose(mine, whole, rtol=1e-5, atol=1e-5)


PROGRAMS = (shard_map, partitioned, propagated, explicit, explicit_beside_manual)

if __name__ == "__main__":
    assert len(jax.devices()) == 2
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]]()
    print("ok")
