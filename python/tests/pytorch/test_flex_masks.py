"""block_mask of fa.torch.flex_attention: which pairs it keeps, and block masks compared with PyTorch's own."""

import copy
import inspect
import pickle

import pytest
import torch
import torch.nn.attention.flex_attention as host
from flex_calls import (AS_INTERVALS, AS_PAIRS, BATCH, HEADS, KEYS, MASKS, ROWS, SHUFFLED, SORTED, causal, check, documents,
                        indices, pairs, random_qkv, window)
from torch.nn.attention.flex_attention import BlockMask, or_masks

from fa._torch.flex import mask as mask_module
from fa.torch import create_block_mask, explain_flex_attention, flex_attention

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, dtype):
    mask = create_block_mask(MASKS[name], BATCH, HEADS, ROWS, KEYS, BLOCK_SIZE=64)
    tensors = random_qkv(dtype)
    check(*tensors, keep=pairs(MASKS[name]), block_mask=mask)
    first = explain_flex_attention(*tensors, block_mask=mask).splitlines()[0]
    assert (first == "mask: intervals of keys per row") == (name in AS_INTERVALS), first


@pytest.mark.parametrize("size", [128, (64, 32), (32, 256), 1000], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_block_masks_are_those_of_pytorch(name, size):
    given = MASKS[name], BATCH, HEADS, ROWS, KEYS
    theirs = host.create_block_mask(*given, device="cpu", BLOCK_SIZE=size)
    same_block_masks(create_block_mask(*given, BLOCK_SIZE=size), theirs)


def same_block_masks(mine, theirs):
    assert vars(mine).keys() == vars(theirs).keys()
    for name, value in vars(theirs).items():
        own = getattr(mine, name)
        if isinstance(value, torch.Tensor):
            assert own.dtype == value.dtype and own.shape == value.shape and torch.equal(own, value), name
        else:
            assert own == value, name


@pytest.mark.parametrize("options", [{"separate_full_blocks": False}, {"compute_dq_write_order": True},
                                     {"compute_dq_write_order": True, "dq_kv_order": False}], ids=str)
def test_options_of_block_masks(options):
    given = window, None, None, 300, 260
    missing = options.keys() - inspect.signature(host.create_block_mask).parameters.keys()
    if missing:
        assert torch.__version__ < "2.13", "PyTorch 2.13 has every option"
        pytest.skip(f"create_block_mask of PyTorch {torch.__version__} has no {', '.join(missing)}")
    same_block_masks(create_block_mask(*given, **options), host.create_block_mask(*given, device="cpu", **options))


# Returns a BlockMask from lists of blocks. All rows keep all pairs of key block 1, and those pairs of key block 0 that
# mask_mod keeps.
def lists(mask_mod):
    one = torch.ones((1, 1, 2), dtype=torch.int32)
    columns = torch.tensor([[0, 1], [0, 1]], dtype=torch.int32)[None, None]
    return BlockMask.from_kv_blocks(one, columns, one, columns.flip(-1), BLOCK_SIZE=(96, 64), mask_mod=mask_mod,
                                    seq_lengths=(ROWS, KEYS))


@pytest.mark.parametrize("mask_mod", [None, causal, AS_PAIRS["every third"]])
def test_lists_of_blocks(mask_mod):
    in_block = (indices()[3] // 64).expand(1, 1, ROWS, KEYS)
    keep = (in_block == 1) | ((in_block == 0) & (pairs(mask_mod) if mask_mod else True))
    check(*random_qkv(), keep=keep.expand(BATCH, HEADS, -1, -1), block_mask=lists(mask_mod))


def test_sliced_and_adjusted_block_masks():
    mask = create_block_mask(window, BATCH, HEADS, ROWS, KEYS)
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        flex_attention(*random_qkv(), block_mask=mask[:, 1:2])
    sliced = mask[:, 1:2]
    sliced.mask_mod = window
    check(*random_qkv(), keep=pairs(window), block_mask=sliced)
    few, adjusted = random_qkv(rows=70, keys=90), mask._adjust(70, 90)
    if adjusted.seq_lengths != (70, 90):  # older versions of PyTorch adjust to whole blocks
        with pytest.raises(ValueError, match="created for a larger length"):
            flex_attention(*few, block_mask=adjusted)
        return
    check(*few, keep=pairs(window, BATCH, HEADS, 70, 90), block_mask=adjusted)


def test_what_mask_mod_holds_may_change():
    names, limit = SORTED.clone(), [50]
    mask = create_block_mask(lambda b, h, i, j: (names[i] == names[j]) | (i - j > limit[0]), None, None, ROWS, KEYS)
    mask.full_kv_num_blocks[:] = 0  # the lists of partial blocks decide nothing
    mask.kv_num_blocks[:], mask.kv_indices[:] = 2, torch.tensor([0, 1], dtype=torch.int32)
    for change in (lambda: None, lambda: names.copy_(SHUFFLED), lambda: limit.__setitem__(0, 20)):
        change()
        at = indices()
        keep = (names[at[2]] == names[at[3]]) | (at[2] - at[3] > limit[0])
        check(*random_qkv(), keep=keep.expand(BATCH, HEADS, -1, -1), block_mask=mask)


def test_pairs_are_evaluated_once_and_only_in_partial_blocks(monkeypatch):
    counted, evaluate = [], mask_module.evaluate

    def counting(node, *at):
        counted.append(at[2].numel() * at[3].numel())
        return evaluate(node, *at)

    mask = create_block_mask(lambda b, h, i, j: (i * j) % 7 < 3, None, None, 256, 512)
    mask.kv_num_blocks[:] = 1  # one partial block of four in each row of blocks
    tensors = random_qkv(rows=256, keys=512)
    monkeypatch.setattr(mask_module, "evaluate", counting)
    first = flex_attention(*tensors, block_mask=mask)
    assert sum(counted) == 256 * 128
    assert torch.equal(flex_attention(*tensors, block_mask=mask), first) and sum(counted) == 256 * 128
    made = create_block_mask(lambda b, h, i, j: torch.tensor([3, 1, 2])[j % 3] > i % 3, None, None, 256, 512)
    flex_attention(*tensors, block_mask=made)
    counted.clear()
    flex_attention(*tensors, block_mask=made)
    assert not counted
    counted.append(256 * 128)
    mask.kv_indices[..., 0] += 1
    assert not torch.equal(flex_attention(*tensors, block_mask=mask), first) and sum(counted) == 2 * 256 * 128


def test_block_masks_are_made_in_slabs(monkeypatch):
    sizes, slab = [], mask_module.Kept.slab

    def counting(self, *given):
        kept = slab(self, *given)
        sizes.append(kept.numel())
        return kept

    monkeypatch.setattr(mask_module.Kept, "slab", counting)
    create_block_mask(lambda b, h, i, j: (i + j + h * b) % 3 == 0, 3, 5, 1024, 2048)
    assert sum(sizes) == 3 * 5 * 1024 * 2048 and max(sizes) <= mask_module.PAIRS


def test_many_masks():
    masks = [lambda b, h, i, j, n=n: (i == n) & (j == n) for n in range(1200)]
    given = or_masks(*masks), None, None, 128, 128
    made = create_block_mask(*given)
    assert made.kv_num_blocks.item() == 1
    rows, keys = indices(1, 1, 128, 128)[2:]
    check(*random_qkv(rows=128, keys=128), keep=(rows == keys).expand(BATCH, HEADS, -1, -1), block_mask=made)


def test_inference_mode_and_copies_of_block_masks():
    mask, names = create_block_mask(documents, None, None, ROWS, KEYS), SORTED.clone()
    tensors = random_qkv()
    want = flex_attention(*tensors, block_mask=mask)
    for copied in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert torch.equal(flex_attention(*tensors, block_mask=copied), want)
    with torch.inference_mode():
        own = names.clone()
        mask = create_block_mask(lambda b, h, i, j: own[i] == own[j], None, None, ROWS, KEYS)
        assert torch.equal(flex_attention(*tensors, block_mask=mask), want)
        own.copy_(SHUFFLED)
        assert not torch.equal(flex_attention(*tensors, block_mask=mask), want)
