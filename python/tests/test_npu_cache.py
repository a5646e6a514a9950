"""torch_npu's functions that merge partial results by lse, and those that move rows into paged caches and out of
them."""

import inspect

import numpy as np
import pytest
import torch

import fa
from fa import torch_npu
from random_bytes import bits, same

T, N, D, DV, PAGES, ROWS = 7, 2, 16, 8, 5, 4
REFUSED = "compress_lens=None, compress_seq_offsets=None, seq_lens=None"
SCATTER = f"key, value, key_cache, value_cache, slot_mapping, *, {REFUSED}, cache_mode='PA_NZ'"
GATHER = "key_cache, value_cache, block_tables, seq_lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False"
SELECTION = (
    "selection_k_rope, selection_kv_cache, selection_kv_block_table, selection_kv_block_status, "
    "selection_topk_indices, full_k_rope, full_kv_cache, full_kv_block_table, full_kv_actual_seq, full_q_actual_seq, "
    "*, selection_topk_block_size=64"
)
SIGNATURES = {
    "npu_attention_update": "lse, local_out, update_type",
    "npu_scatter_pa_kv_cache": SCATTER,
    "npu_scatter_pa_kv_cache_functional": SCATTER,
    "npu_scatter_pa_cache": f"key, slot_mapping, *, {REFUSED}, key_cache",
    "_npu_reshape_and_cache": "key, value, key_cache, value_cache, slot_indices",
    "npu_gather_pa_kv_cache": GATHER,
    "npu_gather_pa_kv_cache_functional": GATHER,
    "npu_gather_selection_kv_cache": SELECTION,
    "npu_gather_selection_kv_cache_functional": SELECTION,
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_the_devices(name):
    parameters = inspect.signature(getattr(torch_npu, name)).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"


def nz(cache, rank=5):
    """Returns a cache [pages, rows, N, D] in the form NZ of the device, with chunks of 32 bytes."""
    pages, rows, heads, size = cache.shape
    chunk = 32 // cache.element_size()
    chunks = cache.unflatten(3, (size // chunk, chunk)).permute(0, 2, 3, 1, 4)
    return (chunks if rank == 5 else chunks.flatten(1, 2)).contiguous()


SLOTS = [3, -1, 19, 3, 0, 8, 7]


def scattered(cache, rows):
    """Returns the cache [pages, rows, N, D] after a loop has written each row to its place."""
    cache = cache.clone()
    for slot, row in zip(SLOTS, rows, strict=True):
        if slot >= 0:
            cache[slot // ROWS, slot % ROWS] = row
    return cache


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8, torch.float8_e5m2, torch.int16])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_scatter_in_every_served_scene(dtype, index):
    size = 32 * 2
    key, value = bits((T, N, size), dtype), bits((T, N, 32), dtype)
    cache, values = bits((PAGES, ROWS, N, size), dtype), bits((PAGES, ROWS, N, 32), dtype)
    slots = torch.tensor(SLOTS, dtype=index)
    want, want_values = scattered(cache, key), scattered(values, value)
    got = cache.clone(), values.clone()
    assert torch_npu.npu_scatter_pa_kv_cache(key, value, *got, slots, cache_mode="Norm") is None
    assert same(got[0], want) and same(got[1], want_values)
    got = cache.clone(), values.clone()
    torch_npu._npu_reshape_and_cache(key, value, *got, slots)
    assert same(got[0], want) and same(got[1], want_values)
    for rank in (5, 4):
        before = nz(cache, rank), nz(values, rank)
        got = torch_npu.npu_scatter_pa_kv_cache_functional(key, value, *before, slots)
        assert same(got[0], nz(want, rank)) and same(got[1], nz(want_values, rank))
        assert same(before[0], nz(cache, rank)) and same(before[1], nz(values, rank))
    got = cache.clone()
    assert torch_npu.npu_scatter_pa_cache(key, slots, key_cache=got) is got and same(got, want)
    untouched = values.clone()
    got = cache.clone()
    torch_npu.npu_scatter_pa_kv_cache(key, key.new_empty(0), got, untouched, slots, cache_mode=None)
    assert same(got, want) and same(untouched, values)


def test_scatter_as_vllm_ascend_calls_it():
    key, value = bits((T, N, 64), torch.bfloat16), bits((T, N, 32), torch.bfloat16)
    both = bits((2, PAGES, ROWS, N, 64), torch.bfloat16)
    want, slots = scattered(both[0], key), torch.tensor(SLOTS, dtype=torch.int32)
    values = bits((PAGES, ROWS, N, 32), torch.bfloat16)
    want_values = scattered(values, value)
    torch_npu.npu_scatter_pa_kv_cache(
        key=key, value=value, key_cache=both[0], value_cache=values, slot_mapping=slots, cache_mode="Norm"
    )
    assert same(both[0], want) and same(values, want_values)
    codes, cache = bits((T, N, 64), torch.int8), bits((PAGES, ROWS, N, 64), torch.int8)
    caches = nz(cache), nz(cache)
    torch_npu.npu_scatter_pa_kv_cache(
        key=codes, value=codes, key_cache=caches[0], value_cache=caches[1], slot_mapping=slots
    )
    assert all(same(got, nz(scattered(cache, codes))) for got in caches)
    torch_npu.npu_scatter_pa_cache(key, slots, key_cache=both[1])
    assert same(both[1], scattered(both[1], key)) and not same(both[1], both[0])


def test_scatter_writes_through_views():
    """The caches are views of one buffer with heads before rows, and the rows of key are transposed."""
    both = bits((PAGES, 2, N, ROWS, D))
    before = both.clone()
    key, value = bits((N, T, D)).transpose(0, 1), bits((T, N, 2 * D))[..., ::2]
    caches = both[:, 0].transpose(1, 2), both[:, 1].transpose(1, 2)
    torch_npu.npu_scatter_pa_kv_cache(key, value, *caches, torch.tensor(SLOTS), cache_mode="Norm")
    assert same(both[:, 0].transpose(1, 2), scattered(before[:, 0].transpose(1, 2), key))
    assert same(both[:, 1].transpose(1, 2), scattered(before[:, 1].transpose(1, 2), value))


@pytest.mark.parametrize(("change", "message"), [
    ({"slot_mapping": torch.tensor([*SLOTS[:6], 20])}, r"slot_mapping\[6\]=20, want less than 20 \(key_cache\)"),
    ({"key": torch.zeros(T, 1, N, D)}, "key: a tensor of 4 dimensions is not served"),
    ({"compress_lens": torch.zeros(T)}, "compress_lens is not served"),
    ({"seq_lens": torch.zeros(T)}, "seq_lens is not served"),
    ({"cache_mode": "Rope"}, 'cache_mode="Rope", want "Norm" or "PA_NZ"'),
    ({"value_cache": torch.zeros(PAGES, ROWS, N, D)}, r"value_cache.shape\[3\]=16, want 8"),
    ({"value_cache": torch.zeros(PAGES, ROWS // 2, N, DV)}, "value_cache has 2 rows per page, want 4"),
    ({"key_cache": torch.zeros(PAGES, ROWS, N, D).half()}, r"key_cache.dtype=float16, want float32 \(key\)"),
    ({"cache_mode": "PA_NZ"}, r"key_cache.shape\[1\]=4, want 2 \(key.shape in chunks of 16\)"),
    ({"slot_mapping": torch.zeros(T)}, "slot_mapping.dtype=float32, want int32 or int64"),
    ({"slot_mapping": torch.zeros(T, dtype=torch.int16)}, "slot_mapping.dtype=int16, want int32 or int64"),
    ({"compress_seq_offsets": torch.zeros(T)}, "compress_seq_offsets is not served"),
])
def test_a_refused_scatter_writes_nothing(change, message):
    caches = torch.full((PAGES, ROWS, N, D), -7.0), torch.full((PAGES, ROWS, N, DV), -7.0)
    arguments = {
        "key": torch.zeros(T, N, D),
        "value": torch.zeros(T, N, DV),
        "key_cache": caches[0],
        "value_cache": caches[1],
        "slot_mapping": torch.tensor(SLOTS),
        "cache_mode": "Norm",
    }
    arguments |= {name: value - 7 if name in ("key_cache", "value_cache") else value for name, value in change.items()}
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_scatter_pa_kv_cache(**arguments)
    assert (arguments["key_cache"] == -7).all() and (arguments["value_cache"] == -7).all()


def gathered(cache, table, lengths, offsets, rows):
    """Returns a copy of `rows` [T, N, D] into which a loop has read the rows of all sequences."""
    rows, t = rows.clone(), 0
    for b, length in enumerate(lengths):
        for position in range(offsets[b], offsets[b] + length):
            if t == rows.shape[0]:
                return rows
            column = position // ROWS
            page = table[b][column] if column < len(table[b]) else -1
            rows[t] = cache[page, position % ROWS] if 0 <= page < PAGES else torch.zeros_like(rows[t])
            t += 1
    return rows


TABLE, LENGTHS, OFFSETS = [[2, 4, 0], [1, -1, 9], [3, 3, 1]], [6, 0, 5], [4, 0, 8]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
@pytest.mark.parametrize("rows", [9, 15])
@pytest.mark.parametrize("cumulative", [False, True])
def test_gather(dtype, rows, cumulative):
    size = 64
    cache, values = bits((PAGES, ROWS, N, size), dtype), bits((PAGES, ROWS, N, 32), torch.float16)
    key, value = bits((rows, N, size), dtype), bits((rows, N, 32), torch.float16)
    want = [gathered(c, TABLE, LENGTHS, OFFSETS, r) for c, r in ((cache, key), (values, value))]
    lengths = torch.tensor([0, 6, 6, 11] if cumulative else LENGTHS, dtype=torch.int32)
    others = torch.tensor(TABLE, dtype=torch.int32), lengths
    keywords = {"seq_offset": torch.tensor(OFFSETS, dtype=torch.int32), "is_seq_lens_cumsum": cumulative}
    got = torch_npu.npu_gather_pa_kv_cache_functional(cache, values, *others, key, value, **keywords)
    assert same(got[0], want[0]) and same(got[1], want[1])
    flat = torch_npu.npu_gather_pa_kv_cache_functional(
        nz(cache, 4), nz(values, 4), *others, key.flatten(1), value.flatten(1), **keywords
    )
    assert same(flat[0], want[0].flatten(1)) and same(flat[1], want[1].flatten(1))
    assert torch_npu.npu_gather_pa_kv_cache(cache, values, *others, key, value, **keywords) is None
    assert same(key, want[0]) and same(value, want[1])


def test_a_gather_of_chunks_as_vllm_ascend_calls_it():
    """Passes arguments by position, with a latent cache and a rope cache of one head, and offsets that skip earlier
    chunks."""
    cache, rope = bits((PAGES, ROWS, 1, 32)), bits((PAGES, ROWS, 1, 16))
    table, lengths = torch.tensor([[2, 4], [1, 0]], dtype=torch.int32), torch.tensor([3, 4], dtype=torch.int32)
    key, value = bits((7, 1, 32)), bits((7, 1, 16))
    torch_npu.npu_gather_pa_kv_cache(
        cache, rope, table, lengths, key, value, seq_offset=torch.tensor([4, 0], dtype=torch.int32)
    )
    assert same(key, torch.cat([cache[4, :3], cache[1]])) and same(value, torch.cat([rope[4, :3], rope[1]]))


def test_a_refused_gather_writes_nothing():
    cache, rows = torch.zeros(PAGES, ROWS, N, D), torch.full((2, 9, N, D), -7.0)
    table = torch.tensor(TABLE, dtype=torch.int32)
    for lengths, keywords, message in (
        ([1, -1, 0], {}, r"seq_lens\[1\]=-1"),
        ([1, 1, 1], {"seq_offset": torch.tensor([0, 3, 0])}, r"seq_offset\[1\]=3, want a multiple of 4"),
        ([0, 2, 1, 4], {"is_seq_lens_cumsum": True}, r"seq_lens\[2\]=1, want >= 2"),
    ):
        with pytest.raises(ValueError, match=message):
            torch_npu.npu_gather_pa_kv_cache(cache, cache, table, torch.tensor(lengths), *rows, **keywords)
    with pytest.raises(ValueError, match="block_tables"):
        torch_npu.npu_gather_pa_kv_cache(cache, cache, table[0], torch.tensor([1]), *rows)
    assert (rows == -7).all()


@pytest.mark.parametrize(("change", "message"), [
    ({"block_tables": torch.zeros(2, 2)}, "block_tables.dtype=float32, want int32 or int64"),
    ({"seq_lens": torch.zeros(2, dtype=torch.float64)}, "seq_lens.dtype=float64, want int32 or int64"),
    ({"seq_offset": torch.zeros(2, dtype=torch.uint16)}, "seq_offset.dtype=uint16, want int32 or int64"),
])
def test_a_gather_wants_integers(change, message):
    cache, rows = torch.zeros(PAGES, ROWS, N, D), torch.full((2, 9, N, D), -7.0)
    integers = {"block_tables": torch.zeros(2, 2).int(), "seq_lens": torch.ones(2).int()}
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_gather_pa_kv_cache(cache, cache, **{**integers, **change}, key=rows[0], value=rows[1])
    assert (rows == -7).all()


def test_samples_of_vmap_write_their_own_caches():
    ops, samples = torch.ops.fa, 3
    key, slots, cache = torch.randn(samples, T, N, D), torch.tensor(SLOTS), torch.zeros(samples, PAGES, ROWS, N, D)

    def write(key, cache):
        ops.scatter_rows(key, None, slots, cache, None, "BnBsND")
        return cache * 2

    got = torch.vmap(write)(key, cache)
    want = torch.stack([scattered(torch.zeros(PAGES, ROWS, N, D), rows) for rows in key])
    assert torch.equal(cache, want) and torch.equal(got, want * 2)
    assert torch.vmap(write)(key[:0], cache[:0]).shape == (0, PAGES, ROWS, N, D)
    with pytest.raises(RuntimeError, match="key_cache in place, which all samples share"):
        torch.vmap(write, in_dims=(0, None))(key, cache[0])
    table, lengths = torch.tensor(TABLE), torch.tensor(LENGTHS)
    rows = torch.zeros(2, samples, 11, N, D)

    def read(cache, key, value):
        ops.gather_rows(cache, cache, table, lengths, None, key, value, "BnBsND", False)
        return key + value

    want = torch.stack([gathered(own, TABLE, LENGTHS, [0] * 3, torch.zeros(11, N, D)) for own in cache])
    assert torch.equal(torch.vmap(read)(cache, *rows), want * 2) and torch.equal(rows, want.expand_as(rows))


def test_backward_finds_that_a_tensor_it_needs_was_overwritten():
    slots = torch.tensor(SLOTS)
    cache, rows = torch.zeros(PAGES, ROWS, N, D), torch.zeros(PAGES * ROWS, N, D)
    table, lengths = torch.arange(PAGES)[None].int(), torch.tensor([PAGES * ROWS])
    writes = [
        (cache, lambda: torch_npu.npu_scatter_pa_cache(torch.ones(T, N, D), slots, key_cache=cache)),
        (cache, lambda: torch.ops.fa.scatter_rows(torch.ones(T, N, D), None, slots, cache, None, "BnBsND")),
        (cache, lambda: fa.scatter_rows(torch.ones(T, N, D), None, slots, cache)),
        (rows, lambda: torch_npu.npu_gather_pa_kv_cache(cache, cache, table, lengths, rows, torch.zeros_like(rows))),
    ]
    for written, write in writes:
        product = (written * torch.ones(written.shape, requires_grad=True)).sum()
        write()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


def test_operators_pass_opcheck():
    ops = torch.ops.fa
    key, slots = torch.randn(T, N, D), torch.tensor(SLOTS)
    cache = torch.randn(PAGES, ROWS, N, D)
    torch.library.opcheck(ops.scatter_rows, (key, key, slots, cache.clone(), cache.clone(), "BnBsND"))
    table, lengths = torch.tensor(TABLE), torch.tensor(LENGTHS)
    torch.library.opcheck(
        ops.gather_rows, (cache, cache, table, lengths, None, key.clone(), key.clone(), "BnBsND", False)
    )
    torch.library.opcheck(ops.merge_by_lse, ([torch.randn(T)] * 2, [torch.randn(T, D)] * 2, True))


def test_compiled_programs_write_their_caches():
    cache = torch.zeros(PAGES, ROWS, N, D)

    def step(key, slots):
        torch_npu.npu_scatter_pa_cache(key * 2, slots, key_cache=cache)
        return cache.sum()

    key, slots = torch.randn(T, N, D), torch.tensor(SLOTS)
    total = torch.compile(step, backend="aot_eager")(key, slots)
    assert torch.equal(cache, scattered(torch.zeros_like(cache), key * 2)) and total == cache.sum()


def test_functions_of_arrays_agree():
    key, cache = torch.randn(T, N, D), torch.zeros(PAGES, ROWS, N, D)
    arrays = key.numpy(), None, torch.tensor(SLOTS).numpy(), cache.numpy()
    fa.scatter_rows(*arrays)
    assert torch.equal(cache, scattered(torch.zeros_like(cache), key))
    table, lengths = torch.tensor(TABLE), torch.tensor(LENGTHS)
    rows, values = fa.gather_rows(cache, cache, table, lengths)
    assert torch.equal(rows, gathered(cache, TABLE, LENGTHS, [0] * 3, torch.empty(11, N, D))) and same(rows, values)
    more, _ = fa.gather_rows(cache.numpy(), cache.numpy(), table.numpy(), lengths.numpy(), rows=13)
    assert torch.equal(torch.from_numpy(more), torch.cat([rows, torch.zeros(2, N, D)]))


@pytest.mark.parametrize("dtype", ["int16", "uint16", "float64"])
def test_arrays_of_any_type(dtype):
    key = bits((T, N, D), torch.int64).numpy().view(dtype)[..., :D]
    cache, slots = np.zeros((PAGES, ROWS, N, D), dtype), np.array(SLOTS)
    fa.scatter_rows(key, None, slots, cache)
    assert all(cache[slot // ROWS, slot % ROWS].tobytes() == key[t].tobytes() for t, slot in enumerate(SLOTS) if t > 1)
    rows, _ = fa.gather_rows(cache, cache, np.array(TABLE), np.array(LENGTHS), rows=13)
    assert rows.dtype == dtype and rows[0].tobytes() == cache[2, 0].tobytes() and not rows[11:].any()
    with pytest.raises(ValueError, match=r"key_cache.dtype=int8, want .* \(key\)"):
        fa.scatter_rows(key, None, slots, cache.view("int8"))


def test_arrays_of_places_hold_integers():
    cache, slots, table, lengths = np.zeros((PAGES, ROWS, N, D)), np.array(SLOTS), np.array(TABLE), np.array(LENGTHS)
    for name, call in (
        ("slot_mapping", lambda: fa.scatter_rows(cache[0], None, slots[:4].astype("float64"), cache)),
        ("source_rows", lambda: fa.scatter_rows(cache[0], None, slots, cache, source_rows=slots.astype("uint64"))),
        ("block_table", lambda: fa.gather_rows(cache, cache, table.astype("int16"), lengths)),
        ("seq_lens", lambda: fa.gather_rows(cache, cache, table, lengths.astype("float16"))),
        ("seq_offset", lambda: fa.gather_rows(cache, cache, table, lengths, seq_offset=lengths.astype("int8"))),
    ):
        with pytest.raises(ValueError, match=rf"{name}.dtype=\w+, want int32 or int64"):
            call()


def test_arrays_of_eight_bits_of_pytorch():
    key, cache = bits((T, N, D), torch.float8_e5m2), torch.zeros(PAGES, ROWS, N, D).to(torch.float8_e5m2)
    want = scattered(cache, key)
    fa.scatter_rows(key, None, torch.tensor(SLOTS), cache)
    assert same(cache, want)
    rows, _ = fa.gather_rows(cache, cache, torch.tensor(TABLE), torch.tensor(LENGTHS), rows=13)
    assert same(rows[:11], gathered(cache, TABLE, LENGTHS, [0] * 3, rows[:11]))
    assert not rows[11:].view(torch.uint8).any()


def test_attention_update_wants_lists():
    with pytest.raises(TypeError, match="lse: want a list of Tensors, got Tensor"):
        torch_npu.npu_attention_update(torch.zeros(2, 3), [torch.zeros(3, 2)] * 2, 0)
    with pytest.raises(TypeError, match="local_out: want a list of Tensors, got Tensor"):
        torch_npu.npu_attention_update([torch.zeros(3)] * 2, torch.zeros(2, 3, 2), 0)


def test_merge_by_lse_of_arrays_and_its_empty_rows():
    lse = [torch.tensor([0.0, torch.inf, -torch.inf]), torch.tensor([0.0, -torch.inf, 3.0])]
    parts = [torch.full((3, 2), value) for value in (1.0, 3.0)]
    out, whole = fa.merge_by_lse(lse, parts, return_lse=True)
    assert out.tolist() == [[2, 2], [0, 0], [3, 3]]
    assert whole.tolist() == [pytest.approx(0.6931472), -torch.inf, 3]
    device = torch_npu.npu_attention_update(lse, parts, 1)
    assert same(device[0], out) and device[1].tolist() == [whole[0], torch.inf, 3]
    with pytest.raises(NotImplementedError, match="no gradient"):
        torch_npu.npu_attention_update([lse[0]], [parts[0].requires_grad_()], 0)
