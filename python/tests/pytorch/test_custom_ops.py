"""The registered operators under opcheck, with fake tensors and under torch.compile."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fa.torch_npu as torch_npu
from fa._torch import ops as _torch_ops
from fa.torch import scaled_dot_product_attention

B, N, S, D = 2, 2, 12, 8
CALL = _torch_ops.Call(
    query_rope=None,
    key_rope=None,
    pse=None,
    dense_mask=None,
    drop_mask=None,
    dropout_state=None,
    sink=None,
    layout="BNSD",
    heads=N,
    scale=0.3,
    sparse_mode=1,
    pre_tokens=0,
    next_tokens=0,
    prefix=[],
    cu_q=[],
    cu_kv=[],
    pse_type=1,
    q_start=0,
    kv_start=0,
    keep_prob=1.0,
    statistics="copies",
)


def qkv(**keywords):
    return [torch.randn(B, N, S, D, **keywords) for _ in range(3)]


CALLS = {
    "plain": lambda: CALL,
    "rows": lambda: CALL._replace(statistics="rows", sparse_mode=2),
    "biases": lambda: CALL._replace(
        pse=torch.randn(B, N, S, S, requires_grad=True),
        sink=torch.randn(N, requires_grad=True),
        dense_mask=torch.rand(S, S) < 0.3,
    ),
    "dropout": lambda: CALL._replace(dropout_state=torch.tensor([3, 4]), keep_prob=0.5),
    "split heads": lambda: CALL._replace(
        query_rope=torch.randn(B, N, S, 4, requires_grad=True), key_rope=torch.randn(B, N, S, 4, requires_grad=True)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck_of_attention(name):
    torch.library.opcheck(_torch_ops.attention, (*qkv(requires_grad=True), *CALLS[name]()))


@pytest.mark.parametrize("layout", ["BSND", "BSH", "SBH"])
def test_fake_shapes_of_other_layouts(layout):
    shape = {"BSND": (B, S, N, D), "BSH": (B, S, N * D), "SBH": (S, B, N * D)}[layout]
    inputs = [torch.randn(shape) for _ in range(3)]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(_torch_ops.attention, (*inputs, *CALL._replace(layout=layout)), test_utils=checks)


def test_opcheck_of_packed_sequences():
    inputs = [torch.randn(S, N, D, requires_grad=True) for _ in range(3)]
    call = CALL._replace(layout="TND", cu_q=[5, 12], cu_kv=[5, 12], statistics="by_sequence")
    torch.library.opcheck(_torch_ops.attention, (*inputs, *call))


def test_opcheck_of_the_backward():
    q, k, v = qkv()
    call = CALL._replace(sink=torch.randn(N))
    out, top, total = _torch_ops.attention(q, k, v, *call)
    arguments = (q, k, v, out, torch.randn_like(out), top, total, False, True, *call)
    torch.library.opcheck(_torch_ops.attention_backward, arguments, test_utils=("test_schema", "test_faketensor"))


def test_opcheck_of_the_merge():
    q, k, v = qkv()
    result = _torch_ops.attention(q, k, v, *CALL)
    arguments = (*result, *result, None, "BNSD", False)
    torch.library.opcheck(_torch_ops.merge, arguments, test_utils=("test_schema", "test_faketensor"))


def test_fake_tensors_run_through_forward_and_backward():
    with FakeTensorMode():
        q, k, v = qkv(requires_grad=True)
        out, top, *_ = torch_npu.npu_fusion_attention(q, k, v, N, "BNSD")
        assert out.shape == (B, N, S, D) and top.shape == (B, N, S, 8)
        out.sum().backward()
        assert q.grad.shape == q.shape
        assert scaled_dot_product_attention(q, k, v, dropout_p=0.5).shape == q.shape


def test_meta_tensors_have_shapes():
    q, k, v = qkv(device="meta")
    assert scaled_dot_product_attention(q, k, v, is_causal=True).shape == (B, N, S, D)


def model(q, k, v, mask):
    x = scaled_dot_product_attention(q * 2, k, v, is_causal=True)
    x = x + scaled_dot_product_attention(q, k, v, mask)
    return x + torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", scale=0.3)[0]


def test_torch_compile_gives_eager_s_bits():
    """Compiles the whole function into one graph. The backend "aot_eager" differentiates it ahead of time and needs no
    C++ compiler."""
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    mask = torch.randn(S, S)
    results = []
    for function in (model, compiled):
        torch.manual_seed(3)
        leaves = qkv(requires_grad=True)
        out = function(*leaves, mask)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for eager, other in zip(*results, strict=True):
        assert torch.equal(eager, other)


def test_torch_compile_with_dropout_and_changing_sizes():
    def dropped(q, k, v):
        return scaled_dot_product_attention(q, k, v, dropout_p=0.5).sum()

    compiled = torch.compile(dropped, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (12, 17, 23):
        leaves = [torch.randn(B, N, size, D, requires_grad=True) for _ in range(3)]
        compiled(*leaves).backward()
        assert all(torch.isfinite(t.grad).all() and t.grad.shape == t.shape for t in leaves)
