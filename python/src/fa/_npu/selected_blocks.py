"""The functions of MiniMax-M3's attention on selected blocks of keys, which vLLM's NPU plugin has."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._attention import integers
from .._errors import own_names
from .._torch.operators import call as call_operator
from .._torch.sparse_ops import SparseCall, sparse_attention
from .blocks import check_lengths
from .calls import TENSOR_NAMES, checked
from .inference import Lengths

_NAMES = TENSOR_NAMES | {"sparse_indices": "select_idx", "lengths_q": "actual_seq_lengths"}
_NAMES |= {"lengths_kv": "actual_seq_lengths_kv", "scale": "scale_value"}
_MOST_KEYS = 128  # the most keys in a block of sparse attention
_LARGEST = (1 << 63) - 1


def _wrong_shape(name: str, tensor: Tensor, want: str) -> ValueError:
    return ValueError(f"invalid argument: {name}.shape={list(tensor.shape)}, want {want}")


def _check_integers(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want torch.int32 or torch.int64")


def _lengths(
    query: Tensor, key: Tensor, block_table: Tensor, lengths: Lengths, lengths_kv: Lengths
) -> tuple[list[int], list[int]]:
    """Returns the checked lengths of the sequences."""
    if block_table.dim() != 2:
        raise _wrong_shape("block_table", block_table, "[B,n]")
    rows, keys = integers(lengths, "actual_seq_lengths"), integers(lengths_kv, "actual_seq_lengths_kv")
    check_lengths("actual_seq_lengths", rows, len(rows), query.shape[0], packed=True)
    check_lengths("actual_seq_lengths_kv", keys, len(rows), block_table.shape[1] * key.shape[1], packed=False)
    return rows, keys


def _sequences(tokens: int, rows: list[int], keys: list[int]) -> tuple[Tensor, Tensor]:
    """Returns, for each token, the number of its sequence and how many keys the token may see. Tokens after the last
    sequence get the number of sequences, and see no key.
    """
    ends = torch.tensor(rows, dtype=torch.int64).cumsum(0)
    token = torch.arange(tokens)
    sequence = torch.bucketize(token, ends, right=True)
    behind = torch.cat([torch.tensor(keys, dtype=torch.int64) - ends, torch.tensor([-tokens])])
    return sequence, (behind[sequence] + token + 1).clamp(min=0)


def _part_of(block_size: int) -> int:
    """Returns the largest divisor of block_size that sparse attention takes."""
    return max(size for size in range(1, _MOST_KEYS + 1) if block_size % size == 0)


def _lists(select_idx: Tensor, select_num_idx: Tensor | None, seen: Tensor, parts: int) -> Tensor:
    """Divides the listed blocks into parts. Returns lists [Nkv,T,K*parts] of part numbers: first the parts that count,
    then -1. Parts that no token sees are left out, so lists may be shorter.

    Args:
        seen: how many parts each token may see. Parts with this number or a higher one do not count.
        parts: the number of parts in a block.
    """
    count = (select_idx >= 0).cumsum(-1)
    most = select_idx.shape[-1] if select_num_idx is None else select_num_idx[..., None]
    named = (select_idx >= 0) & (count <= most)
    entries = torch.where(named, select_idx, -1)
    if parts > 1:
        some = torch.arange(min(parts, int(seen.max()) if len(seen) else 0))
        of_block = entries.to(torch.int64).clamp(max=_LARGEST // parts - 1)[..., None] * parts + some
        entries = torch.where(named[..., None], of_block, -1).flatten(-2)
    counts = (entries >= 0) & (entries < seen[:, None])
    order = (~counts).to(torch.int8).argsort(dim=-1, stable=True)
    return torch.where(counts, entries, -1).gather(-1, order)


def _check_pages(query: Tensor, key: Tensor, value: Tensor, heads_kv: int, block_size: int) -> None:
    if query.dim() != 3:
        raise _wrong_shape("query", query, "[T,N,D]")
    for name, tensor, size in (("key", key, "D"), ("value", value, "Dv")):
        if tensor.dim() != 4 or tensor.shape[2] != heads_kv:
            raise _wrong_shape(name, tensor, f"[pages,page size,{heads_kv},{size}] (num_key_value_heads)")
    heads = query.shape[1]
    if heads_kv < 1 or heads % heads_kv != 0:
        raise ValueError(f"invalid argument: num_key_value_heads={heads_kv}, want a divisor of {heads}")
    if block_size < 1:
        raise ValueError(f"invalid argument: block_size={block_size}, want >= 1")


@checked
def npu_sparse_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    select_idx: Tensor,
    block_table: Tensor,
    *,
    select_num_idx: Tensor | None = None,
    q_dequant_scale: Tensor | None = None,
    k_dequant_scale: Tensor | None = None,
    v_dequant_scale: Tensor | None = None,
    actual_seq_lengths: Tensor | Sequence[int],
    actual_seq_lengths_kv: Tensor | Sequence[int],
    q_input_layout: str = "TND",
    kv_input_layout: str = "BNSD",
    num_key_value_heads: int = 1,
    scale_value: float = 1.0,
    block_size: int = 128,
    top_k: int = 16,
    inner_precise: int = 0,
) -> Tensor:
    """Computes causal attention in which each token sees the blocks of keys that it has selected for each key head.

    Args:
        query: [T,N,D], packed sequences; float32, bfloat16 or float16.
        key, value: pages [pages,page size,Nkv,D] of any size.
        select_idx: int32 [Nkv,T,K], numbers of blocks of block_size keys inside the sequence. Negative entries are
            skipped, and so are blocks behind the token. A block that is listed twice counts twice.
        block_table: int32 [B,n].
        select_num_idx: int32 [Nkv,T], how many of the entries that are not negative count; None means all.
        q_dequant_scale, k_dequant_scale, v_dequant_scale: must be None.
        actual_seq_lengths, actual_seq_lengths_kv: one length per sequence. The last query sees the last key.
        block_size: any, at least 1.
        q_input_layout, kv_input_layout: must be "TND" and "BNSD".
        top_k, inner_precise: not used.

    Returns:
        [T,N,Dv] of the query's type. Rows without keys, and rows behind the last sequence, are 0.

    Raises:
        ValueError: an argument is wrong.
    """
    for name, scale in (("q", q_dequant_scale), ("k", k_dequant_scale), ("v", v_dequant_scale)):
        if scale is not None:
            raise ValueError(f"invalid argument: {name}_dequant_scale: given, want None (no quantised tensors)")
    for name, layout, want in (("q", q_input_layout, "TND"), ("kv", kv_input_layout, "BNSD")):
        if layout != want:
            raise ValueError(f'invalid argument: {name}_input_layout="{layout}", want "{want}"')
    _check_pages(query, key, value, num_key_value_heads, block_size)
    tokens = query.shape[0]
    _check_integers(select_idx=select_idx)
    if select_idx.dim() != 3 or select_idx.shape[:2] != (num_key_value_heads, tokens):
        raise _wrong_shape("select_idx", select_idx, f"[{num_key_value_heads},{tokens},K]")
    if select_num_idx is not None:
        _check_integers(select_num_idx=select_num_idx)
        if select_num_idx.shape != select_idx.shape[:2]:
            raise _wrong_shape("select_num_idx", select_num_idx, f"[{num_key_value_heads},{tokens}]")
    lengths = _lengths(query, key, block_table, actual_seq_lengths, actual_seq_lengths_kv)
    if not lengths[0]:
        return query.new_zeros(*query.shape[:2], value.shape[3])
    sequence, limit = _sequences(tokens, *lengths)
    part = _part_of(block_size)
    seen = -(-limit // part)
    lists = _lists(select_idx, select_num_idx, seen, block_size // part)
    # Sparse attention takes at most as many entries as the token sees parts. A longer list must repeat parts, and is
    # computed below over copies of its keys.
    repeats = (lists >= 0).sum(-1) > seen
    read = torch.where(repeats[..., None], -1, lists)
    group = query.shape[1] // num_key_value_heads
    outputs = []
    for head in range(num_key_value_heads):
        keys, values = key[:, :, head : head + 1], value[:, :, head : head + 1]
        rows = query[:, head * group : (head + 1) * group]
        out = _attend(rows, keys, values, read[head], *lengths, scale_value, part, block_table)
        if repeats[head].any():
            token = repeats[head].nonzero()[:, 0]
            place, counts = _places(lists[head, token], limit[token], part)
            of_place = torch.repeat_interleave(sequence[token], counts)
            page = block_table[of_place, place // key.shape[1]].to(torch.int64)
            row = place % key.shape[1]
            every = torch.arange(-(-int(counts.max()) // part)).expand(len(token), -1)
            ones = [1] * len(token)
            copies = keys[page, row], values[page, row]
            repeated = _attend(rows[token], copies[0], copies[1], every, ones, counts.tolist(), scale_value, part)
            out = out.index_copy(0, token, repeated)
        outputs.append(out)
    return torch.cat(outputs, dim=1)


def _places(lists: Tensor, limit: Tensor, part: int) -> tuple[Tensor, Tensor]:
    """Returns the key numbers of all lists in one tensor, ascending within each list, and the number of keys of each
    list.
    """
    blocks = lists.to(torch.int64)[..., None]
    keys = blocks * part + torch.arange(part)
    ordered = torch.where((blocks >= 0) & (keys < limit[:, None, None]), keys, -1).flatten(1).sort(-1).values
    return ordered[ordered >= 0], (ordered >= 0).sum(-1)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lists: Tensor,
    rows: list[int],
    keys: list[int],
    scale: float,
    part: int,
    block_table: Tensor | None = None,
) -> Tensor:
    """Calls sparse attention with one key head. Without pages, keys are packed."""
    ends = [torch.tensor(lengths, dtype=torch.int64) for lengths in (rows, keys)]
    call = SparseCall(
        query_rope=None,
        key_rope=None,
        sink=None,
        sparse_indices=lists[:, None],
        block_table=block_table,
        lengths_q=ends[0].cumsum(0),
        lengths_kv=ends[1].cumsum(0) if block_table is None else ends[1],
        layout="TND",
        scale=scale,
        block_size=part,
        sparse_mode=3,
    )
    with own_names(_NAMES):
        return call_operator(sparse_attention, (query, key, value, *call[:7]), query, key, value, *call)[0]


def _sums(name: str, given: Lengths) -> Tensor:
    sums = torch.tensor(integers(given, name), dtype=torch.int64)
    if len(sums) < 1 or sums[0] != 0 or (sums.diff() < 0).any():
        raise ValueError(f"invalid argument: {name}: want [B+1] with a leading 0, none smaller than the one before")
    return sums


@checked
def npu_k2q_csr(
    q2k: Tensor,
    cu_seqlens: Tensor | Sequence[int],
    cu_block_lens: Tensor | Sequence[int],
    order_method: int = 0,
    total_rows: int = -1,
    max_kv: int = -1,
    use_simt: int = 0,
    q_global_offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Transposes lists of blocks of keys: lists the queries that have selected each block.

    Args:
        q2k: int32 [H,T,K], blocks inside the sequence. Negative entries name no block.
        cu_seqlens, cu_block_lens: [B+1], prefix sums of queries and of blocks.
        order_method: 0 orders rows by sequence, then by block; 1 by block, then by sequence.
        total_rows: the number of rows; -1 means the number of all blocks.
        max_kv, use_simt: not used.
        q_global_offset: is added to the queries' numbers.

    Returns:
        row_ptr int32 [H,R+1], and q_ind and slot int32 [H,T*K]: the queries of row r, ascending, and the place of the
        block in the list of each. Unused entries are -1.

    Raises:
        ValueError: an argument is wrong.
    """
    _check_integers(q2k=q2k)
    if q2k.dim() != 3:
        raise _wrong_shape("q2k", q2k, "[H,T,K]")
    sums, block_sums = _sums("cu_seqlens", cu_seqlens), _sums("cu_block_lens", cu_block_lens)
    if len(sums) != len(block_sums):
        entries_of = f"{len(block_sums)} entries, want {len(sums)} (cu_seqlens)"
        raise ValueError(f"invalid argument: cu_block_lens has {entries_of}")
    if order_method not in (0, 1):
        raise ValueError(f"invalid argument: order_method={order_method}, want 0 or 1")
    heads, tokens, entries = q2k.shape
    if sums[-1] > tokens:
        raise ValueError(f"invalid argument: cu_seqlens[{len(sums) - 1}]={int(sums[-1])}, want at most {tokens} (q2k)")
    blocks = block_sums.diff()
    rows = int(block_sums[-1]) if total_rows < 0 else total_rows
    if rows < block_sums[-1]:
        raise ValueError(f"invalid argument: total_rows={total_rows}, want at least {int(block_sums[-1])}")
    # Tokens after the last sequence get the number of sequences.
    sequence = torch.bucketize(torch.arange(tokens), sums[1:], right=True)
    named = (q2k >= 0) & (sequence < len(blocks))[:, None]
    blocks_of = torch.nn.functional.pad(blocks, (0, 1))[sequence]
    wrong = named & (q2k >= blocks_of[:, None])
    if wrong.any():
        head, at, slot = wrong.nonzero()[0].tolist()
        got, last = int(q2k[head, at, slot]), int(blocks_of[at]) - 1
        raise ValueError(f"invalid argument: q2k[{head}][{at}][{slot}]={got}, want -1..{last}")
    row = q2k.to(torch.int64) + block_sums[sequence][:, None]
    if order_method == 1:
        # Rows are ordered by `level`, which is a block's number within its sequence, and then by sequence.
        of_row = torch.repeat_interleave(torch.arange(len(blocks)), blocks)
        level = torch.arange(len(of_row)) - block_sums[of_row]
        place = (level * len(blocks) + of_row).argsort().argsort()
        row = torch.where(named, place[torch.where(named, row, 0)], row) if len(place) else row
    flat = torch.where(named, row, rows).reshape(heads, tokens * entries)
    order = flat.argsort(dim=-1, stable=True)
    used = flat.gather(-1, order) < rows
    counts = flat.new_zeros(heads, rows + 1).scatter_add(-1, flat, torch.ones_like(flat))
    row_ptr = torch.nn.functional.pad(counts[:, :rows].cumsum(-1), (1, 0)).to(torch.int32)
    q_ind = torch.where(used, order // max(entries, 1) + q_global_offset, -1).to(torch.int32)
    return row_ptr, q_ind, torch.where(used, order % max(entries, 1), -1).to(torch.int32)


@checked
def npu_sparse_attention_score_prefill(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_table: Tensor,
    k2q_row_ptr: Tensor,
    k2q_q_indices: Tensor,
    k2q_slot_indices: Tensor,
    num_key_value_heads: int,
    scale_value: float,
    block_size: int,
    top_k: int,
    inner_precise: int,
    *,
    actual_seq_lengths: Tensor | Sequence[int] | None = None,
    actual_seq_lengths_kv: Tensor | Sequence[int] | None = None,
) -> Tensor:
    """Computes `npu_sparse_attention_score` from the lists that `npu_k2q_csr` has transposed, with its order_method 0.

    Args:
        query: [T,N,D], packed sequences. key, value: pages [pages,page size,Nkv,D].
        k2q_row_ptr, k2q_q_indices, k2q_slot_indices: results of `npu_k2q_csr`, with rows by sequence and block.
        top_k: the number of entries in a list.
        inner_precise: not used.
        actual_seq_lengths, actual_seq_lengths_kv: one length per sequence, needed.

    Returns:
        [T,N,Dv] of the query's type.

    Raises:
        ValueError: an argument is wrong.
    """
    if actual_seq_lengths is None or actual_seq_lengths_kv is None:
        name = "actual_seq_lengths" if actual_seq_lengths is None else "actual_seq_lengths_kv"
        raise ValueError(f"invalid argument: {name}: missing, want one length per sequence")
    _check_integers(k2q_row_ptr=k2q_row_ptr, k2q_q_indices=k2q_q_indices, k2q_slot_indices=k2q_slot_indices)
    heads = num_key_value_heads
    _check_pages(query, key, value, heads, block_size)
    if top_k < 0:
        raise ValueError(f"invalid argument: top_k={top_k}, want >= 0")
    tokens = query.shape[0]
    rows, keys = _lengths(query, key, block_table, actual_seq_lengths, actual_seq_lengths_kv)
    sequence, _ = _sequences(tokens, rows, keys)
    ends = (-(-torch.tensor(keys, dtype=torch.int64) // block_size)).cumsum(0)
    first = torch.cat([ends.new_zeros(1), ends, ends[-1:]])  # tokens behind the last sequence have no blocks
    blocks = int(first[-1])
    if k2q_row_ptr.dim() != 2 or k2q_row_ptr.shape[0] != heads or k2q_row_ptr.shape[1] < blocks + 1:
        raise _wrong_shape("k2q_row_ptr", k2q_row_ptr, f"[{heads},{blocks + 1}]")
    if k2q_q_indices.dim() != 2 or k2q_q_indices.shape[0] != heads:
        raise _wrong_shape("k2q_q_indices", k2q_q_indices, f"[{heads},T*K]")
    if k2q_slot_indices.shape != k2q_q_indices.shape:
        raise _wrong_shape("k2q_slot_indices", k2q_slot_indices, f"{list(k2q_q_indices.shape)} (k2q_q_indices)")
    select_idx = torch.full((heads, tokens, top_k), -1, dtype=torch.int32)
    for head in range(heads):
        pointers = k2q_row_ptr[head].to(torch.int64)
        count, most = int(pointers[-1]), k2q_q_indices.shape[1]
        if pointers[0] != 0 or (pointers.diff() < 0).any() or count > most:
            want = f"a leading 0, none smaller than the one before, and at most {most} (k2q_q_indices)"
            raise ValueError(f"invalid argument: k2q_row_ptr[{head}]: want {want}")
        row = torch.repeat_interleave(torch.arange(len(pointers) - 1), pointers.diff())
        token, slot = (t[head, :count].to(torch.int64) for t in (k2q_q_indices, k2q_slot_indices))
        for name, places, size in (("k2q_q_indices", token, tokens), ("k2q_slot_indices", slot, top_k)):
            if ((places < 0) | (places >= size)).any():
                raise ValueError(f"invalid argument: {name}[{head}]: want 0..{size - 1} in rows")
        block = row - first[sequence[token]]
        if ((block < 0) | (row >= first[sequence[token] + 1])).any():
            raise ValueError(f"invalid argument: k2q_row_ptr[{head}]: a row has a query of another sequence")
        select_idx[head, token, slot] = block.to(torch.int32)
    return npu_sparse_attention_score(
        query,
        key,
        value,
        select_idx,
        block_table,
        actual_seq_lengths=actual_seq_lengths,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
        num_key_value_heads=heads,
        scale_value=scale_value,
        block_size=block_size,
    )


# The functions that vLLM's plugin looks up in torch.ops._C_ascend: {name: function}.
C_ASCEND = {
    "npu_sparse_attention_score": npu_sparse_attention_score,
    "npu_k2q_csr": npu_k2q_csr,
    "npu_sparse_attention_score_prefill": npu_sparse_attention_score_prefill,
}
