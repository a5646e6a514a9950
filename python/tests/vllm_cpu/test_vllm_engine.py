"""Small models give the same tokens with fa.vllm as with vLLM's own attention. Each configuration is a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_engine_names import MODELS

PROGRAM = Path(__file__).parent / "small_engine.py"
CHUNKS = {"max_num_batched_tokens": 64, "enable_chunked_prefill": True, "enable_prefix_caching": True}


def run(*arguments: str, **variables: str) -> tuple[dict, str]:
    """Returns what the program says, and everything that it and vLLM wrote."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "FA_VLLM": "0", **variables}
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    found = re.findall(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert len(found) == 1, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(found[0]), done.stdout + done.stderr


def assert_same(got: dict, want: dict) -> None:
    """Compares tokens exactly. Logarithms of probabilities and embeddings of these models, in float32, may differ by
    the roundings of two layers: some 100 of 2^-24, times the size of logits, below 32."""
    bound = 100 * 2.0**-24 * 32
    assert len(got["results"]) == len(want["results"]) > 0
    for of_round in zip(got["results"], want["results"], strict=True):
        for mine, theirs in zip(*of_round, strict=True):
            if isinstance(theirs, dict):
                assert mine["tokens"] == theirs["tokens"]
                mine, theirs = mine["logprobs"], theirs["logprobs"]
            assert len(mine) == len(theirs) > 0
            off = [abs(a - b) for a, b in zip(mine, theirs, strict=True)]
            assert all(difference <= bound for difference in off), max(off)


@pytest.mark.parametrize("model", MODELS)
def test_same_tokens(model):
    theirs, _ = run(model)
    ours, _ = run(model, "--fa")
    assert_same(ours, theirs)
    assert not theirs["calls"]
    kinds = {"bert": {"encoder"}, "deepseek_v3": {"mla_decode", "mla_prefill"}}
    assert set(ours["calls"]) == kinds.get(model, {"decode", "prefill"})
    assert all(count > 0 for count in ours["calls"].values())


@pytest.mark.parametrize("model", ["llama", "gemma2"])
def test_prompts_in_chunks_and_shared_prefixes(model):
    """Chunks of 64 tokens; in the second round, all prompts find the blocks of their first tokens."""
    arguments = model, "--shared", "150", "--rounds", "2", "--options", json.dumps(CHUNKS)
    theirs, _ = run(*arguments)
    ours, _ = run(*arguments, "--fa")
    assert_same(ours, theirs)
    assert ours["cached"] == theirs["cached"] >= 128


def test_the_compiled_path_needs_nothing_of_ours():
    """VLLM_CPU_CI_ENV traces the model and compiles no code, so no compiler is needed."""
    options = "--options", json.dumps({"enforce_eager": False})
    theirs, _ = run("llama", *options, VLLM_CPU_CI_ENV="1")
    ours, _ = run("llama", *options, "--fa", VLLM_CPU_CI_ENV="1")
    assert_same(ours, theirs)
    assert ours["calls"]["decode"] > 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one CPU")
def test_a_worker_whose_threads_are_pinned_uses_all_of_them():
    """vLLM's default: the plugin registers in the worker, whose main thread may run on one of the two CPUs."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    two = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": cpus}
    theirs, _ = run("llama", **two)
    ours, written = run("llama", **two, FA_VLLM="1", FA_VERBOSE="1")
    assert_same(ours, theirs)
    threads = {int(count) for count in re.findall(r"^.*fa: decode, .*; (\d+) threads?;", written, re.MULTILINE)}
    assert 2 in threads, written[-2000:]
