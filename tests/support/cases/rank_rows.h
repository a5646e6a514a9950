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

/// Returns the levels on which calls over ranks are tested. Without sanitizers these are all of IsaLevels. Sanitizers
/// watch accesses and not values, so there are then only two levels, which move rows in different ways. The highest
/// level without tiles adds one row of f32 and f16 at once, and two rows of bf16. The emulated tile unit adds 32 rows
/// at once. Under AddressSanitizer the tests of one process run the kernels of every level. Under ThreadSanitizer
/// operator_executor_test runs them.
[[nodiscard]] std::vector<Isa> RankLevels();

/// Returns the rows that a rank holds, one by one, by the definition of the cut.
[[nodiscard]] std::vector<int64_t> RowsOfRank(const SequenceShards& shards, int64_t rows, int rank, int ranks);

/// A rank's own rows of tensors of the whole call, in dense memory of their own. A tensor without elements has no
/// memory.
class RankTensors {
 public:
  RankTensors(std::vector<int64_t> q_rows, std::vector<int64_t> k_rows)
      : q_rows_(std::move(q_rows)), k_rows_(std::move(k_rows)) {}

  /// Returns the rows of `whole` along `axis`. If the data of `whole` is null, the data of the part is null too.
  TensorView Part(const TensorView& whole, int axis, bool queries);
  /// Returns the elements of `whole` at these indices of `axis`.
  TensorView Part(const TensorView& whole, int axis, std::vector<int64_t> indices);
  MutableTensorView Part(const MutableTensorView& whole, int axis, std::vector<int64_t> indices);
  /// Returns the rows of an output. Return() copies them back to `whole`.
  MutableTensorView Part(const MutableTensorView& whole, int axis, bool queries);
  /// Writes the outputs' rows into the whole tensors. Ranks write different bytes.
  void Return() const;

  [[nodiscard]] const std::vector<int64_t>& q_rows() const { return q_rows_; }

 private:
  struct Own {
    MutableTensorView whole;
    MutableTensorView part;
    int axis;
    std::vector<int64_t> indices;  ///< indices on `axis`
    std::vector<std::byte> bytes;
  };
  Own& Make(const MutableTensorView& whole, int axis, std::vector<int64_t> indices);
  void Copy(const Own& own, bool back) const;

  std::vector<int64_t> q_rows_, k_rows_;
  std::list<Own> owned_;
  std::vector<const Own*> outputs_;
};

/// Returns whether dense tensors, such as parts of two outputs, have the same shape and bytes.
[[nodiscard]] bool SameBytes(const TensorView& a, const TensorView& b);

/// Returns whether a call over ranks accepts the case's tensors.
[[nodiscard]] bool TakenOverRanks(const ForwardCase& c);
/// Returns `wanted`, or the only strategy that the case allows. A case allows only one if its pse or dense mask has
/// rows that stay with their rank.
[[nodiscard]] SequenceShards::Strategy StrategyFor(const ForwardCase& c, SequenceShards::Strategy wanted);

/// Returns the level of a call over two ranks of which one has level a, the other level b.
[[nodiscard]] Isa LowestOf(Isa a, Isa b);

/// Returns whether a rank's only run over the transport has moved the bytes that its plan states.
[[nodiscard]] bool MovedBytesOfThePlan(const Plan& plan, const Transport& transport);
/// Returns whether the workspace has room for the rows that the plan stages on the rank.
[[nodiscard]] bool StagesInTheWorkspace(const Plan& plan, int rank);

/// Returns the arguments of a rank's call.
[[nodiscard]] AttentionArgs PartOf(const AttentionArgs& whole, Layout layout, RankTensors& tensors);
/// Returns the arguments of a rank's backward, without dslopes and dsink, which all ranks write.
[[nodiscard]] AttentionGradArgs PartOf(const AttentionGradArgs& whole, Layout layout, RankTensors& tensors);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANK_ROWS_H_
