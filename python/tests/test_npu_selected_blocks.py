"""MiniMax-M3's attention on selected blocks of keys against its definition in float64, and the transposed lists."""

import inspect
import itertools

import pytest
import torch
from reference import FACTOR_OUT, attention

import fa.torch_npu as torch_npu

SIGNATURES = {
    "npu_sparse_attention_score": "query, key, value, select_idx, block_table, *, select_num_idx=None, "
    "q_dequant_scale=None, k_dequant_scale=None, v_dequant_scale=None, actual_seq_lengths, actual_seq_lengths_kv, "
    "q_input_layout='TND', kv_input_layout='BNSD', num_key_value_heads=1, scale_value=1.0, block_size=128, top_k=16, "
    "inner_precise=0",
    "npu_k2q_csr": "q2k, cu_seqlens, cu_block_lens, order_method=0, total_rows=-1, max_kv=-1, use_simt=0, "
    "q_global_offset=0",
    "npu_sparse_attention_score_prefill": "query, key, value, block_table, k2q_row_ptr, k2q_q_indices, "
    "k2q_slot_indices, num_key_value_heads, scale_value, block_size, top_k, inner_precise, *, actual_seq_lengths=None, "
    "actual_seq_lengths_kv=None",
}
N, NKV, D, DV, K, PAGE, SCALE = 8, 2, 32, 24, 6, 16, 0.2
ROWS, KEYS = [5, 1, 40, 3], [300, 129, 40, 2]  # the last sequence has queries that see no key


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def chosen(high, *shape, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


class Case:
    """Packed queries with a row behind the last sequence, keys in pages in random order, and lists of blocks."""

    def __init__(self, dtype=torch.float32, block=16):
        self.block, self.tokens = block, sum(ROWS) + 1
        self.q = random(self.tokens, N, D, seed=1).to(dtype)
        pages = [-(-keys // PAGE) for keys in KEYS]
        order = torch.randperm(sum(pages) + 2, generator=torch.Generator().manual_seed(2))
        self.k = torch.full((len(order), PAGE, NKV, D), torch.nan, dtype=dtype)
        self.v = torch.full((len(order), PAGE, NKV, DV), torch.nan, dtype=dtype)
        self.table = torch.full((len(KEYS), max(pages)), -1, dtype=torch.int32)
        self.keys, self.values, at = [], [], 0
        for b, keys in enumerate(KEYS):
            k, v = random(pages[b] * PAGE, NKV, D, seed=3 + b).to(dtype), random(pages[b] * PAGE, NKV, DV, seed=9 + b)
            self.keys.append(k[:keys])
            self.values.append(v[:keys].to(dtype))
            self.table[b, : pages[b]] = order[at : at + pages[b]]
            self.k[order[at : at + pages[b]]] = k.view(pages[b], PAGE, NKV, D)
            self.v[order[at : at + pages[b]]] = v.to(dtype).view(pages[b], PAGE, NKV, DV)
            at += pages[b]
        self.lists = torch.full((NKV, self.tokens, K), -1, dtype=torch.int32)
        first = 0
        for rows, keys in zip(ROWS, KEYS):
            blocks = -(-keys // block)
            for token in range(first, first + rows):
                for head in range(NKV):
                    some = torch.randperm(blocks, generator=torch.Generator().manual_seed(token * 7 + head))[: K - 1]
                    places = torch.randperm(K, generator=torch.Generator().manual_seed(token))[: len(some)]
                    self.lists[head, token, places] = some.to(torch.int32)
            first += rows

    def keywords(self):
        lengths = {"actual_seq_lengths": torch.tensor(ROWS), "actual_seq_lengths_kv": torch.tensor(KEYS)}
        return lengths | {"num_key_value_heads": NKV, "scale_value": SCALE, "block_size": self.block}

    def expected(self, lists, number=None, dtype=torch.float64):
        out, first = torch.zeros(self.tokens, N, DV, dtype=dtype), 0
        for b, (rows, keys) in enumerate(zip(ROWS, KEYS)):
            keep = torch.zeros(1, N, rows, keys, dtype=torch.bool)
            for i in range(rows):
                for n in range(N):
                    listed = [x for x in lists[n // (N // NKV), first + i].tolist() if x >= 0]
                    for x in listed[: K if number is None else number[n // (N // NKV), first + i]]:
                        keep[0, n, i, x * self.block : (x + 1) * self.block] = True
                keep[0, :, i, max(keys - rows + i + 1, 0) :] = False
            parts = self.q[first : first + rows], self.keys[b], self.values[b]
            q, k, v = (part.transpose(0, 1)[None].to(dtype) for part in parts)
            out[first : first + rows] = attention(q, k, v, scale=SCALE, keep=keep)[0][0].transpose(0, 1)
            first += rows
        return out

    def check(self, got, **of):
        exact, naive = self.expected(self.lists, **of), self.expected(self.lists, **of, dtype=self.q.dtype)
        error, usual = ((t.double() - exact).abs().max() for t in (got, naive))
        assert not got.isnan().any() and error <= FACTOR_OUT * usual, (error, usual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("block", [16, 128, 7, 256, 131])
def test_score(dtype, block):
    case = Case(dtype, block)
    got = torch_npu.npu_sparse_attention_score(case.q, case.k, case.v, case.lists, case.table, **case.keywords())
    case.check(got)
    assert (got[-1] == 0).all() and (got[sum(ROWS[:3])] == 0).all()  # behind the last sequence, and without keys
    number = (case.lists >= 0).sum(-1).to(torch.int32)
    with_all = torch_npu.npu_sparse_attention_score(
        case.q, case.k, case.v, case.lists, case.table, select_num_idx=number, inner_precise=4, **case.keywords()
    )
    assert torch.equal(got, with_all)
    number = (number - 1).clamp(min=0)
    fewer = torch_npu.npu_sparse_attention_score(
        case.q, case.k, case.v, case.lists, case.table, select_num_idx=number, **case.keywords()
    )
    case.check(fewer, number=number)


@pytest.mark.parametrize("block", [16, 128, 256])
def test_prefill_has_the_bits_of_the_score(block):
    case = Case(block=block)
    cu = torch.tensor([0, *ROWS]).cumsum(0)
    blocks = torch.tensor([0, *(-(-keys // block) for keys in KEYS)]).cumsum(0)
    transposed = torch_npu.npu_k2q_csr(case.lists, cu, blocks)
    assert all(map(torch.equal, transposed, torch_npu.npu_k2q_csr(case.lists, cu.tolist(), blocks.tolist())))
    lengths = {"actual_seq_lengths": ROWS, "actual_seq_lengths_kv": torch.tensor(KEYS)}
    got = torch_npu.npu_sparse_attention_score_prefill(
        case.q, case.k, case.v, case.table, *transposed, NKV, SCALE, block, K, 4, **lengths
    )
    want = torch_npu.npu_sparse_attention_score(case.q, case.k, case.v, case.lists, case.table, **case.keywords())
    assert torch.equal(got, want)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("offset", [0, 1000])
def test_transposed_lists(order, offset):
    case = Case()
    cu = torch.tensor([0, *ROWS], dtype=torch.int32).cumsum(0)
    counts = [-(-keys // case.block) for keys in KEYS]
    blocks = torch.tensor([0, *counts]).cumsum(0)
    row_ptr, q_ind, slot = torch_npu.npu_k2q_csr(case.lists, cu, blocks, order, q_global_offset=offset)
    assert row_ptr.shape == (NKV, sum(counts) + 1) and q_ind.shape == slot.shape == (NKV, case.tokens * K)
    assert {t.dtype for t in (row_ptr, q_ind, slot)} == {torch.int32}
    pairs = [(b, level) for b, count in enumerate(counts) for level in range(count)]
    if order == 1:
        pairs.sort(key=lambda pair: pair[::-1])
    for head in range(NKV):
        for row, (b, level) in enumerate(pairs):
            inside = range(cu[b], cu[b + 1])
            want = [(t + offset, s) for t in inside for s in range(K) if case.lists[head, t, s] == level]
            got = slice(row_ptr[head, row], row_ptr[head, row + 1])
            assert list(zip(q_ind[head, got].tolist(), slot[head, got].tolist(), strict=True)) == want
        assert (q_ind[head, row_ptr[head, -1] :] == -1).all() and (slot[head, row_ptr[head, -1] :] == -1).all()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    parameters = inspect.signature(getattr(torch_npu, name)).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"


ERRORS = {
    "k_dequant_scale: given, want None": {"k_dequant_scale": torch.ones(1)},
    'q_input_layout="BSND", want "TND"': {"q_input_layout": "BSND"},
    "key.shape=": {"num_key_value_heads": 4},
    "select_idx.shape=": {"select_idx": torch.zeros(NKV, 3, K, dtype=torch.int32)},
    "select_idx.dtype=torch.float32": {"select_idx": torch.zeros(NKV, 3, K)},
    "select_num_idx.shape=": {"select_num_idx": torch.zeros(NKV, 3, dtype=torch.int32)},
    "block_size=0, want >= 1": {"block_size": 0},
    "actual_seq_lengths_kv has 1 entries, want 4": {"actual_seq_lengths_kv": torch.tensor([3])},
    "actual_seq_lengths[1]=-2, want 0..46": {"actual_seq_lengths": torch.tensor([4, -2, 1, 1])},
    "actual_seq_lengths[2]=90, want 0..44": {"actual_seq_lengths": [5, 1, 90, 1]},
    "actual_seq_lengths_kv[0]=305, want 0..304": {"actual_seq_lengths_kv": [305, 129, 40, 2]},
    "block_table.shape=[4], want [B,n]": {"block_table": torch.zeros(4, dtype=torch.int32)},
    "block_table[0][0]=": {"block_table": torch.full((4, 19), 1000, dtype=torch.int32)},
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_the_argument(text):
    case = Case()
    call = {"query": case.q, "key": case.k, "value": case.v, "select_idx": case.lists, "block_table": case.table}
    with pytest.raises(ValueError) as caught:
        torch_npu.npu_sparse_attention_score(**call | case.keywords() | ERRORS[text])
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_that_is_listed_twice_counts_twice(dtype):
    case = Case(dtype)
    got, exact, naive = [], [], []
    for b, keys in enumerate(KEYS):
        first, blocks = sum(ROWS[:b]), -(-keys // case.block)
        case.lists[:, first : first + ROWS[b]] = chosen(blocks, NKV, ROWS[b], K, seed=b)
    case.lists[:, :, 2] = -1
    out = torch_npu.npu_sparse_attention_score(case.q, case.k, case.v, case.lists, case.table, **case.keywords())
    for b, (rows, keys) in enumerate(zip(ROWS, KEYS)):
        for head, i in itertools.product(range(NKV), range(rows)):
            token, limit, group = sum(ROWS[:b]) + i, keys - rows + i + 1, N // NKV
            entries = [x for x in case.lists[head, token].tolist() if x >= 0]
            listed = [j for x in entries for j in range(x * case.block, min((x + 1) * case.block, limit))]
            if not listed:
                continue
            heads = slice(head * group, (head + 1) * group)
            parts = case.q[token, heads], *(t[b][listed, head].expand(group, -1, -1) for t in (case.keys, case.values))
            for results, of_type in ((exact, torch.float64), (naive, dtype)):
                q, k, v = (part.to(of_type)[None] for part in parts)
                results.append(attention(q[:, :, None], k, v, scale=SCALE)[0][0, :, 0])
            got.append(out[token, heads])
    error, usual = ((torch.cat(of).double() - torch.cat(exact)).abs().max() for of in (got, naive))
    assert error <= FACTOR_OUT * usual, (error, usual)


def test_a_repeated_block_has_its_bits_whether_or_not_the_list_fits():
    case = Case()
    lists = torch.tensor([1, 0, 1], dtype=torch.int32).expand(NKV, 1, -1)
    call = case.q[:1], case.k, case.v, lists, case.table[:1]
    rest = {"num_key_value_heads": NKV, "block_size": 16, "actual_seq_lengths": [1]}
    few, many = (torch_npu.npu_sparse_attention_score(*call, **rest, actual_seq_lengths_kv=[n]) for n in (32, 300))
    assert torch.equal(few, many)


def test_no_sequences_no_heads_and_no_entries():
    case = Case()
    rest = case.keywords() | {"actual_seq_lengths": [], "actual_seq_lengths_kv": []}
    out = torch_npu.npu_sparse_attention_score(case.q, case.k, case.v, case.lists, case.table[:0], **rest)
    assert out.shape == (case.tokens, N, DV) and (out == 0).all()
    row_ptr, q_ind, slot = torch_npu.npu_k2q_csr(case.lists, [0], [0])
    assert row_ptr.tolist() == [[0]] * NKV and (q_ind == -1).all() and (slot == -1).all()
    row_ptr, q_ind, slot = torch_npu.npu_k2q_csr(case.lists[:0], [0, 49], [0, 19])
    assert row_ptr.shape == (0, 20) and q_ind.shape == slot.shape == (0, case.tokens * K)


def test_it_is_found_where_the_plugin_looks_for_it():
    torch_npu.install()
    try:
        for name in SIGNATURES:
            assert getattr(torch.ops._C_ascend, name) is getattr(torch_npu, name)
    finally:
        torch_npu.uninstall()


PREFILL_ERRORS = {
    "k2q_row_ptr[0]: want a leading 0": {"k2q_row_ptr": lambda t: t.flip(1)},
    "k2q_row_ptr[1]: want a leading 0": {"k2q_row_ptr": lambda t: t + torch.tensor([[0], [1]])},
    "at most 2 (k2q_q_indices)": {"k2q_q_indices": lambda t: t[:, :2], "k2q_slot_indices": lambda t: t[:, :2]},
    "k2q_q_indices.shape=[300], want [2,T*K]": {"k2q_q_indices": lambda t: t[0]},
    "k2q_slot_indices.shape=[2, 2], want [2, 300]": {"k2q_slot_indices": lambda t: t[:, :2]},
    "k2q_q_indices[0]: want 0..49 in rows": {"k2q_q_indices": lambda t: t + 50},
    "k2q_slot_indices[0]: want 0..3 in rows": {"top_k": lambda _: 4},
    "top_k=-1, want >= 0": {"top_k": lambda _: -1},
    "block_size=0, want >= 1": {"block_size": lambda _: 0},
    "actual_seq_lengths[0]=51, want 0..50": {"actual_seq_lengths": lambda _: [51, 0, 0, 0]},
}


@pytest.mark.parametrize("text", PREFILL_ERRORS)
def test_errors_of_the_prefill_name_the_argument(text):
    case = Case()
    blocks = torch.tensor([0, *(-(-keys // case.block) for keys in KEYS)]).cumsum(0)
    transposed = torch_npu.npu_k2q_csr(case.lists, torch.tensor([0, *ROWS]).cumsum(0), blocks)
    call = {"query": case.q, "key": case.k, "value": case.v, "block_table": case.table, "top_k": K, "inner_precise": 0}
    call |= dict(zip(("k2q_row_ptr", "k2q_q_indices", "k2q_slot_indices"), transposed, strict=True))
    call |= case.keywords()
    with pytest.raises(ValueError) as caught:
        torch_npu.npu_sparse_attention_score_prefill(
            **call | {name: change(call[name]) for name, change in PREFILL_ERRORS[text].items()}
        )
    assert text in str(caught.value)


def test_wrong_transposed_lists_are_refused():
    case = Case()
    cu, blocks = torch.tensor([0, *ROWS]).cumsum(0), torch.tensor([0, 19, 9, 3, 1]).cumsum(0)
    with pytest.raises(ValueError, match="order_method=2, want 0 or 1"):
        torch_npu.npu_k2q_csr(case.lists, cu, blocks, 2)
    with pytest.raises(ValueError, match="total_rows=3, want at least 32"):
        torch_npu.npu_k2q_csr(case.lists, cu, blocks, total_rows=3)
    with pytest.raises(ValueError, match=r"cu_seqlens: want \[B\+1\] with a leading 0"):
        torch_npu.npu_k2q_csr(case.lists, cu[1:], blocks[1:])
    with pytest.raises(ValueError, match=r"cu_seqlens\[4\]=51, want at most 50 \(q2k\)"):
        torch_npu.npu_k2q_csr(case.lists, [0, 5, 6, 46, 51], blocks)
    with pytest.raises(ValueError, match=r"cu_block_lens has 4 entries, want 5 \(cu_seqlens\)"):
        torch_npu.npu_k2q_csr(case.lists, cu, blocks[:-1])
    case.lists[0, 2, 1] = 19
    with pytest.raises(ValueError, match=r"q2k\[0\]\[2\]\[1\]=19, want -1..18"):
        torch_npu.npu_k2q_csr(case.lists, cu, blocks)
