"""scaled_dot_product_attention takes every shape that PyTorch's function takes, and names the wrong argument
otherwise."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import assert_within, summed_to, tolerances
from torch.nn.attention import SDPBackend, sdpa_kernel

from fa._torch.shapes import keys_side_by_side
from fa.torch import scaled_dot_product_attention

L, S, E, EV = 5, 6, 8, 4


def expanded(tensor, batch, grouped):
    """Returns the tensor broadcast to `batch` and reshaped to [B, N, rows, columns]."""
    rows = tensor.shape[-2:]
    if grouped and len(batch) > 0 and tensor.shape[-3] != batch[-1]:
        tensor = tensor.repeat_interleave(batch[-1] // tensor.shape[-3], -3)
    return tensor.expand(*batch, *rows).reshape(-1, batch[-1] if batch else 1, *rows)


def assert_as_torch(query, key, value, attn_mask=None, *, grouped=False, **keywords):
    """Compares output and gradients with those of PyTorch's function in float64."""
    float_mask = attn_mask is not None and attn_mask.is_floating_point()
    sources = [query, key, value, *([attn_mask] if float_mask else [])]

    def results(function, dtype):
        leaves = [t.detach().to(dtype).requires_grad_() for t in sources]
        out = function(*leaves[:3], leaves[3] if float_mask else attn_mask, enable_gqa=grouped, **keywords)
        d_out = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
        return d_out, [out, *torch.autograd.grad(out, leaves, d_out.to(dtype), materialize_grads=True)]

    with sdpa_kernel(SDPBackend.MATH):
        _, want = results(F.scaled_dot_product_attention, torch.float64)
    d_out, got = results(scaled_dot_product_attention, query.dtype)
    assert got[0].dtype == query.dtype
    if min(*query.shape, *key.shape, *value.shape, *got[0].shape) == 0:
        for g, w in zip(got, want, strict=True):
            assert g.shape == w.shape and (g == 0).all() and (w == 0).all()
        return
    batch = got[0].shape[:-2]
    masks = {}
    if keywords.get("is_causal"):
        masks["keep"] = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    elif attn_mask is not None:
        pairs = attn_mask.expand(*batch, query.shape[-2], key.shape[-2])
        masks["bias" if float_mask else "keep"] = expanded(pairs, batch, False)
    whole = [expanded(t, batch, grouped) for t in (query, key, value)]
    bounds = tolerances(*whole, expanded(d_out, batch, False), query.dtype, scale=query.shape[-1] ** -0.5, **masks)
    assert_within(got[0], want[0], bounds["out"].reshape(got[0].shape), "out")
    for name, g, w, source in zip(("dq", "dk", "dv", "dbias"), got[1:], want[1:], sources, strict=False):
        bound = bounds[name].reshape(*batch, *bounds[name].shape[2:])
        if grouped and batch and source.shape[-3] != batch[-1]:
            bound = bound.unflatten(-3, (source.shape[-3], -1)).sum(-3)
        assert_within(g, w, summed_to(bound, source.shape, bound), name)


BATCHES = {
    "heads of keys": ((2, 4), (2, 1), (2, 1)),
    "heads of keys only": ((2, 4), (2, 1), (2, 4)),
    "heads of values only": ((2, 4), (2, 4), (2, 1)),
    "heads of queries": ((2, 1), (2, 4), (2, 4)),
    "heads of queries and values": ((2, 1), (2, 4), (2, 1)),
    "batch of keys": ((3, 2), (1, 2), (1, 2)),
    "batch of queries": ((1, 2), (3, 2), (3, 2)),
    "batch and heads": ((3, 1), (1, 4), (3, 4)),
    "no heads": ((), (), ()),
    "three dimensions": ((4,), (4,), (4,)),
    "three dimensions, one key": ((4,), (1,), (1,)),
    "three dimensions and none": ((4,), (), ()),
    "three dimensions and four": ((4,), (2, 4), (2, 4)),
    "none and four": ((), (2, 4), (2, 1)),
    "five dimensions": ((3, 2, 4), (3, 2, 4), (3, 2, 4)),
    "five, broadcast": ((3, 1, 4), (1, 2, 4), (3, 1, 1)),
    "six and fewer": ((2, 1, 3, 2), (3, 2), (1, 1)),
    "no batch": ((0, 4), (0, 4), (0, 4)),
    "no heads at all": ((2, 0), (2, 0), (2, 0)),
    "no batch in five": ((3, 0, 4), (3, 0, 4), (1, 1, 4)),
}


def tensors(batches, rows=L, keys=S, size=E, size_v=EV):
    q, k, v = batches
    return torch.randn(*q, rows, size), torch.randn(*k, keys, size), torch.randn(*v, keys, size_v)


@pytest.mark.parametrize("name", BATCHES)
def test_dimensions_broadcast_as_torch_s(name):
    inputs = tensors(BATCHES[name])
    batch = torch.broadcast_shapes(*BATCHES[name])
    assert_as_torch(*inputs)
    assert_as_torch(*inputs, is_causal=True)
    # Masks with 2 dimensions or more. Each dimension has the full size or 1.
    for rank in range(2, len(batch) + 3):
        shape = (*batch, L, S)[-rank:]
        for ones in {0, 1, rank - 2, rank}:
            mask_shape = tuple(1 if i < ones else size for i, size in enumerate(shape))
            keep = torch.rand(mask_shape) < 0.8
            keep[..., :1] = True
            assert_as_torch(*inputs, keep if (rank + ones) % 2 else torch.randn(mask_shape))
        assert_as_torch(*inputs, torch.randn(*shape[:-1], 1))


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 4), (2, 2), (2, 2)),
        ((2, 4), (2, 2), (2, 4)),
        ((2, 4), (2, 1), (2, 2)),
        ((2, 4), (1, 2), (1, 2)),
        ((4,), (2,), (2,)),
        ((3, 2, 4), (3, 2, 2), (2, 1)),
        ((2, 0), (2, 0), (2, 0)),
    ],
    ids=str,
)
def test_grouped_heads_as_torch_s(q, k, v):
    assert_as_torch(*tensors((q, k, v)), grouped=True)
    assert_as_torch(*tensors((q, k, v)), grouped=True, is_causal=True)


@pytest.mark.parametrize(
    "sizes", [{"rows": 0}, {"keys": 0}, {"size_v": 0}, {"rows": 0, "keys": 0}, {"size": 0, "size_v": 0}], ids=str
)
def test_empty_tensors_as_torch_s(sizes):
    for batches in (((2, 4),) * 3, ((), (), ()), ((3, 2, 4), (2, 1), (2, 1))):
        inputs = tensors(batches, **sizes)
        assert_as_torch(*inputs)
        assert_as_torch(*inputs, is_causal=True)
        pairs = inputs[0].shape[-2], inputs[1].shape[-2]
        assert_as_torch(*inputs, torch.ones(pairs, dtype=torch.bool))
        assert_as_torch(*inputs, torch.randn(pairs))
        assert scaled_dot_product_attention(*inputs, dropout_p=0.5).shape[-2:] == (pairs[0], inputs[2].shape[-1])


def test_heads_of_no_size_average_the_values():
    q, k, v = tensors(((2, 4),) * 3, size=0)
    out = scaled_dot_product_attention(q, k, v)
    assert torch.allclose(out, v.mean(-2, keepdim=True).expand_as(out), atol=S * 2**-23 * v.abs().max().item())


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:], ids=str)
def test_strides_of_every_order(order):
    def shuffled(t):
        inverse = tuple(order.index(i) for i in range(3))
        return t.permute(*order, 3).contiguous().permute(*inverse, 3)

    assert_as_torch(*(shuffled(t) for t in tensors(((2, 4), (2, 4), (2, 4)))))


def test_biases_with_heads_side_by_side():
    heads_last = torch.randn(2, L, S, 4).permute(0, 3, 1, 2)
    for bias in (heads_last, heads_last[:1], heads_last[:1].expand(2, -1, -1, -1)):
        assert_as_torch(*tensors(((2, 4),) * 3), bias)
    copy = keys_side_by_side(heads_last[:1].expand(2, -1, -1, -1))
    assert copy.stride() == (0, L * S, S, 1)
    assert torch.equal(copy[1], heads_last[0])
    for bias in (copy, copy[..., :3], copy.expand(2, 4, L, S), torch.zeros(L, 1).expand(L, S), heads_last[..., :1]):
        assert keys_side_by_side(bias) is bias


def test_expanded_inputs():
    q, k, v = (t.expand(4, -1, -1) for t in tensors(((1,), (1,), (1,))))
    assert_as_torch(q, k, v)
    assert_as_torch(*(t.expand(3, 2, -1, -1, -1) for t in (q, k, v)))


def call(**changes):
    q, k, v = tensors(((2, 4),) * 3)
    return {"query": q, "key": k, "value": v, **changes}


MESSAGES = {
    r"query.shape=\[8\], want at least 2 dimensions": lambda: call(query=torch.zeros(8)),
    r"key.shape\[-1\]=7, want 8 \(query.shape\[-1\]\)": lambda: call(key=torch.zeros(2, 4, S, 7)),
    r"value.shape\[-2\]=5, want 6 \(key.shape\[-2\]\)": lambda: call(value=torch.zeros(2, 4, 5, EV)),
    r"key.shape\[-3\]=2, want 4 or 1; see enable_gqa": lambda: call(key=torch.zeros(2, 2, S, E)),
    r"value.shape\[-3\]=3, want a divisor of 4": lambda: call(value=torch.zeros(2, 3, S, EV), enable_gqa=True),
    r"key.shape\[-4\]=3, want 2 or 1": lambda: call(key=torch.zeros(3, 4, S, E)),
    r"value.shape\[-5\]=3, want 2 or 1": lambda: call(
        query=torch.zeros(2, 2, 4, L, E), value=torch.zeros(3, 1, 4, S, EV)
    ),
    r"query.dtype=torch.float64, want torch.float32, torch.bfloat16 or torch.float16": lambda: call(
        query=torch.zeros(2, 4, L, E).double()
    ),
    r"key.dtype=torch.bfloat16, want torch.float32 \(query.dtype\)": lambda: call(
        key=torch.zeros(2, 4, S, E).bfloat16()
    ),
    r"attn_mask.dtype=torch.int64, want torch.bool or torch.float32": lambda: call(
        attn_mask=torch.ones(L, S, dtype=torch.int64)
    ),
    r"attn_mask.dtype=torch.bfloat16, want torch.bool or torch.float32": lambda: call(
        attn_mask=torch.ones(L, S).bfloat16()
    ),
    r"attn_mask.shape=\[7, 6\], want one that broadcasts to \[2, 4, 5, 6\]": lambda: call(attn_mask=torch.ones(7, S)),
    r"attn_mask.shape=\[3, 1, 5, 6\], want one": lambda: call(attn_mask=torch.ones(3, 1, L, S)),
    r"attn_mask.shape=\[1, 2, 4, 5, 6\], want one": lambda: call(attn_mask=torch.ones(1, 2, 4, L, S)),
    r"query.shape\[-1\]=2000, want a head size": lambda: call(
        query=torch.zeros(4, L, 2000), key=torch.zeros(4, S, 2000), value=torch.zeros(4, S, EV)
    ),
    r"value.shape\[-1\]=2000, want a head size": lambda: call(value=torch.zeros(2, 4, S, 2000)),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_name_the_argument_and_the_caller_s_axis(message):
    with pytest.raises(ValueError, match=f"^invalid argument: {message}"):
        scaled_dot_product_attention(**MESSAGES[message]())


@pytest.mark.parametrize("name", ["query", "key", "value", "attn_mask"])
def test_no_tensor_is_a_type_error(name):
    for wrong in (np.zeros((2, 4, L, E), np.float32), [[1.0]], *([] if name == "attn_mask" else [None])):
        with pytest.raises(TypeError, match=f"^{name}: want a torch.Tensor, got {type(wrong).__name__}"):
            scaled_dot_product_attention(**call(**{name: wrong}))
