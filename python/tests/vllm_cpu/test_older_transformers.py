"""fa.transformers with the transformers of vLLM, which is older than that of the other tests."""

import pytest
import torch
import transformers

import fa.transformers  # noqa: F401  (registers "fa")

SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "pad_token_id": 0}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
WINDOWED = {"sliding_window": 8, "query_pre_attn_scalar": 16}


@pytest.mark.parametrize(("kind", "others"), [("LlamaConfig", {}), ("Gemma2Config", WINDOWED)])
def test_models_have_the_logits_and_tokens_of_eager(kind, others):
    """One prompt is padded on its left. Logits of two layers differ by some 100 roundings."""
    assert tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 23)
    ids, mask = torch.randint(1, 64, (2, 40)), torch.ones(2, 40, dtype=torch.int64)
    mask[0, :7] = 0
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**SMALL, **others)).eval()
    logits, tokens = {}, {}
    for name in ("eager", "fa"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            logits[name] = model(ids, attention_mask=mask).logits[mask.bool()]
        tokens[name] = model.generate(ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    bound = 100 * 2.0**-24 * logits["eager"].abs().max()
    assert (logits["fa"] - logits["eager"]).abs().max() <= bound
    assert torch.equal(tokens["fa"], tokens["eager"])
    assert fa.transformers.report(model).startswith(f"{type(model).__name__}: 18 calls of fa")
