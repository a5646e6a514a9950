"""Checks which keywords the installed transformers pass to attention functions, by reading their sources. The tests
fail if a version passes other keywords."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import transformers

import fa.transformers
from fa._model.support import HARMLESS

MODELS = Path(transformers.__file__).parent / "models"
SOURCES = sorted(MODELS.glob("*/modeling_*.py"))

# Keywords in calls of `attention_interface` in the sources. Any other keyword comes from the caller of a model.
SERVED = set(inspect.signature(fa.transformers.attention_forward).parameters) - {"others"}
PASSED = set(
    """
    attention_mask block_indices cu_seq_lens_k cu_seq_lens_q deterministic dropout indices is_causal key max_length_k
    max_length_q output_attentions position_bias position_ids query s_aux scaling sinks sliding_window softcap value
    """.split()
)

# Models whose sources compare _attn_implementation with the name of an implementation.
COMPARING = """
    axk2 decision_transformer deepseek_v32 diffusion_gemma dots3_note falcon gemma4 gemma4_unified glm5_next glm_moe_dsa
    gpt2 hy_v4 minimax_m3_vl mistral_large4 qwen2_5_omni timm_backbone timm_wrapper
"""


def _calls(source: str) -> list[ast.Call]:
    """Returns the calls of attention_interface in a source. Only the text of the calls is parsed, because parsing the
    whole source takes ten times as long."""
    calls = []
    for match in re.finditer(r"\battention_interface\(", source):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        calls.append(ast.parse(source[match.start() : end], mode="eval").body)
    return calls


def test_keywords_of_attention_functions_are_known():
    passed = {k.arg for path in SOURCES for call in _calls(path.read_text()) for k in call.keywords if k.arg}
    assert passed == PASSED
    assert passed <= SERVED | HARMLESS


def test_models_that_ask_for_the_name_of_the_attention_are_known():
    pattern = re.compile(r"_attn_implementation\s*(==|!=|in\b|not in\b)")
    assert {path.parent.name for path in SOURCES if pattern.search(path.read_text())} == set(COMPARING.split())
