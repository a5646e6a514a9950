#ifndef FA_MASK_H_
#define FA_MASK_H_

/// @file
/// Masks, which say which keys a query row keeps.
/// @code{.cpp}
/// std::vector<float> q(8 * 128 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 128, 64});
/// args.out = fa::View(out.data(), {1, 8, 128, 64});
/// return fa::FlashAttention(args, {.mask = fa::Mask::Band(16, 0)});  // a row sees its own key and 16 before it
/// @endcode
/// Drawings have 4 query rows and 6 keys; x is kept, a dot is dropped.

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "fa/export.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// A mask that keeps one interval of keys j for each query row i. A dense mask tensor, AttentionArgs::dense_mask, may
/// drop further pairs. i counts from 0 to Sq-1 and j from 0 to Sk-1 inside each batch element or packed sequence; delta
/// = Sk - Sq of that element or sequence.
///
/// Numbers such as `pre` may be any integers. A number larger than any distance between a row and a key bounds nothing.
class FA_API Mask {
 public:
  /// Which keys j row i keeps. delta is Sk - Sq of the batch element or sequence.
  enum class Kind : uint8_t {
    kNone,             ///< every key
    kCausal,           ///< j <= i + delta
    kCausalTopLeft,    ///< j <= i
    kBand,             ///< i + delta - pre <= j <= i + delta + next
    kBandTopLeft,      ///< i - pre <= j <= i + next
    kPrefix,           ///< j < prefix[b] or j <= i + delta
    kCausalBandLast,   ///< in the last non-empty element: j <= i + delta + next; the others: j <= i + delta   (mode 7)
    kCausalBandFirst,  ///< first non-empty element: j <= i + Sk - max(Sq - next, 0); the others: j <= i (mode 8)
    kRows,             ///< row_begin[i] <= j < row_end[i], listed for every row
  };
  /// A `pre` or `next` with this value does not bound the window on its side.
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  Mask() = default;
  /// Makes the mask with which every query sees every key:
  /// @code{.unparsed}
  ///   x x x x x x
  ///   x x x x x x
  ///   x x x x x x
  ///   x x x x x x
  /// @endcode
  static Mask None();
  /// Makes a causal mask, aligned bottom-right: the last query sees every key.
  /// @code{.unparsed}
  ///   x x x . . .
  ///   x x x x . .
  ///   x x x x x .
  ///   x x x x x x
  /// @endcode
  static Mask Causal();
  /// Makes a causal mask, aligned top-left: query 0 sees key 0 only.
  /// @code{.unparsed}
  ///   x . . . . .
  ///   x x . . . .
  ///   x x x . . .
  ///   x x x x . .
  /// @endcode
  static Mask CausalTopLeft();
  /// Makes a window, aligned bottom-right: `pre` keys before and `next` keys after the diagonal that ends at (Sq-1,
  /// Sk-1). Band(2, 1):
  /// @code{.unparsed}
  ///   x x x x . .
  ///   . x x x x .
  ///   . . x x x x
  ///   . . . x x x
  /// @endcode
  static Mask Band(int64_t pre, int64_t next);
  /// Makes a window, aligned top-left: `pre` keys before and `next` keys after the diagonal that begins at (0, 0).
  /// BandTopLeft(2, 1):
  /// @code{.unparsed}
  ///   x x . . . .
  ///   x x x . . .
  ///   x x x x . .
  ///   . x x x x .
  /// @endcode
  static Mask BandTopLeft(int64_t pre, int64_t next);
  /// Makes a causal mask, aligned bottom-right. In addition, every query of batch element b sees the first prefix[b]
  /// keys. Prefix({5}):
  /// @code{.unparsed}
  ///   x x x x x .
  ///   x x x x x .
  ///   x x x x x .
  ///   x x x x x x
  /// @endcode
  static Mask Prefix(std::vector<int64_t> prefix);
  /// Makes a mask that lists every row's keys: row i keeps row_begin[i] <= j < row_end[i]. Packed sequences, chunks and
  /// padding can be written as such lists. Copies of the mask share the lists. Rows({0, 0, 2, 2}, {2, 2, 6, 6}):
  /// @code{.unparsed}
  ///   x x . . . .
  ///   x x . . . .
  ///   . . x x x x
  ///   . . x x x x
  /// @endcode
  /// Over the rows that keep keys, row_begin and row_end must not decrease. If a row keeps no keys, the keys of later
  /// rows must not begin before the keys of earlier rows end. These rules hold within each batch element or sequence.
  /// Keys outside 0..Sk-1 are dropped.
  ///
  /// Lists with one entry per row of one batch element hold for all elements. Otherwise they have one entry per row of
  /// all elements, element after element. With TND there is one entry per row of the whole tensor, and j counts inside
  /// the sequence.
  static Mask Rows(std::vector<int64_t> row_begin, std::vector<int64_t> row_end);

  /// Returns the mask of the device's `sparse_mode` 0..8 (docs/masks.md). Operators with such a mask also check mode,
  /// pre, next, prefix and mask shape as the device does; these checks need the tensors' shapes.
  ///
  /// With modes 7 and 8 one sequence of TND has another mask than the others. The left drawings show mode 7 with next =
  /// -1: the last sequence, then the others. The right drawings show mode 8 with next = 1: the first sequence, then the
  /// others.
  /// @code{.unparsed}
  ///   mode 7, last   others         mode 8, first   others
  ///   x x . . . .    x x x . . .    x x x x . .     x . . . . .
  ///   x x x . . .    x x x x . .    x x x x x .     x x . . . .
  ///   x x x x . .    x x x x x .    x x x x x x     x x x . . .
  ///   x x x x x .    x x x x x x    x x x x x x     x x x x . .
  /// @endcode
  /// @param dense_mask_given  whether the call has a dense mask. Mode 0 without one keeps every pair and ignores pre
  ///                          and next
  /// @return kInvalidArgument ("sparse_mode=9, want 0..8")
  static Result<Mask> FromSparseMode(int64_t sparse_mode, int64_t pre, int64_t next, std::vector<int64_t> prefix,
                                     bool dense_mask_given);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] int64_t pre() const { return pre_; }
  [[nodiscard]] int64_t next() const { return next_; }
  [[nodiscard]] const std::vector<int64_t>& prefix() const { return prefix_; }
  /// Return the lists that Rows got; other masks have empty lists.
  [[nodiscard]] const std::vector<int64_t>& row_begin() const;
  [[nodiscard]] const std::vector<int64_t>& row_end() const;
  /// Returns the mode with which FromSparseMode made the mask, or -1 for any other mask.
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

/// Checks that the elements of a compressed mask are those that its sparse mode prescribes. Operators then use the mask
/// of the sparse mode and do not read the tensor again. Modes 2, 3, 4, 7 and 8 expect [2048,2048] with ones strictly
/// above the diagonal. Mode 6 expects [3072,2048]: that triangle, then 1024 rows whose left half is 0 and whose right
/// half is 1. Types are u8, bool or i8; leading dimensions of 1 are accepted.
/// @return kInvalidArgument, which names the first wrong element ("dense_mask[5][7]=0, want 1 ...")
FA_API Status VerifyCompressedMask(const TensorView& dense_mask, int64_t sparse_mode);

}  // namespace fa

#endif  // FA_MASK_H_
