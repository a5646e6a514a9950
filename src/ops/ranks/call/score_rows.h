#ifndef FA_OPS_RANKS_CALL_SCORE_ROWS_H_
#define FA_OPS_RANKS_CALL_SCORE_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/options.h"
#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/bind/bind_attention.h"
#include "ops/ranks/call/whole_call.h"
#include "tiling/ranks/row_shards.h"
#include "tiling/ranks/sequence_part.h"

namespace fa::ops {

// pse and the dense mask of a rank: the rows of its own queries against all keys, or what holds for all queries, whole.

/// Ways to read pse, as bits. A rank's sizes may allow two: one row is a rank's own row, or that of all queries; 1024
/// rows are its own, or the form of 1024 rows. What all ranks' sizes allow counts, own rows first.
inline constexpr uint32_t kOwnRows = 1, kSharedRow = 2, kCompressed = 4, kAnyForm = kOwnRows | kSharedRow | kCompressed;
/// The one that counts.
[[nodiscard]] constexpr uint32_t FormOf(uint32_t forms) { return forms & -forms; }

/// What a rank's arguments have of scores.
struct ScoreRows {
  uint32_t pse_forms = kAnyForm;                    ///< any: there is no bias with rows
  bool own_mask_rows = false;                       ///< the dense mask has the rows of this rank's queries
  TensorView pse = {}, dpse = {}, dense_mask = {};  ///< sizes and strides on this rank; no data

  /// Whether some tensor stays with its rows, so that no other rank can compute them.
  [[nodiscard]] bool rows_stay() const { return own_mask_rows || pse_forms == kOwnRows; }
};

/// The arguments that say what a rank passes of pse and the dense mask. Prefix sums need not be right yet.
struct ScoreArguments {
  const TensorView &q, &pse, &dpse, &dense_mask;
  std::span<const int64_t> cu_q, cu_kv;
  const AttentionOptions& options;
};

/// Checks the rows of the tensors, and gives them the sizes that they have in the whole call.
/// @param dpse  null: the call has no gradients
[[nodiscard]] Result<ScoreRows> WidenScores(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse,
                                            MutableTensorView* dpse, TensorView* dense_mask);

/// The strategy of a call, given which tensors must stay with their rows.
/// @return kInvalidArgument: a strategy that moves rows is forced
[[nodiscard]] Result<SequenceShards::Strategy> StrategyWith(const ScoreRows& scores, SequenceShards::Strategy wanted);

/// Where pse, or its gradient, lies on a rank.
/// @param tensor  ScoreRows::pse, ScoreRows::dpse; @param pse  as bound for the whole call; @param form  FormOf
[[nodiscard]] PseRows PseOfRank(const TensorView& tensor, const PseRows& pse, uint32_t form,
                                const tiling::AttentionProblem& problem, const WholeTensors& shards);

/// Where each part finds its rows, from the head `first_head` on, in a tensor that has the rows of the rank's queries,
/// or one row for all of them.
/// @param rows  per sequence of the call; @param parts  all that the rank computes of their sequences, which ascend
/// @param packed  the tensor has the rows of sequence after sequence, each in the order in which the rank holds them
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesOf(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                                          int64_t first_head, bool packed);
/// Where the sequence of each part begins, from the head `first_head` on.
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesOfSequences(const PairRows& rows,
                                                                   std::span<const tiling::RowPart> parts,
                                                                   int64_t first_head);
/// PlacesOf in a tensor that has all rows of a sequence.
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesInWhole(const PairRows& rows,
                                                               std::span<const tiling::RowPart> parts,
                                                               int64_t first_head);

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_CALL_SCORE_ROWS_H_
