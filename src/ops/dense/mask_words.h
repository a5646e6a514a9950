#ifndef FA_OPS_MASK_WORDS_H_
#define FA_OPS_MASK_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/run/executor.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/plan/plan_impl.h"
#include "tiling/rows_plan.h"

namespace fa::ops {

/// The dense mask of a call with one bit per pair, made from its bytes before the tiles run. Tiles read their part of
/// the mask once per head, and to find keys that they need not visit. Bits make this faster. A call with few rows has
/// no words, because its tiles read each byte only once.
class MaskWords {
 public:
  /// `bound` must outlive the object.
  MaskWords(const BoundAttention& bound, int workers);
  /// Adds the memory of the words, if there are any, to the workspace of a program.
  template <typename Program>
  void Book(Program& program) {
    if (plan_.rows == 0) return;
    words_at_ = program.Book("words of the dense mask", words_ * sizeof(uint64_t));
    state_at_ = program.Book("run state of the mask", core::RunStateBytes(plan_.graph));
  }
  /// Makes the words from the bytes of scores.dense_mask, and lets scores.dense_mask describe the words.
  [[nodiscard]] Status Make(const GraphRunner& runner, std::byte* workspace, ScoreInputs* scores) const;

 private:
  /// Rows of bytes at `from`, `stride` bytes apart, that become `words` words each.
  struct Plane {
    int64_t from, stride, keys, first_row, first_word, words;
    const tiling::RowRule* rule;  ///< the rule of all sequences that read the plane, or null if their rules differ
  };

  /// Returns the keys for which some strip reads the words of this row.
  static tiling::Interval KeysRead(const Plane& plane, int64_t row);

  std::vector<Plane> planes_;
  PairRows layout_;
  tiling::RowsPlan plan_;
  size_t words_ = 0, words_at_ = 0, state_at_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_MASK_WORDS_H_
