"""Prompt attention in fa and fa.torch_npu: lengths, masks, and int8 compared with the documented formula in float64."""

import inspect

import numpy as np
import pytest
import torch
from reference import assert_within, attention, bnsd, to_layout, tolerances

import fa
import fa.torch_npu as torch_npu

B, N, NKV, S, D = 2, 4, 2, 33, 16
SCALE = D**-0.5
FACE = (
    "query, key, value, *, padding_mask=None, atten_mask=None, pse_shift=None, actual_seq_lengths=None, "
    "deq_scale1=None, quant_scale1=None, deq_scale2=None, quant_scale2=None, quant_offset2=None, num_heads=1, "
    "scale_value=1.0, pre_tokens=2147483647, next_tokens=0, input_layout='BSH', num_key_value_heads=0, "
    "actual_seq_lengths_kv=None, sparse_mode=0"
)


def random_qkv(dtype=torch.float32):
    return [torch.randn(B, heads, S, D).to(dtype) for heads in (N, NKV, NKV)]


def random_int8():
    return [torch.randint(-20, 21, (B, heads, S, D), dtype=torch.int8) for heads in (N, NKV, NKV)]


INT8_SCALES = {"deq_scale1": 0.01, "quant_scale1": 100.0, "deq_scale2": 0.02}


def int8_reference(q, k, v):
    """Computes the int8 formula of fa/prompt_flash_attention.h in float64. P is relative to the maximum of the whole
    row."""
    q, k, v = (t.double().repeat_interleave(N // t.shape[1], 1) for t in (q, k, v))
    scores = q @ k.transpose(-2, -1) * INT8_SCALES["deq_scale1"] * SCALE
    p = torch.exp(scores - scores.amax(-1, keepdim=True))
    p8 = torch.clamp(torch.round(p * INT8_SCALES["quant_scale1"]), -128, 127)
    return p8 @ v * INT8_SCALES["deq_scale2"] / p.sum(-1, keepdim=True)


def scales(**values):
    return {name: torch.tensor([value], dtype=torch.float32) for name, value in values.items()}


def test_signature():
    signature = inspect.signature(torch_npu.npu_prompt_flash_attention)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({FACE})"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_lengths(layout, dtype):
    wide = random_qkv(dtype)
    lengths_q, lengths_kv = [20, 33], [33, 9]
    out = torch_npu.npu_prompt_flash_attention(
        *(to_layout(t, layout) for t in wide),
        num_heads=N,
        num_key_value_heads=NKV,
        scale_value=SCALE,
        input_layout=layout,
        actual_seq_lengths=lengths_q,
        actual_seq_lengths_kv=lengths_kv,
    )
    keep = (torch.arange(S) < torch.tensor(lengths_kv)[:, None])[:, None, None, :]
    want, _, _ = attention(*(t.double() for t in wide), scale=SCALE, keep=keep)
    rows = (torch.arange(S) < torch.tensor(lengths_q)[:, None])[:, None, :, None]
    bound = tolerances(*wide, torch.zeros(B, N, S, D), dtype, scale=SCALE, keep=keep)["out"]
    assert_within(bnsd(out, layout, N), want * rows, bound * rows, "out")


def options_of_the_forward():
    """Returns sets of arguments that both prompt attention and `flash_attention` take, by the name of a test case."""
    bias = torch.randn(1, N, S, S)
    slopes = torch.rand(N)
    rope = {"query_rope": torch.randn(B, N, S, 8), "key_rope": torch.randn(B, NKV, S, 8)}
    return {
        "rope": rope,
        "sink": {"sink": torch.randn(N)},
        "softcap": {"softcap": 2.0},
        "scale_then_add": {"pse": bias, "pse_type": 0},
        "add_then_scale": {"pse": bias, "pse_type": 1},
        "slopes": {"pse": slopes, "pse_type": 2, "q_start": 3, "kv_start": 1},
        "roots": {"pse": slopes, "pse_type": 3, "q_start": -2},
        "all": {**rope, "sink": torch.randn(N), "softcap": 3.0, "pse": slopes, "pse_type": 2},
    }


@pytest.mark.parametrize("name", options_of_the_forward())
def test_options_and_statistics_of_the_training_forward(name):
    inputs, options = random_qkv(), options_of_the_forward()[name] | {"mask": fa.Mask.causal(), "scale": SCALE}
    plain = fa.prompt_flash_attention(*inputs, mask=fa.Mask.causal(), scale=SCALE)
    out, softmax_max, softmax_sum = fa.prompt_flash_attention(*inputs, **options, return_statistics=True)
    want = fa.flash_attention(*inputs, **options)
    assert not torch.equal(out, plain)
    assert torch.equal(out, want.out)
    assert torch.equal(softmax_max, want.softmax_max)
    assert torch.equal(softmax_sum, want.softmax_sum)
    assert torch.equal(fa.prompt_flash_attention(*inputs, **options), want.out)


def test_statistics_of_rows_past_the_length_are_zero():
    inputs = random_qkv()
    out, softmax_max, softmax_sum = fa.prompt_flash_attention(
        *inputs, lengths_q=[20, S], lengths_kv=[S, S], return_statistics=True
    )
    want = fa.flash_attention(*(t[:1] for t in inputs))
    assert torch.equal(out[:1, :, :20], want.out[:, :, :20])
    assert torch.equal(softmax_max[:1, :, :20], want.softmax_max[:, :, :20])
    assert torch.equal(softmax_sum[:1, :, :20], want.softmax_sum[:, :, :20])
    for result in (out, softmax_max, softmax_sum):
        assert (result[0, :, 20:] == 0).all()


def test_what_int8_inputs_do_not_take_is_named():
    scales8 = {name: torch.tensor([value]) for name, value in INT8_SCALES.items()}
    for message, options in {
        "query_rope: given, want none": options_of_the_forward()["rope"],
        "sink: given, want none": {"sink": torch.randn(N)},
        "softcap=2, want 0": {"softcap": 2.0},
        "pse_type=1, want 0": {"pse_type": 1},
        "softmax_max: given, want none": {"return_statistics": True},
    }.items():
        with pytest.raises(ValueError, match=rf"^invalid argument: {message} \(q\.dtype=i8\)$"):
            fa.prompt_flash_attention(*random_int8(), **scales8, **options)
    with pytest.raises(ValueError, match="pse_type=4, want 0..3"):
        fa.prompt_flash_attention(*random_qkv(), pse_type=4)


def test_the_bits_of_the_training_forward():
    inputs = [t.numpy() for t in random_qkv()]
    out = fa.prompt_flash_attention(*inputs, mask=fa.Mask.causal())
    assert isinstance(out, np.ndarray)
    assert np.array_equal(out, fa.flash_attention(*inputs, mask=fa.Mask.causal()).out)


def test_output_in_another_layout():
    inputs = random_qkv()
    out = fa.prompt_flash_attention(*inputs, layout="BNSD_BSND")
    assert torch.equal(out.transpose(1, 2), fa.prompt_flash_attention(*inputs))


def test_int8_to_float16_and_int8():
    inputs = random_int8()
    want = int8_reference(*inputs)
    halves = fa.prompt_flash_attention(*inputs, scale=SCALE, **scales(**INT8_SCALES))
    assert halves.dtype == torch.float16
    # If P * quant_scale1 is near a half, its int8 value may differ by one. That changes O by at most |v| deq_scale2 /
    # l. The row's sum l is at least 1, and |v| <= 20.
    one_step = 20 * INT8_SCALES["deq_scale2"]
    assert (halves.double() - want).abs().max() <= one_step + want.abs().max() * 2**-10
    assert ((halves.double() - want).abs() <= want.abs() * 2**-10 + 1e-6).double().mean() > 0.999

    output = {"quant_scale2": 300.0, "quant_offset2": 3.0}
    bytes_ = fa.prompt_flash_attention(*inputs, scale=SCALE, **scales(**INT8_SCALES, **output))
    want8 = torch.clamp(torch.round(want * 300 + 3), -128, 127)
    assert bytes_.dtype == torch.int8 and (bytes_.double() - want8).abs().max() <= 1
    assert (bytes_.double() == want8).double().mean() >= 0.999


def test_output_scales_count_in_the_order_of_their_shape_whatever_their_strides():
    inputs = [np.ascontiguousarray(x.numpy()) for x in random_int8()]
    size = inputs[2].shape[-1]
    one_row = np.linspace(100, 300, size, dtype=np.float32)
    one_a_head = np.linspace(100, 300, N, dtype=np.float32)[:, None]
    given = {name: value.numpy() for name, value in scales(**INT8_SCALES).items()}
    for scale in (
        np.broadcast_to(one_row, (N, size)),
        np.broadcast_to(one_a_head, (N, size)),
        np.linspace(100, 300, N * size, dtype=np.float32).reshape(size, N).T,
    ):
        call = {"scale": SCALE, **given}
        strided = fa.prompt_flash_attention(*inputs, **call, quant_scale2=scale, quant_offset2=scale)
        packed = np.ascontiguousarray(scale)
        want = fa.prompt_flash_attention(*inputs, **call, quant_scale2=packed, quant_offset2=packed)
        assert np.array_equal(strided, want)


def test_torch_npu_takes_the_int64_scales_of_its_quantization():
    inputs = random_int8()
    call = {"num_heads": N, "num_key_value_heads": NKV, "scale_value": SCALE, "input_layout": "BNSD"}
    plain = torch_npu.npu_prompt_flash_attention(*inputs, **call, **scales(**INT8_SCALES))
    packed = scales(**INT8_SCALES)
    for name in ("deq_scale1", "deq_scale2"):
        packed[name] = packed[name].view(torch.int32).to(torch.int64)
    assert torch.equal(torch_npu.npu_prompt_flash_attention(*inputs, **call, **packed), plain)


def test_refusals():
    inputs = random_qkv()
    call = {"num_heads": N, "num_key_value_heads": NKV, "input_layout": "BNSD"}
    for keywords, message in (
        ({"sparse_mode": 5}, r"sparse_mode=5, want 0\.\.4"),
        ({"sparse_mode": 3}, "atten_mask: missing"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"num_heads": 0}, "num_heads=0, want >= 1"),
        ({"num_key_value_heads": 0}, f"num_key_value_heads={N}, want {NKV} .key"),
        ({"actual_seq_lengths": [1, 99]}, r"actual_seq_lengths\[1\]=99"),
        ({"deq_scale1": torch.ones(1)}, "deq_scale1"),
    ):
        with pytest.raises(ValueError, match=message):
            torch_npu.npu_prompt_flash_attention(*inputs, **{**call, **keywords})
    with pytest.raises(ValueError, match="quant_scale1"):
        fa.prompt_flash_attention(*random_int8(), deq_scale1=torch.ones(1))


def test_opcheck_and_fake_shapes():
    from fa._torch import ops as _torch_ops

    call = _torch_ops.PromptCall(
        *[None] * 7,
        layout="BNSD_BSND",
        heads=N,
        heads_kv=NKV,
        scale=SCALE,
        sparse_mode=0,
        pre_tokens=0,
        next_tokens=0,
        lengths_q=[20],
        lengths_kv=[],
    )
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(_torch_ops.prompt_attention, (*random_qkv(), *call), test_utils=checks)
    int8 = call._replace(**scales(**INT8_SCALES))
    torch.library.opcheck(_torch_ops.prompt_attention, (*random_int8(), *int8), test_utils=checks)
