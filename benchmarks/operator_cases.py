"""Operators for which no other library has a single call, each with a careful implementation in PyTorch.

The implementation computes in chunks whose intermediate results stay in cache. Products are batched matrix products in
the input's type, and the softmax is in f32. Gradients are computed by their formulas, without autograd. Work that does
not depend on the call's data is done before the timing."""

import math
from dataclasses import dataclass
from typing import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import fa

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
U = 2.0**-24
NARROW = 2.0**-8


@dataclass(frozen=True)
class Problem:
    """A call of fa and the same computation in PyTorch. Both return the tensors that are compared."""

    own: Callable  # takes no arguments
    peer: Callable  # takes the number of rows, tokens or sequences in a chunk
    chunks: tuple  # all chunk sizes that are tried
    work: float  # FLOPs, or bytes if unit is GB/s
    depth: int  # the number of terms of the longest dot product on the way to a result
    unit: str = "GFLOP/s"
    # The number of roundings to bf16 that a result has in fa and PyTorch together. Each library rounds the result, and
    # the probabilities or the gradients of scores.
    narrowings: float = 4


def bound(dtype, problem):
    """Returns how far two correct results may be apart, as a fraction of their norm. Each result has an error of 2
    depth U by its products, and of 40 U by an exponential of 20 ulp. The roundings to bf16 add sqrt(narrowings) NARROW,
    because the errors of different values are independent."""
    narrow = NARROW * math.sqrt(problem.narrowings) if dtype == "bf16" else 0
    return 2 * (2 * problem.depth + 40) * U + narrow


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=normal.generator).to(dtype)


normal.generator = torch.Generator().manual_seed(7)


def flash(q, k, v, causal=False):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def prompt(dtype):
    """Returns the Problem of four causal prompts of different lengths in one batch, with 16 heads of size 128."""
    lengths, heads, d = (2048, 1024, 512, 256), 16, 128
    q, k, v = (normal(len(lengths), heads, max(lengths), d, dtype=dtype) for _ in range(3))
    mask = fa.Mask.causal()

    def own():
        return [fa.prompt_flash_attention(q, k, v, mask=mask, lengths_q=lengths, lengths_kv=lengths)]

    def peer(_chunk):
        out = torch.zeros_like(q)
        for b, n in enumerate(lengths):
            out[b, :, :n] = flash(q[b : b + 1, :, :n], k[b : b + 1, :, :n], v[b : b + 1, :, :n], causal=True)[0]
        return [out]

    return Problem(own, peer, (0,), sum(2 * heads * d * n * (n + 1) for n in lengths), max(lengths))


def paged_decode(dtype):
    """Returns the Problem of eight sequences with one query row and 4096 keys each, in pages of 128 rows. There are 32
    query heads and 8 key heads of size 128."""
    batch, heads, heads_kv, keys, d, page = 8, 32, 8, 4096, 128, 128
    q = normal(batch, 1, heads, d, dtype=dtype)
    k, v = (normal(batch * keys // page, page, heads_kv, d, dtype=dtype) for _ in range(2))
    table = torch.randperm(len(k), generator=normal.generator).view(batch, -1)
    pages = table.int()

    def own():
        return [fa.decode_attention(q, k, v, layout="BSND", block_table=pages, lengths_kv=[keys] * batch)]

    def products(q, k, v):
        scores = (q @ k.transpose(2, 3)).float() * d**-0.5
        return scores.softmax(-1).to(dtype) @ v

    def peer(way):
        attention, chunk = (flash, way) if way > 0 else (products, -way)
        parts = []
        for b in range(0, batch, chunk):
            part = table[b : b + chunk]
            wide = [t[part].flatten(1, 2).transpose(1, 2) for t in (k, v)]  # of shape [b, Nkv, S, D]
            parts.append(attention(q[b : b + chunk].view(-1, heads_kv, heads // heads_kv, d), *wide))
        return [torch.cat(parts).view_as(q)]

    size = 2.0 * batch * keys * heads_kv * d * q.element_size()
    # A negative chunk size means two matrix products instead of PyTorch's flash kernel.
    return Problem(own, peer, (1, 8, -1, -8), size, keys, "GB/s")


class Sparse:
    """A selection of 2048 of 8192 keys for each of 64 tokens. Heads have 512 + 64 columns; the values are the first
    512."""

    tokens, keys, selected, d, rope = 64, 8192, 2048, 512, 64

    def __init__(self, dtype, heads):
        self.heads, self.scale = heads, (self.d + self.rope) ** -0.5
        self.q = normal(1, self.tokens, heads, self.d, dtype=dtype)
        self.q_rope = normal(1, self.tokens, heads, self.rope, dtype=dtype)
        self.k = normal(1, self.keys, 1, self.d, dtype=dtype)
        self.k_rope = normal(1, self.keys, 1, self.rope, dtype=dtype)
        lists = [torch.randperm(self.keys, generator=normal.generator)[: self.selected] for _ in range(self.tokens)]
        self.lists = torch.stack(lists)
        self.indices = self.lists.int().view(1, self.tokens, 1, self.selected)
        self.q_whole = torch.cat([self.q, self.q_rope], -1)[0]
        self.k_whole = torch.cat([self.k, self.k_rope], -1)[0, :, 0]
        self.options = {"query_rope": self.q_rope, "key_rope": self.k_rope, "scale": self.scale, "sparse_mode": 0,
                        "check_indices": False}

    def forward(self):
        return fa.sparse_flash_attention(self.q, self.k, None, self.indices, value_size=self.d, **self.options)

    def scores(self, at):
        """@return the scores of a slice of tokens, f32 [T, N, K], and the keys that these tokens have selected"""
        selected = self.k_whole[self.lists[at]]
        return torch.bmm(self.q_whole[at], selected.transpose(1, 2)).float() * self.scale, selected

    def slices(self, chunk):
        return [slice(t, t + chunk) for t in range(0, self.tokens, chunk)]


def sparse_forward(dtype, heads):
    case = Sparse(dtype, heads)

    def peer(chunk):
        parts = []
        for at in case.slices(chunk):
            scores, selected = case.scores(at)
            parts.append(torch.bmm(scores.softmax(-1).to(dtype), selected[..., : case.d]))
        return [torch.cat(parts)[None]]

    flops = 2.0 * case.tokens * case.selected * heads * (2 * case.d + case.rope)
    return Problem(lambda: [case.forward().out], peer, (1, 4, 16), flops, case.selected)


def sparse_backward(dtype, heads):
    case = Sparse(dtype, heads)
    out, maxima, sums = case.forward()[:3]
    d_out = normal(*out.shape, dtype=dtype)
    lse = (maxima + sums.log()).reshape(case.tokens, heads, 1)

    def own():
        return list(fa.sparse_flash_attention_grad(case.q, case.k, None, case.indices, out, d_out, maxima, sums,
                                                   **case.options))

    def peer(chunk):
        dq, dk = torch.empty_like(case.q_whole), torch.zeros(case.k_whole.shape)
        for at in case.slices(chunk):
            scores, selected = case.scores(at)
            p = (scores - lse[at]).exp()
            go = d_out[0, at]
            delta = (go.float() * out[0, at].float()).sum(-1, keepdim=True)
            dp = torch.bmm(go, selected[..., : case.d].transpose(1, 2)).float()
            ds = (p * (dp - delta) * case.scale).to(dtype)
            dq[at] = torch.bmm(ds, selected)
            of_keys = torch.bmm(ds.transpose(1, 2), case.q_whole[at]).float()
            of_keys[..., : case.d] += torch.bmm(p.to(dtype).transpose(1, 2), go).float()
            dk.index_add_(0, case.lists[at].flatten(), of_keys.flatten(0, 1))
        dk = dk.to(dtype)[None, :, None]
        return [dq[None, ..., : case.d], dk[..., : case.d], dq[None, ..., case.d :], dk[..., case.d :]]

    flops = 2.0 * case.tokens * case.selected * heads * (5 * case.d + 3 * case.rope)
    return Problem(own, peer, (1, 4, 16), flops, case.selected)


def positive_products(q, k):
    """Returns max(0, q . k), [T, H, S]. k is [S, D], or [T, S, D] if each row has its own keys."""
    keys = k.transpose(-1, -2)
    return torch.bmm(q, keys).relu_() if k.dim() == 3 else (q.flatten(0, 1) @ keys).unflatten(0, q.shape[:2]).relu_()


def sum_of_heads(weights, positive):
    """Returns the indexer's scores [T, S], which are weighted sums over the heads, in the type of the arguments."""
    return torch.bmm(weights.unsqueeze(1), positive)[:, 0]


def indexer(dtype):
    """Returns the Problem of choosing keys for each of 256 tokens: the 2048 best of 8192 keys, with 64 heads of size
    128."""
    tokens, keys, heads, d, count = 256, 8192, 64, 128, 2048
    q, k = normal(1, tokens, heads, d, dtype=dtype), normal(1, keys, 1, d, dtype=dtype)
    weights = normal(1, tokens, heads, dtype=dtype).abs()

    def own():
        return [fa.lightning_indexer(q, k, weights, sparse_count=count, sparse_mode=0)[1][0, :, 0]]

    def peer(chunk):
        parts = []
        for t in range(0, tokens, chunk):
            at = slice(t, t + chunk)
            # Scores are summed in the input's type, because the returned scores have this type.
            parts.append(sum_of_heads(weights[0, at], positive_products(q[0, at], k[0, :, 0])).topk(count).values)
        return [torch.cat(parts)]

    return Problem(own, peer, (4, 16, 64), 2.0 * tokens * keys * heads * d, d)


# The number of roundings to bf16 that the gradients of a loss have, without those that product_share counts. fa rounds
# the gradients of the products q . k, and the results. PyTorch rounds the gradients of the scores and of the products,
# a token's part of the keys' gradients, and the results.
LOSS_NARROWINGS = 6


def product_share(rows):
    """Returns the squared error that PyTorch's gradients of scores, d = y - p, have because products are rounded to
    bf16. It is the sum of the squared errors divided by the sum of the d^2, in units of NARROW^2.

    y is the softmax of the index scores I = w . max(0, q . k). If I is off by e, y is off by y (e - m), where m is the
    mean of e weighted by y. On average, (y (e - m))^2 is y^2 ((1 - 2 y) e^2 + the sum of (y e)^2 over keys). With
    rounded products, e^2 is the sum of (w max(0, q . k))^2 over heads. A rounded I would make e^2 = I^2, which is 15
    times as much on these selections. The target p is the mean over heads of P = exp(s - lse), and rounding s changes P
    by s P.
    @param rows  per row, in f32: scores of the attention s [N, K], lse [N, 1], max(0, q . k) [H, K], weights [H]
    """
    moved = whole = 0.0
    for s, lse, positive, weights in rows:
        by_head = (s - lse).exp() / len(s)
        y = (weights @ positive).softmax(-1)
        e = weights.square() @ positive.square()
        of_y = y.square() * ((1 - 2 * y) * e + (y.square() * e).sum())
        moved += (of_y.sum() + (s * by_head).square().sum()).item()
        whole += (y - by_head.sum(0)).square().sum().item()
    return moved / whole


def loss_of(p, positive, weights, allowed=None):
    """Returns the KL loss of rows, and the gradients of weights and of max(0, q . k). Scores are summed in f32.
    Rounding a score above 8 to bf16 could change its probability by 3 %."""
    scores = sum_of_heads(weights.float(), positive.float())
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    log_y = scores.log_softmax(-1)
    d_scores = log_y.exp() - p
    terms = p * (p.clamp_min(1e-8).log() - log_y)
    loss = (terms if allowed is None else terms.masked_fill(~allowed, 0)).sum()
    narrow = d_scores.to(weights.dtype)
    d_weights = torch.bmm(positive, narrow.unsqueeze(-1))[..., 0]
    return loss, d_weights, (positive > 0) * narrow.unsqueeze(1) * weights.unsqueeze(-1)


def sparse_loss(dtype):
    """Returns the Problem of the loss on the selections of Sparse. The attention and the indexer have 64 heads. The
    indexer's heads have size 128.
    """
    case = Sparse(dtype, 64)
    heads, d = 64, 128
    q, k = normal(1, case.tokens, heads, d, dtype=dtype), normal(1, case.keys, 1, d, dtype=dtype)
    weights = (normal(1, case.tokens, heads).abs() / 64).to(dtype)
    _, maxima, sums = case.forward()[:3]
    lse = (maxima + sums.log()).reshape(case.tokens, case.heads, 1)

    def own():
        return list(fa.sparse_lightning_indexer_grad_kl_loss(
            case.q, case.k, q, k, weights, case.indices, maxima, sums, **case.options))

    def peer(chunk):
        dq, dw, dk, loss = torch.empty_like(q), torch.empty_like(weights), torch.zeros(case.keys, d), torch.zeros(1)
        for at in case.slices(chunk):
            p = (case.scores(at)[0] - lse[at]).exp_().mean(1)
            selected = k[0, case.lists[at], 0]
            positive = positive_products(q[0, at], selected)
            part, dw[0, at], gradient = loss_of(p, positive, weights[0, at])
            loss += part
            dq[0, at] = torch.bmm(gradient, selected)
            dk.index_add_(0, case.lists[at].flatten(), torch.bmm(gradient.transpose(1, 2), q[0, at]).float().flatten(0, 1))
        return [dq, dk.to(dtype)[None, :, None], dw, loss]

    def row(t):
        s = case.q_whole[t].float() @ case.k_whole[case.lists[t]].float().t() * case.scale
        return s, lse[t], (q[0, t].float() @ k[0, case.lists[t], 0].float().t()).relu(), weights[0, t].float()

    flops = 2.0 * case.tokens * case.selected * (case.heads * (case.d + case.rope) + 3 * heads * d)
    narrowings = LOSS_NARROWINGS + product_share(map(row, range(case.tokens)))
    return Problem(own, peer, (1, 4, 16), flops, case.selected, narrowings=narrowings)


def dense_loss(dtype):
    """Returns the Problem of the loss over all keys of 1024 causal rows. Attention and indexer have 16 heads of size
    128."""
    rows, heads, d = 1024, 16, 128
    q, k = (normal(1, rows, heads, d, dtype=dtype) for _ in range(2))
    qi, ki = normal(1, rows, heads, d, dtype=dtype), normal(1, rows, 1, d, dtype=dtype)
    weights = (normal(1, rows, heads).abs() / 16).to(dtype)
    by_head, keys = q[0].transpose(0, 1).contiguous(), k[0].permute(1, 2, 0).contiguous()
    scale = d**-0.5
    causal = torch.ones(rows, rows, dtype=torch.bool).tril()
    exact = (torch.bmm(by_head.float(), keys.float()) * scale).masked_fill(~causal, -torch.inf)
    maxima = exact.amax(-1)
    sums = (exact - maxima.unsqueeze(-1)).exp().sum(-1)
    lse = (maxima + sums.log()).unsqueeze(-1)
    statistics = [t.view(1, heads, rows, 1).contiguous() for t in (maxima, sums)]
    index_statistics = fa.dense_lightning_indexer_softmax_lse(qi, ki, weights)

    def own():
        return list(fa.dense_lightning_indexer_grad_kl_loss(q, k, qi, ki, weights, *statistics, *index_statistics, scale=scale))

    def peer(chunk):
        dq, dw, dk, loss = torch.empty_like(qi), torch.empty_like(weights), torch.zeros(rows, d), torch.zeros(1)
        for t in range(0, rows, chunk):
            at, last = slice(t, t + chunk), min(t + chunk, rows)
            allowed = causal[at, :last]
            scores = torch.bmm(by_head[:, at], keys[:, :, :last]).float() * scale
            p = (scores - lse[:, at]).exp_().mean(0).masked_fill_(~allowed, 0)
            positive = positive_products(qi[0, at], ki[0, :last, 0])
            part, dw[0, at], gradient = loss_of(p, positive, weights[0, at], allowed)
            loss += part
            flat = gradient.flatten(0, 1)
            dq[0, at] = (flat @ ki[0, :last, 0]).unflatten(0, (-1, heads))
            dk[:last] += (flat.t() @ qi[0, at].flatten(0, 1)).float()
        return [dq, dk.to(dtype)[None, :, None], dw, loss]

    def row(t):
        positive = (qi[0, t].float() @ ki[0, : t + 1, 0].float().t()).relu()
        return exact[:, t, : t + 1], lse[:, t], positive, weights[0, t].float()

    narrowings = LOSS_NARROWINGS + product_share(map(row, range(rows)))
    return Problem(own, peer, (32, 128, 512), 1.0 * rows * (rows + 1) * heads * d * 4, rows, narrowings=narrowings)


CASES = {
    "prompt of four lengths, causal": prompt,
    "paged decode": paged_decode,
    "sparse forward, 128 heads": lambda dtype: sparse_forward(dtype, 128),
    "sparse forward, 16 heads": lambda dtype: sparse_forward(dtype, 16),
    "sparse backward, 128 heads": lambda dtype: sparse_backward(dtype, 128),
    "sparse backward, 16 heads": lambda dtype: sparse_backward(dtype, 16),
    "lightning indexer, top 2048": indexer,
    "KL loss on selections": sparse_loss,
    "KL loss on every key": dense_loss,
}
