#ifndef FA_RANKS_RUN_GRAD_CHAIN_H_
#define FA_RANKS_RUN_GRAD_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "fa/context.h"
#include "fa/transport.h"
#include "layout/rows_view.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "ops/dense/backward_tile.h"
#include "ranks/plan/chain_graph.h"
#include "ranks/plan/sum_schedule.h"
#include "ranks/rows/unit_messages.h"
#include "ranks/run/chain_messages.h"
#include "tiling/backward/backward_plan.h"
#include "tiling/plan_facts.h"

namespace fa::ops {

/// What one rank does in a unit of the backward, if rows stay on their rank. The rank's blocks of the schedule form one
/// graph of tiles. The packed rows and their dQ stay in one slot per kv head from the first block to the last. Sums of
/// dK and dV arrive from the rank that holds the preceding rows, and go to the rank that holds the following rows.
/// Meanwhile tiles of other blocks run.
class GradChain {
 public:
  /// Makes the graph of tiles.
  /// @param part  the backward of this rank's rows, with each of `parts` as a sequence
  /// @param whole  the sequences of the call
  GradChain(const Context& context, BoundAttentionGrad part, const std::vector<tiling::RowPart>& parts,
            const std::vector<tiling::Sequence>& whole, int64_t first_sequence,
            std::shared_ptr<const tiling::SumSchedule> schedule, int rank);

  [[nodiscard]] const BoundAttentionGrad& bound() const { return bound_; }
  [[nodiscard]] const BackwardBuffers& buffers() const { return buffers_; }
  [[nodiscard]] const tiling::WorkspacePlan& workspace() const { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const;

  /// Returns the size in bytes of all sums of the unit. The memory of the sums must not be reused before FinishSends.
  [[nodiscard]] size_t SumBytes() const;
  /// Returns the number of send requests, one for each chunk whose sums go from rank to rank.
  [[nodiscard]] size_t RequestCount() const { return static_cast<size_t>(schedule_->travelling_chunks); }
  /// Returns the most messages that are under way while a unit runs. Sums of the previous unit that are still being
  /// sent count too.
  [[nodiscard]] MessagesUnderWay UnderWay() const;

  /// Memory that must outlive the unit's run, because messages may still read the sums after the run.
  struct Travelling {
    float* sums = nullptr;
    Transport::Request* requests = nullptr;
  };
  /// The addresses of finished results. dK and dV have the type of the caller's tensors and the positions of `rows`.
  /// The sums for a bias are [query heads][rows.rows].
  struct Finished {
    layout::MutableRowsView dk, dk_rope, dv;
    float* bias = nullptr;
    const StagedRows& rows;
  };
  /// Runs the graph. `progress` polls the other messages. `computed` gets the first error in computing tiles; messages
  /// go on after such an error.
  [[nodiscard]] Status Run(Context& context, Transport& transport, const GradRows& rows, const Finished& finished,
                           const Travelling& travelling, UnitProgress& progress, std::byte* workspace,
                           Status& computed) const;
  [[nodiscard]] Status FinishSends(Transport& transport, const Travelling& travelling) const;
  void ForgetSends(const Travelling& travelling) const;

 private:
  [[nodiscard]] tiling::BackwardPlan MakeLayout(const tiling::Machine& machine) const;
  [[nodiscard]] tiling::ChainGraph MakeGraph(const std::vector<tiling::RowPart>& parts,
                                             const std::vector<tiling::Sequence>& whole, int64_t first_sequence,
                                             int rank) const;
  /// Adds the FLOPs of the rank's tiles to `plan`. Visited pairs are counted for whole strips.
  void AddFlops(tiling::BackwardPlan& plan) const;
  /// Returns the number of columns per kv head that run at one time, so that every worker has a column of some head.
  [[nodiscard]] int64_t ColumnsAtOnce(const tiling::Machine& machine) const;
  [[nodiscard]] KeySums SumsOf(const tiling::ChainBlock& block, float* sums, const StagedRows& finished,
                               std::byte* workspace) const;
  [[nodiscard]] ChainMessages::Sums AllSums(float* sums) const { return {sums, floats_per_key(), schedule_->chunks}; }
  /// Returns whether the gradient of a bias with one row for all queries goes from rank to rank.
  [[nodiscard]] bool has_key_bias() const { return bound_.has_dpse && bound_.dpse.shared_rows; }
  [[nodiscard]] int64_t floats_per_key() const {
    return bound_.forward.problem.heads_kv * (columns_ + bound_.forward.problem.dv + int64_t{has_key_bias()});
  }
  static void OpenBias(const tiling::BackwardItem& item, const KeySums& sums);
  static void FinishBias(const tiling::BackwardItem& item, const KeySums& sums, const Finished& finished);

  BoundAttentionGrad bound_;
  std::shared_ptr<const tiling::SumSchedule> schedule_;
  const core::kernels::KernelTable& table_;
  tiling::Machine machine_;
  int64_t columns_ = 0;              ///< number of columns of dK: d + d_rope
  std::vector<int64_t> key_offset_;  ///< for each sequence of the unit: where its keys begin on the key axis
  tiling::BackwardPlan layout_;      ///< a plan that has slots but no tiles
  tiling::WorkspacePlan workspace_;
  BackwardBuffers buffers_;
  tiling::ChainGraph graph_;
  int64_t copied_keys_ = 0;  ///< number of keys of the largest chunk, padded by PairedRows
  size_t run_state_ = 0, states_ = 0, sums_ = 0, k_ = 0, v_ = 0;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_GRAD_CHAIN_H_
