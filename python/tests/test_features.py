"""benchmarks/features.py: every feature has a figure, and none whose result is wrong."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "features.py"


@pytest.fixture(scope="module")
def features():
    spec = importlib.util.spec_from_file_location("features", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    q, k, v, _ = features.inputs(40, 32, torch.float32)
    for name, keywords in features.features(40, torch.float32).items():
        features.check(name, q, k, v, keywords)
        if name == features.PLAIN:
            continue
        with pytest.raises(ValueError, match="plain: row .* from the result in double"):
            features.check("plain", q, k, v, {**keywords, "scale": 0.9})
    with pytest.raises(ValueError, match="plain: row 0 of head 0 is nan"):
        features.check("plain", q, k, v.fill_(math.nan), {})
