"""torch.compile of fa.torch.flex_attention: one graph, with the bits of eager calls."""

import pytest
import torch
from flex_calls import AS_PAIRS, FORMS, HEADS, KEYS, ROWS, causal, doubled, gradients, q, random_qkv, window
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import AuxRequest

import fa.torch
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


def both(layer, *tensors):
    """Returns the results of a layer and their gradients, eager and compiled as one graph."""
    found = []
    for function in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
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
    """A compiled call sees other tensors and functions of the same code, and another BlockMask. It evaluates the pairs
    of one BlockMask once."""
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
    """Such a call is computed outside of the graph. With fullgraph=True, torch.compile refuses it."""

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
    assert counter.frame_count == 1  # the addition


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
            with pytest.raises(Exception, match=words):
                compiled(*wrong)
        with pytest.raises(Exception, match="BACKEND"):
            compiled(q(), q(), q(), kernel_options={"BACKEND": "FLASH"})
