"""Counts the calls of vLLM's attention layers in this process."""

from __future__ import annotations

from collections import Counter

_counts: Counter[str] = Counter()


def calls() -> dict[str, int]:
    """Returns how many calls of attention layers this process has made, by kind of call: "decode" (only requests of up
    to 16 tokens), "prefill" (any longer request), "encoder", "mla_decode" and "mla_prefill" are computed by `fa`;
    "handed_back: REASON" is computed by vLLM's own class.
    """
    return dict(_counts)


def count(name: str) -> None:
    _counts[name] += 1
