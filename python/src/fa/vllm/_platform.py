"""vLLM's platform of CPUs with the sparse attention of DeepSeek, and with chunks and shared prefixes for MLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.platforms import cpu_platform_plugin
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from .._pytorch import has_amx

if TYPE_CHECKING:  # vLLM's configuration imports the platform
    from vllm.config import VllmConfig

SPARSE_MODELS = {"deepseek_v32": "DeepseekV32ForCausalLM", "glm_moe_dsa": "GlmMoeDsaForCausalLM"}
"""The served models with sparse attention: {type: architecture}."""

_Host: Any = resolve_obj_by_qualname(cpu_platform_plugin())


class CpuPlatform(_Host):
    """Takes the place of vLLM's platform of CPUs."""

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None) -> str:
        if attn_selector_config.use_sparse:
            return "fa.vllm.SparseMLABackend"
        return super().get_attn_backend_cls(selected_backend, attn_selector_config, num_heads)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
        sparse = _is_sparse(vllm_config)
        if sparse:
            _refuse(vllm_config)
        if not sparse and not _computes_latent(vllm_config):
            super().check_and_update_config(vllm_config)
            return
        # vLLM's own class needs blocks of 16, whole prompts and no shared prefixes. It sets the members below to such
        # values, and logs the change.
        block = cache.block_size if cache.user_specified_block_size else 128
        given = scheduler.enable_chunked_prefill, scheduler.max_num_batched_tokens, cache.enable_prefix_caching
        asked, cache.user_specified_block_size = cache.user_specified_block_size, False
        super().check_and_update_config(vllm_config)
        cache.block_size, cache.user_specified_block_size = block, asked
        scheduler.enable_chunked_prefill, scheduler.max_num_batched_tokens, cache.enable_prefix_caching = given
        words = "fa.vllm: enable_chunked_prefill=%s, enable_prefix_caching=%s: as before"
        init_logger("vllm.fa").info_once(words, scheduler.enable_chunked_prefill, cache.enable_prefix_caching)


def _text_config(vllm_config: VllmConfig) -> Any:
    return None if vllm_config.model_config is None else vllm_config.model_config.hf_text_config


def _is_sparse(vllm_config: VllmConfig) -> bool:
    config = _text_config(vllm_config)
    return getattr(config, "index_topk", None) is not None or getattr(config, "model_type", "") == "deepseek_v4"


def _computes_latent(vllm_config: VllmConfig) -> bool:
    """Returns whether `fa` computes the model's latent attention."""
    model = vllm_config.model_config
    registered = AttentionBackendEnum.CPU_MLA.get_path() == "fa.vllm.MLABackend"
    return model is not None and model.use_mla and registered and not has_amx()


def _refuse(vllm_config: VllmConfig) -> None:
    """Raises NotImplementedError for what the sparse attention of `fa` does not serve."""
    parallel = vllm_config.parallel_config
    kind = _text_config(vllm_config).model_type
    ranks = "prefill_context_parallel_size", "decode_context_parallel_size"
    refused = {f"model_type={kind}": kind not in SPARSE_MODELS}
    refused["speculative_config"] = vllm_config.speculative_config is not None
    refused["kv_transfer_config"] = vllm_config.kv_transfer_config is not None
    refused |= {f"{name}={getattr(parallel, name)}": getattr(parallel, name) > 1 for name in ranks}
    names = [name for name, given in refused.items() if given]
    if names:
        raise NotImplementedError(f"fa.vllm: {', '.join(names)}: not served with sparse attention")
