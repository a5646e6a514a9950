"""Runs a small model in vLLM and prints the results as JSON. The tests start this program, once per configuration.

    small_engine.py MODEL [--register | --eager] [--options JSON]

MODEL is a key of `CONFIGS`. FA_VLLM decides who computes attention. With --register, a second engine starts after
`fa.vllm.register()`. With --eager, transformers' "eager" runs first, and the engine loads its weights from the disk.
Weights are random, the same in every run, and large enough that attention decides which tokens come.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
from pathlib import Path

# vLLM reads these variables when it is imported. The machine may have no network.
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import torch
import transformers
from small_engine_names import MODELS
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.model_loader import dummy_loader

FILL = dummy_loader.initialize_single_dummy_weight
SMALL = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 32}
LATENT = {"kv_lora_rank": 512, "q_lora_rank": 64, "qk_rope_head_dim": 64, "qk_nope_head_dim": 32, "v_head_dim": 32}
LATENT |= {"head_dim": 64, "num_key_value_heads": 4}
EXPERTS = {
    "moe_intermediate_size": 64,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 256}
YARN |= {"beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
SPARSE = {"index_topk": 32, "index_n_heads": 32, "index_head_dim": 128}
LISTS_OF_OTHERS = {"num_hidden_layers": 3, "index_topk_freq": 2}  # the third layer reads the second layer's lists
WINDOWED = {**GROUPED, "sliding_window": 32}
SPOKEN = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
SPOKEN |= {"vocab_size": 512, "d_model": 128, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "num_mel_bins": 16}
SPOKEN |= {"max_source_positions": 150, "max_target_positions": 256, "pad_token_id": 0}
SPOKEN |= {"decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 0}
RATE = 16000  # samples of sound per second
WITH_TOKENIZER = "bert", "whisper"
# {model: (class of its configuration, members, its architecture in vLLM)}
CONFIGS = {
    "llama": ("LlamaConfig", GROUPED, "LlamaForCausalLM"),
    "qwen3": ("Qwen3Config", GROUPED, "Qwen3ForCausalLM"),
    "gemma2": (
        "Gemma2Config",
        {**WINDOWED, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 5.0},
        "Gemma2ForCausalLM",
    ),
    "gpt_oss": ("GptOssConfig", {**WINDOWED, "num_local_experts": 4, "num_experts_per_tok": 2}, "GptOssForCausalLM"),
    "bloom": ("BloomConfig", {"vocab_size": 512, "hidden_size": 128, "n_layer": 2, "n_head": 4}, "BloomForCausalLM"),
    "bert": ("BertConfig", SMALL, "BertModel"),
    "whisper": ("WhisperConfig", SPOKEN, "WhisperForConditionalGeneration"),
    "deepseek_v3": (
        "DeepseekV3Config",
        {**SMALL, **LATENT, **EXPERTS},
        "DeepseekV3ForCausalLM",
    ),
    "deepseek_v32": (
        "DeepseekV32Config",
        {**SMALL, **LATENT, **SPARSE, **EXPERTS, "rope_parameters": YARN},  # as in the published model's configuration
        "DeepseekV32ForCausalLM",
    ),
    "glm_moe_dsa": (
        "GlmMoeDsaConfig",
        {**SMALL, **LATENT, **SPARSE, **EXPERTS, **LISTS_OF_OTHERS, "indexer_rope_interleave": True},
        "GlmMoeDsaForCausalLM",
    ),
}


def folder_of(model: str) -> str:
    """Returns a folder with the model's config.json, and with the tokenizer and the processor if vLLM needs them."""
    kind, members, architecture = CONFIGS[model]
    config = getattr(transformers, kind)(**members)
    config.architectures = [architecture]
    folder = tempfile.mkdtemp()
    config.save_pretrained(folder)
    if model == "bert":  # vLLM makes no embeddings without a tokenizer
        vocabulary = Path(folder, "vocab.txt")
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(507))]
        vocabulary.write_text("\n".join(words), encoding="utf-8")
        transformers.BertTokenizer(str(vocabulary)).save_pretrained(folder)
    if model == "whisper":
        save_processor(folder)
    return folder


def save_processor(folder: str) -> None:
    """Writes a tokenizer without merges, and a feature extractor that turns 3 seconds of sound into 150 encoder
    positions.
    """
    words = {"<|endoftext|>": 0, "<|startoftranscript|>": 1, **{f"w{i}": i for i in range(2, 512)}}
    Path(folder, "vocab.json").write_text(json.dumps(words), encoding="utf-8")
    Path(folder, "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    tokenizer = transformers.WhisperTokenizer(str(Path(folder, "vocab.json")), str(Path(folder, "merges.txt")))
    features = transformers.WhisperFeatureExtractor(SPOKEN["num_mel_bins"], RATE, chunk_length=3)
    transformers.WhisperProcessor(features, tokenizer).save_pretrained(folder)


def vary_weights(largest: float) -> None:
    """Gives each of vLLM's dummy weights a seed of its own, and weights of a size at which tokens do not repeat."""
    seeds = itertools.count(1)
    dummy_loader.initialize_single_dummy_weight = lambda weight: FILL(weight, -largest, largest, next(seeds))


def prompts_of(lengths: list[int], shared: int) -> list[dict]:
    numbers = random.Random(1)
    prefix = [numbers.randrange(1, 500) for _ in range(shared)]
    return [{"prompt_token_ids": prefix + [numbers.randrange(1, 500) for _ in range(n)]} for n in lengths]


def sounds_of(prompts: list[dict]) -> list[dict]:
    """Returns prompts for an encoder-decoder model. Each encoder gets at least a second of noise."""
    noise = torch.Generator().manual_seed(1)
    sounds = [(torch.randn(RATE + 4000 * i, generator=noise).numpy(), RATE) for i in range(len(prompts))]
    encoders = [{"prompt": "", "multi_modal_data": {"audio": sound}} for sound in sounds]
    return [{"encoder_prompt": e, "decoder_prompt": d} for e, d in zip(encoders, prompts, strict=True)]


def of_tokens(completion) -> dict[str, list]:
    """Returns the tokens of a completion and the logarithms of their probabilities."""
    tokens = list(completion.token_ids)
    chosen = [of_place[token].logprob for of_place, token in zip(completion.logprobs, tokens, strict=True)]
    return {"tokens": tokens, "logprobs": chosen}


def run_eager(arguments: argparse.Namespace, folder: str) -> dict:
    """Gives a model of transformers random weights, saves it in the folder, and generates with it."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for seed, weight in enumerate(model.parameters()):
            weight.uniform_(-0.3, 0.3, generator=torch.Generator().manual_seed(seed))
    model.save_pretrained(folder)
    results = []
    for prompt in prompts_of(arguments.numbers, arguments.shared):
        ids = torch.tensor([prompt["prompt_token_ids"]])
        options = {"max_new_tokens": 12, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
        generation = transformers.GenerationConfig(**options, eos_token_id=None, pad_token_id=0)
        output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=generation)
        tokens = output.sequences[0, ids.shape[1] :].tolist()
        all_logprobs = torch.stack(output.logits)[:, 0].log_softmax(-1)
        chosen = all_logprobs[range(len(tokens)), tokens].tolist()
        results.append({"tokens": tokens, "logprobs": chosen})
    return {"results": [results] * arguments.rounds, "calls": {}}


def run(arguments: argparse.Namespace, folder: str) -> dict:
    """Starts an engine, runs it, and ends it."""
    vary_weights(1.0 if arguments.model == "whisper" else 0.3)  # logits of Whisper hardly differ with 0.3
    options = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 4, "kv_cache_memory_bytes": 64 << 20, "seed": 0}
    options |= {"enforce_eager": True, "skip_tokenizer_init": arguments.model not in WITH_TOKENIZER}
    options |= {"load_format": "auto" if arguments.eager else "dummy"}
    options |= {"max_model_len": 256} if arguments.model == "whisper" else {}
    options |= json.loads(arguments.options)
    llm = LLM(model=folder, **options)
    prompts = prompts_of(arguments.numbers, arguments.shared)
    prompts = sounds_of(prompts) if arguments.model == "whisper" else prompts
    results = []
    for _ in range(arguments.rounds):
        if arguments.model == "bert":
            outputs = llm.embed(prompts, use_tqdm=False)
            results.append([output.outputs.embedding for output in outputs])
        else:
            sampling = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=1)
            outputs = llm.generate(prompts, sampling, use_tqdm=False)
            results.append([of_tokens(output.outputs[0]) for output in outputs])
    cached = getattr(outputs[0], "num_cached_tokens", None)
    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()
    counts = sys.modules["fa.vllm"].calls() if "fa.vllm" in sys.modules else {}
    return {"results": results, "calls": counts, "cached": cached}


def main() -> None:
    parser = argparse.ArgumentParser()
    assert list(CONFIGS) == MODELS
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--register", action="store_true", help="run a second time, after fa.vllm.register()")
    parser.add_argument("--eager", action="store_true", help="run transformers first, with the same weights")
    parser.add_argument("--options", default="{}", help="of LLM")
    parser.add_argument("--lengths", default="3,40,150,17,1,64", help="of the prompts")
    parser.add_argument("--shared", type=int, default=0, help="tokens with which all prompts begin")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    arguments.numbers = [int(n) for n in arguments.lengths.split(",")]
    folder = folder_of(arguments.model)
    runs = [run_eager(arguments, folder)] if arguments.eager else []
    runs.append(run(arguments, folder))
    if arguments.register:
        import fa.vllm

        fa.vllm.register()
        runs.append(run(arguments, folder))
    print("RESULT " + json.dumps(runs), flush=True)


if __name__ == "__main__":
    main()
