"""Rotary positions in latent attention: all heads of a query are rotated."""

from __future__ import annotations

import pytest
import torch
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.platforms import current_platform

from fa.vllm import _rotary

TOKENS, HEADS, SIZE = 5, 4, 8
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
YARN = {"rope_type": "deepseek_yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}


def rotated(rows, positions, rope):
    """Rotates pairs of neighbouring columns of [T, .., R] by the angles of `rope`, in float64."""
    cosines, sines = rope.cos_sin_cache[positions].double().unflatten(-1, (2, -1))[:, None].unbind(-2)
    turned = torch.view_as_complex(rows.double().unflatten(-1, (-1, 2))) * torch.complex(cosines, sines)
    return torch.view_as_real(turned).flatten(-2)


@pytest.fixture(params=[DEFAULT, YARN], ids=["default", "yarn"])
def rope(request):
    """Returns vLLM's rotary module for positions below 64."""
    current_platform.import_kernels()
    kernels = CompilationConfig(custom_ops=["all"])  # vLLM sets this with enforce_eager
    with set_current_vllm_config(VllmConfig(compilation_config=kernels)):
        return get_rope(SIZE, 64, is_neox_style=False, rope_parameters=request.param, dtype=torch.float32)


@pytest.mark.parametrize("tokens", [1, HEADS, TOKENS])
@pytest.mark.parametrize("key_heads", [(), (1,)])
def test_every_head_of_a_part_of_a_projection_is_rotated(rope, key_heads, tokens):
    query = torch.randn(tokens, HEADS, SIZE + 3)[..., 3:]
    key = torch.randn(tokens, *key_heads, SIZE + 5)[..., 5:]
    positions = torch.tensor([7, 0, 1, 30, 2])[:tokens]
    want = rotated(query, positions, rope), rotated(key.reshape(tokens, 1, SIZE), positions, rope).view(key.shape)
    got = _rotary.EveryHead(rope)(positions, query, key)
    for mine, right in zip(got, want, strict=True):
        assert mine.shape == right.shape
        # A result is the difference of two products. Each of the three operations rounds once, and all numbers are
        # below 8.
        assert ((mine - right).abs() <= 4 * 2.0**-24 * 8).all()


@pytest.mark.parametrize("rope", [DEFAULT], ids=["default"], indirect=True)
def test_vllms_kernel_still_needs_it(rope):
    """vLLM's kernel does not rotate all heads. When this test fails, the kernel does, and `_rotary.py` can be
    removed.
    """
    query, key = torch.randn(TOKENS, HEADS, SIZE), torch.randn(TOKENS, 1, SIZE)
    positions = torch.arange(1, TOKENS + 1)
    want = rotated(query, positions, rope)
    got, _ = rope(positions, query.clone(), key.clone())
    assert ((got - want).abs() > 0.01).any()
