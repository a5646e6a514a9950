"""The arguments of an attention call. The member sparse_mode, a mode of torch_npu or one of the further modes below,
selects the mask. Without a mask in memory, sparse_mode 2 and 3 are the causal rules, aligned top-left and
bottom-right.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from torch import Tensor

from .._fa import Mask

UNSIGNED_64 = (1 << 64) - 1

# The sparse modes that say which keys a row looks at, in calls without a mask in memory.
EVERY_KEY, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = 1, 2, 3

# More values of sparse_mode, which torch_npu does not have. Unlike its modes, they allow sequences with more queries
# than keys. With CAUSAL and BAND, row i has the place of key i + Sk - Sq. With BAND_TOP_LEFT it has the place of key i.
# A band has pre_tokens keys before this place and next_tokens keys after it.
BAND, BAND_TOP_LEFT, CAUSAL = 9, 10, 11

SEQUENCE_AXIS = {"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0, "TND": 0}
BATCH_AXIS = {"SBH": 1}  # the batch is axis 0 in any other layout


class Call(NamedTuple):
    """All arguments of an attention operator except query, key and value, in the operator's order."""

    query_rope: Optional[Tensor] = None
    key_rope: Optional[Tensor] = None
    pse: Optional[Tensor] = None
    dense_mask: Optional[Tensor] = None
    drop_mask: Optional[Tensor] = None
    dropout_state: Optional[Tensor] = None  # int64 [2] with (seed, offset)
    sink: Optional[Tensor] = None
    layout: str = "BNSD"
    heads: int = 0
    scale: Optional[float] = None
    sparse_mode: int = EVERY_KEY
    pre_tokens: int = 0
    next_tokens: int = 0
    prefix: list[int] = []
    cu_q: list[int] = []
    cu_kv: list[int] = []
    pse_type: int = 1
    q_start: int = 0
    kv_start: int = 0
    keep_prob: float = 1.0
    statistics: str = "rows"

    @classmethod
    def of_rule(cls, rule: int, layout: str, scale: float | None, **others: Any) -> Call:
        """Makes a call in which `rule` says which keys a row looks at: EVERY_KEY, CAUSAL_TOP_LEFT or
        CAUSAL_BOTTOM_RIGHT. A dense_mask drops more keys. The operator takes the number of heads from the tensors, and
        adds pse after scaling."""
        pse_type = 1 if others.get("pse") is None else 0
        if rule == CAUSAL_TOP_LEFT and others.get("dense_mask") is not None:
            # With a mask in memory, mode 2 wants the device's compressed mask. Mode 0 with this band keeps the same
            # pairs and takes any mask.
            others |= {"pre_tokens": (1 << 31) - 1, "next_tokens": 0}
            rule = 0
        return cls(layout=layout, scale=scale, sparse_mode=rule, pse_type=pse_type, **others)

    def keywords(self) -> dict[str, Any]:
        """Returns this call as keywords of `fa.flash_attention`."""
        given = self._asdict()
        del given["sparse_mode"], given["pre_tokens"], given["next_tokens"], given["prefix"], given["statistics"]
        given["mask"] = self._mask()
        given["head_num"] = given.pop("heads")
        state = given.pop("dropout_state")
        if state is not None:
            given["seed"], given["offset"] = (number & UNSIGNED_64 for number in state.tolist())
        return given

    def _mask(self) -> Mask:
        band = self.pre_tokens, self.next_tokens
        if self.sparse_mode == CAUSAL:
            return Mask.causal()
        if self.sparse_mode == BAND:
            return Mask.band(*band)
        if self.sparse_mode == BAND_TOP_LEFT:
            return Mask.band_top_left(*band)
        return Mask.from_sparse_mode(self.sparse_mode, *band, self.prefix, self.dense_mask is not None)
