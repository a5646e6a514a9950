"""The cases that benchmarks/operators.py times: fa and each way of PyTorch agree within the bound of rounding."""

import importlib

import pytest
import torch
from benchmark_program import FOLDER

CASES = ("fused inference, decode", "fused inference, chunk", "scatter of rows", "quantised sparse, 16 heads",
         "shared keys, 64 heads", "kept blocks, 1/4")


@pytest.fixture
def cases(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("inference_cases"), importlib.import_module("operator_cases")


def test_every_case_is_tested(cases):
    assert set(cases[0].CASES) == {*CASES, "quantised sparse, 128 heads"}


@pytest.mark.parametrize("name", CASES)
def test_fa_and_pytorch_agree(cases, name):
    inference, operators = cases
    problem = inference.CASES[name](torch.bfloat16)
    limit = operators.bound("bf16", problem)
    for chunk in problem.chunks:
        for got, want in zip(problem.own(), problem.peer(chunk), strict=True):
            apart = (got.double() - want.double().reshape(got.shape)).norm() / want.double().norm()
            assert apart <= limit, chunk
