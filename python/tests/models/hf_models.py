"""Tiny models of transformers with random weights, a reference attention for them, and the tokens that they get."""

from __future__ import annotations

import copy

import torch
import transformers
from transformers import (
    BartConfig,
    BertConfig,
    DeepseekV3Config,
    DeepseekV32Config,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
    T5Config,
    WhisperConfig,
)

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.models.minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.masking_utils import sdpa_mask

import fa.transformers  # noqa: F401  (registers "fa")

VOCABULARY = 97
_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ENCODER_DECODER = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "dropout": 0.0,
}

_LATENT = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
}
DECODERS = {
    "llama": lambda: LlamaConfig(**_DECODER),
    "mistral": lambda: MistralConfig(**_DECODER, sliding_window=8, head_dim=16),
    "gemma2": lambda: Gemma2Config(
        **_DECODER, sliding_window=8, head_dim=16, attn_logit_softcapping=2.0, query_pre_attn_scalar=16
    ),
    "gpt_oss": lambda: GptOssConfig(**_DECODER, **_EXPERTS, sliding_window=8, head_dim=16),
    "qwen3": lambda: Qwen3Config(**_DECODER, head_dim=16),
    "deepseek_v3": lambda: DeepseekV3Config(**_DECODER | _LATENT, first_k_dense_replace=1),
    "deepseek_v32": lambda: DeepseekV32Config(
        **_DECODER | _LATENT, first_k_dense_replace=2, index_topk=5, index_n_heads=4, index_head_dim=16
    ),
    "minimax_m3_vl": lambda: MiniMaxM3VLTextConfig(
        **_DECODER,
        head_dim=16,
        rotary_dim=8,
        dense_intermediate_size=96,
        mlp_layer_types=["dense", "dense"],
        layer_types=["full_attention", "minimax_m3_sparse"],
        index_block_size=4,
        index_topk_blocks=2,
        index_n_heads=2,
        index_head_dim=16,
    ),
}
OTHERS = {
    "bert": lambda: BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    "t5": lambda: T5Config(
        vocab_size=VOCABULARY,
        d_model=64,
        d_kv=16,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        eos_token_id=None,
    ),
    "bart": lambda: BartConfig(**_ENCODER_DECODER | {"eos_token_id": None}, forced_eos_token_id=None),
    "whisper": lambda: WhisperConfig(
        **_ENCODER_DECODER | {"eos_token_id": None},
        num_mel_bins=8,
        max_source_positions=24,
        max_target_positions=64,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
}
_CLASSES = {
    "bert": transformers.BertForMaskedLM,
    "t5": transformers.T5ForConditionalGeneration,
    "bart": transformers.BartForConditionalGeneration,
    "whisper": transformers.WhisperForConditionalGeneration,
}


def model_of(name: str, *, layers: int = 2, positions: int = 512) -> torch.nn.Module:
    """Returns the model `name` in float32 with attention "fa". Its random weights are the same in every call. They are
    so large that the probabilities of keys differ much."""
    torch.manual_seed(7)
    config = (DECODERS | OTHERS)[name]()
    config._experts_implementation = "eager"  # the default implementation of experts refuses float64
    config.num_hidden_layers = layers
    config.max_position_embeddings = positions
    make = _CLASSES[name] if name in _CLASSES else transformers.AutoModelForCausalLM.from_config
    model = make(config).eval()
    with torch.no_grad():
        for part, weight in model.named_parameters():
            if weight.dim() == 2 and "embed" not in part:
                weight.mul_(3.0)
            if part.endswith("sinks"):
                weight.normal_()
    model.set_attn_implementation("fa")
    return model


def _listed(module, scores: Tensor, indices: Tensor | None, block_indices: Tensor | None) -> Tensor:
    """Returns bool [B, N, Sq, Sk], True for the keys that a model selects. If it selects none, all keys are True."""
    lists, block = (indices[:, None], 1) if block_indices is None and indices is not None else (block_indices, 0)
    if lists is None:
        return torch.ones(scores.shape, dtype=torch.bool)
    block = block or module.indexer.block_size
    of_keys = (torch.arange(scores.shape[3]) // block == lists[..., None]).any(-2)
    return of_keys.repeat_interleave(scores.shape[1] // of_keys.shape[1], 1)


def reference_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **others
) -> tuple[Tensor, None]:
    """Computes attention as transformers' eager functions do, but the softmax is in the type of query, not in float32.
    Rows that look at no key are 0. In a bool mask, True keeps the key. A float mask is added to the scores."""
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if others.get("softcap") is not None:
        scores = torch.tanh(scores / others["softcap"]) * others["softcap"]
    if others.get("position_bias") is not None:
        scores = scores + others["position_bias"]
    dropped = ~_listed(module, scores, others.get("indices"), others.get("block_indices"))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        dropped = dropped | ~attention_mask
    elif attention_mask is not None:
        scores = scores + attention_mask
    scores = scores.masked_fill(dropped, -torch.inf)
    sinks = torch.full((scores.shape[1],), -torch.inf, dtype=scores.dtype)
    if others.get("s_aux") is not None:
        sinks = others["s_aux"].to(scores.dtype)
    scores = torch.cat((scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)), -1)
    lonely = (dropped.all(-1) & (sinks == -torch.inf)[None, :, None])[..., None]
    weights = torch.softmax(scores.masked_fill(lonely, 0.0), -1)[..., :-1].masked_fill(dropped, 0.0)
    return (weights @ value).transpose(1, 2).contiguous(), None


def _whole_mask(*arguments, **keywords) -> Tensor:
    return sdpa_mask(*arguments, **keywords | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


AttentionInterface.register("reference", reference_attention)
AttentionMaskInterface.register("reference", _whole_mask)


def with_attention(model: torch.nn.Module, attention: str, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """Returns a copy of the model in the type `dtype` and with the attention function `attention`."""
    twin = copy.deepcopy(model).to(dtype)
    twin.set_attn_implementation(attention)
    return twin


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, shape, generator=generator)


def greedy(model: torch.nn.Module, count: int, **inputs) -> tuple[Tensor, Tensor]:
    """@return the sequences [B, S + count] of greedy generation, and the logits [count, B, vocabulary]"""
    result = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=count,
        min_new_tokens=count,
        output_logits=True,
        return_dict_in_generate=True,
        disable_compile=True,
    )
    return result.sequences, torch.stack(result.logits)
