"""fa.ring_attention_update merges partial results into the result of one call over all keys."""

import pytest
import torch

import fa

B, N, S, D = 2, 3, 29, 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_halves_merge_into_the_whole(layout, dtype):
    shape = {"BNSD": (B, N, S, D), "BSND": (B, S, N, D), "BSH": (B, S, N * D), "SBH": (S, B, N * D)}[layout]
    axis = {"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0}[layout]
    q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
    keywords = {"layout": layout, "head_num": N}
    whole = fa.flash_attention(q, k, v, **keywords)
    halves = [
        fa.flash_attention(q, kh, vh, **keywords)
        for kh, vh in zip(k.split([10, S - 10], axis), v.split([10, S - 10], axis), strict=True)
    ]
    merged = fa.ring_attention_update(
        halves[0].out, *halves[0][1:], halves[1].out, *halves[1][1:], layout=layout, head_num=N
    )
    # The outputs of the halves, the merge and the whole call are rounded to `dtype`, and are at most max |v|. The bound
    # allows three eps.
    eps = torch.finfo(dtype).eps
    assert (merged.out - whole.out).abs().max() <= 3 * eps * v.abs().max()
    assert torch.allclose(merged.softmax_max, whole.softmax_max, rtol=0, atol=D * 2**-23)
    assert torch.allclose(merged.softmax_sum, whole.softmax_sum, rtol=(S + D) * 2**-23)


def test_an_absent_partial_changes_nothing():
    q, k, v = (torch.randn(B, N, S, D).numpy() for _ in range(3))
    part = fa.flash_attention(q, k, v)
    nothing = fa.flash_attention(q, k, v, mask=fa.Mask.band(-1, -1))
    merged = fa.ring_attention_update(part.out, *part[1:], nothing.out, *nothing[1:], layout="BNSD")
    for got, want in zip(merged, part, strict=True):
        assert (got == want).all()


def test_bad_input():
    q = torch.randn(B, N, S, D)
    part = fa.flash_attention(q, q, q)
    with pytest.raises(ValueError, match="^invalid argument: cur_softmax_max"):
        fa.ring_attention_update(part.out, *part[1:], part.out, part[1][:, :1], part[2], layout="BNSD")
    with pytest.raises(ValueError, match="layout"):
        fa.ring_attention_update(part.out, *part[1:], part.out, *part[1:], layout="DNSB")
