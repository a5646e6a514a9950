"""One call of attention: its options as the extension takes them, and its sequences in runs. One call of the extension
computes a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import _fa
from .._errors import argument_error, made
from .._fa import Mask
from .._torch.call import UNSIGNED_64
from .._torch.operators import tensors_of
from ._arguments import invalid, window
from ._sequences import Piece, boundaries, check_longest, lengths_within, pieces_of, rows_of, runs_of

FLT_MAX = torch.finfo(torch.float32).max
SLOPES, NO_BIAS = 2, 1  # pse types
_UNLIMITED = (1 << 63) - 1


class Options(NamedTuple):
    """The options of flash_attn's functions under their own names. Some options exist in one generation only."""

    causal: bool = False
    window_size: Sequence[Optional[int]] = (-1, -1)
    softmax_scale: Optional[float] = None
    softcap: float = 0.0
    dropout_p: float = 0.0
    alibi_slopes: Optional[Tensor] = None
    return_attn_probs: bool = False
    qv: Optional[Tensor] = None
    sink: Optional[Tensor] = None
    attention_chunk: int = 0

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> Options:
        """Returns the options that are among a function's arguments."""
        return cls(**{name: given[name] for name in cls._fields if name in given})

    def check(self) -> None:
        """Raises ValueError for a number out of its range, TypeError for an option that is no number."""
        for name in ("dropout_p", "softmax_scale", "softcap"):
            number = getattr(self, name)
            if not (hasattr(number, "__float__") or (number is None and name == "softmax_scale")):
                raise argument_error(TypeError, name, f": want a number, got {type(number).__name__}")
        if not 0.0 <= self.dropout_p < 1.0:
            raise invalid("dropout_p", self.dropout_p, "at least 0 and less than 1")
        if self.softmax_scale is not None and not math.isfinite(self.softmax_scale):
            raise invalid("softmax_scale", self.softmax_scale, "a finite number")
        if not (math.isfinite(self.softcap) and self.softcap >= 0.0):
            raise invalid("softcap", self.softcap, "a finite number of at least 0")

    def numbers(self) -> dict[str, Any]:
        """Returns the members of a `FlashCall` that are numbers and follow from these options."""
        left, right = window(self.window_size, self.causal)
        return {
            "scale": self.softmax_scale,
            "left": left,
            "right": right,
            "chunk": self.attention_chunk,
            "softcap": self.softcap,
            "keep_prob": 1.0 - self.dropout_p,
        }


class FlashCall(NamedTuple):
    """All arguments of flash_attn's operators except q, k and v, in the operators' order."""

    qv: Optional[Tensor] = None  # [.., N, Dv]: scores are then q k^T + qv v^T
    slopes: Optional[Tensor] = None
    sink: Optional[Tensor] = None
    dropout_state: Optional[Tensor] = None  # int64 [2]: seed and offset
    cu_q: Optional[Tensor] = None  # if given, q is [total, N, D], otherwise [B, S, N, D]
    cu_k: Optional[Tensor] = None  # in calls with a cache, the boundaries of the new keys
    used_q: Optional[Tensor] = None
    used_k: Optional[Tensor] = None
    max_q: int = 0
    max_k: int = 0
    scale: Optional[float] = None
    left: int = -1
    right: int = -1
    chunk: int = 0  # only for packed sequences
    softcap: float = 0.0
    keep_prob: float = 1.0

    def philox(self, run: int) -> tuple[int | None, int]:
        """Returns the seed and offset of the dropout in a run of sequences."""
        if self.dropout_state is None:
            return None, 0
        seed, offset = self.dropout_state.tolist()
        return seed & UNSIGNED_64, (offset + run) & UNSIGNED_64

    def options(self, layout: str, run: int, offset: int) -> _fa.AttentionOptions:
        """Returns the options of _fa.forward for a run. Row i has the place of key i + offset."""
        seed, philox_offset = self.philox(run)
        given = {
            "layout": layout,
            "mask": mask_of(self.left, self.right),
            "pse_type": NO_BIAS if self.slopes is None else SLOPES,
            "q_start": 0 if self.slopes is None else offset,
            "keep_prob": self.keep_prob,
            "seed": seed,
            "offset": philox_offset,
            "scale": self.scale,
            "softcap": self.softcap,
        }
        return made(_fa.AttentionOptions, given)

    def decode_options(self, mask: Mask, layout: str = "BSND") -> _fa.DecodeAttentionOptions:
        """Returns the options of _fa.decode."""
        given = {"layout": layout, "mask": mask, "scale": self.scale, "softcap": self.softcap}
        return made(_fa.DecodeAttentionOptions, given)

    def capped(self, scores: Tensor) -> Tensor:
        return self.softcap * torch.tanh(scores / self.softcap) if self.softcap > 0 else scores


TENSORS = tensors_of(FlashCall)


def mask_of(left: int, right: int, back: int = 0) -> Mask:
    """Returns the mask of a window, where -1 means no limit on that side. The place of the last row is `back` keys
    before the last key.
    """
    if left == -1 and right == -1:
        return Mask.none()
    if left == -1 and right == back == 0:
        return Mask.causal()
    return Mask.band(_UNLIMITED if left == -1 else left + back, _UNLIMITED if right == -1 else right - back)


class Run(NamedTuple):
    """Consecutive pieces that one call of the extension computes."""

    number: int
    pieces: list[Piece]
    rows: slice  # rows of q
    keys: slice
    cu_q: list[int]
    cu_k: list[int]
    slopes: Optional[Tensor]
    offset: int


def pieces_for(call: FlashCall, rows: int, keys: int) -> list[Piece]:
    """Returns the pieces of a call's sequences. Raises ValueError if lengths are wrong."""
    cu_q, cu_k = boundaries("cu_seqlens_q", call.cu_q, rows), boundaries("cu_seqlens_k", call.cu_k, keys)
    check_longest("max_seqlen_q", call.max_q, cu_q)
    check_longest("max_seqlen_k", call.max_k, cu_k)
    used_q, used_k = lengths_within("seqused_q", call.used_q, cu_q), lengths_within("seqused_k", call.used_k, cu_k)
    return pieces_of(cu_q, cu_k, used_q, used_k, call.chunk)


def runs_for(call: FlashCall, pieces: list[Piece], rows: int, keys: int) -> list[Run]:
    """Divides the pieces into runs. With slopes, the extension takes one `offset` per call, so only neighbours with
    equal offsets form a run. Without slopes, all pieces form one run."""
    runs, slopes = [], call.slopes
    if not pieces:
        pieces, slopes = [Piece(0, 0, 0, 0, 0)], None if slopes is None else slopes.new_zeros(slopes.shape[-1])
    groups = runs_of([0 if slopes is None else piece.offset for piece in pieces])
    for number, (begin, end) in enumerate(groups):
        own = pieces[begin:end]
        q0, k0 = (own[0].q_begin, own[0].k_begin) if number else (0, 0)
        last = end == len(pieces)
        if slopes is not None and slopes.dim() == 2:
            of_run = slopes[[piece.owner for piece in own]]
        else:
            of_run = slopes
        runs.append(
            Run(
                number,
                own,
                slice(q0, rows if last else own[-1].q_end),
                slice(k0, keys if last else own[-1].k_end),
                [piece.q_end - q0 for piece in own],
                [piece.k_end - k0 for piece in own],
                of_run,
                own[0].offset,
            )
        )
    return runs


def compacted(pieces: list[Piece]) -> tuple[list[Piece], Tensor, Tensor]:
    """Returns the pieces moved together without gaps, and the numbers that their rows of q and of k had before."""
    moved, q, k = [], 0, 0
    for piece in pieces:
        rows, keys = piece.q_end - piece.q_begin, piece.k_end - piece.k_begin
        moved.append(Piece(piece.owner, q, q + rows, k, k + keys))
        q, k = q + rows, k + keys
    return moved, rows_of([p[1:3] for p in pieces]), rows_of([p[3:5] for p in pieces])


def engine_inputs(query, key, value, call: FlashCall, slopes: Tensor | None) -> dict[str, Tensor | None]:
    rope = {} if call.qv is None else {"q_rope": call.qv, "k_rope": value}
    return {"q": query, "k": key, "v": value, "pse": slopes, "sink": call.sink, **rope}


def spread(compact: Tensor, rows: Tensor, like: int) -> Tensor:
    """Returns a tensor of `like` rows, in which row rows[i] is row i of `compact`. The other rows are 0."""
    return compact.new_zeros((like, *compact.shape[1:])).index_copy_(0, rows, compact)


def logsumexp(softmax_max: Tensor, softmax_sum: Tensor, empty: float, sink: Tensor | None = None) -> Tensor:
    """Returns the lse, max + ln(sum): [B, N, S] from statistics [B, N, S], or [N, total] from [total, N]. For a row
    without keys, it returns the sink's score, or `empty` if there is no sink.
    """
    absent = (softmax_sum == 0) | (softmax_max == -FLT_MAX)
    packed = softmax_max.dim() == 2
    nothing = empty if sink is None else sink.detach() if packed else sink.detach()[:, None]
    lse = torch.where(absent, nothing, softmax_max + softmax_sum.log())
    return lse.t().contiguous() if packed else lse
