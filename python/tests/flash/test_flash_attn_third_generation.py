"""The interface of flash_attn 3, compared with attention by its definition."""

import random

import flash_reference
import pytest
import torch
from fa.flash_attn import flash_attn_interface, third_generation
from fa.flash_attn.third_generation import flash_attn_combine, flash_attn_func, flash_attn_varlen_func
from flash_cases import check, expected, random_case
from test_flash_attn import inputs, sums

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def own_options(case):
    """Returns the case's options that the functions of flash_attn 3 take."""
    return {name: case.options[name] for name in ("softmax_scale", "causal", "window_size", "softcap")}


def random_extras(case, shape):
    """Returns random (qv, sink, chunk). qv and sink may be None; chunk may be 0, which means no chunks."""
    qv = case.random(*shape, case.heads, case.dv) if random.random() < 0.5 else None
    sink = torch.randn(case.heads, requires_grad=True) if random.random() < 0.5 else None
    return qv, sink, random.choice((0, 0, 7))


@pytest.mark.parametrize("seed", range(20))
def test_fixed_lengths(seed):
    case = random_case(100 + seed, same_lengths=True, dropout=False)
    batch, sq, sk = len(case.lengths_q), case.lengths_q[0], case.lengths_k[0]
    q, k = case.random(batch, sq, case.heads, case.d), case.random(batch, sk, case.heads_kv, case.d)
    v = case.random(batch, sk, case.heads_kv, case.dv)
    qv, sink, chunk = random_extras(case, (batch, sq))
    name = random.choice(("learnable_sink", "s_aux"))
    keywords = {**own_options(case), "qv": qv, name: sink, "attention_chunk": chunk, "num_splits": 3}
    out, lse = flash_attn_func(q, k, v, **keywords, return_attn_probs=True)
    assert torch.equal(out, flash_attn_func(q, k, v, **keywords))

    def of(b, dtype):
        others = {"qv": None if qv is None else qv[b].to(dtype), "sink": sink, "chunk": chunk}
        return expected(case, dtype, q[b], k[b], v[b], None, None, **others)

    want = torch.stack([of(b, torch.float64)[1] for b in range(batch)])
    assert lse.shape == want.shape and torch.equal(torch.isinf(lse), torch.isinf(want))
    assert torch.allclose(lse.double(), want, rtol=1e-5, atol=1e-5)
    sources = [t for t in (q, k, v, qv, sink) if t is not None]
    reference = lambda dtype: torch.stack([of(b, dtype)[0] for b in range(batch)])
    check([out], sources, reference, torch.randn_like(out), str(case))


@pytest.mark.parametrize("seed", range(20))
def test_packed_sequences_of_which_rows_are_in_use(seed):
    case = random_case(200 + seed, same_lengths=False, dropout=False)
    cu_q, cu_k = sums(case.lengths_q), sums(case.lengths_k)
    batch, (total_q, total_k) = len(case.lengths_q), (int(cu_q[-1]), int(cu_k[-1]))
    used_q = [random.randint(0, length) for length in case.lengths_q]
    used_k = [random.randint(0, length) for length in case.lengths_k]
    q, k = case.random(total_q, case.heads, case.d), case.random(total_k, case.heads_kv, case.d)
    v = case.random(total_k, case.heads_kv, case.dv)
    qv, sink, chunk = random_extras(case, (total_q,))
    seqused = {}
    if random.random() < 0.7:
        seqused["seqused_q"] = torch.tensor(used_q).int()
    else:
        used_q = case.lengths_q
    if random.random() < 0.7:
        seqused["seqused_k"] = torch.tensor(used_k).int()
    else:
        used_k = case.lengths_k
    lengths = cu_q, cu_k, max(case.lengths_q), max(case.lengths_k)
    keywords = {**own_options(case), **seqused, "qv": qv, "learnable_sink": sink, "attention_chunk": chunk}
    out = flash_attn_varlen_func(q, k, v, *lengths, **keywords)

    def reference(dtype):
        rows = []
        for b in range(batch):
            q0, k0 = int(cu_q[b]), int(cu_k[b])
            q1, k1 = q0 + used_q[b], k0 + used_k[b]
            others = {"qv": None if qv is None else qv[q0:q1].to(dtype), "sink": sink, "chunk": chunk}
            rows.append(expected(case, dtype, q[q0:q1], k[k0:k1], v[k0:k1], None, None, **others)[0])
            rows.append(torch.zeros(case.lengths_q[b] - used_q[b], case.heads, case.dv, dtype=dtype))
        return torch.cat(rows)

    sources = [t for t in (q, k, v, qv, sink) if t is not None]
    check([out], sources, reference, torch.randn_like(out), str(case))


@pytest.mark.parametrize("packed", [False, True])
def test_combine(packed):
    parts, shape = 5, (14,) if packed else (2, 7)
    out_partial, lse_partial = torch.randn(parts, *shape, 4, 16), torch.randn(parts, *shape, 4)
    lse_partial[2:, :1] = -torch.inf
    lse_partial[:, :1, ..., 0] = -torch.inf
    out_partial[2:, :1] = torch.nan  # lse is -inf there, so these values must not be read
    out, lse = flash_attn_combine(out_partial, lse_partial)
    exact = lse_partial.double()
    want_lse = torch.logsumexp(exact, 0)
    share = torch.exp(exact - want_lse).nan_to_num(0.0)
    want = (share[..., None] * out_partial.double().nan_to_num(0.0)).sum(0)
    assert torch.allclose(lse.double(), want_lse, rtol=1e-6, atol=1e-6)
    assert torch.isfinite(out).all() and torch.allclose(out.double(), want, rtol=0, atol=4e-6)
    half, _ = flash_attn_combine(out_partial, lse_partial, out_dtype=torch.bfloat16)
    assert torch.equal(half, out.bfloat16())
    given = torch.empty_like(out)
    assert flash_attn_combine(out_partial, lse_partial, given)[0] is given and torch.equal(given, out)


def test_flash_attn_interface_serves_both_generations():
    q, k, v = inputs()
    both = flash_attn_interface.flash_attn_func
    assert len(both(q, k, v, return_attn_probs=True)) == 3
    assert len(both(q, k, v, return_attn_probs=True, num_splits=1)) == 2
    assert torch.equal(both(q, k, v, attention_chunk=7), flash_attn_func(q, k, v, attention_chunk=7))
    assert third_generation.get_scheduler_metadata(1, 2, 3) is None
    assert flash_attn_interface._get_block_size_n(q.device, 128, False, True) == 64


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"q_descale": torch.ones(1)}, "q_descale: given, want None"),
        ({"v_descale": torch.ones(1)}, "v_descale: given, want None"),
        ({"attention_chunk": -1}, "attention_chunk=-1"),
        ({"qv": torch.rand(2, 12, 4, 8)}, r"qv.shape\[3\]=8, want 16 \(v.shape\[-1\]\)"),
        ({"learnable_sink": torch.rand(3)}, r"learnable_sink.shape\[0\]=3, want 4"),
        ({"learnable_sink": torch.rand(4), "s_aux": torch.rand(4)}, "s_aux: given together with learnable_sink"),
        ({"q": torch.rand(2, 12, 4, 16).to(torch.float8_e4m3fn)}, "k.dtype=torch.float32, want torch.float8_e4m3fn"),
    ],
)
def test_bad_arguments_are_named(wrong, says):
    q, k, v = inputs()
    with pytest.raises(ValueError, match=f"^invalid argument: {says}"):
        flash_attn_func(**{"q": q, "k": k, "v": v, **wrong})


def test_bad_numbers_of_rows_in_use_are_named():
    q, k, v = (torch.rand(8, 2, 16) for _ in range(3))
    with pytest.raises(ValueError, match=r"^invalid argument: seqused_k\[1\]=6, want 0..5"):
        cu = sums([3, 5])
        flash_attn_varlen_func(q, k, v, cu, cu, 5, 5, seqused_k=torch.tensor([3, 6]).int())


def test_the_reference_is_attention_by_definition():
    q, k, v = (torch.randn(3, 1, 2, dtype=torch.float64) for _ in range(3))
    out, lse, probabilities = flash_reference.attention(q, k[:2], v[:2], causal=True)
    assert not out[0].any() and lse[0, 0] == -torch.inf  # row 0 lies before key 0, so it looks at no key
    assert torch.equal(out[1], v[0]) and probabilities[0, 1].tolist() == [1.0, 0.0]
