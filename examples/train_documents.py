#!/usr/bin/env python3
"""Trains a small GPT on packed documents with FlexAttention, which PyTorch cannot do on a CPU.

    pip install torch==2.13.0 ./python
    python examples/train_documents.py

The documents are the paragraphs of the licences in /usr/share/common-licenses, packed into rows of equal length. A
character looks only at earlier characters of its own document. A learned table adds a bias per head and distance.

The model trains on one thread and on two. The first gradients are compared with those of PyTorch's attention with a
dense mask and a dense bias. The exit status is 1 if any bit of the weights differs, the loss does not fall, or these
gradients differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import flex_attention as pytorchs
from train_gpt import GPT, read_text

import fa
from fa.torch import create_block_mask, flex_attention


class DocumentAttention(nn.Module):
    """Causal attention within documents, with a bias per head and distance."""

    def __init__(self, heads: int, context: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, context))
        self.dense = False

    def begin(self, names: Tensor) -> None:
        """Says which document each character of a batch [B, S] belongs to."""
        batch, rows = self.shape = names.shape

        def same_document(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            return (names[b, q_idx] == names[b, kv_idx]) & (q_idx >= kv_idx)

        self.mask = create_block_mask(same_document, batch, None, rows, rows)

    def add_bias(self, score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return score + self.table[h, (q_idx - kv_idx).clamp(min=0)]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        if not self.dense:
            return flex_attention(q, k, v, self.add_bias, self.mask)
        batch, rows = self.shape
        pairs = pytorchs.create_mask(self.mask.mask_mod, batch, 1, rows, rows, device="cpu")
        places = torch.arange(rows)
        bias = self.table[:, (places[:, None] - places).clamp(min=0)]
        return F.scaled_dot_product_attention(q, k, v, bias.masked_fill(~pairs, -torch.inf))


def packed(documents: list[list[int]], context: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns characters, names of documents, and places in the document, of rows [rows, context + 1]."""
    parts = [(code, name, place) for name, text in enumerate(documents) for place, code in enumerate(text)]
    rows = len(parts) // (context + 1)
    columns = torch.tensor(parts[: rows * (context + 1)]).view(rows, context + 1, 3)
    return columns[..., 0], columns[..., 1], columns[..., 2]


def loss_of(model: GPT, attention: DocumentAttention, rows: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Returns the mean loss of the characters that follow a character of the same document."""
    codes, names, places = rows
    attention.begin(names[:, :-1].contiguous())
    logits = model(codes[:, :-1], places[:, :-1])
    within = names[:, 1:] == names[:, :-1]
    return F.cross_entropy(logits[within], codes[:, 1:][within])


def made(args: argparse.Namespace, characters: int) -> tuple[GPT, DocumentAttention]:
    torch.manual_seed(args.seed)
    attention = DocumentAttention(args.heads, args.context)
    return GPT(args, characters, attention), attention


def train(args: argparse.Namespace, rows: tuple[Tensor, ...], characters: int) -> tuple[list[float], list[Tensor]]:
    model, attention = made(args, characters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    losses = []
    for _ in range(args.steps):
        chosen = torch.randint(len(rows[0]), (args.batch,))
        loss = loss_of(model, attention, tuple(t[chosen] for t in rows))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in model.parameters()]


def same_gradients(args: argparse.Namespace, rows: tuple[Tensor, ...], characters: int) -> bool:
    """Returns whether the first gradients are those of PyTorch's attention, up to rounding."""
    model, attention = made(args, characters)
    results = []
    for dense in (False, True):
        attention.dense = dense
        model.zero_grad()
        loss_of(model, attention, tuple(t[: args.batch] for t in rows)).backward()
        results.append([parameter.grad.clone() for parameter in model.parameters()])
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-3 * b.abs().max().item()) for a, b in zip(*results, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--text", type=Path, help="train on this file instead of Debian's licences")
    for name, value in {"steps": 60, "batch": 4, "context": 512, "layers": 4, "heads": 4, "width": 256, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = read_text(args.text)
    alphabet = {character: code for code, character in enumerate(sorted(set(text)))}
    documents = [[alphabet[c] for c in part[: args.context]] for part in text.split("\n\n") if part]
    rows = packed(documents, args.context)
    print(f"{len(documents)} documents in {len(rows[0])} rows of {args.context} characters")
    try:
        q = torch.zeros(1, 1, 8, 8, requires_grad=True)
        pytorchs.flex_attention(q, q, q)
    except NotImplementedError as error:
        print(f"PyTorch: {error}")
    same = same_gradients(args, rows, len(alphabet))
    runs = []
    for threads in (1, 2):
        fa.set_default_context(fa.Context(threads=threads))
        runs.append(train(args, rows, len(alphabet)))
    (losses, weights), (_, others) = runs
    bits = all(map(torch.equal, weights, others))
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    print(f"fa: the first gradients are {'' if same else 'NOT '}those of a mask of all pairs")
    print(f"fa: the weights have {'the same bits' if bits else 'NOT the same bits'} on one thread and on two")
    return 0 if same and bits and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
