"""cann_ops_transformer.ops.sparse_lightning_indexer_kl_loss_grad against gradients of autograd in float64."""

import pytest
import torch

import fa
from fa._npu.quantized_sparse import CANN_OPS

grad = CANN_OPS["sparse_lightning_indexer_kl_loss_grad"]
ROWS, KEYS, HEADS, SIZE, ENTRIES = [6, 4], [9, 7], 3, 16, 5


def make_call(layout: str, *, full: bool = False):
    """Returns the tensors and the keywords of a call on two sequences. With `full`, all rows are in use."""
    torch.manual_seed(7)
    q, k, w = torch.randn(2, 6, HEADS, SIZE), torch.randn(2, 9, 1, SIZE), torch.randn(2, 6, HEADS)
    lists = torch.randint(0, 7, (2, 6, 1, ENTRIES), dtype=torch.int32)
    lists[0, 3, 0, 2:] = -1
    tensors = [q, k, w, lists, torch.rand(2, 6, 1, ENTRIES)]
    if layout == "BSND":
        used = {} if full else {"seqused_q": torch.tensor(ROWS), "seqused_k": torch.tensor(KEYS)}
        return tensors, used
    lengths = (ROWS, KEYS, ROWS, ROWS, ROWS)
    packed = [torch.cat([t[b, : n[b]] for b in range(2)]) for t, n in zip(tensors, lengths, strict=True)]
    sums = {"cu_seqlens_q": torch.tensor([0, 6, 10]), "cu_seqlens_k": torch.tensor([0, 9, 16])}
    return packed, sums | {"layout_q": "TND", "layout_k": "TND"}


def expected(q, k, w, lists, p, ratio: int, mode: int, residual: int):
    """Returns dq, dk, dw and y of one sequence: the gradients of - sum p ln y, by autograd in float64."""
    q, k, w = (x.double().requires_grad_() for x in (q, k, w))
    loss, y_all = q.sum() * 0, torch.zeros(p.shape, dtype=torch.float64)
    for t in range(len(q)):
        limit = len(k) if mode == 0 else max(0, min(len(k), (len(k) * ratio + residual - len(q) + t + 1) // ratio))
        slots = []
        for slot in range(min(ENTRIES, limit)):
            key = int(lists[t, 0, slot])
            if key < 0:
                break
            if key < limit:
                slots.append((slot, key))
        if not slots:
            continue
        place, keys = map(list, zip(*slots, strict=True))
        scores = ((q[t] @ k[keys, 0].T).relu() * w[t][:, None]).sum(0)
        loss = loss - (p[t, 0, place].double() * scores.log_softmax(0)).sum()
        y_all[t, 0, place] = scores.detach().softmax(0)
    return *torch.autograd.grad(loss, (q, k, w)), y_all


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("mode", [0, 3])
@pytest.mark.parametrize("ratio", [1, 4])
def test_gradients_are_those_of_autograd(layout, mode, ratio):
    tensors, keywords = make_call(layout)
    residual = [ratio - 1, 0]
    keywords |= {"cmp_residual_k": torch.tensor(residual), "mask_mode": mode, "cmp_ratio": ratio}
    got = grad(*tensors, **keywords)
    assert got[3].dtype == torch.float32 and got[3].shape == tensors[4].shape
    padded = make_call("BSND")[0]
    nothing = 0
    for b in range(2):
        counts = ROWS[b], KEYS[b], ROWS[b], ROWS[b], ROWS[b]
        of_b = [t[b, :n] for t, n in zip(padded, counts, strict=True)]
        want = expected(*of_b, ratio, mode, residual[b])
        for result, reference, lengths in zip(got, want, (ROWS, KEYS, ROWS, ROWS), strict=True):
            n, first = lengths[b], sum(lengths[:b])
            part = result[b, :n] if layout == "BSND" else result[first : first + n]
            # A score is a sum of SIZE * HEADS terms, whose magnitudes add up to less than 20. exp turns the error of a
            # score into a relative error.
            unit = 20 * SIZE * HEADS * 2**-24
            torch.testing.assert_close(part.double(), reference, rtol=0, atol=unit * reference.abs().max().item())
        nothing += int((want[3] == 0).sum())
    assert nothing > 0


def test_the_function_of_arrays_has_the_same_bits_and_names_its_target():
    tensors, keywords = make_call("BSND", full=True)
    want = grad(*tensors, **keywords)
    target = tensors[4][:, :, 0]
    got = fa.sparse_lightning_indexer_kl_loss_grad(*tensors[:4], target, sparse_mode=0)
    assert all(torch.equal(x, y.view(x.shape)) for x, y in zip(got, want, strict=True))
    with pytest.raises(ValueError, match=r"invalid argument: target\.shape\[2\]=4, want 5"):
        fa.sparse_lightning_indexer_kl_loss_grad(*tensors[:4], target[..., :4], sparse_mode=0)


def test_the_target_may_lack_its_dimension_of_one_head():
    tensors, keywords = make_call("BSND", full=True)
    want = grad(*tensors, **keywords)
    got = grad(*tensors[:4], tensors[4][:, :, 0], **keywords)
    assert got[3].shape == (2, 6, ENTRIES)
    assert all(torch.equal(x, y.view(x.shape)) for x, y in zip(got, want, strict=True))


def test_compiled_calls_have_the_same_bits():
    tensors, keywords = make_call("BSND")
    want = grad(*tensors, **keywords)
    got = torch.compile(lambda *x: grad(*x, **keywords), backend="eager", fullgraph=True)(*tensors)
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mask_mode": 1}, "mask_mode"),
        ({"cmp_ratio": 0}, "cmp_ratio=0, want 1..1048576"),
        ({"layout_k": "TND"}, 'layout_k="TND", want BSND'),
        ({"cu_seqlens_q": torch.tensor([0, 2])}, "cu_seqlens_q: given, want None"),
        ({"cmp_residual_k": torch.tensor([1, 0])}, r"cmp_residual_k\[0\]=1, want 0..0"),
        ({"seqused_k": torch.tensor([10, 3])}, r"seqused_k\[0\]=10"),
    ],
)
def test_errors_name_the_argument(change, text):
    tensors, keywords = make_call("BSND")
    with pytest.raises(ValueError, match=text):
        grad(*tensors, **keywords | change)


def test_a_target_of_another_shape_is_refused():
    tensors, keywords = make_call("BSND")
    with pytest.raises(ValueError, match=r"attn_softmax_l1_norm.shape\[2\]=4, want 5"):
        grad(*tensors[:4], tensors[4][..., :4], **keywords)
    with pytest.raises(ValueError, match="cu_seqlens_k: missing"):
        grad(*tensors, layout_q="TND", layout_k="TND", cu_seqlens_q=torch.tensor([0, 6]))


def test_the_operator_meets_the_rules_of_pytorch():
    q, k, w, lists, p = make_call("BSND")[0]
    lengths = torch.tensor(ROWS), torch.tensor(KEYS), None, None, None
    torch.library.opcheck(torch.ops.fa.given_loss_gradients, (q, k, w, lists, p[:, :, 0], *lengths, "BSND", 3, 1))
