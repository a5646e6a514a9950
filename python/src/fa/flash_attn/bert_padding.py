"""flash_attn.bert_padding: turns padded batches into packed sequences, and back. All functions have gradients."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = [
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Returns input[indices], the rows of `input` [rows, ...] along the first dimension."""
    return input[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Returns [first_axis_dim, ...] with `values` in the rows `indices`, and 0 elsewhere."""
    return values.new_zeros((first_axis_dim, *values.shape[1:])).index_put((indices,), values)


def index_first_axis_residual(input: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Returns input[indices] of `input` [rows, ...], and `input` itself for a residual connection."""
    return input[indices], input.detach() if not input.requires_grad else input.view_as(input)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Returns the rows of a padded batch that are not padding.

    Args:
        hidden_states: [B, S, ...].
        attention_mask: [B, S], bool or integers, where 1 marks a token.
        unused_mask: [B, S], bool or integers, where 1 marks a row that is returned although it is not in use.

    Returns:
        The rows [total, ...]; their indices in the batch flattened to [B * S, ...], int64 [total]; cu_seqlens, int32 [B
        + 1]; the longest sequence's length; how many rows of each sequence are in use, int32 [B].
    """
    _check_mask("attention_mask", attention_mask, hidden_states)
    if unused_mask is None:
        kept = attention_mask
    else:
        _check_mask("unused_mask", unused_mask, hidden_states)
        kept = attention_mask + unused_mask
    lengths = kept.sum(-1, dtype=torch.int32)
    used = attention_mask.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(kept.flatten(), as_tuple=False).flatten()
    return *_packed(hidden_states, indices, lengths), used


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Returns the rows of a padded batch whose elements hold several sequences one after another.

    Args:
        hidden_states: [B, S, ...].
        attention_mask_in_length: [B, S], integers: the lengths of the element's sequences, then zeros.

    Returns:
        The results of unpad_input without the last one.
    """
    _check_mask("attention_mask_in_length", attention_mask_in_length, hidden_states)
    rows = attention_mask_in_length.shape[-1]
    kept = torch.arange(rows, device=attention_mask_in_length.device) < attention_mask_in_length.sum(-1)[:, None]
    indices = torch.nonzero(kept.flatten(), as_tuple=False).flatten()
    lengths = attention_mask_in_length.flatten()
    return _packed(hidden_states, indices, lengths[lengths > 0].to(torch.int32))


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Returns packed rows [total, ...] as [batch, seqlen, ...], with zeros for padding: the reverse of unpad_input."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


def _packed(hidden_states: Tensor, indices: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    longest = int(lengths.max()) if lengths.numel() else 0
    cu_seqlens = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, cu_seqlens, longest


def _check_mask(name: str, mask: Tensor, hidden_states: Tensor) -> None:
    if mask.shape != hidden_states.shape[:2]:
        want = f"{list(hidden_states.shape[:2])} (hidden_states.shape[:2])"
        raise ValueError(f"invalid argument: {name}.shape={list(mask.shape)}, want {want}")
