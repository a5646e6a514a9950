"""Builds every model type of transformers with random weights, from its default configuration with smaller sizes."""

from __future__ import annotations

import re
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto import modeling_auto as auto

VOCABULARY = 128
LARGEST = 20_000_000  # the largest number of parameters that a model may have

# The classes that build models. A model is built by the first class whose list contains its type.
_CLASSES = [
    ("AutoModelForCausalLM", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    ("AutoModelForSeq2SeqLM", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    ("AutoModelForImageTextToText", auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
    ("AutoModelForSpeechSeq2Seq", auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES),
    ("AutoModelForMaskedLM", auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    ("AutoModel", auto.MODEL_MAPPING_NAMES),
]
TYPES = sorted({kind for _, kinds in _CLASSES for kind in kinds})
CAUSAL = sorted(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)

# Smaller sizes: a pattern for the whole key of a configuration, and the new value or a function of the old value. The
# first pattern that matches is used.
_SIZES: list[tuple[str, Any]] = [
    (r"(vocab_size|.*_vocab_size|vocab_size_.*|n_tokens|type_vocab_size)", lambda old: min(old, VOCABULARY)),
    (r"(hidden_size|d_model|n_embd|dim|embed_dim|model_dim|decoder_hidden_size|.*_hidden_size|hidden_dim)", 64),
    (r"(embedding_size|embed_size|word_embed_proj_dim|projection_dim|output_dim|out_hidden_size|decoder_dim)", 64),
    (r"(intermediate_size|ffn_dim|d_ff|n_inner|.*_ffn_dim|ffn_hidden_size|dim_feedforward|mlp_dim|.*ffn_dim)", 96),
    (r".*(moe|expert).*(intermediate_size|hidden_size)", 32),
    (r".*intermediate_size.*", 96),
    (r"(num_feat_extract_layers|num_conv_.*layers)", lambda old: old),
    (r"(num_hidden_layers|n_layers?|num_layers|depth|.*_layers|n_blocks)", lambda old: min(old, 2)),
    (r"(num_attention_heads|n_heads?|num_heads|.*attention_heads)", 4),
    (r"(num_key_value_heads|num_kv_heads|n_kv_heads|.*key_value_heads)", lambda old: min(old, 2)),
    (r"(head_dim|attention_head_size|d_kv|.*_head_dim|kv_channels)", 16),
    (r"(n_routed_experts|num_local_experts|num_experts|moe_num_experts|.*num_experts)", lambda old: min(old, 4)),
    (r"(num_experts_per_tok|num_experts_per_token|.*top_?k.*experts?|moe_topk|moe_k)", lambda old: min(old, 2)),
    (r"(n_group|topk_group|num_expert_group|n_groups)", 1),
    (r".*lora_rank", 32),
    (r"(sliding_window|attention_window|local_attention|attention_window_size)", 6),
    (r"(attention_chunk_size)", 6),
    (r"(index_topk)", 8),
    (r"(image_size|img_size)", 32),
    (r"(patch_size)", 8),
    (r"(projection_size|ple_embed_dim|adapter_in_dim)", 64),
    (r"(hc_lowrank)", 16),
    (r"(max_position_embeddings|n_positions|max_seq_len|n_ctx|max_sequence_length)", lambda old: min(old, 256)),
]


_LEFT_OUT = {
    "model_type",
    "transformers_version",
    "architectures",
    "dtype",
    "torch_dtype",
    "per_layer_config",
    "qk_head_dim",
    "out_features",
    "out_indices",
    "_out_features",
    "_out_indices",
    "stage_names",
}

# Constructor arguments of configurations, for model types whose values do not fit together with the sizes above.
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_expand": 2, "mamba_chunk_size": 8}
_SWIN = {
    "image_size": 56,
    "patch_size": 4,
    "embed_dim": 24,
    "depths": [1, 1],
    "num_heads": [3, 6],
    "window_size": 7,
    "hidden_size": 48,
}
_WIDE = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64}
_WIDER = _WIDE | {"hidden_size": 256, "head_dim": 128}
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
_FOUR = {"num_hidden_layers": 4, "attention_hidden_size": 128, "attention_head_dim": 32, "mamba_d_state": 16}
_OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": _MAMBA | {"attn_layer_indices": [1]},
    "codegen": {"rotary_dim": 8},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": _ROTARY, "full_attention": _ROTARY},
    },
    "deepseek_v2": {"num_experts_per_tok": 2},
    "donut-swin": _SWIN,
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_experts_per_tok": 2},
    "dots3_note_text": {"num_key_value_heads": 4},
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 128},
    "flaubert": {"emb_dim": 64},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": [96] * 4,
        "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
    },
    "gemma4_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
    },
    "glm46v_text": _WIDE,
    "glm4v_moe_text": _WIDER,
    "glm4v_text": _WIDE,
    "glm5_next_text": {"index_topk": 16, "index_kpool": 4},
    "glm_image_text": _WIDE,
    "glm_ocr_text": _WIDE,
    "gpt_neo": {
        "num_layers": 2,
        "attention_layers": ["global", "local"],
        "attention_types": [[["global", "local"], 1]],
        "window_size": 6,
    },
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": _MAMBA | {"layer_types": ["mamba", "attention"]},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 16},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"], "index_block_size": 4},
    "mistral4": {"head_dim": 32},
    "nemotron": {"num_key_value_heads": 2},
    "qwen2_5_vl_text": _WIDER,
    "qwen2_vl_text": _WIDER,
    "paddleocr_vl_text": _WIDER,
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "ngram_vocab_size_base": 200,
    },
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"is_decoder": True, "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [32, 32]},
    "swin": _SWIN,
    "swinv2": _SWIN,
    "maskformer-swin": _SWIN,
    "swin2sr": {"image_size": 16, "embed_dim": 24, "depths": [1, 1], "num_heads": [3, 3], "window_size": 4},
    "xlm": {"emb_dim": 64},
    "xlnet": {"d_head": 16},
    "xmod": {"default_language": "en_XX"},
    "zamba": _FOUR | {"layers_block_type": ["linear_attention", "hybrid"] * 2, "mamba_dt_rank": 4},
    "zamba2": _FOUR
    | {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "hybrid_layer_ids": [1, 3],
        "mamba_headdim": 16,
        "num_key_value_heads": 4,
    },
}


def small(config_class: type[PreTrainedConfig], **given: Any) -> PreTrainedConfig:
    return config_class(**_shrunk(config_class()) | given)


def build(kind: str) -> transformers.PreTrainedModel:
    """Builds a model with weights so large that the probabilities of keys differ much."""
    torch.manual_seed(7)
    config = small(CONFIG_MAPPING[kind])
    config._attn_implementation = "eager"
    maker = next(name for name, kinds in _CLASSES if kind in kinds)
    with torch.device("meta"):
        number = sum(p.numel() for p in getattr(transformers, maker).from_config(config).parameters())
    if number > LARGEST:
        raise ValueError(f"{number} parameters")
    model = getattr(transformers, maker).from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.15)
    return model


def _shrunk(config: PreTrainedConfig) -> dict[str, Any]:
    whole = config.to_dict()
    layers = _layers(whole)
    values = {}
    for key, old in whole.items():
        if key in _LEFT_OUT:
            continue
        if key in config.sub_configs and config.model_type != "dbrx":
            inner = getattr(config, key)
            values[key] = None if inner is None else type(inner)(**_shrunk(inner))
        elif key.endswith(("token_id", "token_index")):
            values[key] = None if not isinstance(old, int) else old % VOCABULARY
        elif isinstance(old, list) and layers and len(old) == whole["num_hidden_layers"]:
            values[key] = [_value(key, old[layer]) for layer in layers]
        elif key in ("rope_parameters", "rope_scaling") and isinstance(old, dict):
            values[key] = _rotary(old, whole)
        else:
            values[key] = _value(key, old)
    if layers:
        values["num_hidden_layers"] = len(layers)
    if "kv_lora_rank" in whole and "num_key_value_heads" in whole:
        values["num_key_value_heads"] = values["num_attention_heads"]
    return values | _OVERRIDES.get(config.model_type, {})


def _layers(whole: dict[str, Any]) -> list[int]:
    """Returns which layers to keep: the first layer of each kind, and at least two layers."""
    number = whole.get("num_hidden_layers")
    if not isinstance(number, int) or number < 2:
        return []
    kinds = [kinds for kinds in whole.values() if isinstance(kinds, list) and len(kinds) == number]
    firsts = {of_layers.index(kind) for of_layers in kinds for kind in of_layers if isinstance(kind, str)}
    return sorted((firsts | {0, 1}) if len(firsts) < 2 else firsts)


def _rotary(values: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Changes mrope_section, three numbers of rotary frequencies, so that they add up to half a head of 16."""
    sections = values.get("mrope_section")
    if not isinstance(sections, list) or len(sections) != 3:
        return values
    half = int(8 * (values.get("partial_rotary_factor") or whole.get("partial_rotary_factor") or 1))
    return values | {"mrope_section": [half - 2 * (half * 3 // 8), half * 3 // 8, half * 3 // 8]}


def _value(key: str, old: Any) -> Any:
    if isinstance(old, bool) or not isinstance(old, int):
        return 16 if key == "head_dim" and old is None else old
    for pattern, new in _SIZES:
        if re.fullmatch(pattern, key):
            return new(old) if callable(new) else min(new, old) if old > 0 else old
    return old
