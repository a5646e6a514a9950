"""Calls of fa.torch.flex_attention: shapes, strides and types, threads, compilation, replacement and refusals."""

import concurrent.futures
import subprocess
import sys

import pytest
import torch
import torch.nn.attention.flex_attention as host
from flex_calls import AS_PAIRS, BATCH, FORMS, HEADS, KEYS, ROWS, SIZE, causal, check, pairs, q, random_qkv, window
from torch.nn.attention.flex_attention import AuxRequest, BlockMask

import fa.torch
from fa._torch.flex import mask as mask_module
from fa.torch import create_block_mask, flex_attention

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_float16():
    mask = create_block_mask(window, None, None, ROWS, KEYS)
    check(*random_qkv(torch.float16), keep=pairs(window), softcap=2.0, score_mod=FORMS["soft cap"][0], block_mask=mask)


@pytest.mark.parametrize("heads_kv", [1, 2])
@pytest.mark.parametrize("batch_kv", [1, BATCH])
def test_shared_keys(heads_kv, batch_kv):
    mask = create_block_mask(window, BATCH, None, ROWS, KEYS)
    check(*random_qkv(heads_kv=heads_kv, batch_kv=batch_kv), keep=pairs(window), block_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 1, 0, 3), (0, 1, 3, 2), (3, 2, 1, 0)], ids=str)
def test_strides(order):
    back = [order.index(axis) for axis in range(4)]
    tensors = [t.detach().permute(order).contiguous().permute(back).requires_grad_() for t in random_qkv(size_v=24)]
    check(*tensors, keep=pairs(causal), block_mask=create_block_mask(causal, None, None, ROWS, KEYS))
    out = flex_attention(*tensors)
    wanted = sorted(range(3), key=lambda axis: -tensors[0].stride(axis))
    assert out.stride() == torch.empty_permuted(out.shape, (*wanted, 3)).stride()


def test_import_without_the_newest_names():
    lines = ["import torch.nn.attention.flex_attention as host", "del host.AuxOutput, host.AuxRequest",
             "import fa.torch, torch", "q = torch.ones(1, 1, 4, 8)", "print(fa.torch.flex_attention(q, q, q).sum().item())"]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.returncode) == ("32.0", 0), run.stderr


def test_two_threads_of_a_program():
    mask = create_block_mask(AS_PAIRS["every third"], None, None, ROWS, KEYS)
    tensors = random_qkv()
    want = flex_attention(*tensors, FORMS["any"][0], mask)
    mask_module._kept.clear()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for got in pool.map(lambda _: flex_attention(*tensors, FORMS["any"][0], mask), range(8)):
            assert torch.equal(got, want)


def test_autocast_and_no_elements():
    tensors = random_qkv()
    with torch.autocast("cpu", torch.bfloat16):
        out = flex_attention(*tensors)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, flex_attention(*(t.bfloat16() for t in tensors)))
    for rows, keys in ((0, 5), (5, 0)):
        few = random_qkv(rows=rows, keys=keys)
        few[0].data.fill_(torch.inf)
        assert create_block_mask(AS_PAIRS["every third"], None, None, rows, keys).seq_lengths == (rows, keys)
        out, lse = flex_attention(*few, return_lse=True)
        assert out.shape == (BATCH, HEADS, rows, SIZE) and not out.any() and (lse == -torch.inf).all()
        out.sum().backward()
        assert not few[1].grad.any()


def test_second_derivatives_are_refused():
    tensors = random_qkv()
    with pytest.raises(NotImplementedError, match="there is no second derivative"):
        torch.autograd.grad(flex_attention(*tensors).sum(), tensors[:1], create_graph=True)


def test_replacement():
    own = host.flex_attention, host.create_block_mask
    with fa.torch.replace_flex_attention():
        with fa.torch.replace_flex_attention():
            assert host.flex_attention is flex_attention and host.create_block_mask is create_block_mask
        assert host.flex_attention is flex_attention
    assert (host.flex_attention, host.create_block_mask) == own
    with pytest.warns(RuntimeWarning, match="did nothing"):
        fa.torch.replace_flex_attention()


BUFFER = torch.zeros(4)


def writes(s, b, h, i, j):
    BUFFER[h] += 1
    return s


def adds(s, b, h, i, j):
    return s + BUFFER.add_(1).sum()


SHORT = create_block_mask(causal, 1, 1, 2, 2)
BAD_LISTS = BlockMask.from_kv_blocks(torch.ones((1, 1, 1), dtype=torch.int32), torch.full((1, 1, 1, 1), 9, dtype=torch.int32),
                                     seq_lengths=(4, 4), compute_q_blocks=False)
TWO = create_block_mask(causal, 2, 3, 4, 4)
REFUSED = [
    ((q(), q(), q(dtype=torch.bfloat16)), {}, ValueError, "same dtype, but got query.dtype: torch.float32"),
    ((q(dtype=torch.int8),) * 3, {}, ValueError, "query.dtype=torch.int8, want a float"),
    ((q(), q(device="meta"), q()), {}, ValueError, "key: want a plain tensor on the CPU, got Tensor on meta"),
    ((q(1, 2, 4, 8), q(1, 2, 4, 6), q()), {}, ValueError, "same embedding dimension but got E=8 and E=6"),
    ((q(2, 4, 8),) * 3, {}, NotImplementedError, "must be 4D"),
    ((q(), q(), q(1, 2, 5, 8)), {}, ValueError, r"value.shape=\[1, 2, 5, 8\]"),
    ((q(), q(1, 1, 4, 8), q(1, 1, 4, 8)), {}, ValueError, "Hq=2 and Hkv=1. Try setting enable_gqa"),
    ((q(), q(1, 3, 4, 8), q(1, 3, 4, 8)), {"enable_gqa": True}, ValueError, "multiple of kv heads"),
    ((q(2, 2, 4, 8), q(), q()), {}, ValueError, "block_mask=None, Bq=2, and Bkv=1"),
    ((q(), q(), q()), {"block_mask": SHORT}, ValueError, "created for a smaller length"),
    ((q(1, 2, 1, 8), q(1, 2, 2, 8), q(1, 2, 2, 8)), {"block_mask": SHORT}, ValueError, "created for a larger length"),
    ((q(), q(), q()), {"block_mask": BAD_LISTS}, ValueError, r"block_mask.kv_indices=9, want 0..0"),
    ((q(2, 2, 4, 8),) * 3, {"block_mask": TWO}, ValueError, r"block_mask.kv_indices.shape\[1\]=3, want 1 or 2"),
    ((q(), q(), q()), {"block_mask": q()}, TypeError, "block_mask: want a BlockMask, got Tensor"),
    ((q(), q(), q()), {"score_mod": writes}, ValueError, "score_mod changes BUFFER"),
    ((q(), q(), q()), {"score_mod": adds}, ValueError, "score_mod changes BUFFER"),
    ((q(), q(), q()), {"score_mod": lambda *_: 1}, ValueError, "score_mod: want a function that returns a tensor, got int"),
    ((q(), q(), q()), {"score_mod": lambda s, *_: s[None]}, ValueError, r"score_mod: want a function that returns a scalar"),
    ((q(), q(), q()), {"kernel_options": {"BACKEND": "FLASH"}}, ValueError, r"kernel_options\['BACKEND'\]='FLASH'"),
    ((q(), q(), q()), {"return_lse": True, "return_aux": AuxRequest()}, ValueError, "both return_lse and return_aux"),
    ((q(), q(), q()), {"scale": float("inf")}, ValueError, "scale"),
]


@pytest.mark.parametrize(("tensors", "keywords", "kind", "words"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(tensors, keywords, kind, words):
    with pytest.raises(kind, match=words):
        flex_attention(*tensors, **keywords)
    assert not BUFFER.any()


def test_refusals_of_block_masks_and_transforms():
    with pytest.raises(ValueError, match="device=cuda, want cpu"):
        create_block_mask(causal, 1, 1, 4, 4, device="cuda")
    with pytest.raises(ValueError, match="mask_mod: want a function that returns torch.bool, got torch.int64"):
        create_block_mask(lambda b, h, i, j: i - j, 1, 1, 4, 4)
    with pytest.raises(ValueError, match="mask_mod: aten::_local_scalar_dense is no operator of one tensor, want"):
        create_block_mask(lambda b, h, i, j: i >= j if i > 2 else j > 1, 1, 1, 4, 4)
    with pytest.raises(TypeError, match="key: want a torch.Tensor, got int"):
        flex_attention(q(), 1, q())
    with pytest.raises(ValueError, match="inside a transform of torch.func"):
        torch.vmap(flex_attention)(q(3, 1, 2, 4, 8), q(3, 1, 2, 4, 8), q(3, 1, 2, 4, 8))
    nested = torch.nested.nested_tensor([torch.ones(2, 3)], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match="NestedTensor"):
        flex_attention(nested, nested, nested)
