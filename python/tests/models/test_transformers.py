"""Models of transformers with attention "fa": their logits, their gradients, and the masks that fa gets from them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hf_models import DECODERS, OTHERS, model_of, tokens, with_attention
from torch import Tensor

import fa.transformers
from fa._model.ops import ModelCall, attention_of_layer, model_attention, rows_inside
from fa._torch.shapes import keys_side_by_side

LENGTH = 21
PADDINGS = {
    "whole": None,
    "left": [[0] * 5 + [1] * 16, [1] * LENGTH],
    "right": [[1] * 14 + [0] * 7, [1] * LENGTH],
    "both": [[0] * 3 + [1] * 12 + [0] * 6, [0] + [1] * 20],
    "gaps": [[1] * 6 + [0] * 4 + [1] * 11, [1] * LENGTH],
}


def _inputs(name: str, padding: str) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the inputs of a model's forward, and a bool tensor of the tokens that are not padding."""
    ids = tokens(2, LENGTH)
    mask = None if PADDINGS[padding] is None else torch.tensor(PADDINGS[padding])
    kept = torch.ones(2, LENGTH, dtype=torch.bool) if mask is None else mask.bool()
    if name == "whisper":
        generator = torch.Generator().manual_seed(1)
        features = torch.randn(2, 8, 48, generator=generator)
        return {"input_features": features, "decoder_input_ids": ids}, torch.ones(2, LENGTH, dtype=torch.bool)
    inputs = {"input_ids": ids} | ({} if mask is None else {"attention_mask": mask})
    if name in ("t5", "bart"):
        inputs["decoder_input_ids"] = tokens(2, 9, seed=1)
        kept = torch.ones(2, 9, dtype=torch.bool)
    return inputs, kept


def _run(model: torch.nn.Module, inputs: dict[str, Tensor], kept: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Returns the logits of the kept tokens, and the gradients of a weighted sum of these logits."""
    dtype = next(model.parameters()).dtype
    inputs = {n: t.to(dtype) if t.is_floating_point() else t for n, t in inputs.items()}
    model.zero_grad()
    logits = model(**inputs, use_cache=False).logits[kept]
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    (logits * weights.to(dtype)).sum().backward()
    gradients = [p.grad.double() for p in model.parameters() if p.grad is not None]
    return logits.detach().double(), gradients


def _distance(got: Tensor, want: Tensor) -> float:
    return ((got - want).norm() / want.norm()).item()


def _cases() -> list[tuple[str, str]]:
    every = dict.fromkeys(("llama", "bert", "deepseek_v32", "minimax_m3_vl"), PADDINGS)
    paddings = every | {"whisper": ["whole"]}
    usual = ["whole", "left"]
    return [(name, padding) for name in (*DECODERS, *OTHERS) for padding in paddings.get(name, usual)]


@pytest.mark.parametrize(("name", "padding"), _cases())
def test_logits_and_gradients_are_eagers(name, padding):
    """Compares the errors of "fa" and of "eager" in float32, both measured against float64. The error of "fa" may be
    twice that of "eager" for logits, and three times for gradients.
    """
    model = model_of(name)
    inputs, kept = _inputs(name, padding)
    logits, gradients = _run(model, inputs, kept)
    eager_logits, eager_gradients = _run(with_attention(model, "eager"), inputs, kept)
    exact_logits, exact_gradients = _run(with_attention(model, "reference", torch.float64), inputs, kept)
    assert _distance(logits, exact_logits) <= 2 * _distance(eager_logits, exact_logits)
    assert len(gradients) == len(eager_gradients) == len(exact_gradients) > 0
    scale = max(exact.norm() for exact in exact_gradients)
    for got, eager, exact in zip(gradients, eager_gradients, exact_gradients, strict=True):
        least = 1e-7 * scale  # some gradients consist only of rounding errors
        assert (got - exact).norm() <= 3 * (eager - exact).norm() + least


def test_the_line_of_the_documentation(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "transformers.md"
    example = page.read_text().split("```python\n")[1].split("```")[0]
    model_of("llama").save_pretrained(tmp_path)
    names = {"path": tmp_path}
    exec(example, names)
    assert names["model"].config._attn_implementation == "fa"
    ids = tokens(1, 9)
    want = model_of("llama")(ids).logits
    torch.testing.assert_close(names["model"](ids).logits, want)


def test_checkpointing_repeats_dropout():
    model = model_of("llama").train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.4
    results = []
    for checkpoint in (False, True):
        if checkpoint:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(5)
        loss = model(tokens(2, 30), use_cache=False).logits.square().sum()
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    torch.manual_seed(6)
    assert not torch.equal(model(tokens(2, 30), use_cache=False).logits.square().sum(), results[0][0])


def test_autocast_computes_in_its_type():
    model = model_of("gemma2")
    ids, mask = tokens(2, LENGTH), torch.tensor(PADDINGS["left"])
    kept = mask.bool()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits, eager = (m(ids, attention_mask=mask).logits[kept] for m in (model, with_attention(model, "eager")))
    exact = with_attention(model, "reference", torch.float64)(ids, attention_mask=mask).logits[kept].detach()
    assert (logits - exact).norm() <= 2 * (eager - exact).norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "t5"])
def test_models_of_16_bits_are_as_exact_as_eager(name, dtype):
    model = model_of(name)
    inputs, kept = _inputs(name, "left")
    with torch.no_grad():
        exact = with_attention(model, "reference", torch.float64)(**inputs).logits[kept]
        got, eager = (with_attention(model, a, dtype)(**inputs).logits[kept] for a in ("fa", "eager"))
    assert (got - exact).norm() <= 2 * (eager - exact).norm()


def test_float64_is_refused_by_name():
    with pytest.raises(ValueError, match="query.dtype"):
        with_attention(model_of("llama"), "fa", torch.float64)(tokens(1, 5))


def test_the_callers_own_masks_are_added_or_dropped():
    """A mask of four dimensions that the caller makes reaches the layers unchanged."""
    model = model_of("llama")
    ids = tokens(2, LENGTH)
    keep = torch.rand(2, 1, LENGTH, LENGTH) < 0.6
    keep |= torch.eye(LENGTH, dtype=torch.bool)
    added = torch.randn(2, 1, LENGTH, LENGTH)
    exact = with_attention(model, "reference", torch.float64)
    for mask in (keep, added):
        wanted = exact(ids, attention_mask=mask if mask.dtype == torch.bool else mask.double()).logits
        torch.testing.assert_close(model(ids, attention_mask=mask).logits.double(), wanted, rtol=1e-4, atol=1e-5)


def test_operators_are_as_pytorch_wants_them():
    q, k, v = (torch.randn(2, heads, 7, 8, requires_grad=True) for heads in (4, 2, 2))
    rows = torch.stack((torch.arange(7).clamp(max=3), torch.arange(1, 8)), -1).to(torch.int32)[None, None]
    bias = torch.randn(1, 4, 7, 7, requires_grad=True)
    sink = torch.randn(4, requires_grad=True)
    call = ModelCall(rows=rows, pse=bias, sink=sink, statistics=True, scale=0.3, softcap=3.0)
    torch.library.opcheck(attention_of_layer, (q, k, v, *call))
    torch.library.opcheck(rows_inside, (rows, torch.ones(2, 7, dtype=torch.bool)))
    one = torch.func.vmap(lambda q, k, v: attention_of_layer(q[None], k[None], v[None], *call)[0][0])
    torch.testing.assert_close(one(q, k, v), attention_of_layer(q, k, v, *call)[0])


def test_rows_of_another_shape_are_refused_by_name():
    q = torch.randn(2, 4, 7, 8)
    rows = torch.zeros(2, 1, 6, 2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"attention_mask.shape=\[2, 1, 6, 2\], want \[2, 1, 7, 2\]"):
        model_attention(q, q, q, ModelCall(rows=rows))


def test_layers_share_one_copy_of_a_bias_with_heads_side_by_side(monkeypatch):
    copies = []

    def counting(bias):
        copies.append(bias)
        return keys_side_by_side(bias)

    monkeypatch.setattr(fa.transformers, "keys_side_by_side", counting)
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 4, LENGTH, 16, generator=generator) for _ in range(3))
    bias = torch.randn(1, LENGTH, LENGTH, 4, generator=generator).permute(0, 3, 1, 2)

    def out_of(bias, keys=LENGTH):
        module = SimpleNamespace(is_causal=False, layer_idx=0)
        return fa.transformers.attention_forward(module, q, k[:, :, :keys], v[:, :, :keys], None, position_bias=bias)[0]

    with torch.no_grad():
        first, again = out_of(bias), out_of(bias)
        assert len(copies) == 1
        assert torch.equal(first, again)
        assert torch.equal(first, out_of(bias.contiguous()))
        assert torch.equal(out_of(bias, 5), out_of(bias[..., :5].contiguous(), 5))
        bias += 1.0 + torch.arange(LENGTH)  # a copy of the old values must not be used
        assert torch.equal(out_of(bias), out_of(bias.contiguous()))
    with torch.inference_mode():
        inside = bias.clone(memory_format=torch.preserve_format)
        out_of(inside)
        inside.zero_()
        assert torch.equal(out_of(inside), out_of(torch.zeros(1, 4, LENGTH, LENGTH)))
    leaf = bias.detach().requires_grad_()
    before = len(copies)
    (out_of(leaf).sum() + out_of(leaf).square().sum()).backward()
    assert len(copies) == before + 2
    assert leaf.grad.isfinite().all()
    assert leaf.grad.abs().sum() > 0
