#ifndef FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_CASE_H_
#define FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_CASE_H_

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "fa/sparse_mask.h"
#include "fa/tensor.h"
#include "reference/token/selection.h"
#include "support/cases/random_values.h"
#include "support/tensor.h"

namespace fa::test {

/// The element types of the sparse operators.
inline constexpr DType kTokenDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

enum class ListForm : uint8_t {
  /// A list has different blocks below the token's limit, as many as fit, in any order. Unused entries are -1.
  kDistinct,
  /// A list has any blocks of the sequence, with duplicates and blocks beyond the limit. Half of the lists end early.
  kMessy,
  kEveryKey,  ///< a list has all blocks in ascending order
};

/// What the calls of all sparse operators have: sequences of query tokens and keys, and a list of keys per token. An
/// element's value depends only on its logical index, not on layout and strides.
struct TokenCase {
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  Layout layout = Layout::kBSND;
  reference::Lengths lengths = {{5}, {40}};
  int64_t first_sequence = 0;        ///< the number with which the first sequence's values are drawn; later sequences
                                     ///< take the next numbers
  int64_t spare_q = 0, spare_k = 0;  ///< rows of the tensors after the longest sequence; in TND after the last sequence
  bool lengths_given = true;         ///< BSND: if false, the spans of lengths are empty
  bool causal = true;                ///< true for sparse mode 3, false for mode 0
  int64_t page_rows = 0;             ///< if not 0, keys lie in pages of that many rows
  uint64_t page_order = 1;           ///< the number that determines the random order of the pages
  int64_t block_size = 1, slots = 8;  ///< keys per block, and entries per list
  ListForm lists = ListForm::kDistinct;
  /// If not 0, this number determines a random order of the entries that are read in each list.
  uint64_t list_order = 0;
  DType index_dtype = DType::kI32;
  Padding padding = {};
  Placement placement = {};

  [[nodiscard]] bool packed() const { return layout == Layout::kTND; }
  [[nodiscard]] bool paged() const { return page_rows > 0; }
  [[nodiscard]] int64_t batch() const { return static_cast<int64_t>(lengths.sq.size()); }
  [[nodiscard]] SparseMask mask() const { return causal ? SparseMask::kRightDownCausal : SparseMask::kNone; }
};

/// Returns the fields that differ from a default case as text, the seed first.
[[nodiscard]] std::string ToString(const TokenCase& c);
std::ostream& operator<<(std::ostream& out, const TokenCase& c);

/// Returns the case's sequences and lists.
[[nodiscard]] reference::Selection MakeSelection(const TokenCase& c);

/// Returns normal values for all rows of the sequences. `rows` is c.lengths.sq or c.lengths.sk. The values are packed
/// [rows, heads, size] and rounded to `dtype`.
[[nodiscard]] std::vector<double> DrawRows(const TokenCase& c, const std::vector<int64_t>& rows, int64_t heads,
                                           int64_t size, Tag tag, DType dtype);

/// A tensor that has rows of queries or of keys.
struct RowTensor {
  Tensor tensor;
  HeadStrides stride;  ///< if keys lie in pages, `batch` is the stride from page to page
  int64_t heads = 0, size = 0;
  /// If `group` is not 0, head n begins at (n / group) * group_stride + (n % group) * stride.head.
  int64_t group = 0, group_stride = 0;

  [[nodiscard]] int64_t Offset(int64_t b, int64_t n, int64_t s) const {
    const int64_t head = group == 0 ? n * stride.head : n / group * group_stride + n % group * stride.head;
    return b * stride.batch + head + s * stride.row;
  }
};

/// What a call has written to one tensor.
struct RowValues {
  std::vector<double> values;  ///< the values of the rows in use, packed [rows, heads, size]
  std::vector<double> unused;  ///< the elements of rows that no sequence uses
};

/// Makes the tensors of a case in guarded buffers and fills them. Elements that are no input values are NaN or invalid
/// entries.
class TokenTensors {
 public:
  explicit TokenTensors(const TokenCase& c);

  /// Makes a tensor [B, S1, heads, size] or [T, heads, size].
  [[nodiscard]] RowTensor MakeQuerySide(DType dtype, int64_t heads, int64_t size) const;
  /// Makes a tensor [B, S1, size] or [T, size]. For example, `weights` has one column per head, and `p_head_mean` has
  /// one per list entry.
  [[nodiscard]] RowTensor MakeFlatQuerySide(DType dtype, int64_t size) const;
  /// Makes an f32 tensor [B, heads_kv, S1, group] or [heads_kv, T, group], which holds a statistic per query head.
  [[nodiscard]] RowTensor MakeStatistic(int64_t heads_kv, int64_t group) const;
  /// Makes an f32 tensor [B, 1, S1] or [1, T].
  [[nodiscard]] RowTensor MakeRowStatistic() const;
  /// Makes a tensor [B, S2, heads, size] or [T, heads, size], or a tensor in pages.
  [[nodiscard]] RowTensor MakeKeySide(DType dtype, int64_t heads, int64_t size) const;
  /// Makes a tensor [B, S1, 1, slots] or [T, 1, slots] with these entries. Rows that no sequence uses get invalid
  /// entries.
  [[nodiscard]] RowTensor MakeLists(const std::vector<int64_t>& indices) const;

  void FillQueries(const std::vector<double>& packed, const RowTensor& to) const;
  void FillKeys(const std::vector<double>& packed, const RowTensor& to) const;
  [[nodiscard]] RowValues Queries(const RowTensor& from) const;
  [[nodiscard]] RowValues Keys(const RowTensor& from) const;

  [[nodiscard]] const Tensor& block_table() const { return table_; }
  [[nodiscard]] const std::vector<int64_t>& lengths_q() const { return lengths_q_; }
  [[nodiscard]] const std::vector<int64_t>& lengths_kv() const { return lengths_kv_; }

 private:
  struct Row {
    int64_t b, s;
  };
  [[nodiscard]] Row QueryRow(int64_t b, int64_t t) const;
  [[nodiscard]] Row KeyRow(int64_t b, int64_t key) const;
  [[nodiscard]] RowTensor MakeRows(DType dtype, bool of_queries, int64_t heads, int64_t size) const;
  [[nodiscard]] std::vector<double> Unused(const RowTensor& from, bool of_queries) const;
  void MakePages();

  TokenCase case_;
  int64_t tensor_batch_ = 0, q_rows_ = 0, k_rows_ = 0;
  std::vector<int64_t> lengths_q_, lengths_kv_;
  std::vector<std::vector<int32_t>> pages_;
  int64_t page_count_ = 0;
  Tensor table_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_CASE_H_
