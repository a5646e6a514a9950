#ifndef FA_TOOLS_FA_CASES_FORWARD_DATA_H_
#define FA_TOOLS_FA_CASES_FORWARD_DATA_H_

#include <vector>

#include "cases/forward_case.h"
#include "check/forward_row.h"
#include "fa/flash_attention.h"
#include "fa/sequence_shards.h"
#include "files/tensors.h"

namespace fa::tool {

/// The tensors of a ForwardCase in memory. Inputs are random, nearly normal with variance 1, and the same in every run.
class ForwardData {
 public:
  explicit ForwardData(const ForwardCase& forward);

  /// Returns the arguments of the forward. The arguments point into this object.
  [[nodiscard]] AttentionArgs Args();
  /// Returns the bytes of the inputs and the output, each counted once.
  [[nodiscard]] double bytes() const;
  [[nodiscard]] Tensor& key() { return k_; }
  [[nodiscard]] Tensor& value() { return v_; }
  /// Returns the bytes of keys and values alone.
  [[nodiscard]] double key_value_bytes() const;

  /// Compares some rows of the output with a double-precision computation. Throws Failure if an element differs by more
  /// than rounding explains.
  /// @return the largest error, as a fraction of what rounding explains
  double CheckRows() const;
  /// Works like CheckRows, for these rows only. Rows are numbered within a sequence, or in TND over all packed
  /// sequences.
  double CheckRows(const std::vector<SequenceShards::Interval>& rows) const;

  /// Returns the query rows of head `head`.
  [[nodiscard]] check::HeadRows QueryRows(int64_t batch, int64_t head) const;
  [[nodiscard]] check::HeadRows KeyRows(int64_t batch, int64_t head) const;
  [[nodiscard]] check::HeadRows ValueRows(int64_t batch, int64_t head) const;
  [[nodiscard]] check::HeadRows OutRows(int64_t batch, int64_t head) const;
  [[nodiscard]] bool Keeps(int64_t batch, int64_t head, int64_t row, int64_t key) const;

 private:
  [[nodiscard]] double CheckOutRow(int64_t batch, int64_t head, int64_t row) const;

  const ForwardCase& case_;
  Tensor q_, k_, v_, out_;
};

/// Returns one interval with all rows of queries or of keys: [0, length), or in TND [0, batch * length).
[[nodiscard]] std::vector<SequenceShards::Interval> AllRows(const ForwardCase& forward, int64_t length);

/// Returns whether the case's masks let query row `row` see the key.
[[nodiscard]] bool KeepsPair(const ForwardCase& forward, int64_t batch, int64_t head, int64_t row, int64_t key);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_FORWARD_DATA_H_
