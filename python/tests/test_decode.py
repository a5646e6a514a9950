"""Decode in fa and fa.torch: forms of keys, strides, lengths and features compared with float64, and caches that are
read without a copy."""

import ctypes
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import assert_within, attention, bnsd, to_layout, tolerances
from torch.func import vmap

import fa
from fa._torch import decode as _torch_decode
from fa.torch import decode_attention

B, N, NKV, SQ, S, D, PAGE = 3, 6, 2, 2, 70, 24, 16
LENGTHS = [70, 1, 33]
SCALE = D**-0.5


def random_qkv(dtype=torch.float32, sq=SQ, keys=S):
    return [torch.randn(B, heads, rows, D).to(dtype) for heads, rows in ((N, sq), (NKV, keys), (NKV, keys))]


def kept(lengths=LENGTHS, sq=SQ, keys=S, left=None, right=None):
    """Returns which keys the rows look at, [B, 1, Sq, S]. left and right bound a window around each row's place. The
    last row's place is the last key."""
    ends = torch.tensor(lengths)[:, None, None]
    i, j = torch.arange(sq)[:, None], torch.arange(keys)
    diagonal = i + ends - sq
    keep = (j < ends).expand(-1, sq, -1)
    keep = keep if left is None else keep & (j >= diagonal - left)
    return (keep if right is None else keep & (j <= diagonal + right))[:, None]


def assert_right(out, q, k, v, *, lse=None, keep=None, **features):
    features = {"scale": SCALE, "keep": kept(sq=q.shape[2]) if keep is None else keep, **features}
    want, top, total = attention(*(t.double() for t in (q, k, v)), **features)
    bound = tolerances(q, k, v, torch.zeros_like(out), out.dtype, **features)["out"]
    assert_within(out, want, bound, "out")
    if lse is not None:
        there = total > 0
        assert torch.isneginf(lse[~there]).all()
        # lse is top + ln(total). It has the error of the largest score and the relative error of the sum.
        error = (lse.double() - (top + total.log()))[there].abs().max()
        assert error <= 2**-20 * (1 + top.abs().max())


def paged(tensor, layout="BNSD", lengths=LENGTHS, page=PAGE):
    """Returns the tensor's rows in pages of random order, and the block table. Two pages, and rows beyond the lengths,
    are NaN."""
    count = -(-tensor.shape[2] // page)
    order = torch.randperm(B * count + 2)[: B * count].view(B, count)
    pages = torch.full((B * count + 2, tensor.shape[1], page, tensor.shape[3]), torch.nan, dtype=tensor.dtype)
    for b, length in enumerate(lengths):
        for j in range(length):
            pages[order[b, j // page], :, j % page] = tensor[b, :, j]
    pages = pages.transpose(1, 2).contiguous() if layout != "BNSD" else pages
    return (pages.flatten(2) if layout == "BSH" else pages), order.to(torch.int32)


def paged_pair(k, v, layout="BNSD", page=PAGE):
    torch.manual_seed(3)
    k, table = paged(k, layout, page=page)
    torch.manual_seed(3)
    return k, paged(v, layout, page=page)[0], table


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_layouts_and_types(layout, dtype):
    q, k, v = random_qkv(dtype)
    out, lse = fa.decode_attention(
        *(to_layout(t, layout) for t in (q, k, v)), layout=layout, head_num=N, lengths_kv=LENGTHS, return_lse=True
    )
    assert out.dtype == dtype
    assert_right(bnsd(out, layout, N), q, k, v, lse=lse)


@pytest.mark.parametrize("call", [fa.decode_attention, decode_attention])
def test_forms_of_keys_have_the_same_bits(call):
    q, k, v = random_qkv(torch.bfloat16)
    want = call(q, k, v, lengths_kv=LENGTHS)
    assert_right(want, q, k, v)
    lists = ([t[b : b + 1, :, :length].clone() for b, length in enumerate(LENGTHS)] for t in (k, v))
    assert torch.equal(call(q, *lists), want)
    for layout in ("BNSD", "BSND", "BSH"):
        *pages, table = paged_pair(k, v, layout)
        out = call(to_layout(q, layout), *pages, layout=layout, head_num=N, lengths_kv=LENGTHS, block_table=table)
        assert torch.equal(bnsd(out, layout, N), want), layout
    flat = [pages.flatten(2) for pages in paged_pair(k, v, "BSND")[:2]]
    assert torch.equal(call(q, *flat, lengths_kv=LENGTHS, block_table=table), want)
    assert torch.equal(call(q, *flat, lengths_kv=LENGTHS, block_table=table, layout="BNSD_BSND").transpose(1, 2), want)


def test_numpy():
    inputs = [t.numpy() for t in random_qkv()]
    out, lse = fa.decode_attention(*inputs, lengths_kv=np.array(LENGTHS), return_lse=True)
    assert isinstance(out, np.ndarray) and isinstance(lse, np.ndarray)
    want = fa.decode_attention(*map(torch.from_numpy, inputs), lengths_kv=LENGTHS)
    assert np.array_equal(out, want.numpy())


@pytest.mark.parametrize(("window", "left", "right"), [((-1, 0), None, 0), ((5, 0), 5, 0), ((5, 2), 5, 2), ((-1, 3), None, 3)])
def test_windows_count_from_the_lengths(window, left, right):
    q, k, v = random_qkv()
    out, lse = decode_attention(q, k, v, lengths_kv=LENGTHS, window=window, return_lse=True)
    assert_right(out, q, k, v, lse=lse, keep=kept(left=left, right=right))
    if right == 0:
        assert torch.equal(decode_attention(q, k, v, lengths_kv=LENGTHS, window=(window[0], 9), is_causal=True), out)


def test_softcap_sink_bias_and_mask_together():
    q, k, v = random_qkv()
    sink, pse = torch.randn(N), torch.randn(B, N, 1, S)
    drop = torch.rand(B, 1, SQ, S) < 0.3
    features = {"softcap": 3.0, "sink": sink}
    out, lse = decode_attention(
        q, k, v, lengths_kv=LENGTHS, pse=pse, dense_mask=drop, is_causal=True, return_lse=True, **features
    )
    keep = kept(right=0) & ~drop
    assert_right(out, q, k, v, lse=lse, keep=keep, bias=pse.expand(-1, -1, SQ, -1), **features)


def test_lengths_of_queries_leave_rows_zero():
    q, k, v = random_qkv()
    out = decode_attention(q, k, v, lengths_kv=torch.tensor(LENGTHS), lengths_q=[2, 0, 1])
    # A batch element's number of rows may change the kernel, and so the bits. So each element is compared with a call
    # of its used rows alone.
    want = torch.zeros_like(out)
    for b, rows in ((0, 2), (2, 1)):
        one = slice(b, b + 1)
        want[one, :, :rows] = fa.decode_attention(q[one, :, :rows], k[one], v[one], lengths_kv=LENGTHS[one])
    assert torch.equal(out, want)


def test_int8_keys_and_output():
    q, _, _ = random_qkv()
    k, v = (torch.randint(-128, 128, (B, NKV, S, D), dtype=torch.int8) for _ in range(2))
    scale, offset = 0.01 + 0.01 * torch.rand(2, NKV, D), 5 * torch.randn(2, NKV, D)
    floats = [(x.float() + offset[i][:, None]) * scale[i][:, None] for i, x in enumerate((k, v))]
    call = {"lengths_kv": LENGTHS, "antiquant_scale": scale, "antiquant_offset": offset}
    out = decode_attention(q, k, v, **call)
    assert_right(out, q, *floats)
    per_token = {"antiquant_scale": torch.full((2, B, S), 0.02), "antiquant_per_token": True, "lengths_kv": LENGTHS}
    assert_right(decode_attention(q, k, v, **per_token), q, k * 0.02, v * 0.02)
    rounded = decode_attention(q, k, v, **call, quant_scale2=torch.tensor([50.0]))
    assert rounded.dtype == torch.int8
    assert not ((rounded - (out * 50)).abs().max() > 0.5 + 2**-12)


def test_int8_queries_have_the_bits_of_a_prompt_in_every_form_of_keys():
    q, k, v = (torch.randint(-20, 21, t.shape, dtype=torch.int8) for t in random_qkv())
    scales = {"deq_scale1": torch.tensor([0.01]), "quant_scale1": torch.tensor([127.0]), "deq_scale2": torch.tensor([0.1])}
    call = {"lengths_kv": LENGTHS, "scale": SCALE, **scales}
    want = fa.prompt_flash_attention(q, k, v, **call)
    assert want.dtype == torch.float16 and want.abs().max() > 0
    order = torch.arange(B * (S // PAGE + 1), dtype=torch.int32).flip(0).view(B, -1)
    pages = [torch.full((order.numel(), NKV, PAGE, D), -128, dtype=torch.int8) for _ in range(2)]
    for to, tensor in zip(pages, (k, v), strict=True):
        for b, length in enumerate(LENGTHS):
            for j in range(length):
                to[order[b, j // PAGE], :, j % PAGE] = tensor[b, :, j]
    for decode in (fa.decode_attention, decode_attention):
        assert torch.equal(decode(q, k, v, **call), want)
        assert torch.equal(decode(q, [t for t in k[:, None]], [t for t in v[:, None]], **call), want)
        assert torch.equal(decode(q, *pages, block_table=order, **call), want)
        with pytest.raises(ValueError, match="deq_scale2: missing, want it"):
            decode(q, k, v, **{**call, "deq_scale2": None})
        with pytest.raises(ValueError, match="deq_scale1: given, want none"):
            decode(q.float(), k.float(), v.float(), **call)
    assert decode_attention(q, k, v, **call, quant_scale2=torch.tensor([50.0])).dtype == torch.int8


def test_split_heads_in_every_form_of_keys():
    q, k, v = random_qkv()
    parts = [[t[..., a:b].contiguous() for t in (q, k)] for a, b in ((0, 16), (16, D))]
    (q1, k1), (q2, k2) = parts
    call = {"lengths_kv": LENGTHS, "scale": SCALE, "query_rope": q2}
    want = fa.decode_attention(q1, k1, v, key_rope=k2, **call)
    assert_right(want, q, k, v)
    torch.manual_seed(3)  # every case uses the same order of pages
    state = torch.get_rng_state()
    pages = []
    for tensor in (k1, v, k2):
        torch.set_rng_state(state)
        pages.append(paged(tensor))
    (pk, table), (pv, _), (pr, _) = pages
    for decode in (fa.decode_attention, decode_attention):
        assert torch.equal(decode(q1, k1, v, key_rope=k2, **call), want)
        lists = ([t for t in tensor[:, None]] for tensor in (k1, v, k2))
        key, value, rope = lists
        assert torch.equal(decode(q1, key, value, key_rope=rope, **call), want)
        assert torch.equal(decode(q1, pk, pv, key_rope=pr, block_table=table, **call), want)
        with pytest.raises(ValueError, match="key_rope: missing .query_rope is given"):
            decode(q1, k1, v, **call)
        with pytest.raises(ValueError, match=r"key_rope.shape\[0\]"):
            decode(q1, pk, pv, key_rope=pr[1:], block_table=table, **call)
    compiled = torch.compile(decode_attention, fullgraph=True)
    assert torch.equal(compiled(q1, k1, v, key_rope=k2, **call), want)


def caches():
    """Returns k and v as views of a larger tensor, as a server's caches are."""
    torch.manual_seed(5)
    whole = torch.randn(S + 30, B + 1, 2, NKV, D + 8)  # the dimensions are [S, B, k or v, N, D]
    views = [whole[:, :B, i, :, :D].permute(1, 2, 0, 3) for i in (0, 1)]
    return [view[:, :, :S] for view in views]


def test_strides_change_no_bits():
    q, (k, v) = random_qkv()[0], caches()
    want = fa.decode_attention(q.clone(), k.clone(), v.clone(), lengths_kv=LENGTHS)
    apart = torch.randn(B, N, SQ, 2 * D)[..., :D].copy_(q)
    shared = k[:, :1].expand(-1, 2, -1, -1), v[:, :1].expand(-1, 2, -1, -1)  # all key heads share one head's memory
    for call in (fa.decode_attention, decode_attention):
        assert torch.equal(call(apart, k, v, lengths_kv=LENGTHS), want)
        plain = (t.contiguous() for t in shared)
        assert torch.equal(call(q, *shared, lengths_kv=LENGTHS), call(q, *plain, lengths_kv=LENGTHS))


def peak_bytes(function):
    """Returns by how many bytes the peak of this process' memory rises while `function` runs."""

    def status(field):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

    ctypes.CDLL(None).malloc_trim(0)  # a copy in memory that was freed but is still this process's would not be seen
    Path("/proc/self/clear_refs").write_text("5")  # writing 5 resets the peak to the current size
    before = status("VmRSS:")
    function()
    return status("VmHWM:") - before


@pytest.mark.parametrize("call", [fa.decode_attention, decode_attention, torch.compile(decode_attention, backend="eager")])
@pytest.mark.parametrize("form", ["slices", "list", "pages", "numpy"])
def test_a_cache_is_not_copied(form, call):
    if form == "numpy" and call is not fa.decode_attention:
        return
    memory = torch.zeros(2, 2, 8192 + 512, 2, 512)  # [k or v, B, S, N, D]; k and v take 68 MiB each
    q = torch.randn(2, 4, 1, 500)
    k, v = memory[:, :, :8192, :, :500].transpose(2, 3)
    call_of = {
        "slices": lambda: call(q, k, v, lengths_kv=[8192, 300]),
        "list": lambda: call(q, list(k.split(1)), list(v.split(1)), lengths_kv=[8192, 300]),
        "pages": lambda: call(
            q,
            *memory.view(2, -1, 16, 2, 512)[..., :500].transpose(2, 3),
            lengths_kv=[8192, 300],
            block_table=torch.arange(1024, dtype=torch.int32).view(2, 512),
        ),
        "numpy": lambda: call(q.numpy(), k.numpy(), v.numpy(), lengths_kv=[8192, 300]),
    }[form]
    call_of()  # threads and workspaces are made in the first call
    assert peak_bytes(call_of) < memory.numel() * 4 // 8
    assert torch.equal(torch.as_tensor(call_of()), torch.zeros(2, 4, 1, 500))


def test_a_copy_would_be_seen():
    k = torch.zeros(1, 1, 8192, 2048)[..., ::2]
    q = torch.zeros(1, 1, 1, 1024)
    fa.decode_attention(q, k, k)
    assert peak_bytes(lambda: fa.decode_attention(q, k, k)) >= k.numel() * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_packed_queries_over_pages(dtype):
    """In a packed call, a sequence has the bits of a call with this sequence alone."""
    rows, lengths = [1, 40, 3], [33, 70, 20]
    q, k, v = torch.randn(sum(rows) + 2, N, D).to(dtype), *random_qkv(dtype)[1:]
    k_pages, table = paged(k, "BSND", lengths)
    v_pages = torch.full_like(k_pages, torch.nan)
    for b, length in enumerate(lengths):
        for j in range(length):
            v_pages[table[b, j // PAGE], j % PAGE] = v[b, :, j]
    ends = np.cumsum(rows).tolist()
    sink = torch.randn(q.shape[0], N)
    options = {"layout": "TND", "lengths_q": ends, "block_table": table, "softcap": 3.0, "is_causal": True, "sink": sink}
    out, lse = decode_attention(q, k_pages, v_pages, lengths_kv=lengths, return_lse=True, **options)
    assert out.shape == q.shape and lse.shape == q.shape[:2]
    assert (out[ends[-1] :] == 0).all()
    for b, (end, count, length) in enumerate(zip(ends, rows, lengths, strict=True)):
        own = slice(end - count, end)
        alone, own_lse = decode_attention(
            q[own].transpose(0, 1)[None],
            k[b : b + 1, :, :length],
            v[b : b + 1, :, :length],
            softcap=3.0,
            is_causal=True,
            sink=sink[own].t()[None],
            return_lse=True,
        )
        assert torch.equal(out[own], alone[0].transpose(0, 1))
        assert torch.equal(lse[own], own_lse[0].t())


ERRORS = [
    ({"lengths_kv": [70, 71, 3]}, r"lengths_kv\[1\]=71, want 0\.\.70"),
    ({"lengths_kv": [70, 1]}, "lengths_kv"),
    ({"lengths_kv": torch.tensor([1.5])}, "lengths_kv"),
    ({"block_table": torch.zeros(B, 5, dtype=torch.int64)}, "block_table.dtype=i64, want i32"),
    ({"key": torch.zeros(B, NKV, S, D + 1)}, r"key.shape\[3\]=25, want 24"),
    ({"key": [torch.zeros(1, NKV, S, D)] * 2}, "value has 1 tensors, want 2"),
    ({"value": torch.zeros(B, NKV, S - 1, D)}, r"value.shape\[2\]=69, want 70"),
    ({"key": torch.zeros(B, NKV, S, D, dtype=torch.float64)}, "key.dtype"),
    ({"sink": torch.zeros(N - 1)}, r"sink.shape\[0\]=5, want 6"),
    ({"softcap": -1.0}, "softcap"),
    ({"scale": float("nan")}, "scale"),
    ({"sink": torch.zeros(B, N, SQ + 1)}, r"sink.shape\[2\]=3, want 2"),
    ({"layout": "TND"}, "layout=TND, want"),
    ({"head_num": 4}, "head_num=4"),
    ({"dense_mask": torch.zeros(B, S - 1, dtype=torch.bool)}, "dense_mask"),
    ({"quant_scale2": torch.zeros(N * D - 1)}, "quant_scale2"),
    ({"antiquant_scale": torch.ones(2)}, "antiquant_scale: given, want none"),
]


@pytest.mark.parametrize(("changed", "message"), ERRORS)
def test_errors_name_the_argument(changed, message):
    short = {"query": "q", "key": "k", "value": "v"}
    q, k, v = random_qkv()
    arguments = {"lengths_kv": LENGTHS, **changed}
    given = {"query": q, "key": k, "value": v, **arguments}
    with pytest.raises((ValueError, TypeError), match=rf"^(invalid argument: )?{message}"):
        decode_attention(**given)
    renamed = {short.get(name, name): value for name, value in given.items()}
    message = re.sub("query|key|value", lambda word: short[word[0]], message)
    with pytest.raises((ValueError, TypeError), match=rf"^(invalid argument: )?{message}"):
        fa.decode_attention(**renamed)


@pytest.mark.parametrize(("changed", "message"), [
    ({"window": (-2, 0)}, r"window=\(-2, 0\)"),
    ({"key": [torch.zeros(1, NKV, S, D), None, None]}, r"key\[1\]: want a torch.Tensor, got NoneType"),
    ({"key": 3}, "key: want a torch.Tensor or a list of them, got int"),
    ({"query": None}, "query: want a torch.Tensor, got NoneType"),
    ({"sink": 1.0}, "sink: want a torch.Tensor, got float"),
])
def test_errors_of_the_torch_function(changed, message):
    q, k, v = random_qkv()
    with pytest.raises((ValueError, TypeError), match=message):
        decode_attention(**{"query": q, "key": k, "value": v, **changed})


def test_a_page_that_does_not_exist_is_named():
    q, k, v = random_qkv()
    *pages, table = paged_pair(k, v)
    table[0, 2] = 99
    with pytest.raises(ValueError, match=r"block_table\[0\]\[2\]=99, want 0\.\.16 \(key\.shape\[0\]\)"):
        decode_attention(q, *pages, lengths_kv=LENGTHS, block_table=table)


@pytest.mark.parametrize("name", ["query", "key", "value[1]", "sink"])
def test_gradients_are_refused_by_name(name):
    q, k, v = random_qkv()
    given = {"query": q, "key": k, "value": v, "sink": torch.zeros(N)}
    if name == "value[1]":
        given |= {"key": list(k.split(1)), "value": [t.clone() for t in v.split(1)]}
        given["value"][1].requires_grad_()
    else:
        given[name].requires_grad_()
    with pytest.raises(ValueError, match=f"{name.replace('[', chr(92) + '[')}: requires a gradient"):
        decode_attention(**given, lengths_kv=LENGTHS)
    with torch.no_grad():
        assert not decode_attention(**given, lengths_kv=LENGTHS).requires_grad
    renamed = {"q": given["query"], "k": given["key"], "v": given["value"], "sink": given["sink"]}
    with pytest.raises(ValueError, match="requires a gradient"):
        fa.decode_attention(**renamed)
    call = _torch_decode.DecodeCall(sink=given["sink"])
    lists = (t if isinstance(t, list) else [t] for t in (given["key"], given["value"]))
    with pytest.raises(NotImplementedError, match="fa::decode_attention: there is no gradient"):
        _torch_decode.decode_operator(given["query"], *lists, *call)


CALLS = {
    "plain": lambda: {},
    "lengths": lambda: {"lengths_kv": torch.tensor(LENGTHS), "lengths_q": torch.tensor([2]), "return_lse": True},
    "window": lambda: {"rule": "band", "pre": 5, "next": 0, "softcap": 2.0, "sink": torch.randn(N)},
    "other layout": lambda: {"layout": "BNSD_BSND", "return_lse": True},
    "int8 output": lambda: {"quant_scale2": torch.tensor([30.0])},
}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name):
    q, k, v = random_qkv()
    torch.library.opcheck(_torch_decode.decode_operator, (q, [k], [v], *_torch_decode.DecodeCall(**CALLS[name]())))


def test_opcheck_of_lists_and_pages():
    q, k, v = random_qkv()
    call = _torch_decode.DecodeCall(lengths_kv=torch.tensor(LENGTHS))
    torch.library.opcheck(_torch_decode.decode_operator, (q, list(k.split(1)), list(v.split(1)), *call))
    k, v, table = paged_pair(k, v, "BSH")
    torch.library.opcheck(_torch_decode.decode_operator, (q, [k], [v], *call._replace(block_table=table)))


def step(q, k, v, lengths):
    out, lse = decode_attention(q * 2, k, v, lengths_kv=lengths, is_causal=True, return_lse=True)
    return out + 1, lse, decode_attention(q, [k[b : b + 1] for b in range(B)], [v[b : b + 1] for b in range(B)])


def test_torch_compile_takes_it_into_the_graph():
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for keys in (S, S + 9):
        inputs = random_qkv(keys=keys)
        with torch.no_grad():
            for got, want in zip(compiled(*inputs, torch.tensor(LENGTHS)), step(*inputs, LENGTHS), strict=True):
                assert torch.equal(got, want)


def test_inference_mode_and_autocast():
    inputs = random_qkv()
    want = decode_attention(*inputs, lengths_kv=LENGTHS)
    with torch.inference_mode():
        assert torch.equal(decode_attention(*(t.clone() for t in inputs), lengths_kv=LENGTHS), want)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(decode_attention(*inputs, lengths_kv=LENGTHS), want)


def test_vmap():
    samples = [torch.randn(4, *t.shape) for t in random_qkv()]
    want = torch.stack([decode_attention(*sample, lengths_kv=LENGTHS) for sample in zip(*samples, strict=True)])
    lengths = torch.tensor(LENGTHS)
    assert torch.equal(vmap(lambda q, k, v: decode_attention(q, k, v, lengths_kv=lengths))(*samples), want)
    shared = vmap(lambda q: decode_attention(q, samples[1][0], samples[2][0], lengths_kv=lengths))(samples[0])
    assert torch.equal(shared[0], want[0])
    none = vmap(lambda q: decode_attention(q, samples[1][0], samples[2][0]))(samples[0][:0])
    assert none.shape == (0, B, N, SQ, D)


def test_threads():
    inputs = random_qkv()
    want = decode_attention(*inputs, lengths_kv=LENGTHS)
    wrong = []

    def run():
        wrong.extend(1 for _ in range(20) if not torch.equal(decode_attention(*inputs, lengths_kv=LENGTHS), want))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("shape", [(0, N, 1, D), (B, N, 0, D)])
def test_calls_without_elements(shape):
    keys = torch.zeros(shape[0], NKV, S, D)
    out, lse = decode_attention(torch.zeros(shape), keys, keys, return_lse=True)
    assert out.shape == shape and lse.shape == shape[:-1]
    nothing = decode_attention(torch.ones(B, N, 1, D), *(torch.zeros(B, NKV, 0, D) for _ in range(2)))
    assert torch.equal(nothing, torch.zeros(B, N, 1, D))
