"""benchmarks/call_cost.py times all interfaces of the library at all sizes, and rejects an interface whose result is
wrong."""

import math

import benchmark_program
import pytest
import torch


@pytest.fixture(scope="module")
def call_cost():
    return benchmark_program.load("call_cost")


def test_every_face_has_a_figure_of_every_size(call_cost):
    rows = call_cost.measure((1, 5), rounds=1)
    assert {kind for kind, _ in rows} == {"forward", "causal", "mask", "one row", "forward and backward"}
    for kind in {kind for kind, _ in rows}:
        faces = [face for of_kind, face in rows if of_kind == kind]
        assert faces[0] == call_cost.BASE and len(faces) >= 3
    for figures in rows.values():
        assert len(figures) == 2 and all(0 < figure < math.inf for figure in figures)


def test_a_face_with_another_result_is_not_timed(call_cost):
    torch.manual_seed(1)
    faces = call_cost.inference(5)["causal"]
    call_cost.check("causal", faces)
    faces["fa.torch"] = call_cost.inference(5)["forward"]["fa.torch"]
    with pytest.raises(ValueError, match="causal, fa.torch: .* from PyTorch's result"):
        call_cost.check("causal", faces)
    faces["fa.torch"] = lambda: torch.full((1, 1, 5, call_cost.D), math.nan)
    with pytest.raises(ValueError, match="fa.torch: nan"):
        call_cost.check("causal", faces)


def test_figures_in_c_are_the_least_of_their_size(call_cost, tmp_path):
    lines = ", ".join(
        f'{{"run_name": "BM_Call/rows:{rows}", "run_type": "{kind}", "cpu_time": {time}}}'
        for rows, kind, time in ((1, "iteration", 3000), (1, "iteration", 2500), (1, "aggregate", 1000), (8, "iteration", 4e3))
    )
    program = tmp_path / "calls_benchmark"
    program.write_text(f"#!/bin/sh\necho '{{\"benchmarks\": [{lines}]}}'\n")
    program.chmod(0o755)
    assert call_cost.measure_in_c(program, (1, 8)) == [2.5, 4.0]
