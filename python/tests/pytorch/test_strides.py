"""Outputs and gradients have the strides that PyTorch's own functions give them, whatever strides the inputs have."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F

from fa import flash_attn
from fa._torch import sdpa as _torch_sdpa
from fa.flash_attn import third_generation
from fa.torch import replace_scaled_dot_product_attention, scaled_dot_product_attention

B, N, L, S, E = 2, 4, 5, 7, 8
DENSE, BY_ROW = (0, 1, 2, 3), (0, 2, 1, 3)


def lying(shape, order, dtype=torch.float32):
    """Returns a random tensor of `shape`. In memory its dimensions lie in the order `order`, outermost first."""
    return torch.randn([shape[i] for i in order]).to(dtype).permute([order.index(i) for i in range(len(shape))])


def qkv(order=DENSE, *, heads_kv=N, size_v=E, dtype=torch.float32):
    shapes = (B, N, L, E), (B, heads_kv, S, E), (B, heads_kv, S, size_v)
    return [lying(shape, order, dtype) for shape in shapes]


def packed():
    return torch.randn(B, L, 3, N, E).permute(2, 0, 3, 1, 4).unbind()


def changed(change, order=BY_ROW, places=(0, 1, 2)):
    return [change(t) if i in places else t for i, t in enumerate(qkv(order))]


INPUTS = {
    **{f"order {order}": (lambda order=order: [lying((B, N, L, E), order), *qkv()[1:]]) for order in itertools.permutations(range(4))},
    "by row": lambda: qkv(BY_ROW),
    "bfloat16": lambda: qkv(BY_ROW, dtype=torch.bfloat16),
    "float16": lambda: qkv(DENSE, dtype=torch.float16),
    "packed": packed,
    "rows apart": lambda: changed(lambda t: torch.stack([t, t], -2).flatten(-3, -2)[..., ::2, :]),
    "part of the columns": lambda: changed(lambda t: t[..., :5]),
    "part of the rows": lambda: changed(lambda t: t[:, :, 2:]),
    "columns apart": lambda: changed(lambda t: t.transpose(2, 3).contiguous().transpose(2, 3), places=(1,)),
    "larger values": lambda: qkv(BY_ROW, size_v=12),
    "smaller values": lambda: qkv(DENSE, size_v=3),
    "fewer heads of keys": lambda: qkv(BY_ROW, heads_kv=2),
    "fewer heads of values": lambda: [*qkv(BY_ROW)[:2], qkv(BY_ROW, heads_kv=2)[2]],
    "one head of keys": lambda: qkv(BY_ROW, heads_kv=1),
    "one batch": lambda: changed(lambda t: t[:1]),
    "one head": lambda: changed(lambda t: t[:, :1]),
    "one row": lambda: changed(lambda t: t[:, :, :1], places=(0,)),
    "one row of dense rows": lambda: changed(lambda t: t[:, :, :1], DENSE, places=(0,)),
    "one column": lambda: changed(lambda t: t[..., :1]),
    "one column, apart": lambda: changed(lambda t: t[..., ::E], places=(0,))[:1] + changed(lambda t: t[..., :1])[1:],
    "queries expanded": lambda: changed(lambda t: t[:1].expand(B, -1, -1, -1), places=(0,)),
    "keys expanded": lambda: changed(lambda t: t[:1].expand(B, -1, -1, -1), places=(1, 2)),
    "heads expanded": lambda: changed(lambda t: t[:, :1].expand(-1, N, -1, -1)),
    "keys broadcast": lambda: changed(lambda t: t[:1], places=(1, 2)),
    "queries broadcast": lambda: changed(lambda t: t[:1], places=(0,)),
    "two dimensions": lambda: changed(lambda t: t[0, 0]),
    "two dimensions, transposed": lambda: changed(lambda t: t[0, 0].t().contiguous().t()),
    "three dimensions": lambda: changed(lambda t: t[0]),
    "three dense dimensions": lambda: changed(lambda t: t[0], DENSE),
    "five dimensions": lambda: changed(lambda t: t[None].expand(3, -1, -1, -1, -1)),
    "no rows": lambda: changed(lambda t: t[:, :, :0], places=(0,)),
    "no keys": lambda: changed(lambda t: t[:, :, :0], places=(1, 2)),
    "no batch": lambda: changed(lambda t: t[:0]),
    "no heads": lambda: changed(lambda t: t[:, :0]),
    "no values": lambda: qkv(BY_ROW, size_v=0),
    "no columns": lambda: [t[..., :0] if i < 2 else t for i, t in enumerate(qkv(BY_ROW))],
}
MASKS = {
    "no mask": lambda scores: None,
    "bool": lambda scores: torch.rand(scores[-2:]) < 0.7,
    "bool of four": lambda scores: torch.rand(scores) < 0.7,
    "three dimensions": lambda scores: torch.randn(scores[-3:]),
    "one dimension": lambda scores: torch.randn(scores[-1:]),
    "columns apart": lambda scores: torch.randn(scores[:-2] + scores[:-3:-1]).transpose(-2, -1),
    "with a gradient": lambda scores: torch.randn(scores[-2:]).requires_grad_(),
}
KEYWORDS = {
    "plain": {},
    "causal": {"is_causal": True},
    "dropped": {"dropout_p": 0.5},
    "grouped": {"enable_gqa": True},
}


def called(inputs, arguments, keywords, *, by_operator=False, recorded=False):
    """Yields the result of PyTorch's function and of fa's, each with its inputs. Yields nothing if PyTorch refuses the
    call."""
    for function in (F.scaled_dot_product_attention, scaled_dot_product_attention):
        leaves = [t.detach().requires_grad_(recorded) for t in inputs]
        try:
            with pytest.MonkeyPatch.context() as patch:
                if by_operator and function is scaled_dot_product_attention:
                    patch.setattr("fa.torch.unwatched", lambda: False)
                    patch.setattr(_torch_sdpa, "possible", lambda *_: False)
                out = function(*leaves, *arguments, **keywords)
        except (RuntimeError, IndexError):
            assert function is F.scaled_dot_product_attention
            return
        yield out, leaves


def agree(own, theirs):
    """Compares strides. PyTorch gives tensors without elements arbitrary strides, so those are not compared."""
    assert own.shape == theirs.shape and own.dtype == theirs.dtype
    assert own.stride() == theirs.stride() or own.numel() == 0


def scores_of(query, key):
    leading = query.shape[:-2] if query.shape[0] > 1 else torch.broadcast_shapes(query.shape[:-3], key.shape[:-3]) + query.shape[-3:-2]
    return (*leading, query.shape[-2], key.shape[-2])


@pytest.mark.parametrize("by_operator", [False, True], ids=["direct", "operator"])
@pytest.mark.parametrize("name", INPUTS)
def test_outputs_lie_as_pytorchs(name, by_operator):
    inputs = INPUTS[name]()
    for mask, keywords, recorded in itertools.product(MASKS, KEYWORDS.values(), (False, True)):
        if mask != "no mask" and "is_causal" in keywords:
            continue
        if inputs[0].dim() < 3 and "enable_gqa" in keywords:
            continue
        attn_mask = MASKS[mask](scores_of(*inputs[:2]))
        results = list(called(inputs, (attn_mask,), keywords, by_operator=by_operator, recorded=recorded))
        if len(results) == 2:
            theirs, own = (out for out, _ in results)
            agree(own, theirs)
            assert own.stride() == theirs.stride()  # this must hold even if there are no elements


@pytest.mark.parametrize("name", [name for name in INPUTS if "broadcast" not in name and "one head of" not in name])
@pytest.mark.parametrize("keywords", KEYWORDS.values(), ids=KEYWORDS)
def test_gradients_lie_as_pytorchs(name, keywords):
    """Without its fused kernel, PyTorch returns the key's gradient transposed, as its matrix product gives it. fa
    returns a dense gradient.
    """
    inputs = INPUTS[name]()
    results = list(called(inputs, (), keywords, recorded=True))
    if len(results) < 2 or any(t.numel() == 0 for t in inputs):
        return
    (theirs, their_sources), (own, own_sources) = results
    d_out = torch.randn(theirs.shape).to(theirs.dtype)
    want = torch.autograd.grad(theirs, their_sources, d_out)
    got = torch.autograd.grad(own, own_sources, d_out)
    if "FlashAttention" in theirs.grad_fn.name():
        for g, w in zip(got, want, strict=True):
            agree(g, w)
    elif inputs[0].dim() == 4 and inputs[0].shape[-1] > 1:
        assert all(g.is_contiguous() for g in got)
        agree(got[0], want[0])
        agree(got[2], want[2])


def test_random_inputs():
    """Compares calls with random sizes, orders of dimensions, gaps and broadcast dimensions."""
    draw = random.Random(7)
    compared = 0

    def tensor(shape):
        order = draw.sample(range(len(shape)), len(shape)) if draw.random() < 0.6 else list(range(len(shape)))
        if draw.random() < 0.8:
            order.remove(len(shape) - 1)
            order.append(len(shape) - 1)
        held = [1 if draw.random() < 0.06 else size + draw.choice([0, 0, 0, 1]) for size in shape]
        whole = lying(held, order)
        return whole[tuple(slice(0, min(size, at)) for size, at in zip(shape, held, strict=True))].expand(shape)

    for _ in range(1500):
        rank = draw.choice([2, 3, 4, 4, 4, 4, 4, 5])
        leading = [draw.choice([1, 2, 3]) for _ in range(rank - 3)]
        heads, heads_kv = draw.choice([(4, 4), (4, 2), (4, 1), (1, 1)])
        rows, keys, size = draw.choice([1, L]), draw.choice([1, S]), draw.choice([1, E, E])
        size_v = draw.choice([size, size, 12])

        def shape(heads, *rest, rank=rank, leading=leading):
            return [*leading, *([heads] if rank > 2 else []), *rest]

        inputs = [tensor(shape(heads, rows, size)), tensor(shape(heads_kv, keys, size)), tensor(shape(heads_kv, keys, size_v))]
        scores = shape(heads, rows, keys)
        mask = tensor(scores[-draw.choice([1, 2, 3, 4]) :]) if draw.random() < 0.4 else None
        mask = mask > 0 if mask is not None and draw.random() < 0.5 else mask
        keywords = {"dropout_p": draw.choice([0.0, 0.0, 0.0, 0.5])}
        keywords |= {"enable_gqa": True} if rank > 2 and draw.random() < 0.5 else {}
        by_operator, recorded = draw.random() < 0.5, draw.random() < 0.5
        results = list(called(inputs, (mask,), keywords, by_operator=by_operator, recorded=recorded))
        if len(results) == 2:
            compared += 1
            agree(results[1][0], results[0][0])
    assert compared > 1000


@pytest.mark.parametrize("name", ["order (0, 1, 2, 3)", "by row", "order (2, 0, 1, 3)", "packed", "larger values", "three dimensions"])
@pytest.mark.parametrize("keywords", KEYWORDS.values(), ids=KEYWORDS)
def test_tensors_without_contents_lie_as_results(name, keywords):
    inputs = INPUTS[name]()
    want = scaled_dot_product_attention(*inputs, **keywords)

    def function(*tensors):
        return scaled_dot_product_attention(*tensors, **keywords)

    seen = []

    def look(graph, examples):
        seen.extend(node.meta["example_value"] for node in graph.graph.nodes if "example_value" in node.meta)
        return graph.forward

    torch._dynamo.reset()
    got = torch.compile(function, backend=look)(*inputs)
    agree(got, want)
    agree(seen[-1][0] if isinstance(seen[-1], tuple) else seen[-1], want)
    torch._dynamo.reset()
    agree(torch.compile(function, backend="aot_eager")(*inputs), want)


def test_a_view_that_pytorchs_output_allows():
    query = torch.randn(2, 2, 4, 8)
    assert scaled_dot_product_attention(query, query, query).view(4, 4, 8).shape == (4, 4, 8)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("options", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("training", [False, True])
def test_modules_give_what_pytorchs_give(batch_first, options, training):
    module = torch.nn.MultiheadAttention(16, N, batch_first=batch_first, dropout=0.1 if training else 0.0).train(training)
    encoder = torch.nn.TransformerEncoderLayer(16, N, 32, batch_first=batch_first).train(training)
    x = torch.randn(B, L, 16)

    def run():
        out, weights = module(x, x, x, **options)
        return [out, *([] if weights is None else [weights]), encoder(x)]

    want = run()
    with replace_scaled_dot_product_attention():
        got = run()
    for g, w in zip(got, want, strict=True):
        agree(g, w)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("order", [DENSE, BY_ROW])
def test_flash_attn_s_outputs_lie_as_the_query(order, recorded):
    """The outputs of flash_attn 2 have the strides of torch.empty_like(q). The outputs of flash_attn 3 lie in memory in
    the order of their shape."""
    q, k, v = (t.transpose(1, 2).requires_grad_(recorded) for t in qkv(order))
    out = flash_attn.flash_attn_func(q, k, v)
    agree(out, torch.empty_like(q))
    third = third_generation.flash_attn_func(q, k, v)
    assert third.is_contiguous() and torch.equal(out, third)
    agree(flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)[0], out)
    agree(flash_attn.flash_attn_func(q, k, v, dropout_p=0.1), out)
    if not recorded:
        agree(flash_attn.flash_attn_with_kvcache(q, k.contiguous(), v.contiguous()), out)
    rows = q[0]
    lengths = torch.tensor([0, L], dtype=torch.int32), torch.tensor([0, S], dtype=torch.int32)
    agree(flash_attn.flash_attn_varlen_func(rows, k[0], v[0], *lengths, L, S), torch.empty_like(rows))
