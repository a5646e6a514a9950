"""The scores of blocks of keys from which MiniMax-M3 selects, under the names of the device's packages."""

from __future__ import annotations

from torch import Tensor

from .._errors import own_names
from .._index_score import BLOCK_SIZE
from .._torch.index_score import index_score
from .calls import TENSOR_NAMES, checked
from .sparse_checks import check_integers, say_with_zeros, shape_text, sums_without_zeros, without_zero

_LAYOUTS = ("TND", "BBND", "BNBD")
_COLUMNS = 16  # the device's score has a multiple of so many columns
_NAMES = TENSOR_NAMES | {
    "mask": "sparse_mode",
    "k_scale": "scale",
    "lengths_q": "actual_seq_qlen",
    "lengths_kv": "actual_seq_klen",
}


def _layout_of(layout_key: str) -> str:
    layout = layout_key.upper() or "BBND"
    if layout not in _LAYOUTS:
        raise ValueError(f'invalid argument: layout_key="{layout_key}", want TND, BBND or BNBD')
    return layout


def _pages(key: Tensor, scale: Tensor | None, layout: str) -> tuple[Tensor, Tensor | None]:
    """Returns pages of keys and of their scales with rows before heads."""
    if layout == "BBND" and key.dim() == 3:
        key = key.unsqueeze(2)
    if key.dim() != 4:
        raise ValueError(f"invalid argument: key.shape={shape_text(key)}, want 4 dimensions (layout_key)")
    if layout == "BNBD":
        if key.shape[1] != 1:
            raise ValueError(f"invalid argument: key.shape[1]={key.shape[1]}, want 1 (one key head)")
        key = key.transpose(1, 2)
    blocks, rows = key.shape[:2]
    if scale is not None and scale.shape not in ((blocks, 1, rows), (blocks, rows, 1)):
        want = f"[{blocks},1,{rows}] or [{blocks},{rows},1] (key)"
        raise ValueError(f"invalid argument: scale.shape={shape_text(scale)}, want {want}")
    return key, None if scale is None else scale.reshape(blocks, rows, 1)


def _columns(key: Tensor, block_table: Tensor | None, ends: Tensor) -> int:
    """Returns the number of columns of the score: the blocks of the longest sequence that the table, or the sums of
    packed keys, allow.
    """
    if block_table is None:
        most = max(ends.diff(prepend=ends.new_zeros(1)).tolist(), default=0)
    else:
        most = block_table.shape[1] * key.shape[1]
    return max(-(-most // (BLOCK_SIZE * _COLUMNS)), 1) * _COLUMNS


def _required(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is None:
            raise ValueError(f"invalid argument: {name}: missing")


def _score(given: dict) -> Tensor:
    query, key, table, ends = given["query"], given["key"], given["block_table"], given["actual_seq_klen"]
    layout = _layout_of(given["layout_key"])
    _required(actual_seq_qlen=given["actual_seq_qlen"], actual_seq_klen=ends)
    if (table is None) != (layout == "TND"):
        said = "missing" if table is None else "given, want None"
        raise ValueError(f"invalid argument: block_table: {said} (layout_key)")
    if table is not None and table.dim() != 2:
        raise ValueError(f"invalid argument: block_table.shape={shape_text(table)}, want [B,n]")
    if given["atten_mask"] is not None and given["sparse_mode"] == 0:
        raise ValueError("invalid argument: atten_mask: given, want None (sparse_mode 0)")
    check_integers(actual_seq_qlen=given["actual_seq_qlen"], actual_seq_klen=ends, start_loc=given["start_loc"])
    packed = layout == "TND"
    if packed:
        of_both = {"actual_seq_qlen": given["actual_seq_qlen"], "actual_seq_klen": ends}
        sums, keys = sums_without_zeros(query, key, **of_both)
    else:
        sums, keys = without_zero("actual_seq_qlen", given["actual_seq_qlen"], query), ends
    key, scale = (key, given["scale"]) if packed else _pages(key, given["scale"], layout)
    sums_of_call = ("actual_seq_qlen", "actual_seq_klen") if packed else ("actual_seq_qlen",)
    with own_names(_NAMES, say_with_zeros(*sums_of_call)):
        return index_score(
            query,
            key,
            scale,
            table,
            sums,
            keys,
            given["start_loc"],
            given["sparse_mode"],
            given["init_blocks"],
            given["local_blocks"],
            _columns(key, table, keys),
        )


@checked
def npu_msa_index_score(
    query: Tensor,
    key: Tensor,
    block_table: Tensor | None,
    start_loc: Tensor,
    *,
    scale: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Tensor | None = None,
    actual_seq_klen: Tensor | None = None,
    layout_key: str = "BBND",
    sparse_mode: int = 3,
    init_blocks: int = 0,
    local_blocks: int = 1,
) -> Tensor:
    """Computes, for each head of each query token and each block of 128 keys, the largest dot product query . key.

    Args:
        query: [T1,N,D]; float32, bfloat16, float16 or float8_e4m3fn.
        key: type of query, or int8 with scale: [T2,1,D] in layout_key "TND"; pages [blocks,block size,1,D] or
            [blocks,block size,D] in "BBND", and [blocks,1,block size,D] in "BNBD".
        block_table: int32 [B,n] for pages, else None.
        start_loc: [B], the block that counts as the own block of all query tokens of a sequence.
        scale: float32 [T2,1] or [T2]; for pages [blocks,1,block size] or [blocks,block size,1].
        atten_mask: not read with sparse_mode 3; None with 0.
        actual_seq_qlen: prefix sums [B+1] that begin with 0.
        actual_seq_klen: likewise for "TND", and [B] numbers of keys for pages.
        sparse_mode: 3 lets the last query see all keys, and each query before it one fewer; 0 lets each see all.
        init_blocks, local_blocks: the first blocks get 1e30; blocks start_loc + 1 - local_blocks to start_loc get 1e29.

    Returns:
        float32 [N,T1,C], -inf where a token sees no key. C is the number of blocks of n pages, or of the longest packed
        sequence, rounded up to a multiple of 16. The result is a constant to autograd.

    Raises:
        ValueError: an argument is wrong.
    """
    return _score(locals())


@checked
def msa_index_score(
    query: Tensor,
    key: Tensor,
    start_loc: Tensor,
    *,
    block_table: Tensor | None = None,
    scale: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Tensor | None = None,
    actual_seq_klen: Tensor | None = None,
    layout_key: str = "BBND",
    sparse_mode: int = 3,
    init_blocks: int = 0,
    local_blocks: int = 1,
) -> Tensor:
    """Computes `npu_msa_index_score` in the form of cann_ops_transformer.ops."""
    return _score(locals())


C_ASCEND = {"npu_msa_index_score": npu_msa_index_score}
CANN_OPS = {"msa_index_score": msa_index_score}
