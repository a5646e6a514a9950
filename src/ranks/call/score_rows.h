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

/// Forms of pse, as bits: the rows of the rank's own queries, one row for all queries, or the compressed form of 1024
/// rows. A pse of 1 or 1024 rows allows kOwnRows too if the rank holds that number of query rows. The call uses the
/// first form that the sizes on all ranks allow.
inline constexpr uint32_t kOwnRows = 1, kSharedRow = 2, kCompressed = 4, kAnyForm = kOwnRows | kSharedRow | kCompressed;
/// Returns the first of the allowed forms, which is the form of the call.
[[nodiscard]] constexpr uint32_t FormOf(uint32_t forms) { return forms & -forms; }

/// What the sizes of pse and of the dense mask tell about a rank.
struct ScoreRows {
  uint32_t pse_forms = kAnyForm;                    ///< allowed forms of pse; kAnyForm if there is no bias with rows
  bool own_mask_rows = false;                       ///< the dense mask has the rows of this rank's queries
  TensorView pse = {}, dpse = {}, dense_mask = {};  ///< sizes and strides on this rank, without data

  /// Returns whether pse or the mask has only the rows of this rank's queries. No other rank can compute these rows,
  /// because the tensors are not sent.
  [[nodiscard]] bool rows_stay() const { return own_mask_rows || pse_forms == kOwnRows; }
};

/// The arguments whose sizes tell which rows of pse and of the dense mask a rank has. The prefix sums have not been
/// checked yet.
struct ScoreArguments {
  const TensorView &q, &pse, &dpse, &dense_mask;
  std::span<const int64_t> cu_q, cu_kv;
  const AttentionOptions& options;
};

/// Checks the numbers of rows of the tensors, and gives the tensors the sizes that they have in the whole call.
/// @param dpse  null if the call has no gradients
[[nodiscard]] Result<ScoreRows> WidenScores(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse,
                                            MutableTensorView* dpse, TensorView* dense_mask);

/// Returns the strategy of a call, which is kSequence if scores.rows_stay().
/// @return the strategy, or kInvalidArgument if scores.rows_stay() and the caller asks for another strategy
[[nodiscard]] Result<SequenceShards::Strategy> StrategyWith(const ScoreRows& scores, SequenceShards::Strategy wanted);

/// Returns the layout of pse, or of its gradient, on a rank.
/// @param tensor  ScoreRows::pse or ScoreRows::dpse
/// @param pse  the layout of pse, as bound for the whole call; @param form  the result of FormOf
[[nodiscard]] PseRows PseOfRank(const TensorView& tensor, const PseRows& pse, uint32_t form,
                                const tiling::AttentionProblem& problem, const WholeTensors& shards);

/// Returns where the rows of each part lie in head `first_head` of a tensor. The tensor has the rows of the rank's
/// queries, or one row for all queries.
/// @param rows  where each sequence of the call lies; @param parts  all parts that the rank computes, ordered by
/// sequence
/// @param packed  whether the tensor has one sequence after the other, with rows in the order in which the rank holds
/// them
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesOf(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                                          int64_t first_head, bool packed);
/// Returns where the sequence of each part begins in head `first_head` of a tensor.
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesOfSequences(const PairRows& rows,
                                                                   std::span<const tiling::RowPart> parts,
                                                                   int64_t first_head);
/// Works like PlacesOf, for a tensor that has all rows of each sequence.
[[nodiscard]] std::vector<PairRows::PerSequence> PlacesInWhole(const PairRows& rows,
                                                               std::span<const tiling::RowPart> parts,
                                                               int64_t first_head);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_SCORE_ROWS_H_
