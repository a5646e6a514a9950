"""vLLM's classes of dense attention on CPUs: the backend, what it knows of a step, and the layers' code."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from vllm.config import VllmConfig, get_current_vllm_config, get_layers_from_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import AttentionType, CommonAttentionMetadata, MultipleOf
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)

from vllm.v1.kv_cache_interface import KVQuantMode

from ._batch import ENCODER, Batch, Layer, Pages, attend_packed, groups_of, write_rows
from ._counts import count

_ENCODERS = (AttentionType.ENCODER, AttentionType.ENCODER_ONLY)
_INT8 = "int8_per_token_head"
_SCALE_BYTES = 4


class AttentionBackend(CPUAttentionBackend):
    """Takes the place of CPU_ATTN. Some models ask whether the backend is a CPUAttentionBackend."""

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # an empty list means every size

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return False

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """Gives each head of a token room for two scales, behind its codes."""
        if spec.kv_quant_mode != KVQuantMode.INT8_PER_TOKEN_HEAD or spec.state_content_bytes is not None:
            return spec
        return replace(spec, state_content_bytes=spec.head_size + spec.head_size_v + 2 * _SCALE_BYTES)

    @staticmethod
    def get_impl_cls() -> type[AttentionImpl]:
        return AttentionImpl

    @staticmethod
    def get_builder_cls() -> type[AttentionMetadataBuilder]:
        return AttentionMetadataBuilder


@dataclass(kw_only=True)
class AttentionMetadata(CPUAttentionMetadata):
    """A step as all layers of a group of caches see it."""

    batch: Batch


class AttentionMetadataBuilder(CPUAttentionMetadataBuilder):
    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: VllmConfig, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        # vLLM's runner puts requests of one token first.
        self._init_reorder_batch_threshold(1, False)

    @functools.cached_property
    def _handed_back(self) -> bool:
        """Whether vLLM's own code computes the group's layers. The answer can be cached, because all layers exist
        before the first step and never change their class.
        """
        layers = get_layers_from_vllm_config(self.vllm_config, Attention, self.layer_names).values()
        return any(isinstance(layer.impl, AttentionImpl) and layer.impl.handed_back for layer in layers)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> CPUAttentionMetadata:
        if self._handed_back:
            return super().build(common_prefix_len, common_attn_metadata, fast_build)
        step = common_attn_metadata
        for name in ("mm_req_doc_ranges", "rswa_prefix_lens"):
            given = getattr(step, name)
            if given is not None and (name != "mm_req_doc_ranges" or any(given.values())):
                raise NotImplementedError(f"fa.vllm: {name}: not served")
        starts, lengths = step.query_start_loc_cpu.tolist(), step.seq_lens.tolist()
        causal: Any = step.causal
        if self.is_cross_attention:
            causal = False
        elif isinstance(causal, Tensor):
            causal = causal.tolist()
        return AttentionMetadata(
            num_actual_tokens=step.num_actual_tokens,
            max_query_len=step.max_query_len,
            query_start_loc=step.query_start_loc,
            max_seq_len=step.max_seq_len,
            seq_lens=step.seq_lens,
            block_table=step.block_table_tensor,
            slot_mapping=step.slot_mapping,
            scheduler_metadata=None,
            causal=causal is True,
            batch=Batch(groups_of(starts, lengths, step.block_table_tensor, causal)),
        )


class AttentionImpl(CPUAttentionBackendImpl):
    """The attention of one layer. Its cache is [blocks, Nkv, block, D + Dv], where `block` is the number of tokens in a
    block. For each block and head, `fa` stores keys [block, D] and then values [block, Dv]. A cache of int8 is [blocks,
    Nkv, block, D + Dv + 8], as large as in vLLM's code for other devices. Float32 scales of keys [block], and then of
    values [block], follow the codes.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: Tensor | None = None,
        **others: Any,
    ) -> None:
        if others:
            raise NotImplementedError(f"fa.vllm: {', '.join(sorted(others))}: unknown; FA_VLLM=0 runs vLLM's own code")
        encoder = attn_type in _ENCODERS
        # vLLM's own class warns that encoders get no soft cap. Here they do.
        super().__init__(
            num_heads,
            head_size,
            scale,
            num_kv_heads,
            alibi_slopes,
            sliding_window,
            kv_cache_dtype,
            None if encoder else logits_soft_cap,
            attn_type,
            kv_sharing_target_layer_name,
            sinks,
        )
        self.logits_soft_cap = logits_soft_cap or 0
        self.handed_back = self._reason()
        """Why vLLM's own class computes this layer; "" if it does not."""
        if self.handed_back:
            init_logger("vllm.fa").warning_once("fa.vllm: vLLM's own code computes layers: %s", self.handed_back)
        elif get_current_vllm_config().kv_transfer_config is not None:
            raise ValueError("fa.vllm: kv_transfer_config: blocks of CPU_ATTN are packed, ours are not")
        window = -1 if sliding_window is None else sliding_window - 1
        self._encoder = encoder
        self._int8 = kv_cache_dtype == _INT8 and not encoder
        self._layer = Layer(
            scale=float(scale),
            left=window,
            right=window,  # calls that are not causal: vLLM's windows then bound both sides
            softcap=float(self.logits_soft_cap),
            slopes=None if alibi_slopes is None else tuple(map(float, alibi_slopes)),
        )

    def _reason(self) -> str:
        if self.is_fp8_kv_cache and self.kv_cache_dtype != _INT8:  # any other quantized cache
            if self.kv_cache_dtype not in AttentionBackend.supported_kv_cache_dtypes:
                raise NotImplementedError(f"fa.vllm: kv_cache_dtype={self.kv_cache_dtype}: vLLM has no code for CPUs")
            return f"kv_cache_dtype={self.kv_cache_dtype}"
        model = get_current_vllm_config().model_config
        reason = "" if model.rswa_window is None else "rswa_window"
        if model.is_mm_prefix_lm:
            reason = "is_mm_prefix_lm"  # tokens of an image see each other; vLLM's own code computes a causal mask
        if reason and self.kv_cache_dtype == _INT8:
            raise NotImplementedError(f"fa.vllm: kv_cache_dtype={_INT8}: vLLM has no code for CPUs, {reason} needs it")
        return reason

    def _sinks(self) -> Tensor | None:
        """Returns the sinks in float32. A program may load other weights between two steps."""
        return None if self.sinks is None else self.sinks.detach().float()

    def _pages_of(self, kv_cache: Tensor) -> Pages:
        """Returns views of the layer's cache, [blocks, Nkv, block, columns]."""
        block, size = kv_cache.shape[2], self.head_size
        heads = kv_cache.view(*kv_cache.shape[:2], block * kv_cache.shape[3])
        rows = kv_cache.shape[3] - 2 * _SCALE_BYTES * self._int8
        keys, values, rest = heads.split([block * size, block * (rows - size), block * (kv_cache.shape[3] - rows)], -1)
        codes = keys.unflatten(-1, (block, size)), values.unflatten(-1, (block, -1))
        if not self._int8:
            return Pages(*codes)
        return Pages(*codes, *(scales[..., None] for scales in rest.view(torch.float32).split(block, -1)))

    def do_kv_cache_update(
        self, layer: torch.nn.Module, key: Tensor, value: Tensor, kv_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        if self.handed_back:
            super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
        elif not self._encoder:
            write_rows(key, value, slot_mapping, self._pages_of(kv_cache), "BnNBsD")

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: CPUAttentionMetadata | None,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("fa.vllm: output_scale, output_block_scale: no output is quantized")
        if attn_metadata is None:  # a warm-up
            return output
        if self.handed_back:
            count(f"handed_back: {self.handed_back}")
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output)
        assert isinstance(attn_metadata, AttentionMetadata)
        batch = attn_metadata.batch
        if self._encoder:
            for group in batch.groups:
                tensors, ends = (query[group.tokens], key[group.tokens], value[group.tokens]), (group.ends, group.ends)
                sinks, own = self._sinks(), output[group.tokens]
                attend_packed(self._layer, *tensors, ends, group.causal, sinks, own, ENCODER)
            count("encoder")
            return output
        batch.attend(self._layer, query, self._pages_of(kv_cache), self._sinks(), output)
        count("decode" if batch.few_rows else "prefill")
        return output
