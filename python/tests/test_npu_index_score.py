"""npu_msa_index_score and fa.indexer_kl_loss against their definitions in float64."""

import inspect

import numpy as np
import pytest
import torch

import fa
import fa.torch_npu as torch_npu
from fa._npu.index_score import CANN_OPS

SIGNATURE = (
    "(query, key, block_table, start_loc, *, scale=None, atten_mask=None, actual_seq_qlen=None, actual_seq_klen=None, "
    "layout_key='BBND', sparse_mode=3, init_blocks=0, local_blocks=1)"
)
N, D, BLOCK = 3, 32, 128
ROWS, KEYS = [5, 1, 40, 3, 0], [300, 129, 40, 2, 7]  # of the fourth sequence one query sees no key
TABLE = 4


def make_call(layout: str, dtype: torch.dtype, int8: bool = False):
    """Returns query, packed keys, their scales, and the arguments of the call. Unused pages hold 99, and their scales
    NaN.
    """
    torch.manual_seed(5)
    query, keys = torch.randn(sum(ROWS), N, D).to(dtype), torch.randn(sum(KEYS), 1, D)
    keys = (40 * keys).round().clamp(-127, 127).to(torch.int8) if int8 else keys.to(dtype)
    scale = torch.randn(sum(KEYS), 1) / 40
    sums = {"actual_seq_qlen": torch.tensor([0, *np.cumsum(ROWS)], dtype=torch.int32)}
    if layout == "TND":
        sums["actual_seq_klen"] = torch.tensor([0, *np.cumsum(KEYS)], dtype=torch.int32)
        return query, keys, scale, {"key": keys, "block_table": None, "scale": scale if int8 else None} | sums
    sums["actual_seq_klen"] = torch.tensor(KEYS, dtype=torch.int32)
    pages = torch.full((len(KEYS) * TABLE, BLOCK, 1, D), 99, dtype=keys.dtype)
    scales = torch.full((len(KEYS) * TABLE, BLOCK, 1), torch.nan)
    table = torch.full((len(KEYS), TABLE), -1, dtype=torch.int32)
    order, first, used = torch.randperm(len(pages)), 0, 0
    for b, length in enumerate(KEYS):
        for at in range(0, length, BLOCK):
            page, rows = int(order[used]), slice(first + at, first + min(at + BLOCK, length))
            count = rows.stop - rows.start
            pages[page, :count], scales[page, :count] = keys[rows], scale[rows]
            table[b, at // BLOCK], used = page, used + 1
        first += length
    if layout == "BNBD":
        pages, scales = pages.transpose(1, 2).contiguous(), scales.transpose(1, 2).contiguous()
    return query, keys, scale, {"key": pages, "block_table": table, "scale": scales if int8 else None} | sums


def expected(query, keys, start_loc, columns, sparse_mode=3, init=0, local=1):
    """Returns the scores of keys in the type of `keys`. The keys must be multiplied by their scales already."""
    score = torch.full((N, sum(ROWS), columns), -torch.inf, dtype=keys.dtype)
    token = first = 0
    for b, (rows, length) in enumerate(zip(ROWS, KEYS, strict=True)):
        blocks = -(-length // BLOCK)
        for t in range(rows):
            limit = length if sparse_mode == 0 else max(0, length - rows + t + 1)
            products = keys[first : first + limit, 0] @ query[token].to(keys.dtype).T
            for c in range(-(-limit // BLOCK)):
                score[:, token, c] = products[c * BLOCK : (c + 1) * BLOCK].amax(0)
            score[:, token, : min(init, blocks)] = 1e30
            score[:, token, max(0, start_loc[b] + 1 - local) : min(start_loc[b] + 1, blocks)] = 1e29
            token += 1
        first += length
    return score


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["TND", "BBND", "BNBD"])
def test_scores_are_their_definition(layout, dtype, int8):
    query, keys, scale, given = make_call(layout, dtype, int8)
    start_loc = torch.tensor([2, 1, 0, 0, 0])
    for sparse_mode, init, local in ((3, 0, 1), (0, 1, 0), (3, 1, 2)):
        options = {"sparse_mode": sparse_mode, "init_blocks": init, "local_blocks": local}
        mask = torch.zeros(2048, 2048, dtype=torch.int8) if sparse_mode == 3 else None
        got = torch_npu.npu_msa_index_score(
            query, start_loc=start_loc, layout_key=layout, atten_mask=mask, **given, **options
        )
        assert got.shape == (N, sum(ROWS), 16) and got.dtype == torch.float32
        scaled = keys.double() * (scale.double()[:, None] if int8 else 1)
        want = expected(query, scaled, start_loc.tolist(), 16, sparse_mode, init, local)
        # A float32 sum of D products, in any order, is off by at most D 2^-24 of the magnitudes. A scale adds one
        # rounding.
        most = (query.double().abs().amax() * scaled.abs().amax() * D).item()
        torch.testing.assert_close(got.double(), want, rtol=1e-7, atol=(D + 1) * 2**-24 * most)
        assert torch.equal(got, CANN_OPS["msa_index_score"](
            query, start_loc=start_loc, layout_key=layout.lower(), **{**given, **options}
        ))


def test_the_call_of_vllms_plugin():
    query, _, _, given = make_call("BBND", torch.bfloat16)
    start_loc = torch.tensor([2, 1, 0, 0, 0], dtype=torch.int32)
    pages = torch.full((2 * len(given["key"]), BLOCK, 1, D), 7, dtype=torch.bfloat16)
    pages[::2] = given["key"]  # the plugin's cache has a stride on its pages, and no dimension of heads
    lengths = {name: given[name] for name in ("actual_seq_qlen", "actual_seq_klen")}
    torch_npu.install(force=True)
    try:
        got = torch.ops._C_ascend.npu_msa_index_score(
            query, pages[::2].squeeze(2).unsqueeze(2), given["block_table"], start_loc,
            atten_mask=torch.ones(2048, 2048, dtype=torch.int8).triu(1), layout_key="BBND", sparse_mode=3, **lengths,
        )  # fmt: skip
    finally:
        torch_npu.uninstall()
    assert torch.equal(got, torch_npu.npu_msa_index_score(query, start_loc=start_loc, **given))
    assert torch.equal(got, torch_npu.npu_msa_index_score(
        query, start_loc=start_loc, **given | {"key": given["key"].squeeze(2)}
    ))


@pytest.mark.parametrize("rows", [16, 512])
def test_pages_of_another_size(rows):
    query, keys, _, given = make_call("TND", torch.float32)
    start_loc, first = torch.zeros(5, dtype=torch.int32), [0, *np.cumsum(KEYS)]
    want = torch_npu.npu_msa_index_score(query, start_loc=start_loc, layout_key="TND", **given)
    columns = 20  # pages of 512 rows have 80 blocks
    table = torch.arange(5 * columns, dtype=torch.int32).view(5, columns)
    pages = torch.full((5 * columns * rows, 1, D), torch.nan)
    for b, length in enumerate(KEYS):
        pages[b * columns * rows :][:length] = keys[first[b] : first[b] + length]
    got = torch_npu.npu_msa_index_score(
        query, pages.view(-1, rows, 1, D), table, start_loc, actual_seq_qlen=given["actual_seq_qlen"],
        actual_seq_klen=torch.tensor(KEYS),
    )  # fmt: skip
    assert got.shape[2] == (16 if rows == 16 else 80)
    assert torch.equal(got[..., :16], want) and (got[..., 16:] == -torch.inf).all()


def test_queries_and_keys_of_e4m3():
    query, _, _, given = make_call("BBND", torch.float32)
    query, pages = (x.to(torch.float8_e4m3fn) for x in (query, given["key"]))
    start_loc = torch.zeros(5, dtype=torch.int32)
    got = torch_npu.npu_msa_index_score(query, start_loc=start_loc, **given | {"key": pages})
    same = torch_npu.npu_msa_index_score(
        query.bfloat16(), start_loc=start_loc, **given | {"key": pages.bfloat16()}
    )
    assert torch.equal(got, same) and got.isfinite().any()


def test_signature():
    parameters = inspect.signature(torch_npu.npu_msa_index_score).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert str(inspect.Signature(plain)) == SIGNATURE


def test_compiled_and_without_contents():
    query, _, _, given = make_call("BBND", torch.float32)
    start_loc = torch.zeros(5, dtype=torch.int32)
    call = lambda q: torch_npu.npu_msa_index_score(q, start_loc=start_loc, **given)  # noqa: E731
    assert torch.equal(torch.compile(call, backend="aot_eager")(query), call(query))
    assert not call(query.requires_grad_()).requires_grad


ERRORS = {
    "scale: given, want none without key.dtype=i8": {"scale": torch.ones(20, 1, BLOCK)},
    "scale: missing, want it with key.dtype=i8": {"key": torch.zeros(20, BLOCK, 1, D, dtype=torch.int8)},
    'layout_key="PA_BSND", want TND, BBND or BNBD': {"layout_key": "PA_BSND"},
    "block_table: missing": {"block_table": None},
    "block_table: given, want None": {"layout_key": "TND"},
    "key.shape": {"layout_key": "BNBD"},
    "actual_seq_qlen: missing": {"actual_seq_qlen": None},
    "actual_seq_klen: missing": {"actual_seq_klen": None},
    "actual_seq_qlen=": {"actual_seq_qlen": torch.tensor([5, 6, 46, 49, 49])},
    "actual_seq_qlen[2]=4, want": {"actual_seq_qlen": torch.tensor([0, 5, 4, 46, 49, 49])},
    "actual_seq_klen[1]=600, want": {"actual_seq_klen": torch.tensor([300, 600, 40, 2, 7])},
    "start_loc has 2 entries, want 5": {"start_loc": torch.zeros(2, dtype=torch.int32)},
    "start_loc[0]=-1": {"start_loc": torch.tensor([-1, 0, 0, 0, 0])},
    "start_loc.dtype=torch.float32": {"start_loc": torch.zeros(5)},
    "sparse_mode=4, want 0 or 3": {"sparse_mode": 4},
    "atten_mask: given, want None": {"sparse_mode": 0, "atten_mask": torch.ones(2, 2)},
    "key.shape=[640,32], want 4 dimensions (layout_key)": {"key": torch.zeros(640, D)},
    "key.shape[2]=2, want 1": {"key": torch.zeros(20, BLOCK, 2, D)},
    "scale.shape=[20,1,127], want [20,1,128] or [20,128,1]": {
        "key": torch.zeros(20, 1, BLOCK, D, dtype=torch.int8), "layout_key": "BNBD", "scale": torch.ones(20, 1, 127)
    },
    "actual_seq_klen has 3 entries, want 6": {
        "key": torch.zeros(9, 1, D), "layout_key": "TND", "block_table": None,
        "actual_seq_klen": torch.tensor([0, 1, 9]),
    },
    "actual_seq_klen[5]=1099511627776, want": {
        "key": torch.zeros(9, 1, D), "layout_key": "TND", "block_table": None,
        "actual_seq_klen": torch.tensor([0, 1, 1, 1, 1, 2**40]),
    },
    "init_blocks=-1, want at least 0": {"init_blocks": -1},
    "local_blocks=-1, want at least 0": {"local_blocks": -1},
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_the_argument(text):
    query, _, _, given = make_call("BBND", torch.float32)
    arguments = {"query": query, "start_loc": torch.zeros(5, dtype=torch.int32)} | given | ERRORS[text]
    with pytest.raises(ValueError) as error:
        torch_npu.npu_msa_index_score(**arguments)
    assert f"invalid argument: {text}" in str(error.value)


@pytest.mark.parametrize("weight", ["target", "normalised"])
def test_the_value_of_a_loss(weight):
    rng = np.random.default_rng(2)
    y, probabilities = rng.random((7, 3, 40), np.float32), rng.random((7, 3, 40), np.float32)
    eps = 1e-4
    p = y / (y.sum(-1, keepdims=True, dtype=np.float64) + eps)
    factor = y if weight == "target" else p
    want = (factor * (np.log(np.maximum(p, eps)) - np.log(probabilities.astype(np.float64) + eps))).sum()
    got = fa.indexer_kl_loss(y, probabilities, eps=eps, weight=weight)
    np.testing.assert_allclose(got, [want], rtol=2**-24)  # terms are in double, and the sum is rounded once
    assert got.dtype == np.float32
    for argument, bad in (("weight", {"weight": "mean"}), ("eps", {"eps": -1.0})):
        with pytest.raises(ValueError, match=f"invalid argument: {argument}="):
            fa.indexer_kl_loss(y, probabilities, **bad)
