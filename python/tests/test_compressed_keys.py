"""Keys and values of 8 and 4 bits in fa.decode_attention and fa.torch.decode_attention, and fa.scatter_rows, which
writes them."""

import re

import ml_dtypes
import numpy as np
import pytest
import torch
from test_decode import LENGTHS, NKV, PAGE, SCALE, SQ, B, N, S, assert_right, kept

import fa
from fa._torch import cache_ops
from fa._torch import decode as _torch_decode
from fa.torch import decode_attention, scatter_rows

D, GROUPS = 32, 4
NUMPY_FLOATS = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
SCALARS = np.ones((1, 1, 1, 1), np.float32)
FORMATS = ["int8", "e4m3", "e5m2", "int4"]
FUNCTIONS = [fa.decode_attention, decode_attention]
KINDS = {  # the shapes of scales
    "tensor": (1, 1, 1, 1),
    "head": (1, NKV, 1, 1),
    "token": (B, 1, S, 1),
    "token and head": (B, NKV, S, 1),
    "group": (1, NKV, 1, GROUPS),
    "column": (1, NKV, 1, D),
    "token and group": (B, NKV, S, GROUPS),
}


def unpacked(bits):
    """Returns the numbers of 4 bits in int32, the first in the lowest bits."""
    numbers = (bits[..., None] >> (4 * torch.arange(8, dtype=torch.int32))) & 15
    return torch.where(numbers >= 8, numbers - 16, numbers).flatten(-2).float()


def keys_of(kind):
    """Returns random keys [B, Nkv, S, D] of a format, and their numbers as float32."""
    if kind == "int8":
        codes = torch.randint(-128, 128, (B, NKV, S, D), dtype=torch.int8)
    elif kind == "int4":
        codes = torch.randint(-(2**31), 2**31, (B, NKV, S, D // 8)).to(torch.int32)
        return codes, unpacked(codes)
    else:
        codes = torch.randn(B, NKV, S, D).to(torch.float8_e4m3fn if kind == "e4m3" else torch.float8_e5m2)
    return codes, codes.float()


def scales_of(shape, kind):
    unit = {"int8": 0.02, "int4": 0.3}.get(kind, 1.0)
    return unit * (0.5 + torch.rand(shape))


def spread(scale):
    """Returns a scale with one number per column."""
    return scale.repeat_interleave(D // scale.shape[3], 3)


def numbers(codes, scale, offset=None):
    return (codes + (0 if offset is None else spread(offset))) * spread(scale)


@pytest.mark.parametrize("shape", KINDS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_and_scale(kind, shape):
    q = torch.randn(B, N, SQ, D)
    (k, k_numbers), (v, v_numbers) = keys_of(kind), keys_of(kind)
    k_scale, v_scale = (scales_of(KINDS[shape], kind) for _ in range(2))
    k_offset = torch.randn(KINDS[shape]).to(torch.bfloat16)
    call = {"k_scale": k_scale, "v_scale": v_scale, "k_offset": k_offset, "lengths_kv": LENGTHS, "scale": SCALE}
    out, lse = fa.decode_attention(q, k, v, return_lse=True, **call)
    assert_right(out, q, numbers(k_numbers, k_scale, k_offset.float()), numbers(v_numbers, v_scale), lse=lse)
    got = decode_attention(q, k, v, return_lse=True, **call)
    assert torch.equal(got[0], out) and torch.equal(got[1], lse)


@pytest.mark.parametrize("call", FUNCTIONS)
@pytest.mark.parametrize("kind", FORMATS)
def test_pages_have_scales_per_row(kind, call):
    q = torch.randn(B, N, SQ, D)
    (k, k_numbers), (v, v_numbers) = keys_of(kind), keys_of(kind)
    k_scale, v_scale = (scales_of(KINDS["token and head"], kind) for _ in range(2))
    count = -(-S // PAGE)
    order = torch.randperm(B * count + 2)[: B * count].view(B, count)

    def paged(tensor, unused):
        pages = tensor.new_zeros(B * count + 2, NKV, PAGE, tensor.shape[3]).fill_(unused)
        for b, length in enumerate(LENGTHS):
            for j in range(length):
                pages[order[b, j // PAGE], :, j % PAGE] = tensor[b, :, j]
        return pages

    def paged_codes(codes):
        as_bytes = codes.view(torch.uint8) if codes.itemsize == 1 else codes
        return paged(as_bytes, 127).view(codes.dtype)  # 127 is NaN in both 8-bit floats

    scales = {"k_scale": paged(k_scale, torch.nan), "v_scale": paged(v_scale, torch.nan)}
    table = order.to(torch.int32)
    out = call(q, paged_codes(k), paged_codes(v), block_table=table, lengths_kv=LENGTHS, scale=SCALE, **scales)
    assert_right(out, q, numbers(k_numbers, k_scale), numbers(v_numbers, v_scale))


@pytest.mark.parametrize("call", FUNCTIONS)
@pytest.mark.parametrize("layout", ["BSND", "BSH", "SBH"])
def test_other_layouts_count_the_columns_of_int4(layout, call):
    q = torch.randn(B, N, SQ, D)
    (k, _), (v, _) = keys_of("int4"), keys_of("int4")
    scales = {name: scales_of(KINDS["group"], "int4") for name in ("k_scale", "v_scale")}
    want = call(q, k, v, lengths_kv=LENGTHS, **scales)

    def turned(tensor):
        tensor = tensor.transpose(1, 2)
        tensor = tensor if layout == "BSND" else tensor.flatten(2)
        return tensor.transpose(0, 1) if layout == "SBH" else tensor

    inputs = map(turned, (q, k, v))
    assert torch.equal(call(*inputs, layout=layout, head_num=N, lengths_kv=LENGTHS, **scales), turned(want))


@pytest.mark.parametrize("call", FUNCTIONS)
@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "int4"])
def test_bytes_whose_format_is_named(kind, call):
    q = torch.randn(B, N, SQ, D)
    (k, _), (v, _) = keys_of(kind), keys_of(kind)
    scales = {name: scales_of(KINDS["head"], kind) for name in ("k_scale", "v_scale")}
    want = call(q, k, v, **scales)
    named = [t.view(torch.uint8) for t in (k, v)]
    assert torch.equal(call(q, *named, kv_dtype=kind, **scales), want)
    assert torch.equal(call(q, k, v, kv_dtype=kind, **scales), want)
    lists = [list(t.split(1)) for t in named]
    assert torch.equal(call(q, *lists, kv_dtype=kind, **scales), want)
    apart = [torch.cat([t, t], 3)[..., : t.shape[3]] for t in named]  # views with other strides
    assert torch.equal(call(q, *apart, kv_dtype=kind, **scales), want)
    odd = [torch.cat([t[..., :1], t], 3)[..., 1:] for t in named]  # rows that begin at odd addresses
    assert torch.equal(call(q, *odd, kv_dtype=kind, **scales), want)


@pytest.mark.parametrize("kind", FORMATS)
def test_numpy(kind):
    q = torch.randn(B, N, SQ, D)
    (k, _), (v, _) = keys_of(kind), keys_of(kind)
    scales = {name: scales_of(KINDS["token and head"], kind) for name in ("k_scale", "v_scale")}
    want = fa.decode_attention(q, k, v, lengths_kv=LENGTHS, **scales)
    arrays = {name: scale.numpy() for name, scale in scales.items()}
    plain = kind in ("int8", "int4")
    codes = [(t if plain else t.view(torch.uint8)).numpy() for t in (k, v)]
    got = fa.decode_attention(q.numpy(), *codes, kv_dtype=None if plain else kind, lengths_kv=LENGTHS, **arrays)
    assert np.array_equal(got, want.numpy())
    if not plain:
        own = ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2
        got = fa.decode_attention(q.numpy(), *(t.view(own) for t in codes), lengths_kv=LENGTHS, **arrays)
        assert np.array_equal(got, want.numpy())


def test_one_format_for_keys_and_values():
    """Arrays of NumPy reach the library as bytes. So their formats must be compared before the call."""
    q, scales = np.random.randn(B, N, SQ, D).astype(np.float32), dict.fromkeys(("k_scale", "v_scale"), SCALARS)
    codes = [torch.randn(B, NKV, S, D).to(kind) for kind in (torch.float8_e4m3fn, torch.float8_e5m2)]
    e4m3, e5m2 = [t.view(torch.uint8).numpy().view(t_) for t, t_ in zip(codes, NUMPY_FLOATS, strict=True)]
    plain = e4m3.view(np.uint8)
    for k, v, words in (
        (e4m3, e5m2, r"v.dtype=float8_e5m2, want float8_e4m3fn \(k.dtype\)"),
        (plain, e4m3, r"v.dtype=float8_e4m3fn, want uint8 \(k.dtype\)"),
        (e4m3, plain, r"v.dtype=uint8, want float8_e4m3fn \(k.dtype\)"),
        ([e4m3[:1], e5m2[1:]], [e4m3[:1], e4m3[1:]], r"k\[1\].dtype=float8_e5m2, want float8_e4m3fn \(k\[0\].dtype\)"),
    ):
        with pytest.raises(ValueError, match=f"^invalid argument: {words}$"):
            fa.decode_attention(q, k, v, **scales)
    with pytest.raises(ValueError, match=r"^invalid argument: v.dtype=uint8, want float8_e4m3fn \(k.dtype\)$"):
        fa.decode_attention(torch.from_numpy(q), codes[0], codes[0].view(torch.uint8), **scales)


def wrong(**changed):
    (k, _), (v, _) = keys_of("int8"), keys_of("int8")
    scales = {name: scales_of(KINDS["head"], "int8") for name in ("k_scale", "v_scale")}
    return {"q": torch.randn(B, N, SQ, D), "k": k, "v": v, **scales, "lengths_kv": LENGTHS, **changed}


BYTES = torch.zeros(B, NKV, S, D, dtype=torch.uint8)
ERRORS = [
    ({"k_scale": None}, r"k_scale: missing \(k.dtype is i8\)"),
    ({"v_scale": None}, r"v_scale: missing \(k.dtype is i8\)"),
    ({"k_scale": torch.ones(1, NKV + 1, 1, 1)}, r"k_scale.shape\[1\]=3, want 1 or 2"),
    ({"k_scale": torch.ones(NKV)}, r"k_scale.shape=\[2\], want \[B\|1, Nkv\|1, S\|1, groups\|1\]"),
    ({"v_scale": torch.ones(1, 1, 1, 5)}, r"v_scale.shape\[3\]=5, want a divisor of 32"),
    ({"k_scale": torch.ones(1, 1, 1, 1).double()}, "k_scale.dtype is a float of 64 bits"),
    ({"v_offset": torch.ones(1, 1, 1, 1)}, r"v_offset.shape=\[1,1,1,1\], want \[1,2,1,1\] \(v_scale\)"),
    ({"antiquant_scale": torch.ones(2)}, r"k_scale: given, want none \(antiquant_scale is given\)"),
    ({"kv_dtype": "e3m4"}, "kv_dtype='e3m4', want None or one of e4m3, e5m2, int4"),
    ({"kv_dtype": "e4m3"}, r"k.dtype=int8, want uint8 or float8_e4m3fn \(kv_dtype='e4m3'\)"),
    ({"k": BYTES, "v": BYTES}, "k.dtype=u8"),
    ({"k": BYTES, "kv_dtype": "e5m2"}, "v.dtype=int8, want uint8 or float8_e5m2"),
    ({"v": BYTES.view(torch.float8_e4m3fn)}, "v.dtype=f8e4m3"),
    ({"k": BYTES[..., :6], "v": BYTES[..., :6], "kv_dtype": "int4"}, r"k.shape\[3\]=6, want a multiple of 4"),
    ({"k": BYTES.view(torch.int32)}, "v.dtype=i8"),
    ({"q": torch.randn(B, N, SQ, 12)}, r"k.shape\[3\]=32, want 12"),
]


@pytest.mark.parametrize(("changed", "message"), ERRORS)
def test_errors_name_the_argument(changed, message):
    with pytest.raises(ValueError, match=rf"^invalid argument: {message}"):
        fa.decode_attention(**wrong(**changed))
    names = {"q": "query", "k": "key", "v": "value"}
    given = {names.get(name, name): value for name, value in wrong(**changed).items()}
    message = re.sub(r"\b[qkv]\b", lambda word: names[word[0]], message)
    with pytest.raises(ValueError, match=rf"^invalid argument: {message}"):
        decode_attention(**given)


def test_plans():
    q, keys = (B, N, 1, D), (B, NKV, S, D)
    scales = {"k_scale": (B, NKV, S, 1), "v_scale": (B, NKV, S, 1)}
    shown = {kv: fa.plan("decode", q, keys, keys, dtype="bf16", kv_dtype=kv, **scales) for kv in (None, "e4m3", "e5m2")}
    packed = (B, NKV, S, D // 8)
    shown["int4"] = fa.plan("decode", q, packed, packed, dtype="bf16", kv_dtype="int4", **scales)
    flops = fa.plan("decode", q, keys, keys, dtype="bf16").flops
    for kind, plan in shown.items():
        assert plan.flops == flops
        own = {None: "i8", "e4m3": "f8e4m3", "e5m2": "f8e5m2", "int4": "i4x8"}[kind]
        with pytest.raises(ValueError, match=rf"v_scale: missing \(k.dtype is {own}\)"):
            fa.plan("decode", q, *[packed if kind == "int4" else keys] * 2, kv_dtype=kind, k_scale=(1, 1, 1, 1))
    for kind in FORMATS:
        (k, _), given = keys_of(kind), {name: torch.ones(shape) for name, shape in scales.items()}
        assert fa.plan("decode", torch.zeros(q).bfloat16(), k, k, **given).flops == flops
        assert fa.plan("decode", torch.zeros(q), [k[:1]] * B, [k[:1]] * B, **given).op == "decode"
    written = fa.plan("scatter", (9, NKV, D), None, (9,), (4, 8, NKV, D), key_scale_cache=(4, NKV, 8, 1))
    assert written.kernels == ["quantize_rows"]
    assert fa.plan("scatter", (9, NKV, D), None, (9,), (4, 8, NKV, D), key_scale=(1,), kv_dtype="e4m3").kernels


@pytest.mark.parametrize("kind", FORMATS)
def test_operators_of_pytorch(kind):
    q = torch.randn(B, N, SQ, D)
    (k, _), (v, _) = keys_of(kind), keys_of(kind)
    scales = {name: scales_of(KINDS["token and head"], kind) for name in ("k_scale", "v_scale")}
    call = _torch_decode.DecodeCall(lengths_kv=torch.tensor(LENGTHS), **scales)
    if kind in ("int8", "int4"):  # opcheck compares tensors in ways that PyTorch lacks for 8-bit floats
        torch.library.opcheck(_torch_decode.decode_operator, (q, [k], [v], *call))
    want = decode_attention(q, k, v, lengths_kv=LENGTHS, **scales)
    torch.compiler.reset()  # each format needs a compilation, and PyTorch limits how many a function has
    compiled = torch.compile(decode_attention, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v, lengths_kv=torch.tensor(LENGTHS), **scales), want)
    samples = torch.stack([q, q * 2])
    got = torch.func.vmap(lambda sample: decode_attention(sample, k, v, lengths_kv=torch.tensor(LENGTHS), **scales))(samples)
    assert torch.equal(got[0], want)
    if kind == "int8":
        return
    for whole in (True, False):  # whether rows begin at multiples of 4 bytes
        named = [t.view(torch.uint8) for t in (k, v)]
        named = named if whole else [torch.cat([t[..., :1], t], 3)[..., 1:] for t in named]
        given = {**scales, "lengths_kv": torch.tensor(LENGTHS), "kv_dtype": kind}
        assert torch.equal(compiled(q, *named, **given), want)
        stacked = [torch.stack([t, t.flip(2)]) for t in named]
        got = torch.func.vmap(lambda k, v, given=given: decode_attention(q, k, v, **given))(*stacked)
        assert torch.equal(got[0], want) and not torch.equal(got[1], want)


# --- scatter_rows into caches of 8 bits ---

ROWS = 13


def expected_codes(rows, kind, scale=None):
    """Returns codes and scales of rows [T, N, D]. A code is row / scale, rounded and clamped."""
    rows = rows.float()
    largest = 127.0 if kind == "int8" else 448.0
    if scale is None:
        scale = rows.abs().amax(-1, keepdim=True) / largest
    x = torch.where(scale > 0, rows / scale, 0.0)
    if kind == "int8":
        return x.round().clamp(-128, 127).to(torch.int8), scale
    return x.clamp(-448, 448).to(torch.float8_e4m3fn), scale


def same_bytes(a, b):
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("call", [fa.scatter_rows, scatter_rows])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["int8", "e4m3"])
def test_rows_are_quantised_into_pages(kind, dtype, call):
    key, value = torch.randn(ROWS, NKV, D).to(dtype), (3 * torch.randn(ROWS, NKV, 16)).to(dtype)
    slots = torch.randperm(5 * 8)[:ROWS].to(torch.int32)
    slots[3] = -1
    own = torch.int8 if kind == "int8" else torch.float8_e4m3fn
    caches = [torch.full((5, 8, NKV, size), 99, dtype=torch.uint8).view(own) for size in (D, 16)]
    scales = [torch.full((5, NKV, 8, 1), -7.0) for _ in range(2)]
    want, want_scales = [t.clone() for t in caches], [t.clone() for t in scales]
    for rows, cache, scale in zip((key, value), want, want_scales, strict=True):
        codes, factors = expected_codes(rows, kind)
        for t, slot in enumerate(slots.tolist()):
            if slot >= 0:
                cache.view(torch.uint8)[slot // 8, slot % 8] = codes.view(torch.uint8)[t]
                scale[slot // 8, :, slot % 8] = factors[t]
    call(key, value, slots, *caches, key_scale_cache=scales[0], value_scale_cache=scales[1])
    assert all(same_bytes(*pair) for pair in zip(caches + scales, want + want_scales, strict=True))


@pytest.mark.parametrize("kind", ["int8", "e4m3"])
def test_numpy_rows_given_scales_and_named_bytes(kind):
    key = torch.randn(ROWS, NKV, D)
    key[2, 0, 5], key[3, 1, 0], key[4, 0, 1] = torch.inf, -1e30, 1e-30
    own = torch.int8 if kind == "int8" else torch.float8_e4m3fn
    slots = np.arange(ROWS)
    for scale in (torch.tensor([0.02]), torch.tensor([0.02, 0.5])):
        cache = np.zeros((2, 8, NKV, D), np.int8 if kind == "int8" else np.uint8)
        word = None if kind == "int8" else "e4m3"
        fa.scatter_rows(key.numpy(), None, slots, cache, key_scale=scale.numpy(), kv_dtype=word)
        want, _ = expected_codes(key, kind, scale[:, None] if scale.numel() > 1 else scale)
        assert same_bytes(torch.from_numpy(cache).view(own).flatten(0, 1)[:ROWS], want)


def test_caches_of_numpy_are_written_in_any_strides():
    key = torch.randn(4, 1, 8)
    for kind in (ml_dtypes.float8_e4m3fn, np.int8):
        cache, scale = np.zeros((1, 4, 8, 2), kind).transpose(0, 1, 3, 2)[:, :, 1:], np.zeros((1, 1, 4, 1), np.float32)
        fa.scatter_rows(key.numpy(), None, np.arange(4), cache, key_scale_cache=scale)
        codes, factors = expected_codes(key, "int8" if kind is np.int8 else "e4m3")
        assert np.array_equal(cache[0].view(np.uint8), codes.view(torch.uint8).numpy())
        assert np.array_equal(scale[0, 0], factors[:, 0].numpy())


def test_a_cache_without_pages_is_written_in_place_and_read():
    """Row s of element b goes to place b * S + s of a cache [B, Nkv, S, D]. The cache is a view of a larger tensor."""
    new, at = torch.randn(B, NKV, 4, D), 20
    whole = torch.zeros(B, NKV, S, D + 16, dtype=torch.int8)
    cache, scale = whole[..., :D], torch.zeros(B, NKV, S, 1)
    tokens = new.transpose(1, 2).reshape(-1, NKV, D)
    slots = (torch.arange(B)[:, None] * S + at + torch.arange(4)).flatten()
    fa.scatter_rows(tokens, None, slots, cache, key_scale_cache=scale, form="BnNBsD")
    codes, factors = expected_codes(new, "int8")
    assert torch.equal(cache[:, :, at : at + 4], codes) and torch.equal(scale[:, :, at : at + 4], factors)
    assert not cache[:, :, :at].any() and not cache[:, :, at + 4 :].any() and not whole[..., D:].any()
    q = torch.randn(B, N, 1, D)
    part = slice(at, at + 4)
    given = {"k_scale": scale[:, :, part], "v_scale": scale[:, :, part], "scale": SCALE}
    out = decode_attention(q, cache[:, :, part], cache[:, :, part], **given)
    keys = codes * factors
    assert_right(out, q, keys, keys, keep=kept([4] * B, sq=1, keys=4))


def test_vmap_writes_the_caches_of_all_samples():
    key, slots = torch.randn(3, ROWS, NKV, D), torch.arange(ROWS)
    cache, scale = torch.zeros(3, 2, 8, NKV, D, dtype=torch.int8), torch.zeros(3, 2, NKV, 8, 1)

    def write(key, cache, scale):
        scatter_rows(key, None, slots, cache, key_scale_cache=scale)
        return key.sum()

    torch.func.vmap(write)(key, cache, scale)
    codes, _ = expected_codes(key.flatten(0, 1), "int8")
    assert torch.equal(cache.flatten(1, 2)[:, :ROWS].flatten(0, 1), codes)
    with pytest.raises(RuntimeError, match="writes key_cache in place, which all samples share"):
        torch.func.vmap(write, in_dims=(0, None, 0))(key, cache[0], scale)


def test_what_is_not_finite_stays_so():
    key = torch.randn(4, 1, 8)
    key[1, 0, 3], key[2, 0, 1], key[3] = torch.nan, torch.inf, 0.0
    for own in (torch.int8, torch.float8_e4m3fn):
        cache, scale = torch.ones(1, 4, 1, 8).to(own), torch.ones(1, 1, 4, 1)
        fa.scatter_rows(key, None, torch.arange(4), cache, key_scale_cache=scale)
        read = cache.float()[0, :, 0] * scale[0, 0]
        assert torch.isnan(read[1:3]).all() and torch.equal(read[3], torch.zeros(8)) and scale[0, 0, 3] == 0
        assert torch.isfinite(read[0]).all()


@pytest.mark.parametrize(("changed", "message"), [
    ({"key_scale_cache": None}, r"key_cache.dtype=i8, want f32 \(key.dtype\), or scales of its codes"),
    ({"key_scale": torch.ones(1)}, r"key_scale: given, want none \(key_scale_cache is given\)"),
    ({"key_scale_cache": torch.ones(1, 3, NKV, 1)}, r"key_scale_cache.shape=\[1,3,2,1\], want \[1,2,3,1\]"),
    ({"key_scale_cache": None, "key_scale": torch.zeros(1)}, r"key_scale\[0\]=0, want a positive finite number"),
    ({"key_scale_cache": None, "key_scale": torch.tensor([1.0, torch.nan])}, r"key_scale\[1\]=nan, want a positive"),
    ({"key": torch.zeros(2, NKV, D, dtype=torch.int8)}, r"key_scale_cache: given, want none"),
    ({"kv_dtype": "e5m2"}, "kv_dtype='e5m2', want None or e4m3"),
    ({"kv_dtype": "e4m3"}, r"key_cache.dtype=int8, want uint8 or float8_e4m3fn \(kv_dtype='e4m3'\)"),
    ({"slot_mapping": torch.tensor([0, 3])}, r"slot_mapping\[1\]=3, want less than 3"),
])
def test_a_refused_call_writes_nothing(changed, message):
    cache, scale = torch.full((1, 3, NKV, D), 5, dtype=torch.int8), torch.full((1, NKV, 3, 1), 5.0)
    arguments = {"key": torch.randn(2, NKV, D), "value": None, "slot_mapping": torch.tensor([0, 1]), "key_cache": cache}
    arguments |= {"key_scale_cache": scale, **changed}
    with pytest.raises(ValueError, match=message):
        fa.scatter_rows(**arguments)
    if "kv_dtype" not in changed:
        with pytest.raises(ValueError, match=message):
            scatter_rows(**arguments)
    assert (cache == 5).all() and (scale == 5).all()


def test_the_operator_that_quantises():
    key, slots = torch.randn(ROWS, NKV, D), torch.arange(ROWS)
    cache, scale = torch.zeros(2, 8, NKV, D, dtype=torch.int8), torch.zeros(2, NKV, 8, 1)
    arguments = key, None, slots, None, None, None, cache.clone(), None, scale.clone(), None, "BnBsND"
    torch.library.opcheck(cache_ops.quantize, arguments)

    def step(key, cache, scale):
        scatter_rows(key * 2, None, slots, cache, key_scale_cache=scale)
        return cache.float().sum() + scale.sum()

    with torch.no_grad():
        total = torch.compile(step, backend="aot_eager", fullgraph=True)(key, cache, scale)
    codes, factors = expected_codes(key * 2, "int8")
    assert torch.equal(cache.flatten(0, 1)[:ROWS], codes)
    assert torch.allclose(total, codes.float().sum() + factors.sum(), rtol=1e-5, atol=1e-3)
    version = cache._version
    scatter_rows(key, None, slots, cache, key_scale_cache=scale)
    assert cache._version > version and scale._version > 0
    with pytest.raises(TypeError, match="^key_cache: want a torch.Tensor, got ndarray$"):
        scatter_rows(key, None, slots, cache.numpy())
    with pytest.raises(ValueError, match="key: requires a gradient"):
        scatter_rows(key.requires_grad_(), None, slots, cache, key_scale_cache=scale)
