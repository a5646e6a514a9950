#ifndef FA_RANKS_RUN_ROWS_OF_SUMS_H_
#define FA_RANKS_RUN_ROWS_OF_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "fa/transport.h"
#include "ranks/call/bind_grad_ranks.h"
#include "ranks/run/grad_chain.h"
#include "ranks/run/parameter_sums.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The terms that each of a rank's rows adds to dsink and dslopes, if rows stay on their rank. The terms are kept until
/// all units have run. After that, the unfinished sums pass from rank to rank, in the order of the batch elements and
/// of their rows.
class RowsOfSums {
 public:
  RowsOfSums() = default;
  RowsOfSums(const BoundGradRanks& bound, const tiling::RankPlan& plan, const ParameterSums& sums,
             tiling::WorkspacePlan& workspace);

  /// Keeps the terms that a unit's tiles have left in the unit's workspace.
  void Keep(const GradChain& chain, std::byte* chain_workspace, int64_t first_sequence, tiling::Interval heads_kv,
            std::byte* workspace) const;
  /// Writes NaN over terms that this rank has not computed.
  void Spoil(std::byte* workspace) const;
  /// Writes dsink and dslopes on every rank. All ranks must call this function.
  [[nodiscard]] Status AddAndShare(Transport& transport, const AttentionGradArgs& args, const ParameterSums& sums,
                                   std::byte* workspace) const;

 private:
  /// Rows of a sequence that one rank holds, which it adds in one step.
  struct Step {
    int rank = 0;
    int64_t sequence = 0;
    tiling::PlacedRows rows;
    int64_t kept = 0;   ///< if this rank holds the rows: index of the first row's term among the terms of a head
    bool ends = false;  ///< whether the rows end the sequence
  };

  void AddRows(const Step& step, const AttentionGradArgs& args, const ParameterSums& sums, std::byte* workspace) const;
  [[nodiscard]] float* Kept(size_t at, std::byte* workspace) const { return reinterpret_cast<float*>(workspace + at); }

  const BoundGradRanks* bound_ = nullptr;
  std::vector<Step> steps_;
  std::vector<int> last_rank_;  ///< for each sequence: the rank that holds the last rows; 0 without rows
  int64_t own_rows_ = 0;        ///< number of this rank's rows in all sequences
  bool has_sink_ = false, has_slopes_ = false;
  size_t delta_ = 0, slope_ = 0;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_ROWS_OF_SUMS_H_
