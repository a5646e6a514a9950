"""Sparse latent attention of fa.vllm and its indexer, against float64."""

from __future__ import annotations

import types

import pytest
import torch
from reference import assert_within, attention, tolerances

from fa.vllm import _sparse

BLOCK, LATENT, ROPE, HEADS, LISTED = 16, 64, 16, 4, 24
REQUESTS = [(1, 40), (70, 70), (5, 33), (1, 1)]


def step_of(requests) -> _sparse.SparseMetadata:
    tokens = torch.tensor([0, *(tokens for tokens, _ in requests)])
    width = -(-max(keys for _, keys in requests) // BLOCK)
    table = torch.randperm(len(requests) * width, dtype=torch.int32).view(len(requests), width)
    slots = torch.cat([places(table, i, keys)[keys - tokens :] for i, (tokens, keys) in enumerate(requests)])
    builder = _sparse.SparseMetadataBuilder(None, [], None, None)
    given = types.SimpleNamespace(
        query_start_loc_cpu=tokens.cumsum(0).int(),
        seq_lens=torch.tensor([keys for _, keys in requests], dtype=torch.int32),
        block_table_tensor=table,
        slot_mapping=slots,
        num_actual_tokens=int(tokens.sum()),
        num_reqs=len(requests),
    )
    return builder.build(0, given)


def places(table, request, keys):
    place = torch.arange(keys)
    return table[request, place // BLOCK].long() * BLOCK + place % BLOCK


def cache_of(step, columns, dtype):
    """Returns the cache of one layer of three, whose blocks therefore lie apart, and the rows of each request."""
    cache = torch.full((step.block_table.numel(), 3, BLOCK, columns), torch.nan, dtype=dtype)[:, 1]
    rows = [torch.randn(keys, columns).to(dtype) for keys in step.lengths]
    for i, of_request in enumerate(rows):
        slots = places(step.block_table, i, len(of_request))
        cache[slots // BLOCK, slots % BLOCK] = of_request
    return cache, rows


def tokens_of(step):
    """Yields (token, request, its number of visible keys)."""
    begin = 0
    for request, (end, keys) in enumerate(zip(step.ends, step.lengths, strict=True)):
        for token in range(begin, end):
            yield token, request, keys - (end - 1 - token)
        begin = end


@pytest.mark.parametrize("whole", [False, True], ids=["two parts", "one tensor"])
@pytest.mark.parametrize("rope", [ROPE, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_token_attends_to_its_listed_keys(dtype, rope, whole):
    step = step_of(REQUESTS)
    cache, rows = cache_of(step, LATENT + rope, dtype)
    chosen = torch.full((step.num_actual_tokens + 3, LISTED), -1, dtype=torch.int32)
    for token, _, visible in tokens_of(step):
        listed = torch.randperm(visible)[:LISTED]
        chosen[token, : len(listed)] = listed.int()
    impl = _sparse.SparseMLAImpl.__new__(_sparse.SparseMLAImpl)
    impl.scale, impl.kv_lora_rank = 0.25, LATENT
    impl.init_topk_indices_buffer(None, chosen)
    q = torch.randn(step.num_actual_tokens, HEADS, LATENT + rope).to(dtype)
    out, lse = impl.forward_mqa(q if whole else (q[..., :LATENT], q[..., LATENT:]), cache, step, None)
    assert lse is None
    assert out.shape == (step.num_actual_tokens, HEADS, LATENT)
    for token, request, _ in tokens_of(step):
        keys = rows[request][chosen[token][chosen[token] >= 0].long()].double()
        given = [t.double()[None] for t in (q[token][:, None], keys.expand(HEADS, -1, -1))]
        given.append(given[1][..., :LATENT])
        want = attention(*given, scale=0.25)[0]
        bound = tolerances(*given, torch.zeros_like(want), dtype, scale=0.25)["out"]
        assert_within(out[token][None, :, None], want, bound, f"token {token}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_indexer_writes_its_keys_and_chooses_the_best(monkeypatch, dtype):
    step = step_of(REQUESTS)
    cache, rows = cache_of(step, 128, dtype)
    k = torch.cat([rows[i][keys - tokens :] for i, (tokens, keys) in enumerate(REQUESTS)])
    for slot in step.slot_mapping.tolist():
        cache[slot // BLOCK, slot % BLOCK] = torch.nan
    layer = types.SimpleNamespace(kv_cache=cache)
    context = types.SimpleNamespace(attn_metadata={"k_cache": step}, no_compile_layers={"k_cache": layer})
    monkeypatch.setattr(_sparse, "get_forward_context", lambda: context)
    q = torch.randn(step.num_actual_tokens, 16, 128).to(dtype)
    weights = torch.randn(step.num_actual_tokens, 16)
    chosen = torch.full((step.num_actual_tokens + 2, LISTED), 77, dtype=torch.int32)
    _sparse._choose_keys(q, k, weights, chosen, "k_cache")
    for i, of_request in enumerate(rows):
        slots = places(step.block_table, i, len(of_request))
        assert torch.equal(cache[slots // BLOCK, slots % BLOCK], of_request)
    for token, request, visible in tokens_of(step):
        dots = q[token].double() @ rows[request][:visible].double().t()
        scores = (weights[token].double()[:, None] * dots.relu()).sum(0)
        listed = chosen[token][: min(LISTED, visible)].long()
        assert listed.unique().numel() == len(listed)
        assert (chosen[token][len(listed) :] == -1).all()
        # Scores are sums of 16 products of 128 terms in float32. Near ties may swap places.
        sizes = q[token].double().abs() @ rows[request][:visible].double().abs().t()
        error = 2 * 160 * 2.0**-24 * (weights[token].double().abs()[:, None] * sizes).sum(0).max()
        assert scores[listed].min() >= scores.topk(len(listed)).values[-1] - error
        assert (scores[listed].diff() <= error).all()
    assert (chosen[step.num_actual_tokens :] == 77).all()


def test_a_warm_up_writes_nothing(monkeypatch):
    monkeypatch.setattr(_sparse, "get_forward_context", lambda: types.SimpleNamespace(attn_metadata=None))
    chosen = torch.full((3, LISTED), 77, dtype=torch.int32)
    _sparse._choose_keys(torch.randn(3, 4, 8), torch.randn(3, 8), torch.randn(3, 4), chosen, "k_cache")
    assert (chosen == 77).all()
