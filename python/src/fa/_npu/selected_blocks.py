"""The functions of MiniMax-M3's attention on selected blocks of keys, which vLLM's NPU plugin has."""

from __future__ import annotations

import torch
from torch import Tensor

from .._errors import own_names
from .._torch.operators import call as call_operator
from .._torch.sparse_ops import SparseCall, sparse_attention
from .calls import TENSOR_NAMES, checked

_NAMES = TENSOR_NAMES | {"sparse_indices": "select_idx", "lengths_q": "actual_seq_lengths"}
_NAMES |= {"lengths_kv": "actual_seq_lengths_kv", "scale": "scale_value"}


def _wrong_shape(name: str, tensor: Tensor, want: str) -> ValueError:
    return ValueError(f"invalid argument: {name}.shape={list(tensor.shape)}, want {want}")


def _check_integers(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"invalid argument: {name}.dtype={tensor.dtype}, want torch.int32 or torch.int64")


def _sequences(tokens: int, lengths: Tensor, lengths_kv: Tensor) -> tuple[Tensor, Tensor]:
    """Returns for each token the number of its sequence, and how many keys it may see. The numbers of tokens behind the
    last sequence do not matter."""
    _check_integers(actual_seq_lengths=lengths, actual_seq_lengths_kv=lengths_kv)
    if lengths.dim() != 1 or lengths.shape != lengths_kv.shape:
        raise _wrong_shape("actual_seq_lengths_kv", lengths_kv, f"{list(lengths.shape)} (actual_seq_lengths)")
    ends = lengths.to(torch.int64).cumsum(0)
    token = torch.arange(tokens)
    sequence = torch.bucketize(token, ends, right=True).clamp_(max=len(lengths) - 1)
    return sequence, lengths_kv.to(torch.int64)[sequence] - (ends[sequence] - token) + 1


def _lists(select_idx: Tensor, select_num_idx: Tensor | None, seen: Tensor) -> Tensor:
    """Returns the lists [Nkv,T,K] with the blocks that count in front of -1.

    Args:
        seen: how many blocks each token may see. Blocks from there on do not count.
    """
    count = (select_idx >= 0).cumsum(-1)
    most = select_idx.shape[-1] if select_num_idx is None else select_num_idx[..., None]
    counts = (select_idx >= 0) & (count <= most) & (select_idx < seen[:, None])
    many = counts.sum(-1) > seen.clamp(min=0)
    if many.any():
        head, token = many.nonzero()[0].tolist()
        place = f"select_idx[{head}][{token}]"
        raise ValueError(f"invalid argument: {place}: more entries than blocks, want each block once")
    order = (~counts).to(torch.int8).argsort(dim=-1, stable=True)
    return torch.where(counts, select_idx, -1).gather(-1, order)


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
    actual_seq_lengths: Tensor,
    actual_seq_lengths_kv: Tensor,
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
            skipped, and so are blocks behind the token.
        block_table: int32 [B,n].
        select_num_idx: int32 [Nkv,T], how many of the entries that are not negative count; None: all.
        q_dequant_scale, k_dequant_scale, v_dequant_scale: must be None.
        actual_seq_lengths, actual_seq_lengths_kv: int32 or int64 [B], one length per sequence. The last query sees the
            last key.
        block_size: 1 to 128.
        q_input_layout, kv_input_layout: must be "TND" and "BNSD".
        top_k, inner_precise: not used.

    Returns:
        [T,N,Dv] of the query's type. Rows without keys, and rows behind the last sequence, are 0.

    Raises:
        ValueError: an argument is wrong, or a list has more entries than blocks, as it may with a block listed twice.
    """
    for name, scale in (("q", q_dequant_scale), ("k", k_dequant_scale), ("v", v_dequant_scale)):
        if scale is not None:
            raise ValueError(f"invalid argument: {name}_dequant_scale: given, want None (no quantised tensors)")
    for name, layout, want in (("q", q_input_layout, "TND"), ("kv", kv_input_layout, "BNSD")):
        if layout != want:
            raise ValueError(f'invalid argument: {name}_input_layout="{layout}", want "{want}"')
    if query.dim() != 3:
        raise _wrong_shape("query", query, "[T,N,D]")
    if key.dim() != 4 or key.shape[2] != num_key_value_heads:
        raise _wrong_shape("key", key, f"[pages,page size,{num_key_value_heads},D] (num_key_value_heads)")
    if value.dim() != 4 or value.shape[2] != num_key_value_heads:
        raise _wrong_shape("value", value, f"[pages,page size,{num_key_value_heads},Dv] (num_key_value_heads)")
    tokens, heads = query.shape[:2]
    if num_key_value_heads < 1 or heads % num_key_value_heads != 0:
        raise ValueError(f"invalid argument: num_key_value_heads={num_key_value_heads}, want a divisor of {heads}")
    _check_integers(select_idx=select_idx)
    if select_idx.dim() != 3 or select_idx.shape[:2] != (num_key_value_heads, tokens):
        raise _wrong_shape("select_idx", select_idx, f"[{num_key_value_heads},{tokens},K]")
    if select_num_idx is not None:
        _check_integers(select_num_idx=select_num_idx)
        if select_num_idx.shape != select_idx.shape[:2]:
            raise _wrong_shape("select_num_idx", select_num_idx, f"[{num_key_value_heads},{tokens}]")
    if not 1 <= block_size <= 128:
        raise ValueError(f"invalid argument: block_size={block_size}, want 1..128")
    _, limit = _sequences(tokens, actual_seq_lengths, actual_seq_lengths_kv)
    lists = _lists(select_idx, select_num_idx, -(-limit // block_size))
    lengths = actual_seq_lengths, actual_seq_lengths_kv
    return _attend(query, key, value, lists, block_table, lengths, scale_value, block_size)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lists: Tensor,
    block_table: Tensor,
    lengths: tuple[Tensor, Tensor],
    scale: float,
    block_size: int,
) -> Tensor:
    """Calls sparse attention for each key head, whose query heads share a list."""
    group = query.shape[1] // key.shape[2]
    outputs = []
    for head in range(key.shape[2]):
        call = SparseCall(
            query_rope=None,
            key_rope=None,
            sink=None,
            sparse_indices=lists[head, :, None],
            block_table=block_table,
            lengths_q=lengths[0].to(torch.int64).cumsum(0),
            lengths_kv=lengths[1],
            layout="TND",
            scale=scale,
            block_size=block_size,
            sparse_mode=3,
        )
        heads = slice(head * group, (head + 1) * group)
        tensors = query[:, heads], key[:, :, head : head + 1], value[:, :, head : head + 1]
        with own_names(_NAMES):
            outputs.append(call_operator(sparse_attention, (*tensors, *call[:7]), *tensors, *call)[0])
    return torch.cat(outputs, dim=1)


def _check_sums(**sums: Tensor) -> None:
    _check_integers(**sums)
    for name, tensor in sums.items():
        if tensor.dim() != 1 or len(tensor) < 1 or tensor[0] != 0 or (tensor.diff() < 0).any():
            raise ValueError(f"invalid argument: {name}: want [B+1] with a leading 0, none smaller than the one before")


@checked
def npu_k2q_csr(
    q2k: Tensor,
    cu_seqlens: Tensor,
    cu_block_lens: Tensor,
    order_method: int = 0,
    total_rows: int = -1,
    max_kv: int = -1,
    use_simt: int = 0,
    q_global_offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Transposes lists of blocks of keys: lists the queries that have selected each block.

    Args:
        q2k: int32 [H,T,K], blocks inside the sequence. Negative entries name no block.
        cu_seqlens, cu_block_lens: int32 or int64 [B+1], prefix sums of queries and of blocks.
        order_method: 0 orders rows by sequence, then by block; 1 by block, then by sequence.
        total_rows: the number of rows; -1: that of all blocks.
        max_kv, use_simt: not used.
        q_global_offset: is added to the queries' numbers.

    Returns:
        row_ptr int32 [H,R+1], and q_ind and slot int32 [H,T*K]: the queries of row r, ascending, and the place of the
        block in the list of each. Unused entries are -1.

    Raises:
        ValueError: an argument is wrong.
    """
    _check_integers(q2k=q2k)
    _check_sums(cu_seqlens=cu_seqlens, cu_block_lens=cu_block_lens)
    if q2k.dim() != 3:
        raise _wrong_shape("q2k", q2k, "[H,T,K]")
    if cu_seqlens.shape != cu_block_lens.shape:
        raise _wrong_shape("cu_block_lens", cu_block_lens, f"{list(cu_seqlens.shape)} (cu_seqlens)")
    if order_method not in (0, 1):
        raise ValueError(f"invalid argument: order_method={order_method}, want 0 or 1")
    heads, tokens, entries = q2k.shape
    blocks = cu_block_lens.to(torch.int64).diff()
    rows = int(cu_block_lens[-1]) if total_rows < 0 else total_rows
    if rows < cu_block_lens[-1]:
        raise ValueError(f"invalid argument: total_rows={total_rows}, want at least {int(cu_block_lens[-1])}")
    token = torch.arange(tokens)
    sequence = torch.bucketize(token, cu_seqlens[1:].to(torch.int64), right=True)
    inside = sequence < len(blocks)
    sequence = sequence.clamp(max=max(len(blocks) - 1, 0))
    named = (q2k >= 0) & inside[:, None]
    wrong = named & (q2k >= blocks[sequence][:, None])
    if wrong.any():
        head, at, slot = wrong.nonzero()[0].tolist()
        got, last = int(q2k[head, at, slot]), int(blocks[sequence[at]]) - 1
        raise ValueError(f"invalid argument: q2k[{head}][{at}][{slot}]={got}, want -1..{last}")
    row = q2k.to(torch.int64) + cu_block_lens.to(torch.int64)[sequence][:, None]
    if order_method == 1:
        # The number of a block is how many blocks are of a lower level, or of its level in an earlier sequence.
        of_row = torch.repeat_interleave(torch.arange(len(blocks)), blocks)
        level = torch.arange(len(of_row)) - cu_block_lens.to(torch.int64)[of_row]
        place = (level * len(blocks) + of_row).argsort().argsort()
        row = torch.where(named, place[torch.where(named, row, 0)], row) if len(place) else row
    flat = torch.where(named, row, rows).reshape(heads, -1)
    order = flat.argsort(dim=-1, stable=True)
    used = flat.gather(-1, order) < rows
    counts = torch.stack([torch.bincount(of, minlength=rows + 1)[:rows] for of in flat]) if heads else flat[:, :0]
    row_ptr = torch.nn.functional.pad(counts.cumsum(-1), (1, 0)).to(torch.int32)
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
    actual_seq_lengths: Tensor | None = None,
    actual_seq_lengths_kv: Tensor | None = None,
) -> Tensor:
    """Computes `npu_sparse_attention_score` from the lists that `npu_k2q_csr` has transposed, with its order_method 0.

    Args:
        query: [T,N,D], packed sequences. key, value: pages [pages,page size,Nkv,D].
        k2q_row_ptr, k2q_q_indices, k2q_slot_indices: results of `npu_k2q_csr`, with rows by sequence and block.
        top_k: the number of entries in a list.
        inner_precise: not used.
        actual_seq_lengths, actual_seq_lengths_kv: int32 or int64 [B], needed.

    Returns:
        [T,N,Dv] of the query's type.

    Raises:
        ValueError: an argument is wrong.
    """
    if actual_seq_lengths is None or actual_seq_lengths_kv is None:
        name = "actual_seq_lengths" if actual_seq_lengths is None else "actual_seq_lengths_kv"
        raise ValueError(f"invalid argument: {name}: missing, want one length per sequence")
    _check_integers(k2q_row_ptr=k2q_row_ptr, k2q_q_indices=k2q_q_indices, k2q_slot_indices=k2q_slot_indices)
    tokens, heads = query.shape[0], num_key_value_heads
    sequence, _ = _sequences(tokens, actual_seq_lengths, actual_seq_lengths_kv)
    first = torch.nn.functional.pad((-(-actual_seq_lengths_kv.to(torch.int64) // block_size)).cumsum(0), (1, 0))
    rows = int(first[-1])
    if k2q_row_ptr.dim() != 2 or k2q_row_ptr.shape[0] != heads or k2q_row_ptr.shape[1] < rows + 1:
        raise _wrong_shape("k2q_row_ptr", k2q_row_ptr, f"[{heads},{rows + 1}]")
    select_idx = torch.full((heads, tokens, top_k), -1, dtype=torch.int32)
    for head in range(heads):
        pointers = k2q_row_ptr[head].to(torch.int64)
        count = int(pointers[-1])
        row = torch.repeat_interleave(torch.arange(len(pointers) - 1), pointers.diff())
        token, slot = (t[head, :count].to(torch.int64) for t in (k2q_q_indices, k2q_slot_indices))
        if ((token < 0) | (token >= tokens) | (slot < 0) | (slot >= top_k)).any():
            want = f"queries below {tokens} and slots below {top_k}"
            raise ValueError(f"invalid argument: k2q_q_indices[{head}]: want {want}")
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
