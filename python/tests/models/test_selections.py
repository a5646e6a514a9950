"""Lists of keys or of blocks that a model selects, and sinks per row, compared with a naive float64 computation."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hf_models import reference_attention
from torch import Tensor

from fa._model import ops
from fa._model.ops import ModelCall, attention_of_layer
from fa.transformers import attention_forward, mask_of_model

BLOCK = 8
HEADS, HEADS_KV, SIZE, SIZE_V = 4, 2, 16, 24
# (rows, keys, listed keys). In the second, third, fourth and seventh case, fa reads the listed keys alone.
SIZES = [(40, 40, 8), (1, 100, 20), (3, 200, 10), (16, 1100, 16), (16, 100, 60), (300, 333, 200), (9, 50, 0), (0, 50, 5)]


def _module() -> SimpleNamespace:
    return SimpleNamespace(indexer=SimpleNamespace(block_size=BLOCK), is_causal=True)


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _uniform(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def _chosen(number: int, of: int, *shape: int) -> Tensor:
    """Returns [*shape, number] with distinct random integers below `of` in the last dimension."""
    return _uniform(4, *shape, of).argsort(-1)[..., :number]


def _tensors(rows: int, keys: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (HEADS, rows, SIZE), (HEADS_KV, keys, SIZE), (HEADS_KV, keys, SIZE_V)
    return tuple(_random(seed, 2, *shape).to(dtype).requires_grad_() for seed, shape in enumerate(shapes))


def _lists(kind: str, rows: int, keys: int, listed: int) -> dict[str, Tensor]:
    if kind == "indices":
        return {"indices": _chosen(listed, keys, 2, rows).int()}
    blocks = -(-keys // BLOCK)
    lists = _chosen(min(-(-listed // BLOCK), blocks), blocks, 2, HEADS_KV, rows)
    return {"block_indices": lists.masked_fill(_uniform(5, *lists.shape) < 0.2, -1)}


def _last_rows_of_a_causal_mask(rows: int, keys: int) -> Tensor:
    return mask_of_model(2, rows, keys, q_offset=keys - rows, allow_is_causal_skip=False)


def _check(got: Tensor, want: Tensor, times: float = 1.0) -> None:
    """Compares float32 results with float64 results. Float32 sums of a few hundred products have a relative error below
    1e-5.
    """
    assert got.shape == want.shape
    if want.numel():
        assert (got.double() - want).abs().max() <= times * 1e-5 * want.abs().max()


def _run(function, tensors, *arguments, **keywords) -> tuple[Tensor, tuple[Tensor, ...]]:
    out = function(_module(), *tensors[:3], *arguments, scaling=0.3, **keywords)[0]
    return out, torch.autograd.grad(out, tensors, _random(9, *out.shape).to(out.dtype))


def _check_run(tensors, mask, wanted_mask, added="position_bias", **keywords) -> None:
    """Compares the results with and without gradients, and the gradients of query, key and value. A fourth tensor is
    the argument `added`, whose gradient is compared too."""
    exact = [t.detach().double().requires_grad_() for t in tensors]
    want, wanted_gradients = _run(reference_attention, exact, wanted_mask, **keywords | {added: t for t in exact[3:]})
    keywords |= {added: t for t in tensors[3:]}
    out, gradients = _run(attention_forward, tensors, mask, **keywords)
    with torch.no_grad():
        inference = attention_forward(_module(), *tensors[:3], mask, scaling=0.3, **keywords)[0]
    _check(out, want)
    _check(inference, want)
    for got, wanted in zip(gradients, wanted_gradients, strict=True):
        _check(got, wanted, times=3)


@pytest.mark.parametrize("kind", ["indices", "block_indices"])
@pytest.mark.parametrize(("rows", "keys", "listed"), SIZES)
def test_rows_look_at_listed_keys_that_the_mask_keeps(kind, rows, keys, listed):
    mask = _last_rows_of_a_causal_mask(rows, keys)
    _check_run(_tensors(rows, keys), mask, mask.scores() == 0, **_lists(kind, rows, keys, listed))


@pytest.mark.parametrize("kind", ["indices", "block_indices"])
@pytest.mark.parametrize(("rows", "keys", "listed"), [SIZES[0], SIZES[2]])
@pytest.mark.parametrize("heads", [1, HEADS])
def test_masks_and_biases_in_memory_apply_to_listed_keys(kind, rows, keys, listed, heads):
    lists = _lists(kind, rows, keys, listed)
    bool_mask = _random(6, 2, heads, rows, keys) > -0.5
    _check_run(_tensors(rows, keys), bool_mask, bool_mask, **lists)
    bias = _random(7, 1, HEADS, rows, keys).requires_grad_()
    mask = _last_rows_of_a_causal_mask(rows, keys)
    _check_run((*_tensors(rows, keys), bias), mask, mask.scores() == 0, **lists)
    sinks = _random(8, HEADS).requires_grad_()
    _check_run((*_tensors(rows, keys), sinks), mask, mask.scores() == 0, "s_aux", softcap=2.0, **lists)


def test_without_a_mask_blocks_end_at_the_place_of_a_row():
    for rows, keys in ((40, 50), (1, 100), (3, 100)):
        lists = _lists("block_indices", rows, keys, 16)
        ends = torch.arange(keys - rows, keys)
        _check_run(_tensors(rows, keys), None, torch.arange(keys) <= ends[:, None], **lists)
        ends = torch.stack((ends - 20, ends - 5)).clamp(min=0)
        seen = torch.arange(keys) <= ends[:, None, :, None]
        with torch.no_grad():
            out = attention_forward(_module(), *_tensors(rows, keys), None, position_ids=ends, **lists)[0]
            exact = [t.double() for t in _tensors(rows, keys)]
            _check(out, reference_attention(_module(), *exact, seen, **lists)[0])


def test_without_a_mask_listed_keys_follow_the_causal_rule():
    lists = _lists("indices", 40, 40, 8)
    _check_run(_tensors(40, 40), None, torch.ones(40, 40, dtype=torch.bool).tril(), **lists)
    lists = _lists("indices", 1, 100, 20)
    _check_run(_tensors(1, 100), None, torch.ones(1, 100, dtype=torch.bool), **lists)


@pytest.mark.parametrize(("rows", "keys", "listed"), SIZES[:5])
def test_the_order_of_a_list_changes_no_bit_and_repetitions_nothing(rows, keys, listed):
    tensors, mask = _tensors(rows, keys), _last_rows_of_a_causal_mask(rows, keys)
    lists = _lists("indices", rows, keys, listed)["indices"]
    others = lists, lists.flip(-1), torch.cat((lists, lists[..., :2]), -1).long()
    with torch.no_grad():
        out, again, repeated = (attention_forward(_module(), *tensors, mask, indices=t)[0] for t in others)
    assert torch.equal(out, again)
    _check(repeated, out.double())


@pytest.mark.parametrize("kind", ["indices", "block_indices"])
@pytest.mark.parametrize(("rows", "keys", "listed"), [SIZES[0], SIZES[2], SIZES[5]])
def test_listed_keys_of_16_bits_are_as_exact_as_eager(kind, rows, keys, listed):
    tensors, mask = _tensors(rows, keys, torch.bfloat16), _last_rows_of_a_causal_mask(rows, keys)
    lists, seen = _lists(kind, rows, keys, listed), mask.scores() == 0
    with torch.no_grad():
        got = attention_forward(_module(), *tensors, mask, scaling=0.3, **lists)[0]
        eager = reference_attention(_module(), *tensors, seen, scaling=0.3, **lists)[0]
        exact = reference_attention(_module(), *(t.double() for t in tensors), seen, scaling=0.3, **lists)[0]
    assert (got - exact).norm() <= 2 * (eager - exact).norm()


@pytest.mark.parametrize(("rows", "listed"), [(1, 49), (1, 50), (3, 16), (3, 17)])
def test_rows_that_list_fewer_than_half_of_all_keys_read_them_in_place(rows, listed, monkeypatch):
    tensors, lists = _tensors(rows, 100), _lists("indices", rows, 100, listed)["indices"]
    calls = []

    def computed(function, inputs, *others):
        if "block_table" in inputs:
            calls.append(inputs)
        return compute(function, inputs, *others)

    compute = ops.compute
    monkeypatch.setattr(ops, "compute", computed)
    with torch.no_grad():
        attention_forward(_module(), *tensors, _last_rows_of_a_causal_mask(rows, 100), indices=lists)
    assert len(calls) == (2 if 2 * rows * listed < 100 else 0)
    for i, call in enumerate(calls):
        assert [call["k"].data_ptr(), call["v"].data_ptr()] == [t[i].data_ptr() for t in tensors[1:]]
        assert torch.equal(call["block_table"], lists[i].sort(-1).values)


def test_an_empty_batch_may_have_lists():
    tensors = [t[:0] for t in _tensors(1, 100)]
    with torch.no_grad():
        out = attention_forward(_module(), *tensors, None, indices=torch.empty(0, 1, 20, dtype=torch.int32))[0]
    assert out.shape == (0, 1, HEADS, SIZE_V)


def test_lists_for_more_groups_than_heads_of_keys():
    """Each group of query heads has its own lists, even if several groups share a key head."""
    rows, keys = 20, 30
    lists = {"block_indices": _chosen(2, -(-keys // BLOCK), 2, HEADS, rows)}
    mask = _last_rows_of_a_causal_mask(rows, keys)
    _check_run(_tensors(rows, keys), mask, mask.scores() == 0, **lists)


def test_dropout_is_the_same_backward_and_differs_per_group_of_heads():
    q, k, v = _tensors(30, 30)
    lists = torch.arange(4).expand(2, HEADS_KV, 30, 4)  # each list has all keys
    ones = torch.ones_like(v).requires_grad_()
    out = attention_forward(_module(), q.detach() * 0, k.detach(), ones, None, dropout=0.5, block_indices=lists)[0]
    # `out` is linear in the values, which are 1. So <gradient, 1> equals the sum of `out` only if backward drops the
    # same pairs.
    gradient = torch.autograd.grad(out.sum(), ones)[0]
    torch.testing.assert_close((gradient * ones).sum(), out.sum(), rtol=1e-5, atol=0)
    assert not torch.equal(out[:, :, 0], out[:, :, HEADS // HEADS_KV])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"indices": torch.full((2, 9, 3), 30)}, r"indices: an entry is 30, want 0\.\.29"),
        ({"indices": torch.full((2, 9, 3), -1)}, r"indices: an entry is -1, want 0\.\.29"),
        ({"block_indices": torch.full((2, 2, 9, 3), 4)}, r"block_indices: an entry is 4, want -1\.\.3"),
        ({"block_indices": torch.full((2, 2, 9, 3), -2)}, r"block_indices: an entry is -2, want -1\.\.3"),
        ({"indices": torch.zeros(2, 8, 3).int()}, r"indices.shape=\[2, 8, 3\], want \[2, 9, K\]"),
        ({"indices": torch.zeros(2, 9, 3)}, "indices.dtype=torch.float32, want torch.int32 or torch.int64"),
        ({"block_indices": torch.zeros(2, 3, 9, 3).long()}, r"block_indices.shape=.*, want \[2, 2, 9, K\]"),
        ({"block_indices": torch.zeros(2, 9, 3).long()}, r"block_indices.shape=.*, want \[2, 2, 9, K\]"),
        (
            {"indices": torch.zeros(2, 9, 3).int(), "block_indices": torch.zeros(2, 2, 9, 3).long()},
            "block_indices: given together with indices",
        ),
        (
            {"block_indices": torch.zeros(2, 2, 9, 3).long(), "position_ids": torch.arange(8)},
            r"position_ids.shape=\[8\], want \[2, 9\]",
        ),
        ({"sinks": torch.zeros(2, 4, 9, 1), "indices": torch.zeros(2, 9, 3).int()}, "sinks: given together with"),
        ({"sinks": torch.zeros(2, 4, 9)}, r"sinks.shape=\[2, 4, 9\], want \[2, 4, 9, 1\]"),
        (
            {"sinks": torch.zeros(2, 4, 9, 1), "s_aux": torch.zeros(1)},
            r"s_aux.shape\[0\]=1, want 4 \(query.shape\[1\]\)",
        ),
        ({"sinks": torch.zeros(2, 4, 9, 1).int()}, "sinks.dtype=torch.int32, want a floating type"),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_wrong_arguments_are_named(given, text, grad):
    with torch.set_grad_enabled(grad), pytest.raises(ValueError, match=text):
        attention_forward(_module(), *_tensors(9, 30), None, **given)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"s_aux": (8,)}, r"s_aux.shape\[0\]=8, want 4 \(query.shape\[1\]\)"),
        ({"value": (2, 4, 300, 24)}, r"value.shape\[1\]=4, want 2 \(key.shape\[1\]\)"),
        ({"value": (2, 2, 310, 24)}, r"value.shape\[2\]=310, want 300 \(key.shape\[2\]\)"),
        ({"key": (1, 2, 300, 16)}, r"key.shape\[0\]=1, want 2 \(query.shape\[0\]\)"),
        ({"value": (1, 2, 300, 24)}, r"value.shape\[0\]=1, want 2 \(query.shape\[0\]\)"),
        ({"value": (2, 2, 300)}, r"value.shape=\[2, 2, 300\], want 4 dimensions"),
    ],
)
@pytest.mark.parametrize("rows", [3, 40], ids=["gathered", "mask"])
@pytest.mark.parametrize("groups", [0, 1, HEADS_KV, HEADS])
@pytest.mark.parametrize("grad", [False, True])
def test_wrong_sizes_are_named_with_every_selection(shapes, text, rows, groups, grad):
    """`groups` is the number of groups of query heads with their own lists; 0 means a call without lists."""
    query, key, value = _tensors(rows, 300)
    given = {"query": query, "key": key, "value": value} | {name: _random(0, *shape) for name, shape in shapes.items()}
    lists = {"block_indices": _chosen(2, -(-300 // BLOCK), 2, groups, rows)} if groups else {}
    with torch.set_grad_enabled(grad), pytest.raises(ValueError, match=text):
        attention_forward(_module(), attention_mask=None, **given, **lists)


def test_a_module_without_a_size_of_blocks_is_named():
    lists = torch.zeros(2, 2, 9, 3).long()
    with pytest.raises(ValueError, match="SimpleNamespace.indexer.block_size=None, want an integer >= 1"):
        attention_forward(SimpleNamespace(), *_tensors(9, 30), None, block_indices=lists)


@pytest.mark.parametrize("kind", ["indices", "block_indices"])
def test_continuous_batching_refuses_selections(kind):
    lists = _lists(kind, 9, 30, 3)
    with pytest.raises(ValueError, match='"fa" serves no sparse selection in continuous batching'):
        attention_forward(_module(), *_tensors(9, 30), None, cache=SimpleNamespace(), **lists)


def test_the_operator_is_as_pytorch_wants_it():
    q, k, v = _tensors(7, 20)
    rows = torch.tensor([0, 20], dtype=torch.int32).expand(1, 1, 7, 2)
    for lists, block in ((_chosen(5, 20, 2, 1, 7), 0), (_chosen(2, 3, 2, HEADS_KV, 7), BLOCK)):
        call = ModelCall(rows=rows, lists=lists, block=block, statistics=True, scale=0.3)
        torch.library.opcheck(attention_of_layer, (q, k, v, *call))
        plain = (t.detach() for t in (q, k, v))
        torch.library.opcheck(attention_of_layer, (*plain, *call._replace(statistics=False)))


def test_two_sinks_without_weight_change_nothing():
    query, key, value = _tensors(9, 30)
    sinks, s_aux = (torch.full(shape, -torch.inf).requires_grad_() for shape in ((2, HEADS, 9, 1), (HEADS,)))
    out = attention_forward(_module(), query, key, value, None, sinks=sinks, s_aux=s_aux)[0]
    want = attention_forward(_module(), query, key, value, None)[0]
    torch.testing.assert_close(out, want, rtol=0, atol=0)
    assert all(gradient.eq(0).all() for gradient in torch.autograd.grad(out.sum(), (sinks, s_aux)))


@pytest.mark.parametrize("kind", ["mask", "none", "bias"])
@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (1, 50), (7, 33)])
def test_sinks_of_rows_are_logits_of_a_value_of_0(kind, rows, keys):
    """The reference adds a key whose value is 0, and uses the sinks as the biases of this key."""
    tensors = (*_tensors(rows, keys), _random(8, 2, HEADS, rows, 1).requires_grad_())
    mask = None if kind == "none" else _last_rows_of_a_causal_mask(rows, keys)
    seen = torch.ones(rows, keys, dtype=torch.bool).tril(0 if rows > 1 else keys) if mask is None else mask.scores() == 0
    if kind == "bias":
        tensors = (*tensors, _random(7, 1, HEADS, rows, keys).requires_grad_())

    def exact(module, query, key, value, sinks, bias=None):
        one = torch.cat((seen.expand(2, 1, rows, keys), torch.ones(2, 1, rows, 1, dtype=torch.bool)), -1)
        bias = torch.zeros(1, HEADS, rows, keys).double() if bias is None else bias
        key, value = (torch.nn.functional.pad(t, (0, 0, 0, 1)) for t in (key, value))
        bias = torch.cat((bias.expand(2, -1, -1, -1), sinks), -1)
        return reference_attention(module, query, key, value, one, scaling=0.3, position_bias=bias)[0]

    def ours(module, query, key, value, sinks, bias=None):
        return attention_forward(module, query, key, value, mask, scaling=0.3, sinks=sinks, position_bias=bias)[0]

    doubles = [t.detach().double().requires_grad_() for t in tensors]
    out, want = ours(_module(), *tensors), exact(_module(), *doubles)
    _check(out, want)
    with torch.no_grad():
        _check(ours(_module(), *tensors), want)
    gradients = torch.autograd.grad(out, tensors, _random(9, *out.shape))
    wanted = torch.autograd.grad(want, doubles, _random(9, *out.shape).double())
    for got, exact_gradient in zip(gradients, wanted, strict=True):
        _check(got, exact_gradient, times=3)
