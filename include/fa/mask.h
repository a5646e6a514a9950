#ifndef FA_MASK_H_
#define FA_MASK_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "fa/export.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// The structural part of an attention mask: a rule that gives, for query row i, the interval of kept keys j.
/// (A dense mask tensor, AttentionArgs::dense_mask, may drop further pairs.) i counts from 0 to Sq-1 and j from 0
/// to Sk-1 inside each batch element or packed sequence; delta = Sk - Sq of that element.
///
/// Any integers are taken; they saturate, and a row whose interval is empty is a row without keys.
class FA_API Mask {
 public:
  /// Which rule it is. delta = Sk - Sq of the batch element or sequence.
  enum class Kind : uint8_t {
    kNone,             ///< all
    kCausal,           ///< j <= i + delta
    kCausalTopLeft,    ///< j <= i
    kBand,             ///< i + delta - pre <= j <= i + delta + next
    kBandTopLeft,      ///< i - pre <= j <= i + next
    kPrefix,           ///< j < prefix[b] or j <= i + delta
    kCausalBandLast,   ///< last non-empty element: j <= i + delta + next; the others: j <= i + delta   (mode 7)
    kCausalBandFirst,  ///< first non-empty element: j <= i + Sk - max(Sq - next, 0); the others: j <= i (mode 8)
    kRows,             ///< row_begin[i] <= j < row_end[i], listed row by row
  };
  /// Larger than any distance: no bound on that side.
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  Mask() = default;
  /// Every query sees every key.
  static Mask None();
  /// Bottom-right aligned causal: the last query sees every key.
  static Mask Causal();
  /// Top-left aligned causal: query 0 sees key 0 only.
  static Mask CausalTopLeft();
  /// A window, bottom-right aligned: `pre` keys back, `next` keys ahead of the diagonal that ends at (Sq-1, Sk-1).
  static Mask Band(int64_t pre, int64_t next);
  /// A window, top-left aligned.
  static Mask BandTopLeft(int64_t pre, int64_t next);
  /// Bottom-right causal, and every query sees the first prefix[b] keys of batch element b.
  static Mask Prefix(std::vector<int64_t> prefix);
  /// Every row's keys, listed: row i keeps row_begin[i] <= j < row_end[i]. Packed sequences, chunks, padding and what
  /// they make of a window or a causal rule are such lists. The lists are shared by copies of the mask.
  ///
  /// From one row that keeps keys to the next neither number may decrease; keys outside 0..Sk-1 are none. One entry per
  /// row: of one batch element, which holds for all; or of all of them, batch element after batch element; TND: of the
  /// whole tensor, j counting inside the sequence.
  static Mask Rows(std::vector<int64_t> row_begin, std::vector<int64_t> row_end);

  /// The device's vocabulary, `sparse_mode` 0..8 (see docs/masks.md). Operators given such a mask also apply the
  /// device's checks of mode, pre, next, prefix and mask shape, which need the tensors' shapes.
  /// @param dense_mask_given  mode 0 without a mask means everything, pre and next ignored
  /// @return kInvalidArgument ("sparse_mode=9, want 0..8")
  static Result<Mask> FromSparseMode(int64_t sparse_mode, int64_t pre, int64_t next, std::vector<int64_t> prefix,
                                     bool dense_mask_given);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] int64_t pre() const { return pre_; }
  [[nodiscard]] int64_t next() const { return next_; }
  [[nodiscard]] const std::vector<int64_t>& prefix() const { return prefix_; }
  /// Empty unless made by Rows.
  [[nodiscard]] const std::vector<int64_t>& row_begin() const;
  [[nodiscard]] const std::vector<int64_t>& row_end() const;
  /// -1 unless made by FromSparseMode.
  [[nodiscard]] int64_t sparse_mode() const { return sparse_mode_; }

 private:
  Kind kind_ = Kind::kNone;
  int64_t pre_ = kUnlimited;
  int64_t next_ = kUnlimited;
  int64_t sparse_mode_ = -1;
  std::vector<int64_t> prefix_;
  struct RowKeys;
  std::shared_ptr<const RowKeys> rows_;
};

/// Checks that a compressed mask is the one its sparse mode expects, so that the rule alone can stand for it:
/// modes 2, 3, 4, 7, 8: [2048,2048], ones strictly above the diagonal; mode 6: [3072,2048], that triangle, then
/// 1024 rows whose left half is 0 and right half 1. u8, bool or i8; leading dimensions of 1 are accepted.
/// @return kInvalidArgument naming the first wrong element ("dense_mask[5][7]=0, want 1 ...").
FA_API Status VerifyCompressedMask(const TensorView& dense_mask, int64_t sparse_mode);

}  // namespace fa

#endif  // FA_MASK_H_
