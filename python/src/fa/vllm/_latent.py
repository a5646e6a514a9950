"""vLLM's classes of latent attention (MLA) on CPUs.

Tokens of a prompt attend to keys and values that are expanded to all heads (`MLAPrefill`). Later tokens read the latent
cache (`MLAImpl.forward_mqa`): its rows are the keys of a single head, and the first columns of a row are the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonDecodeMetadata,
    MLACommonMetadata,
    MLACommonMetadataBuilder,
    QueryLenSupport,
)
from vllm.utils.torch_utils import is_quantized_kv_cache
from vllm.v1.attention.backend import AttentionLayer, MultipleOf
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend, CPUMLAImpl
from vllm.v1.attention.backends.mla.prefill.cpu_sdpa import CPUSDPAMLAPrefillBackend

from ._batch import LATENT_ROWS, Layer, Pages, attend_latent, attend_packed, write_rows
from ._counts import count


class MLAPrefill(CPUSDPAMLAPrefillBackend):
    """Attention of the new tokens of prompts, with keys and values per head."""

    @staticmethod
    def get_name() -> str:
        return "FA_MLA"

    def prepare_metadata(self, prefill_metadata: Any) -> None:
        super().prepare_metadata(prefill_metadata)
        self._ends = prefill_metadata.query_start_loc.tolist()[1:]

    def run_prefill_new_tokens(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        return_softmax_lse: bool,
        out: Tensor | None = None,
        output_scale: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if output_scale is not None:
            raise NotImplementedError("fa.vllm: output_scale: no output is quantized")
        return self._attend(q, k, v, (self._ends, self._ends), True, return_softmax_lse, out)

    def run_prefill_context_chunk(
        self, chunk: Any, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        ends = chunk.query_start_loc.tolist()[1:], chunk.cu_seq_lens.tolist()[1:]
        return self._attend(q, k, v, ends, False, True, out)

    def _attend(self, q, k, v, ends, causal: bool, need_lse: bool, out: Tensor | None) -> Any:
        result = q.new_empty((*q.shape[:2], v.shape[2])) if out is None else out
        lse = attend_packed(Layer(self.scale), q, k, v, ends, causal, None, result, {}, need_lse)
        count("mla_prefill")
        return (result, lse) if need_lse else result


class MLABackend(CPUMLABackend):
    """Takes the place of CPU_MLA."""

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # an empty list means every size

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(1)]

    @classmethod
    def supports_block_size(cls, block_size: int | None) -> bool:
        return True

    @staticmethod
    def get_impl_cls() -> type[MLAImpl]:
        return MLAImpl

    @staticmethod
    def get_builder_cls() -> type[MLAMetadataBuilder]:
        return MLAMetadataBuilder


@dataclass
class MLADecodeMetadata(MLACommonDecodeMetadata):
    ends: list[int]
    """Where the tokens of each request end."""
    lengths: list[int]
    """The number of keys of each request."""


class MLAMetadata(MLACommonMetadata):
    def __post_init__(self) -> None:
        """Takes every head size, unlike vLLM's class."""


class MLAMetadataBuilder(MLACommonMetadataBuilder):
    query_len_support = QueryLenSupport.VARLEN

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **{"metadata_cls": MLAMetadata, **keywords})

    def _build_decode(self, block_table_tensor: Tensor, seq_lens_device: Tensor, **others: Any) -> MLADecodeMetadata:
        return MLADecodeMetadata(
            block_table=block_table_tensor,
            seq_lens=seq_lens_device,
            dcp_tot_seq_lens=others["dcp_tot_seq_lens_device"],
            ends=others["query_start_loc_cpu"].tolist()[1:],
            lengths=seq_lens_device.tolist(),
        )


class MLAImpl(CPUMLAImpl):
    """The attention of one layer over its latent cache [blocks, block, L + R]."""

    def __init__(self, *arguments: Any, kv_cache_dtype: str, **keywords: Any) -> None:
        super().__init__(*arguments, kv_cache_dtype=kv_cache_dtype, **keywords)
        if is_quantized_kv_cache(kv_cache_dtype):
            raise NotImplementedError(f"fa.vllm: kv_cache_dtype={kv_cache_dtype}: not served with latent attention")

    def forward_mqa(
        self,
        q: Tensor | tuple[Tensor, Tensor],
        kv_c_and_k_pe_cache: Tensor,
        attn_metadata: MLACommonMetadata,
        layer: AttentionLayer,
    ) -> tuple[Tensor, None]:
        decode = attn_metadata.decode
        assert isinstance(decode, MLADecodeMetadata)
        latent, rope = q if isinstance(q, tuple) else q.split([self.kv_lora_rank, q.shape[-1] - self.kv_lora_rank], -1)
        count("mla_decode")
        requests = decode.ends, decode.lengths, decode.block_table
        return attend_latent(self.scale, (latent, rope), kv_c_and_k_pe_cache, *requests), None

    def do_kv_cache_update(
        self,
        kv_c_normed: Tensor,
        k_pe: Tensor,
        kv_cache: Tensor,
        slot_mapping: Tensor,
        kv_cache_dtype: str,
        k_scale: Tensor,
    ) -> None:
        if kv_cache.numel() == 0:
            return
        size = kv_c_normed.shape[-1]
        rest = kv_cache[:, :, None, size:] if size < kv_cache.shape[-1] else None
        rope = None if rest is None else k_pe.view(k_pe.shape[0], 1, -1)
        caches = Pages(kv_cache[:, :, None, :size], rest)
        write_rows(kv_c_normed[:, None], rope, slot_mapping.flatten(), caches, "BnBsND", LATENT_ROWS)
