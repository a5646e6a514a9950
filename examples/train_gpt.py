#!/usr/bin/env python3
"""Trains a small GPT with fa's attention, forward and backward, and shows that it is reproducible to the bit.

    pip install torch==2.13.0 ./python
    python examples/train_gpt.py

The text is the licences in /usr/share/common-licenses, which every Debian machine has. Its tokens are characters. The
model trains four times from the same start. The first run uses PyTorch's own attention, to compare speed and loss. The
other three use fa on one thread, on two, and on two again. If their losses or final weights differ in any bit, the exit
status is 1.

--torch-threads is 1 for all runs, because PyTorch's own products may have other bits on more threads.

    torchrun --nproc-per-node 4 examples/train_gpt.py --context-parallel

trains on one process, and on four processes, each of which has a part of every sequence. In every step and layer,
attention and its gradients must have the bits of one process, or the exit status is 1. (Losses differ in the last
digits: gradients of weights are sums over the ranks.)
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import fa
from fa.torch import context_parallel as cp
from fa.torch import scaled_dot_product_attention

LICENCES = Path("/usr/share/common-licenses")
Attention = Callable[..., Tensor]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, attention: Attention) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        # [B, S, 3 N D] -> three of [B, N, S, D], views of the same memory
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(self.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, args: argparse.Namespace, characters: int, attention: Attention) -> None:
        super().__init__()
        self.token = nn.Embedding(characters, args.width)
        self.position = nn.Embedding(args.context, args.width)
        self.blocks = nn.Sequential(*(Block(args.width, args.heads, attention) for _ in range(args.layers)))
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, characters)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(positions))))


def read_text(path: Path | None) -> str:
    if path is not None:
        return path.read_text(encoding="utf-8", errors="replace")
    files = sorted(file for file in LICENCES.iterdir() if file.is_file() and not file.is_symlink())
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


@dataclass
class Run:
    losses: list[float]
    seconds: list[float]
    weights: str
    """SHA-256 of the final weights."""


class OneProcess:
    """A run in which this process has whole sequences."""

    def __init__(self, attention: Attention) -> None:
        self.attention = attention

    def own(self, window: Tensor) -> Tensor:
        """Returns the columns of a window [B, S] that this process has."""
        return window

    def summed(self, model: nn.Module, loss: Tensor) -> Tensor:
        """Returns the loss. After the backward, sums the gradients over all processes."""
        return loss


class ManyProcesses:
    """A run in which every process has a part of every sequence. It checks attention in every step."""

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, ...]] = []
        self.same = True

    def own(self, window: Tensor) -> Tensor:
        return cp.shard(window, 1)

    def attention(self, *tensors: Tensor, is_causal: bool) -> Tensor:
        tensors = tuple(t.contiguous() for t in tensors)
        out = cp.scaled_dot_product_attention(*tensors, is_causal=is_causal)
        for tensor in (*tensors, out):
            tensor.retain_grad()
        self.calls.append((*tensors, out))
        return out

    def summed(self, model: nn.Module, loss: Tensor) -> Tensor:
        for own in self.calls:
            *inputs, out, d_out = (cp.unshard(t.detach(), 2) for t in (*own, own[-1].grad))
            leaves = [t.requires_grad_() for t in inputs]
            want = scaled_dot_product_attention(*leaves, is_causal=True)
            gradients = torch.autograd.grad(want, leaves, d_out)
            pairs = zip((t.grad for t in own[:3]), gradients, strict=True)
            same = torch.equal(out, want) and all(torch.equal(t, cp.shard(g, 2)) for t, g in pairs)
            self.same = self.same and same
        self.calls.clear()
        for tensor in (loss, *(parameter.grad for parameter in model.parameters())):
            dist.all_reduce(tensor)
        return loss


def train(
    name: str, data: Tensor, characters: int, way: OneProcess | ManyProcesses, args: argparse.Namespace
) -> Run:
    torch.manual_seed(args.seed)
    model = GPT(args, characters, way.attention)
    positions = way.own(torch.arange(args.context)[None])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    losses, seconds = [], []
    for step in range(args.steps):
        starts = torch.randint(len(data) - args.context - 1, (args.batch,)).tolist()
        window = torch.stack([data[start : start + args.context + 1] for start in starts])
        began = time.perf_counter()
        logits, targets = model(way.own(window[:, :-1]), positions), way.own(window[:, 1:])
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / window[:, 1:].numel()
        optimizer.zero_grad()
        loss.backward()
        loss = way.summed(model, loss.detach())
        optimizer.step()
        seconds.append(time.perf_counter() - began)
        losses.append(loss.item())
        show_progress(name, step + 1, args.steps, losses[-1], statistics.median(seconds))
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return Run(losses, seconds, digest.hexdigest())


def show_progress(name: str, step: int, steps: int, loss: float, seconds: float) -> None:
    if not sys.stderr.isatty() or not name:
        return
    width = 30
    bar = "#" * (width * step // steps)
    left = seconds * (steps - step)
    numbers = f"{step}/{steps}  loss {loss:.4f}  {1e3 * seconds:.0f} ms/step  {left:.0f} s left "
    print(f"\r{name:22} [{bar:{width}}] {numbers}", end="\n" if step == steps else "", file=sys.stderr, flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small GPT with fa's attention, reproducibly.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--text", type=Path, help="train on this file instead of Debian's licences")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=512, help="characters a sequence")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument(
        "--context-parallel", action="store_true", help="every process of torchrun has a part of each sequence"
    )
    args = parser.parse_args()
    if args.steps < 1 or args.context < 1 or args.width % args.heads != 0:
        parser.error("want --steps and --context >= 1, and --width a multiple of --heads")
    return args


def train_on_all_ranks(data: Tensor, characters: int, args: argparse.Namespace) -> int:
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    many = ManyProcesses()
    name = f"{dist.get_world_size()} processes"
    own = train(name if first else "", data, characters, many, args)
    # The other processes wait, so that this run does not share the machine.
    one = train("1 process", data, characters, OneProcess(scaled_dot_product_attention), args) if first else None
    same = torch.tensor(int(many.same))
    dist.all_reduce(same, dist.ReduceOp.MIN)
    if first:
        print(f"{'step':>6}{'1 process':>14}{name:>14}")
        for step, losses in enumerate(zip(one.losses, own.losses, strict=True), 1):
            print(f"{step:6}" + "".join(f"{loss:14.6f}" for loss in losses))
        bits = "the bits of one process" if same.item() else "NOT the bits of one process"
        print(f"fa: attention and its gradients have {bits} in all steps and layers")
    dist.destroy_process_group()
    return 0 if same.item() else 1


def main() -> int:
    args = parse_args()
    torch.set_num_threads(args.torch_threads)
    text = read_text(args.text)
    alphabet = sorted(set(text))
    code = {character: i for i, character in enumerate(alphabet)}
    data = torch.tensor([code[character] for character in text])
    if args.context_parallel:
        return train_on_all_ranks(data, len(alphabet), args)
    print(f"{len(text)} characters, {len(alphabet)} different; {args.layers} layers of {args.heads} heads")

    runs = {"torch": train("torch", data, len(alphabet), OneProcess(F.scaled_dot_product_attention), args)}
    for name, threads in (("fa, 1 thread", 1), ("fa, 2 threads", 2), ("fa, 2 threads again", 2)):
        fa.set_default_context(fa.Context(threads=threads))
        runs[name] = train(name, data, len(alphabet), OneProcess(scaled_dot_product_attention), args)

    print(f"{'run':22}{'first loss':>12}{'last loss':>12}{'ms/step':>9}  final weights")
    for name, run in runs.items():
        step = 1e3 * statistics.median(run.seconds)
        print(f"{name:22}{run.losses[0]:12.6f}{run.losses[-1]:12.6f}{step:9.1f}  {run.weights[:16]}")
    first, *others = (run for name, run in runs.items() if name != "torch")
    same = all(run.losses == first.losses and run.weights == first.weights for run in others)
    print("fa: losses and final weights are " + ("the same bits in all runs" if same else "NOT the same in all runs"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
