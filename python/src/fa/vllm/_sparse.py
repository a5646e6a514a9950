"""DeepSeek's sparse attention on CPUs: the indexer that chooses keys for each token, and latent attention over them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention.sparse_mla_attention import SharedTopkIndicesBuffer
from vllm.model_executor.models import deepseek_v2
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionLayer,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)

from .. import _fa
from .._errors import made, own_names
from .._torch.engine import compute
from .._torch.operators import operator
from ._batch import LATENT, LATENT_ROWS, Pages, write_rows
from ._counts import count
from ._latent import MLABackend, MLAImpl
from ._rotary import every_head

_TO_THE_LAST_KEY = 3  # sparse mode
_CHOSEN = "topk_indices_buffer"
_INDEXED = {"k": "k_cache", "sparse_indices": _CHOSEN}


@dataclass
class SparseMetadata(AttentionMetadata):
    """A step as the indexers and the layers see it. vLLM's layer reads the num_ members; every token counts as a decode
    token.
    """

    ends: list[int]
    """Where the tokens of each request end."""
    lengths: list[int]
    """The number of keys of each request."""
    block_table: Tensor
    slot_mapping: Tensor
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int = 0


class SparseMetadataBuilder(AttentionMetadataBuilder[SparseMetadata]):
    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: VllmConfig, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> SparseMetadata:
        step = common_attn_metadata
        return SparseMetadata(
            ends=step.query_start_loc_cpu.tolist()[1:],
            lengths=step.seq_lens.tolist(),
            block_table=step.block_table_tensor,
            slot_mapping=step.slot_mapping,
            num_actual_tokens=step.num_actual_tokens,
            num_decodes=step.num_reqs,
            num_decode_tokens=step.num_actual_tokens,
        )


class SparseMLABackend(MLABackend):
    """Latent attention of each token over its listed keys."""

    @staticmethod
    def get_name() -> str:
        return "FA_MLA_SPARSE"

    @classmethod
    def is_sparse(cls) -> bool:
        return True

    @staticmethod
    def get_impl_cls() -> type[SparseMLAImpl]:
        return SparseMLAImpl

    @staticmethod
    def get_builder_cls() -> type[SparseMetadataBuilder]:  # type: ignore[override]
        return SparseMetadataBuilder


class SparseMLAImpl(MLAImpl, SharedTopkIndicesBuffer):
    """The sparse attention of one layer over its latent cache [blocks, block, L + R]."""

    is_sparse = True
    supports_dense_mha_prefill = False

    def __init__(
        self, *arguments: Any, indexer: Any = None, topk_indices_buffer: Tensor | None = None, **keywords: Any
    ) -> None:
        super().__init__(*arguments, indexer=indexer, **keywords)
        self.init_topk_indices_buffer(indexer, topk_indices_buffer)

    def record_logical_topk_ready(self) -> None:
        """Does nothing, because the lists are complete when the indexer returns."""

    def forward_mqa(
        self,
        q: Tensor | tuple[Tensor, Tensor],
        kv_c_and_k_pe_cache: Tensor,
        attn_metadata: Any,
        layer: AttentionLayer,
    ) -> tuple[Tensor, None]:
        assert isinstance(attn_metadata, SparseMetadata)
        size = self.kv_lora_rank
        latent, rope = q if isinstance(q, tuple) else q.split([size, q.shape[-1] - size], -1)
        rows = kv_c_and_k_pe_cache[:, :, None]
        chosen = self.topk_indices_buffer
        assert chosen is not None
        out = latent.new_empty(latent.shape)
        tensors = {"q": latent, "k": rows[..., :size], "block_table": attn_metadata.block_table}
        tensors["sparse_indices"] = chosen[: latent.shape[0], None]
        if rope.shape[-1] > 0:
            tensors |= {"q_rope": rope, "k_rope": rows[..., size:]}
        with own_names({**LATENT, "sparse_indices": _CHOSEN}):
            options = _attention_options(self.scale)
            compute(_fa.sparse_forward, tensors, {"out": out}, options, attn_metadata.ends, attn_metadata.lengths)
        count("mla_sparse")
        return out, None


@functools.lru_cache
def _attention_options(scale: float) -> _fa.SparseAttentionOptions:
    given = {"layout": "TND", "scale": scale, "block_size": 1, "sparse_mode": _TO_THE_LAST_KEY, "check_indices": True}
    return made(_fa.SparseAttentionOptions, {**given, "row_format": (0, 0, 0)})


class IndexerBackend(AttentionBackend):
    """What vLLM asks about the indexers' caches of keys."""

    accept_output_buffer = False

    @staticmethod
    def get_name() -> str:
        return "FA_INDEXER"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return MLABackend.get_supported_kernel_block_sizes(kv_cache_spec)

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # an empty list means every size

    @staticmethod
    def get_impl_cls() -> Any:
        raise NotImplementedError("fa.vllm: an indexer has no attention")

    @staticmethod
    def get_builder_cls() -> type[SparseMetadataBuilder]:  # type: ignore[override]
        return SparseMetadataBuilder


class IndexerCache(deepseek_v2.DeepseekV32IndexerCache):
    """The keys of one indexer, [blocks, block, D], in the model's type."""

    def get_attn_backend(self) -> type[AttentionBackend]:
        return IndexerBackend


class Indexer(deepseek_v2.Indexer):
    """Chooses the keys of each token. Queries, keys and scores are not quantized."""

    def __init__(self, vllm_config: VllmConfig, *arguments: Any, **keywords: Any) -> None:
        super().__init__(vllm_config, *arguments, **keywords)
        whole = self.k_cache
        del get_current_vllm_config().compilation_config.static_forward_context[whole.prefix]
        dtype = vllm_config.model_config.dtype
        self.k_cache = IndexerCache(self.head_dim, dtype, whole.prefix, whole.cache_config)
        del self.indexer_op

    def forward(self, hidden_states: Tensor, qr: Tensor, positions: Tensor, rotary_emb: Any) -> Tensor:
        """Writes the places of the chosen keys, in descending order of their scores, and then -1, into
        topk_indices_buffer [tokens, K]. Returns the buffer."""
        rest = self.head_dim - self.rope_dim
        q, _ = self.wq_b(qr)
        q_rope, q_rest = q.view(-1, self.n_head, self.head_dim).split([self.rope_dim, rest], -1)
        projected, _ = self.wk_weights_proj(hidden_states)
        k, weights = projected.split([self.head_dim, self.n_head], -1)
        k_rope, k_rest = self.k_norm(k).split([self.rope_dim, rest], -1)
        q_rope, k_rope = every_head(rotary_emb, positions, q_rope, k_rope)
        q, k = torch.cat([q_rope, q_rest], -1), torch.cat([k_rope, k_rest], -1)
        weights = weights.float() * (self.softmax_scale * self.n_head_scale)
        _choose_keys(q, k, weights, self.topk_indices_buffer, self.k_cache.prefix)
        return self.topk_indices_buffer


@operator("vllm_choose_keys(Tensor q, Tensor k, Tensor weights, Tensor(a!) chosen, str layer) -> ()", fake=lambda *_: None)
def _choose_keys(q, k, weights, chosen, layer):
    """Writes keys [T, D] into the cache of the indexer `layer`. For each of the step's tokens, writes the places of its
    best keys into chosen [tokens, K]."""
    context = get_forward_context()
    if context.attn_metadata is None:  # a warm-up
        return
    step = context.attn_metadata[layer]
    cache = context.no_compile_layers[layer].kv_cache[:, :, None]
    write_rows(k[:, None], None, step.slot_mapping, Pages(cache, None), "BnBsND", LATENT_ROWS)
    own = slice(0, step.num_actual_tokens)
    tensors = {"q": q[own], "k": cache, "weights": weights[own], "block_table": step.block_table}
    every = {"cmp_ratio": 1, "used_q": [], "used_kv": [], "residual_kv": []}
    options = made(_fa.LightningIndexerOptions, {"layout": "TND", "sparse_mode": _TO_THE_LAST_KEY, **every})
    with own_names(_INDEXED):
        compute(_fa.indexer, tensors, {"sparse_indices": chosen[own, None]}, options, step.ends, step.lengths)
    count("indexer")


class DeepseekV32ForCausalLM(deepseek_v2.DeepseekV3ForCausalLM):
    """vLLM's model with the indexers of this module."""


class GlmMoeDsaForCausalLM(deepseek_v2.GlmMoeDsaForCausalLM):
    """vLLM's model with the indexers of this module."""


deepseek_v2.Indexer = Indexer  # type: ignore[misc]  # the models' layers make their indexers by this name
