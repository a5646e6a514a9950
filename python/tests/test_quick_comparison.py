"""benchmarks/compare.py --quick checks the installed package against float64 and times it next to PyTorch."""

import json
import subprocess
import sys
from types import SimpleNamespace

import benchmark_program
import pytest
from time_limits import seconds


def test_the_installed_package_is_compared_with_pytorch(tmp_path):
    out = tmp_path / "quick.json"
    command = [sys.executable, benchmark_program.FOLDER / "compare.py", "--quick", "--rounds", "1", "--foreign", "1000"]
    command += ["--threads", "1", "--build", tmp_path, "--out", out, "--only", "*/bf16/G/causal/1,forward/f32/F/full/1"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds(240))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    entries = json.loads(out.read_text())["cases"]
    assert set(entries) == {"forward/bf16/G/causal/1", "backward/bf16/G/causal/1", "forward/f32/F/full/1"}
    for key, entry in entries.items():
        assert entry["kernels"] and entry["peak_gflops"] > 0, key
        for name in ("fa", "torch"):
            assert entry["peers"][name]["best"] > 0 and entry["peers"][name]["share_of_bound"] <= 1, (key, name)
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("G bf16 causal", "F f32  full"))]
    assert len(lines) == 3 and not any("–" in line for line in lines), ran.stdout


def test_without_pytorch_it_says_what_to_install(tmp_path):
    command = [sys.executable, benchmark_program.FOLDER / "compare.py", "--quick", "--peers", "fa", "--build", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds(120), cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == "compare: --quick needs fa and PyTorch: pip install ./python torch"


@pytest.mark.parametrize("thrown", [0, 8])
def test_a_busy_machine_is_told_what_lets_others_run(thrown, monkeypatch):
    monkeypatch.syspath_prepend(benchmark_program.FOLDER)
    case = SimpleNamespace(key="k", operation="none")
    results = {"machine": {"cpu": "CPU", "cpus": 2}, "versions": {"fa": {"version": "1"}, "torch": {"version": "2"}}}
    monkeypatch.setattr("machine.text_of", lambda machine: machine["cpu"])
    results["cases"] = {"k": {"peers": {"fa": {"rounds": 1, "rejected": thrown}}}}
    text = benchmark_program.load("quick").report(results, [case])
    assert f"1 rounds count; {thrown} were thrown away" in text and ("--foreign 2" in text) is (thrown > 0)
