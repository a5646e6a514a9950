from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__version__: str
OPERATORS: tuple[str, ...]

class Context:
    """Threads, instruction set and accumulation mode of the calls to which this context is passed."""
    def __init__(self, *, threads: int = 0, isa: str | None = None, accumulation: str = "deterministic") -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def accumulation(self) -> str: ...

class Mask:
    """A rule that says which keys a query row looks at."""
    @staticmethod
    def none() -> Mask: ...
    @staticmethod
    def causal() -> Mask: ...
    @staticmethod
    def causal_top_left() -> Mask: ...
    @staticmethod
    def band(pre: int, next: int) -> Mask: ...
    @staticmethod
    def band_top_left(pre: int, next: int) -> Mask: ...
    @staticmethod
    def prefix(prefix: Sequence[int]) -> Mask: ...
    @staticmethod
    def rows(row_begin: Sequence[int], row_end: Sequence[int]) -> Mask: ...
    @staticmethod
    def from_sparse_mode(
        sparse_mode: int,
        pre_tokens: int = ...,
        next_tokens: int = ...,
        prefix: Sequence[int] = ...,
        dense_mask_given: bool = False,
    ) -> Mask: ...

class PairMask:
    """A mask with one decision per pair of a query row and a key, made once for many calls."""
    @staticmethod
    def from_bool(mask: Any, *, drops: bool = False, context: Context | None = None) -> PairMask: ...
    @staticmethod
    def from_additive(scores: Any, *, context: Context | None = None) -> tuple[PairMask, bool]: ...
    @staticmethod
    def from_indices(indices: Any, keys: int, *, context: Context | None = None) -> PairMask: ...
    @staticmethod
    def from_blocks(
        blocks: Any, rows: int, keys: int, block_size: tuple[int, int], *, context: Context | None = None
    ) -> PairMask: ...
    @staticmethod
    def from_block_mask(
        blocks: Any, rows: int, keys: int, block_size: tuple[int, int], *, context: Context | None = None
    ) -> PairMask: ...
    @staticmethod
    def from_bits(words: Any, keys: int, *, context: Context | None = None) -> PairMask: ...
    @staticmethod
    def from_slabs(
        function: Callable[[int, int], Any], shape: Sequence[int], *, context: Context | None = None
    ) -> PairMask: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __and__(self, other: PairMask) -> PairMask: ...
    @property
    def tiles(self) -> tuple[int, int, int]: ...
    @property
    def memory(self) -> int: ...

class AttentionOptions:
    def __init__(self, *, layout: str, **others: Any) -> None: ...

class Shards:
    def __init__(
        self, *, cut: str, intervals: Sequence[Sequence[tuple[int, int]]], sq: int, sk: int, strategy: str
    ) -> None: ...
    def rows_held(self, rows: int, rank: int, ranks: int) -> list[tuple[int, int]]: ...

class RankedForward:
    def __init__(
        self,
        arrays: dict[str, Any],
        options: AttentionOptions,
        lengths_q: Sequence[int],
        lengths_kv: Sequence[int],
        context: Context | None,
    ) -> None: ...
    def run(
        self, shards: Shards, group: Any, first_tag: int, dropout: tuple[int, int] | None
    ) -> tuple[int, int, int, int]: ...

class RankedBackward:
    def __init__(self, *arguments: Any) -> None: ...  # the same arguments as RankedForward
    def run(
        self, shards: Shards, group: Any, first_tag: int, dropout: tuple[int, int] | None
    ) -> tuple[int, int, int, int]: ...

def levels() -> list[str]: ...
def share_openmp_threads(runtime: str) -> bool:
    """From now on, runs calls on the threads of this OpenMP runtime. Returns False if the runtime is not loaded."""

def ranked_call_tags() -> int:
    """Returns how many consecutive message tags belong to one call."""

class PromptAttentionOptions:
    def __init__(self, *, layout: str, **others: Any) -> None: ...

class DecodeAttentionOptions:
    def __init__(self, *, layout: str, **others: Any) -> None: ...

class InferAttentionOptions:
    def __init__(self, *, layout: str, **others: Any) -> None: ...

class SparseAttentionOptions:
    def __init__(
        self,
        *,
        layout: str,
        scale: float | None,
        block_size: int,
        sparse_mode: int,
        check_indices: bool,
        row_format: tuple[int, int, int],
    ) -> None: ...

class SharedKvOptions:
    def __init__(
        self,
        *,
        layout: str,
        scale: float | None,
        cmp_ratio: int,
        ori_mask: int,
        cmp_mask: int,
        window_left: int,
        window_right: int,
        ori_indices_are_slots: bool,
        check_indices: bool,
        positive_lse: bool,
        row_rope: int,
        row_tile: int,
        cu_q: list[int],
        cu_ori: list[int],
        cu_cmp: list[int],
        used_q: list[int],
        used_ori: list[int],
        used_cmp: list[int],
        cmp_residual: list[int],
    ) -> None: ...

class LightningIndexerOptions:
    def __init__(
        self,
        *,
        layout: str,
        sparse_mode: int,
        cmp_ratio: int,
        used_q: list[int],
        used_kv: list[int],
        residual_kv: list[int],
    ) -> None: ...

class LightningIndexerGradOptions:
    def __init__(self, *, layout: str, sparse_mode: int, check_indices: bool) -> None: ...

class DenseIndexerLseOptions:
    def __init__(self, *, layout: str, sparse_mode: int) -> None: ...

class SparseIndexerLossOptions:
    def __init__(
        self,
        *,
        layout: str,
        scale: float | None,
        sparse_mode: int,
        reduction: str,
        target: str,
        check_indices: bool,
    ) -> None: ...

class GivenIndexerLossOptions(SparseIndexerLossOptions):
    def __init__(
        self,
        *,
        layout: str,
        sparse_mode: int,
        check_indices: bool,
        cmp_ratio: int,
        used_q: list[int],
        used_kv: list[int],
        residual_kv: list[int],
    ) -> None: ...

class MsaIndexScoreOptions:
    def __init__(self, *, sparse_mode: int, init_blocks: int, local_blocks: int, start_loc: list[int]) -> None: ...

class IndexerKLLossOptions:
    def __init__(self, *, eps: float, weight: str) -> None: ...

class DenseIndexerLossOptions:
    def __init__(
        self, *, layout: str, scale: float | None, sparse_mode: int, reduction: str, target: str
    ) -> None: ...

class PlanDescription:
    """What a call would run, and why. str() describes it in words."""
    @property
    def op(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def kernels(self) -> list[str]: ...
    @property
    def reason(self) -> str: ...
    @property
    def block_q(self) -> int: ...
    @property
    def block_k(self) -> int: ...
    @property
    def tasks(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def flops(self) -> float: ...
    @property
    def flops_full(self) -> float: ...
    @property
    def flops_visited(self) -> float: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def load(self) -> list[float]: ...
    @property
    def efficiency(self) -> float: ...

_Options = TypeVar("_Options")
_Run = Callable[[dict[str, Any], _Options, Sequence[int], Sequence[int], Context | None], None]
_Plan = Callable[[dict[str, Any], _Options, Sequence[int], Sequence[int], Context | None], PlanDescription]

# The arguments of these functions: arrays, options, lengths_q, lengths_kv and context.
forward: _Run[AttentionOptions]
backward: _Run[AttentionOptions]
prompt: _Run[PromptAttentionOptions]
decode: _Run[DecodeAttentionOptions]
infer: _Run[InferAttentionOptions]
sparse_forward: _Run[SparseAttentionOptions]
sparse_backward: _Run[SparseAttentionOptions]
shared_kv: _Run[SharedKvOptions]
shared_kv_backward: _Run[SharedKvOptions]
indexer: _Run[LightningIndexerOptions]
indexer_backward: _Run[LightningIndexerGradOptions]
dense_indexer_lse: _Run[DenseIndexerLseOptions]
sparse_indexer_loss: _Run[SparseIndexerLossOptions]
dense_indexer_loss: _Run[DenseIndexerLossOptions]
indexer_loss_value: _Run[IndexerKLLossOptions]
index_score: _Run[MsaIndexScoreOptions]
plan_forward: _Plan[AttentionOptions]
plan_backward: _Plan[AttentionOptions]
plan_prompt: _Plan[PromptAttentionOptions]
plan_decode: _Plan[DecodeAttentionOptions]
plan_infer: _Plan[InferAttentionOptions]
plan_sparse_forward: _Plan[SparseAttentionOptions]
plan_sparse_backward: _Plan[SparseAttentionOptions]
plan_shared_kv: _Plan[SharedKvOptions]
plan_shared_kv_backward: _Plan[SharedKvOptions]
plan_indexer: _Plan[LightningIndexerOptions]
plan_indexer_backward: _Plan[LightningIndexerGradOptions]
plan_dense_indexer_lse: _Plan[DenseIndexerLseOptions]
plan_sparse_indexer_loss: _Plan[SparseIndexerLossOptions]
plan_dense_indexer_loss: _Plan[DenseIndexerLossOptions]
plan_indexer_loss_value: _Plan[IndexerKLLossOptions]
plan_index_score: _Plan[MsaIndexScoreOptions]

def merge(arrays: dict[str, Any], layout: str, heads: int, context: Context | None) -> None: ...
def plan_merge(arrays: dict[str, Any], layout: str, heads: int, context: Context | None) -> PlanDescription: ...
def merge_by_lse(arrays: dict[str, Any], positive: bool, context: Context | None) -> None: ...
def plan_merge_by_lse(arrays: dict[str, Any], positive: bool, context: Context | None) -> PlanDescription: ...
def scatter_rows(arrays: dict[str, Any], form: str, context: Context | None) -> None: ...
def plan_scatter_rows(arrays: dict[str, Any], form: str, context: Context | None) -> PlanDescription: ...
def gather_rows(arrays: dict[str, Any], form: str, cumulative: bool, context: Context | None) -> None: ...
def plan_gather_rows(
    arrays: dict[str, Any], form: str, cumulative: bool, context: Context | None
) -> PlanDescription: ...
def dropout_mask(
    arrays: dict[str, Any], seed: int, offset: int, keep_prob: float, bits: int, context: Context | None
) -> None: ...
def use_torch(
    classes: Sequence[type],
    keys_of: Callable[[Any], Any],
    plain_keys: Sequence[int],
    empty_strided: Callable[..., Any],
    empty_like: Callable[..., Any],
    float32: Any,
) -> bool:
    """Passes the parts of PyTorch that the extension uses. Returns False if PyTorch lacks DLPack's C exchange API."""

# The functions below take PyTorch's tensors in layout BNSD or BSND. They allocate the results, and keep the plans of
# small calls. A call returns None without effect if a shape or type does not fit, if a tensor would have to be copied,
# or if an argument is no plain tensor. `order` says how the output lies in memory. "by row" means [B, S, N, Dv], and
# "dense" means the order of its shape. "as query" means the order of torch.empty_like(query); if values have another
# head size, it means "dense".
def attends(query: Any, key: Any, value: Any, options: AttentionOptions, grouped: bool) -> bool:
    """Returns whether `attend` takes these tensors. With grouped, query may have a multiple of key's heads."""

def attend(
    query: Any,
    key: Any,
    value: Any,
    dense_mask: Any,
    pse: Any,
    sink: Any,
    options: AttentionOptions,
    grouped: bool,
    statistics: bool,
    context: Context | None,
    order: str = "by row",
) -> Any:
    """Returns the output, or with statistics (output, softmax_max, softmax_sum)."""

def attend_masked(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    options: AttentionOptions,
    grouped: bool,
    order: str,
    context: Context | None,
) -> Any:
    """Returns the output in layout BNSD. mask has at most four dimensions and broadcasts to [B, N, S, Skv], but its
    last dimension must be Skv. A bool mask drops a key where it is True. A mask of any other type is a bias."""

def attend_backward(
    query: Any,
    key: Any,
    value: Any,
    dense_mask: Any,
    pse: Any,
    out: Any,
    softmax_max: Any,
    softmax_sum: Any,
    d_out: Any,
    options: AttentionOptions,
    by_row: bool,
    context: Context | None,
) -> tuple[Any, Any, Any] | None:
    """Returns (dq, dk, dv). With by_row they lie in memory as [B, S, N, D], and otherwise in the order of their
    shapes."""

def attend_with_lse(
    query: Any, key: Any, value: Any, bias: Any, options: AttentionOptions, context: Context | None
) -> tuple[Any, Any] | None:
    """Returns (output, lse) in layout BNSD, for values of query's head size. The output lies in memory as
    torch.empty_like(query), and lse [B, N, S] as [B, S, N]. Rows without keys have lse 0. bias broadcasts as the mask
    of `attend_masked`."""

def attend_backward_with_lse(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    out: Any,
    lse: Any,
    d_out: Any,
    options: AttentionOptions,
    context: Context | None,
) -> tuple[Any, Any, Any] | None:
    """Returns (dq, dk, dv), which lie in memory as [B, S, N, D], from the results of `attend_with_lse`."""

def attend_cache(
    query: Any,
    key: Any,
    value: Any,
    block_table: Any,
    dense_mask: Any,
    pse: Any,
    sink: Any,
    options: DecodeAttentionOptions,
    lengths_q: Any,
    lengths_kv: Any,
    by_row: bool,
    return_lse: bool,
    context: Context | None,
) -> Any:
    """Returns the output, or with return_lse (output, lse). With by_row the output lies in memory as [B, S, N, Dv], and
    otherwise in the order of its shape."""
