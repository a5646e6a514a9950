"""Attention on CPUs: forward and backward, reproducible to the bit.

The functions take NumPy arrays and CPU tensors of any library with DLPack (float32, float16; bfloat16 through PyTorch)
and share their memory; results are NumPy arrays or PyTorch tensors, as the query is. Bad input raises ValueError with
the library's message. The GIL is released while the library works, and many threads may call every function at once.

`fa.torch` has PyTorch's scaled_dot_product_attention, `fa.torch_npu` has the functions of torch_npu, and
`fa.flash_attn` has the functions of flash_attn. All of them have autograd.
"""

import importlib
from typing import TYPE_CHECKING

from ._attention import (
    AttentionGradients,
    AttentionOutput,
    flash_attention,
    flash_attention_grad,
    generate_dropout_mask,
    ring_attention_update,
)
from ._cache import gather_rows, merge_by_lse, scatter_rows
from ._context import set_default_context
from ._decode import decode_attention
from ._fa import Context, PlanDescription, __version__
from ._index_score import indexer_kl_loss, msa_index_score
from ._infer import infer_attention
from ._mask import Mask, PairMask
from ._plan import plan
from ._prompt import prompt_flash_attention
from ._shared_kv import SharedKvGradients, SharedKvOutput, shared_kv_attention, shared_kv_attention_grad
from ._sparse import (
    GivenLossGradients,
    IndexerGradients,
    IndexerLoss,
    IndexerStatistics,
    SparseAttentionGradients,
    SparseAttentionOutput,
    dense_lightning_indexer_grad_kl_loss,
    dense_lightning_indexer_softmax_lse,
    lightning_indexer,
    lightning_indexer_grad,
    sparse_flash_attention,
    sparse_flash_attention_grad,
    sparse_lightning_indexer_grad_kl_loss,
    sparse_lightning_indexer_kl_loss_grad,
)

# The API reference lists the names in this order.
__all__ = [
    "flash_attention",
    "flash_attention_grad",
    "prompt_flash_attention",
    "decode_attention",
    "infer_attention",
    "sparse_flash_attention",
    "sparse_flash_attention_grad",
    "shared_kv_attention",
    "shared_kv_attention_grad",
    "lightning_indexer",
    "lightning_indexer_grad",
    "sparse_lightning_indexer_grad_kl_loss",
    "sparse_lightning_indexer_kl_loss_grad",
    "dense_lightning_indexer_softmax_lse",
    "dense_lightning_indexer_grad_kl_loss",
    "indexer_kl_loss",
    "msa_index_score",
    "ring_attention_update",
    "merge_by_lse",
    "scatter_rows",
    "gather_rows",
    "generate_dropout_mask",
    "plan",
    "set_default_context",
    "AttentionGradients",
    "AttentionOutput",
    "Context",
    "GivenLossGradients",
    "IndexerGradients",
    "IndexerLoss",
    "IndexerStatistics",
    "Mask",
    "PairMask",
    "PlanDescription",
    "SharedKvGradients",
    "SharedKvOutput",
    "SparseAttentionGradients",
    "SparseAttentionOutput",
    "__version__",
]

if not TYPE_CHECKING:

    def __getattr__(name: str):
        """Imports a submodule when a program first uses it, because the submodule needs another package."""
        if name in ("torch", "torch_npu", "flash_attn", "transformers", "jax", "vllm", "xformers"):
            try:
                return importlib.import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:  # makes hasattr() return False
                raise AttributeError(str(error)) from error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
