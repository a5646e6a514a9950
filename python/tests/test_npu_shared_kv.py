"""fa.torch_npu's attention over original and compressed keys, against autograd in float64, and its pages and errors."""

import math

import pytest
import torch

import fa
from fa import torch_npu as npu
from fa._npu import shared_kv

B, S1, S2, N, D, K, RATIO, LEFT, BS = 2, 5, 40, 3, 16, 6, 4, 7, 8
SCALE = 0.25
WINDOW = {"ori_mask_mode": 4, "cmp_mask_mode": 3, "ori_win_left": LEFT, "ori_win_right": 0}
OPTIONS = {**WINDOW, "softmax_scale": SCALE, "cmp_ratio": RATIO}


def inputs(dtype=torch.float32, s1=S1, s2=S2, ratio=RATIO):
    random = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(shape, generator=random).to(dtype)

    indices = torch.randint(-1, s2 // ratio, (B, s1, 1, K), generator=random, dtype=torch.int32)
    q, ori, cmp = normal(B, s1, N, D), normal(B, s2, 1, D), normal(B, s2 // ratio, 1, D)
    return q, ori, cmp, indices, torch.randn(N, generator=random)


def reference(q, ori, cmp, indices, sinks, s2=S2, ratio=RATIO):
    """Returns out and lse, from a loop over the tokens. Without indices, a token has all compressed keys below its
    limit. ori or cmp may be None."""
    out, lse = [], []
    for b in range(B):
        for i in range(q.shape[1]):
            t = s2 - q.shape[1] + i + 1
            rows = [] if ori is None else [ori[b, j, 0] for j in range(max(t - LEFT - 1, 0), t)]
            limit = 0 if cmp is None else min(s2 // ratio, t // ratio)
            for key in range(limit) if indices is None else indices[b, i, 0].tolist():
                if key == -1:
                    break
                if key < limit:
                    rows.append(cmp[b, key, 0])
            keys = torch.stack(rows) if rows else q.new_zeros(0, q.shape[-1])
            scores = torch.cat([SCALE * q[b, i] @ keys.T, sinks[:, None]], 1)
            out.append(torch.softmax(scores, 1)[:, :-1] @ keys)
            lse.append(torch.logsumexp(scores, 1))
    return torch.stack(out).view(q.shape), torch.stack(lse).view(B, 1, q.shape[1], N)


def close(got, want):
    # A value is a sum of at most S1 * N * D products below 10, whose roundings of 2**-24 walk at random.
    error = 10 * math.sqrt(S1 * N * D) * 2**-24
    torch.testing.assert_close(got.double(), want, rtol=error, atol=error)


def test_forward_and_gradients_are_those_of_autograd():
    q, ori, cmp, indices, sinks = inputs()
    out, lse = npu.sparse_flash_mla(
        q, ori, cmp, cmp_sparse_indices=indices, sinks=sinks, return_softmax_lse=True, **OPTIONS
    )
    exact = [x.double().requires_grad_() for x in (q, ori, cmp, sinks)]
    want, want_lse = reference(exact[0], exact[1], exact[2], indices, exact[3])
    close(out, want.detach())
    close(lse, want_lse.detach())
    d_out = torch.randn(B, S1, N, D, generator=torch.Generator().manual_seed(4))
    *gradients, ori_l1, cmp_l1 = npu.sparse_flash_mla_grad(
        q, d_out, out, lse, ori, cmp, cmp_sparse_indices=indices, sinks=sinks, **OPTIONS
    )
    for got, of in zip(gradients, torch.autograd.grad((want * d_out).sum(), exact), strict=True):
        close(got, of)
    assert ori_l1.numel() == 0 and cmp_l1.shape == indices.shape
    alone = npu.sparse_flash_mla_softmax_l1_norm(
        q, cmp, lse, indices, softmax_scale=SCALE, cmp_ratio=RATIO, mask_mode=3
    )
    close(alone, cmp_l1.double())


def test_autograd_has_the_gradients_of_the_gradient_function():
    q, ori, cmp, indices, sinks = inputs()
    leaves = [x.clone().requires_grad_() for x in (q, ori, cmp, sinks)]
    out, lse = npu.sparse_flash_mla(
        *leaves[:3], cmp_sparse_indices=indices, sinks=leaves[3], return_softmax_lse=True, **OPTIONS
    )
    assert out.requires_grad and not lse.requires_grad
    d_out = torch.randn(B, S1, N, D, generator=torch.Generator().manual_seed(4))
    got = torch.autograd.grad(out, leaves, d_out)
    want = npu.sparse_flash_mla_grad(
        q, d_out, out.detach(), lse, ori, cmp, cmp_sparse_indices=indices, sinks=sinks, **OPTIONS
    )
    assert all(map(torch.equal, got, want[:4]))


def test_l1_norm_without_a_list_has_one_column_per_key():
    q, ori, cmp, _, sinks = inputs()
    _, lse = npu.sparse_flash_mla(q, ori, cmp, sinks=sinks, return_softmax_lse=True, **OPTIONS)
    options = {"softmax_scale": SCALE, "cmp_ratio": RATIO, "mask_mode": 3}
    got = npu.sparse_flash_mla_softmax_l1_norm(q, cmp, lse, **options)
    assert got.shape == (B, S1, 1, S2 // RATIO)
    scores = SCALE * torch.einsum("bsnd,bkd->bsnk", q.double(), cmp[:, :, 0].double())
    limits = (S2 - S1 + torch.arange(S1) + 1) // RATIO
    shares = (scores - lse.double()[:, 0, :, :, None]).exp().mean(2)
    close(got[:, :, 0], torch.where(torch.arange(S2 // RATIO) < limits[:, None], shares, 0))
    sums = {"cu_seqlens_q": [0, S1, 2 * S1], "cu_seqlens_k": [0, S2 // RATIO, 2 * (S2 // RATIO)]}
    packed = npu.sparse_flash_mla_softmax_l1_norm(
        q.flatten(0, 1), cmp.flatten(0, 1), lse.transpose(0, 1).flatten(1, 2), layout_q="TND", layout_k="TND",
        **sums, **options,
    )  # fmt: skip
    assert packed.shape == (B * S1, 1, 2 * (S2 // RATIO)) and not packed[..., S2 // RATIO :].any()
    assert torch.equal(packed[..., : S2 // RATIO].view(got.shape), got)


def test_autograd_of_packed_rows_without_a_window():
    q, _, cmp, indices, _ = inputs()
    packed = [x.flatten(0, 1) for x in (q, cmp)]
    options = {
        "cu_seqlens_q": [0, S1, 2 * S1], "cu_seqlens_cmp_kv": torch.tensor([0, S2 // RATIO, 2 * (S2 // RATIO)]),
        "cmp_residual_kv": [0, RATIO - 1], "cmp_sparse_indices": indices.flatten(0, 1), "cmp_mask_mode": 3,
        "cmp_ratio": RATIO, "softmax_scale": SCALE, "layout_q": "TND", "layout_kv": "TND",
    }
    leaves = [x.clone().requires_grad_() for x in packed]
    out, lse = npu.sparse_flash_mla(leaves[0], None, leaves[1], return_softmax_lse=True, **options)
    out.square().sum().backward()
    want = npu.sparse_flash_mla_grad(
        packed[0], 2 * out.detach(), out.detach(), lse, None, packed[1], **options
    )
    assert torch.equal(leaves[0].grad, want[0]) and torch.equal(leaves[1].grad, want[2])
    assert leaves[1].grad.abs().sum() > 0


def test_backward_through_pages_is_refused():
    q, ori, cmp, indices, sinks = inputs()
    call = vllm_call(q.requires_grad_(), *in_pages(ori, cmp), indices, sinks)
    out = npu.npu_sparse_attn_sharedkv(**call)[0]
    with pytest.raises(ValueError, match="layout_kv: keys in pages have no gradient"):
        out.sum().backward()


def in_pages(ori, cmp):
    """Returns pages of both tensors in another order, and their tables. Rows that are not in use are NaN, as numbers
    and as bytes."""
    table = torch.tensor([[3, 1, 9, 0, 6], [2, 8, 5, 7, 4]], dtype=torch.int32)
    cmp_table = torch.tensor([[3, 1], [0, 5]], dtype=torch.int32)
    unused = 255 if ori.dtype == torch.uint8 else float("nan")
    pages, cmp_pages = (torch.full((10, BS, 1, ori.shape[-1]), unused, dtype=ori.dtype) for _ in range(2))
    for rows, to, entries in ((ori, pages, table), (cmp, cmp_pages, cmp_table)):
        for b in range(B):
            for p in range(-(-rows.shape[1] // BS)):
                part = rows[b, p * BS : (p + 1) * BS]
                to[entries[b, p], : len(part)] = part
    return pages, cmp_pages, table, cmp_table


def vllm_call(q, pages, cmp_pages, table, cmp_table, indices, sinks):
    """Returns the arguments of a call as vLLM's DeepSeek-V4 makes it with ratio 4."""
    return {
        "q": q.view(B * S1, N, D), "ori_kv": pages, "cmp_kv": cmp_pages,
        "cmp_sparse_indices": indices.view(B * S1, 1, K), "ori_block_table": table, "cmp_block_table": cmp_table,
        "cu_seqlens_q": torch.tensor([0, S1, 2 * S1]).int(), "seqused_kv": torch.tensor([S2, S2]).int(),
        "sinks": sinks, "metadata": None, "softmax_scale": SCALE, "cmp_ratio": RATIO, "layout_q": "TND",
        "layout_kv": "PA_ND", **WINDOW,
    }


def of_vllm(**changes):
    """Returns the output of a call as vLLM's DeepSeek-V4 makes it."""
    q, ori, cmp, indices, sinks = inputs()
    out, lse = npu.npu_sparse_attn_sharedkv(**{**vllm_call(q, *in_pages(ori, cmp), indices, sinks), **changes})
    assert lse.numel() == 0
    return out.view(B, S1, N, D)


def test_sharedkv_in_pages_gives_the_bits_of_rows():
    q, ori, cmp, indices, sinks = inputs()
    want, _ = npu.sparse_flash_mla(q, ori, cmp, cmp_sparse_indices=indices, sinks=sinks, **OPTIONS)
    assert torch.equal(of_vllm(), want)


def test_sharedkv_takes_rows_of_pages_as_original_keys():
    q, ori, cmp, indices, sinks = inputs()
    table = in_pages(ori, cmp)[2]
    slots = torch.full((B * S1, 1, LEFT + 3), -7, dtype=torch.int32)
    for b in range(B):
        for i in range(S1):
            t = S2 - S1 + i + 1
            for x, key in enumerate(range(t - LEFT - 1, t)):
                slots[b * S1 + i, 0, x] = table[b, key // BS] * BS + key % BS
    want, _ = reference(q.double(), ori.double(), cmp.double(), indices, sinks.double())
    close(of_vllm(ori_sparse_indices=slots), want)
    close(of_vllm(ori_sparse_indices=slots, ori_block_table=None, softmax_scale=None), want)


def test_vllm_calls_without_compressed_keys():
    q, ori, _, _, sinks = inputs()
    want, _ = reference(q.double(), ori.double(), None, None, sinks.double())
    without = {"cmp_kv": None, "cmp_sparse_indices": None, "cmp_block_table": None, "cmp_ratio": 1}
    close(of_vllm(**without), want)
    # The draft model also passes prefix sums of the key lengths, which calls with pages ignore.
    close(of_vllm(**without, cu_seqlens_ori_kv=torch.tensor([0, S1, 2 * S1]).int()), want)


def test_vllm_calls_with_ratio_128_without_lists():
    s2, ratio, pages_of = 300, 128, 100
    q, ori, cmp, _, sinks = inputs(s2=s2, ratio=ratio)
    metadata = npu.npu_sparse_attn_sharedkv_metadata(
        num_heads_q=N, num_heads_kv=1, head_dim=D, cu_seqlens_q=torch.tensor([0, S1, 2 * S1]).int(),
        seqused_kv=torch.tensor([s2, s2]).int(), max_seqlen_q=torch.tensor(S1), max_seqlen_kv=torch.tensor(s2),
        batch_size=B, cmp_ratio=ratio, layout_q="TND", layout_kv="PA_ND", has_ori_kv=True, has_cmp_kv=True,
        device="cpu", **WINDOW,
    )
    got = of_vllm(
        ori_kv=ori.view(6, pages_of, 1, D), ori_block_table=torch.arange(6, dtype=torch.int32).view(B, 3),
        cmp_kv=cmp, cmp_block_table=torch.tensor([[0], [1]], dtype=torch.int32), cmp_sparse_indices=None,
        cmp_ratio=ratio, seqused_kv=torch.tensor([s2, s2]).int(), metadata=metadata,
        q=q.view(B * S1, N, D), sinks=sinks,
    )
    close(got, reference(*(x.double() for x in (q, ori, cmp)), None, sinks.double(), s2=s2, ratio=ratio)[0])


def test_compressed_keys_alone_stand_for_seqused_kv_tokens():
    for s2 in (10, 40, 43):
        q, _, cmp, _, sinks = inputs(s2=s2)
        options = {**OPTIONS, "layout_q": "BSND", "layout_kv": "BSND"}
        got, _ = npu.npu_sparse_attn_sharedkv(q, cmp_kv=cmp, seqused_kv=[s2, s2], sinks=sinks, **options)
        close(got, reference(q.double(), None, cmp.double(), None, sinks.double(), s2=s2)[0])
        same, _ = npu.sparse_flash_mla(q, cmp_kv=cmp, cmp_residual_kv=[s2 % RATIO] * B, sinks=sinks, **options)
        assert torch.equal(got, same)


def test_mindspeed_training_step():
    s, k = 42, 16
    q, ori, cmp, _, sinks = inputs(s1=s, s2=s)
    lists = torch.full((B, s, 1, k), -1, dtype=torch.int32)
    for i in range(s):
        lists[:, i, 0, : (i + 1) // RATIO] = torch.arange((i + 1) // RATIO, dtype=torch.int32).flip(0)
    residual = torch.tensor([s % RATIO] * B).int()
    metadata = npu.sparse_flash_mla_metadata(
        N, 1, D, cmp_residual_kv=residual, batch_size=B, max_seqlen_q=s, max_seqlen_ori_kv=s,
        max_seqlen_cmp_kv=s // RATIO, ori_topk=0, cmp_topk=k, cmp_ratio=RATIO, layout_q="BSND", layout_kv="BSND",
        has_ori_kv=True, has_cmp_kv=True, **WINDOW,
    )
    given = {
        "ori_kv": ori, "cmp_kv": cmp, "cmp_sparse_indices": lists, "cmp_residual_kv": residual, "sinks": sinks,
        "metadata": metadata, "layout_q": "BSND", "layout_kv": "BSND", **OPTIONS,
    }
    out, lse = npu.sparse_flash_mla(q, **given, return_softmax_lse=True)
    exact = [x.double().requires_grad_() for x in (q, ori, cmp, sinks)]
    want, want_lse = reference(exact[0], exact[1], exact[2], lists, exact[3], s2=s)
    close(out, want.detach())
    close(lse, want_lse.detach())
    d_out = torch.randn(q.shape, generator=torch.Generator().manual_seed(4))
    *gradients, _, cmp_l1 = npu.sparse_flash_mla_grad(q, d_out, out, lse, **given)
    for got, of in zip(gradients, torch.autograd.grad((want * d_out).sum(), exact), strict=True):
        close(got, of)
    scores = SCALE * torch.einsum("bsnd,bkd->bsnk", q.double(), cmp[:, :, 0].double())
    shares = (scores - want_lse.detach()[:, 0, :, :, None]).exp().mean(2)
    read = lists[:, :, 0] >= 0
    close(cmp_l1[:, :, 0], torch.where(read, shares.gather(2, lists[:, :, 0].clamp(min=0).long()), 0))


def test_lengths_are_lists_or_tensors():
    q, ori, cmp, indices, sinks = inputs()
    want = of_vllm()
    assert torch.equal(of_vllm(cu_seqlens_q=[0, S1, 2 * S1], seqused_kv=[S2, S2]), want)
    shared = {"cmp_sparse_indices": indices, "sinks": sinks, **OPTIONS}
    want, _ = npu.sparse_flash_mla(q, ori, cmp, seqused_ori_kv=torch.tensor([30, 40]), **shared)
    assert torch.equal(npu.sparse_flash_mla(q, ori, cmp, seqused_ori_kv=[30, 40], **shared)[0], want)
    with pytest.raises(TypeError, match="seqused_kv: want integers"):
        of_vllm(seqused_kv=torch.zeros(2, 1).int())


def test_rows_of_bytes_give_the_bits_of_their_keys():
    rope, tile, random = 4, 5, torch.Generator().manual_seed(5)

    def rows_of(count):
        numbers = torch.randn(B, count, 1, D - rope, generator=random).to(torch.float8_e4m3fn)
        scales = torch.randint(120, 130, (B, count, 1, -(-(D - rope) // tile)), generator=random)
        roped = torch.randn(B, count, 1, rope, generator=random).bfloat16()
        padding = torch.zeros(B, count, 1, 3, dtype=torch.uint8)
        of_column = scales.repeat_interleave(tile, -1)[..., : D - rope]
        plain = torch.cat([(numbers.float() * 2.0 ** (of_column - 127)).bfloat16(), roped], -1)
        parts = [roped.view(torch.uint8), numbers.view(torch.uint8), scales.to(torch.uint8), padding]
        return torch.cat(parts, -1), plain

    q, _, _, indices, sinks = inputs(torch.bfloat16)
    ori, plain_ori = rows_of(S2)
    cmp, plain_cmp = rows_of(S2 // RATIO)
    shared = {"cmp_sparse_indices": indices, "sinks": sinks, "cmp_ratio": RATIO, "layout_kv": "BSND", **WINDOW}
    used = {"seqused_kv": torch.tensor([S2, S2]).int()}
    want, _ = npu.npu_sparse_attn_sharedkv(q, ori_kv=plain_ori, cmp_kv=plain_cmp, **shared, **used)
    for kind in (torch.uint8, torch.float8_e4m3fn):
        got, _ = npu.npu_kv_quant_sparse_attn_sharedkv(
            q, 1, ori.view(kind), cmp.view(kind), tile_size=tile, rope_head_dim=rope, **shared, **used
        )
        assert torch.equal(got, want)
    trained = npu.npu_kv_quant_sparse_attn_sharedkv(
        q.clone().requires_grad_(), 1, ori, cmp, tile_size=tile, rope_head_dim=rope, **shared, **used
    )[0]
    with pytest.raises(ValueError, match="tile_size: quantised keys have no gradient"):
        trained.sum().backward()
    of_call = vllm_call(q, *in_pages(ori, cmp), indices, sinks) | {"softmax_scale": 0}
    got, _ = npu.npu_kv_quant_sparse_attn_sharedkv(**of_call, kv_quant_mode=1, tile_size=tile, rope_head_dim=rope)
    assert torch.equal(got.view(want.shape), want)


@pytest.mark.parametrize(("call", "message"), [
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q), "ori_kv: missing, want it or cmp_kv"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, ori_mask_mode=1), "ori_mask_mode=1, want 0, 3 or 4"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, topk_value_mode=2), "topk_value_mode=2, want 1"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, layout_kv="PA_BBND"), "ori_block_table: missing"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, layout_kv="TND"), 'layout_kv="TND", want BSND'),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori.half()), r"ori_kv\.dtype=f16, want f32"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, cmp, None, ids + 40), r"cmp_sparse_indices(\[0\]){4}"),
    (lambda q, ori, cmp, ids: npu.npu_kv_quant_sparse_attn_sharedkv(q, 2, ori, tile_size=1), "kv_quant_mode=2, want 1"),
    (lambda q, ori, cmp, ids: npu.npu_kv_quant_sparse_attn_sharedkv(q, 1, ori), "tile_size=0, want at least 1"),
])
def test_errors_name_the_argument(call, message):
    q, ori, cmp, indices, _ = inputs()
    with pytest.raises(ValueError, match=message):
        call(q, ori, cmp, indices)


@pytest.mark.parametrize(("changes", "message"), [
    ({"cmp_block_table": torch.zeros(2, 0).int()}, r"\(seqused_kv // cmp_ratio\)\[0\]=10, want 0\.\.0"),
    ({"seqused_kv": torch.tensor([-4, 4])}, r"seqused_kv\[0\]=-4, want at least 0"),
    ({"seqused_kv": None, "ori_block_table": None, "ori_sparse_indices": torch.zeros(10, 1, 3).int()},
     "seqused_kv: missing"),
    ({"cu_seqlens_q": [1, 5, 10]}, r"cu_seqlens_q\[0\]=1, want 0"),
])
def test_errors_of_vllm_calls_name_the_argument(changes, message):
    with pytest.raises(ValueError, match=message):
        of_vllm(**changes)


def quantised_metadata(*arguments, **keywords):
    return shared_kv.npu_kv_quant_sparse_attn_sharedkv_metadata(*arguments, 1, **keywords)


METADATA = (npu.sparse_flash_mla_metadata, npu.npu_sparse_attn_sharedkv_metadata, quantised_metadata)


@pytest.mark.parametrize("function", METADATA)
def test_metadata_is_zeros(function):
    assert torch.equal(function(64, 1, 512, device="cpu"), torch.zeros(1024, dtype=torch.int32))


@pytest.mark.parametrize("function", METADATA)
@pytest.mark.parametrize(("given", "message"), [
    ({"batch_size": -1}, "batch_size=-1, want at least 0"),
    ({"cmp_ratio": -2}, "cmp_ratio=-2, want at least"),
    ({"ori_mask_mode": 1}, "ori_mask_mode=1, want 0, 3 or 4"),
    ({"cmp_mask_mode": 4}, "cmp_mask_mode=4, want 0 or 3"),
    ({"ori_win_left": -2}, "ori_win_left=-2, want at least -1"),
    ({"layout_q": "BNSD"}, 'layout_q="BNSD", want BSND or TND'),
    ({"layout_kv": "NZ"}, 'layout_kv="NZ", want BSND'),
    ({"has_ori_kv": False, "has_cmp_kv": False}, "has_ori_kv=False"),
])
def test_metadata_refuses_wrong_arguments(function, given, message):
    given = {"layout_kv": "BSND"} | given
    with pytest.raises(ValueError, match=message):
        function(64, 1, 512, **given)


@pytest.mark.parametrize("function", METADATA)
def test_metadata_refuses_unknown_and_missing_arguments(function):
    for arguments, given in (((64, 1), {}), ((64, 1, 512), {"nonsense": 3}), (("x", 1, 512), {})):
        with pytest.raises(TypeError):
            function(*arguments, **given)


def test_names_are_where_programs_look_them_up():
    npu.install(force=True)
    try:
        assert torch.ops.npu.npu_sparse_attn_sharedkv is npu.npu_sparse_attn_sharedkv
        assert torch.ops._C_ascend.npu_sparse_attn_sharedkv is npu.npu_sparse_attn_sharedkv
        assert torch.ops.custom.npu_sparse_attn_sharedkv is npu.npu_sparse_attn_sharedkv
        import cann_ops_transformer.ops as ops

        assert ops.sparse_flash_mla_grad is npu.sparse_flash_mla_grad
    finally:
        npu.uninstall()


def test_arrays_of_numpy():
    q, ori, cmp, indices, sinks = (x.numpy() for x in inputs())
    out = fa.shared_kv_attention(
        q, ori, cmp, cmp_indices=indices, sink=sinks, scale=SCALE, cmp_ratio=RATIO, ori_mask=4, window_left=LEFT,
        window_right=0,
    ).out
    want, _ = npu.sparse_flash_mla(
        *inputs()[:3], cmp_sparse_indices=inputs()[3], sinks=inputs()[4], **OPTIONS
    )
    assert (out == want.numpy()).all()
