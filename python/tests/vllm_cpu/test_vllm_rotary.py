"""Positions of latent attention: all heads of a query are rotated."""

from __future__ import annotations

import torch
from vllm.platforms import current_platform

from fa.vllm import _rotary

TOKENS, HEADS, SIZE = 5, 4, 8


def rotated(rows, positions):
    """Rotates pairs of neighbouring columns of [T, .., R], in float64."""
    frequencies = 1e4 ** -(torch.arange(0, SIZE, 2).double() / SIZE)
    angles = (positions[:, None].double() * frequencies).view(-1, 1, SIZE // 2)
    turned = torch.view_as_complex(rows.double().unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def kernel(positions, query, key):
    from vllm import _custom_ops as ops

    frequencies = 1e4 ** -(torch.arange(0, SIZE, 2).double() / SIZE)
    angles = torch.arange(64)[:, None].double() * frequencies
    table = torch.cat([angles.cos(), angles.sin()], -1).float()
    ops.rotary_embedding(positions, query, key, SIZE, table, False)
    return query, key


def test_the_layer_rotates_every_head_of_a_part_of_a_projection():
    current_platform.import_kernels()
    query = torch.randn(TOKENS, HEADS, SIZE + 3)[..., 3:]
    key = torch.randn(TOKENS, 1, SIZE + 5)[..., 5:]
    positions = torch.tensor([7, 0, 1, 30, 2])
    want = rotated(query, positions), rotated(key, positions)
    got = _rotary.EveryHead(kernel)(positions, query, key)
    for mine, right in zip(got, want, strict=True):
        assert mine.shape == right.shape
        assert ((mine - right).abs() <= 4 * 2.0**-24 * 8).all()


def test_vllms_kernel_still_needs_it():
    """When this test fails, vLLM's kernel rotates all heads and `_rotary.py` may go."""
    current_platform.import_kernels()
    query, key = torch.randn(TOKENS, HEADS, SIZE), torch.randn(TOKENS, 1, SIZE)
    positions = torch.arange(1, TOKENS + 1)
    want = rotated(query, positions)
    got, _ = kernel(positions, query.clone(), key.clone())
    assert ((got - want).abs() > 0.01).any()
