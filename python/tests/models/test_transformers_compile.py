"""A compiled model is one graph, and gives the numbers of the model that is not compiled."""

from __future__ import annotations

import pytest
import torch
from hf_models import model_of, tokens
from transformers import StaticCache

LEFT = torch.tensor([[0] * 4 + [1] * 13, [1] * 17])


def _compiled(model):
    """Compiles a model, with attention, masks and autograd, into one graph. The backend "aot_eager" runs PyTorch's
    other operators unchanged."""
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "left"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "deepseek_v32", "minimax_m3_vl", "bert", "t5"])
def test_training_is_one_graph(name, padded):
    model = model_of(name)
    inputs = {"input_ids": tokens(2, 17)} | ({"attention_mask": LEFT} if padded else {})
    if name == "t5":
        inputs["decoder_input_ids"] = tokens(2, 5, seed=1)
    options = {} if name == "bert" else {"use_cache": False}
    kept = LEFT.bool() if padded and name != "t5" else ...
    results = []
    for run in (model, _compiled(model)):
        model.zero_grad()
        logits = run(**inputs, **options).logits[kept]
        logits.square().sum().backward()
        results.append((logits.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_packed_sequences_are_one_graph():
    model = model_of("mistral")
    positions = torch.cat([torch.arange(9), torch.arange(8)])[None]
    inputs = {"input_ids": tokens(1, 17), "position_ids": positions, "use_cache": False}
    with torch.no_grad():
        torch.testing.assert_close(_compiled(model)(**inputs).logits, model(**inputs).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "mistral", "deepseek_v32"])
def test_steps_on_a_cache_of_fixed_size_are_one_graph(name):
    """Runs the prompt and then steps. The steps after the first must not compile anything."""
    model = model_of(name)
    ids = tokens(2, 20)
    mask = torch.ones(2, 32, dtype=torch.int64)
    mask[0, :3] = 0
    with torch.no_grad():
        results = []
        for run in (model, _compiled(model)):
            cache = StaticCache(config=model.config, max_cache_len=32)
            logits = [model(ids[:, :16], attention_mask=mask[:, :16], past_key_values=cache).logits[:, -1:]]
            for step in range(16, 20):
                positions = torch.tensor([[step - 3], [step]])
                call = {"attention_mask": mask, "position_ids": positions, "past_key_values": cache}
                with torch._dynamo.config.patch(error_on_recompile=step > 17):
                    logits.append(run(ids[:, step : step + 1], **call).logits)
            results.append(torch.cat(logits, 1))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "mistral", "deepseek_v32"])
def test_padding_with_gaps_is_served(name):
    model = model_of(name)
    ids, mask = tokens(2, 19), torch.ones(2, 19, dtype=torch.int64)
    mask[0, 4:7] = mask[1, 0] = mask[1, 12] = 0
    inputs = {"attention_mask": mask, "use_cache": False}
    with torch.no_grad():
        got, want = (run(ids, **inputs).logits[mask.bool()] for run in (_compiled(model), model))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
