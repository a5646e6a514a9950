"""Every function refuses tensors that claim, by strides of 0, more elements than memory holds. It also refuses lengths
that exceed their tensor. The error states a number.
"""

import re

import numpy as np
import pytest
import torch

import fa
import fa.flash_attn as flash_attn
import fa.torch as fa_torch
import fa.torch_npu as torch_npu

B, N, S, D = 1, 2, 4, 8
SIZES = [2**31, 2**40, 2**50]


def rows(*shape):
    return torch.zeros(1).expand(shape)


def arrays(*shape):
    return np.broadcast_to(np.float32(0), shape)


def queries(make=rows, heads=N, size=D):
    return make(B, heads, S, size)


# Calls with one size n that the test makes too large: {interface and dimension: call}.
CALLS = {
    "fa keys": lambda n: fa.flash_attention(queries(arrays), *[arrays(B, N, n, D)] * 2),
    "fa head size": lambda n: fa.flash_attention(*[queries(arrays, size=n)] * 3),
    "fa lengths": lambda n: fa.flash_attention(
        *[np.zeros((S, N, D), np.float32)] * 3, layout="TND", cu_q=[S], cu_kv=[n]
    ),
    "fa prompt": lambda n: fa.prompt_flash_attention(queries(arrays), *[arrays(B, N, n, D)] * 2),
    "fa decode": lambda n: fa.decode_attention(arrays(B, N, 1, D), *[arrays(B, N, n, D)] * 2),
    "fa decode lengths": lambda n: fa.decode_attention(*[np.zeros((B, N, 1, D), np.float32)] * 3, lengths_kv=[n]),
    "fa indexer": lambda n: fa.lightning_indexer(
        arrays(B, S, N, D), arrays(B, n, 1, D), arrays(B, S, N), sparse_count=2
    ),
    "torch keys": lambda n: fa_torch.scaled_dot_product_attention(queries(), *[rows(B, N, n, D)] * 2),
    "torch causal": lambda n: fa_torch.scaled_dot_product_attention(
        queries(), *[rows(B, N, n, D)] * 2, is_causal=True, dropout_p=0.5
    ),
    "torch head size": lambda n: fa_torch.scaled_dot_product_attention(*[queries(size=n)] * 3),
    "torch mask": lambda n: fa_torch.scaled_dot_product_attention(*[queries()] * 3, attn_mask=rows(S, n)),
    "torch decode": lambda n: fa_torch.decode_attention(rows(B, N, 1, D), *[rows(B, N, n, D)] * 2),
    "torch_npu keys": lambda n: torch_npu.npu_fusion_attention(queries(), *[rows(B, N, n, D)] * 2, N, "BNSD"),
    "torch_npu heads": lambda n: torch_npu.npu_fusion_attention(*[queries()] * 3, n, "BNSD"),
    "torch_npu lengths": lambda n: torch_npu.npu_fusion_attention(
        *[torch.zeros(S, N, D)] * 3, N, "TND", actual_seq_qlen=[S], actual_seq_kvlen=[n]
    ),
    "torch_npu prompt": lambda n: torch_npu.npu_prompt_flash_attention(
        queries(), *[rows(B, N, n, D)] * 2, num_heads=N, input_layout="BNSD"
    ),
    "flash_attn keys": lambda n: flash_attn.flash_attn_func(rows(B, S, N, D), *[rows(B, n, N, D)] * 2),
    "flash_attn head size": lambda n: flash_attn.flash_attn_func(*[rows(B, S, N, n)] * 3),
    "flash_attn lengths": lambda n: flash_attn.flash_attn_varlen_func(
        *[torch.zeros(S, N, D)] * 3, *[torch.tensor([0, min(n, 2**31 - 1)], dtype=torch.int32)] * 2, n, n
    ),
    "flash_attn cache": lambda n: flash_attn.flash_attn_with_kvcache(
        rows(B, 1, N, D), *[torch.zeros(D).expand(B, n, N, D)] * 2
    ),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_a_size_that_no_machine_has_is_refused_in_words(name, size):
    # PyTorch raises RuntimeError where fa makes an output with PyTorch before it calls the library.
    with pytest.raises((ValueError, MemoryError, RuntimeError)) as caught:
        CALLS[name](size)
    assert re.search(r"\d", str(caught.value)), caught.value
