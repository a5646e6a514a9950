"""fa.jax.dot_product_attention computes what jax.nn computes, rule by rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from jax_cases import CALLS, B, Call, H, K, N, S, T, check, exact_gradients_of, exact_of, inputs, keep, lengths, random

import fa.jax

FLOAT32_MAX = np.finfo(np.float32).max
attention = fa.jax.dot_product_attention


def ours(function, *arguments):
    """Compiles and runs the function. Fails if the compiled program does not call fa."""
    compiled = jax.jit(function).lower(*arguments).compile()
    assert "fa_attention" in compiled.as_text()
    return compiled(*arguments)


@pytest.mark.parametrize("name", CALLS)
def test_forward_and_gradients(name):
    call = CALLS[name]
    dtype = call.arrays[0].dtype
    d_out = random(*call.arrays[0].shape, seed=9, dtype=dtype)
    by_jax = (lambda f: f) if dtype == jnp.float16 else jax.jit  # jax.nn does not compile float16 on CPUs

    def both(function):
        def run(d_out, *arrays):
            out, vjp = jax.vjp(lambda *x: call.run(function, *x), *arrays)
            return out, *vjp(d_out)

        return run

    got = ours(both(attention), d_out, *call.arrays)
    jaxs = by_jax(both(jax.nn.dot_product_attention))(d_out, *call.arrays)
    want = exact_of(call, call.arrays)[0], *exact_gradients_of(call, d_out)
    for number, result in enumerate(zip(got, jaxs, want, strict=True)):
        check(*result, times=2 if number == 0 else 3)


RESIDUALS = ["one sequence", "causal window", "lengths", "rows without keys", "bias, lengths, window, mask"]
RESIDUALS += ["bfloat16, rows without keys", "float16", "bias (2, 4, 37, 1)", "mask and bias of rows, lengths"]
RESIDUALS += ["bfloat16, mask and bias of rows", "mask of rows, window without keys"]


@pytest.mark.parametrize("name", RESIDUALS)
def test_residual(name):
    call = CALLS[name]
    out, got = ours(lambda *x: call.run(attention, *x, return_residual=True), *call.arrays)
    _, jaxs = call.run(jax.nn.dot_product_attention, return_residual=True)
    assert (out == call.run(attention)).all()
    want = exact_of(call, call.arrays)[1]
    assert got.shape == jaxs.shape and got.dtype == jaxs.dtype
    without_keys = want < -1e38
    assert (np.asarray(got)[without_keys] == np.asarray(jaxs)[without_keys]).all()
    rest = np.where(without_keys, 0, want)
    check(*(jnp.where(without_keys, 0, x) for x in (got, jaxs)), rest)


def test_the_residual_has_no_gradient():
    call = CALLS["causal"]

    def residual(*arrays):
        return call.run(attention, *arrays, return_residual=True)[1].sum()

    assert all((x == 0).all() for x in jax.grad(residual, (0, 1, 2))(*call.arrays))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_rows_without_keys_are_the_mean_of_the_values(dtype):
    query, key, value = inputs(dtype)
    mask = jnp.ones((query.shape[1], key.shape[1]), bool).at[4].set(False)
    out = attention(query, key, value, mask=mask)
    mean = np.asarray(value, np.float64).mean(1).repeat(2, 1)
    np.testing.assert_array_equal(np.asarray(out[:, 4]), np.asarray(jnp.asarray(mean.astype(np.float32), dtype)))
    residual = attention(query, key, value, mask=mask, return_residual=True)[1]
    assert (residual[:, 4] == jnp.asarray(-0.7 * FLOAT32_MAX, jnp.float32).astype(dtype)).all()


@pytest.mark.parametrize("lowest", [-FLOAT32_MAX, -np.inf])
def test_a_visible_key_never_loses_against_a_hidden_one(lowest):
    """In jax.nn, a hidden key has a finite score, which is higher than the score of a visible key with such a bias."""
    query, key, value = inputs(rows=8, keys=8)
    bias = jnp.zeros((1, 1, 1, 8)).at[..., :3].set(lowest)
    out, vjp = jax.vjp(lambda *x: attention(*x, bias, is_causal=True), query, key, value)
    wide = [np.asarray(x, np.float64) for x in (query, key.repeat(2, 2), value.repeat(2, 2))]
    scores = np.einsum("btnh,bsnh->bnts", *wide[:2]) * H**-0.5 + np.asarray(bias, np.float64)
    scores = np.where(np.tri(8, dtype=bool), scores, -np.inf)
    scores = np.where((scores == -np.inf).all(-1, keepdims=True), 0, scores)  # the mean of all values
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), wide[2])
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    assert all(jnp.isfinite(x).all() for x in vjp(jnp.ones_like(out)))


@pytest.mark.parametrize("name", ["plain", "bias, lengths, window, mask", "bias (1, 4, 37, 53)"])
def test_gradients_on_other_platforms(name):
    call = CALLS[name]
    names = ["mask", "query_seq_lengths", "key_value_seq_lengths"]
    arrays = *call.arrays, *[None] * (4 - len(call.arrays)), *map(call.keywords.get, names)
    rule = fa.jax._rule_of(H, None, False, call.keywords.get("local_window_size"))
    out, vjp = jax.vjp(lambda *x: call.run(jax.nn.dot_product_attention, *x), *call.arrays)
    got = fa.jax._backward_by_jax(rule, len(call.arrays) == 4, arrays, (), out)
    for mine, jaxs in zip(got, vjp(out), strict=True):
        np.testing.assert_allclose(mine, jaxs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_values_per_row_on_other_platforms(dtype, monkeypatch):
    """jax.nn gets biases and masks with S = 1 as they are."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *given, default, **_: default(*given))
    bias = random(B, 1, T, 1, dtype=dtype).at[:, :, :4, 0].set(jnp.array([-jnp.inf, jnp.inf, jnp.nan, -3e38], dtype))
    mask, of = keep(B, N, T, 2)[..., 1:], {"local_window_size": (-2, 6)}
    given = *inputs(dtype), bias, mask
    rule = fa.jax._rule_of(H, None, False, of["local_window_size"])
    got = fa.jax._attend.__wrapped__(rule, *given, None, None)
    for mine, jaxs in zip(got, jax.nn.dot_product_attention(*given, **of, return_residual=True), strict=True):
        np.testing.assert_array_equal(np.asarray(mine, np.float32), np.asarray(jaxs, np.float32))


def test_nan_behind_lengths_of_keys_reaches_no_row():
    query, key, value = inputs()
    seen = jnp.ones((B, 1, T, 1), bool).at[:, :, 30:].set(False)
    of = {"query_seq_lengths": lengths(30, 30), "key_value_seq_lengths": lengths(20, 20), "mask": seen}
    out = attention(query, key, value.at[:, 20:].set(jnp.nan), **of)
    assert jnp.isfinite(out).all() and (out[:, 30:] == 0).all()


def test_nan_behind_lengths_and_masks_reaches_no_result():
    query, key, value = inputs()
    key, value, query = key.at[:, 20:].set(jnp.nan), value.at[:, 20:].set(jnp.nan), query.at[:, 30:].set(jnp.nan)
    of = {"query_seq_lengths": lengths(30, 30), "key_value_seq_lengths": lengths(20, 20)}
    out, vjp = jax.vjp(lambda *x: attention(*x, **of), query, key, value)
    dq, dk, dv = vjp(random(*out.shape))
    assert all(jnp.isfinite(x).all() for x in (out, dq, dk, dv))
    assert (out[:, 30:] == 0).all() and (dq[:, 30:] == 0).all() and (dk[:, 20:] == 0).all() and (dv[:, 20:] == 0).all()


def test_infinities_and_nan_of_a_bias_per_row():
    query, key, value = inputs()
    bias = random(1, 1, T, 1).at[0, 0, 3].set(-jnp.inf).at[0, 0, 7].set(jnp.nan).at[0, 0, 11].set(jnp.inf)
    hidden = query.at[:, 3].set(jnp.nan)  # a row without keys is not read
    out, vjp = jax.vjp(lambda *x: attention(*x, bias), hidden, key, value)
    means = jnp.repeat(value.mean(1), N // K, 1)
    # A mean of S values has S roundings, in either order, of a sum that is at most S times the largest value.
    np.testing.assert_allclose(out[:, 3], means, rtol=0, atol=2 * S * 2**-24 * float(jnp.abs(value).max()))
    dq = vjp(random(*out.shape))[0]
    for result, empty in ((out, []), (dq, [3])):
        rows = jnp.isnan(result).any((0, 2, 3))
        assert jnp.flatnonzero(rows).tolist() == [7, 11] and (result[:, empty] == 0).all()


@pytest.mark.parametrize("name", ["plain", "causal", "window", "rows without keys", "bias (1, 1, 1, 53)"])
def test_check_grads(name):
    call = CALLS[name]
    check_grads(lambda *x: call.run(attention, *x), call.arrays, order=1, modes=["rev"], rtol=2e-2, atol=2e-2)


def _rows_of_lengths():
    """Returns the causal mask of two batch elements with 20 and 37 rows in use, and with 53 and 11 keys."""
    rows = np.arange(T)
    ends = [np.where(rows < used, np.minimum(rows + 1, keys), rows - T - S) for used, keys in ((20, S), (37, 11))]
    return fa.Mask.rows(np.tile(rows - T - S, B), np.concatenate(ends))


# The keywords of fa.jax and those of fa.flash_attention.
SAME_CALLS = {
    "causal": ({"is_causal": True}, {"mask": fa.Mask.causal_top_left()}),
    "window": ({"local_window_size": (7, 3)}, {"mask": fa.Mask.band_top_left(7, 3)}),
    "mask": ({"mask": keep(B, 1, T, S)}, {"dense_mask": ~np.asarray(keep(B, 1, T, S))}),
    "lengths": (
        {"query_seq_lengths": lengths(20, 37), "key_value_seq_lengths": lengths(S, 11), "is_causal": True},
        {"mask": _rows_of_lengths()},
    ),
    "bias": ({}, {"pse_type": 0}),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", SAME_CALLS)
def test_the_bits_are_those_of_other_calls(name, dtype):
    keywords, of = SAME_CALLS[name]
    arrays = inputs(dtype) + ((random(B, N, T, S, dtype=dtype),) if name == "bias" else ())
    if dtype == jnp.bfloat16:
        torch = pytest.importorskip("torch", reason="fa.flash_attention takes bfloat16 from PyTorch only")
        query, key, value, *bias = (torch.tensor(np.asarray(x, np.float32)).bfloat16() for x in arrays)
    else:
        query, key, value, *bias = (np.asarray(x) for x in arrays)
    of = {"layout": "BSND", "scale": H**-0.5} | of | ({"pse": bias[0]} if bias else {})
    out, softmax_max, softmax_sum = fa.flash_attention(query, key, value, **of)
    grads = fa.flash_attention_grad(
        query, key, value, out, out, softmax_max, softmax_sum, need_dpse=bool(bias), **of
    )
    got, vjp = jax.vjp(lambda *x: attention(*x, **keywords), *arrays)
    want = (out, grads.dq, grads.dk, grads.dv) + ((grads.dpse,) if bias else ())
    for mine, other in zip((got, *vjp(got)), want, strict=True):
        other = np.asarray(other.float() if dtype == jnp.bfloat16 else other, np.float32)
        np.testing.assert_array_equal(np.asarray(mine, np.float32), other)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.int32, jnp.float8_e4m3fn])
def test_other_types_are_jaxs(dtype):
    with jax.enable_x64(True):
        call = Call(tuple(jnp.asarray(x * 4, dtype) for x in inputs(rows=5, keys=7)))
        try:
            want = call.run(jax.nn.dot_product_attention)
        except Exception as error:
            with pytest.raises(type(error)):
                call.run(attention)
            return
        assert "fa_attention" not in jax.jit(attention).lower(*call.arrays).as_text()
        got = call.run(attention)
        assert got.dtype == want.dtype and (got == want).all()


def test_arrays_without_dimensions_are_jaxs():
    one = jnp.float32(0.5)
    np.testing.assert_array_equal(attention(one, one, one, scale=1.0), jax.nn.dot_product_attention(one, one, one, scale=1.0))


@pytest.mark.parametrize("shape", [(0, 4, 2, 8), (2, 0, 2, 8), (2, 4, 0, 8)])
def test_empty_arrays_are_jaxs(shape):
    query, key = jnp.ones(shape), jnp.ones((shape[0], 3, 1, 8))
    assert attention(query, key, key).shape == jax.nn.dot_product_attention(query, key, key).shape


def test_a_traced_scale_is_jaxs():
    call = CALLS["plain"]
    got = jax.jit(lambda s: call.run(attention, scale=s))(0.3)
    np.testing.assert_array_equal(got, jax.jit(lambda s: call.run(jax.nn.dot_product_attention, scale=s))(0.3))
    held = call.run(attention, scale=jnp.float32(0.3))  # unlike a traced scale, this one has a known value
    np.testing.assert_array_equal(held, call.run(attention, scale=float(np.float32(0.3))))
