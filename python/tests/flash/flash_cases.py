"""Random calls of flash_attn's functions, and the results that flash_reference computes for them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import flash_reference
import torch
from flash_reference import FACTOR_GRAD, FACTOR_OUT, assert_as_exact_as_naive
from torch import Tensor

TYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass
class Case:
    """The options of a random call, under the names that flash_attn uses, and the sizes and type of its tensors."""

    dtype: torch.dtype
    heads: int
    heads_kv: int
    d: int
    dv: int
    options: dict[str, Any]
    slopes: str  # which alibi_slopes the call has: "" for none, "N" for [N], "BN" for [B, N]
    lengths_q: list[int]
    lengths_k: list[int]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def random(self, *shape: int) -> Tensor:
        """Returns a random tensor of this shape: contiguous or, half the time, a view of a larger tensor."""
        whole = torch.randn(*shape[:-1], shape[-1] + random.choice((0, 8)), dtype=self.dtype)
        return whole[..., : shape[-1]].detach().requires_grad_()

    def alibi_slopes(self, batch: int) -> Tensor | None:
        if not self.slopes:
            return None
        return torch.rand(self.heads) if self.slopes == "N" else torch.rand(batch, self.heads)


def random_case(seed: int, *, same_lengths: bool, dropout: bool = True) -> Case:
    random.seed(seed)
    torch.manual_seed(seed)
    heads_kv = random.choice((1, 2, 6))
    causal = random.random() < 0.4
    window = random.choice([(-1, -1), (-1, -1), (random.randint(0, 9), random.randint(0, 9)), (-1, 2), (5, -1)])
    options = {
        "dropout_p": random.choice((0.0, 0.0, 0.17)) if dropout else 0.0,
        "softmax_scale": random.choice((None, 0.3)),
        "causal": causal,
        "window_size": window,
        "softcap": random.choice((0.0, 0.0, 2.5)),
        "deterministic": random.random() < 0.5,
    }
    batch = random.randint(1, 4)
    shortest = 1 if same_lengths else 0
    lengths = [[random.randint(shortest, 40) for _ in range(batch)] for _ in range(2)]
    if same_lengths:
        lengths = [[own[0]] * batch for own in lengths]
    d = random.choice((8, 32, 40, 59, 64))
    return Case(
        dtype=random.choice(TYPES),
        heads=6,
        heads_kv=heads_kv,
        d=d,
        dv=random.choice((d, d, 24)),
        options=options,
        slopes=random.choice(("", "", "N", "BN")),
        lengths_q=lengths[0],
        lengths_k=lengths[1],
    )


def expected(case: Case, dtype: torch.dtype, q, k, v, slopes, kept, **others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the reference's results for one sequence. `kept` has the pairs that dropout keeps; None means all."""
    options = case.options
    return flash_reference.attention(
        *(t.to(dtype) for t in (q, k, v)),
        window=tuple(options["window_size"]),
        causal=options["causal"],
        scale=options["softmax_scale"],
        softcap=options["softcap"],
        slopes=slopes,
        kept_by_dropout=kept,
        dropout_p=options["dropout_p"],
        **others,
    )


def check(got: list[Tensor], sources: list[Tensor], reference: Any, d_out: Tensor | None, names: str = "") -> None:
    """Compares the output got[0], and its gradients for d_out, with reference(dtype). That function computes the output
    from `sources` in the type dtype."""
    want, naive = reference(torch.float64), reference(got[0].dtype)
    assert_as_exact_as_naive(got[0], want, naive, FACTOR_OUT, f"{names} out")
    if d_out is None:
        return
    own = torch.autograd.grad(got[0], sources, d_out)
    exact = torch.autograd.grad(want, sources, d_out.to(want.dtype))
    by_naive = torch.autograd.grad(naive, sources, d_out.to(naive.dtype))
    for i, gradients in enumerate(zip(own, exact, by_naive, strict=True)):
        assert_as_exact_as_naive(*gradients, FACTOR_GRAD, f"{names} gradient {i}")
