"""The arguments of an attention call in the device's vocabulary of masks (`sparse_mode`), which has all that `fa.torch`
and `fa.torch_npu` need. sparse_mode 2 and 3 without a mask are the causal rules, anchored top-left and bottom-right.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from torch import Tensor

from .._fa import Mask

UNSIGNED_64 = (1 << 64) - 1

# Rules for the keys that a row looks at, as sparse_mode values of a call without a mask.
EVERY_KEY, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = 1, 2, 3

SEQUENCE_AXIS = {"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0, "TND": 0}
BATCH_AXIS = {"SBH": 1}  # 0 in the other layouts


class Call(NamedTuple):
    """The arguments of an attention call except query, key and value, in the order of the operators' arguments."""

    query_rope: Optional[Tensor] = None
    key_rope: Optional[Tensor] = None
    pse: Optional[Tensor] = None
    dense_mask: Optional[Tensor] = None
    drop_mask: Optional[Tensor] = None
    dropout_state: Optional[Tensor] = None  # int64 [2]: seed, offset
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
        """Makes the call of a rule, which is one of the constants above. A mask in memory, if given, also applies. The
        tensors give the number of heads, and pse is added to scaled scores."""
        pse_type = 1 if others.get("pse") is None else 0
        if rule == CAUSAL_TOP_LEFT and others.get("dense_mask") is not None:
            # With a mask in memory, mode 2 wants the device's compressed mask. Mode 0 takes a band in addition to the
            # mask.
            others |= {"pre_tokens": (1 << 31) - 1, "next_tokens": 0}
            rule = 0
        return cls(layout=layout, scale=scale, sparse_mode=rule, pse_type=pse_type, **others)

    def keywords(self) -> dict[str, Any]:
        """Returns the keywords of `fa.flash_attention` for this call."""
        given = self._asdict()
        del given["sparse_mode"], given["pre_tokens"], given["next_tokens"], given["prefix"], given["statistics"]
        rule = self.sparse_mode, self.pre_tokens, self.next_tokens, self.prefix
        given["mask"] = Mask.from_sparse_mode(*rule, self.dense_mask is not None)
        given["head_num"] = given.pop("heads")
        state = given.pop("dropout_state")
        if state is not None:
            given["seed"], given["offset"] = (number & UNSIGNED_64 for number in state.tolist())
        return given
