"""Small models give the same tokens with fa.vllm as with vLLM's own attention. Each configuration is a process, in which
one engine follows the other. Engines take seconds to start: most configurations run with FA_VLLM_ALL=1 only."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_engine_names import MODELS

PROGRAM = Path(__file__).parent / "small_engine.py"
CHUNKS = {"max_num_batched_tokens": 64, "enable_chunked_prefill": True, "enable_prefix_caching": True}


SHARED = "--shared", "150", "--rounds", "2", "--options", json.dumps(CHUNKS)
ALWAYS = ["gpt_oss", "bert", "whisper", "deepseek_v3"]

only_all = pytest.mark.skipif(os.environ.get("FA_VLLM_ALL", "0") != "1", reason="FA_VLLM_ALL=1 runs it")


def models(*names: str) -> list:
    return [name if name in names else pytest.param(name, marks=only_all) for name in MODELS]


def process(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "FA_VLLM": "0", **variables}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def failure(*arguments: str, **variables: str) -> str:
    """Returns what the program writes when its engine does not start."""
    done = process(*arguments, **variables)
    assert done.returncode != 0
    return done.stdout + done.stderr


def start(*arguments: str, **variables: str) -> tuple[list[dict], str]:
    """Returns what the program says of its engines, and everything that it and vLLM wrote."""
    done = process(*arguments, **variables)
    found = re.findall(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert len(found) == 1, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(found[0]), done.stdout + done.stderr


ON_PLATFORM = {"FA_VLLM_PLATFORM": "1"}


def both(*arguments: str) -> tuple[dict, dict]:
    """Returns the results of an engine with vLLM's attention, and of an engine with `fa`'s."""
    (theirs, ours), _ = start(*arguments, "--register")
    assert not theirs["calls"]
    return theirs, ours


def assert_same(got: dict, want: dict) -> None:
    """Compares tokens exactly. Logarithms of probabilities and embeddings of these models, in float32, may differ by
    the roundings of two layers: some 100 roundings of 2^-24, times the size of logits, which is below 32.
    """
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


def assert_first_tokens(got: dict, want: dict, bound: float) -> None:
    """Compares the first token of each prompt, and the logarithm of its probability. One of the tokens may differ."""
    pairs = list(zip(got["results"][0], want["results"][0], strict=True))
    assert sum(mine["tokens"][0] != theirs["tokens"][0] for mine, theirs in pairs) <= 1
    assert all(abs(mine["logprobs"][0] - theirs["logprobs"][0]) <= bound for mine, theirs in pairs), pairs
    assert all(math.isfinite(number) for mine, _ in pairs for number in mine["logprobs"])


SPARSE = ["deepseek_v32", "glm_moe_dsa"]
DENSE = [case for case in models(*ALWAYS) if case not in SPARSE and getattr(case, "values", [""])[0] not in SPARSE]


@pytest.mark.parametrize("model", DENSE)
def test_same_tokens(model):
    theirs, ours = both(model)
    assert_same(ours, theirs)
    kinds = {"bert": {"encoder"}, "deepseek_v3": {"mla_decode", "mla_prefill"}}
    assert set(ours["calls"]) == kinds.get(model, {"decode", "prefill"})
    assert all(count > 0 for count in ours["calls"].values())


@pytest.mark.parametrize("model", ["llama", pytest.param("gemma2", marks=only_all)])
def test_prompts_in_chunks_and_shared_prefixes(model):
    """Serves prompts in chunks of 64 tokens. The second round finds the blocks of the first tokens in the cache."""
    theirs, ours = both(model, *SHARED)
    assert_same(ours, theirs)
    assert set(ours["calls"]) == {"decode", "prefill"}
    assert ours["cached"] == theirs["cached"] >= 128


def sparse_and_eager(model: str, *arguments: str, **variables: str) -> dict:
    """Compares a sparse model on `fa`'s platform with "eager" of transformers, and returns the results of the sparse
    model.
    """
    (eager, ours), _ = start(model, "--eager", *arguments, **ON_PLATFORM, **variables)
    assert_same(ours, eager)
    assert set(ours["calls"]) == {"indexer", "mla_sparse"}
    return ours


@pytest.mark.parametrize("model", ["deepseek_v32", pytest.param("glm_moe_dsa", marks=only_all)])
def test_sparse_attention_gives_the_tokens_of_transformers(model):
    """Serves prompts of up to 300 tokens in chunks. Each token sees 32 keys. In the second round, prompts use blocks of
    the first round.
    """
    assert sparse_and_eager(model, *SHARED)["cached"] >= 128


@only_all
def test_sparse_attention_of_the_compiled_path():
    sparse_and_eager("deepseek_v32", "--options", json.dumps({"enforce_eager": False}), VLLM_CPU_CI_ENV="1")


@pytest.mark.parametrize(("model", "options", "words"), [
    ("deepseek_v32", {"decode_context_parallel_size": 2, "tensor_parallel_size": 2}, "decode_context_parallel_size=2"),
    pytest.param("deepseek_v32", {"kv_cache_dtype": "fp8"}, "kv_cache_dtype=fp8", marks=only_all),
])  # fmt: skip
def test_what_sparse_attention_does_not_serve_is_refused_at_start(model, options, words):
    written = failure(model, "--options", json.dumps(options), **ON_PLATFORM)
    assert re.search(f"NotImplementedError: fa.vllm: {words}: not served", written), written[-3000:]


@only_all
def test_without_the_platform_vllm_refuses_sparse_attention():
    assert "Sparse Attention is not supported on CPU" in failure("deepseek_v32", FA_VLLM="1")


def test_latent_attention_in_chunks_and_from_shared_prefixes_needs_the_platform():
    (eager, ours), _ = start("deepseek_v3", "--eager", *SHARED, **ON_PLATFORM, FA_VLLM="1")
    assert_same(ours, eager)
    assert ours["cached"] >= 128
    assert set(ours["calls"]) == {"mla_decode", "mla_prefill"}


@only_all
def test_an_int8_cache():
    """An int8 code differs from its key by at most 1/254 of the row's largest magnitude. In each of two layers, logits
    below 2.5 change by at most this share. If two candidates for the first token are nearly equal, the other one may
    win. Later tokens may differ.
    """
    (theirs,), _ = start("llama")
    (ours,), _ = start("llama", "--options", json.dumps({"kv_cache_dtype": "int8_per_token_head"}), FA_VLLM="1")
    assert_first_tokens(ours, theirs, 2 * 2.5 / 254)
    assert set(ours["calls"]) == {"decode", "prefill"}


@only_all
def test_the_compiled_path_needs_nothing_of_ours(monkeypatch):
    """With VLLM_CPU_CI_ENV, vLLM traces the model but compiles no code, so no compiler is needed."""
    monkeypatch.setenv("VLLM_CPU_CI_ENV", "1")
    theirs, ours = both("llama", "--options", json.dumps({"enforce_eager": False}))
    assert_same(ours, theirs)
    assert ours["calls"]["decode"] > 0


@only_all
def test_bf16():
    """The first tokens' logits, below 8, differ by some roundings of 2^-9 in each of two layers. Later tokens may
    differ.
    """
    theirs, ours = both("llama", "--options", json.dumps({"dtype": "bfloat16"}))
    for mine, of_host in zip(ours["results"][0], theirs["results"][0], strict=True):
        assert abs(mine["logprobs"][0] - of_host["logprobs"][0]) <= 2 * 16 * 2.0**-9 * 8
        assert all(map(math.isfinite, mine["logprobs"]))
    assert set(ours["calls"]) == {"decode", "prefill"}


@only_all
@pytest.mark.skipif(not torch.cpu._is_avx512_supported(), reason="vLLM's fp8 cache needs AVX-512")
def test_an_fp8_cache_is_vllms():
    theirs, ours = both("llama", "--options", json.dumps({"dtype": "bfloat16", "kv_cache_dtype": "fp8"}))
    assert ours["results"] == theirs["results"]
    assert set(ours["calls"]) == {"handed_back: kv_cache_dtype=fp8"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one CPU")
def test_a_worker_whose_threads_are_pinned_uses_all_of_them():
    """By default, vLLM runs the model in a worker whose main thread may be pinned to one of two CPUs. `register`
    reaches the worker.
    """
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    two = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": cpus}
    (theirs, ours), written = start("llama", "--register", **two, FA_VERBOSE="1")
    assert_same(ours, theirs)
    threads = {int(count) for count in re.findall(r"^.*fa: decode, .*; (\d+) threads?;", written, re.MULTILINE)}
    assert 2 in threads, written[-2000:]
