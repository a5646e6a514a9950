"""Sparse attention, the indexer and its loss in fa and fa.torch_npu, compared with float64. Also autograd and
opcheck."""

import inspect

import numpy as np
import pytest
import torch
from reference import ROUNDOFF, assert_no_worse_than_naive, assert_within, attention, bnsd, tolerances
from sparse_reference import counts, indexer_scores, indexer_size, kl_loss

import fa
import fa.torch_npu as torch_npu
from fa._torch import sparse_ops as _torch_sparse_ops

B, S1, S2, N, D, ROPE, K = 2, 24, 40, 8, 16, 8, 12
SCALE = (D + ROPE) ** -0.5
_TOKENS = "pre_tokens=9223372036854775807, next_tokens=9223372036854775807"
FACES = {
    "npu_sparse_flash_attention": "query, key, value, sparse_indices, scale_value, *, block_table=None, "
    "actual_seq_lengths_query=None, actual_seq_lengths_kv=None, query_rope=None, key_rope=None, sparse_block_size=1, "
    f"layout_query='BSND', layout_kv='BSND', sparse_mode=3, {_TOKENS}, attention_mode=0, return_softmax_lse=False, "
    "sinks=None",
    "npu_sparse_flash_attention_grad": "query, key, value, sparse_indices, d_out, out, softmax_max, softmax_sum, "
    "scale_value, sparse_block_size, query_rope=None, key_rope=None, actual_seq_qlen=None, actual_seq_kvlen=None, "
    f"layout='BSND', sparse_mode=3, {_TOKENS}, attention_mode=0, *, sinks=None",
    "npu_lightning_indexer": "query, key, weights, *, actual_seq_lengths_query=None, actual_seq_lengths_key=None, "
    f"block_table=None, layout_query='BSND', layout_key='BSND', sparse_count=2048, sparse_mode=3, {_TOKENS}, "
    "return_value=False",
    "npu_sparse_lightning_indexer_grad_kl_loss": "query, key, query_index, key_index, weights, sparse_indices, "
    "softmax_max, softmax_sum, scale_value, *, query_rope=None, key_rope=None, actual_seq_qlen=None, "
    f"actual_seq_klen=None, layout='BSND', sparse_mode=3, {_TOKENS}, sinks=None",
    "npu_lightning_indexer_grad": "query, key, dy, sparse_indices, weights, *, actual_seq_lengths_query=None, "
    f"actual_seq_lengths_key=None, layout='BSND', sparse_mode=3, {_TOKENS}",
    "npu_dense_lightning_indexer_softmax_lse": "query_index, key_index, weights, *, actual_seq_qlen=None, "
    f"actual_seq_klen=None, layout='BSND', sparse_mode=3, {_TOKENS}",
    "npu_dense_lightning_indexer_grad_kl_loss": "query, key, query_index, key_index, weights, softmax_max, softmax_sum, "
    "softmax_max_index, softmax_sum_index, scale_value, *, query_rope=None, key_rope=None, actual_seq_qlen=None, "
    f"actual_seq_klen=None, layout='BSND', sparse_mode=3, {_TOKENS}",
}


@pytest.mark.parametrize("name", FACES)
def test_signatures(name):
    signature = inspect.signature(getattr(torch_npu, name))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({FACES[name]})"


def tensors(dtype=torch.float32, **keywords):
    """Returns random query, key, query_rope and key_rope."""
    shapes = (B, S1, N, D), (B, S2, 1, D), (B, S1, N, ROPE), (B, S2, 1, ROPE)
    return [torch.randn(shape).to(dtype).requires_grad_(**keywords) for shape in shapes]


def selection(dtype=torch.int32):
    """Returns lists of random keys that the tokens may look at. One list names a key twice, one is empty, and one ends
    early."""
    indices = torch.full((B, S1, 1, K), -1)
    for b in range(B):
        for t in range(S1):
            keys = torch.randperm(S2 - S1 + t + 1)[:K]
            indices[b, t, 0, : len(keys)] = keys
    indices[0, 3, 0, 1] = indices[0, 3, 0, 0]
    indices[0, 5] = -1
    indices[1, 7, 0, 4] = -1
    return indices.to(dtype)


def dense(wide, count, requires_grad=False):
    """Returns q and k joined with their ropes, and v, as BNSD in float64. Also returns the keywords by which
    `attention` uses the selection."""
    q, k, q_rope, k_rope = (bnsd(t.detach().double(), "BSND", t.shape[2]) for t in wide)
    inputs = [torch.cat([q, q_rope], -1), torch.cat([k, k_rope], -1), k.clone()]
    keywords = {"scale": SCALE, "keep": (count > 0)[:, None], "bias": count.clamp_min(1).log()[:, None]}
    return [t.requires_grad_(requires_grad) for t in inputs], keywords


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", ["the key", "of its own"])
def test_attention_and_its_gradients(dtype, value):
    leaves = tensors(dtype)
    query, key, query_rope, key_rope = leaves
    v = key if value == "the key" else key.detach().clone().requires_grad_()
    indices = selection()
    out, top, total = torch_npu.npu_sparse_flash_attention(
        query, key, v, indices, SCALE, query_rope=query_rope, key_rope=key_rope, return_softmax_lse=True
    )
    d_out = torch.randn(out.shape).to(dtype)
    gradients = torch.autograd.grad(out, leaves if v is key else [*leaves, v], d_out)
    count = counts(indices, S2)
    inputs, keywords = dense(leaves, count, requires_grad=True)
    want, _, _ = attention(*inputs, **keywords)
    dq, dk, dv = torch.autograd.grad(want, inputs, bnsd(d_out, "BSND", N).double())
    bounds = tolerances(*inputs, bnsd(d_out, "BSND", N), dtype, **keywords)
    assert_within(bnsd(out, "BSND", N), want, bounds["out"], "out")
    if v is key:
        dk, bounds["dk"] = dk.clone(), bounds["dk"].clone()
        dk[..., :D] += dv
        bounds["dk"][..., :D] += bounds["dv"] + torch.finfo(dtype).eps * dk[..., :D].abs()
    else:
        assert_within(bnsd(gradients[4], "BSND", 1), dv, bounds["dv"], "dv")
    for i, (name, all_columns, heads) in enumerate([("dq", dq, N), ("dk", dk, 1)]):
        for got, columns in ((gradients[i], slice(0, D)), (gradients[i + 2], slice(D, None))):
            assert_within(bnsd(got, "BSND", heads), all_columns[..., columns], bounds[name][..., columns], name)
    empty = count.sum(-1) == 0
    assert top.shape == total.shape == (B, 1, S1, N)
    assert (out[empty] == 0).all() and (top[:, 0][empty] == 0).all() and (total[:, 0][empty] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sinks_and_their_gradient(dtype):
    leaves = tensors(dtype)
    query, key, query_rope, key_rope = leaves
    sinks = torch.randn(N, requires_grad=True)
    indices, v = selection(), key.detach().clone().requires_grad_()
    out, top, total = torch_npu.npu_sparse_flash_attention(
        query, key, v, indices, SCALE, query_rope=query_rope, key_rope=key_rope, return_softmax_lse=True, sinks=sinks
    )
    d_out = torch.randn(out.shape).to(dtype)
    gradients = torch.autograd.grad(out, [query, key, v, sinks], d_out)
    count = counts(indices, S2)
    inputs, keywords = dense(leaves, count, requires_grad=True)
    keywords["sink"] = sinks.detach().double().requires_grad_()
    want, want_top, want_total = attention(*inputs, **keywords)
    wanted = torch.autograd.grad(want, [*inputs, keywords["sink"]], bnsd(d_out, "BSND", N).double())
    bounds = tolerances(*inputs, bnsd(d_out, "BSND", N), dtype, **keywords)
    assert_within(bnsd(out, "BSND", N), want, bounds["out"], "out")
    assert_within(bnsd(gradients[0], "BSND", N), wanted[0][..., :D], bounds["dq"][..., :D], "dq")
    assert_within(bnsd(gradients[1], "BSND", 1), wanted[1][..., :D], bounds["dk"][..., :D], "dk")
    assert_within(bnsd(gradients[2], "BSND", 1), wanted[2], bounds["dv"], "dv")
    assert_within(gradients[3], wanted[3], bounds["dsink"], "dsink")
    lse, want_lse = top.double() + total.double().log(), want_top + want_total.log()
    assert torch.allclose(lse[:, 0].transpose(1, 2), want_lse, rtol=0, atol=(D + ROPE + S2) * 2**-20)
    empty = count.sum(-1) == 0
    assert empty.any() and (out[empty] == 0).all()
    assert (top[:, 0][empty] == sinks).all() and (total[:, 0][empty] == 1).all()


def test_sinks_of_arrays_and_of_the_loss():
    query, key, query_rope, key_rope = (t.detach().numpy() for t in tensors())
    sink, indices = np.linspace(-1, 2, N, dtype=np.float32), selection().numpy()
    call = {"query_rope": query_rope, "key_rope": key_rope, "scale": SCALE, "sink": sink}
    forward = fa.sparse_flash_attention(query, key, None, indices, **call, need_p_head_mean=True)
    probabilities = forward.p_head_mean.sum(-1)
    # Each head's probabilities add up to 1 minus its sink's probability, `taken`.
    taken = np.exp(sink - forward.softmax_max[:, 0]) / forward.softmax_sum[:, 0]
    np.testing.assert_allclose(probabilities, 1 - taken.mean(-1), rtol=0, atol=K * N * 2.0**-22)
    gradients = fa.sparse_flash_attention_grad(query, key, None, indices, *[forward.out] * 2, *forward[1:3], **call)
    leaves = [torch.from_numpy(t).requires_grad_() for t in (query, key, query_rope, key_rope, sink)]
    out, *_ = torch_npu.npu_sparse_flash_attention(
        leaves[0], leaves[1], leaves[1], torch.from_numpy(indices), SCALE, query_rope=leaves[2], key_rope=leaves[3],
        sinks=leaves[4]
    )
    wanted = torch.autograd.grad(out, leaves, out.detach())
    got = gradients.dq, gradients.dk, gradients.dq_rope, gradients.dk_rope, gradients.dsink
    for g, w in zip(got, wanted, strict=True):
        assert np.array_equal(g, w.numpy())
    own = [torch.from_numpy(t) for t in (query, key, indices, forward.out, *forward[1:3], query_rope, key_rope, sink)]
    of_face = torch_npu.npu_sparse_flash_attention_grad(
        own[0], own[1], None, own[2], own[3], own[3], *own[4:6], SCALE, 1, *own[6:8], sinks=own[8]
    )
    assert of_face[2] is None
    for g, w in zip(of_face[:2] + of_face[3:], got, strict=True):
        assert np.array_equal(g.numpy(), w)
    assert fa.sparse_flash_attention_grad(
        query, key, None, indices, *[forward.out] * 2, *forward[1:3], **{**call, "sink": None}
    ).dsink is None

    index = [t.detach() for t in indexer_tensors()]
    inputs = own[0], own[1], *index, own[2], *own[4:6]
    rope = {"query_rope": own[6], "key_rope": own[7]}
    of_sinks = torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(*inputs, SCALE, **rope, sinks=own[8])
    want = fa.sparse_lightning_indexer_grad_kl_loss(*inputs, scale=SCALE, **rope, sink=own[8])
    assert all(torch.equal(a, b) for a, b in zip(of_sinks, want, strict=True))
    # The statistics include the sinks and belong to the same lists as the loss. So the target adds up to 1, like the
    # target of "l1". Each of the two losses has rounding errors of K N probabilities.
    of_l1 = fa.sparse_lightning_indexer_grad_kl_loss(*inputs, scale=SCALE, **rope, target="l1")
    ignored = fa.sparse_lightning_indexer_grad_kl_loss(*inputs, scale=SCALE, **rope)
    bound = B * S1 * K * N * 2.0**-20
    assert abs(want.loss - of_l1.loss) <= bound < abs(want.loss - ignored.loss)
    with pytest.raises(ValueError, match=rf"sinks\.shape\[0\]=3, want {N} \(query\.shape\[2\]\)"):
        torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(*inputs, SCALE, **rope, sinks=torch.zeros(3))
    with pytest.raises(ValueError, match="sink: given together with p_head_mean"):
        fa.sparse_lightning_indexer_grad_kl_loss(
            *inputs, scale=SCALE, sink=own[8], p_head_mean=torch.from_numpy(forward.p_head_mean)
        )


def test_a_detached_value_has_no_gradient():
    query, key, *_ = tensors()
    indices, d_out = selection(), torch.randn(B, S1, N, D)

    def key_gradient(value):
        out, *_ = torch_npu.npu_sparse_flash_attention(query, key, value, indices, SCALE)
        return torch.autograd.grad(out, key, d_out)[0]

    assert torch.equal(key_gradient(key.detach()), key_gradient(key.detach().clone()))
    assert not torch.equal(key_gradient(key.detach()), key_gradient(key))


def test_gradcheck_on_emulated_float64():
    """Compares gradients of float32 calls with finite differences on float64 inputs. The inputs are positive, so ReLU
    changes no product."""
    wide = [torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in ((1, 3, 2, 4), (1, 5, 1, 4))]
    indices = torch.tensor([[2, 0, -1], [1, 1, 3], [4, 0, 2]], dtype=torch.int32)[None, :, None]

    def attend(query, key):
        return torch_npu.npu_sparse_flash_attention(query.float(), key.float(), key.float(), indices, 0.5)[0].double()

    torch.autograd.gradcheck(attend, wide, eps=1e-2, atol=3e-4, rtol=0)
    weights = torch.rand((1, 3, 2), dtype=torch.float64, requires_grad=True)

    def scores(query, key, weights):
        # The indexer chooses all keys. The test then sorts the keys and their scores by key.
        chosen, values = torch_npu.npu_lightning_indexer(
            query.float(), key.float(), weights.float(), sparse_count=5, sparse_mode=0, return_value=True
        )
        return values.gather(-1, chosen.long().argsort(-1)).double()

    torch.autograd.gradcheck(scores, [*wide, weights], eps=1e-2, atol=3e-4, rtol=0)


def test_the_grad_function_gives_autograd_s_bits():
    query, key, query_rope, key_rope = leaves = tensors()
    indices = selection()
    call = {"query_rope": query_rope, "key_rope": key_rope}
    out, top, total = torch_npu.npu_sparse_flash_attention(
        query, key, key, indices, SCALE, **call, return_softmax_lse=True
    )
    d_out = torch.randn_like(out)
    want = torch.autograd.grad(out, leaves, d_out)
    with torch.no_grad():
        dq, dk, dv, dq_rope, dk_rope = torch_npu.npu_sparse_flash_attention_grad(
            query, key, None, indices, d_out, out, top, total, SCALE, 1, **call
        )
    assert dv is None
    assert all(torch.equal(got, w) for got, w in zip((dq, dk, dq_rope, dk_rope), want, strict=True))


def test_arrays_of_numpy_blocks_lengths_and_packed_tokens():
    query, key, query_rope, key_rope = (t.detach().numpy() for t in tensors())
    blocks = np.full((B, S1, 1, 3), -1, np.int64)
    blocks[..., 0], blocks[..., 1] = 1, 0
    call = {"query_rope": query_rope, "key_rope": key_rope, "block_size": 8, "scale": SCALE}
    padded = fa.sparse_flash_attention(query, key, None, blocks, **call, lengths_q=[S1, 20], lengths_kv=[S2, 30])
    assert isinstance(padded.out, np.ndarray) and (padded.out[1, 20:] == 0).all()
    packed = fa.sparse_flash_attention(
        *(np.concatenate([t[0], t[1][:rows]]) for t, rows in ((query, 20), (key, 30))),
        None,
        np.concatenate([blocks[0], blocks[1][:20]]),
        **call
        | {
            "query_rope": np.concatenate([query_rope[0], query_rope[1][:20]]),
            "key_rope": np.concatenate([key_rope[0], key_rope[1][:30]]),
        },
        layout="TND",
        lengths_q=[S1, S1 + 20],
        lengths_kv=[S2, S2 + 30],
    )
    assert np.array_equal(packed.out, np.concatenate([padded.out[0], padded.out[1][:20]]))
    count = counts(torch.from_numpy(blocks[:1]), S2, block_size=8)
    inputs, keywords = dense([torch.from_numpy(t[:1]) for t in (query, key, query_rope, key_rope)], count)
    want, _, _ = attention(*inputs, **keywords)
    bounds = tolerances(*inputs, torch.zeros_like(want), torch.float32, **keywords)
    assert_within(bnsd(torch.from_numpy(padded.out[:1]), "BSND", N), want, bounds["out"], "out")


def indexer_tensors(dtype=torch.float32, heads=4, size=16, keys=S2):
    shapes = (B, S1, heads, size), (B, keys, 1, size), (B, S1, heads)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_indexer_and_its_gradients(dtype):
    leaves = indexer_tensors(dtype)
    indices, values = torch_npu.npu_lightning_indexer(*leaves, sparse_count=K, return_value=True)
    assert indices.dtype == torch.int32 and values.dtype == dtype and not indices.requires_grad
    wide = [t.detach().double().requires_grad_() for t in leaves]
    scores, size = indexer_scores(*wide), indexer_size(*wide)
    unit = torch.finfo(dtype).eps / 2 if dtype != torch.float32 else 0.0
    bound = ROUNDOFF * (4 * (16 * 4) ** 0.5 + 8) * size
    limit = (S2 - S1 + 1 + torch.arange(S1))[None, :, None]
    visible = torch.arange(S2)[None, None, :] < limit
    flat = indices[:, :, 0].long()
    assert (flat >= 0).all() and (flat < limit).all()
    picked = torch.gather(scores, -1, flat)
    assert_within(values[:, :, 0], picked, torch.gather(bound, -1, flat) + unit * picked.abs(), "values")
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, flat, True)
    assert (chosen.sum(-1) == K).all(), "a key stands twice"
    worst = torch.where(chosen, scores + bound, torch.inf).amin(-1)
    best = torch.where(visible & ~chosen, scores - bound, -torch.inf).amax(-1)
    assert (worst >= best).all()
    assert (picked[..., 1:] <= picked[..., :-1] + 2 * torch.gather(bound, -1, flat)[..., 1:]).all()

    d_values = torch.randn(values.shape).to(dtype)
    gradients = torch.autograd.grad(values, leaves, d_values)
    want = torch.autograd.grad(picked, wide, d_values[:, :, 0].double())
    magnitude = torch.autograd.grad(
        torch.gather(indexer_size(*(t.abs() for t in wide)), -1, flat),
        wide,
        d_values[:, :, 0].double().abs(),
    )
    for name, got, w, m in zip(("dq", "dk", "dweights"), gradients, want, magnitude, strict=True):
        sums = ROUNDOFF * (4 * (16 * K * S1) ** 0.5 + 8)
        # Some kernels round w * d_values once to `dtype` and others do not; here w is a weight of the indexer.
        assert_within(got, w, (sums + unit) * m.abs() + unit * w.abs(), name)


def test_the_indexer_s_gradient_as_a_function():
    leaves = indexer_tensors()
    lengths = {"actual_seq_lengths_query": [S1, 7], "actual_seq_lengths_key": [S2, 30]}
    indices, values = torch_npu.npu_lightning_indexer(*leaves, sparse_count=K, return_value=True, **lengths)
    d_values = torch.randn_like(values)
    want = torch.autograd.grad(values, leaves, d_values)
    query, key, weights = (t.detach() for t in leaves)
    got = torch_npu.npu_lightning_indexer_grad(query, key, d_values, indices, weights, **lengths)
    for g, w in zip(got, want, strict=True):
        assert torch.equal(g, w)
    for wrong, message in (
        ((query, key, d_values[:, 1:], indices, weights), r"dy\.shape"),
        ((query, key, d_values, indices, weights[:, 1:]), r"weights\.shape"),
    ):
        with pytest.raises(ValueError, match=message):
            torch_npu.npu_lightning_indexer_grad(*wrong, **lengths)
    with pytest.raises(ValueError, match='layout="BNSD"'):
        torch_npu.npu_lightning_indexer_grad(query, key, d_values, indices, weights, layout="BNSD")


def test_opcheck_of_the_dense_loss():
    query, key, query_index, key_index = (torch.randn(B, rows, n, D) for rows, n in ((S1, N), (S2, 1), (S1, 4), (S2, 1)))
    statistics = torch.rand(B, 1, S1, N), 1 + torch.rand(B, 1, S1, N), torch.rand(B, 1, S1), 1 + torch.rand(B, 1, S1)
    call = _torch_sparse_ops.DenseLossCall(
        query, key, query_index, key_index, torch.rand(B, S1, 4), *statistics, None, None, None, None, "BSND", SCALE, 3
    )
    torch.library.opcheck(_torch_sparse_ops.dense_indexer_loss, tuple(call))


def attention_and_indexer():
    """Returns the loss' arguments in float32, and its target p_head_mean. The tensors have 4096 elements or more."""
    keys = 260
    shapes = (B, S1, N, D), (B, keys, 1, D), (B, S1, 96, 16), (B, keys, 1, 16), (B, S1, 96)
    query, key, query_index, key_index, weights = (torch.randn(shape) for shape in shapes)
    # The loss clamps small probabilities, but its gradient does not. With these weights, the indexer has no such
    # probability.
    weights /= 32
    indices, _ = fa.lightning_indexer(query_index, key_index, weights, sparse_count=64)
    forward = fa.sparse_flash_attention(query, key, None, indices, scale=0.25, need_p_head_mean=True)
    inputs = query, key, query_index, key_index, weights, indices, forward.softmax_max, forward.softmax_sum
    return inputs, forward.p_head_mean


def loss_and_gradients(inputs, dtype):
    query, key, *index, indices, _, _ = inputs
    index = [t.to(dtype, copy=True).requires_grad_() for t in index]
    keys = key.shape[1]
    count = counts(indices, keys).to(dtype)
    attention_scores = torch.einsum("bthd,bsd->bths", query.to(dtype), key[:, :, 0].to(dtype)) * 0.25
    p = torch.softmax(torch.where((count > 0)[:, :, None], attention_scores, -torch.inf), -1).mean(2)
    loss = kl_loss(p, indexer_scores(*index), count)
    return [*torch.autograd.grad(loss, index), loss.detach().reshape(1)]


def loss_bound(inputs):
    """Returns a bound for the loss. A token's loss is a mean of ln p - ln y, weighted by p. Each of ln p and ln y is
    off by at most twice the error of the scores."""
    query, key, *index, _, _, _ = (t.double() for t in inputs)
    size = torch.einsum("bthd,bsd->bths", query.abs(), key[:, :, 0].abs()).max().item() * 0.25

    def total_error(n):
        return ROUNDOFF * (4 * n**0.5 + 8)

    per_token = 2 * (total_error(D) * size + total_error(96 * 16) * indexer_size(*index).max().item())
    return B * S1 * (per_token + 2 * total_error(64))


@pytest.mark.parametrize("given", ["statistics", "p_head_mean"])
def test_loss_and_its_gradients(given):
    inputs, p_head_mean = attention_and_indexer()
    keywords = {"p_head_mean": p_head_mean} if given == "p_head_mean" else {}
    got = fa.sparse_lightning_indexer_grad_kl_loss(*inputs, scale=0.25, **keywords)
    want, naive = loss_and_gradients(inputs, torch.float64), loss_and_gradients(inputs, torch.float32)
    # y - p is the gradient if p adds up to 1, which is true except for rounding.
    for name, g, w, n in zip(got._fields[:3], got, want, naive, strict=False):
        assert_no_worse_than_naive(g, w, n, 3, name)
    bound = loss_bound(inputs)
    assert got.loss.shape == (1,) and got.loss.item() == pytest.approx(want[3].item(), rel=0, abs=bound)
    face = torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(*inputs, 0.25)
    if given == "statistics":
        assert all(torch.equal(a, b) for a, b in zip(face, got, strict=True))
    mean = fa.sparse_lightning_indexer_grad_kl_loss(*inputs, scale=0.25, reduction="mean", target="l1", **keywords)
    assert mean.loss.item() == pytest.approx(want[3].item() / (B * S1), rel=0, abs=bound / (B * S1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_statistics_of_the_indexer_s_scores(dtype):
    leaves = indexer_tensors(dtype)
    query, key, weights = (t.detach() for t in leaves)
    rows, keys = query.shape[1], key.shape[1]
    want = fa.dense_lightning_indexer_softmax_lse(query, key, weights)
    arrays = [t.numpy() for t in (query, key, weights)] if dtype != torch.bfloat16 else None
    if arrays:
        for got, of_torch in zip(fa.dense_lightning_indexer_softmax_lse(*arrays), want, strict=True):
            assert np.array_equal(got, of_torch.numpy())
    got = torch_npu.npu_dense_lightning_indexer_softmax_lse(*leaves)
    assert all(torch.equal(a, b) and not a.requires_grad for a, b in zip(got, want, strict=True))
    _, values = fa.lightning_indexer(query, key, weights, sparse_count=keys)
    if dtype == torch.float32:
        assert torch.equal(want.softmax_max_index[:, 0], values[..., 0, 0])
    packed = [t.flatten(0, 1) for t in (query, key, weights)]
    ends = {f"actual_seq_{x}len": [size * (b + 1) for b in range(B)] for x, size in (("q", rows), ("k", keys))}
    for flat, whole in zip(
        torch_npu.npu_dense_lightning_indexer_softmax_lse(*packed, layout="TND", **ends), want, strict=True
    ):
        assert torch.equal(flat, whole.reshape(1, -1))
    short = fa.dense_lightning_indexer_softmax_lse(query, key, weights, lengths_q=[rows - 1] * B)
    assert all((statistic[:, 0, -1] == 0).all() for statistic in short)
    compiled = torch.compile(torch_npu.npu_dense_lightning_indexer_softmax_lse, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(query, key, weights), want, strict=True))
    mapped = torch.vmap(torch_npu.npu_dense_lightning_indexer_softmax_lse)(*(t[:, None] for t in (query, key, weights)))
    assert all(torch.equal(a[:, 0], b) for a, b in zip(mapped, want, strict=True))


def test_mistakes_of_statistics_are_named():
    query, key, weights = (t.detach() for t in indexer_tensors())
    with pytest.raises(ValueError, match=r"key_index\.shape\[2\]=2, want 1"):
        fa.dense_lightning_indexer_softmax_lse(query, key.expand(-1, -1, 2, -1), weights)
    with pytest.raises(ValueError, match=r"weights\.shape\[1\]"):
        torch_npu.npu_dense_lightning_indexer_softmax_lse(query, key, weights[:, 1:])
    with pytest.raises(ValueError, match="sparse_mode=4, want 0 or 3"):
        torch_npu.npu_dense_lightning_indexer_softmax_lse(query, key, weights, sparse_mode=4)
    with pytest.raises(ValueError, match='layout="BNSD", want BSND or TND'):
        torch_npu.npu_dense_lightning_indexer_softmax_lse(query, key, weights, layout="BNSD")
    with pytest.raises(ValueError, match="actual_seq_klen"):
        torch_npu.npu_dense_lightning_indexer_softmax_lse(query, key, weights, actual_seq_klen=[10**6] * B)


def test_the_dense_loss_is_that_of_all_keys():
    inputs, _ = attention_and_indexer()
    query, key, query_index, key_index, weights = inputs[:5]
    keys = key.shape[1]
    everything = torch.arange(keys, dtype=torch.int32).expand(B, S1, 1, keys).contiguous()
    forward = fa.sparse_flash_attention(query, key, None, everything, scale=0.25)
    inputs = query, key, query_index, key_index, weights, everything, forward.softmax_max, forward.softmax_sum
    want, naive = loss_and_gradients(inputs, torch.float64), loss_and_gradients(inputs, torch.float32)
    scores = indexer_scores(query_index.double(), key_index.double(), weights.double())
    limit = (keys - S1 + 1 + torch.arange(S1))[None, :, None]
    scores = torch.where(torch.arange(keys)[None, None, :] < limit, scores, -torch.inf)
    top = scores.amax(-1)
    total = (scores - top[..., None]).exp().sum(-1)
    statistics = fa.dense_lightning_indexer_softmax_lse(query_index, key_index, weights)
    size = indexer_size(query_index.double(), key_index.double(), weights.double()).max().item()
    score_error = ROUNDOFF * (4 * (96 * 16) ** 0.5 + 8) * size
    assert torch.allclose(statistics.softmax_max_index[:, 0].double(), top, rtol=ROUNDOFF, atol=score_error)
    assert torch.allclose(statistics.softmax_sum_index[:, 0].double(), total, rtol=3 * score_error + 64 * ROUNDOFF, atol=0)
    arguments = query, key, query_index, key_index, weights, forward.softmax_max, forward.softmax_sum, *statistics
    dense_loss = fa.dense_lightning_indexer_grad_kl_loss(*arguments, scale=0.25)
    for got, want_bits in zip(
        torch_npu.npu_dense_lightning_indexer_grad_kl_loss(*arguments, 0.25), dense_loss, strict=True
    ):
        assert torch.equal(got, want_bits)
    with pytest.raises(ValueError, match=r"softmax_max_index\.shape"):
        torch_npu.npu_dense_lightning_indexer_grad_kl_loss(*arguments[:7], top.float(), arguments[8], 0.25)
    with pytest.raises(ValueError, match="scale_value"):
        torch_npu.npu_dense_lightning_indexer_grad_kl_loss(*arguments, float("nan"))
    for name, g, w, n in zip(dense_loss._fields[:3], dense_loss, want, naive, strict=False):
        assert_no_worse_than_naive(g, w, n, 3, name)
    assert dense_loss.loss.item() == pytest.approx(want[3].item(), rel=0, abs=loss_bound(inputs))


def test_keys_in_pages_and_strided_queries_give_the_same_bits():
    query, key, query_rope, key_rope = (t.detach() for t in tensors())
    indices, page = selection(), 8
    want = fa.sparse_flash_attention(query, key, None, indices, query_rope=query_rope, key_rope=key_rope, scale=SCALE)
    table = torch.randperm(B * S2 // page).reshape(B, S2 // page).to(torch.int32)

    def paged(rows):
        pages = torch.empty(B * S2 // page, page, 1, rows.shape[-1])
        pages[table.reshape(-1).long()] = rows.reshape(-1, page, 1, rows.shape[-1])
        return pages

    lengths = {"actual_seq_lengths_kv": torch.full((B,), S2, dtype=torch.int32)}
    strided = query.transpose(1, 2).contiguous().transpose(1, 2)
    pages = paged(key)
    out, *statistics = torch_npu.npu_sparse_flash_attention(
        strided,
        pages,
        pages,
        indices,
        SCALE,
        query_rope=query_rope,
        key_rope=paged(key_rope),
        block_table=table,
        layout_kv="PA_BSND",
        return_softmax_lse=True,
        **lengths,
    )
    assert not strided.is_contiguous() and torch.equal(out, want.out)
    assert torch.equal(statistics[0], want.softmax_max) and torch.equal(statistics[1], want.softmax_sum)
    query, key, weights = (t.detach() for t in indexer_tensors())
    chosen, values = torch_npu.npu_lightning_indexer(query, key, weights, sparse_count=K, return_value=True)
    again = torch_npu.npu_lightning_indexer(
        query,
        paged(key),
        weights,
        sparse_count=K,
        block_table=table,
        layout_key="PA_BSND",
        actual_seq_lengths_key=lengths["actual_seq_lengths_kv"],
        return_value=True,
    )
    assert torch.equal(again[0], chosen) and torch.equal(again[1], values)


def test_any_number_of_threads_gives_the_same_bits():
    query, key, query_rope, key_rope = (t.detach() for t in tensors())
    indices, results = selection(), []
    for threads in (1, 3):
        context = fa.Context(threads=threads)
        call = {"query_rope": query_rope, "key_rope": key_rope, "context": context}
        forward = fa.sparse_flash_attention(query, key, None, indices, **call)
        out = forward.out
        grads = fa.sparse_flash_attention_grad(query, key, None, indices, out, out, *forward[1:3], **call)
        results.append([*forward[:3], *(g for g in grads if g is not None)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def detached(*arguments):
    return tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments)


def test_opcheck():
    query, key, query_rope, key_rope = tensors()
    lengths = torch.tensor([S1, 9], dtype=torch.int32), torch.tensor([S2, 30], dtype=torch.int32)
    call = _torch_sparse_ops.SparseCall(
        query_rope, key_rope, torch.randn(N, requires_grad=True), selection(), None, *lengths, "BSND", SCALE, block_size=1, sparse_mode=0
    )
    torch.library.opcheck(_torch_sparse_ops.sparse_attention, (query, key, None, *call))
    result = [t.detach() for t in _torch_sparse_ops.sparse_attention(query, key, None, *call)]
    shapes = ("test_schema", "test_faketensor")
    arguments = detached(query, key, None, result[0], torch.randn_like(result[0]), *result[1:], *call)
    torch.library.opcheck(_torch_sparse_ops.sparse_attention_backward, arguments, test_utils=shapes)
    # opcheck adds up all outputs of the graph that is differentiated ahead of time. It cannot add indices to values.
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    arguments = (*indexer_tensors(), None, None, None, "BSND", K, 3)
    torch.library.opcheck(_torch_sparse_ops.lightning_indexer, arguments, test_utils=utils)
    indices, values = _torch_sparse_ops.lightning_indexer(*arguments)
    arguments = detached(*arguments[:3], indices, torch.randn_like(values), None, None, "BSND", 3)
    torch.library.opcheck(_torch_sparse_ops.lightning_indexer_backward, arguments, test_utils=shapes)
    lse = (*indexer_tensors(), None, None, "BSND", 3)
    torch.library.opcheck(_torch_sparse_ops.dense_indexer_lse, lse, test_utils=shapes)
    inputs, _ = attention_and_indexer()
    loss = _torch_sparse_ops.LossCall(*inputs, None, None, torch.randn(N), None, None, "BSND", 0.25, 3)
    torch.library.opcheck(_torch_sparse_ops.sparse_indexer_loss, tuple(loss), test_utils=shapes)


def test_torch_compile_gives_eager_s_bits():
    """Compiles a step of a sparse model into one graph: the indexer chooses keys and attention reads them. Both have
    gradients."""
    query, key, query_rope, key_rope = tensors()
    indexer = indexer_tensors()

    def step(query, key, query_rope, key_rope, *indexer):
        indices, values = torch_npu.npu_lightning_indexer(*indexer, sparse_count=K, return_value=True)
        out, *_ = torch_npu.npu_sparse_flash_attention(
            query, key, key, indices, SCALE, query_rope=query_rope, key_rope=key_rope
        )
        return out.square().sum() + values.square().sum()

    leaves = [query, key, query_rope, key_rope, *indexer]
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    for eager, other in zip(*(torch.autograd.grad(f(*leaves), leaves) for f in (step, compiled)), strict=True):
        assert torch.equal(eager, other)


def test_messages_use_the_names_of_the_face():
    query, key, *_ = detached(*tensors())
    indices = selection()
    for keywords, message in (
        ({"sparse_block_size": 0}, "sparse_block_size=0"),
        ({"sparse_mode": 1}, "sparse_mode=1, want 0 or 3"),
        ({"actual_seq_lengths_kv": torch.tensor([S2, 99])}, r"actual_seq_lengths_kv\[1\]=99"),
        ({"sinks": torch.zeros(N + 1)}, rf"sinks\.shape\[0\]={N + 1}, want {N}"),
        ({"sinks": torch.zeros(N).half()}, r"sinks\.dtype=f16"),
    ):
        with pytest.raises(ValueError, match=message):
            torch_npu.npu_sparse_flash_attention(query, key, key, indices, SCALE, **keywords)
    bad = indices.clone()
    bad[1, 2, 0, 3] = S2
    with pytest.raises(ValueError, match=rf"sparse_indices\[1\]\[2\]\[0\]\[3\]={S2}"):
        torch_npu.npu_sparse_flash_attention(query, key, key, bad, SCALE)
    with pytest.raises(ValueError, match="target="):
        fa.sparse_lightning_indexer_grad_kl_loss(*[query] * 8, target="max")
