"""benchmarks/features.py measures every feature, and reports none whose result is wrong."""

import math

import benchmark_program
import pytest
import torch


@pytest.fixture(scope="module")
def features():
    return benchmark_program.load("features")


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_feature_has_a_figure(features, monkeypatch, direction, dtype):
    monkeypatch.setattr(features, "LENGTHS", (17, 3))
    ratios = features.measure(direction, dtype, 32, rounds=1, s=24)
    names = set(features.features(8, dtype)) | {"TND"}
    unlike = {features.PLAIN, "pse"} if dtype == torch.float32 else {features.PLAIN}
    assert set(ratios) == names - unlike
    assert all(0 < ratio < math.inf for ratio in ratios.values())


def test_a_feature_with_another_result_is_not_timed(features):
    torch.manual_seed(1)
    tensors = features.inputs(40, 32, torch.float32)
    for name, keywords in features.features(40, torch.float32).items():
        features.check(name, tensors, keywords)
        with pytest.raises(ValueError, match="row .* of head .* of the output is .* from the result in double"):
            features.check(name, tensors, {**keywords, "scale": 0.9})
    tensors[2].fill_(math.nan)
    with pytest.raises(ValueError, match="plain: row 0 of head 0 of the output is nan"):
        features.check("plain", tensors, {})


def test_wrong_gradients_and_packed_results_are_not_timed(features, monkeypatch):
    torch.manual_seed(1)
    monkeypatch.setattr(features, "LENGTHS", (17, 3))
    tensors = features.inputs(24, 32, torch.float32)
    spoiled = features.fa.flash_attention_grad
    packed, keywords, pairs = features.packed(32, torch.float32)
    assert pairs == 17 * 17 + 3 * 3
    features.check("TND", packed, keywords, features.packed_heads)

    class Doubled:
        def __init__(self, grads):
            self.dq = 2 * grads.dq

    monkeypatch.setattr(features.fa, "flash_attention_grad", lambda *args, **kwargs: Doubled(spoiled(*args, **kwargs)))
    with pytest.raises(ValueError, match="plain: row 0 of head 0 of the dQ is"):
        features.check("plain", tensors, {})
    with pytest.raises(ValueError, match="TND: row 0 of head 0 of the dQ is"):
        features.check("TND", packed, keywords, features.packed_heads)
