"""fa.plan for every operator, on shapes and on arrays, and its errors."""

import re

import numpy as np
import pytest
import torch
from array_calls import CALLS, run

import fa
from fa import _fa, _plan

B, N, NKV, S1, S2, D, K = 2, 8, 2, 64, 128, 32, 16
DENSE = (B, N, S1, D), (B, NKV, S2, D), (B, NKV, S2, D)
SPARSE = (B, S1, N, D), (B, S2, 1, D)
INDEX = {"query_index": (B, S1, 4, D), "key_index": (B, S2, 1, D), "weights": (B, S1, 4)}
STATISTICS = {"softmax_max": (B, 1, S1, N), "softmax_sum": (B, 1, S1, N)}
INDICES = {"sparse_indices": (B, S1, 1, K)}
ROWS = {"softmax_max_index": (B, 1, S1), "softmax_sum_index": (B, 1, S1)}
PARTIAL = [(B, N, S1, D), (B, N, S1), (B, N, S1)]
OF_SHAPES = {
    "forward": (DENSE, {"mask": fa.Mask.causal(), "sink": (N,), "dense_mask": (S1, S2)}),
    "backward": (DENSE, {"sink": (N,), "need_dsink": True}),
    "prompt": (DENSE, {"lengths_kv": [5, 128], "pse": (1, N, S1, S2)}),
    "decode": (((B, N, 1, D), (40, NKV, 16, D), (40, NKV, 16, D)), {"lengths_kv": (128, 30), "block_table": (B, 8)}),
    "infer": (((B * S1, N, D), (40, NKV, 16, D), (40, NKV, 16, D)), {
        "layout": "TND_NTD", "sparse_mode": 3, "lengths_q": [S1, 2 * S1], "lengths_kv": (128, 90), "block_table": (B, 8),
    }),
    "sparse-forward": ((*SPARSE, None), {**INDICES, "need_p_head_mean": True}),
    "sparse-backward": ((*SPARSE, None), INDICES),
    "shared-kv": (((B, S1, N, D), (B, S2, 1, D), (B, S2 // 4, 1, D)), {"cmp_indices": (B, S1, 1, K), "cmp_ratio": 4}),
    "shared-kv-backward": (
        ((B, S1, N, D), (B, S2, 1, D), (B, S2 // 4, 1, D)), {"cmp_indices": (B, S1, 1, K), "cmp_ratio": 4},
    ),
    "indexer": (tuple(INDEX.values()), {"sparse_count": K}),
    "indexer-backward": (tuple(INDEX.values()), INDICES),
    "indexer-kl-loss": (SPARSE, {**INDEX, **INDICES, **STATISTICS}),
    "dense-indexer-lse": (tuple(INDEX.values()), {}),
    "dense-indexer-kl-loss": (SPARSE, {**INDEX, **STATISTICS, **ROWS}),
    "indexer-loss-value": (((S1, K), (S1, K)), {}),
    "index-score": (((S1, N, D), (S2, 1, D)), {"lengths_q": [5, S1], "lengths_kv": [100, S2]}),
    "merge": (PARTIAL * 2, {"layout": "BNSD"}),
    "merge-lse": (([(S1,)] * 3, [(S1, D)] * 3), {"return_lse": True}),
    "scatter": (((S1, NKV, D), (S1, NKV, D), (S1,), (9, 16, NKV, D), (9, 16, NKV, D)), {}),
    "gather": (((9, NKV, 4, 16, 8), (9, NKV, 4, 16, 8), (B, 5), (B,)), {"rows": S1, "form": "NZ"}),
}
MOVES = "scatter", "gather"  # these operators compute nothing, so they have no FLOPs


def test_every_operator_is_there():
    assert set(OF_SHAPES) == set(_plan._OPERATORS) == set(_fa.OPERATORS)
    described = fa.plan.__doc__.partition("Args:")[2].partition("arrays, keywords")[0]
    assert set(re.findall(r'"([a-z-]+)"', described)) == set(_fa.OPERATORS)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("op", OF_SHAPES)
def test_plans_of_shapes(op, dtype):
    arrays, keywords = OF_SHAPES[op]
    plan = fa.plan(op, *arrays, dtype=dtype, context=fa.Context(threads=2), **keywords)
    words = {"indexer-kl-loss": "sparse KL loss", "dense-indexer-kl-loss": "dense KL loss"}
    assert plan.op == words.get(op, op.replace("-", " ")) and (plan.flops > 0) != (op in MOVES) and str(plan)
    if op != "merge":
        assert plan.workers <= 2 and plan.tasks > 0 and plan.kernels


@pytest.mark.parametrize("op", OF_SHAPES)
def test_plans_of_the_arrays_of_a_call_compute_nothing(op):
    name = _plan._OPERATORS[op].__name__
    arrays, keywords = CALLS[name]
    before = {argument: array.copy() for argument, array in arrays.items()}
    results = [result.copy() for result in run(name)]
    plan = fa.plan(op, **arrays, **keywords)
    assert (plan.flops > 0) != (op in MOVES)
    for argument, array in arrays.items():
        np.testing.assert_array_equal(array, before[argument])
    for got, want in zip(run(name), results, strict=True):
        np.testing.assert_array_equal(got, want)


def test_plans_of_tensors_and_lists_of_them():
    q, k = torch.zeros(2, 4, 1, D, dtype=torch.bfloat16), torch.zeros(1, 2, 300, D, dtype=torch.bfloat16)
    plan = fa.plan("decode", q, [k, k], (k, k), mask=fa.Mask.causal())
    assert plan.op == "decode" and plan.flops == 2 * 4 * 300 * 4 * D
    assert fa.plan("decode", (2, 4, 1, D), [(1, 2, 300, D)] * 2, [(1, 2, 300, D)] * 2, dtype="bf16").flops == plan.flops


def test_int8():
    scales = {name: (1,) for name in ("deq_scale1", "quant_scale1", "deq_scale2")}
    assert fa.plan("prompt", *DENSE, dtype="i8", **scales).op == "prompt"
    assert fa.plan("decode", *DENSE, dtype="bf16", antiquant_scale=(2,)).op == "decode"


@pytest.mark.parametrize(("op", "arrays", "keywords", "message"), [
    ("sideways", DENSE, {}, 'op="sideways", want one of forward, backward'),
    ("forward", DENSE, {"dtype": "f64"}, 'dtype="f64"'),
    ("decode", DENSE, {"lengths_kv": [3, 129]}, r"lengths_kv\[1\]=129"),
    ("prompt", (DENSE[0], DENSE[1], (B, NKV, S2 + 1, D)), {}, r"\bv\.shape\[2\]=129"),
    ("sparse-forward", (*SPARSE, None), {"sparse_indices": (B, S1 + 1, 1, K)}, "sparse_indices"),
    ("indexer", [*list(INDEX.values())[:2], (B, S1, 5)], {}, r"weights\.shape\[2\]=5"),
    ("merge", [*PARTIAL, *PARTIAL[:2], (B, N, S1 + 1)], {"layout": "BNSD"}, "cur_softmax_sum"),
])
def test_refusals_name_the_argument(op, arrays, keywords, message):
    with pytest.raises(ValueError, match=message):
        fa.plan(op, *arrays, **keywords)


def test_arguments_that_are_missing_or_unknown_are_named():
    with pytest.raises(TypeError, match="'v'"):
        fa.plan("decode", *DENSE[:2])
    with pytest.raises(TypeError, match="'colour'"):
        fa.plan("decode", *DENSE, colour=3)


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ends: np.array(ends, np.int32), torch.tensor])
def test_lengths_may_be_arrays(kind):
    q = np.zeros((6, 1, 8), np.float32)
    ends = kind([2, 6])
    plan = fa.plan("forward", q, q, q, layout="TND", cu_q=ends, cu_kv=ends)
    assert plan.flops == fa.plan("forward", q, q, q, layout="TND", cu_q=[2, 6], cu_kv=[2, 6]).flops
    decode = fa.plan("decode", (B, N, 1, D), (B, NKV, S2, D), (B, NKV, S2, D), lengths_kv=ends)
    assert decode.flops == fa.plan("decode", (B, N, 1, D), (B, NKV, S2, D), (B, NKV, S2, D), lengths_kv=[2, 6]).flops
