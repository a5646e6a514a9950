"""Builds models of transformers with random weights, and the steps that models.py times."""

from dataclasses import dataclass

import torch
import transformers

import fa.transformers  # noqa: F401  (registers "fa")


@dataclass(frozen=True)
class Size:
    """The sizes of a model, and the numbers of tokens of its steps."""

    layers: int
    hidden: int
    heads: int
    heads_kv: int
    vocabulary: int
    prefills: tuple
    context: int  # tokens in the cache of a decode step
    training: int  # tokens of a training step


WHOLE = Size(4, 1024, 16, 4, 8192, (2048, 8192), 4096, 1024)
QUICK = Size(1, 64, 4, 2, 128, (48,), 48, 32)


def _decoder(size):
    return {
        "vocab_size": size.vocabulary, "hidden_size": size.hidden, "intermediate_size": 2 * size.hidden,
        "num_hidden_layers": size.layers, "num_attention_heads": size.heads, "num_key_value_heads": size.heads_kv,
        "head_dim": size.hidden // size.heads, "max_position_embeddings": 16384, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": None,
    }


def _gemma2(size):
    window = {"sliding_window": size.context // 4, "attn_logit_softcapping": 50.0}
    return transformers.Gemma2Config(**_decoder(size), **window, query_pre_attn_scalar=size.hidden // size.heads)


def _gpt_oss(size):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": size.context // 4}
    return transformers.GptOssConfig(**_decoder(size), **experts)


def _deepseek_v32(size):
    """DeepSeek V3.2: latent attention. An indexer of 4 heads chooses half of a prompt's keys for each token."""
    latent = {"kv_lora_rank": 512, "q_lora_rank": size.hidden // 2, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}
    lists = {"index_topk": size.context // 2, "index_n_heads": 4, "index_head_dim": 128}
    sizes = _decoder(size) | {"num_key_value_heads": size.heads, "head_dim": 64, "moe_intermediate_size": size.hidden}
    return transformers.DeepseekV32Config(**sizes, **latent, **experts, **lists, first_k_dense_replace=1, v_head_dim=128)


def _bert(size):
    return transformers.BertConfig(
        vocab_size=size.vocabulary, hidden_size=size.hidden, intermediate_size=2 * size.hidden,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, max_position_embeddings=max(size.prefills),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )


def _t5(size):
    return transformers.T5Config(
        vocab_size=size.vocabulary, d_model=size.hidden, d_kv=size.hidden // size.heads, d_ff=2 * size.hidden,
        num_layers=size.layers, num_heads=size.heads, dropout_rate=0.0, decoder_start_token_id=0,
    )


CONFIGS = {
    "llama": lambda size: transformers.LlamaConfig(**_decoder(size)),
    "gemma2": _gemma2,
    "gpt_oss": _gpt_oss,
    "deepseek_v32": _deepseek_v32,
    "bert": _bert,
    "t5": _t5,
}
DECODERS = ("llama", "gemma2", "gpt_oss", "deepseek_v32")
_MODELS = {"bert": transformers.BertModel, "t5": transformers.T5EncoderModel}


def build(name, size, dtype):
    """Returns the model in evaluation mode, with the same weights each time."""
    torch.manual_seed(1)
    config = CONFIGS[name](size)
    kind = _MODELS.get(name)
    model = kind(config) if kind else transformers.AutoModelForCausalLM.from_config(config)
    return model.to(dtype).eval()


def works(name, size):
    """Returns the names of the steps that are timed, such as "prefill 2048", "decode 4096" and "train 1024"."""
    # The model's own indexer stores the scores of all pairs of a prompt's tokens per head: 17 GB for 8192 tokens.
    prefills = (size.context,) if name == "deepseek_v32" else size.prefills
    names = [f"prefill {tokens}" for tokens in prefills]
    if name in DECODERS:
        names.append(f"decode {size.context}")
    return [*names, f"train {size.training}"]


def step_of(model, work):
    """Returns a function without arguments that does the step `work` once. The function returns numbers by which the
    result is checked."""
    kind, tokens = work.split()
    tokens = int(tokens)
    ids = torch.randint(2, model.config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(2))
    if kind == "train":
        return lambda: _train(model, ids)
    if kind == "prefill":
        return torch.no_grad()(lambda: _numbers(model(ids)))
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values

    # The cache of a sliding window cannot drop its last token, so the context grows by one token per step, for
    # every implementation.
    return torch.no_grad()(lambda: _numbers(model(ids[:, :1], past_key_values=cache, use_cache=True)))


def _numbers(output):
    return (output.logits if "logits" in output else output.last_hidden_state)[:, -1]


def _train(model, ids):
    model.zero_grad()
    output = model(ids)
    numbers = output.logits if "logits" in output else output.last_hidden_state
    numbers.float().square().mean().backward()
    return torch.stack([p.grad.float().norm() for p in model.parameters() if p.grad is not None])
