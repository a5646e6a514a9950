"""How programs reach fa.jax, and the errors that they get."""

import inspect
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import inputs, lengths

import fa.jax
from fa import _xla

attention, jaxs = fa.jax.dot_product_attention, jax.nn.dot_product_attention
Q, K, V = inputs()


def test_the_signature_is_jaxs():
    mine, theirs = (inspect.signature(f).parameters.values() for f in (attention, jaxs))
    assert [(p.name, p.kind, p.default) for p in mine] == [(p.name, p.kind, p.default) for p in theirs]


WRONG = {
    "query of five dimensions": ((Q[None], K, V), {}),
    "value of another shape": ((Q, K, V[:, 1:]), {}),
    "value of another type": ((Q, K, V.astype(jnp.bfloat16)), {}),
    "query of another type": ((Q.astype(jnp.bfloat16), K, V), {}),
    "query of another batch": ((Q[:1], K, V), {}),
    "heads": ((Q[:, :, :3], K, V), {}),
    "size of heads": ((Q[..., 1:], K, V), {}),
    "mask of floats": ((Q, K, V, None, jnp.ones((1, 1, 1, 1))), {}),
    "mask of another shape": ((Q, K, V, None, jnp.ones((1, 1, 1, 7), bool)), {}),
    "bias of another shape": ((Q, K, V, jnp.ones((3, 1, 1, 1))), {}),
    "bias of five dimensions": ((Q, K, V, jnp.ones((1, 1, 1, 1, 1))), {}),
    "bias of keys": ((Q, K, V, jax.random.key(0).reshape(1, 1, 1, 1)), {}),
    "bias of eight bits": ((Q, K, V, jnp.ones((1, 1, 1, 1), jnp.float8_e5m2)), {}),
    "lengths of another type": ((Q, K, V), {"query_seq_lengths": jnp.ones(2, jnp.float32)}),
    "lengths of another size": ((Q, K, V), {"key_value_seq_lengths": lengths(1, 2, 3)}),
    "implementation": ((Q, K, V), {"implementation": "pallas"}),
    "window": ((Q, K, V), {"local_window_size": (1, 2, 3)}),
    "scale": ((Q, K, V), {"scale": "large"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_jaxs(name):
    arrays, keywords = WRONG[name]
    with pytest.raises(Exception) as wanted:
        jaxs(*arrays, **keywords)
    with pytest.raises(type(wanted.value)) as got:
        attention(*arrays, **keywords)
    assert str(got.value) == str(wanted.value)


def targets(function, *arrays):
    return "fa_attention" in jax.jit(function).lower(*arrays).as_text()


@pytest.mark.parametrize("implementation, own", [(None, True), ("fa", True), ("xla", False)])
def test_implementation(implementation, own):
    assert targets(lambda *x: attention(*x, implementation=implementation), Q, K, V) == own


def test_replace_nests():
    with fa.jax.replace_dot_product_attention():
        with fa.jax.replace_dot_product_attention():
            assert jax.nn.dot_product_attention is attention
        assert targets(lambda *x: jax.nn.dot_product_attention(*x), Q, K, V)
        assert not targets(lambda *x: jax.nn.dot_product_attention(*x, implementation="xla"), Q, K, V)
        np.testing.assert_array_equal(attention(Q, K, V, implementation="xla"), jaxs(Q, K, V))
    assert jax.nn.dot_product_attention is jaxs


def test_what_was_jitted_before_stays():
    def layer(*x):
        return jax.nn.dot_product_attention(*x)

    before = jax.jit(layer)
    want = before(Q, K, V)
    with fa.jax.replace_dot_product_attention():
        np.testing.assert_array_equal(before(Q, K, V), want)


def test_install():
    fa.jax.uninstall()
    fa.jax.install()
    fa.jax.install()
    assert jax.nn.dot_product_attention is attention
    with fa.jax.replace_dot_product_attention():
        fa.jax.uninstall()
        assert jax.nn.dot_product_attention is attention
    assert jax.nn.dot_product_attention is jaxs


def test_a_function_that_others_put_there_stays(monkeypatch):
    monkeypatch.setattr(jax.nn, "dot_product_attention", jaxs)  # restores it, too
    with fa.jax.replace_dot_product_attention():
        jax.nn.dot_product_attention = other = lambda *x: None
    assert jax.nn.dot_product_attention is other


def test_many_threads():
    layer = jax.jit(attention)
    want, got = layer(Q, K, V), []
    threads = [threading.Thread(target=lambda: got.append(layer(Q, K, V))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4 and all((x == want).all() for x in got)


ATTRIBUTES = {
    "version": np.int64(_xla.CALL_VERSION),
    "written_by": "9.9",
    "scale": np.float32(1),
    "left": np.int64(9),
    "right": np.int64(9),
    **dict.fromkeys(["bias", "mask", "query_seq_lengths", "key_value_seq_lengths"], False),
}


STATISTIC = jax.ShapeDtypeStruct((*Q.shape[:1], Q.shape[2], Q.shape[1]), jnp.float32)
RESULTS = (jax.ShapeDtypeStruct(Q.shape, Q.dtype), STATISTIC, STATISTIC)


def raw_call(*arrays, results=RESULTS, target=fa.jax.FORWARD, **attributes):
    return jax.ffi.ffi_call(target, results)(*arrays, **attributes)[0].block_until_ready()


ROWS_KEYS = (Q.shape[1], K.shape[1])

CONTENTS = {
    "another version": ((Q, K, V), {"version": np.int64(7)}, "version=7 of the call, which fa 9.9 wrote, want 1"),
    "no attribute": ((Q, K, V), {"mask": None}, "mask: missing among the call's attributes"),
    "no operand": ((Q, K), {}, "value: missing"),
    "one operand too many": ((Q, K, V, V), {}, "4 operands and 3 results, want 3 and 3"),
    "an operand of another type": ((Q, K.astype(jnp.int8), V), {}, "key: missing, or of another type"),
    "an operand of another shape": ((Q, K[:, 1:], V), {}, "v.shape"),
    "key and value of another batch": ((Q, K[:1], V[:1].repeat(3, 0)), {}, "the batch or an axis of vmap"),
    "results of another batch": ((Q[:1], K[:1], V[:1]), {}, "the batch or an axis of vmap"),
    "lengths of another batch": ((Q, K, V, lengths(1, 2, 3)), {"key_value_seq_lengths": True}, "the batch or an axis"),
    "a bias of other heads": ((Q, K, V, jnp.ones((1, 3, *ROWS_KEYS))), {"bias": True}, "pse"),
    "an attribute too many": ((Q, K, V), {"softcap": np.float32(1)}, "10 attributes, want 9"),
    "a scale": ((Q, K, V), {"scale": np.float32("nan")}, "scale"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_calls_with_bad_contents_are_errors_of_the_runtime(name):
    arrays, changed, message = CONTENTS[name]
    attributes = {key: value for key, value in (ATTRIBUTES | changed).items() if value is not None}
    raw_call(Q, K, V, **ATTRIBUTES)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        raw_call(*arrays, **attributes)


def test_axes_of_vmap_of_other_sizes():
    results = tuple(jax.ShapeDtypeStruct((3, *x.shape), x.dtype) for x in RESULTS)
    raw_call(*(x[None].repeat(3, 0) for x in (Q, K, V)), results=results, **ATTRIBUTES)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the batch or an axis of vmap"):
        raw_call(Q[None].repeat(3, 0), K[None], V[None].repeat(2, 0), results=results, **ATTRIBUTES)


def test_a_gradient_of_a_bias_of_another_batch():
    bias, statistic = jnp.ones((Q.shape[0], Q.shape[2], *ROWS_KEYS)), jnp.ones(STATISTIC.shape)
    results = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (Q, K, V, bias[:1]))
    given = (Q, K, V, bias, Q, Q, statistic, statistic)
    with pytest.raises(jax.errors.JaxRuntimeError, match="dpse"):
        raw_call(*given, results=results, target=fa.jax.BACKWARD, **(ATTRIBUTES | {"bias": True}))


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("program", ["import fa.jax", "import fa; print(hasattr(fa, 'jax')); fa.jax"])
def test_without_jax(program):
    done = run("import sys; sys.modules['jax'] = None; " + program)
    hint = "this part of fa needs jax, which is not installed: pip install 'fa-attention[jax]'"
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith("Error: " + hint)


def test_without_the_extension():
    done = run("import sys; sys.modules['fa._xla'] = None; import fa.jax")
    assert "ModuleNotFoundError: this fa was built without jaxlib's headers" in done.stderr


def test_fa_imports_no_jax():
    done = run("import sys, fa; assert 'jax' not in sys.modules; print(fa.jax.__name__)")
    assert done.stdout == "fa.jax\n", done.stderr
