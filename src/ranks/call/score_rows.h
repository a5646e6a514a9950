#ifndef FA_RANKS_CALL_SCORE_ROWS_H_
#define FA_RANKS_CALL_SCORE_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/options.h"
#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/bind/bind_attention.h"
#include "ranks/call/whole_call.h"
#include "ranks/plan/row_shards.h"
#include "ranks/plan/sequence_part.h"

namespace fa::ops {

// pse and the dense mask of a rank have the rows of its own queries against all keys, or are whole if they hold for all
// queries.

/// Forms of pse, as bits. The sizes of a rank may allow two forms. One row is the rank's own row or the row of all
/// queries, and 1024 rows are its own or the form of 1024 rows. Only forms that the sizes of all ranks allow count. Own
/// rows come first among them.
inline constexpr uint32_t kOwnRows = 1, kSharedRow = 2, kCompressed = 4, kAnyForm = kOwnRows | kSharedRow | kCompressed;
/// The first of the allowed forms, which is the form of the call.
[[nodiscard]] constexpr uint32_t FormOf(uint32_t forms) { return forms & -forms; }

/// The facts about scores that follow from the arguments of a rank.
struct ScoreRows {
  uint32_t pse_forms = kAnyForm;                    ///< kAnyForm: there is no bias with rows
  bool own_mask_rows = false;                       ///< the dense mask has the rows of this rank's queries
  TensorView pse = {}, dpse = {}, dense_mask = {};  ///< sizes and strides on this rank, without data

  /// Whether some tensor stays with its rows, so that no other rank can compute these rows.
  [[nodiscard]] bool rows_stay() const { return own_mask_rows || pse_forms == kOwnRows; }
};

/// The arguments that decide which rows of pse and the dense mask a rank passes. Their prefix sums may still be wrong.
struct ScoreArguments {
  const TensorView &q, &pse, &dpse, &dense_mask;
  std::span<const int64_t> cu_q, cu_kv;
  const AttentionOptions& options;
};

/// Checks the rows of the tensors, and gives the tensors the sizes that they have in the whole call.
/// @param dpse  null if the call has no gradients
[[nodiscard]] Result<ScoreRows> WidenScores(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse,
                                            MutableTensorView* dpse, TensorView* dense_mask);

/// The strategy of a call, given which tensors must stay with their rows.
/// @return kInvalidArgument if the caller forces a strategy that moves rows
[[nodiscard]] Result<SequenceShards::Strategy> StrategyWith(const ScoreRows& scores, SequenceShards::Strategy wanted);

/// The place of pse, or of its gradient, on a rank.
/// @param tensor  ScoreRows::pse or ScoreRows::dpse; @param pse  as bound for the whole call; @param form  result of
/// FormOf
[[nodiscard]] PseRows PseOfRank(const TensorView& tensor, const PseRows& pse, uint32_t form,
                                const tiling::AttentionProblem& problem, const WholeTensors& shards);

/// The places where parts find their rows of head `first_head`. The tensor has the rows of the rank's queries, or one
/// row for all of them.
/// @param rows  per sequence of the call; @param parts  all parts that the rank computes, ordered by sequence
/// @param packed  the tensor has the rows of sequence after sequence, each in the order in which the rank holds them
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesOf(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                                          int64_t first_head, bool packed);
/// The places where the parts' sequences begin, in head `first_head`.
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesOfSequences(const PairRows& rows,
                                                                   std::span<const tiling::RowPart> parts,
                                                                   int64_t first_head);
/// Does what PlacesOf does, in a tensor that has all rows of a sequence.
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesInWhole(const PairRows& rows,
                                                               std::span<const tiling::RowPart> parts,
                                                               int64_t first_head);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_SCORE_ROWS_H_
