#ifndef FA_RANKS_RUN_PARAMETER_SUMS_H_
#define FA_RANKS_RUN_PARAMETER_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "fa/flash_attention_grad.h"
#include "fa/status.h"
#include "fa/transport.h"
#include "ops/dense/backward_program.h"
#include "ranks/call/bind_grad_ranks.h"
#include "ranks/plan/rank_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Sums dsink and dslopes of a call over ranks. As in one process, terms are added in double, one by one, over rows and
/// then over the batch. The rank that adds last stores the result. Then every rank sends its results to all others.
class ParameterSums {
 public:
  ParameterSums(const BoundGradRanks& bound, tiling::WorkspacePlan& workspace);

  /// The unfinished sums of a head.
  struct Chain {
    double sink = 0, slopes = 0;  ///< sums over the batch
    double slope = 0;             ///< the sum over the sequence that is being added
  };

  static_assert(sizeof(Chain) == tiling::kParameterSumBytes);

  void Clear(std::byte* workspace) const;
  /// Writes NaN over results that this rank has not computed.
  void Spoil(std::byte* workspace) const;
  [[nodiscard]] Chain* Chains(std::byte* workspace) const { return reinterpret_cast<Chain*>(workspace + chains_); }
  [[nodiscard]] size_t chain_bytes() const { return sizeof(Chain) * static_cast<size_t>(heads_); }

  /// The input of Add, which adds rows of a sequence, one by one in their order, to the sums of a head.
  /// @param sequence  the rows to add, as a sequence; @param b, head  batch element and head in `rows`
  struct Rows {
    const GradRows& rows;
    const tiling::Sequence& sequence;
    int64_t b = 0, head = 0;
    float sink = 0;
    /// One value per row for dsink, and one for dslopes. Null means that the gradient is not wanted.
    const float *delta = nullptr, *slope_rows = nullptr;
  };
  static void Add(const Rows& rows, Chain& chain);
  /// Adds chain.slope, the sum over sequence `b`, to chain.slopes, and clears chain.slope. If slopes differ per batch
  /// element, also stores the sum as a result.
  void EndSequence(int64_t b, int64_t head, Chain& chain, std::byte* workspace) const;

  /// Adds the terms of the whole sequences that a program has computed. The program's first sequence is
  /// `first_sequence` of the call, and its first head is `first_head`.
  void AddProgram(const BackwardProgram& program, const GradRows& rows, std::byte* program_workspace,
                  int64_t first_sequence, int64_t first_head, std::byte* workspace) const;

  /// Writes dsink and dslopes on every rank. If has_sums(), all ranks must call this function.
  /// @param owner owner(head): the rank that added the last row of the head; @param owner_of owner_of(b, head): the
  ///               rank whose chain ends sequence b
  template <typename Owner, typename OwnerOf>
  [[nodiscard]] Status Share(Transport& transport, const AttentionGradArgs& args, std::byte* workspace,
                             const Owner& owner, const OwnerOf& owner_of) const {
    PutChains(workspace);
    FA_RETURN_IF_ERROR(Gather(transport, workspace));
    for (int64_t head = 0; head < heads_; ++head) {
      if (has_sink_) static_cast<float*>(args.dsink.data)[head] = Result(workspace, owner(head), 0, head);
      if (!has_slopes_) continue;
      for (int64_t b = 0; b + 1 < result_sets_; ++b) {
        static_cast<float*>(args.dslopes.data)[b * slope_stride_ + head] =
            Result(workspace, slopes_shared_ ? owner(head) : owner_of(b, head), 1 + b, head);
      }
    }
    return Status::Ok();
  }
  [[nodiscard]] bool has_sink() const { return has_sink_; }
  [[nodiscard]] bool has_slopes() const { return has_slopes_; }
  [[nodiscard]] bool has_sums() const { return has_sink_ || has_slopes_; }

 private:
  void PutChains(std::byte* workspace) const;
  [[nodiscard]] Status Gather(Transport& transport, std::byte* workspace) const;
  [[nodiscard]] size_t ResultFloats() const { return static_cast<size_t>(result_sets_ * heads_); }
  [[nodiscard]] float* Own(std::byte* workspace) const { return reinterpret_cast<float*>(workspace + own_); }
  /// Returns a result that `rank` has stored. Set 0 is dsink, and set 1 + b is dslopes of batch element b.
  [[nodiscard]] float Result(std::byte* workspace, int rank, int64_t set, int64_t head) const {
    const auto* all = reinterpret_cast<const float*>(workspace + all_);
    return all[static_cast<size_t>(rank) * ResultFloats() + static_cast<size_t>(set * heads_ + head)];
  }

  bool has_sink_, has_slopes_, slopes_shared_;
  int64_t heads_, result_sets_, slope_stride_;
  size_t chains_ = 0, own_ = 0, all_ = 0;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_PARAMETER_SUMS_H_
