"""Attention over two devices: argument `shard_map` or `partitioned`. Prints ok."""

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
    """Batch and heads. The bias is the same on both devices, so its gradient is their sum."""
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
    """Shards of the batch, by XLA's own partitioning. If all arrays have the whole batch, only statistics are gathered. A
    bias that all share, and a key that vmap does not map, stay right."""
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


if __name__ == "__main__":
    assert len(jax.devices()) == 2
    {"shard_map": shard_map, "partitioned": partitioned}[sys.argv[1]]()
    print("ok")
