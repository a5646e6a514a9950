"""The pictures in docs/masks.md show exactly the pairs that the library keeps."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import fa

REPOSITORY = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("draw_masks", REPOSITORY / "scripts/docs/draw_masks.py")
draw_masks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(draw_masks)

MASKS = {
    "none": fa.Mask.none(),
    "causal_top_left": fa.Mask.causal_top_left(),
    "causal": fa.Mask.causal(),
    "causal_fewer_keys": fa.Mask.causal(),
    "band": fa.Mask.band(2, 1),
    "band_top_left": fa.Mask.band_top_left(2, 1),
    "prefix": fa.Mask.prefix([3]),
    "rows": fa.Mask.rows([0] * 3 + [3] * 5, [3] * 3 + [8] * 5),
}


@pytest.mark.parametrize("name", draw_masks.RULES)
def test_a_picture_shows_what_is_kept(name):
    drawn = np.array(draw_masks.kept(name))
    queries, keys = drawn.shape
    # All scores are equal and V is the identity. So element j of an output row is positive if the row keeps key j.
    out = fa.flash_attention(
        np.zeros((1, 1, queries, 4), np.float32),
        np.zeros((1, 1, keys, 4), np.float32),
        np.eye(keys, dtype=np.float32)[None, None],
        mask=MASKS[name],
    ).out[0, 0]
    assert np.array_equal(out > 0, drawn)


@pytest.mark.parametrize("name", draw_masks.RULES)
def test_a_picture_is_the_one_that_is_drawn(name):
    assert (REPOSITORY / f"docs/pictures/mask_{name}.svg").read_text() == draw_masks.picture(name)
