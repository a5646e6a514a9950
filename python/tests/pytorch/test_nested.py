"""scaled_dot_product_attention of jagged nested tensors gives the bits of one call per sequence."""

import pytest
import torch
import torch.nn.functional as F

from fa._torch import nested as _torch_nested
from fa.torch import replace_scaled_dot_product_attention, scaled_dot_product_attention

N, E = 4, 8


def jagged(lengths, heads=N, size=E, like=None):
    """Returns a random nested tensor [B, N, j, E]. Its sequences have the given lengths, or those of the nested tensor
    `like`."""
    offsets = torch.tensor([0, *lengths]).cumsum(0) if like is None else like.offsets()
    return torch.nested.nested_tensor_from_jagged(torch.randn(sum(lengths), heads, size), offsets).transpose(1, 2)


def assert_as_sequences(places_q, places_kv, rows=(16, 20), heads=(N, N, N), size_v=E, **keywords):
    """Compares output and gradients with one call per sequence. places_q and places_kv have the first row and the
    length of each sequence. rows has the numbers of rows of the query and of the key tensor."""
    sizes = zip((rows[0], rows[1], rows[1]), heads, (E, E, size_v), strict=True)
    leaves = [torch.randn(size, requires_grad=True) for size in sizes]

    def nested(values, places):
        begins, lengths = zip(*places, strict=True)
        offsets = torch.tensor([*begins, begins[-1] + lengths[-1]])
        gaps = None if offsets.diff().tolist() == list(lengths) else torch.tensor(lengths)
        return offsets, gaps, torch.nested.nested_tensor_from_jagged(values, offsets, gaps).transpose(1, 2)

    offsets, gaps, query = nested(leaves[0], places_q)
    offsets, gaps, key = nested(leaves[1], places_kv)
    value = torch.nested.nested_tensor_from_jagged(leaves[2], offsets, gaps).transpose(1, 2)
    out = scaled_dot_product_attention(query, key, value, **keywords)
    # `query` and `out` have the same ragged dimension j, so they can be added.
    assert out.shape == (query.shape[0], max(heads), query.shape[2], size_v)
    got = out.transpose(1, 2).values()
    d_out = torch.randn_like(got)
    got = [got, *torch.autograd.grad(got, leaves, d_out)]
    want = [torch.zeros_like(t) for t in got]
    for (begin, length), (begin_kv, length_kv) in zip(places_q, places_kv, strict=True):
        span, span_kv = slice(begin, begin + length), slice(begin_kv, begin_kv + length_kv)
        spans = (span, span_kv, span_kv)
        own = [t.detach()[span].transpose(0, 1).requires_grad_() for t, span in zip(leaves, spans, strict=True)]
        own_out = scaled_dot_product_attention(*own, **keywords)
        gradients = torch.autograd.grad(own_out, own, d_out[span].transpose(0, 1))
        for whole, part, place in zip(want, (own_out, *gradients), (span, *spans), strict=True):
            whole[place] = part.detach().transpose(0, 1)
    for name, g, w in zip(("out", "dq", "dk", "dv"), got, want, strict=True):
        # The gradient of a shared head is a sum over heads.
        bound = 0.0 if heads[0] == max(heads) else max(heads) * 2**-22
        assert not ((g - w).abs().max() > bound * w.abs().max()), name


PLACES_Q, PLACES_KV = [(0, 3), (3, 5), (8, 1), (9, 0), (9, 2)], [(0, 4), (4, 2), (6, 6), (12, 3), (15, 0)]


@pytest.mark.parametrize("keywords", [{}, {"is_causal": True}, {"scale": 0.3, "size_v": 12}], ids=str)
def test_sequences_look_at_their_own_keys(keywords):
    assert_as_sequences(PLACES_Q, PLACES_KV, rows=(11, 15), **keywords)


@pytest.mark.parametrize(("heads", "grouped"), [((4, 2, 2), True), ((4, 1, 1), False), ((1, 4, 4), False)], ids=str)
def test_heads_are_shared(heads, grouped):
    assert_as_sequences(PLACES_Q, PLACES_KV, rows=(11, 15), heads=heads, enable_gqa=grouped)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gaps_between_sequences(is_causal):
    gaps_q, gaps_kv = [(1, 3), (8, 5), (14, 0)], [(0, 4), (5, 2), (12, 6)]
    assert_as_sequences(gaps_q, gaps_kv, is_causal=is_causal)
    assert_as_sequences(gaps_q, [(0, 4), (4, 2), (6, 6)], is_causal=is_causal)
    assert_as_sequences([(0, 4), (4, 2), (6, 6)], gaps_kv, is_causal=is_causal)


def test_as_pytorch_s_within_the_replacement():
    key = jagged([4, 2, 6])
    inputs = jagged([3, 5, 1]), key, jagged([4, 2, 6], like=key)
    want = F.scaled_dot_product_attention(*inputs).values()
    with replace_scaled_dot_product_attention():
        got = F.scaled_dot_product_attention(*inputs).values()
    assert got.shape == want.shape and not ((got - want).abs().max() > 64 * 2**-24 * want.abs().max())


def test_one_head_without_an_axis_for_it():
    x = torch.nested.nested_tensor([torch.randn(n, E) for n in (3, 5)], layout=torch.jagged)
    out = scaled_dot_product_attention(x, x, x)
    for got, t in zip(out.unbind(), x.unbind(), strict=True):
        assert torch.equal(got, scaled_dot_product_attention(t, t, t))


def test_dropout_keeps_the_share_and_backward_drops_the_same_pairs():
    query, key = jagged([40, 24], heads=2), jagged([32, 32], heads=2)
    identity = torch.eye(32)[:, None].expand(32, 2, 32).repeat(2, 1, 1).requires_grad_()  # with these values, out is P
    value = torch.nested.nested_tensor_from_jagged(identity, key.offsets()).transpose(1, 2)
    out = scaled_dot_product_attention(query, key, value, dropout_p=0.4).transpose(1, 2).values()
    assert abs((out == 0).double().mean().item() - 0.4) < 5 * (0.24 / out.numel()) ** 0.5
    (dv,) = torch.autograd.grad(out, identity, torch.ones_like(out))
    want = torch.cat([part.detach().sum(0).T for part in out.split([40, 24])])
    assert torch.allclose(dv, want[..., None].expand_as(dv), atol=40 * 2**-22)


def test_autocast_and_opcheck():
    x = jagged([3, 5])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scaled_dot_product_attention(x, x, x).dtype == torch.bfloat16
    rows = [torch.randn(9, N, E, requires_grad=True) for _ in range(3)]
    offsets = torch.tensor([0, 4, 9])
    arguments = (*rows, offsets, torch.tensor([3, 5]), offsets, None, torch.tensor([1, 2]), None, True, 0.5)
    torch.library.opcheck(_torch_nested.jagged_attention, arguments)


def test_torch_compile_takes_it_whole():
    x = jagged([3, 5])
    compiled = torch.compile(
        lambda x: scaled_dot_product_attention(x, x, x, is_causal=True) * 2, backend="aot_eager", fullgraph=True
    )
    assert torch.equal(compiled(x).values(), 2 * scaled_dot_product_attention(x, x, x, is_causal=True).values())


def test_messages():
    x = jagged([3, 5])
    with pytest.raises(ValueError, match="key: want a nested tensor of layout torch.jagged"):
        scaled_dot_product_attention(x, torch.randn(2, N, 5, E), x)
    with pytest.raises(ValueError, match="query: want a nested tensor of layout torch.jagged"):
        strided = torch.nested.nested_tensor([torch.randn(N, n, E) for n in (3, 5)])
        scaled_dot_product_attention(strided, strided, strided)
    with pytest.raises(ValueError, match="attn_mask: want None with nested tensors"):
        scaled_dot_product_attention(x, x, x, torch.zeros(5, 5))
    with pytest.raises(ValueError, match=r"key.shape\[0\]=3, want 2"):
        scaled_dot_product_attention(x, jagged([3, 5, 2]), jagged([3, 5, 2]))
    with pytest.raises(ValueError, match=r"value.shape\[-2\]: want sequences as long as key's"):
        scaled_dot_product_attention(x, x, jagged([5, 3]))
    with pytest.raises(ValueError, match=r"key.shape\[-1\]=9, want 8"):
        scaled_dot_product_attention(x, jagged([3, 5], size=9), x)
    with pytest.raises(ValueError, match=r"key.shape\[-3\]=2, want 4 or 1"):
        scaled_dot_product_attention(x, jagged([3, 5], heads=2), jagged([3, 5], heads=2))
    with pytest.raises(ValueError, match=r"value.shape\[0\]=3, want 2"):
        scaled_dot_product_attention(x, x, jagged([3, 5, 2]))
    with pytest.raises(ValueError, match=r"query.shape\[-1\]=2000, want a head size"):
        scaled_dot_product_attention(*(jagged([3, 5], size=2000),) * 3)
    with pytest.raises(ValueError, match="ragged in j"):
        scaled_dot_product_attention(*(x.transpose(1, 2),) * 3)


@pytest.mark.parametrize(("heads", "e", "ev"), [(0, 8, 8), (2, 0, 8), (2, 8, 0), (0, 0, 0)])
def test_sizes_of_0(heads, e, ev):
    """If E is 0, all scores are 0, so every key has the same weight."""
    q, k, v = (
        torch.nested.nested_tensor([torch.randn(rows, heads, size) for rows in (3, 5)], layout=torch.jagged)
        .requires_grad_()
        for size in (e, e, ev)
    )
    out = scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
    out.values().sum().backward()
    rows = out.transpose(1, 2).values()
    assert rows.shape == (8, heads, ev) and [t.grad.shape for t in (q, k, v)] == [t.shape for t in (q, k, v)]
    if e == 0 and rows.numel() > 0:
        means = v.values()[:3].mean(0).expand(3, -1, -1), v.values()[3:].mean(0).expand(5, -1, -1)
        assert torch.allclose(rows, torch.cat(means), atol=5 * 2**-22)
