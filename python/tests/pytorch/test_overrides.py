"""Classes and modes that override PyTorch's functions: causal biases, tensor subclasses, tracers, default devices."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.overrides import TorchFunctionMode

import fa.torch_npu as torch_npu
from fa._torch.ranked_models import _without_weights
from fa.torch import replace_scaled_dot_product_attention, scaled_dot_product_attention

B, N, L, S, E = 2, 4, 5, 9, 8


def qkv(rows=L, keys=S):
    return [torch.randn(B, N, size, E, requires_grad=True) for size in (rows, keys, keys)]


def with_gradients(out, inputs):
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


@pytest.mark.filterwarnings("ignore:Lower right")
@pytest.mark.parametrize(("rows", "keys"), [(5, 5), (5, 9), (9, 5)])
@pytest.mark.parametrize("variant", CausalVariant)
@pytest.mark.parametrize("dropout_p", [0.0, 0.4], ids=["direct", "operator"])
def test_causal_biases_are_the_masks_that_they_stand_for(variant, rows, keys, dropout_p):
    bias, inputs = CausalBias(variant, rows, keys), qkv(rows, keys)
    results = []
    for mask in (bias._materialize(), bias):
        torch.manual_seed(5)
        with replace_scaled_dot_product_attention():
            out = F.scaled_dot_product_attention(*inputs, mask, dropout_p)
        results.append(with_gradients(out, inputs))
    for want, got in zip(*results, strict=True):
        assert type(got) is torch.Tensor and torch.equal(got, want)


def test_causal_biases_that_do_not_fit_are_refused():
    bias = CausalBias(CausalVariant.LOWER_RIGHT, L, S + 1)
    with pytest.raises(ValueError, match=r"attn_mask.shape=\[5, 10\], want \[5, 9\]"):
        scaled_dot_product_attention(*qkv(), bias)
    with pytest.raises(ValueError, match="attn_mask: given together with is_causal"):
        scaled_dot_product_attention(*qkv(), bias, is_causal=True)


class Negated(torch.Tensor):
    """A tensor class whose scaled_dot_product_attention returns the negated result of plain tensors."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        if function is F.scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value"), arguments, strict=False), **(keywords or {}))
            plain = {name: t.as_subclass(torch.Tensor) if isinstance(t, cls) else t for name, t in given.items()}
            return -function(**plain)
        return super().__torch_function__(function, types, arguments, keywords or {})


@pytest.mark.parametrize("place", ["query", "key", "value", "attn_mask"])
def test_a_subclass_has_the_last_word(place):
    inputs = dict(zip(("query", "key", "value"), qkv(), strict=True), attn_mask=torch.randn(L, S))
    want = -scaled_dot_product_attention(**inputs)
    inputs[place] = inputs[place].detach().as_subclass(Negated)
    with replace_scaled_dot_product_attention():
        assert torch.equal(F.scaled_dot_product_attention(**inputs), want)


def test_a_mode_sees_the_function():
    class Seen(TorchFunctionMode):
        functions = []

        def __torch_function__(self, function, types, arguments=(), keywords=None):
            self.functions.append(function)
            return function(*arguments, **(keywords or {}))

    inputs = qkv()
    with Seen() as mode:
        got = scaled_dot_product_attention(*inputs)
    assert mode.functions[0] is scaled_dot_product_attention
    assert torch.equal(got, scaled_dot_product_attention(*inputs))


def test_a_default_device_does_not_move_results():
    inputs = qkv()
    want = with_gradients(scaled_dot_product_attention(*inputs), inputs)
    with torch.device("meta"):
        got = scaled_dot_product_attention(*inputs)
    for g, w in zip(with_gradients(got, inputs), want, strict=True):
        assert torch.equal(g, w)


def test_a_default_device_does_not_move_results_of_torch_npu():
    q = torch.randn(B, N, L, E)
    with torch.device("meta"):
        out = torch_npu.npu_fusion_attention(q, q, q, N, "BNSD", keep_prob=0.5)
        again = torch_npu.npu_fusion_attention(q, q, q, N, "BNSD", keep_prob=0.5, seed=out[4], offset=out[5])
    assert out[0].is_cpu and torch.equal(out[0], again[0])


def test_fx_traces_the_replacement():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    inputs = qkv()
    with replace_scaled_dot_product_attention():
        graph = torch.fx.symbolic_trace(Model())
    assert scaled_dot_product_attention in {node.target for node in graph.graph.nodes}
    assert torch.equal(graph(*inputs), scaled_dot_product_attention(*inputs, is_causal=True))


class Attending(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def of_x(module):
    return module, (torch.randn(B, L, 16),)


SCRIPTED = {
    "function": lambda: (Attending(), qkv()),
    "module": lambda: of_x(torch.nn.TransformerEncoderLayer(16, N, 32, dropout=0.0, batch_first=True)),
    "encoder": lambda: of_x(torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, N, 32, 0.0), 2)),
    "weights": lambda: (torch.nn.MultiheadAttention(16, N), [torch.randn(L, B, 16)] * 3),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", SCRIPTED)
def test_scripts_are_of_pytorchs_own_function(name, forward_calls):
    module, inputs = SCRIPTED[name]()
    want = module(*inputs)
    with replace_scaled_dot_product_attention():
        scripted = torch.jit.script(module)
        got = scripted(*inputs)
    assert not forward_calls and (name != "function" or "aten::scaled_dot_product_attention" in str(scripted.graph))
    for g, w in zip(*((t if isinstance(t, tuple) else (t,)) for t in (got, want)), strict=True):
        assert torch.equal(g, w)


def test_scripts_do_not_pass_by_attention_over_ranks():
    with replace_scaled_dot_product_attention():
        over_ranks = _without_weights(F.multi_head_attention_forward)
    with pytest.raises(torch.jit.frontend.NotSupportedError):
        torch.jit.script(over_ranks)


def test_only_within_the_replacement_scripts_take_it_for_pytorchs():
    with replace_scaled_dot_product_attention():
        pass
    with pytest.raises(torch.jit.frontend.NotSupportedError):
        torch.jit.script(scaled_dot_product_attention)


def test_a_default_device_at_import_changes_nothing():
    script = (
        "import torch; torch.set_default_device('meta'); import fa.torch; from fa._torch.engine import possible; "
        "torch.set_default_device(None); print(possible(torch.empty(0)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
