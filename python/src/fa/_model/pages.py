"""Continuous batching of transformers: a batch of requests whose keys lie in the pages of a PagedAttentionCache.

For layers of full attention, the new keys are written into the pages, and decode then reads all keys in place. The
indices with which transformers would gather the keys say where the pages are. For layers with a window, transformers
gathers the keys, at most a window per request. For prompts without earlier tokens, the keys are the layer's own. In
these two cases, requests are computed as packed sequences. So are all requests of transformers 5.16 to 5.18, which
gather the keys of every layer.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager

from .. import _fa
from .._errors import own_names
from .._fa import Mask
from .._torch.engine import compute
from .ops import NAMES, ModelCall, model_attention, rows_of_sequences

_FULL_ATTENTION = "full_attention"  # transformers' name of a kind of layers
_GATHERS = Version(transformers.__version__) < Version("5.19")  # whether layers have no pages of their own


class _Requests(NamedTuple):
    """The requests in a batch, without those that have no tokens. Their rows follow each other among the batch's
    tokens.
    """

    ends: list[int]
    """The end of each request's rows."""
    lengths: list[int]
    """The number of keys of each request."""
    block_table: Tensor
    """int32 [requests, pages]."""


def _requests(read_index: Tensor, ends_q: list[int], ends_k: list[int], page: int) -> _Requests:
    rows, keys = zip(ends_q, ends_q[1:], strict=False), zip(ends_k, ends_k[1:], strict=False)
    spans = [(end, *own) for (begin, end), own in zip(rows, keys, strict=True) if begin < end]
    pages = [(read_index[first:last:page] // page).to(torch.int32) for _, first, last in spans]
    table = torch.nn.utils.rnn.pad_sequence(pages, batch_first=True)
    return _Requests([span[0] for span in spans], [last - first for _, first, last in spans], table)


def _requests_of_batch(cache: PagedAttentionCache, allocator: Any, keywords: dict[str, Any]) -> _Requests:
    """Returns the requests of a batch. They are stored in the cache, because layers of one kind share the lists that
    describe the batch."""
    indices = keywords["read_index"]
    known = getattr(cache, "_fa_requests", None)
    if known is None or known[0] is not indices:
        known = cache._fa_requests = (indices, {})
    if allocator.index not in known[1]:
        ends = keywords["cu_seq_lens_q"].tolist(), keywords["cu_seq_lens_k"][allocator.layer_type].tolist()
        known[1][allocator.index] = _requests(indices[allocator.index], *ends, allocator.tokens_per_page)
    return known[1][allocator.index]


def _decode_pages(query: Tensor, k_pages: Tensor, v_pages: Tensor, requests: _Requests, call: ModelCall) -> Tensor:
    """Computes attention [1, S, N, Dv] of query [1, N, S, D] over pages [pages, page size, Nkv, D]."""
    tokens = query[0].transpose(0, 1)
    out = query.new_empty((*tokens.shape[:2], v_pages.shape[3]))
    inputs = {"q": tokens, "k": k_pages, "v": v_pages, "block_table": requests.block_table, "sink": call.sink}
    options = call.decode_options("TND", Mask.causal())
    with own_names(NAMES):
        compute(_fa.decode, inputs, {"out": out}, options, requests.ends, requests.lengths)
    return out[None]


def _attend_gathered(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: Any,
    call: ModelCall,
    keywords: dict[str, Any],
) -> Tensor:
    """Computes what attend_pages returns, with a cache of transformers 5.16 to 5.18."""
    if hasattr(cache, "layer_to_allocator"):  # of transformers 5.18
        window = getattr(cache.layer_to_allocator[layer], "sliding_window", None)
    else:
        window = cache.sliding_windows[layer]
    full = window in (None, 1)  # 1 stands for no window
    gathered = cache.update(key, value, layer, keywords["read_index"], keywords["write_index"])
    key, value = (rows.transpose(0, 1)[None] for rows in gathered)
    ends_k = keywords["cu_seq_lens_k"]
    if isinstance(ends_k, dict):
        ends_k = ends_k[_FULL_ATTENTION if full else "sliding_attention"]
    rows = rows_of_sequences(keywords["cu_seq_lens_q"], ends_k, query.shape[2], True, None if full else window)
    return model_attention(query, key, value, call._replace(rows=rows))


@torch.compiler.disable
def attend_pages(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: PagedAttentionCache,
    call: ModelCall,
    keywords: dict[str, Any],
) -> Tensor:
    """Writes the new keys and values [1, Nkv, S, D] of all requests into the cache, and computes the attention [1, S,
    N, Dv] of their tokens.

    Args:
        call: a ModelCall with scale, softcap and sink.
        keywords: read_index, write_index, cu_seq_lens_q and cu_seq_lens_k, by which transformers describes the batch.
    """
    if _GATHERS:
        return _attend_gathered(layer, query, key, value, cache, call, keywords)
    allocator = cache.layer_to_allocator[layer]
    if allocator.layer_type == _FULL_ATTENTION and keywords["read_index"][allocator.index].numel() > 0:
        k_pages, v_pages = allocator.get_cache_for_block_table(layer)
        write_index = keywords["write_index"][allocator.index]
        for pages, new in ((k_pages, key), (v_pages, value)):
            pages.flatten(0, 1).index_copy_(0, write_index, new[0].transpose(0, 1))
        return _decode_pages(query, k_pages, v_pages, _requests_of_batch(cache, allocator, keywords), call)
    key, value = cache.update(key, value, layer, keywords)
    ends_q, ends_k = keywords["cu_seq_lens_q"], keywords["cu_seq_lens_k"]
    window = getattr(allocator, "sliding_window", None)
    rows = rows_of_sequences(ends_q, ends_k, query.shape[2], True, window)
    return model_attention(query, key, value, call._replace(rows=rows))


def accept(name: str) -> None:
    """Makes generate_batch and similar methods accept models with the attention `name`. As with flash attention, these
    methods then make no masks."""
    switch = ContinuousBatchingManager.switch_to_cb_friendly_attn

    @functools.wraps(switch)
    def keep(self, model, *arguments, **keywords):
        if model.config._attn_implementation != name:
            switch(self, model, *arguments, **keywords)

    ContinuousBatchingManager.switch_to_cb_friendly_attn = keep
