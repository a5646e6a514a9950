"""Derivatives by torch.func, in forward mode, with create_graph and on several threads. Also vmap, which computes all
samples in one call."""

import ast
import threading
import warnings
from pathlib import Path

import pytest
import torch
from test_custom_ops import CALL
from torch._dynamo import compiled_autograd
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import fa
import fa.torch_npu as torch_npu
from fa._torch import operators as _torch_operators
from fa._torch import ops as _torch_ops
from fa._torch import sparse_ops as _torch_sparse_ops
from fa.flash_attn import flash_attn_with_kvcache
from fa.torch import scaled_dot_product_attention

V, B, N, S, D = 3, 2, 4, 12, 8


@pytest.fixture(autouse=True)
def _no_slow_fallback():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule")
        yield


def qkv(*leading, heads_kv=N, **keywords):
    return [torch.randn(*leading, heads, S, D, **keywords) for heads in (N, heads_kv, heads_kv)]


def loss(q, k, v, **keywords):
    return scaled_dot_product_attention(q, k, v, **keywords).square().sum()


def gradients(function, *leaves):
    leaves = [t.detach().requires_grad_() for t in leaves]
    return torch.autograd.grad(function(*leaves), leaves)


def assert_all_equal(got, want):
    assert len(got) == len(want) > 0
    for g, w in zip(got, want, strict=True):
        assert torch.equal(g, w)


def test_grad_and_vjp_are_backward():
    inputs = qkv(B)
    want = gradients(loss, *inputs)
    assert_all_equal(grad(loss, (0, 1, 2))(*inputs), want)
    out, pull = vjp(scaled_dot_product_attention, *inputs)
    assert_all_equal(pull(2 * out), want)


def test_gradients_of_each_sample_s_loss():
    model = torch.nn.Linear(D, 3 * D)
    parameters = dict(model.named_parameters())

    def sample_loss(parameters, x):
        q, k, v = functional_call(model, parameters, (x,)).unflatten(-1, (3, 1, D)).permute(1, 2, 0, 3)
        return loss(q, k, v, is_causal=True)

    samples = torch.randn(V, S, D)
    got = vmap(grad(sample_loss), (None, 0))(parameters, samples)
    for i, x in enumerate(samples):
        want = torch.autograd.grad(sample_loss(parameters, x), list(parameters.values()))
        for name, w in zip(parameters, want, strict=True):
            bound = 16 * 2**-24 * S * D * w.abs().max().item()  # vmap's matrix product adds in another order
            assert not ((got[name][i] - w).abs().max() > bound)


def test_forward_mode_is_refused_not_wrong():
    q, k, v = qkv(B)
    with pytest.raises(NotImplementedError, match="fa::attention: forward-mode"):
        jvp(lambda q: scaled_dot_product_attention(q, k, v), (q,), (q,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="fa::attention: forward-mode"):
        scaled_dot_product_attention(q, forward_ad.make_dual(k, k), v)
    with forward_ad.dual_level():  # no argument has a tangent, so forward mode is not needed
        assert torch.equal(scaled_dot_product_attention(q, k, v), scaled_dot_product_attention(q, k, v))
    for refused in (
        lambda q: torch_npu.npu_prompt_flash_attention(q, k, v, num_heads=N, input_layout="BNSD"),
        lambda q: torch_npu.npu_fusion_attention_grad(
            q, k, v, v, N, "BNSD", softmax_max=statistics, softmax_sum=statistics, attention_in=v
        ),
    ):
        statistics = torch.ones(B, N, S, 8)
        with pytest.raises(NotImplementedError, match="forward-mode"):
            jvp(refused, (q,), (q,))


def test_functions_of_arrays_refuse_tangents_too():
    q, k, v = qkv(B)
    with forward_ad.dual_level():
        with pytest.raises(ValueError, match="q: has a tangent, want none"):
            fa.flash_attention(forward_ad.make_dual(q, q), k, v)
        bias = forward_ad.make_dual(torch.zeros(1, N, S, S), torch.ones(1, N, S, S))
        with pytest.raises(ValueError, match="pse: has a tangent, want none"):
            fa.flash_attention(q, k, v, pse=bias)
        fa.flash_attention(q, k, v)


def test_create_graph_gives_first_derivatives_and_says_that_there_are_no_second():
    q, k, v = (t.requires_grad_() for t in qkv(B))
    want = gradients(loss, q, k, v)
    got = torch.autograd.grad(loss(q, k, v), (q, k, v), create_graph=True)
    assert_all_equal(got, want)
    with pytest.raises(NotImplementedError, match="fa::attention_backward: there is no second derivative"):
        got[0].sum().backward()
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad(lambda q: grad(loss)(q, k, v).sum())(q.detach())
    with pytest.raises(NotImplementedError, match="forward-mode"):
        hessian(loss)(q.detach(), k, v)


def test_what_has_no_gradient_says_so():
    q, k, v = qkv(B)
    out = torch_npu.npu_prompt_flash_attention(q.requires_grad_(), k, v, num_heads=N, input_layout="BNSD")
    with pytest.raises(NotImplementedError, match="fa::prompt_attention: there is no gradient"):
        out.sum().backward()
    partial = _torch_ops.attention(q.detach(), k, v, *CALL._replace(heads=N))
    merged = _torch_ops.merge(partial[0].requires_grad_(), *partial[1:], *partial, None, "BNSD", False)
    with pytest.raises(NotImplementedError, match="fa::ring_attention_update: there is no gradient"):
        merged[0].sum().backward()


def test_threads_walk_one_graph():
    leaves = [t.requires_grad_() for t in qkv(B)]
    mask = torch.randn(S, S, requires_grad=True)
    total = loss(*leaves, attn_mask=mask)
    want = torch.autograd.grad(total, [*leaves, mask], retain_graph=True)
    failures = []

    def walk():
        try:
            for _ in range(20):
                assert_all_equal(torch.autograd.grad(total, [*leaves, mask], retain_graph=True), want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=walk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (None, 0, None), (1, 3, 2), (None, 1, 0)], ids=str)
@pytest.mark.parametrize("heads_kv", [N, 1])
def test_vmap_is_one_call(in_dims, heads_kv, monkeypatch):
    samples = [qkv(B, heads_kv=heads_kv) for _ in range(V)]
    inputs = [
        samples[0][i] if dim is None else torch.stack([s[i] for s in samples], dim) for i, dim in enumerate(in_dims)
    ]
    each = [[t if dim is None else t.select(dim, i) for t, dim in zip(inputs, in_dims)] for i in range(V)]
    want = [gradients(loss, *sample) for sample in each]
    want_out = torch.stack([scaled_dot_product_attention(*sample) for sample in each], 2)
    calls = []
    forward = fa._attention._fa.forward
    monkeypatch.setattr(fa._attention._fa, "forward", lambda *a: (calls.append(1), forward(*a))[1])
    assert torch.equal(vmap(scaled_dot_product_attention, in_dims, 2)(*inputs), want_out)
    assert len(calls) == 1
    assert_all_equal(vmap(grad(loss, (0, 1, 2)), in_dims)(*inputs), [torch.stack(g) for g in zip(*want)])
    assert len(calls) == 2
    outside = gradients(lambda *t: vmap(loss, in_dims)(*t).sum(), *inputs)
    for got, dim, *parts in zip(outside, in_dims, *want, strict=True):
        expected = sum(parts) if dim is None else torch.stack(parts, dim)
        assert torch.allclose(got, expected, rtol=0, atol=V * 2**-22 * expected.abs().max().item())


def test_vmap_within_vmap_and_jacobians():
    q, k, v = qkv(V, 2)
    nested = vmap(vmap(scaled_dot_product_attention), in_dims=(1, 1, 1), out_dims=1)(q, k, v)
    assert torch.equal(nested, scaled_dot_product_attention(q, k, v))
    q, k, v = q[0, 0, :1, :3], k[0, 0, :1], v[0, 0, :1]
    jacobian = jacrev(scaled_dot_product_attention)(q, k, v)
    for row in range(3):
        for column in range(D):
            (want,) = gradients(lambda q: scaled_dot_product_attention(q, k, v)[0, row, column], q)
            assert torch.equal(jacobian[0, row, column], want)


def test_batched_gradients_of_autograd():
    q, k, v = (t.requires_grad_() for t in qkv(B))
    out = scaled_dot_product_attention(q, k, v)
    d_out = torch.randn(V, *out.shape)
    got = torch.autograd.grad(out, (q, k, v), d_out, is_grads_batched=True, retain_graph=True)
    want = zip(*(torch.autograd.grad(out, (q, k, v), d, retain_graph=True) for d in d_out), strict=True)
    assert_all_equal(got, [torch.stack(g) for g in want])


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_compiled_autograd(dropout_p):
    leaves = [t.requires_grad_() for t in qkv(B)]
    out = scaled_dot_product_attention(*leaves, dropout_p=dropout_p)
    want = torch.autograd.grad(out.square().sum(), leaves, retain_graph=True)
    with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        out.square().sum().backward()
    assert_all_equal([t.grad for t in leaves], want)


def test_randomness_of_dropout():
    q, k, v = qkv()
    same = q.expand(V, -1, -1, -1)

    def dropped(q):
        return scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    out = vmap(dropped, randomness="same")(same)
    assert all(torch.equal(out[0], other) for other in out[1:])
    out = vmap(dropped, randomness="different")(same)
    assert not any(torch.equal(out[0], other) for other in out[1:])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(dropped)(same)


def with_masks(**shapes):
    return {name: (lambda shape=shape: torch.rand(shape) < 0.3) for name, shape in shapes.items()}


# Calls of one sample: {name: (layout, functions that make tensors of the Call, other fields of the Call)}.
CALLS = {
    "BNSD": ("BNSD", {}, {}),
    "BSND": ("BSND", {}, {"statistics": "rows"}),
    "BSH": ("BSH", {}, {}),
    "SBH": ("SBH", {}, {}),
    "mask of all": ("BNSD", with_masks(dense_mask=(S, S)), {}),
    "mask of one": ("BNSD", with_masks(dense_mask=(1, 1, S, S)), {}),
    "mask by batch": ("BSND", with_masks(dense_mask=(B, 1, S, S)), {}),
    "mask by head": ("BSH", with_masks(dense_mask=(B, N, S, S)), {}),
    "shared bias": ("BNSD", {"pse": lambda: torch.randn(1, N, S, S)}, {"pse_type": 0}),
    "bias of a row": ("BSH", {"pse": lambda: torch.randn(B, N, 1, S)}, {}),
    "slopes": ("BNSD", {"pse": lambda: torch.rand(N)}, {"pse_type": 2}),
    "slopes by batch": ("SBH", {"pse": lambda: torch.rand(B, N)}, {"pse_type": 3, "q_start": 3}),
    "prefix": ("BNSD", {}, {"sparse_mode": 5, "prefix": [3, 7]}),
    "dropout": ("BSND", {"dropout_state": lambda: torch.randint(99, (2,))}, {"keep_prob": 0.5}),
    "drop mask": (
        "BNSD",
        {"drop_mask": lambda: torch.randint(256, (B * N * S * S // 8,), dtype=torch.uint8)},
        {"keep_prob": 0.5},
    ),
    "sink": ("BNSD", {"sink": lambda: torch.randn(N)}, {}),
    "sink, mask, biases": (
        "BNSD",
        {
            "sink": lambda: torch.randn(N),
            "pse": lambda: torch.randn(1, N, S, S),
            **with_masks(dense_mask=(B, 1, S, S)),
        },
        {},
    ),
    "sink, slopes": ("BSH", {"sink": lambda: torch.randn(N), "pse": lambda: torch.rand(N)}, {"pse_type": 2}),
    "sink, dropout": (
        "SBH",
        {"sink": lambda: torch.randn(N), "dropout_state": lambda: torch.randint(99, (2,))},
        {"keep_prob": 0.5},
    ),
    "TND": ("TND", {}, {"cu_q": [9, 24], "cu_kv": [9, 24], "statistics": "by_sequence"}),
    "compressed mask": (
        "BNSD",
        {"dense_mask": lambda: torch.ones(2048, 2048, dtype=torch.bool).triu(1)},
        {"sparse_mode": 2},
    ),
}
SHAPES = {
    "BNSD": (B, N, S, D),
    "BSND": (B, S, N, D),
    "BSH": (B, S, N * D),
    "SBH": (S, B, N * D),
    "TND": (B * S, N, D),
}


@pytest.mark.parametrize("vmapped", ["all", "qkv", "others", "d_out"])
@pytest.mark.parametrize("name", CALLS)
def test_rules_of_attention(name, vmapped):
    """Under vmap, the operators give the bits of one call per sample."""
    layout, makers, settings = CALLS[name]
    call = CALL._replace(layout=layout, heads=N, pse_type=1, **{k: v for k, v in settings.items() if k != "pse_type"})
    call = call._replace(pse_type=settings.get("pse_type", 1))

    def vary(make, varies):
        return torch.stack([make() for _ in range(V)], 1) if varies else make()

    inputs = [vary(lambda: torch.randn(SHAPES[layout]), vmapped in ("all", "qkv")) for _ in range(3)]
    others = {name: vary(make, vmapped in ("all", "others")) for name, make in makers.items()}
    call = call._replace(**others)
    call_dims = _torch_ops.Call(*(None for _ in call))
    if vmapped in ("all", "others"):
        call_dims = call_dims._replace(**dict.fromkeys(others, 1))
    dims = [1 if vmapped in ("all", "qkv") else None] * 3

    def sample(arguments, in_dims, i):
        return [a if dim is None else a.select(dim, i) for a, dim in zip(arguments, in_dims, strict=True)]

    arguments, in_dims = [*inputs, *call], [*dims, *call_dims]
    each = [_torch_ops.attention(*sample(arguments, in_dims, i)) for i in range(V)]
    if any(dim is not None for dim in in_dims):
        got = vmap(_torch_ops.attention, tuple(in_dims))(*arguments)
        assert_all_equal(got, [torch.stack(r) for r in zip(*each)])

    d_out = torch.randn(V, *each[0][0].shape)
    results = [torch.stack(r) for r in zip(*each)]
    result_dims = (0, 0, 0)
    if vmapped == "d_out":
        results, result_dims = each[0], (None, None, None)
    needs = call.pse is not None, call.sink is not None
    arguments = [*inputs, results[0], d_out, *results[1:], *needs, *call]
    in_dims = [*dims, result_dims[0], 0, *result_dims[1:], None, None, *call_dims]
    each = [_torch_ops.attention_backward(*sample(arguments, in_dims, i)) for i in range(V)]
    got = vmap(_torch_ops.attention_backward, tuple(in_dims))(*arguments)
    for place, (g, w) in enumerate(zip(got, (torch.stack(r) for r in zip(*each)), strict=True)):
        assert g.shape == w.shape
        if place == 5:  # With vmap, the gradient of a shared bias sums over the batch in another order.
            assert torch.allclose(g, w, rtol=0, atol=B * 2**-22 * max(1.0, w.abs().amax().item() if w.numel() else 0))
        else:
            assert torch.equal(g, w)


def sparse_inputs():
    q = torch.randn(V, B, S, 2, 16)
    k = torch.randn(V, B, S, 1, 16)
    indices = torch.stack([torch.randperm(S)[:5] for _ in range(V * B * S)]).view(V, B, S, 1, 5).int()
    return q, k, indices


def stacked(function, *arguments):
    results = [function(*sample) for sample in zip(*arguments, strict=True)]
    return [torch.stack(same) for same in zip(*results, strict=True)]


@pytest.mark.parametrize("layout", ["BSND", "TND"])
def test_rules_of_sparse_attention(layout):
    q, k, indices = sparse_inputs()
    lengths = torch.full((B,), S)
    if layout == "TND":
        q, k, indices = (t.flatten(1, 2) for t in (q, k, indices))
        lengths = lengths.cumsum(0)

    def attend(q, k, indices):
        return torch_npu.npu_sparse_flash_attention(
            q,
            k,
            None,
            indices,
            0.3,
            layout_query=layout,
            layout_kv=layout,
            actual_seq_lengths_query=lengths,
            actual_seq_lengths_kv=lengths,
            sparse_mode=0,
            return_softmax_lse=True,
        )

    assert_all_equal(vmap(attend)(q, k, indices), stacked(attend, q, k, indices))
    pull = grad(lambda q, k, indices: attend(q, k, indices)[0].square().sum(), (0, 1))
    assert_all_equal(vmap(pull)(q, k, indices), stacked(pull, q, k, indices))
    assert_all_equal(vmap(pull, (0, None, 0))(q, k[0], indices), stacked(pull, q, [k[0]] * V, indices))


def test_rules_of_the_indexer_and_its_loss():
    q, k, indices = sparse_inputs()
    weights = torch.rand(V, B, S, 2)

    def index(q, k, weights):
        return torch_npu.npu_lightning_indexer(q, k, weights, sparse_count=4, return_value=True)

    def value_sum(q, k, weights):
        values = index(q, k, weights)[1]
        return values.masked_fill(values == -torch.inf, 0).square().sum()

    assert_all_equal(vmap(index)(q, k, weights), stacked(index, q, k, weights))
    pull = grad(value_sum, (0, 1, 2))
    assert_all_equal(vmap(pull)(q, k, weights), stacked(pull, q, k, weights))

    def kl(q, k, indices, weights):
        _, top, total = _torch_sparse_ops.sparse_attention(q, k, None, *sparse_call(indices))
        return torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(
            q, k, q, k, weights, indices, top, total, 0.3, sparse_mode=3
        )

    def sparse_call(indices):
        settings = {"layout": "BSND", "scale": 0.3, "block_size": 1, "sparse_mode": 3}
        nothing = dict.fromkeys(_torch_sparse_ops.SparseCall._fields)
        return _torch_sparse_ops.SparseCall(**nothing | settings | {"sparse_indices": indices})

    assert_all_equal(vmap(kl)(q, k, indices, weights), stacked(kl, q, k, indices, weights))


@pytest.mark.parametrize("layout", ["SBH", "TND"])
def test_rule_of_the_merge(layout):
    out = torch.randn(2, V, *((S, B, N * D) if layout == "SBH" else (S, N, D)))
    statistics = torch.rand(2, 2, V, *((B, N, S, 8) if layout == "SBH" else (S, N, 8))) + 0.5
    arguments = (out[0], *statistics[0], out[1], *statistics[1])
    for softmax_layout in ("", "TND"):

        def merge(*tensors):
            return torch_npu.npu_ring_attention_update(
                *tensors,
                actual_seq_qlen=torch.tensor([0, 5, S]),
                input_layout=layout,
                input_softmax_layout=softmax_layout,
            )

        assert_all_equal(vmap(merge)(*arguments), stacked(merge, *arguments))


@pytest.mark.parametrize("vmapped_mask", [False, True])
def test_rule_of_prompt_attention(vmapped_mask):
    inputs = [torch.randn(V, B, N, S, D) for _ in range(3)]
    masks = torch.rand(V, S, S) < 0.3

    def prompt(q, k, v, mask):
        return (
            torch_npu.npu_prompt_flash_attention(
                q, k, v, num_heads=N, input_layout="BNSD", atten_mask=mask, sparse_mode=1, actual_seq_lengths=[5, 9]
            ),
        )

    if vmapped_mask:
        assert_all_equal(vmap(prompt)(*inputs, masks), stacked(prompt, *inputs, masks))
    else:
        want = stacked(prompt, *inputs, [masks[0]] * V)
        assert_all_equal(vmap(prompt, (0, 0, 0, None))(*inputs, masks[0]), want)


def test_every_operator_is_registered_whole():
    """The function that registers an operator also registers a rule of vmap. Every operator must be registered by this
    function."""
    operators = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("fa::")}
    assert len(operators) > 12
    assert {operator.name() for operator in _torch_operators._KERNELS} == operators


def test_operators_that_compute_all_samples_at_once():
    """Checks which operators have their own rule of vmap, which computes all samples in one call, and which refuse vmap.
    The others compute one sample after another."""
    rules = {
        node.name: keyword.value
        for path in Path(_torch_operators.__file__).resolve().parents[1].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for made in node.decorator_list
        if isinstance(made, ast.Call)
        for keyword in made.keywords
        if keyword.arg == "vmap"
    }
    refusing = {name for name, rule in rules.items() if isinstance(rule, ast.Name) and rule.id == "_refuse"}
    assert refusing == {"forward", "backward"}  # the forward and the backward of flex_attention
    ruled = rules.keys() - refusing
    sparse = {"sparse_attention", "sparse_attention_backward", "dense_indexer_lse"}
    indexers = {"lightning_indexer", "lightning_indexer_backward"}
    assert ruled == {"attention", "attention_backward", "merge", "prompt_attention", "dropout_bits", *sparse, *indexers}


@pytest.mark.parametrize("dim", [0, 1, 3])
def test_vmapped_caches_are_written_in_place(dim):
    q, k, v = (torch.randn(V, B, 1, N, D) for _ in range(3))
    before = [torch.randn(V, B, S, N, D) for _ in range(2)]

    def step(q, k_cache, v_cache, k, v):
        return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=4, causal=True)

    one_by_one = [t.clone() for t in before]
    want = torch.stack([step(q[i], *(t[i] for t in one_by_one), k[i], v[i]) for i in range(V)])
    caches = [t.movedim(0, dim).clone(memory_format=torch.contiguous_format) for t in before]
    assert torch.equal(vmap(step, (0, dim, dim, 0, 0))(q, *caches, k, v), want)
    for cache, w, b in zip(caches, one_by_one, before, strict=True):
        assert torch.equal(cache.movedim(dim, 0), w) and not torch.equal(w, b)
    shared = [t[0].clone() for t in before]
    with pytest.raises(RuntimeError, match="writes k_cache in place, which all samples share"):
        vmap(step, (0, None, None, 0, 0))(q, *shared, k, v)
    assert all(torch.equal(t, b[0]) for t, b in zip(shared, before, strict=True))


def test_torch_compile_of_per_sample_gradients():
    inputs = qkv(V, B)
    function = vmap(grad(loss, (0, 1, 2)))
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert_all_equal(compiled(*inputs), function(*inputs))


@pytest.mark.parametrize("shared", [False, True])
def test_no_samples_are_computed(shared):
    q, k, v = (t.requires_grad_() for t in qkv(0, B))
    k = qkv(B, requires_grad=True)[1] if shared else k
    dims = (0, None if shared else 0, 0)
    out = vmap(scaled_dot_product_attention, dims)(q, k, v)
    assert out.shape == (0, B, N, S, D)
    assert_all_equal(torch.autograd.grad(out.sum(), (q, k, v)), [torch.zeros_like(t) for t in (q, k, v)])
    dq, dk = vmap(grad(loss, (0, 1)), dims)(q, k, v)
    assert dq.shape == out.shape and dk.shape == (0, B, N, S, D)


def test_no_samples_of_every_way_are_computed():
    q = torch.zeros(0, B, N, S, D)
    out, top, _, _, _, _, _ = vmap(
        lambda q: (*torch_npu.npu_fusion_attention(q, q, q, N, "BNSD", keep_prob=0.5)[:4], q, q, q), randomness="same"
    )(q)
    assert out.shape == (0, B, N, S, D) and top.shape == (0, B, N, S, 8)
    partial = torch.zeros(0, S, B, 8), *[torch.zeros(0, B, 1, S, 8)] * 2
    merged = vmap(torch_npu.npu_ring_attention_update)(*partial, *partial)
    assert [t.shape for t in merged] == [(0, S, B, 8), *[(0, B, 1, S, 8)] * 2]
    prompt = vmap(lambda q: torch_npu.npu_prompt_flash_attention(q, q, q, num_heads=N, input_layout="BNSD"))(q)
    assert prompt.shape == q.shape
    indices = torch.zeros(1, 4, 1, 2, dtype=torch.int32)
    rows = torch.zeros(0, 1, 4, 1, 8)
    out = vmap(lambda q: torch_npu.npu_sparse_flash_attention(q, q, q, indices, 1.0, sparse_mode=0)[0])(rows)
    assert out.shape == rows.shape


@pytest.mark.parametrize("batch", [1, 2])
def test_sinks_per_row_under_vmap(batch):
    q, k, v = torch.randn(3, 3, 2, 4, 9, 16)
    sinks = torch.randn(3, batch, 4, 9)

    def out(q, k, v, sink):
        return torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", sink=sink)[0]

    def gradient(*arguments):
        return torch.func.grad(lambda *own: out(*own).square().sum(), 3)(*arguments)

    assert torch.equal(vmap(out)(q, k, v, sinks), torch.stack([out(*own) for own in zip(q, k, v, sinks, strict=True)]))
    shared = vmap(gradient, (0, 0, 0, None))(q, k, v, sinks[0])
    alone = torch.stack([gradient(*own, sinks[0]) for own in zip(q, k, v, strict=True)])
    # Without vmap, a sum over batch elements is rounded once. Under vmap, it is rounded after each element.
    assert (shared - alone).abs().max() <= 4 * 2**-24 * shared.abs().max()
