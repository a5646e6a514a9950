"""The forward turns boolean masks of padding into intervals of keys. Calls with intervals compute fewer pairs than
calls with the mask in memory, and give the same bits.
"""

import pytest
import torch
import torch.nn.functional as F

import fa
from fa._torch import direct, padding
from fa.torch import scaled_dot_product_attention

B, N, S = 3, 4, 700
SIDES = {
    "right": lambda place, length: place < length,
    "left": lambda place, length: place >= S - length,
}


def qkv(dtype=torch.float32):
    return [torch.randn(B, N, S, 32).to(dtype).requires_grad_() for _ in range(3)]


def mask_of(side, lengths=(S, 300, 0)):
    return SIDES[side](torch.arange(S), torch.tensor(lengths)[:, None])[:, None, None]


def masks_in_memory(monkeypatch):
    """Returns a list to which each later forward call appends its mask, or None if the mask became intervals."""
    seen, attend = [], direct.attend
    monkeypatch.setattr(direct, "attend", lambda *given: (seen.append(given[3]), attend(*given))[1])
    return seen


def results(*arguments, **keywords):
    inputs = arguments[:3]
    out = scaled_dot_product_attention(*arguments, **keywords)
    with torch.no_grad():
        again = scaled_dot_product_attention(*arguments, **keywords)
    return [out, again, *torch.autograd.grad(out.float().square().sum(), inputs)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_padding_has_the_bits_of_a_mask_in_memory(side, is_causal, dtype, monkeypatch):
    seen, given = masks_in_memory(monkeypatch), [*qkv(dtype), mask_of(side)]
    for isa in ("portable", None):
        before = fa.set_default_context(None if isa is None else fa.Context(isa=isa))
        try:
            own = results(*given, is_causal=is_causal)
            assert len(seen) == 2 and all(mask is None for mask in seen)
            with monkeypatch.context() as patch:
                patch.setattr(padding, "_PAIRS", 1 << 60)
                want = results(*given, is_causal=is_causal)
            for one, other in zip(own, want, strict=True):
                assert torch.equal(one, other)
        finally:
            fa.set_default_context(before)
        seen.clear()


def test_one_mask_may_hold_for_the_whole_batch(monkeypatch):
    seen, (q, k, v), mask = masks_in_memory(monkeypatch), qkv(), mask_of("right")[1:2]
    for shape in ((1, 1, 1, S), (1, 1, S), (1, S), (S,)):
        with torch.no_grad():
            got = scaled_dot_product_attention(q, k, v, mask.reshape(shape))
            want = scaled_dot_product_attention(q, k[:, :, :300], v[:, :, :300])
        assert torch.equal(got, want)
    assert seen == [None] * 4


def test_other_masks_stay_in_memory(monkeypatch):
    seen, (q, k, v), gap = masks_in_memory(monkeypatch), qkv(), mask_of("right")
    gap[1, ..., 7] = False
    for mask in (gap, mask_of("right").expand(B, N, S, S).contiguous(), mask_of("right")[..., :1].expand(B, N, S, S)):
        got = scaled_dot_product_attention(q, k, v, mask)
        want = F.scaled_dot_product_attention(q, k, v, mask)
        want = want.masked_fill(~mask.any(-1, keepdim=True), 0)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    assert seen[0] is not None and seen[1] is not None


def test_a_sequence_has_its_bits_whatever_the_others_are(monkeypatch):
    """A sequence has the same bits alone and in a batch. Alone, its mask may be too small to become intervals. In a
    batch, gaps in another sequence keep the mask in memory.
    """
    (q, k, v), mask = qkv(), mask_of("right")
    gaps = mask.clone()
    gaps[0, ..., 9] = False
    both = [results(q, k, v, given) for given in (mask, gaps)]
    alone = [t[1:2].detach().requires_grad_() for t in (q, k, v)]
    for whole, other, own in zip(*both, results(*alone, mask[1:2]), strict=True):
        assert torch.equal(whole[1:2], own) and torch.equal(other[1:2], own)
