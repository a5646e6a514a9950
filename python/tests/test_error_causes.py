"""fa passes errors of other packages, such as PyTorch, through every function unchanged and keeps their causes."""

import pytest
import torch

import fa.flash_attn as flash_attn
import fa.flash_attn.third_generation as third_generation
import fa.torch as fa_torch
from fa._torch import decode as torch_decode
from fa._torch import sdpa as torch_sdpa
from fa.flash_attn import _cache, _second_generation

ROWS = torch.zeros(1, 4, 2, 8)
CACHE = torch.zeros(1, 16, 2, 8)
PAGES = {"block_table": torch.zeros(1, 1, dtype=torch.int32)}
PACKED = {"cu_seqlens_q": torch.tensor([0, 4], dtype=torch.int32), "cu_seqlens_k": torch.tensor([0, 4], dtype=torch.int32)}

# {case: (module, name of an inner function, call of a public function that reaches it)}
CALLS = {
    "decode": (
        torch_decode,
        "attend_cached",
        # An int8 output makes the call use the general functions.
        lambda: fa_torch.decode_attention(*(ROWS.transpose(1, 2),) * 3, quant_scale2=torch.ones(1)),
    ),
    "sdpa": (
        torch_sdpa,
        "attention",
        lambda: torch_sdpa.attend(*(ROWS,) * 3, dropout_state=torch.zeros(2, dtype=torch.int64), dropout_p=0.5),
    ),
    "second generation": (
        _second_generation,
        "attend",
        lambda: flash_attn.flash_attn_qkvpacked_func(torch.zeros(1, 4, 3, 2, 8, requires_grad=True)),
    ),
    "pages": (
        _cache,
        "attend_cache",
        lambda: flash_attn.flash_attn_varlen_func(ROWS[0], CACHE, CACHE, **PACKED, max_seqlen_q=4, max_seqlen_k=4, **PAGES),
    ),
    "third generation": (
        third_generation,
        "attend_cache",
        lambda: third_generation.flash_attn_with_kvcache(ROWS, CACHE, CACHE, cache_seqlens=8),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_without_arguments_keeps_its_cause(name, monkeypatch):
    module, function, call = CALLS[name]

    def fails(*_, **__):
        raise ValueError("of another library") from KeyError("cause")

    monkeypatch.setattr(module, function, fails)
    with pytest.raises(ValueError, match="of another library") as caught:
        call()
    assert isinstance(caught.value.__cause__, KeyError)
