#ifndef FA_TOOLS_FA_CASES_BACKWARD_DATA_H_
#define FA_TOOLS_FA_CASES_BACKWARD_DATA_H_

#include <cstdint>
#include <vector>

#include "cases/forward_data.h"
#include "check/gradients.h"
#include "fa/flash_attention_grad.h"
#include "fa/sequence_shards.h"

namespace fa::tool {

/// The tensors of a backward call in memory: the inputs and results of the forward, a random gradient of the output,
/// and the gradients that the call computes.
class BackwardData {
 public:
  /// Runs the forward, whose results the backward needs. Throws Failure.
  BackwardData(const ForwardCase& forward, Context& context);

  /// Returns the arguments of the backward. The arguments point into this object.
  [[nodiscard]] AttentionGradArgs Args();
  /// Returns the bytes of the inputs and the gradients, each counted once.
  [[nodiscard]] double bytes() const;

  /// Compares some rows of every gradient with a double-precision computation from the same inputs. Throws Failure if
  /// an element differs by more than rounding explains.
  /// @return the largest error, as a fraction of what rounding explains
  double CheckRows() const;
  /// Works like CheckRows, for these rows of queries and of keys only. Rows are numbered within a sequence, or in TND
  /// over all packed sequences.
  double CheckRows(const std::vector<SequenceShards::Interval>& queries,
                   const std::vector<SequenceShards::Interval>& keys) const;

 private:
  [[nodiscard]] check::BackwardHead Head(int64_t batch, int64_t head) const;
  [[nodiscard]] double CheckQueryRow(int64_t batch, int64_t head, int64_t row) const;
  [[nodiscard]] double CheckKeyRow(int64_t batch, int64_t head_kv, int64_t key) const;

  const ForwardCase& case_;
  ForwardData forward_;
  Tensor d_out_, max_, sum_;
  Tensor dq_, dk_, dv_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_BACKWARD_DATA_H_
