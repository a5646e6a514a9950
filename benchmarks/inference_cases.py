"""Operators of inference: fused calls over pages, rows of a cache, quantised keys, shared keys, kept blocks.

Each has a careful implementation in PyTorch, as in operator_cases.py: it gathers pages or keys, and computes by flash
kernels or by matrix products, whichever is the fastest in a trial.
"""

import torch
from operator_cases import Problem, Sparse, flash, normal
from torch.nn.functional import scaled_dot_product_attention

import fa


def drawn(*shape, most):
    """@return numbers below `most`, different from each other in the last dimension"""
    return torch.rand(*shape[:-1], most, generator=normal.generator).argsort(-1)[..., : shape[-1]]


class Paged:
    """Sequences of keys in pages of 128 rows in random order. There are 32 query heads and 8 key heads of size 128."""

    heads, heads_kv, d, page = 32, 8, 128, 128

    def __init__(self, dtype, batch, rows, keys):
        self.batch, self.rows, self.keys = batch, rows, keys
        self.q = normal(batch, rows, self.heads, self.d, dtype=dtype)
        pages = batch * keys // self.page
        self.k, self.v = (normal(pages, self.page, self.heads_kv, self.d, dtype=dtype) for _ in range(2))
        self.table = torch.randperm(len(self.k), generator=normal.generator).view(batch, -1)
        self.pages = self.table.int()

    def own(self):
        k, v = self.k.flatten(2), self.v.flatten(2)  # pages [pages, page size, Nkv * D]
        return [fa.infer_attention(self.q, k, v, layout="BSND", head_num_kv=self.heads_kv, block_table=self.pages,
                                   sparse_mode=3, lengths_kv=[self.keys] * self.batch)]

    def contiguous(self, part):
        """@return keys and values of some sequences, each [b, Nkv, S, D]"""
        return [t[self.table[part]].flatten(1, 2).transpose(1, 2) for t in (self.k, self.v)]

    def folded(self, q):
        """@return q [b, N, S, D] as [b, Nkv, N / Nkv * S, D]: the rows of the heads that share a key head"""
        return q.reshape(len(q), self.heads_kv, -1, self.d)


def fused_decode(dtype):
    """Returns the Problem of eight sequences with one row and 4096 keys each."""
    case = Paged(dtype, 8, 1, 4096)

    def products(q, k, v):
        scores = (q @ k.transpose(2, 3)).float() * case.d**-0.5
        return scores.softmax(-1).to(dtype) @ v

    def peer(way):
        attention, chunk = (flash, way) if way > 0 else (products, -way)
        parts = [slice(b, b + chunk) for b in range(0, case.batch, chunk)]
        outs = [attention(case.folded(case.q[at].transpose(1, 2)), *case.contiguous(at)) for at in parts]
        return [torch.cat(outs).view_as(case.q)]

    size = 2.0 * case.k.numel() * case.k.element_size()
    # A negative chunk size means two matrix products instead of PyTorch's flash kernel.
    return Problem(case.own, peer, (1, 8, -1, -8), size, case.keys, "GB/s")


def fused_chunk(dtype):
    """Returns the Problem of the last 512 rows of a sequence of 4096 keys, causal."""
    case = Paged(dtype, 1, 512, 4096)
    past, rows = case.keys - case.rows, case.rows
    q = case.q.transpose(1, 2)
    bias = torch.ones(rows, case.keys, dtype=torch.bool).tril(past)
    parts_of_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def masked():
        k, v = case.contiguous(slice(0, 1))
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)

    def merged():
        """Merges two results by their lse: attention to the keys before the chunk, without a mask, and to the chunk."""
        k, v = case.contiguous(slice(0, 1))
        group = case.heads // case.heads_kv
        before, lse_before = parts_of_flash(case.folded(q), k[:, :, :past], v[:, :, :past])
        own_k, own_v = (t[:, :, past:].repeat_interleave(group, 1) for t in (k, v))
        own, lse_own = parts_of_flash(q, own_k, own_v, is_causal=True)
        before, lse_before = before.reshape(q.shape), lse_before.reshape(lse_own.shape)
        weight = torch.sigmoid(lse_before - lse_own).unsqueeze(-1)
        return torch.lerp(own.float(), before.float(), weight).to(dtype)

    def peer(way):
        return [(masked, merged)[way]().transpose(1, 2)]

    pairs = rows * past + rows * (rows + 1) // 2
    # Merging rounds two partial results to bf16.
    return Problem(case.own, peer, (0, 1), 4.0 * pairs * case.heads * case.d, case.keys, narrowings=6)


def scatter(dtype):
    """Returns the Problem of copying 16384 rows of keys and of values, 8 heads of 128, to random places of a cache."""
    rows, heads, d, page = 16384, 8, 128, 128
    key, value = (normal(rows, heads, d, dtype=dtype) for _ in range(2))
    slots = torch.randperm(rows, generator=normal.generator)
    caches, copies = ([torch.zeros(rows // page, page, heads, d, dtype=dtype) for _ in range(2)] for _ in range(2))

    def own():
        return list(fa.scatter_rows(key, value, slots, *caches))

    def peer(way):
        for source, cache in zip((key, value), copies):
            places = cache.view(rows, heads, d)
            if way:
                places.index_copy_(0, slots, source)
            else:
                places[slots] = source
        return copies

    return Problem(own, peer, (0, 1), 2.0 * key.numel() * key.element_size(), 0, "GB/s", narrowings=0)


def quantised_sparse(dtype, heads):
    """Returns the Problem of Sparse with rows of bytes: 512 int8 with a scale per 128 of them, and 64 columns of rope
    in the type of q.
    """
    case, tile = Sparse(dtype, heads), 128
    tiles = case.k[0, :, 0].float().view(case.keys, -1, tile)
    scales = tiles.abs().amax(-1) / 127
    codes = (tiles / scales.unsqueeze(-1)).round().to(torch.int8).view(case.keys, case.d)
    parts = [codes, case.k_rope[0, :, 0].contiguous().view(torch.int8), scales.contiguous().view(torch.int8)]
    rows, ends = torch.cat(parts, -1), [case.d, case.d + parts[1].shape[1]]
    q = torch.cat([case.q, case.q_rope], -1)

    def own():
        return [fa.sparse_flash_attention(q, rows[None, :, None], None, case.indices, scale=case.scale, sparse_mode=0,
                                          row_format=(case.d, case.rope, tile), check_indices=False).out]

    def widened(of):
        """@return the dequantised keys of rows of bytes, [..., D + Drope]"""
        numbers, rope, scale = of.tensor_split(ends, -1)
        wide = numbers.float().unflatten(-1, (-1, tile)) * scale.contiguous().view(torch.float32).unsqueeze(-1)
        return torch.cat([wide.flatten(-2).to(dtype), rope.contiguous().view(dtype)], -1)

    def peer(way):
        chunk, whole = abs(way), widened(rows) if way < 0 else None
        outs = []
        for at in case.slices(chunk):
            lists = case.lists[at]
            keys = widened(rows[lists]) if whole is None else whole[lists]
            scores = torch.bmm(case.q_whole[at], keys.transpose(1, 2)).float() * case.scale
            outs.append(torch.bmm(scores.softmax(-1).to(dtype), keys[..., : case.d]))
        return [torch.cat(outs)[None]]

    flops = 2.0 * case.tokens * case.selected * heads * (2 * case.d + case.rope)
    # A negative chunk size means that all rows are widened first, once per call.
    return Problem(own, peer, (1, 4, -1, -4, -16), flops, case.selected)


def shared_keys(dtype):
    """Returns the Problem of 64 tokens with 64 heads of size 512, each with the last 128 of 8192 keys, 512 of the 2048
    compressed ones, and a sink.
    """
    tokens, heads, d, keys, window, ratio, count = 64, 64, 512, 8192, 128, 4, 512
    q = normal(1, tokens, heads, d, dtype=dtype)
    original, compressed = (normal(1, n, 1, d, dtype=dtype) for n in (keys, keys // ratio))
    sink, scale = normal(heads), d**-0.5
    lists = drawn(tokens, count, most=(keys - tokens) // ratio)
    indices = lists.int().view(1, tokens, 1, count)
    last = torch.arange(keys - tokens + 1, keys + 1)
    near = last.unsqueeze(1) + torch.arange(-window, 0)

    def own():
        return [fa.shared_kv_attention(q, original, compressed, cmp_indices=indices, sink=sink, scale=scale,
                                       cmp_ratio=ratio, ori_mask=4, window_left=window - 1, window_right=0,
                                       check_indices=False).out]

    def peer(chunk):
        outs = []
        for t in range(0, tokens, chunk):
            at = slice(t, t + chunk)
            both = torch.cat([original[0, near[at], 0], compressed[0, lists[at], 0]], 1)
            scores = torch.bmm(q[0, at], both.transpose(1, 2)).float() * scale
            with_sink = torch.cat([scores, sink.view(1, heads, 1).expand(len(scores), -1, -1)], -1)
            outs.append(torch.bmm(with_sink.softmax(-1)[..., :-1].to(dtype), both))
        return [torch.cat(outs)[None]]

    return Problem(own, peer, (1, 4, 16), 4.0 * tokens * (window + count) * heads * d, window + count)


def kept_blocks(dtype):
    """Returns the Problem of 8 heads of size 128 with 4096 rows and keys, where each block of 128 rows keeps 8 of the
    32 blocks of keys.
    """
    heads, rows, d, block, count = 8, 4096, 128, 128, 8
    q, k, v = (normal(1, heads, rows, d, dtype=dtype) for _ in range(3))
    blocks = rows // block
    lists = drawn(heads, blocks, count, most=blocks)
    kept = torch.zeros(1, heads, blocks, blocks, dtype=torch.bool).scatter_(-1, lists[None], True)
    mask = fa.PairMask.from_block_mask(kept, rows=rows, keys=rows, block_size=(block, block))

    def own():
        return [fa.flash_attention(q, k, v, dense_mask=mask).out]

    def peer(chunk):
        outs = []
        for n in range(heads):
            of_keys, of_values = (t[0, n].view(blocks, block, d) for t in (k, v))
            rows_of = q[0, n].view(blocks, 1, block, d)
            for begin in range(0, blocks, chunk):
                at = slice(begin, begin + chunk)
                kept_k, kept_v = (t[lists[n, at]].flatten(1, 2).unsqueeze(1) for t in (of_keys, of_values))
                outs.append(flash(rows_of[at], kept_k, kept_v))
        return [torch.cat(outs).view(q.shape)]

    return Problem(own, peer, (1, 8, 32), 4.0 * heads * rows * count * block * d, count * block)


CASES = {
    "fused inference, decode": fused_decode,
    "fused inference, chunk": fused_chunk,
    "scatter of rows": scatter,
    "quantised sparse, 128 heads": lambda dtype: quantised_sparse(dtype, 128),
    "quantised sparse, 16 heads": lambda dtype: quantised_sparse(dtype, 16),
    "shared keys, 64 heads": shared_keys,
    "kept blocks, 1/4": kept_blocks,
}
