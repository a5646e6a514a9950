"""torch_npu's functions that merge partial results by lse, and those that move rows into paged caches and out of
them."""

import inspect

import pytest
import torch

import fa
from fa import torch_npu

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


def bits(shape, dtype=torch.bfloat16):
    """Returns a tensor of this type with random bytes."""
    size = torch.empty((), dtype=dtype).element_size()
    return torch.randint(0, 256, (*shape[:-1], shape[-1] * size), dtype=torch.uint8).view(dtype)


def same(a, b):
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


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
    ({"key_cache": torch.zeros(PAGES, ROWS, N, D, dtype=torch.float16)}, "key_cache.dtype"),
    ({"cache_mode": "PA_NZ"}, "key_cache"),
    ({"slot_mapping": torch.zeros(T)}, "slot_mapping.dtype=f32, want i32 or i64"),
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
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_scatter_pa_kv_cache(**{**arguments, **change})
    assert all((cache == -7).all() for cache in caches)


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


def selected(k_rope, kv, table, status, indices, full_rope, full_kv, full_table, kv_lengths, q_lengths, block):
    """Computes the expected results by a loop over the lists, in their order."""
    k_rope, kv, status = k_rope.clone(), kv.clone(), status.clone()
    batch, queries, heads, k = indices.shape
    lengths = torch.zeros(batch, queries, heads, dtype=torch.int32)
    for b, s, h in ((b, s, h) for b in range(batch) for s in range(queries) for h in range(heads)):
        keys = kv_lengths[b] - (q_lengths[b] - 1 - s) if s < q_lengths[b] else 0
        blocks, place, own = -(-max(keys, 0) // block), 0, table[(b * queries + s) * heads + h]
        status[b, s, h] = -1
        for entry in indices[b, s, h].tolist():
            if entry < 0:
                break
            if entry >= blocks:
                continue
            for i in range(min(block, keys - entry * block)):
                source, to = entry * block + i, place * block + i
                for full, own_cache in ((full_rope, k_rope), (full_kv, kv)):
                    page = full[full_table[b][source // full.shape[1]]]
                    own_cache[own[to // own_cache.shape[1]], to % own_cache.shape[1]] = page[source % full.shape[1]]
                lengths[b, s, h] += 1
            status[b, s, h, place] = entry
            place += 1
        status[b, s, h, k] = lengths[b, s, h]
    return k_rope, kv, status, lengths.flatten()


@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize("tnd", [False, True])
def test_gather_selection_follows_the_lists(block, tnd):
    batch, queries, heads, k, pages = 2, 3, 1, 6, 6
    table = torch.randperm(batch * queries * heads * pages).view(-1, pages).int()
    full_table, kv_lengths, q_lengths = torch.randperm(20).view(2, 10).int(), [37, 18], [3, 2]
    buffers = bits((36, 4, 16)), bits((36, 4, 32)), table, torch.zeros(batch, queries, heads, k + 1, dtype=torch.int32)
    indices = torch.randint(0, 14, (batch, queries, heads, k)).int()
    indices[0, 1, 0, 4] = -1  # ends the list
    indices[1, 0, 0, 1] = 99  # is skipped
    full = bits((20, 4, 16)), bits((20, 4, 32))
    want = selected(*buffers, indices, *full, full_table, kv_lengths, q_lengths, block)
    lengths = torch.tensor(kv_lengths, dtype=torch.int32), torch.tensor(q_lengths, dtype=torch.int32)
    lists, states = (t.flatten(0, 1) if tnd else t for t in (indices, buffers[3]))
    got = torch_npu.npu_gather_selection_kv_cache_functional(
        *buffers[:3], states, lists, *full, full_table, *lengths, selection_topk_block_size=block
    )
    assert same(got[0], want[0]) and same(got[1], want[1]) and torch.equal(got[2], table)
    assert torch.equal(got[3].view(want[2].shape), want[2]) and torch.equal(got[4], want[3])
    written = [t.clone() for t in (*buffers[:3], states)]
    full_table[1, 3] = 20
    with pytest.raises(ValueError, match=r"full_kv_block_table\[1\]\[3\]=20, want 0..19"):
        torch_npu.npu_gather_selection_kv_cache(
            *written, torch.full_like(lists, 12 // block), *full, full_table, *lengths, selection_topk_block_size=block
        )
    assert all(same(a, b) for a, b in zip(written, (*buffers[:3], states), strict=True))


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
