"""The functions that test_context_parallel.py runs on every rank. A rank computes its own rows of a call, and compares
them bit by bit with a call without ranks."""

from __future__ import annotations

import contextlib
import itertools
import re

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import fa
from fa import torch_npu
from fa.torch import context_parallel as cp
from fa.torch import scaled_dot_product_attention

N, NKV, D, DV = 4, 2, 16, 24
LENGTH = 1111
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def intervals(rows: int, ranks: int) -> list[list[tuple[int, int]]]:
    """Returns the intervals of rows of each rank. The last rank has the first rows, and rank 0 has two intervals. Of
    four ranks, one has no rows."""
    held: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    held[0] += [(512, rows), (256, 384)]
    held[1 % ranks] += [(384, 512)]
    held[-1] += [(0, 256)]
    return held


def cuts(rows: int, ranks: int) -> list:
    return ["zigzag", "contiguous", intervals(rows, ranks)]


def inputs(dtype=torch.float32, sq=LENGTH, sk=LENGTH, batch=1) -> list[Tensor]:
    sizes = (N, sq, D), (NKV, sk, D), (NKV, sk, DV)
    return [torch.randn(batch, *size).to(dtype) for size in sizes]


def shards(tensors, cut, dim=2) -> list[Tensor]:
    return [cp.shard(t, dim, cut=cut) for t in tensors]


def assert_bits(got: Tensor, want: Tensor, *what) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, (got.shape, want.shape, *what)
    assert torch.equal(got, want), (float((got.float() - want.float()).abs().max()), *what)


# Tests of attention.


def attention(rank, ranks):
    strategies = itertools.cycle(("auto", "sequence", "heads"))
    for dtype, causal in itertools.product(TYPES, (False, True)):
        tensors = inputs(dtype, batch=2)
        want = scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)
        for cut in cuts(LENGTH, ranks):
            strategy = next(strategies)
            keywords = {"is_causal": causal, "enable_gqa": True, "cut": cut, "strategy": strategy}
            own = shards(tensors, cut)
            got = cp.scaled_dot_product_attention(*own, **keywords)
            assert_bits(got, cp.shard(want, 2, cut=cut), dtype, keywords)
            like = torch.nn.functional.scaled_dot_product_attention(*own, is_causal=causal, enable_gqa=True)
            assert got.stride() == like.stride()
        query = own[0].transpose(1, 2).contiguous().transpose(1, 2)
        got = cp.scaled_dot_product_attention(query, own[1], own[1], **keywords)
        assert got.stride() == query.stride() or got.numel() == 0


def gradients(rank, ranks):
    """Compares dq, dk and dv of own rows for all cuts, masks and types. Also compares gradients that are sums over the
    batch, or over the heads of a group."""
    strategies = itertools.cycle(("auto", "sequence", "heads"))
    for dtype, causal in itertools.product(TYPES, (False, True)):
        tensors = [t.requires_grad_() for t in inputs(dtype, batch=2)]
        keywords = {"is_causal": causal, "enable_gqa": True}
        want = scaled_dot_product_attention(*tensors, **keywords)
        d_out = torch.randn(want.shape).to(dtype)
        wanted = torch.autograd.grad(want, tensors, d_out)
        for cut in cuts(LENGTH, ranks):
            own = [t.detach().requires_grad_() for t in shards(tensors, cut)]
            got = cp.scaled_dot_product_attention(*own, **keywords, cut=cut, strategy=next(strategies))
            assert_bits(got, cp.shard(want, 2, cut=cut), dtype, causal, cut)
            for i, gradient in enumerate(torch.autograd.grad(got, own, cp.shard(d_out, 2, cut=cut))):
                assert_bits(gradient, cp.shard(wanted[i], 2, cut=cut), "qkv"[i], dtype, causal, cut)


def bytes_moved(rank, ranks):
    """Compares the bytes that each rank has counted with the bytes that its plans state. All ranks together must
    receive as many bytes as they send."""
    tensors = [t.requires_grad_() for t in inputs()]
    sink = torch.randn(N, requires_grad=True)
    triangle = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    for strategy in ("sequence", "heads"):
        own = [t.detach()[..., :D].contiguous().requires_grad_() for t in shards(tensors, "zigzag")]
        before = cp.traffic()
        keywords = {"sink": sink, "sparse_mode": 2, "atten_mask": triangle, "strategy": strategy}
        out = cp.npu_fusion_attention(*own, N, "BNSD", **keywords)[0]
        between = cp.traffic()
        torch.autograd.grad(out.sum(), [*own, sink])
        after = cp.traffic()
        for begin, end in ((before, between), (between, after)):
            sent, received, planned_sent, planned_received = (b - a for a, b in zip(begin, end, strict=True))
            assert (sent, received) == (planned_sent, planned_received)
            assert (sent + received > 0) == (ranks > 1)
            totals = cp.unshard(torch.tensor([[sent, received]]), 0, cut=one_row_each()).sum(0)
            assert totals[0] == totals[1]


def rules_of_other_lengths(rank, ranks):
    sq, sk = 600, 1000
    tensors = inputs(sq=sq, sk=sk)
    for make in (causal_lower_right, causal_upper_left):
        want = scaled_dot_product_attention(*tensors, make(sq, sk), enable_gqa=True)
        own = shards(tensors[:1], "zigzag") + shards(tensors[1:], "zigzag")
        got = cp.scaled_dot_product_attention(*own, make(sq, sk), enable_gqa=True)
        assert_bits(got, cp.shard(want, 2), make)
    with pytest.raises(ValueError, match=r"attn_mask.shape=\[600, 1001\], want \[600, 1000\]"):
        cp.scaled_dot_product_attention(*own, causal_lower_right(sq, sk + 1), enable_gqa=True)


def shapes_and_scales(rank, ranks):
    """Computes calls with broadcast tensors of three and five dimensions, nn.Parameter, views read in place, and
    autocast."""
    q, k, v = inputs(sq=300, sk=300)
    for query, key, value in ((q[0], k[0, :1], v[0, :1]), (q[None].repeat(2, 1, 1, 1, 1), k[:, :1], v[:, :1])):
        want = scaled_dot_product_attention(query, key, value, scale=0.3)
        own = [cp.shard(t, -2) for t in (query, key, value)]
        assert_bits(cp.scaled_dot_product_attention(*own, scale=0.3), cp.shard(want, -2))
    by_row = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    want = cp.shard(scaled_dot_product_attention(q, k, v, enable_gqa=True), 2)
    own = [torch.nn.Parameter(t) for t in shards(by_row, "zigzag")]
    with torch.no_grad():
        assert_bits(cp.scaled_dot_product_attention(*own, enable_gqa=True), want)
    with torch.inference_mode():
        assert_bits(cp.scaled_dot_product_attention(*shards(by_row, "zigzag"), enable_gqa=True), want)
    with torch.autocast("cpu", torch.bfloat16):
        want = scaled_dot_product_attention(q, k, v, enable_gqa=True)
        got = cp.scaled_dot_product_attention(*shards((q, k, v), "zigzag"), enable_gqa=True)
        assert got.dtype == torch.bfloat16
        assert_bits(got, cp.shard(want, 2))


def dropout(rank, ranks):
    """All ranks use the seed of rank 0, whatever the states of their own random generators."""
    tensors = inputs(sq=400, sk=400)
    torch.manual_seed(3)
    want = scaled_dot_product_attention(*tensors, dropout_p=0.3, enable_gqa=True)
    torch.manual_seed(3 + rank)
    got = cp.scaled_dot_product_attention(*shards(tensors, "zigzag"), dropout_p=0.3, enable_gqa=True)
    assert_bits(got, cp.shard(want, 2))


def rope(rank, ranks):
    """Each rank rotates its queries and keys by the positions that cp.positions gives for its rows."""

    def turned(tensor, at):
        angles = at[:, None] / 100.0 ** (torch.arange(D // 2) / (D // 2))
        a, b = tensor.chunk(2, -1)
        return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)

    q, k, v = inputs()
    every = torch.arange(LENGTH)
    want = scaled_dot_product_attention(turned(q, every), turned(k, every), v, is_causal=True, enable_gqa=True)
    for cut in cuts(LENGTH, ranks):
        own_q, own_k, own_v = shards((q, k, v), cut)
        at = cp.positions(LENGTH, cut=cut)
        turned_q, turned_k = turned(own_q, at), turned(own_k, at)
        got = cp.scaled_dot_product_attention(turned_q, turned_k, own_v, is_causal=True, enable_gqa=True, cut=cut)
        assert_bits(got, cp.shard(want, 2, cut=cut), cut)


# Tests of the functions that cut and join rows.


def rows(rank, ranks):
    for size in (0, 1, 127, 128, 129, 1000, 1111, 4097):
        for cut in ("zigzag", "contiguous"):
            at = cp.positions(size, cut=cut)
            assert at.dtype == torch.int64
            every = cp.unshard(at, 0, cut=cut)
            assert torch.equal(every, torch.arange(size)), (size, cut)
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
        whole = torch.randn(2, 700, 3).to(dtype)
        for cut in cuts(700, ranks):
            own = cp.shard(whole, 1, cut=cut)
            assert torch.equal(own, whole[:, cp.positions(700, cut=cut)])
            assert_bits(cp.unshard(own, -2, cut=cut), whole, cut)


def gradients_of_rows(rank, ranks):
    whole = torch.randn(700, 3, requires_grad=True)
    weights = torch.randn(700, 3)
    own = cp.shard(whole, 0)
    own.retain_grad()
    (cp.unshard(own, 0) * weights).sum().backward()
    at = cp.positions(700)
    assert torch.equal(own.grad, weights[at])
    assert torch.equal(whole.grad[at], weights[at])
    others = torch.ones(700, dtype=torch.bool)
    others[at] = False
    assert not whole.grad[others].any()


# Tests of errors.


def raises_on_all(kind, text, function, *arguments, **keywords):
    """Expects the same error on every rank. Afterwards the ranks must still be able to exchange messages."""
    with pytest.raises(kind) as raised:
        function(*arguments, **keywords)
    assert re.search(text, str(raised.value)), raised.value
    digest = torch.tensor([hash_of(str(raised.value))])
    assert (cp.unshard(digest, 0, cut=one_row_each()) == digest).all(), raised.value


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode(), "little") % 1000000007


def one_row_each() -> list:
    return [[(rank, rank + 1)] for rank in range(dist.get_world_size())]


def errors(rank, ranks):
    tensors = inputs()
    q, k, v = shards(tensors, "zigzag")
    call = cp.scaled_dot_product_attention
    last = ranks - 1
    here = rank == last
    gqa = {"enable_gqa": True}

    def wrong(text, *own, kind=ValueError, **keywords):
        raises_on_all(kind, text, call, *own, **gqa | keywords)

    at = rf"rank {last}: "
    invalid = "^invalid argument: " + at
    wrong(invalid + r"value.shape\[-2\]=\d+, want \d+", q, k, v[:, :, 1:] if here else v)
    wrong("^invalid argument: rank 0: ", q[:, :, 1:] if here else q, k, v)
    wrong(invalid + r"query.dtype=torch.float64", q.double() if here else q, k, v)
    wrong(invalid + r"key.dtype=torch.bfloat16, want torch.float32", q, k.bfloat16() if here else k, v)
    wrong(at + "query: want a torch.Tensor, got int", 1 if here else q, k, v, kind=TypeError)
    wrong(invalid + "dropout_p=2", q, k, v, dropout_p=2.0 if here else 0.0)
    wrong(invalid + r"attn_mask.shape=\[3, 3\], want one that broadcasts", q, k, v, torch.ones(3, 3) if here else None)
    wrong(invalid + "scale=nan, want a finite number", q, k, v, scale=float("nan") if here else 1.0)
    wrong(invalid + r"scale=0.5, want 0.25 \(rank 0\)", q, k, v, scale=0.5 if here else 0.25)
    wrong(invalid + r"is_causal=", q, k, v, is_causal=here)
    wrong(invalid + r"cut=contiguous, want zigzag \(rank 0\)", q, k, v, cut="contiguous" if here else "zigzag")
    wrong(invalid + 'cut="spiral", want contiguous, zigzag or', q, k, v, cut="spiral" if here else "zigzag")
    wrong(at + 'cut: want "zigzag"', q, k, v, cut=3 if here else "zigzag", kind=TypeError)
    wrong(invalid + 'strategy="luck", want one of auto', q, k, v, strategy="luck" if here else "auto")
    wrong(invalid + r"strategy=heads, want sequence", q, k, v, strategy="heads" if here else "sequence")
    wrong(invalid + r"requires_grad=True, want False", q.clone().requires_grad_(here), k, v)
    wrong("cut has 1 lists, want", q, k, v, cut=[[(0, LENGTH)]])
    wrong("cut: not held once: row 5", q, k, v, cut=[[(0, 5)], [(6, LENGTH)], *[[]] * (ranks - 2)])
    wrong(
        r"query.shape\[-3\]=2, want 4",
        *(t[:, ::2] if here else t for t in (q, k, v)),
    )
    raises_on_all(ValueError, invalid + "dim=0, want 1", cp.unshard, torch.zeros(1, 1), 0 if here else 1)
    if here:
        with pytest.raises(TypeError, match="group: want a ProcessGroup"):
            call(q, k, v, group=5, **gqa)
        with pytest.raises(ValueError, match="cut has 1 lists"):
            cp.positions(5, cut=[[(0, 5)]])
    raises_on_all(ValueError, "call=unshard, want attention", *((cp.unshard, q, 2) if here else (call, q, q, q)))
    want = scaled_dot_product_attention(*tensors, **gqa)
    assert_bits(call(q, k, v, **gqa), cp.shard(want, 2))


# Tests of torch_npu.


def npu(rank, ranks):
    triangle = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    sink = torch.randn(N)
    for layout, mode in (("BNSD", 2), ("BSND", 3), ("BSH", 4), ("SBH", 0), ("BNSD", 0)):
        q, k, v = (t[..., :D] for t in inputs(batch=2))
        dim = {"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0}[layout]
        arrange = {
            "BNSD": lambda t: t,
            "BSND": lambda t: t.transpose(1, 2),
            "BSH": lambda t: t.transpose(1, 2).flatten(2),
            "SBH": lambda t: t.permute(2, 0, 1, 3).flatten(2),
        }[layout]
        tensors = [arrange(t).contiguous() for t in (q, k, v)]
        keywords = {"sparse_mode": mode, "scale": 0.2, "sink": sink}
        if mode:
            keywords["atten_mask"] = triangle
        if mode == 4:
            keywords |= {"pre_tockens": 200, "next_tockens": 0}
        want = torch_npu.npu_fusion_attention(*tensors, N, layout, **keywords)
        got = cp.npu_fusion_attention(*shards(tensors, "zigzag", dim), N, layout, **keywords)
        assert_bits(got[0], cp.shard(want[0], dim), layout, mode)
        for own, statistic in zip(got[1:3], want[1:3], strict=True):
            assert_bits(own, cp.shard(statistic, 2), layout, mode)
        assert got[4:] == want[4:]


def npu_gradients(rank, ranks):
    """Compares gradients in calls with sinks, a window and dropout. On every rank, the gradient of the sinks must be
    the sum over the rows of all ranks.
    """
    triangle = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    keywords = {"sparse_mode": 4, "pre_tockens": 200, "next_tockens": 0, "atten_mask": triangle}
    for dtype, dropped in ((torch.float32, {}), (torch.bfloat16, {"keep_prob": 0.5, "seed": 5})):
        tensors = [t[..., :D].transpose(1, 2).contiguous().requires_grad_() for t in inputs(dtype, batch=2)]
        sink = torch.randn(N, requires_grad=True)
        want = torch_npu.npu_fusion_attention(*tensors, N, "BSND", sink=sink, **keywords, **dropped)[0]
        d_out = torch.randn(want.shape).to(dtype)
        *wanted, d_sink = torch.autograd.grad(want, [*tensors, sink], d_out)
        own = [t.detach().requires_grad_() for t in shards(tensors, "zigzag", 1)]
        got = cp.npu_fusion_attention(*own, N, "BSND", sink=sink, **keywords, **dropped)[0]
        *gradients, d_own_sink = torch.autograd.grad(got, [*own, sink], cp.shard(d_out, 1))
        for i, gradient in enumerate(gradients):
            assert_bits(gradient, cp.shard(wanted[i], 1), "qkv"[i], dtype)
        assert_bits(d_own_sink, d_sink, dtype)


def npu_biases_of_all_queries(rank, ranks):
    """Computes calls with one bias row for all queries, and calls with 1024 bias rows. On every rank, the gradient of
    the one row must be the sum over the rows of all ranks.
    """
    for dtype, batch in ((torch.float32, 1), (torch.bfloat16, 2)):
        tensors = [t[..., :D].contiguous().requires_grad_() for t in inputs(dtype, batch=2)]
        pse = torch.randn(batch, N, 1, LENGTH, dtype=dtype, requires_grad=True)
        want = torch_npu.npu_fusion_attention(*tensors, N, "BNSD", pse=pse, scale=0.2)[0]
        d_out = torch.randn(want.shape).to(dtype)
        *wanted, d_pse = torch.autograd.grad(want, [*tensors, pse], d_out)
        for strategy in ("sequence", "heads"):
            own = [t.detach().requires_grad_() for t in shards(tensors, "zigzag")]
            keywords = {"pse": pse, "scale": 0.2, "strategy": strategy}
            got = cp.npu_fusion_attention(*own, N, "BNSD", **keywords)[0]
            *gradients, d_own_pse = torch.autograd.grad(got, [*own, pse], cp.shard(d_out, 2))
            for i, gradient in enumerate(gradients):
                assert_bits(gradient, cp.shard(wanted[i], 2), "qkv"[i], dtype, strategy)
            assert_bits(d_own_pse, d_pse, dtype, strategy)
    tensors = [torch.randn(1, heads, 1300, 8) for heads in (N, NKV, NKV)]
    triangle = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    keywords = {"pse": torch.randn(1, N, 1024, 1300), "sparse_mode": 2, "atten_mask": triangle}
    want = torch_npu.npu_fusion_attention(*tensors, N, "BNSD", **keywords)
    got = cp.npu_fusion_attention(*shards(tensors, "zigzag"), N, "BNSD", **keywords)
    assert_bits(got[0], cp.shard(want[0], 2))


def masks_in_memory(rank, ranks):
    """Computes calls with masks of the rank's rows and all keys: bool masks, float masks with gradients, and masks of
    one row for all queries.
    """
    sq, sk = 600, 500
    tensors = [t.requires_grad_() for t in inputs(sq=sq, sk=sk, batch=2)]
    d_out = torch.randn(2, N, sq, DV)
    keep = torch.rand(2, 1, sq, sk) > 0.3
    for mask in (keep, torch.randn(N, sq, sk, requires_grad=True), torch.randn(sk), keep[0, 0]):
        wanted = [*tensors, mask] if mask.requires_grad else tensors
        want = scaled_dot_product_attention(*tensors, mask, enable_gqa=True)
        for cut in ("zigzag", "contiguous"):
            own = [t.detach().requires_grad_() for t in shards(tensors, cut)]
            own_mask = mask if mask.dim() == 1 else cp.shard(mask.detach(), -2, cut=cut)
            if mask.requires_grad:
                own.append(own_mask.requires_grad_())
            got = cp.scaled_dot_product_attention(*own[:3], own_mask, enable_gqa=True, cut=cut)
            assert_bits(got, cp.shard(want, 2, cut=cut), mask.shape, cut)
            gradients = torch.autograd.grad(got, own, cp.shard(d_out, 2, cut=cut))
            for gradient, whole in zip(gradients, torch.autograd.grad(want, wanted, d_out, retain_graph=True), strict=True):
                assert_bits(gradient, cp.shard(whole, -2, cut=cut), mask.shape, cut)
    own = shards(tensors, "zigzag")
    call = cp.scaled_dot_product_attention
    text = r"attn_mask.shape\[3\]=499, want 500"
    raises_on_all(ValueError, text, call, *own, cp.shard(keep[..., 1:], 2), enable_gqa=True)
    text = "strategy=heads, want auto or sequence: rows of attn_mask stay with their rank"
    raises_on_all(ValueError, text, call, *own, cp.shard(keep, 2), enable_gqa=True, strategy="heads")
    text = r"attn_mask.shape=\[500\], want \d+ rows"
    raises_on_all(ValueError, text, call, *own, torch.randn(sk, requires_grad=True), enable_gqa=True)


def npu_packed(rank, ranks):
    ends = [100, 100, 640, 1000]
    tensors = [torch.randn(1111, heads, D) for heads in (N, NKV, NKV)]
    keywords = {"actual_seq_qlen": ends, "actual_seq_kvlen": ends, "softmax_layout": "TND", "keep_prob": 0.5}
    want = torch_npu.npu_fusion_attention(*tensors, N, "TND", **keywords, seed=5, offset=3)
    for cut in cuts(1111, ranks):
        own = shards(tensors, cut, 0)
        got = cp.npu_fusion_attention(*own, N, "TND", **keywords, seed=5, offset=3, cut=cut)
        for i in range(3):
            assert_bits(got[i], cp.shard(want[i], 0, cut=cut), cut)
        assert got[4:] == want[4:] == (5, 3, want[6])
    own = shards(tensors, "zigzag", 0)
    drawn = cp.npu_fusion_attention(*own, N, "TND", **keywords)
    again = cp.npu_fusion_attention(*own, N, "TND", **keywords, seed=drawn[4], offset=drawn[5])
    assert_bits(drawn[0], again[0])
    call = cp.npu_fusion_attention
    text = r"rank \d: softmax_layout=\"\", want \"TND\""
    raises_on_all(ValueError, text, call, *own, N, "TND", actual_seq_qlen=ends, actual_seq_kvlen=ends)
    last = rank == ranks - 1
    raises_on_all(ValueError, r"seed=7, want 5", call, *own, N, "TND", **keywords, seed=7 if last else 5)
    text = rf"rank {ranks - 1}: actual_seq_qlen\[1\]=90, want"
    wrong = {**keywords, "actual_seq_qlen": [100, 90, 640, 1000] if last else ends}
    raises_on_all(ValueError, text, call, *own, N, "TND", **wrong)
    mask = torch.zeros(600, 600, dtype=torch.bool)
    text = r"atten_mask.shape\[0\]=600, want 540 \(longest query sequence\)"
    raises_on_all(ValueError, text, call, *own, N, "TND", atten_mask=mask, **keywords)
    bad = {"sparse_mode": 2, "atten_mask": torch.zeros(2048, 2048, dtype=torch.bool)}
    raises_on_all(ValueError, r"rank 0: atten_mask\[0\]\[1\]=0, want 1", call, *own, N, "TND", **keywords, **bad)


# Tests of whole models.


@contextlib.contextmanager
def products_by_rank(length, cut, ranks):
    """Makes linear layers of the call without ranks multiply the rows of each rank separately. Matrix products of other
    sizes may round differently.
    """
    at = [None] * ranks
    dist.all_gather_object(at, cp.positions(length, cut=cut))
    order = torch.argsort(torch.cat(at))
    linear = torch.nn.functional.linear

    def by_rank(x, *weights):
        if length not in x.shape:  # x has batch and rows in one dimension
            return by_rank(x.unflatten(0, (length, -1)), *weights).flatten(0, 1)
        dim = x.shape.index(length)
        return torch.cat([linear(x.index_select(dim, rows), *weights) for rows in at], dim).index_select(dim, order)

    torch.nn.functional.linear = by_rank
    yield
    torch.nn.functional.linear = linear


def modules(rank, ranks):
    """Runs PyTorch's own layers, which look up scaled_dot_product_attention at each call and so find the
    replacement."""
    torch.manual_seed(11)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).eval()
    x = torch.randn(2, 600, 32)
    before = torch.nn.functional.scaled_dot_product_attention
    causal = torch.nn.Transformer.generate_square_subsequent_mask
    with torch.no_grad():
        for cut in cuts(600, ranks):
            with fa.torch.replace_scaled_dot_product_attention(), products_by_rank(600, cut, ranks):
                want = layer(x, src_mask=causal(600), is_causal=True)
            own = cp.shard(x, 1, cut=cut)
            with cp.enable(None, cut):
                got = layer(own, src_mask=causal(own.shape[1]), is_causal=True)
                with cp.enable(cut=cut, strategy="heads"):
                    assert_bits(layer(own, src_mask=causal(own.shape[1]), is_causal=True), got)
                with pytest.raises(ValueError, match="need_weights=True, want False"):
                    layer.self_attn(own, own, own)
            assert_bits(got, cp.shard(want, 1, cut=cut), cut)
    assert torch.nn.functional.scaled_dot_product_attention is before
    assert torch.backends.mha.get_fastpath_enabled()


def transformers_models(rank, ranks):
    """Compares the logits of Llama, and of Mistral with its window, with "sdpa" and with "fa". Checks which calls are
    refused, and that all replaced functions are restored."""
    from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
    from transformers import MistralConfig, MistralForCausalLM

    import fa.transformers  # noqa: F401  (registers "fa")

    before = [dict(interface._global_mapping) for interface in (AttentionInterface, AttentionMaskInterface)]
    sizes = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
    }
    tokens = torch.randint(3, 97, (2, 700))
    llama = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    mistral = MistralForCausalLM(MistralConfig(**sizes, sliding_window=150)).eval()
    for model, name, cached in ((llama, "sdpa", False), (llama, "fa", True), (mistral, "sdpa", True)):
        for cut in cuts(700, ranks):
            model.set_attn_implementation("fa")
            embedded = model.get_input_embeddings()(tokens).detach().requires_grad_()
            with products_by_rank(700, cut, ranks):
                want = model(inputs_embeds=embedded).logits
                d_want = torch.autograd.grad(want.square().sum(), embedded)[0]
            model.set_attn_implementation(name)
            own, at = cp.shard(embedded.detach(), 1, cut=cut).requires_grad_(), cp.positions(700, cut=cut)[None]
            with cp.enable(cut=cut):
                got = model(inputs_embeds=own, position_ids=at, use_cache=cached).logits
                assert_bits(got, cp.shard(want, 1, cut=cut), name, cut)
            d_own = torch.autograd.grad(got.square().sum(), own)[0]
            assert_bits(d_own, cp.shard(d_want, 1, cut=cut), name, cut)
    own_masks_of_a_model(llama, tokens, ranks)
    with cp.enable(), torch.no_grad():
        own, at = cp.shard(tokens, 1), cp.positions(700)[None]
        padding = torch.ones_like(own)
        padding[:, 0] = rank < ranks - 1
        text = f"rank {ranks - 1}: attention_mask: padding is not taken over ranks"
        raises_on_all(ValueError, text, llama, own, position_ids=at, attention_mask=padding)
        text = r"rank 0: position_ids: 5, want .*: position_ids=positions\(700\)"
        packed = at.clone()
        packed[:, -5:] = torch.arange(5, 10)
        raises_on_all(ValueError, text, llama, own, position_ids=packed, use_cache=False)
        text = r"rank 0: position_ids.shape=.*, want \[1, \d+\]: position_ids=positions\(700\)"
        raises_on_all(ValueError, text, llama, own, position_ids=cp.positions(own.shape[1])[None])
    with cp.enable(cut="contiguous"), torch.no_grad():
        own = cp.shard(tokens, 1, cut="contiguous")
        # The default position_ids begin at 0 on every rank.
        raises_on_all(ValueError, "rank 1: position_ids: 0, want .*", llama, own)
    models_with_few_rows(llama, tokens[:, :100])
    chunks()
    assert before == [dict(interface._global_mapping) for interface in (AttentionInterface, AttentionMaskInterface)]


def models_with_few_rows(model, tokens):
    """Fewer rows than a block of 128 are an error. One rank would hold all rows, and transformers' models fail on ranks
    without rows."""
    own, at = cp.shard(tokens, 1), cp.positions(tokens.shape[1])[None]
    with torch.no_grad(), cp.enable():
        text = r"input_ids: rows \[100, 0\] on the ranks"
        raises_on_all(ValueError, text, model, own, position_ids=at)
        raises_on_all(ValueError, text, model, own, position_ids=at, use_cache=False)


def chunks():
    """Llama 4 has chunked attention in some layers. A chunk as long as the sequence changes nothing, so it is allowed.
    A smaller chunk is an error."""
    from transformers import Llama4ForCausalLM, Llama4TextConfig

    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "intermediate_size_mlp": 48}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    sizes |= {"num_local_experts": 2, "layer_types": ["chunked_attention", "full_attention"]}
    tokens = torch.randint(3, 97, (1, 300), generator=torch.Generator().manual_seed(4))
    own, at = cp.shard(tokens, 1), cp.positions(300)[None]
    for chunk in (300, 299):
        model = Llama4ForCausalLM(Llama4TextConfig(**sizes, attention_chunk_size=chunk)).eval()
        model.set_attn_implementation("fa")
        with torch.no_grad(), cp.enable():
            if chunk < 300:
                text = "attention_chunk_size=299, want at least 300"
                raises_on_all(ValueError, text, model, own, position_ids=at, use_cache=False)
                continue
            got = model(own, position_ids=at, use_cache=False).logits
        want = cp.shard(model(tokens, use_cache=False).logits.detach(), 1)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def own_masks_of_a_model(model, tokens, ranks):
    """Runs a model with masks of four dimensions that the caller makes: a bool mask, and a float mask that is added."""
    rows = tokens.shape[1]
    kept = torch.rand(rows, rows, generator=torch.Generator().manual_seed(3)) < 0.7
    kept = (kept.tril() | torch.eye(rows, dtype=torch.bool))[None, None]
    for mask in (kept, torch.zeros(kept.shape).masked_fill(~kept, -torch.inf)):
        for name, cut in (("sdpa", "zigzag"), ("fa", "contiguous")):
            with torch.no_grad(), products_by_rank(rows, cut, ranks):
                model.set_attn_implementation("fa")
                want = model(tokens, attention_mask=mask, use_cache=False).logits
            model.set_attn_implementation(name)
            own, at = cp.shard(tokens, 1, cut=cut), cp.positions(rows, cut=cut)[None]
            with cp.enable(cut=cut), torch.no_grad():
                got = model(own, position_ids=at, attention_mask=cp.shard(mask, 2, cut=cut), use_cache=False).logits
            assert_bits(got, cp.shard(want, 1, cut=cut), name, cut, mask.dtype)
    with cp.enable(), torch.no_grad():
        own, at = cp.shard(tokens, 1), cp.positions(rows)[None]
        text = r"rank 0: attention_mask.dtype=torch.int32, want torch.bool"
        raises_on_all(ValueError, text, model, own, position_ids=at, attention_mask=cp.shard(kept, 2).int())


ROWS = ["rows", "gradients_of_rows"]
FORWARD = ["attention", "bytes_moved", "rules_of_other_lengths", "shapes_and_scales", "dropout", "rope", "npu", "npu_packed", "modules"]
ERRORS = ["errors"]
GRADIENTS = ["gradients", "masks_in_memory", "npu_gradients", "npu_biases_of_all_queries"]
MODELS = ["transformers_models"]
