"""fa.PairMask: its makers, and calls with it, which give the bits of calls with a dense mask."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import fa
import fa.torch

B, N, NKV, S1, S2, D = 2, 4, 2, 140, 300, 16
RNG = np.random.default_rng(3)
Q, K, V = (RNG.standard_normal((B, n, s, D), np.float32) for n, s in ((N, S1), (NKV, S2), (NKV, S2)))
DROP = RNG.random((B, 1, S1, S2)) < 0.4
PAIRS = fa.PairMask.from_bool(DROP, drops=True)


def _kept(mask: fa.PairMask) -> np.ndarray:
    """Returns the kept pairs [B|1, H, Sq, Sk]. With V = I, output column j is the weight of key j, which is positive if
    the pair is kept.
    """
    batch, heads, rows, keys = mask.shape
    q, k = np.zeros((batch, heads, rows, 1), np.float32), np.zeros((batch, heads, keys, 1), np.float32)
    eye = np.broadcast_to(np.eye(keys, dtype=np.float32), (batch, heads, keys, keys))
    return fa.flash_attention(q, k, np.ascontiguousarray(eye), dense_mask=mask).out > 0


def _as(array, kind):
    return torch.from_numpy(np.ascontiguousarray(array)) if kind == "torch" else array


KINDS = pytest.mark.parametrize("kind", ["numpy", "torch"])


@KINDS
def test_from_bool_keeps_or_drops(kind):
    kept = RNG.random((2, 1, 133, 70)) < 0.5
    np.testing.assert_array_equal(_kept(fa.PairMask.from_bool(_as(kept, kind))), kept)
    np.testing.assert_array_equal(_kept(fa.PairMask.from_bool(_as(kept.astype(np.uint8), kind), drops=True)), ~kept)
    np.testing.assert_array_equal(_kept(fa.PairMask.from_bool(_as(kept, kind)[:, :, ::2, ::2])), kept[:, :, ::2, ::2])
    if kind == "numpy":  # PyTorch has no negative strides
        np.testing.assert_array_equal(_kept(fa.PairMask.from_bool(kept[..., ::-1])), kept[..., ::-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_from_additive_says_whether_numbers_are_added(dtype):
    least = torch.finfo(dtype).min
    scores = torch.where(torch.from_numpy(DROP), least, 0.0).to(dtype)
    mask, adds = fa.PairMask.from_additive(scores)
    assert not adds
    np.testing.assert_array_equal(_kept(mask), ~DROP)
    scores[1, 0, 5, 7] = 0.5
    assert fa.PairMask.from_additive(scores)[1]
    scores[1, 0, 5, 7] = float("nan")
    mask, adds = fa.PairMask.from_additive(scores)
    assert adds
    assert _kept(mask)[1, 0, 5, 7]


@KINDS
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_from_indices_and_blocks(kind, dtype):
    lists = RNG.integers(-1, 70, (2, 1, 133, 9)).astype(dtype)
    listed = np.zeros((2, 1, 133, 70), bool)
    for place in np.ndindex(lists.shape):
        if lists[place] >= 0:
            listed[(*place[:3], lists[place])] = True
    np.testing.assert_array_equal(_kept(fa.PairMask.from_indices(_as(lists, kind), 70)), listed)
    blocks = fa.PairMask.from_blocks(_as(lists[:, :, :9] // 8, kind), 133, 70, (16, 8))
    want = np.zeros((2, 1, 9, 9), bool)
    for place in np.ndindex(2, 1, 9, 9):
        if lists[place] >= 0:
            want[(*place[:3], lists[place] // 8)] = True
    np.testing.assert_array_equal(_kept(blocks), want.repeat(16, 2).repeat(8, 3)[:, :, :133, :70])


def test_from_bits():
    kept = RNG.random((2, 1, 133, 70)) < 0.5
    bits = np.packbits(np.pad(kept, ((0, 0),) * 3 + ((0, 58),)), axis=-1, bitorder="little").view(np.int64)
    np.testing.assert_array_equal(_kept(fa.PairMask.from_bits(bits, 70)), kept)


def test_from_slabs_asks_for_slabs_of_rows_and_broadcasts():
    slabs = []

    def later(begin, end):
        slabs.append((begin, end))
        return np.arange(begin, end)[:, None] % 97 >= np.arange(16384) % 101

    mask = fa.PairMask.from_slabs(later, (2, 4, 300, 16384))
    assert slabs == [(0, 128), (128, 256), (256, 300)]  # a slab of 128 rows has 16 MiB
    assert mask.shape == (2, 4, 300, 16384)
    whole = fa.PairMask.from_slabs(later, (1, 1, 300, 16384))
    assert slabs[3:] == [(0, 300)]
    assert (np.array(mask.tiles) == 8 * np.array(whole.tiles)).all()
    of_batch = fa.PairMask.from_slabs(lambda begin, end: torch.from_numpy(~DROP[:, :, begin:end]), (B, N, S1, S2))
    np.testing.assert_array_equal(_kept(of_batch), np.broadcast_to(~DROP, (B, N, S1, S2)))
    with pytest.raises(ValueError, match=r"function: returned shape \[200,7\], want \[1,1,200,8\]"):
        fa.PairMask.from_slabs(lambda begin, end: np.ones((end - begin, 7), bool), (1, 1, 200, 8))
    with pytest.raises(RuntimeError, match="from the function"):
        fa.PairMask.from_slabs(lambda begin, end: exec('raise RuntimeError("from the function")'), (1, 1, 200, 8))


def test_an_intersection_keeps_what_both_keep():
    other = RNG.random((1, 1, S1, S2)) < 0.5
    row = RNG.random((2, 1, 1, S2)) < 0.5
    np.testing.assert_array_equal(_kept(PAIRS & fa.PairMask.from_bool(other)), ~DROP & other)
    np.testing.assert_array_equal(_kept(fa.PairMask.from_bool(other) & fa.PairMask.from_bool(row)), other & row)
    with pytest.raises(ValueError, match=r"b.shape=\[1,1,7,7\], want \[2,1,140,300\] \(a.shape\)"):
        PAIRS & fa.PairMask.from_bool(np.ones((7, 7), bool))


def test_a_mask_tells_its_tiles_and_its_memory():
    kept = np.zeros((300, 400), bool)
    kept[:128, :128] = True
    kept[130, 130] = True
    mask = fa.PairMask.from_bool(kept)
    assert mask.tiles == (10, 1, 1)
    assert mask.memory == 12 + 3 * 16 + 128 * 16
    assert repr(mask) == "PairMask(shape=(1, 1, 300, 400), tiles: 10 empty, 1 full, 1 partial, 2108 bytes)"
    random = fa.PairMask.from_bool(RNG.random((1, 2, 1024, 1024)) < 0.5)
    assert random.memory <= 1.01 * (2 * 1024 * 1024 / 8 + 2 * 64)


@KINDS
@pytest.mark.parametrize("mask", [fa.Mask.none(), fa.Mask.causal()], ids=["alone", "with a rule"])
def test_calls_give_the_bits_of_the_dense_mask(kind, mask):
    q, k, v, drop = (_as(array, kind) for array in (Q, K, V, DROP))
    forward = [fa.flash_attention(q, k, v, mask=mask, dense_mask=dropped) for dropped in (drop, PAIRS)]
    for dense, pairs in zip(*forward, strict=True):
        np.testing.assert_array_equal(dense, pairs)
    results = (forward[0].out, q, *forward[0][1:])
    gradients = [fa.flash_attention_grad(q, k, v, *results, mask=mask, dense_mask=dropped) for dropped in (drop, PAIRS)]
    for name in ("dq", "dk", "dv"):
        np.testing.assert_array_equal(*(getattr(of, name) for of in gradients))
    for function in (fa.prompt_flash_attention, fa.decode_attention):
        given = {"mask": mask} if function is fa.decode_attention else {}
        out = [function(q, k, v, dense_mask=dropped, **given) for dropped in (drop, PAIRS)]
        np.testing.assert_array_equal(*out)


def test_wrong_masks_are_refused_by_name():
    with pytest.raises(ValueError, match=r"dense_mask.shape\[3\]=299, want 300 \(k.shape\[2\]\)"):
        fa.flash_attention(Q, K, V, dense_mask=fa.PairMask.from_bool(DROP[..., :299]))
    with pytest.raises(TypeError, match="q: want an array"):
        fa.flash_attention(PAIRS, K, V)
    with pytest.raises(TypeError, match="mask: want fa.Mask or None, got PairMask"):
        fa.flash_attention(Q, K, V, mask=PAIRS)
    with pytest.raises(ValueError, match=r"mask.dtype=f32, want u8, bool or i8"):
        fa.PairMask.from_bool(Q)
    with pytest.raises(ValueError, match=r"indices\[0\]\[0\]\[1\]\[2\]=9, want < 9 \(keys\)"):
        fa.PairMask.from_indices(np.array([[1, 2, 3], [3, 4, 9]]), 9)
    with pytest.raises(TypeError, match="drop: unknown, want one of mask, drops, context"):
        fa.PairMask.from_bool(DROP, drop=True)


@pytest.mark.parametrize("dropout_p", [0.0, 0.2])
@pytest.mark.parametrize("is_causal", [False, True])
def test_scaled_dot_product_attention(is_causal, dropout_p):
    def run(attn_mask):
        torch.manual_seed(1)
        q, k, v = (torch.from_numpy(array).requires_grad_() for array in (Q, K, V))
        given = {"attn_mask": attn_mask, "is_causal": is_causal, "dropout_p": dropout_p, "enable_gqa": True}
        out = fa.torch.scaled_dot_product_attention(q, k, v, **given)
        return out, *torch.autograd.grad(out.square().sum(), (q, k, v))

    kept = torch.from_numpy(~DROP)
    for dense, pairs in zip(run(kept), run(PAIRS), strict=True):
        assert torch.equal(dense, pairs)


def test_scaled_dot_product_attention_refuses_transforms_and_wrong_masks():
    q, k, v = (torch.from_numpy(array) for array in (Q, K, V))
    sdpa = fa.torch.scaled_dot_product_attention
    with pytest.raises(ValueError, match=r"attn_mask.shape\[2\]=140, want 139 \(query.shape\[2\]\)"):
        sdpa(q[:, :, 1:], k, v, attn_mask=PAIRS, enable_gqa=True)
    with pytest.raises(ValueError, match=r"query: want a plain CPU tensor \(with a fa.PairMask\)"):
        torch.vmap(lambda t: sdpa(t, k, v, attn_mask=PAIRS, enable_gqa=True))(q[None])


def test_can_use_says_what_scaled_dot_product_attention_does():
    q, k, v = (torch.from_numpy(array) for array in (Q, K, V))
    assert fa.torch.can_use(q, k, v, PAIRS, enable_gqa=True)
    for wrong in (q[:, :, 1:], q.double(), q[:1].expand(7, -1, -1, -1)):
        assert not fa.torch.can_use(wrong, k, v, PAIRS, enable_gqa=True)
    with pytest.warns(UserWarning, match=r"attn_mask.shape\[2\]=140, want 139"):
        fa.torch.can_use(q[:, :, 1:], k, v, PAIRS, enable_gqa=True, debug=True)


def test_autocast_and_second_derivatives():
    q, k, v = (torch.from_numpy(array).requires_grad_() for array in (Q, K, V))
    given = {"attn_mask": PAIRS, "enable_gqa": True}
    with torch.autocast("cpu", torch.bfloat16):
        out = fa.torch.scaled_dot_product_attention(q, k, v, **given)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, fa.torch.scaled_dot_product_attention(*(t.bfloat16() for t in (q, k, v)), **given))
    out = fa.torch.scaled_dot_product_attention(q, k, v, **given)
    with pytest.raises(NotImplementedError, match="there is no second derivative"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def test_torch_compile_leaves_the_call_out_of_its_graph():
    q, k, v = (torch.from_numpy(array) for array in (Q, K, V))

    def double(t):
        return 2 * fa.torch.scaled_dot_product_attention(t, k, v, attn_mask=PAIRS, enable_gqa=True)

    torch.testing.assert_close(torch.compile(double, backend="eager")(q), double(q), rtol=0, atol=0)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="scaled_dot_product_attention_of_pairs"):
        torch.compile(double, backend="eager", fullgraph=True)(q)


@pytest.mark.parametrize("remake", [lambda mask: pickle.loads(pickle.dumps(mask)), copy.copy, copy.deepcopy])
def test_masks_are_pickled_and_copied(remake):
    kept = RNG.random((2, 3, 133, 200)) < 0.5
    kept[0, 1] = True
    kept[1, 0] = False
    mask = fa.PairMask.from_bool(kept)
    made = remake(mask)
    assert (made.shape, made.tiles, made.memory) == (mask.shape, mask.tiles, mask.memory)
    np.testing.assert_array_equal(_kept(made), kept)


def test_copies_are_the_object():
    assert copy.copy(PAIRS) is copy.deepcopy([PAIRS])[0] is PAIRS


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 140])
def test_decode_attention_of_tensors(rows, is_causal):
    q, k, v = torch.from_numpy(Q)[:, :, :rows], *map(torch.from_numpy, (K, V))
    drop = torch.from_numpy(DROP)[:, :, :rows]
    mask = fa.PairMask.from_bool(drop, drops=True)
    options = {"is_causal": is_causal, "lengths_kv": [300, 177], "return_lse": True}
    want = fa.torch.decode_attention(q, k, v, dense_mask=drop, **options)
    for call in (fa.torch.decode_attention, torch.compile(fa.torch.decode_attention, backend="eager")):
        for got, of_tensor in zip(call(q, k, v, dense_mask=mask, **options), want, strict=True):
            assert torch.equal(got, of_tensor)


def test_decode_attention_refuses_transforms_and_wrong_masks():
    q, k, v = map(torch.from_numpy, (Q, K, V))
    with pytest.raises(ValueError, match="query: want a plain CPU tensor .with a fa.PairMask."):
        torch.func.vmap(lambda t: fa.torch.decode_attention(t, k, v, dense_mask=PAIRS))(q[None])
    with pytest.raises(ValueError, match=r"key\[1\]: want a plain CPU tensor .with a fa.PairMask."):
        values = [v[:1], v[1:]]
        torch.func.vmap(lambda t: fa.torch.decode_attention(q, [k[:1], t], values, dense_mask=PAIRS))(k[None, 1:])
    longer = torch.cat([k, k], 2), torch.cat([v, v], 2)
    with pytest.raises(ValueError, match=r"invalid argument: dense_mask.shape.3.=300, want 600 .key.shape.2.."):
        fa.torch.decode_attention(q, *longer, dense_mask=PAIRS)
    with pytest.raises(ValueError, match="query: requires a gradient"):
        fa.torch.decode_attention(q.clone().requires_grad_(), k, v, dense_mask=PAIRS)
