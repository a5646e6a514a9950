"""In every interface of the library, an argument of a wrong type raises an error that names the argument."""

import re

import numpy as np
import pytest
import torch

import fa
import fa.flash_attn
import fa.flash_attn.third_generation as flash3
import fa.torch
import fa.torch_npu
import fa.transformers

Q = torch.randn(1, 2, 5, 8)
B = Q.transpose(1, 2)
INDICES = torch.zeros(1, 5, 1, 1, dtype=torch.int32)
CODES, EIGHT, SLOTS = Q.to(torch.int8), B.to(torch.float8_e4m3fn), torch.arange(5)
MODULE = torch.nn.Identity()
of_model = fa.transformers.attention_forward
attention, sdpa, npu = fa.flash_attention, fa.torch.scaled_dot_product_attention, fa.torch_npu.npu_fusion_attention

CASES = {
    "scale: want a number or None, got str": lambda: attention(Q, Q, Q, scale="x"),
    "mask: want fa.Mask or None, got str": lambda: attention(Q, Q, Q, mask="causal"),
    "mask: want fa.Mask or None, got Tensor; tensors go to dense_mask": lambda: attention(Q, Q, Q, mask=Q > 0),
    "head_num: want an integer, got str": lambda: attention(Q, Q, Q, head_num="2"),
    "head_num: want an integer, got Tensor": lambda: attention(Q, Q, Q, head_num=torch.tensor(2.5)),
    "scale: want a number or None, got Tensor": lambda: attention(Q, Q, Q, scale=torch.ones(2)),
    "bits: want an integer, got Tensor": lambda: fa.generate_dropout_mask(1, 0, 0.5, torch.tensor(2.5)),
    "prefix: want integers, got list": lambda: fa.Mask.prefix([torch.tensor(2.5)]),
    "keep_prob: want a number, got NoneType": lambda: attention(Q, Q, Q, keep_prob=None),
    "layout: want a string, got int": lambda: attention(Q, Q, Q, layout=3),
    "context: want fa.Context or None, got int": lambda: attention(Q, Q, Q, context=2),
    "context: want fa.Context or None, got list": lambda: fa.set_default_context([2]),
    "thread: unknown, want one of threads, isa, accumulation": lambda: fa.Context(thread=2),
    "threads: want a number of threads, got str": lambda: fa.Context(threads="2"),
    "isa: want a string or None, got int": lambda: fa.Context(isa=2),
    "Context takes its arguments by name: threads, isa, accumulation": lambda: fa.Context(2),
    "pre: want an integer, got str": lambda: fa.Mask.band("x", 1),
    "next: missing": lambda: fa.Mask.band(1),
    "before: unknown, want one of pre, next": lambda: fa.Mask.band_top_left(before=1, next=2),
    "prefix: want integers, got str": lambda: fa.Mask.prefix("ab"),
    "row_begin: want integers, got ndarray": lambda: fa.Mask.rows(np.zeros(3), [1, 1, 1]),
    "sparse_mode: want an integer, got float": lambda: fa.Mask.from_sparse_mode(1.5),
    "bits: want an integer, got str": lambda: fa.generate_dropout_mask(1, 0, 0.5, "8"),
    "seed: want an integer, got str": lambda: fa.generate_dropout_mask("1", 0, 0.5, 8),
    "layout: want a string, got float": lambda: fa.ring_attention_update(*[Q] * 6, layout=1.5),
    "softcap: want a number, got str": lambda: fa.decode_attention(Q, Q, Q, softcap="x"),
    "k_scale: want a torch.Tensor, got float": lambda: fa.torch.decode_attention(Q, CODES, CODES, k_scale=1.0),
    "k: want an array, got int": lambda: fa.decode_attention(Q, 3, CODES, k_scale=Q, v_scale=Q),
    "v[1]: want an array, got NoneType": lambda: fa.decode_attention(Q, [CODES], [CODES, None]),
    "key_scale_cache: want an array, got list": lambda: fa.scatter_rows(B[0], None, SLOTS, CODES, key_scale_cache=[1.0]),
    "key_scale: want a torch.Tensor, got float": lambda: fa.torch.scatter_rows(B[0], None, SLOTS, CODES, key_scale=1.0),
    "k_descale: want a torch.Tensor, got float": lambda: flash3.flash_attn_with_kvcache(B, EIGHT, EIGHT, k_descale=2.0),
    "block_size: want an integer, got str": lambda: fa.sparse_flash_attention(B, B, B, INDICES, block_size="x"),
    "sparse_count: want an integer, got str": lambda: fa.lightning_indexer(B, B, Q[..., 0], sparse_count="x"),
    "scale: want a number, got str": lambda: sdpa(Q, Q, Q, scale="x", dropout_p=0.5),
    "dropout_p: want a number, got str": lambda: sdpa(Q, Q, Q, dropout_p="x"),
    "softmax_scale: want a number, got str": lambda: fa.flash_attn.flash_attn_func(B, B, B, softmax_scale="x"),
    "head_num: want an integer, got NoneType": lambda: npu(Q, Q, Q, None, "BNSD"),
    "scale: want a number, got list": lambda: npu(Q, Q, Q, 2, "BNSD", scale=[1]),
    "dropout: want a number, got str": lambda: of_model(MODULE, Q, Q, Q, None, dropout="x"),
    "scaling: want a number or None, got str": lambda: of_model(MODULE, Q, Q, Q, None, scaling="x"),
    "softcap: want a number or None, got list": lambda: of_model(MODULE, Q, Q, Q, None, softcap=[1]),
    "sliding_window: want a number or None, got str": lambda: of_model(MODULE, Q, Q, Q, None, sliding_window="x"),
    "key: want a torch.Tensor, got NoneType": lambda: of_model(MODULE, Q, None, Q, None),
    "attention_mask: want a torch.Tensor or None, got str": lambda: of_model(MODULE, Q, Q, Q, "causal"),
    "s_aux: want a torch.Tensor or None, got list": lambda: of_model(MODULE, Q, Q, Q, None, s_aux=[1.0]),
    "position_bias: want a torch.Tensor or None, got int": lambda: of_model(MODULE, Q, Q, Q, None, position_bias=3),
    "cu_seq_lens_q: want a torch.Tensor or None, got list": lambda: of_model(MODULE, Q, Q, Q, None, cu_seq_lens_q=[0, 5]),
}
OUTSIDE = {
    "seed=-1, want 0..2^64-1": lambda: attention(Q, Q, Q, keep_prob=0.5, seed=-1),
    f"seed={1 << 64}, want 0..2^64-1": lambda: fa.generate_dropout_mask(1 << 64, 0, 0.5, 8),
    f"offset={1 << 64}, want 0..2^64-1": lambda: attention(Q, Q, Q, keep_prob=0.5, offset=1 << 64),
    f"q_start={1 << 70}, want an integer of 64 bits": lambda: attention(Q, Q, Q, q_start=1 << 70),
    f"next={-(1 << 70)}, want an integer of 64 bits": lambda: fa.Mask.band(1, -(1 << 70)),
}


@pytest.mark.parametrize("message", CASES)
def test_the_argument_is_named(message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        CASES[message]()


@pytest.mark.parametrize("message", OUTSIDE)
def test_an_integer_out_of_range_is_named(message):
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        OUTSIDE[message]()


def test_an_unknown_keyword_is_named():
    with pytest.raises(TypeError, match="^foo: unknown, want one of layout, head_num, "):
        fa.flash_attention_grad(*[Q] * 7, foo=1)


def test_seeds_have_64_bits():
    largest = fa.generate_dropout_mask((1 << 64) - 1, 0, 0.5, 4096)
    assert not np.array_equal(largest, fa.generate_dropout_mask((1 << 63) - 1, 0, 0.5, 4096))


@pytest.mark.parametrize("number", [np.array(2), np.int64(2), torch.tensor(2)], ids=repr)
def test_numbers_of_other_libraries_are_taken(number):
    assert torch.equal(npu(Q, Q, Q, number, "BNSD", scale=number)[0], npu(Q, Q, Q, 2, "BNSD", scale=2.0)[0])


def test_a_refused_default_context_leaves_the_one_before():
    before = fa.Context(threads=1)
    fa.set_default_context(before)
    with pytest.raises(TypeError):
        fa.set_default_context(2)
    assert fa.set_default_context(None) is before


def test_a_report_wants_a_module():
    with pytest.raises(TypeError, match="^model: want a torch.nn.Module, got str$"):
        fa.transformers.report("x")
