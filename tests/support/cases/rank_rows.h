#ifndef FA_TESTS_SUPPORT_RANK_ROWS_H_
#define FA_TESTS_SUPPORT_RANK_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "fa/context.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/plan.h"
#include "fa/sequence_shards.h"
#include "fa/transport.h"
#include "support/cases/forward_case.h"

namespace fa::test {

/// The levels that calls over ranks are tested on: all of IsaLevels, but under the sanitizers, which watch accesses and
/// not values, the two that move rows in different ways, the highest level without tiles and the emulated tile unit:
/// the first sums one row of f32 and f16 at once and two rows of bf16, the second 32 rows. The kernels of every level
/// run under AddressSanitizer in the tests of one process, under ThreadSanitizer in operator_executor_test.
[[nodiscard]] std::vector<Isa> RankLevels();

/// The rows that a rank holds, one by one, by the definition of the cut.
[[nodiscard]] std::vector<int64_t> RowsOfRank(const SequenceShards& shards, int64_t rows, int rank, int ranks);

/// A rank's own rows of tensors of the whole call, in memory of their own, dense. What has no elements has no memory.
class RankTensors {
 public:
  RankTensors(std::vector<int64_t> q_rows, std::vector<int64_t> k_rows)
      : q_rows_(std::move(q_rows)), k_rows_(std::move(k_rows)) {}

  /// The rows of `whole` along `axis`; null data stays so.
  TensorView Part(const TensorView& whole, int axis, bool queries);
  /// The elements of `whole` at these indices of `axis`.
  TensorView Part(const TensorView& whole, int axis, std::vector<int64_t> indices);
  MutableTensorView Part(const MutableTensorView& whole, int axis, std::vector<int64_t> indices);
  /// The same for an output; Return copies its rows back to `whole`.
  MutableTensorView Part(const MutableTensorView& whole, int axis, bool queries);
  /// Writes the outputs' rows into the whole tensors. Ranks write different bytes.
  void Return() const;

  [[nodiscard]] const std::vector<int64_t>& q_rows() const { return q_rows_; }

 private:
  struct Own {
    MutableTensorView whole;
    MutableTensorView part;
    int axis;
    std::vector<int64_t> indices;  ///< of the axis
    std::vector<std::byte> bytes;
  };
  Own& Make(const MutableTensorView& whole, int axis, std::vector<int64_t> indices);
  void Copy(const Own& own, bool back) const;

  std::vector<int64_t> q_rows_, k_rows_;
  std::list<Own> owned_;
  std::vector<const Own*> outputs_;
};

/// Whether dense tensors, such as parts of two outputs, have the same shape and bytes.
[[nodiscard]] bool SameBytes(const TensorView& a, const TensorView& b);

/// Whether a call over ranks takes the case's tensors.
[[nodiscard]] bool TakenOverRanks(const ForwardCase& c);
/// `wanted`, or what a call takes whose pse or dense mask has rows that stay with their rank.
[[nodiscard]] SequenceShards::Strategy StrategyFor(const ForwardCase& c, SequenceShards::Strategy wanted);

/// The level of a call over ranks that have these.
[[nodiscard]] Isa LowestOf(Isa a, Isa b);

/// Whether the only run over the transport has moved the bytes that its plan tells of this rank.
[[nodiscard]] bool MovedBytesOfThePlan(const Plan& plan, const Transport& transport);
/// Whether what the plan says that the rank stages has room in the workspace.
[[nodiscard]] bool StagesInTheWorkspace(const Plan& plan, int rank);

/// The arguments of a rank's call.
[[nodiscard]] AttentionArgs PartOf(const AttentionArgs& whole, Layout layout, RankTensors& tensors);
/// The same; dslopes and dsink are left out: all ranks write them.
[[nodiscard]] AttentionGradArgs PartOf(const AttentionGradArgs& whole, Layout layout, RankTensors& tensors);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANK_ROWS_H_
