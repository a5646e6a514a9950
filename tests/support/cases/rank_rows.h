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

/// Returns the levels on which calls over ranks are tested. Without a sanitizer these are all of IsaLevels(). A
/// sanitizer watches only memory accesses, so two levels suffice: the highest level without tiles, and the emulated
/// tile unit. The highest level adds 1 or 2 rows at once, and the tile unit adds 32.
[[nodiscard]] std::vector<Isa> RankLevels();

/// Returns the rows that a rank holds, one by one, by the definition of the cut.
[[nodiscard]] std::vector<int64_t> RowsOfRank(const SequenceShards& shards, int64_t rows, int rank, int ranks);

/// A rank's rows of tensors of the whole call, copied to their own dense memory. A tensor without elements has no
/// memory.
class RankTensors {
 public:
  RankTensors(std::vector<int64_t> q_rows, std::vector<int64_t> k_rows)
      : q_rows_(std::move(q_rows)), k_rows_(std::move(k_rows)) {}

  /// Returns a copy of the rank's rows of `whole` along `axis`. If the data of `whole` is null, the copy's data is null
  /// too.
  TensorView Part(const TensorView& whole, int axis, bool queries);
  /// Copies the elements of `whole` at these indices along `axis`, and returns the copy.
  TensorView Part(const TensorView& whole, int axis, std::vector<int64_t> indices);
  MutableTensorView Part(const MutableTensorView& whole, int axis, std::vector<int64_t> indices);
  /// Returns memory for the rank's rows of an output. Return() copies them to `whole`.
  MutableTensorView Part(const MutableTensorView& whole, int axis, bool queries);
  /// Copies the outputs' rows to the whole tensors. Several ranks may call this function at once, because they write
  /// different bytes.
  void Return() const;

  [[nodiscard]] const std::vector<int64_t>& q_rows() const { return q_rows_; }

 private:
  struct Own {
    MutableTensorView whole;
    MutableTensorView part;
    int axis;
    std::vector<int64_t> indices;  ///< the rank's indices along `axis`
    std::vector<std::byte> bytes;
  };
  Own& Make(const MutableTensorView& whole, int axis, std::vector<int64_t> indices);
  void Copy(const Own& own, bool back) const;

  std::vector<int64_t> q_rows_, k_rows_;
  std::list<Own> owned_;
  std::vector<const Own*> outputs_;
};

/// Returns whether two dense tensors, such as parts of two outputs, have the same shape and bytes.
[[nodiscard]] bool SameBytes(const TensorView& a, const TensorView& b);

/// Returns whether a call over ranks accepts the case's tensors.
[[nodiscard]] bool TakenOverRanks(const ForwardCase& c);
/// Returns `wanted`, or the only strategy that the case allows. Only one is allowed if the rows of pse or of the dense
/// mask must stay with their rank.
[[nodiscard]] SequenceShards::Strategy StrategyFor(const ForwardCase& c, SequenceShards::Strategy wanted);

/// Returns the level at which two ranks compute together, if one has level a and the other level b.
[[nodiscard]] Isa LowestOf(Isa a, Isa b);

/// Returns whether a rank's only run over the transport has moved as many bytes as its plan states.
[[nodiscard]] bool MovedBytesOfThePlan(const Plan& plan, const Transport& transport);
/// Returns whether the workspace has room for the rows that the plan brings to the rank.
[[nodiscard]] bool StagesInTheWorkspace(const Plan& plan, int rank);

/// Returns the arguments of a rank's call, made from the arguments of the whole call.
[[nodiscard]] AttentionArgs PartOf(const AttentionArgs& whole, Layout layout, RankTensors& tensors);
/// Returns the arguments of a rank's backward, without dslopes and dsink, which all ranks write.
[[nodiscard]] AttentionGradArgs PartOf(const AttentionGradArgs& whole, Layout layout, RankTensors& tensors);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANK_ROWS_H_
