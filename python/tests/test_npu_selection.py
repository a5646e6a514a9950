"""torch_npu's function that copies selected blocks of keys into pages."""

import pytest
import torch

from fa import torch_npu
from random_bytes import bits, same


def selected(k_rope, kv, table, status, indices, full_rope, full_kv, full_table, kv_lengths, q_lengths, block):
    """Computes the expected results by a loop over the lists, in their order."""
    k_rope, kv, status = k_rope.clone(), kv.clone(), status.clone()
    batch, queries, heads, k = indices.shape
    rope = full_rope.numel() > 0
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
                for full, own_cache in ((full_rope, k_rope), (full_kv, kv))[not rope :]:
                    page = full[full_table[b][source // full.shape[1]]]
                    own_cache[own[to // own_cache.shape[1]], to % own_cache.shape[1]] = page[source % full.shape[1]]
                lengths[b, s, h] += 1
            status[b, s, h, place] = entry
            place += 1
        status[b, s, h, k] = lengths[b, s, h]
    return k_rope, kv, status, lengths.flatten()


@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize("tnd", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("gaps", [False, True])
def test_gather_selection_follows_the_lists(block, tnd, heads, gaps):
    batch, queries, k, pages = 2, 3, 6, 6
    table = torch.randperm(batch * queries * heads * pages).view(-1, pages).int()
    full_table, kv_lengths, q_lengths = torch.randperm(20).view(2, 10).int(), [37, 18], [3, 2]
    status = torch.zeros(batch, queries, heads, k + 1, dtype=torch.int32)
    buffers = bits((36 * heads, 4, 16)), bits((36 * heads, 4, 32)), table, status
    indices = torch.randint(0, 14, (batch, queries, heads, k)).int()
    indices[0, 1, 0, 4] = -1  # -1 ends the list
    indices[1, 0, 0, 1] = 99  # 99 names no block, so it is skipped
    indices[1, 1] = -1  # -1 at the start selects nothing
    full = bits((20, 4, 16)), bits((20, 4, 32))
    if gaps:  # the pages have gaps between them; calls with two heads have no rope
        full = bits((20 * (2 - heads), 8, 16))[:, 4:], bits((20, 2, 4, 32))[:, 0]
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


def test_attention_over_a_selection_is_attention_over_its_list():
    """Programs for DeepSeek-V3.2 copy each query's keys into pages of its own, and attend to all of them."""
    batch, queries, heads, size, rope, k = 2, 2, 3, 32, 8, 6
    torch.manual_seed(1)
    full_kv, full_rope = torch.randn(20, 4, size), torch.randn(20, 4, rope)
    table, lengths = torch.randperm(20).view(2, 10).int(), torch.tensor([37, 18], dtype=torch.int32)
    query, query_rope = torch.randn(batch, queries, heads, size), torch.randn(batch, queries, heads, rope)
    lists = torch.stack([torch.randperm(17)[:k].sort().values for _ in range(batch * queries)]).int()
    lists[1, 4:] = -1
    lists = lists.view(batch, queries, 1, k)
    call = {"scale_value": 0.2, "sparse_block_size": 1, "layout_kv": "PA_BSND", "sparse_mode": 3}
    full, full_ropes = full_kv.unsqueeze(2), full_rope.unsqueeze(2)
    want = torch_npu.npu_sparse_flash_attention(
        query, full, full, lists, block_table=table, actual_seq_lengths_kv=lengths, query_rope=query_rope,
        key_rope=full_ropes, **call,
    )[0]  # fmt: skip
    rows, pages = batch * queries, 2
    kv, ropes = torch.full((rows * pages, 4, size), torch.nan), torch.full((rows * pages, 4, rope), torch.nan)
    own_table = torch.arange(rows * pages, dtype=torch.int32).view(rows, pages)
    status = torch.zeros(batch, queries, 1, k + 1, dtype=torch.int32)
    counts = torch_npu.npu_gather_selection_kv_cache(
        ropes, kv, own_table, status, lists, full_rope, full_kv, table, lengths,
        torch.full((batch,), queries, dtype=torch.int32), selection_topk_block_size=1,
    )  # fmt: skip
    assert counts.tolist() == [6, 4, 6, 6]
    every = torch.arange(k, dtype=torch.int32).expand(rows, k)
    every = torch.where(every < counts[:, None], every, torch.tensor(-1, dtype=torch.int32))
    got = torch_npu.npu_sparse_flash_attention(
        query.view(rows, 1, heads, size), kv.unsqueeze(2), kv.unsqueeze(2), every.view(rows, 1, 1, k),
        block_table=own_table, actual_seq_lengths_kv=counts, query_rope=query_rope.view(rows, 1, heads, rope),
        key_rope=ropes.unsqueeze(2), **call,
    )[0]  # fmt: skip
    assert torch.equal(got.view(want.shape), want) and want.isfinite().all()


def small_selection(batch=2, queries=2, pages=3):
    """Returns the arguments of a call whose every query selects blocks 0 and 1."""
    rows = batch * queries
    return {
        "selection_k_rope": torch.zeros(rows, 4, 2),
        "selection_kv_cache": torch.zeros(rows, 4, 3),
        "selection_kv_block_table": torch.arange(rows)[:, None].int(),
        "selection_kv_block_status": torch.zeros(batch, queries, 1, 3).int(),
        "selection_topk_indices": torch.arange(2).repeat(batch, queries, 1, 1).int(),
        "full_k_rope": torch.randn(pages, 4, 2),
        "full_kv_cache": torch.randn(pages, 4, 3),
        "full_kv_block_table": torch.arange(batch)[:, None].int(),
        "full_kv_actual_seq": torch.full((batch,), 4).int(),
        "full_q_actual_seq": torch.full((batch,), queries).int(),
        "selection_topk_block_size": 2,
    }


def test_a_status_has_one_row_per_query():
    call = small_selection()
    lengths = torch_npu.npu_gather_selection_kv_cache(**call)
    status = call["selection_kv_block_status"].flatten(0, 2)
    assert lengths.tolist() == [3, 4, 3, 4] and status.tolist() == [[0, 1, 3], [0, 1, 4]] * 2
    flat = torch.zeros_like(status)
    torch_npu.npu_gather_selection_kv_cache(**call | {"selection_kv_block_status": flat})
    assert torch.equal(flat, status)


def test_a_selection_of_an_empty_batch():
    call = small_selection(batch=0)
    assert torch_npu.npu_gather_selection_kv_cache(**call).shape == (0,)
    call |= {name: call[name].flatten(0, 1) for name in ("selection_topk_indices", "selection_kv_block_status")}
    assert torch_npu.npu_gather_selection_kv_cache(**call).shape == (0,)


INTEGERS = [name for name in small_selection() if name.endswith(("table", "status", "indices", "seq"))]


@pytest.mark.parametrize(("change", "message"), [
    ({"full_q_actual_seq": torch.tensor([2, 3])}, r"full_q_actual_seq\[1\]=3, want 0..2"),
    ({"full_q_actual_seq": torch.tensor([-1, 2])}, r"full_q_actual_seq\[0\]=-1, want 0..2"),
    ({"full_kv_actual_seq": torch.tensor([4, -2])}, r"full_kv_actual_seq\[1\]=-2, want >= 0"),
    ({"full_kv_actual_seq": torch.tensor([6, 4]), "selection_topk_indices": torch.full((2, 2, 1, 2), 2)},
     r"full_kv_block_table.shape\[1\]=1, want > 1"),
    ({"selection_kv_block_table": torch.tensor([[0], [1], [4], [2]])},
     r"selection_kv_block_table\[2\]\[0\]=4, want 0..3"),
    ({"full_k_rope": torch.zeros(4, 3, 2)}, r"full_k_rope.shape=\[4, 3, 2\], want \[3,4,any\]"),
    ({"selection_k_rope": torch.zeros(4, 4, 1)}, r"selection_k_rope.shape=\[4, 4, 1\], want \[4,4,2\]"),
    ({"selection_k_rope": torch.zeros(4, 3, 2)}, r"selection_k_rope.shape=\[4, 3, 2\], want \[4,4,2\]"),
    ({"selection_kv_cache": torch.zeros(4, 4, 2)}, r"selection_kv_cache.shape=\[4, 4, 2\], want \[any,any,3\]"),
    ({"full_kv_block_table": torch.arange(2)}, r"full_kv_block_table.shape=\[2\]"),
    ({"selection_kv_block_table": torch.arange(4)}, r"selection_kv_block_table.shape=\[4\]"),
    ({"selection_kv_block_status": torch.zeros(2, 2, 1, 2).int()}, r"selection_kv_block_status.shape=\[2, 2, 1, 2\]"),
    ({"selection_topk_indices": torch.zeros(2, 2).int()}, r"selection_topk_indices.shape=\[2, 2\]"),
    ({"selection_topk_indices": torch.zeros(3, 1, 2).int()}, r"selection_topk_indices.shape=\[3, 1, 2\]"),
    ({"full_kv_cache": torch.zeros(3, 4, 3).half()},
     r"selection_kv_cache.dtype=float32, want float16 \(full_kv_cache\)"),
    *(({name: small_selection()[name].to(torch.int8)}, f"{name}.dtype=int8, want int32 or int64")
      for name in INTEGERS),
])
def test_a_refused_selection_writes_nothing(change, message):
    call = small_selection() | change
    before = {name: call[name].clone() for name in list(call)[:4]}
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_gather_selection_kv_cache(**call)
    assert all(torch.equal(call[name], tensor) for name, tensor in before.items())


def test_only_the_rows_in_use_are_read_from_pages_that_lie_apart():
    call = small_selection()
    want = [call[name].clone() for name in list(call)[:4]]
    torch_npu.npu_gather_selection_kv_cache(*want, *list(call.values())[4:-1], selection_topk_block_size=2)
    pages = {name: torch.cat([call[name], call[name]], 1)[:, :4] for name in ("full_k_rope", "full_kv_cache")}
    torch_npu.npu_gather_selection_kv_cache(**call | pages)
    assert all(torch.equal(call[name], tensor) for name, tensor in zip(list(call)[:4], want, strict=True))
    page = call["full_kv_cache"][:1]
    no_memory_holds = page.expand(1 << 40, -1, -1)
    call |= {"full_kv_cache": no_memory_holds, "full_k_rope": torch.zeros(0, 4, 2)}
    torch_npu.npu_gather_selection_kv_cache(**call)
    assert torch.equal(call["selection_kv_cache"][1], page[0]) and torch.equal(call["selection_k_rope"], want[0])


def test_the_operator_passes_opcheck():
    torch.library.opcheck(torch.ops.fa.gather_selection, tuple(small_selection().values()))


@pytest.mark.parametrize("name", ["selection_k_rope", "selection_kv_cache", "selection_kv_block_status"])
def test_a_selection_counts_its_writes(name):
    call = small_selection()
    product = (call[name] * torch.ones(call[name].shape, requires_grad=True)).sum()
    torch_npu.npu_gather_selection_kv_cache(**call)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
