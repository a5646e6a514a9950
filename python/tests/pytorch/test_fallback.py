"""Calls that fa.torch does not take: `can_use` returns False for them, and with a fallback PyTorch computes them."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.nn.attention.bias import causal_lower_right

from fa.torch import can_use, replace_scaled_dot_product_attention, scaled_dot_product_attention

B, N, L, E = 2, 4, 5, 8


def qkv(dtype=torch.float32, size=E, size_v=E):
    return [torch.randn(B, N, L, width).to(dtype) for width in (size, size, size_v)]


def nested(layout):
    sequences = [torch.randn(rows, N, E) for rows in (3, 5)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(sequences, layout=layout).transpose(1, 2)


REFUSED = {
    "float64": lambda: (qkv(torch.float64), {}),
    "dropout_p=1": lambda: (qkv(), {"dropout_p": 1.0}),
    "a long head": lambda: (qkv(size=1025), {}),
    "a long head of values": lambda: (qkv(size_v=1025), {}),
    "a float64 mask": lambda: (qkv(torch.float64), {"attn_mask": torch.randn(L, L, dtype=torch.float64)}),
    "nested, of layout strided": lambda: ([nested(torch.strided)] * 3, {}),
}
WRONG = {
    "sizes": lambda: (qkv(size_v=E)[:2] + [torch.randn(B, N, L + 1, E)], {}),
    "heads": lambda: (qkv()[:1] + [torch.randn(B, 3, L, E)] * 2, {"enable_gqa": True}),
    "a mask": lambda: (qkv(), {"attn_mask": torch.randn(L, L + 1)}),
    "two rules": lambda: (qkv(), {"attn_mask": causal_lower_right(L, L), "is_causal": True}),
    "types": lambda: ([*qkv()[:2], qkv(torch.bfloat16)[2]], {}),
    "no tensor": lambda: (["q", *qkv()[1:]], {}),
    "a sparse query": lambda: ([qkv()[0].to_sparse(), *qkv()[1:]], {}),
    "a sparse mask": lambda: (qkv(), {"attn_mask": torch.eye(L).to_sparse()}),
}
TAKEN = {
    "plain": lambda: (qkv(), {}),
    "bfloat16": lambda: (qkv(torch.bfloat16), {"dropout_p": 0.5, "scale": 0.3}),
    "a float32 mask": lambda: (qkv(torch.float16), {"attn_mask": torch.randn(1, 1, L)}),
    "two masks": lambda: (qkv(), {"attn_mask": torch.randn(L, L), "is_causal": True}),
    "a rule": lambda: (qkv(), {"attn_mask": causal_lower_right(L, L)}),
    "a jagged tensor": lambda: ([nested(torch.jagged)] * 3, {"is_causal": True}),
    "two dimensions": lambda: ([t[0, 0] for t in qkv()], {}),
    "broadcast": lambda: ([qkv()[0], *(t[:1] for t in qkv()[1:])], {}),
    "grouped heads": lambda: ([qkv()[0], *(t[:, :2] for t in qkv()[1:])], {"enable_gqa": True}),
    "no columns": lambda: (qkv(size=0, size_v=0), {}),
    "a tensor for the scale": lambda: (qkv(), {"scale": torch.tensor(0.3)}),
}


@pytest.mark.parametrize("name", [*REFUSED, *WRONG, *TAKEN])
def test_can_use_is_whether_the_call_is_taken(name):
    inputs, keywords = (REFUSED | WRONG | TAKEN)[name]()
    before = torch.get_rng_state()
    if can_use(*inputs, **keywords):
        assert name in TAKEN
        scaled_dot_product_attention(*inputs, **keywords)
        return
    assert name not in TAKEN
    with pytest.raises((ValueError, TypeError)) as refused:
        scaled_dot_product_attention(*inputs, **keywords)
    with pytest.warns(UserWarning) as warned:
        assert not can_use(*inputs, **keywords, debug=True)
    assert str(refused.value) in str(warned[0].message)
    assert torch.equal(torch.get_rng_state(), before)


def test_can_use_under_autocast_and_of_other_devices():
    inputs = [*qkv()[:2], qkv(torch.bfloat16)[2]]
    assert not can_use(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert can_use(*inputs) and not can_use(*qkv(torch.float64))
    with FakeTensorMode(allow_non_fake_inputs=True):
        elsewhere = [torch.empty(B, N, L, E, device="cuda") for _ in range(3)]
        assert not can_use(*elsewhere)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_pytorch_computes(name):
    inputs, keywords = REFUSED[name]()
    if name == "nested, of layout strided":
        inputs = [t.contiguous() for t in inputs]
    torch.manual_seed(3)
    want = F.scaled_dot_product_attention(*inputs, **keywords)
    with replace_scaled_dot_product_attention(fallback=True):
        torch.manual_seed(3)
        with pytest.warns(UserWarning, match="fa does not take a call of scaled_dot_product_attention, and PyTorch computes it"):
            got = F.scaled_dot_product_attention(*inputs, **keywords)
    pairs = zip(got.unbind(), want.unbind(), strict=True) if want.is_nested else [(got, want)]
    assert all(torch.equal(g, w) for g, w in pairs) and got.dtype == want.dtype
    with replace_scaled_dot_product_attention(), pytest.raises(ValueError, match="invalid argument"):
        F.scaled_dot_product_attention(*inputs, **keywords)


def test_dropout_of_pytorch_draws_what_it_draws_alone():
    inputs = qkv(torch.float64)
    torch.manual_seed(3)
    want = F.scaled_dot_product_attention(*inputs, dropout_p=0.5)
    torch.manual_seed(3)
    with replace_scaled_dot_product_attention(fallback=True), pytest.warns(UserWarning, match="query.dtype=torch.float64"):
        assert torch.equal(F.scaled_dot_product_attention(*inputs, dropout_p=0.5), want)


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_fa_computes_without_a_word(name):
    inputs, keywords = TAKEN[name]()
    torch.manual_seed(3)
    want = scaled_dot_product_attention(*inputs, **keywords)
    with replace_scaled_dot_product_attention(fallback=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(3)
        got = F.scaled_dot_product_attention(*inputs, **keywords)
    pairs = zip(got.unbind(), want.unbind(), strict=True) if want.is_nested else [(got, want)]
    assert all(torch.equal(g, w) for g, w in pairs)


def test_wrong_arguments_are_pytorchs_to_name():
    q, k, v = qkv()
    with replace_scaled_dot_product_attention(fallback=True), pytest.warns(UserWarning), pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(q, k[..., :3], v)


def test_one_warning_per_place_and_reason():
    inputs = qkv(torch.float64)
    with replace_scaled_dot_product_attention(fallback=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            F.scaled_dot_product_attention(*inputs)
    assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_modules_of_float64(need_weights, training):
    module = torch.nn.MultiheadAttention(16, N, dropout=0.5 if training else 0.0, dtype=torch.float64).train(training)
    x = torch.randn(L, B, 16, dtype=torch.float64)

    def run():
        torch.manual_seed(3)
        return module(x, x, x, need_weights=need_weights)

    want = run()
    with replace_scaled_dot_product_attention(fallback=True), pytest.warns(UserWarning, match="PyTorch computes it"):
        got = run()
    assert torch.equal(got[0], want[0]) and (want[1] is None) == (got[1] is None)
    assert not need_weights or torch.equal(got[1], want[1])
    with replace_scaled_dot_product_attention(), pytest.raises(ValueError, match="float64"):
        run()


def test_contexts_with_and_without_overlap():
    inputs = qkv(torch.float64)

    def handed():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                F.scaled_dot_product_attention(*inputs)
            except ValueError:
                return False
        return True

    own = F.scaled_dot_product_attention, F.multi_head_attention_forward
    strict, handing = replace_scaled_dot_product_attention(), replace_scaled_dot_product_attention(fallback=True)
    strict.__enter__()
    assert not handed()
    handing.__enter__()
    assert handed()
    strict.__exit__(None, None, None)
    assert handed()
    with replace_scaled_dot_product_attention():
        assert handed()
    handing.__exit__(None, None, None)
    assert (F.scaled_dot_product_attention, F.multi_head_attention_forward) == own
    with replace_scaled_dot_product_attention(fallback=True):
        pass
    with replace_scaled_dot_product_attention():
        assert not handed() and F.scaled_dot_product_attention is scaled_dot_product_attention


@pytest.mark.filterwarnings("ignore:fa does not take")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled(dtype):
    inputs = qkv(dtype)
    with replace_scaled_dot_product_attention(fallback=True):
        want = F.scaled_dot_product_attention(*inputs)
        torch._dynamo.reset()
        got = torch.compile(lambda *t: F.scaled_dot_product_attention(*t), backend="aot_eager")(*inputs)
    assert torch.equal(got, want)


def test_a_context_that_nobody_enters_warns():
    message = "fa.torch.replace_scaled_dot_product_attention did nothing, because no `with` entered it"
    before = F.scaled_dot_product_attention
    with pytest.warns(RuntimeWarning, match=message) as caught:
        replace_scaled_dot_product_attention()
    assert caught[0].filename == __file__
    assert F.scaled_dot_product_attention is before


def test_a_context_that_is_entered_does_not_warn():
    @replace_scaled_dot_product_attention()
    def inside():
        return F.scaled_dot_product_attention

    before = F.scaled_dot_product_attention
    context = replace_scaled_dot_product_attention()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with context, context:  # a context may be entered while it is entered
            assert F.scaled_dot_product_attention is not before
        with context:
            assert F.scaled_dot_product_attention is not before
        del context
    assert inside() is not before
    assert inside() is not before
    assert F.scaled_dot_product_attention is before
