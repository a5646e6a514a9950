"""Small calls that one function of the extension computes completely. No tensor is copied, no call runs with another
call's plan, and the bits are those of the general functions."""

import gc
import threading

import pytest
import torch
import torch.nn.functional as F

import fa
from fa import _fa
from fa._torch import engine as _torch_engine
from fa.flash_attn import flash_attn_func, flash_attn_interface
from fa.torch import decode_attention, scaled_dot_product_attention

B, N, L, S, E = 2, 4, 5, 7, 16


def qkv(rows=L, keys=S, heads_kv=N, dtype=torch.float32):
    return [torch.randn(B, *size, E).to(dtype) for size in ((N, rows), (heads_kv, keys), (heads_kv, keys))]


class Spy:
    """Replaces functions of the extension. For each call that returned a result, `read` has the data pointers of the
    call's tensors. A call of the general functions is an error."""

    def __init__(self, monkeypatch, *names):
        self.read = []
        for name in names:
            monkeypatch.setattr(_fa, name, self._wrapped(getattr(_fa, name)))
        for name in ("forward", "backward", "decode"):
            monkeypatch.setattr(_fa, name, self._refuse)

    def _wrapped(self, function):
        def call(*arguments):
            result = function(*arguments)
            if result is not None:
                self.read.append([t.data_ptr() for t in arguments if isinstance(t, torch.Tensor)])
            return result

        return call

    def _refuse(self, *_):
        raise AssertionError("the general way was taken")


def in_memory_by_row(t):
    return t.transpose(1, 2).contiguous().transpose(1, 2)


def slice_of_a_cache(t):
    cache = torch.full((B, t.shape[1], 3 * S, E), torch.nan, dtype=t.dtype)
    cache[:, :, : t.shape[2]] = t
    return cache[:, :, : t.shape[2]]


def part_of_a_projection(t):
    return torch.stack([t.transpose(1, 2)] * 3, 2)[:, :, 1].transpose(1, 2)


PLACES = [torch.clone, in_memory_by_row, slice_of_a_cache, part_of_a_projection]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inference_reads_tensors_where_they_lie(place, dtype, monkeypatch):
    inputs = [place(t) for t in qkv(dtype=dtype)]
    want = scaled_dot_product_attention(*(t.contiguous() for t in inputs))
    spy = Spy(monkeypatch, "attend")
    assert torch.equal(scaled_dot_product_attention(*inputs), want)
    by_row = [t.transpose(1, 2) for t in inputs]
    for function in (flash_attn_func, flash_attn_interface.flash_attn_func):
        assert torch.equal(function(*by_row).transpose(1, 2), want)
    assert spy.read == [[t.data_ptr() for t in inputs]] * 3


@pytest.mark.parametrize("heads_kv", [1, 2])
def test_heads_of_groups_are_read_where_they_lie(heads_kv, monkeypatch):
    q, k, v = qkv(heads_kv=heads_kv)
    calls = [lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True)]
    if heads_kv == 1:
        expanded = [t.expand(-1, N, -1, -1) for t in (k, v)]
        calls.append(lambda: scaled_dot_product_attention(q, *expanded))
    with monkeypatch.context() as patch:
        patch.setattr(_fa, "attend", lambda *_: None)
        want = [call() for call in calls]
    spy = Spy(monkeypatch, "attend")
    assert all(torch.equal(call(), w) for call, w in zip(calls, want, strict=True))
    assert spy.read == [[t.data_ptr() for t in (q, k, v)]] * len(calls)


@pytest.mark.parametrize("shape", [(L, S), (B, 1, 1, S), (1, N, L, S), (1, S), (L, 1)])
def test_masks_stay_broadcast(shape, monkeypatch):
    """A mask that is the same for several heads or rows is not copied for each of them."""
    q, k, v = qkv()
    mask = torch.rand(shape) < 0.7
    want = scaled_dot_product_attention(q, k, v, mask.expand(B, N, L, S).contiguous())
    sizes = []

    def noting(function):
        def noted(*arguments):
            result = function(*arguments)
            if result is not None:
                sizes.append(arguments[3].untyped_storage().nbytes())
            return result

        return noted

    for name in ("attend", "attend_masked"):
        monkeypatch.setattr(_fa, name, noting(getattr(_fa, name)))
    for given in (mask, mask.expand(B, N, L, S)):
        assert torch.equal(scaled_dot_product_attention(q, k, v, given), want)
    columns = S if shape[-1] == 1 else 1  # the call copies a mask whose innermost dimension is broadcast
    assert sizes == [mask.numel() * columns] * 2


@pytest.mark.parametrize("shape", [(S,), (L, S), (1, S), (B, 1, 1, S), (1, N, L, S), (B, N, 1, S), (B, N, L, S)])
@pytest.mark.parametrize("kind", ["bool", "bias", "bias of the type"])
def test_masks_of_inference_take_one_step(shape, kind, monkeypatch):
    q, k, v = qkv(dtype=torch.bfloat16, heads_kv=2)
    mask = torch.rand(shape) < 0.7 if kind == "bool" else torch.randn(shape)
    mask = mask.bfloat16() if kind == "bias of the type" else mask
    with monkeypatch.context() as patch:
        patch.setattr(_fa, "attend_masked", lambda *_: None)
        want = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    spy = Spy(monkeypatch, "attend_masked")
    assert torch.equal(scaled_dot_product_attention(q, k, v, mask, enable_gqa=True), want)
    assert [read[:3] for read in spy.read] == [[t.data_ptr() for t in (q, k, v)]]
    assert kind == "bool" or spy.read[0][3] == mask.data_ptr()


@pytest.mark.parametrize(
    "wrong", [torch.ones(L, S - 1, dtype=torch.bool), torch.ones(3, 1, L, S), torch.ones(L, S, dtype=torch.uint8)]
)
def test_the_step_refuses_masks_as_the_general_way_does(wrong, monkeypatch):
    q, k, v = qkv()
    with monkeypatch.context() as patch:
        patch.setattr(_fa, "attend_masked", lambda *_: None)
        with pytest.raises(ValueError, match="attn_mask") as general:
            scaled_dot_product_attention(q, k, v, wrong)
    with pytest.raises(ValueError, match="attn_mask") as own:
        scaled_dot_product_attention(q, k, v, wrong)
    assert str(own.value) == str(general.value)
    with pytest.raises(TypeError, match="query: want a torch.Tensor, got NoneType"):
        scaled_dot_product_attention(None, k, v, torch.ones(L, S))
    with pytest.raises((ValueError, TypeError, RuntimeError), match="(?i)mask|sparse|csr") as sparse:
        scaled_dot_product_attention(q, k, v, torch.ones(L, S).to_sparse_csr())
    assert "is_contiguous" not in str(sparse.value)


@pytest.mark.parametrize("place", PLACES)
def test_training_reads_tensors_where_they_lie_and_saves_no_copies(place, monkeypatch):
    leaves = [place(t).requires_grad_() for t in qkv()]
    d_out = torch.randn(B, N, L, E)
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor

    spy = Spy(monkeypatch, "attend", "attend_backward")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = scaled_dot_product_attention(*leaves)
    gradients = torch.autograd.grad(out, leaves, d_out)
    own = [t.data_ptr() for t in leaves]
    assert [read[:3] for read in spy.read] == [own, own]
    assert [t.data_ptr() for t in saved[:4]] == [*own, out.data_ptr()]
    assert sum(t.numel() * t.element_size() for t in saved[4:]) == 2 * 4 * B * N * L  # these are max and sum in float32
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    want = torch.autograd.grad(F.scaled_dot_product_attention(*doubles), doubles, d_out.double())
    for got, w in zip(gradients, want, strict=True):
        assert (got - w).abs().max() <= 1e-5 * w.abs().max()
        assert got.stride(-1) == 1


@pytest.mark.parametrize("place", PLACES)
def test_decode_reads_a_cache_where_it_lies(place, monkeypatch):
    q, k, v = qkv(rows=1, heads_kv=2)
    k, v = place(k), place(v)
    want = decode_attention(q, k.contiguous(), v.contiguous(), lengths_kv=[3, S])
    spy = Spy(monkeypatch, "attend_cache")
    for lengths in ([3, S], torch.tensor([3, S]), torch.tensor([3, S], dtype=torch.int32)):
        assert torch.equal(decode_attention(q, k, v, lengths_kv=lengths), want)
    assert [read[:3] for read in spy.read] == [[t.data_ptr() for t in (q, k, v)]] * 3


@pytest.mark.parametrize("sink", [torch.randn(N, 2)[:, 1], torch.randn(B, 3, N).transpose(1, 2)], ids=["N", "BNS"])
def test_sinks_of_any_strides_are_read_where_they_lie(sink, monkeypatch):
    q, k, v = qkv(rows=3)
    want = decode_attention(q, k, v, sink=sink.contiguous())
    spy = Spy(monkeypatch, "attend_cache")
    assert torch.equal(decode_attention(q, k, v, sink=sink), want)
    assert spy.read == [[t.data_ptr() for t in (q, k, v, sink)]]


def test_without_the_step_the_bits_are_the_same(monkeypatch):
    """Makes calls as with PyTorch before 2.10, which lacks DLPack's C exchange API. The bits must be the same."""
    inputs, d_out = qkv(), torch.randn(B, N, L, E)
    pages, table = torch.randn(6, 2, 4, E), torch.arange(6, dtype=torch.int32).view(2, 3)

    def results():
        leaves = [t.clone().requires_grad_() for t in inputs]
        out = scaled_dot_product_attention(*leaves, is_causal=True)
        yield from (out, *torch.autograd.grad(out, leaves, d_out))
        q, k, v = inputs
        yield scaled_dot_product_attention(q, k, v, torch.arange(S) < 3)
        yield flash_attn_func(*(t.transpose(1, 2) for t in inputs), causal=True)
        yield from decode_attention(q[:, :, :1], k, v, return_lse=True, lengths_kv=[S, 2])
        yield decode_attention(q[:, :, :1], pages, pages, block_table=table, lengths_kv=[9, 12])

    want = list(results())
    for name in ("attend", "attend_masked", "attend_backward", "attend_cache"):
        monkeypatch.setattr(_fa, name, lambda *_: None)
    monkeypatch.setattr(_fa, "attends", lambda *_: False)
    monkeypatch.setattr(_torch_engine, "_READ_IN_PLACE", False)
    for got, w in zip(results(), want, strict=True):
        assert torch.equal(got, w)


def test_kept_plans_are_of_their_calls():
    """Runs many calls that differ in one argument. Each must give the result that it gives with a new context, not the
    result of another call's plan."""
    q, k, v = qkv(rows=S)
    calls = [
        lambda i=i, scale=scale, causal=causal: scaled_dot_product_attention(
            *(t[..., :i, :] for t in (q, k, v)), is_causal=causal, scale=scale
        )
        for i in range(1, S + 1)
        for scale in (None, 0.25, 0.5)
        for causal in (False, True)
    ]
    masks = [torch.rand(shape) < 0.7 for shape in ((S, S), (1, S), (S,), (B, 1, 1, S), (B, N, S, S))]
    calls += [
        lambda mask=mask: scaled_dot_product_attention(q, k, v, mask) for mask in (*masks, *(m.float() for m in masks))
    ]
    calls += [
        lambda left=left, softcap=softcap: flash_attn_func(q, k, v, window_size=(left, 0), softcap=softcap)
        for left in (0, 1, -1)
        for softcap in (0.0, 1.0, 2.0)
    ]
    calls += [
        lambda n=n, with_lse=with_lse, causal=causal: decode_attention(
            q, k, v, lengths_kv=[n, S], is_causal=causal, return_lse=with_lse
        )[-1]
        for n in range(S)
        for with_lse in (False, True)
        for causal in (False, True)
    ]
    assert len(calls) > 64  # more than the 64 plans that are kept
    alone = []
    for call in calls:
        before = fa.set_default_context(fa.Context(threads=1))  # no plan is kept for a new context
        alone.append(call())
        fa.set_default_context(before)
    for _ in range(2):
        for call, want in zip(calls, alone, strict=True):
            assert torch.equal(call(), want)
    failed = []

    def run():
        same = [torch.equal(call(), want) for call, want in zip(calls, alone, strict=True)]
        failed.extend(i for i, equal in enumerate(same) if not equal)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_contexts_end_with_their_plans():
    q, k, v = qkv()
    want = scaled_dot_product_attention(q, k, v)
    gc.freeze()  # gc.collect() then skips all objects that exist now
    for threads in (1, 2, 3) * 10:  # a new context soon gets a deleted one's address
        context = fa.Context(threads=threads)
        before = fa.set_default_context(context)
        assert torch.equal(scaled_dot_product_attention(q, k, v), want)
        assert torch.equal(scaled_dot_product_attention(q, k, v), want)
        fa.set_default_context(before)
        del context
        gc.collect()
    gc.unfreeze()


def test_negated_views_are_read_with_their_signs():
    plain = torch.randn(B, N, L, E)
    negated = torch.complex(plain, -plain).conj().imag
    assert negated.is_neg() and torch.equal(negated, plain)
    q, k, v = qkv()
    assert torch.equal(scaled_dot_product_attention(negated, k, v), scaled_dot_product_attention(plain, k, v))
    assert torch.equal(fa.flash_attention(negated, k, v).out, fa.flash_attention(plain, k, v).out)
    assert torch.equal(decode_attention(negated, k, v), decode_attention(plain, k, v))


def test_what_looks_on_or_converts_is_not_passed_by():
    q, k, v = qkv()
    with torch.autocast("cpu", torch.bfloat16):
        assert scaled_dot_product_attention(q, k, v).dtype == torch.bfloat16
        assert flash_attn_func(q, k[:, :, :L], v[:, :, :L]).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="k: requires a gradient|key: requires a gradient"):
        decode_attention(q, k.clone().requires_grad_(), v)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in (q, k, v)]
        for out in (scaled_dot_product_attention(*fakes), decode_attention(*fakes)):
            assert type(out) is torch._subclasses.FakeTensor and out.shape == (B, N, L, E)
    with pytest.raises(ValueError, match=r"key.shape\[-1\]=8, want 16"):
        scaled_dot_product_attention(q, k[..., :8], v)
    with pytest.raises(ValueError, match="scale"):
        scaled_dot_product_attention(q, k, v, scale=float("nan"))
