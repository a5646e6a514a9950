"""fa.Mask and fa.Context have ==, hash, repr, pickle and copy."""

import copy
import pickle

import numpy as np
import pytest

import fa

MASKS = {
    "Mask.none()": fa.Mask.none,
    "Mask.causal()": fa.Mask.causal,
    "Mask.causal_top_left()": fa.Mask.causal_top_left,
    "Mask.band(3, 4)": lambda: fa.Mask.band(3, 4),
    "Mask.band(4, 3)": lambda: fa.Mask.band(4, 3),
    "Mask.band_top_left(3, 4)": lambda: fa.Mask.band_top_left(3, 4),
    "Mask.prefix([1, 5])": lambda: fa.Mask.prefix([1, 5]),
    "Mask.prefix([1, 6])": lambda: fa.Mask.prefix([1, 6]),
    **{
        f"sparse mode {mode}, {given}": lambda mode=mode, given=given: fa.Mask.from_sparse_mode(mode, 3, 4, [2], given)
        for mode in (0, 1, 2, 3, 4, 5, 6, 7, 8)
        for given in ([False, True] if mode == 0 else [False])
    },
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_made_alike_are_equal_and_others_are_not(name):
    mask = MASKS[name]()
    for other, make in MASKS.items():
        assert (mask == make()) == (name == other), other
    assert hash(mask) == hash(MASKS[name]()) and mask != name and mask is not None


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("remake", [lambda m: pickle.loads(pickle.dumps(m)), copy.copy, copy.deepcopy])
def test_masks_are_copied_and_pickled(name, remake):
    made = remake(MASKS[name]())
    assert made == MASKS[name]()
    q = np.random.default_rng(1).standard_normal((1, 1, 6, 8), np.float32)
    if name.startswith("Mask.") and "prefix" not in name:
        want = fa.flash_attention(q, q, q, mask=MASKS[name]()).out
        assert np.array_equal(fa.flash_attention(q, q, q, mask=made).out, want)


def test_the_text_of_a_mask_makes_it():
    for name, make in MASKS.items():
        assert eval(repr(make()), {"Mask": fa.Mask}) == make()
        if name.startswith("Mask."):
            assert repr(make()) == name


SETTINGS = [
    {"threads": threads, "isa": isa, "accumulation": accumulation}
    for threads in (1, 2)
    for isa in ("portable", fa.Context().isa)
    for accumulation in ("deterministic", "atomic-free")
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_contexts_are_their_settings(settings):
    context = fa.Context(**settings)
    for other in SETTINGS:
        assert (context == fa.Context(**other)) == (settings == other)
    assert hash(context) == hash(fa.Context(**settings)) and context != 1
    assert eval(repr(context), {"Context": fa.Context}) == context
    for made in (pickle.loads(pickle.dumps(context)), copy.copy(context), copy.deepcopy(context)):
        assert made == context and made is not context
