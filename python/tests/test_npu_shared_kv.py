"""fa.torch_npu's attention over original and compressed keys, against autograd in float64, and its pages and errors."""

import pytest
import torch

import fa
from fa import torch_npu as npu

B, S1, S2, N, D, K, RATIO, LEFT, BS = 2, 5, 40, 3, 16, 6, 4, 7, 8
SCALE = 0.25
WINDOW = {"ori_mask_mode": 4, "cmp_mask_mode": 3, "ori_win_left": LEFT, "ori_win_right": 0}
OPTIONS = {**WINDOW, "softmax_scale": SCALE, "cmp_ratio": RATIO}


def inputs(dtype=torch.float32):
    random = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(shape, generator=random).to(dtype)

    indices = torch.randint(-1, S2 // RATIO, (B, S1, 1, K), generator=random, dtype=torch.int32)
    q, ori, cmp = normal(B, S1, N, D), normal(B, S2, 1, D), normal(B, S2 // RATIO, 1, D)
    return q, ori, cmp, indices, torch.randn(N, generator=random)


def reference(q, ori, cmp, indices, sinks):
    """Returns out and lse, from a loop over the tokens."""
    out, lse = [], []
    for b in range(B):
        for i in range(S1):
            t = S2 - S1 + i + 1
            rows = [ori[b, j, 0] for j in range(max(t - LEFT - 1, 0), t)]
            for key in indices[b, i, 0].tolist():
                if key == -1:
                    break
                if key < min(S2 // RATIO, t // RATIO):
                    rows.append(cmp[b, key, 0])
            keys = torch.stack(rows)
            scores = torch.cat([SCALE * q[b, i] @ keys.T, sinks[:, None]], 1)
            out.append(torch.softmax(scores, 1)[:, :-1] @ keys)
            lse.append(torch.logsumexp(scores, 1))
    return torch.stack(out).view(B, S1, N, D), torch.stack(lse).view(B, 1, S1, N)


def close(got, want):
    # Each value is a sum of some tens of products of numbers of about 1, so f32 is off by some 1e-6.
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


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


def in_pages(ori, cmp):
    """Returns pages of both tensors in another order, and their tables. Rows that are not in use are NaN."""
    table = torch.tensor([[3, 1, 9, 0, 6], [2, 8, 5, 7, 4]], dtype=torch.int32)
    cmp_table = torch.tensor([[3, 1], [0, 5]], dtype=torch.int32)
    pages, cmp_pages = (torch.full((10, BS, 1, D), float("nan"), dtype=ori.dtype) for _ in range(2))
    for rows, to, entries in ((ori, pages, table), (cmp, cmp_pages, cmp_table)):
        for b in range(B):
            for p in range(-(-rows.shape[1] // BS)):
                part = rows[b, p * BS : (p + 1) * BS]
                to[entries[b, p], : len(part)] = part
    return pages, cmp_pages, table, cmp_table


def of_vllm(**changes):
    """Returns the output of a call as vLLM's DeepSeek-V4 makes it."""
    q, ori, cmp, indices, sinks = inputs()
    pages, cmp_pages, table, cmp_table = in_pages(ori, cmp)
    given = {
        "ori_kv": pages, "cmp_kv": cmp_pages, "cmp_sparse_indices": indices.view(B * S1, 1, K),
        "ori_block_table": table, "cmp_block_table": cmp_table, "cu_seqlens_q": torch.tensor([0, S1, 2 * S1]).int(),
        "seqused_kv": torch.tensor([S2, S2]).int(), "sinks": sinks, "metadata": None, "softmax_scale": 0,
        "cmp_ratio": RATIO, "layout_q": "TND", "layout_kv": "PA_ND", **WINDOW,
    }
    out, lse = npu.npu_sparse_attn_sharedkv(q.view(B * S1, N, D), **{**given, **changes})
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


@pytest.mark.parametrize(("call", "message"), [
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q), "ori_kv: missing, want it or cmp_kv"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, ori_mask_mode=1), "ori_mask_mode=1, want 0, 3 or 4"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, topk_value_mode=2), "topk_value_mode=2, want 1"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, layout_kv="PA_BBND"), "ori_block_table: missing"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, layout_kv="TND"), 'layout_kv="TND", want BSND'),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori.half()), r"ori_kv\.dtype=f16, want f32"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q, ori, cmp, None, ids + 40), r"cmp_sparse_indices\[0\]\[0\]\[0\]\[0\]"),
    (lambda q, ori, cmp, ids: npu.sparse_flash_mla(q.requires_grad_(), ori), "requires a gradient"),
    (lambda q, ori, cmp, ids: npu.npu_kv_quant_sparse_attn_sharedkv(q, 2, ori, tile_size=1), "kv_quant_mode=2, want 1"),
    (lambda q, ori, cmp, ids: npu.npu_kv_quant_sparse_attn_sharedkv(q, 1, ori), "tile_size=0, want at least 1"),
])
def test_errors_name_the_argument(call, message):
    q, ori, cmp, indices, _ = inputs()
    with pytest.raises(ValueError, match=message):
        call(q, ori, cmp, indices)


def test_metadata_is_zeros():
    for function in (npu.sparse_flash_mla_metadata, npu.npu_sparse_attn_sharedkv_metadata):
        assert torch.equal(function(64, 1, 512, device="cpu"), torch.zeros(1024, dtype=torch.int32))


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
