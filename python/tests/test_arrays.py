"""Forms of each array argument of each function: strides, memory order, types, and arrays without elements."""

import numpy as np
import pytest
import torch
from array_calls import ARGUMENTS, CALLS, run
from torch.autograd import forward_ad

import fa


def backwards(array):
    axes = tuple(range(array.ndim))
    return np.flip(np.ascontiguousarray(np.flip(array, axes)), axes)


def every_second(array):
    return np.repeat(array, 2, -1)[..., ::2]


def unaligned(array):
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    view = memory.view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def broadcast(array):
    """Returns an array that repeats one element of `array` by strides of 0, and a plain copy of that array."""
    row = array[(0,) * array.ndim]
    view = np.broadcast_to(row, array.shape)
    return view, view.copy()


@pytest.mark.parametrize("view", [backwards, every_second, unaligned, read_only])
@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_memory_does_not_change_bits(name, argument, view):
    array = CALLS[name][0][argument]
    viewed = view(array)
    assert np.array_equal(viewed, array)
    for got, want in zip(run(name, **{argument: viewed}), run(name), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_an_element_that_is_broadcast_is_every_element(name, argument):
    view, plain = broadcast(CALLS[name][0][argument])
    for got, want in zip(run(name, **{argument: view}), run(name, **{argument: plain}), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("make", [
    pytest.param(lambda a: a.astype(a.dtype.newbyteorder()) if a.itemsize > 1 else a.astype(">i4"), id="other endian"),
    pytest.param(lambda a: a.astype(np.complex64), id="complex"),
    pytest.param(lambda a: a.astype(object), id="objects"),
    pytest.param(lambda a: a.astype(str), id="strings"),
    pytest.param(lambda a: np.zeros(a.shape, [("x", np.float32)]), id="records"),
    pytest.param(lambda a: a.tolist(), id="a list"),
    pytest.param(lambda a: 3.5, id="a number"),
])
@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_what_is_no_array_of_numbers_is_named(name, argument, make):
    with pytest.raises((TypeError, ValueError), match=said_of(argument)):
        run(name, **{argument: make(CALLS[name][0][argument])})


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_the_library_names_every_argument_as_its_keyword(name, argument):
    array = CALLS[name][0][argument]
    with pytest.raises(ValueError, match=said_of(argument)):
        run(name, **{argument: array.reshape((1,) * (9 - array.ndim) + array.shape)})


def test_an_error_knows_where_it_speaks_of_arguments():
    q, k = np.zeros((1, 2, 4, 8), np.float32), np.zeros((1, 2, 4, 7), np.float32)
    with pytest.raises(ValueError, match="invalid argument") as raised:
        fa.flash_attention(q, k, k)
    words = ("invalid argument: ", "", ("k", ".shape", "[3]"), "=7, want 8 (", ("q", ".shape", "[3]"), ")")
    assert raised.value.parts == words
    assert str(raised.value) == "invalid argument: k.shape[3]=7, want 8 (q.shape[3])"


INTEGERS = (
    "dense_mask",
    "drop_mask",
    "sparse_indices",
    "cmp_indices",
    "slot_mapping",
    "source_rows",
    "block_table",
    "seq_lens",
    "seq_offset",
)
DIFFERENTIABLE = [(name, argument) for name, argument in ARGUMENTS if argument not in INTEGERS]


def as_tensors(name, argument, change):
    """Returns the arguments of a call as torch tensors, with `change` applied to one of them."""
    tensors = {a: torch.from_numpy(array.copy()) for a, array in CALLS[name][0].items()}
    return {**tensors, argument: change(tensors[argument])}


def said_of(argument):
    """Returns a pattern for the beginning of an error message about this argument."""
    return rf"^(invalid argument: )?{argument}\b"


@pytest.mark.parametrize(("name", "argument"), DIFFERENTIABLE)
def test_a_derivative_that_would_be_lost_is_refused(name, argument):
    inputs = as_tensors(name, argument, lambda t: t.requires_grad_())
    with pytest.raises(ValueError, match=said_of(argument) + ": requires a gradient"):
        run(name, **inputs)
    with torch.no_grad():
        assert not any(getattr(result, "requires_grad", False) for result in run(name, **inputs))
    with forward_ad.dual_level():
        inputs = as_tensors(name, argument, lambda t: forward_ad.make_dual(t, torch.ones_like(t)))
        with pytest.raises(ValueError, match=said_of(argument) + ": has a tangent"):
            run(name, **inputs)


def dense_pair(q, kv, **keywords):
    """Returns the output, statistics and gradients of a dense call on zeros."""
    inputs = np.zeros(q, np.float32), *(np.zeros(kv, np.float32) for _ in range(2))
    forward = fa.flash_attention(*inputs, **keywords)
    gradients = fa.flash_attention_grad(*inputs, forward.out, forward.out, *forward[1:], **keywords)
    renamed = {name.replace("cu_", "lengths_"): value for name, value in keywords.items()}
    prompt = fa.prompt_flash_attention(*inputs, **renamed)
    return [*forward, *gradients[:3], prompt], [q, q[:-1], q[:-1], q, kv, kv, q]


@pytest.mark.parametrize(("q", "kv", "keywords"), [
    pytest.param((2, 4, 0, 8), (2, 2, 3, 8), {}, id="no queries"),
    pytest.param((2, 4, 3, 8), (2, 2, 0, 8), {}, id="no keys"),
    pytest.param((0, 4, 3, 8), (0, 2, 5, 8), {}, id="no batch"),
    pytest.param((0, 4, 8), (0, 2, 8), {"layout": "TND", "cu_q": [0, 0], "cu_kv": [0, 0]}, id="no tokens"),
    pytest.param((0, 4, 8), (3, 2, 8), {"layout": "TND", "cu_q": [0], "cu_kv": [3]}, id="no query tokens"),
])
def test_dense_calls_without_elements_are_computed(q, kv, keywords):
    results, shapes = dense_pair(q, kv, **keywords)
    assert [result.shape for result in results] == shapes
    for result in results:
        assert np.array_equal(result, np.zeros_like(result))


@pytest.mark.parametrize(("batch", "s1", "s2"), [(2, 0, 9), (2, 5, 0), (0, 5, 9)])
def test_sparse_calls_without_elements_are_computed(batch, s1, s2):
    q, k = np.zeros((batch, s1, 4, 8), np.float32), np.zeros((batch, s2, 1, 8), np.float32)
    weights = np.zeros((batch, s1, 4), np.float32)
    indices = np.full((batch, s1, 1, 6), -1, np.int32)
    forward = fa.sparse_flash_attention(q, k, k, indices)
    gradients = fa.sparse_flash_attention_grad(q, k, k, indices, forward.out, forward.out, *forward[1:3])
    found, values = fa.lightning_indexer(q, k, weights, sparse_count=6)
    index_gradients = fa.lightning_indexer_grad(q, k, weights, found, np.zeros_like(values))
    loss = fa.sparse_lightning_indexer_grad_kl_loss(q, k, q, k, weights, indices, *forward[1:3])
    rows = fa.dense_lightning_indexer_softmax_lse(q, k, weights)
    dense = fa.dense_lightning_indexer_grad_kl_loss(q, k, q, k, weights, *forward[1:3], *rows)
    assert np.array_equal(found, indices) and np.array_equal(values, np.full(values.shape, -np.inf))
    for result in [*forward[:3], *gradients[:3], *index_gradients, *loss, *dense]:
        assert np.array_equal(result, np.zeros_like(result))


def test_partials_without_elements_are_merged():
    out, statistics = np.zeros((2, 4, 0, 8), np.float32), np.zeros((2, 4, 0), np.float32)
    merged = fa.ring_attention_update(*[out, statistics, statistics] * 2, layout="BNSD")
    assert [part.shape for part in merged] == [out.shape, statistics.shape, statistics.shape]


HUGE = 2**59


@pytest.mark.parametrize(("shape", "message"), [
    ((1, 1, HUGE, 8), "2\\^60 elements"),
    ((1, 2, 4, 2**40), "shape\\[3\\]"),
    ((2**40, 2, 4, 8), "shape\\[0\\]"),
    ((1, 2**40 + 1, 4, 8), "shape\\[1\\]"),
])
@pytest.mark.parametrize("argument", ["q", "k", "v"])
def test_a_shape_is_judged_before_its_memory_is_copied(argument, shape, message):
    inputs = dict.fromkeys("qkv", torch.zeros(1, 2, 4, 8))
    with pytest.raises(ValueError, match=message):
        fa.flash_attention(**{**inputs, argument: torch.zeros(1, 1, 1, 1).expand(shape)})
    forward = fa.flash_attention(**inputs)
    with pytest.raises(ValueError, match=message):
        fa.flash_attention_grad(
            **{**inputs, argument: torch.zeros(1, 1, 1, 1).expand(shape)}, **forward._asdict(), d_out=forward.out
        )


@pytest.mark.parametrize("argument", ["query_rope", "key_rope", "pse", "dense_mask", "drop_mask", "sink"])
def test_a_bias_is_judged_before_its_memory_is_copied(argument):
    inputs = dict.fromkeys("qkv", torch.zeros(1, 1, 4, 8))
    kind = torch.uint8 if argument.endswith("mask") else torch.float32
    with pytest.raises(ValueError, match=argument):
        fa.flash_attention(**inputs, **{argument: torch.zeros(1, 1, 1, 1, dtype=kind).expand(1, 1, HUGE, 8)})


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_an_innermost_dimension_of_2_to_the_45_is_refused(name, argument):
    if (name, argument) == ("gather_rows", "block_table"):
        return  # a table may have any number of columns
    array = CALLS[name][0][argument]
    changed = {a: torch.from_numpy(array) for a, array in CALLS[name][0].items()}
    changed[argument] = torch.from_numpy(array)[(0,) * array.ndim].expand(*array.shape[:-1], 2**45)
    # Arguments that may have any size, such as lists or masks wider than the keys, are refused for lack of memory.
    with pytest.raises((ValueError, MemoryError), match="want|out of memory"):
        run(name, **changed)


def test_what_no_memory_can_hold_is_out_of_memory():
    q, kv = torch.zeros(1, 1, 1, 1).expand(1, 1, 2**45, 8), torch.zeros(1, 1, 4, 8)
    with pytest.raises(MemoryError, match="out of memory"):
        fa.flash_attention(q, kv, kv)
    with pytest.raises(MemoryError, match="out of memory: the plan: [0-9]+ bytes of workspace"):
        fa.lightning_indexer(*(np.zeros((1, 3, 1, 8), np.float32),) * 2, np.zeros((1, 3, 1), np.float32),
                             sparse_count=2**50)
    with pytest.raises(ValueError, match=r"^invalid argument: v\.shape\[2\]=3"):
        fa.flash_attention(q, kv, kv[:, :, :3])


@pytest.mark.parametrize(("lengths", "error"), [([1.5], TypeError), (["3"], TypeError), ([2**63], ValueError)])
def test_lengths_that_are_no_integers_of_64_bits_are_named(lengths, error):
    q = np.zeros((3, 1, 8), np.float32)
    with pytest.raises(error, match="cu_q"):
        fa.flash_attention(q, q, q, layout="TND", cu_q=lengths, cu_kv=[3])


def test_gradients_are_of_the_kind_of_the_first_array():
    q, k, v = (torch.randn(1, 2, 3, 8) for _ in range(3))
    mixed = q.numpy(), k, v
    forward = fa.flash_attention(*mixed)
    got = fa.flash_attention_grad(*mixed, forward.out, forward.out, *forward[1:])
    want = fa.flash_attention_grad(q, k, v, *(torch.from_numpy(forward[i]) for i in (0, 0, 1, 2)))
    for g, w in zip(got[:3], want[:3], strict=True):
        assert isinstance(g, np.ndarray) and np.array_equal(g, w.numpy())
