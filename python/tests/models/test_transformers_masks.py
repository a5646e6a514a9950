"""The intervals of keys that fa derives from masks of transformers, compared with the masks that transformers makes."""

from __future__ import annotations

import pytest
import torch
from hf_models import model_of, tokens, with_attention
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import masking_utils as utils

from fa._model import masks as _model_masks
from fa._model import words
from fa.transformers import mask_of_model

BATCH, ROWS = 3, 11
LEFT = torch.tensor([0, 2, 5])


def _packed(function):
    """Restricts a mask function to packed sequences. The three batch elements hold three, one and four sequences."""
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1], list(range(11)), [5, 6, 7, 0, 1, 2, 3, 0, 0, 1, 2]])
    sequences = utils.find_packed_sequence_indices(positions)
    return utils.packed_sequence_compatibility_function(function, positions, sequences)


def _blocks(*names):
    return torch.tensor(names)


CONTIGUOUS = _blocks([-1, -1, 0, 0, 0, -1, 1, 1, -1, -1, -1], [0] * 11, [-1] * 11)
TWICE = _blocks([-1, 0, 0, -1, -1, 0, 0, -1, -1, -1, -1], [0] * 11, [-1] * 11)
CAUSAL = utils.causal_mask_function
FUNCTIONS = {
    "causal": CAUSAL,
    "both_ways": utils.bidirectional_mask_function,
    "window": utils.sliding_window_causal_mask_function(4),
    "window_both_ways": utils.sliding_window_bidirectional_mask_function(3),
    "chunks": utils.chunked_causal_mask_function(4, LEFT),
    "packed": _packed(CAUSAL),
    "packed_window": _packed(utils.sliding_window_causal_mask_function(3)),
    "packed_chunks": _packed(utils.chunked_causal_mask_function(2, torch.zeros(3, dtype=torch.int64))),
    "blocks": utils.or_masks(CAUSAL, utils.blockwise_overlay(CONTIGUOUS)),
    "blocks_window": utils.or_masks(
        utils.sliding_window_causal_mask_function(2), utils.blockwise_overlay(CONTIGUOUS)
    ),
}
PADDINGS = {
    "none": None,
    "left": [[1] * 11, [0] * 2 + [1] * 9, [0] * 5 + [1] * 6],
    "right": [[1] * 11, [1] * 2 + [0] * 9, [1] * 7 + [0] * 4],
    "nothing": [[0] * 11, [1] * 11, [0] * 10 + [1]],
}


def _of_rows(rows: Tensor, keys: int) -> Tensor:
    """Returns the bool mask in which each row keeps the keys of its interval [begin, end)."""
    places = torch.arange(keys)
    return (rows[..., :1] <= places) & (places < rows[..., 1:])


def _arguments(function, padding, **others):
    mask = None if PADDINGS[padding] is None else torch.tensor(PADDINGS[padding]).bool()
    usual = {"batch_size": BATCH, "q_length": ROWS, "kv_length": ROWS, "mask_function": function}
    return usual | {"attention_mask": mask, "allow_is_causal_skip": True} | others


def _check(arguments) -> Tensor:
    mask = mask_of_model(**arguments)
    assert mask.held.dtype == torch.int32
    want = utils.sdpa_mask(**arguments | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})
    assert mask.held.shape == (*want.shape[:3], 2)
    assert torch.equal(_of_rows(mask.held, want.shape[3]), want)
    assert mask.shape == want.shape
    assert torch.equal(mask + 0, _eager(arguments))
    return mask.held


def _eager(arguments) -> Tensor:
    return utils.eager_mask(**arguments | {"allow_is_bidirectional_skip": False})


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_intervals_are_the_masks_of_transformers(name, padding):
    arguments = _arguments(FUNCTIONS[name], padding)
    if padding == "none" and name == "both_ways":
        assert mask_of_model(**arguments | {"allow_is_bidirectional_skip": True}) is None
    _check(arguments | {"allow_is_bidirectional_skip": name != "both_ways"})


@pytest.mark.parametrize("name", ["causal", "window", "chunks", "both_ways"])
@pytest.mark.parametrize(("q_offset", "kv_offset", "keys"), [(7, 0, 18), (7, 5, 13), (3, 0, 30)])
def test_intervals_count_from_the_first_key_of_a_cache(name, q_offset, kv_offset, keys):
    offsets = {"q_offset": q_offset, "kv_offset": kv_offset, "kv_length": keys}
    arguments = _arguments(FUNCTIONS[name], "none", **offsets)
    mask = torch.ones(BATCH, kv_offset + keys, dtype=torch.bool)
    mask[1, : kv_offset + 3] = False
    _check(arguments | {"attention_mask": mask})
    moving = arguments | {"q_offset": torch.tensor(q_offset), "attention_mask": mask}
    assert torch.equal(_check(moving), _check(arguments | {"attention_mask": mask}))


def test_one_row_that_looks_at_all_keys_takes_no_mask():
    one = {"q_length": 1, "kv_length": 9, "q_offset": 8}
    assert mask_of_model(**_arguments(CAUSAL, "none", **one)) is None
    assert mask_of_model(**_arguments(FUNCTIONS["window"], "none", **one | {"kv_length": 4, "kv_offset": 5})) is None
    assert mask_of_model(**_arguments(CAUSAL, "none", **one | {"kv_length": 12})) is not None


@pytest.mark.parametrize(
    ("function", "padding"),
    [
        (CAUSAL, [[1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1]] * 3),
        (utils.or_masks(CAUSAL, utils.blockwise_overlay(TWICE)), None),
        (utils.or_masks(CAUSAL, lambda b, h, q, k: (q < 3) & (k < 9)), None),
        (utils.and_masks(CAUSAL, lambda b, h, q, k: k % 2 == 0), None),
    ],
    ids=["gaps", "blocks_in_two_runs", "more", "less"],
)
def test_masks_that_are_no_intervals_hold_every_pair(function, padding):
    mask = None if padding is None else torch.tensor(padding).bool()
    arguments = _arguments(function, "none", attention_mask=mask, use_vmap=padding is None, allow_is_causal_skip=False)
    got = mask_of_model(**arguments)
    assert got.held.dtype == torch.int64
    assert torch.equal(words.pairs_of(got.held, got.shape[3]), utils.sdpa_mask(**arguments))
    assert torch.equal(got + 0, _eager(arguments))


@pytest.mark.parametrize("use_vmap", [False, True])
def test_masks_that_are_no_intervals_are_computed_for_slabs_of_rows(use_vmap, monkeypatch):
    sizes, slabs = {"batch_size": 2, "q_length": 300, "kv_length": 333, "q_offset": 33}, []

    def function(b, h, q, k):
        slabs.append(q.numel())
        return (k <= q) & ((q + 2 * k + b) % 3 > 0)

    monkeypatch.setattr(words, "_PAIRS", 128 * 333 * 2)
    got = mask_of_model(**sizes, mask_function=function, use_vmap=use_vmap)
    assert use_vmap or slabs == [128, 128, 44]
    want = utils.sdpa_mask(**sizes, mask_function=function, allow_is_causal_skip=False)
    assert torch.equal(words.pairs_of(got.held, 333), want)


def test_a_model_that_works_with_its_mask_gets_one():
    for function, size in ((CAUSAL, {}), (FUNCTIONS["both_ways"], {}), (CAUSAL, {"q_length": 1, "q_offset": 10})):
        arguments = _arguments(function, "none", allow_is_causal_skip=False, **size)
        assert torch.equal(mask_of_model(**arguments) + 0, _eager(arguments))


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_search_finds_the_same_intervals(name, padding):
    mask = None if PADDINGS[padding] is None else torch.tensor(PADDINGS[padding]).bool()
    size = _model_masks.Size(BATCH, ROWS, ROWS, 0, 0)
    rows = _model_masks.traced_rows(FUNCTIONS[name], size, mask)
    want = utils.sdpa_mask(**_arguments(FUNCTIONS[name], padding, allow_is_causal_skip=False))
    assert torch.equal(_of_rows(rows, ROWS), want)


def test_search_cuts_rows_to_the_ends_of_padding_with_gaps():
    size = _model_masks.Size(1, 4, 4, 0, 0)
    rows = _model_masks.traced_rows(CAUSAL, size, torch.tensor([[False, True, False, True]]))
    assert rows.squeeze().tolist() == [[1, 1], [1, 2], [1, 3], [1, 4]]


class Sizes(TorchDispatchMode):
    """Records the largest number of bytes that one operation allocates. Results that share memory with an argument do
    not count.
    """

    def __init__(self):
        super().__init__()
        self.largest_new = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **keywords or {})
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((arguments, keywords)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.largest_new = max(self.largest_new, tensor.untyped_storage().nbytes())
        return result


LONG = 16 * 1024


@pytest.mark.parametrize("case", ["whole", "left", "right", "packed", "window", "window_left", "both_ways_right"])
def test_no_tensor_of_a_long_call_grows_with_its_square(case):
    """Runs one layer on 16K tokens. Every tensor must be smaller than a mask of one bit per pair of tokens."""
    name = "bert" if case.startswith("both") else "mistral" if case.startswith("window") else "llama"
    model = model_of(name, layers=1, positions=LONG).base_model
    inputs = {"input_ids": tokens(1, LONG)}
    if case.endswith(("left", "right")):
        inputs["attention_mask"] = torch.ones(1, LONG, dtype=torch.int64)
        padded = slice(0, 100) if case.endswith("left") else slice(LONG - 100, LONG)
        inputs["attention_mask"][:, padded] = 0
    if case == "packed":
        inputs["position_ids"] = torch.arange(LONG)[None] % (LONG // 4)
    options = {} if name == "bert" else {"use_cache": False}
    with torch.no_grad(), Sizes() as sizes:
        model(**inputs, **options)
    assert LONG * 64 <= sizes.largest_new < LONG * LONG // 8


def test_packed_sequences_are_those_alone():
    model = model_of("mistral")
    lengths = [9, 1, 14, 5]
    ids = [tokens(1, length, seed=length) for length in lengths]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    packed = model(torch.cat(ids, 1), position_ids=positions, use_cache=False).logits[0]
    alone = torch.cat([model(i, use_cache=False).logits[0] for i in ids])
    exact = with_attention(model, "reference", torch.float64)
    want = torch.cat([exact(i, use_cache=False).logits[0] for i in ids])
    assert (packed - want).norm() <= 2 * (alone - want).norm()
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    keywords = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 14, "max_length_k": 14}
    again = model(torch.cat(ids, 1), position_ids=positions, use_cache=False, **keywords).logits[0]
    assert torch.equal(again, packed)


@pytest.mark.parametrize("window", [None, 1, 4, 40])
def test_a_window_counts_without_a_mask(window):
    from fa.transformers import attention_forward

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 12, 8, generator=generator) for heads in (4, 2, 2))
    rows = torch.arange(12)
    mask = rows[None] <= rows[:, None]
    if window is not None:
        mask &= rows[None] > rows[:, None] - window
    got, _ = attention_forward(torch.nn.Module(), q, k, v, None, sliding_window=window)
    want, _ = attention_forward(torch.nn.Module(), q, k, v, mask[None, None])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("window", [None, 4])
def test_prefix_sums_alone_pack_sequences(window):
    from fa.transformers import attention_forward

    module = torch.nn.Module()
    module.is_causal = True
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 12, 8, generator=generator) for heads in (4, 2, 2))
    ends = torch.tensor([0, 5, 6, 12], dtype=torch.int32)
    got, _ = attention_forward(module, q, k, v, None, cu_seq_lens_q=ends, cu_seq_lens_k=ends, sliding_window=window)
    for begin, end in ((0, 5), (5, 6), (6, 12)):
        rows = torch.arange(end - begin)
        mask = rows[None] <= rows[:, None]
        if window is not None:
            mask &= rows[None] > rows[:, None] - window
        part = slice(begin, end)
        want, _ = attention_forward(module, q[:, :, part], k[:, :, part], v[:, :, part], mask[None, None])
        torch.testing.assert_close(got[:, part], want)


def test_masks_may_be_made_by_compiled_code():
    """Repeats transformers' own test of bidirectional masks, for an encoder and for cross-attention, with and without
    padding.
    """
    config = model_of("llama").config
    made = torch.compile(utils.create_bidirectional_mask, backend="aot_eager")
    rows, keys = (torch.ones(2, n, 1, dtype=torch.float16) for n in (10, 5))
    of_rows, of_keys = (torch.ones_like(t)[..., 0] for t in (rows, keys))

    def both(first, second):
        own = made(config=config, inputs_embeds=rows, attention_mask=first)
        return own, made(config=config, inputs_embeds=rows, attention_mask=second, encoder_hidden_states=keys)

    both(of_rows, of_keys)
    assert both(None, None) == (None, None)
    of_rows[:, -1] = of_keys[:, -1] = 0
    for mask, size in zip(both(of_rows, of_keys), (10, 5), strict=True):
        want = torch.zeros(2, 1, 10, size, dtype=torch.float16)
        want[..., -1] = torch.finfo(torch.float16).min
        assert torch.equal(mask + 0, want)
