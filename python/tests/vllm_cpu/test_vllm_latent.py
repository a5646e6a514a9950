"""Latent attention (MLA) of fa.vllm against attention in float64."""

from __future__ import annotations

import types

import pytest
import torch
from reference import assert_within, attention, tolerances

from fa.vllm import _latent

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def assert_attention(got, lse, q, k, v, scale, keep):
    """Compares got [S, N, Dv] and lse [S, N] or None of one sequence with attention of q [S, N, D] over k and v [Sk, N, D]."""
    dtype = q.dtype
    q, k, v = (t.transpose(0, 1)[None].double() for t in (q, k, v))
    want, top, total = attention(q, k, v, scale=scale, keep=keep)
    bound = tolerances(q, k, v, torch.zeros_like(want), dtype, scale=scale, keep=keep)["out"]
    assert_within(got.transpose(0, 1)[None], want, bound)
    if lse is None:
        return
    # A score's error is that of a product of D terms; a sum's relative error follows from the errors of its scores.
    e_score = (4 * q.shape[3] ** 0.5 + 16) * 2.0**-24 * (q.abs() @ k.abs().transpose(-2, -1)).amax(-1) * scale + 1e-5
    assert_within(lse.t()[None].float(), top + total.log(), e_score)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("latent", "rope", "block", "rows"), [(512, 64, 16, 1), (64, 16, 16, 3), (96, 0, 128, 1), (40, 8, 5, 20)]
)
@pytest.mark.parametrize("whole", [False, True], ids=["two parts", "one tensor"])
def test_decode(dtype, latent, rope, block, rows, whole):
    heads, lengths = 4, [rows, 70, 33]
    width = -(-max(lengths) // block)
    table = torch.randperm(len(lengths) * width, dtype=torch.int32).view(len(lengths), width)
    cache = torch.full((table.numel(), block, latent + rope), torch.nan, dtype=dtype)
    impl = _latent.MLAImpl.__new__(_latent.MLAImpl)
    impl.scale, impl.kv_lora_rank = 0.125, latent
    keys = [torch.randn(n, latent + rope).to(dtype) for n in lengths]
    for i, of_request in enumerate(keys):
        place = torch.arange(len(of_request))
        slots = torch.cat([table[i, place // block].long() * block + place % block, torch.tensor([-1])])
        padded = torch.cat([of_request, torch.full((1, latent + rope), 9.0, dtype=dtype)])
        parts = padded[:, :latent], padded[:, None, latent:]
        impl.do_kv_cache_update(*parts, cache, slots, "auto", torch.ones(()))
    q = torch.randn(rows * len(lengths), heads, latent + rope).to(dtype)
    given = q if whole else (q[..., :latent], q[..., latent:])
    builder = _latent.MLAMetadataBuilder.__new__(_latent.MLAMetadataBuilder)
    decode = builder._build_decode(
        block_table_tensor=table,
        seq_lens_device=torch.tensor(lengths, dtype=torch.int32),
        query_start_loc_cpu=torch.arange(0, rows * len(lengths) + 1, rows, dtype=torch.int32),
        dcp_tot_seq_lens_device=None,
    )
    out, lse = impl.forward_mqa(given, cache, types.SimpleNamespace(decode=decode), None)
    assert lse is None
    assert out.shape == (rows * len(lengths), heads, latent)
    for i, of_request in enumerate(keys):
        own, n = slice(i * rows, (i + 1) * rows), len(of_request)
        keep = torch.arange(n) <= torch.arange(rows)[:, None] + n - rows
        k = of_request[:, None].expand(n, heads, -1)
        assert_attention(out[own], None, q[own], k, k[..., :latent], 0.125, keep)


def test_requests_of_different_rows_and_rows_of_padding():
    """Two requests have 1 and 3 tokens. Two more requests are padding and have none. The step's tokens are padded to
    6.
    """
    cache, q = torch.randn(12, 16, 80), torch.randn(6, 4, 80)
    table, starts, lengths = torch.arange(12, dtype=torch.int32).view(4, 3), [0, 1, 4, 4, 4], [33, 40, 0, 0]
    decode = _latent.MLAMetadataBuilder.__new__(_latent.MLAMetadataBuilder)._build_decode(
        block_table_tensor=table,
        seq_lens_device=torch.tensor(lengths, dtype=torch.int32),
        query_start_loc_cpu=torch.tensor(starts, dtype=torch.int32),
        dcp_tot_seq_lens_device=None,
    )
    impl = _latent.MLAImpl.__new__(_latent.MLAImpl)
    impl.scale, impl.kv_lora_rank = 0.125, 64
    out, _ = impl.forward_mqa(q, cache, types.SimpleNamespace(decode=decode), None)
    for i in range(2):
        own, n = slice(starts[i], starts[i + 1]), lengths[i]
        rows = own.stop - own.start
        keep = torch.arange(n) <= torch.arange(rows)[:, None] + n - rows
        k = cache[3 * i : 3 * i + 3].flatten(0, 1)[:n, None].expand(n, 4, -1)
        assert_attention(out[own], None, q[own], k, k[..., :64], 0.125, keep)
    assert (out[4:] == 0).all()


def test_context_parallelism_is_left_to_the_hosts_check():
    """Without can_return_lse_for_decode, vLLM refuses context parallelism and names the implementation."""
    assert not _latent.MLAImpl.can_return_lse_for_decode


def test_errors_name_vllms_arguments():
    impl = _latent.MLAImpl.__new__(_latent.MLAImpl)
    impl.scale, impl.kv_lora_rank = 0.125, 64
    decode = types.SimpleNamespace(ends=[1], lengths=[4], block_table=torch.zeros(1, 1, dtype=torch.int32))
    decode = _latent.MLADecodeMetadata(**vars(decode), seq_lens=None, dcp_tot_seq_lens=None)
    metadata = types.SimpleNamespace(decode=decode)
    with pytest.raises((TypeError, ValueError), match=r"\bkv_c_and_k_pe_cache\b"):
        impl.forward_mqa(torch.randn(1, 4, 80), torch.randn(2, 16, 80).double(), metadata, None)
    rows = torch.randn(2, 64), torch.randn(2, 1, 16).double()
    with pytest.raises((TypeError, ValueError), match=r"\bk_pe\b"):
        impl.do_kv_cache_update(*rows, torch.zeros(2, 16, 80), torch.tensor([0, 1]), "auto", torch.ones(()))
    q = torch.randn(3, 4, 64)
    with pytest.raises((TypeError, ValueError), match=r"\bk\b"):
        prefill_of([0, 3]).run_prefill_new_tokens(q, q.double(), q[..., :32], False)


def prefill_of(starts):
    backend = _latent.MLAPrefill(4, 0.125, 64, 48, 16, 32, None)
    backend.prepare_metadata(types.SimpleNamespace(query_start_loc=torch.tensor(starts, dtype=torch.int32)))
    return backend


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("given", [False, True], ids=["new", "out"])
def test_new_tokens_of_prompts(dtype, given):
    starts = [0, 5, 6, 80]
    q, k = (torch.randn(80, 4, 64).to(dtype) for _ in range(2))
    v = torch.randn(80, 4, 80).to(dtype)[..., 48:]  # part of a projection
    out = torch.empty(80, 4, 32, dtype=dtype) if given else None
    result, lse = prefill_of(starts).run_prefill_new_tokens(q, k, v, True, out=out)
    assert (result is out) == given
    plain = prefill_of(starts).run_prefill_new_tokens(q, k, v, False)
    assert torch.equal(plain, result)
    assert lse.shape == (4, 80) and lse.dtype == torch.float32
    for begin, end in zip(starts, starts[1:], strict=False):
        own, n = slice(begin, end), end - begin
        assert_attention(result[own], lse[:, own].t(), q[own], k[own], v[own], 0.125, torch.ones(n, n).tril().bool())


def test_chunks_of_earlier_tokens_are_seen_whole():
    q, k, v = torch.randn(9, 4, 64), torch.randn(70, 4, 64), torch.randn(70, 4, 32)
    starts, keys = [0, 4, 9], [0, 30, 70]
    chunk = types.SimpleNamespace(query_start_loc=torch.tensor(starts), cu_seq_lens=torch.tensor(keys))
    out, lse = prefill_of([0, 9]).run_prefill_context_chunk(chunk, q, k, v)
    for i in range(2):
        own, of_keys = slice(*starts[i : i + 2]), slice(*keys[i : i + 2])
        keep = torch.ones(own.stop - own.start, of_keys.stop - of_keys.start).bool()
        assert_attention(out[own], lse[:, own].t(), q[own], k[of_keys], v[of_keys], 0.125, keep)


def test_quantized_outputs_are_refused():
    q = torch.randn(3, 4, 64)
    with pytest.raises(NotImplementedError, match="output_scale"):
        prefill_of([0, 3]).run_prefill_new_tokens(q, q, q[..., :32], False, output_scale=torch.ones(1))
