"""torch.compile of fa.torch.flex_attention: one graph, with the bits of eager calls."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from flex_calls import AS_PAIRS, FORMS, HEADS, KEYS, ROWS, causal, doubled, gradients, q, random_qkv, window
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import AuxRequest

import fa.torch
from fa._torch.flex import compiled as compiled_module
from fa._torch.flex import mask as mask_module
from fa.torch import create_block_mask, flex_attention

pytestmark = pytest.mark.usefixtures("one_torch_thread")

FUNCTIONS = {name: score_mod for name, (score_mod, _) in FORMS.items()} | {
    "none": None,
    "squares": lambda s, b, h, i, j: s * s * 0.1,
    "where": lambda s, b, h, i, j: torch.where((i + j) % 5 == 1, -torch.inf, s),
}
MASKS = {"none": None, "window": window, "every third": AS_PAIRS["every third"], "windows of heads": AS_PAIRS["windows of heads"]}


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()


def compiled_of(layer):
    return torch.compile(layer, backend="aot_eager", fullgraph=True)


def both(layer, *tensors):
    """Returns the results of a layer and their gradients, eager and compiled as one graph."""
    found = []
    for function in (layer, compiled_of(layer)):
        results = function(*tensors)
        torch.manual_seed(1)
        d_results = [torch.randn(t.shape).to(t.dtype) for t in results]
        found.append([*results, *gradients(results, [t for t in tensors if t.requires_grad], d_results)])
    return zip(*found, strict=True)


def mask_of(mask_mod):
    return None if mask_mod is None else create_block_mask(mask_mod, None, HEADS, ROWS, KEYS)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", ["none", "soft cap", "any", "squares"])
def test_masks(form, mask):
    block_mask = mask_of(MASKS[mask])

    def layer(*tensors):
        out, lse = flex_attention(*tensors, FUNCTIONS[form], block_mask, return_lse=True)
        return out * 2, lse

    for want, got in both(layer, *random_qkv()):
        assert torch.equal(got, want)


@pytest.mark.parametrize("form", FUNCTIONS)
def test_forms(form):
    block_mask = mask_of(window)

    def layer(*tensors):
        out, aux = flex_attention(*tensors, FUNCTIONS[form], block_mask, 0.2, return_aux=AuxRequest(lse=True, max_scores=True))
        return out, aux.lse, aux.max_scores.detach() + 0 * aux.lse

    for want, got in both(layer, *random_qkv(torch.bfloat16)):
        assert torch.equal(got, want)


@pytest.mark.parametrize("kind", ["table", "tensor", "vectors", "slopes", "product"])
def test_captured_tensors_of_the_caller(kind):
    shapes = {"table": (HEADS, ROWS + KEYS), "tensor": (HEADS, ROWS, KEYS), "vectors": (KEYS, 3), "slopes": (HEADS,)}
    captured = torch.randn(shapes.get(kind, (HEADS,)), requires_grad=True)
    score_mods = {
        "table": lambda s, b, h, i, j, t: s + t[h, i - j + KEYS],
        "tensor": lambda s, b, h, i, j, t: s + t[h, i, j],
        "vectors": lambda s, b, h, i, j, t: s + (t[i] * t[j]).sum(-1),
        "slopes": lambda s, b, h, i, j, t: s - t[h] * (i - j).abs(),
        "product": lambda s, b, h, i, j, t: s * t[h],
    }
    block_mask = mask_of(causal)

    def layer(query, key, value, captured):
        def score_mod(*inputs):
            return score_mods[kind](*inputs, captured)

        return (flex_attention(query, key, value, score_mod, block_mask),)

    for want, got in both(layer, *random_qkv(), captured):
        assert torch.equal(got, want)


NEEDS_OF = {  # (which of query, key, value and a table require gradients, number of keys, score_mod with the table)
    "no keys": (True, 0, None),
    "only value, and operations of PyTorch": (False, KEYS, lambda s, b, h, i, j, t: s * s * 0.1),
    "a table that is detached": (True, KEYS, lambda s, b, h, i, j, t: s + t.detach()[h]),
}


@pytest.mark.parametrize("case", NEEDS_OF)
def test_results_without_gradients(case):
    """The operator marks all its results as requiring gradients, even an lse whose inputs require none. Gradients must
    equal eager ones all the same.
    """
    need, keys, score_mod = NEEDS_OF[case]
    query, key, value = (t.detach() for t in random_qkv(keys=keys))
    table = torch.randn(HEADS, requires_grad=True)
    inputs = [query.requires_grad_(need), key.requires_grad_(need), value.requires_grad_()]

    def layer(*tensors):
        of_table = None if score_mod is None else lambda *at: score_mod(*at, table)
        return flex_attention(*tensors, of_table, return_lse=True)

    def gradients_of(function):
        out, lse = function(*inputs)
        total = out.square().sum() + (torch.where(lse.isfinite(), lse, 0.0).sum() if lse.requires_grad else 0.0)
        return [out, lse, *torch.autograd.grad(total, [t for t in inputs if t.requires_grad], allow_unused=True)]

    for want, got in zip(*map(gradients_of, (layer, compiled_of(layer))), strict=True):
        assert torch.equal(got, want)


def test_no_gradient_without_a_function_of_it():
    """Only the table requires a gradient, and score_mod detaches it. Eager results then require no gradient. Compiled
    results may require one, which must be 0.
    """
    tensors = [t.detach() for t in random_qkv()]
    table = torch.randn(HEADS, requires_grad=True)
    layer = compiled_of(lambda *t: flex_attention(*t, lambda s, b, h, i, j: s + table.detach()[h]))
    out = layer(*tensors)
    assert torch.equal(out, flex_attention(*tensors, lambda s, b, h, i, j: s + table.detach()[h]))
    if out.requires_grad:
        (gradient,) = torch.autograd.grad(out.sum(), table, allow_unused=True)
        assert gradient is None or not gradient.any()


@pytest.mark.parametrize("need", [False, True])
def test_no_gradient_through_mask_mod(need):
    weight = torch.randn(KEYS, requires_grad=True)
    block_mask = create_block_mask(lambda b, h, i, j: weight[j] > 0, None, None, ROWS, KEYS)
    tensors = [t.detach().requires_grad_(need) for t in random_qkv()]
    out = compiled_of(lambda *t: flex_attention(*t, None, block_mask))(*tensors)
    assert torch.equal(out, flex_attention(*tensors, None, block_mask)) and out.requires_grad == need
    if need:
        out.sum().backward()
        assert all(t.grad.any() for t in tensors)
    assert weight.grad is None


def test_inductor():
    weight = torch.nn.Parameter(torch.randn(HEADS, ROWS + KEYS))
    block_mask = mask_of(AS_PAIRS["shuffled documents"])

    def layer(query, key, value):
        return flex_attention(query * 2, key, value, lambda s, b, h, i, j: s + weight[h, i - j + KEYS], block_mask) + 1

    tensors = random_qkv()
    want = layer(*tensors)
    got = torch.compile(layer, fullgraph=True)(*tensors)
    assert torch.equal(got, want)
    d_out = torch.randn(want.shape)
    pairs = zip(*(torch.autograd.grad(out, [*tensors, weight], d_out) for out in (got, want)), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_changes_between_calls():
    """A compiled call takes new tensors, another score_mod with the same code, and another BlockMask. It evaluates the
    pairs of each BlockMask once.
    """
    names = torch.arange(KEYS) % 4
    tensors = random_qkv()

    def score_mod_of(table):
        return lambda s, b, h, i, j: s + table[h]

    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(query, key, value, score_mod, block_mask):
        return flex_attention(query, key, value, score_mod, block_mask)

    def check(score_mod, block_mask):
        got = layer(*tensors, score_mod, block_mask)
        assert torch.equal(got, flex_attention(*tensors, score_mod, block_mask))

    mask = create_block_mask(lambda b, h, i, j: names[i] == names[j], None, None, ROWS, KEYS)
    for table in (torch.randn(HEADS), torch.randn(HEADS)):
        check(score_mod_of(table), mask)
    score_mod = score_mod_of(torch.randn(HEADS))
    layer(*tensors, score_mod, mask)
    before = {kept for _, kept, _ in mask_module._kept.values()}
    layer(*tensors, score_mod, mask)
    assert {kept for _, kept, _ in mask_module._kept.values()} == before
    names.copy_(torch.arange(KEYS) % 3)
    check(score_mod, create_block_mask(lambda b, h, i, j: names[i] == names[j], None, None, ROWS, KEYS))
    check(score_mod, create_block_mask(causal, None, None, ROWS, KEYS, BLOCK_SIZE=64))


def test_lengths_that_change():
    counter = CompileCounter()

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def layer(query, key, value):
        rows = query.shape[2]
        return flex_attention(query, key, value, lambda s, b, h, i, j: torch.where(i - j < rows // 4, s, -torch.inf))

    for rows in (40, 72, 100):
        tensors = random_qkv(rows=rows, keys=rows)
        want = flex_attention(*tensors, lambda s, b, h, i, j: torch.where(i - j < rows // 4, s, -torch.inf))
        assert torch.equal(layer(*tensors), want)
    assert counter.frame_count == 1


def test_what_a_process_keeps():
    """Compiling again adds no entry to the table of functions if their code is the same. The tensors that mask_mod
    captures are freed with the BlockMask.
    """
    tensors = random_qkv()

    def call():
        names = torch.randint(0, 4, (KEYS,))
        mask = create_block_mask(lambda b, h, i, j: names[i] == names[j], None, None, ROWS, KEYS)
        compiled_of(lambda *t: flex_attention(*t, None, mask))(*tensors)
        return weakref.ref(names)

    call()
    before = dict(compiled_module._functions)
    torch._dynamo.reset()
    captured = call()
    assert compiled_module._functions == before
    torch._dynamo.reset()
    gc.collect()
    assert captured() is None


_NUMBERS = """
import torch
import fa.torch
from fa._torch.flex import compiled

def halved(s, b, h, i, j):
    return s * 0.5

def causal(s, b, h, i, j):
    return torch.where(i >= j, s, -torch.inf)

q = torch.zeros(1, 2, 4, 8)
for name in NAMES:
    score_mod = globals()[name]
    before = set(compiled._functions)
    torch.compile(lambda q: fa.torch.flex_attention(q, q, q, score_mod), backend="eager", fullgraph=True)(q)
    torch._dynamo.reset()
    print(name, *(set(compiled._functions) - before))
"""


def test_another_process_has_other_functions():
    """The operator gets each function as a number. In another process, a number stands for the same function or for
    none.
    """
    numbers = {}
    for names in (["halved"], ["causal", "halved"]):
        program = _NUMBERS.replace("NAMES", repr(names))
        run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        for name, number in map(str.split, run.stdout.splitlines()):
            assert numbers.setdefault(name, number) == number
    assert len(set(numbers.values())) == 2
    for number in map(int, numbers.values()):
        with pytest.raises(RuntimeError, match="compiled in another process"):
            torch.ops.fa.flex_attention(q(), q(), q(), [], [], [], [0, 0, 0, 0], number, 1.0, False)


@pytest.mark.parametrize("strict", [False, True])
def test_export_is_refused(strict):
    class Layer(torch.nn.Module):
        def forward(self, query, key, value):
            return flex_attention(query, key, value, lambda s, b, h, i, j: s * 0.5)

    with pytest.raises(Exception, match="torch.export cannot save score_mod and mask_mod"):
        torch.export.export(Layer(), (q(), q(), q()), strict=strict)


def test_autocast_and_inference():
    layer = torch.compile(lambda *tensors: (flex_attention(*tensors),), backend="aot_eager", fullgraph=True)
    tensors = random_qkv()
    with torch.autocast("cpu", torch.bfloat16):
        (out,) = layer(*tensors)
    assert torch.equal(out, flex_attention(*(t.bfloat16() for t in tensors)))
    with torch.no_grad():
        assert torch.equal(layer(*tensors)[0], flex_attention(*tensors))
    with torch.inference_mode():
        assert torch.equal(layer(*tensors)[0], flex_attention(*tensors))
        block_mask = mask_of(window)
        layer = torch.compile(lambda *t: flex_attention(*t, FUNCTIONS["squares"], block_mask), backend="aot_eager")
        assert torch.equal(layer(*tensors), flex_attention(*tensors, FUNCTIONS["squares"], block_mask))


def test_float64_in_slabs():
    block_mask = mask_of(window)
    for want, got in both(lambda *t: (flex_attention(*t, FUNCTIONS["slopes"], block_mask),), *doubled(random_qkv())):
        assert torch.equal(got, want)


def test_functions_that_dynamo_cannot_trace_break_the_graph():
    """A call with an untraceable score_mod is computed outside of the graph. With fullgraph=True, torch.compile refuses
    the call.
    """

    @torch.compiler.disable
    def opaque(s, b, h, i, j):
        return s * 2

    def layer(*tensors):
        return flex_attention(*tensors, opaque) + 1

    tensors = random_qkv()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="disable"):
        torch.compile(layer, backend="eager", fullgraph=True)(*tensors)
    counter = CompileCounter()
    assert torch.equal(torch.compile(layer, backend=counter)(*tensors), layer(*tensors))
    assert counter.frame_count == 1  # only the addition is in a graph


def test_replacement_and_refusals():
    def layer(*tensors, **keywords):
        import torch.nn.attention.flex_attention as host

        return host.flex_attention(*tensors, **keywords)

    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with fa.torch.replace_flex_attention():
        tensors = random_qkv()
        assert torch.equal(compiled(*tensors), flex_attention(*tensors))
        for wrong, words in (
            ((q(), q(), q(dtype=torch.bfloat16)), "same dtype"),
            ((q(), q(1, 2, 4, 6), q()), "same embedding dimension"),
            ((q(), q(1, 3, 4, 8), q(1, 3, 4, 8)), "Hq=2 and Hkv=3"),
        ):
            with pytest.raises((torch._dynamo.exc.TorchRuntimeError, ValueError), match=words):
                compiled(*wrong)
        for keywords, words in (
            ({"kernel_options": {"BACKEND": "FLASH"}}, "want 'AUTO'"),
            ({"block_mask": torch.ones(3)}, "block_mask: want a BlockMask, got "),
        ):
            with pytest.raises(torch._dynamo.exc.Unsupported, match=words):
                compiled(q(), q(), q(), **keywords)


def test_a_transform_in_the_graph():
    samples = [torch.zeros(3, 1, 2, 4, 8) for _ in range(3)]
    layer = torch.compile(lambda *t: torch.vmap(flex_attention)(*t), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="query: is inside a transform of torch.func"):
        layer(*samples)
