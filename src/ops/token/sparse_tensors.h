#ifndef FA_OPS_SPARSE_TENSORS_H_
#define FA_OPS_SPARSE_TENSORS_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "fa/status.h"
#include "fa/tensor.h"
#include "layout/rows.h"
#include "layout/stored_rows.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/planned_tensors.h"
#include "ops/token/sparse_sequences.h"

namespace fa::ops {

/// A size that another tensor has defined.
struct WantedSize {
  int64_t size = 0;
  SizeSource source;
};

/// The rope tensors q_rope [B, S1, heads, columns] and k_rope [B, S2, heads_kv, columns].
struct RopeArgs {
  const TensorView &q, &k;
};

/// Checks the tensors of one call of the sparse operators. The comments give shapes for BSND, [B, S, ...]; with TND the
/// shapes are [T, ...]. Keys may lie in pages, [blocks, block size, ...]. The query defines the sizes of the query
/// side, and the key defines the sizes of the key side. Every other tensor is compared with these sizes.
class SparseTensors {
 public:
  explicit SparseTensors(Layout layout) : layout_(layout) {}

  // Call the functions from here to BindKey in this order.

  /// Binds the query [B, S1, N, D] of a float type, with N >= 1 and D in 1..1024. Also checks the layout.
  /// @param quantized  whether the type is i8 or f8e4m3 instead
  [[nodiscard]] Status BindQuery(const char* name, const TensorView& q, bool quantized = false);
  /// Binds the block table, i32 [B, n]. If the table's data is null, keys do not lie in pages.
  [[nodiscard]] Status BindBlockTable(const TensorView& table, const char* name = "block_table");
  /// Binds the key [B, S2, heads, columns] of this type, which is the query's type unless keys are quantised.
  [[nodiscard]] Status BindKey(const char* name, const TensorView& k, WantedSize heads, WantedSize columns,
                               DType dtype);

  /// Checks a tensor [B, S1, trailing...] of the given type; with TND [T, trailing...].
  [[nodiscard]] Status CheckQuerySide(const char* name, const TensorView& tensor, DType dtype,
                                      std::initializer_list<WantedSize> trailing) const;
  /// Checks a tensor [B, S2, trailing...] of the given type; with TND [T, trailing...].
  [[nodiscard]] Status CheckKeySide(const char* name, const TensorView& tensor, DType dtype,
                                    std::initializer_list<WantedSize> trailing) const;
  /// Checks a tensor of any float type with one number per key, [B, S2] or [B, S2, 1]. The numbers need not be
  /// contiguous.
  [[nodiscard]] Status CheckKeyValues(const char* name, const TensorView& tensor) const;
  /// Checks a tensor of any float type [B, S1, trailing...].
  [[nodiscard]] Status CheckFloatQuerySide(const char* name, const TensorView& tensor,
                                           std::initializer_list<WantedSize> trailing) const;
  /// Checks the rope tensors, which must both be given or both be absent. `columns` receives their head size, or 0 if
  /// they are absent.
  [[nodiscard]] Status CheckRope(const RopeArgs& args, int64_t heads, int64_t heads_kv, int64_t* columns) const;
  /// Checks a statistic, f32 [B, heads_kv, S1, heads / heads_kv] (TND [heads_kv, T, ...]).
  [[nodiscard]] Status CheckStatistic(const char* name, const TensorView& tensor, int64_t heads_kv,
                                      int64_t group) const;
  /// Checks a row statistic, f32 [B, 1, S1] (TND [1, T]).
  [[nodiscard]] Status CheckRowStatistic(const char* name, const TensorView& tensor) const;
  /// Checks a tensor f32 [N], with one value per query head.
  [[nodiscard]] Status CheckHeadValues(const char* name, const TensorView& tensor, WantedSize heads) const;
  /// Checks the lists of keys, i32 or i64 [B, S1, 1, K] with any K.
  [[nodiscard]] Status CheckIndices(const TensorView& indices, const char* name = "sparse_indices") const;
  /// Works like CheckQuerySide, for an output. No two elements of an output may share memory.
  [[nodiscard]] Status CheckQueryOutput(const char* name, const MutableTensorView& tensor, DType dtype,
                                        std::initializer_list<WantedSize> trailing) const;
  [[nodiscard]] Status CheckKeyOutput(const char* name, const MutableTensorView& tensor, DType dtype,
                                      std::initializer_list<WantedSize> trailing) const;

  [[nodiscard]] bool packed() const { return layout_ == Layout::kTND; }
  [[nodiscard]] bool paged() const { return page_rows_ >= 0; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// Returns the number of batch elements, or 0 with TND, whose tensors do not tell the number of sequences.
  [[nodiscard]] int64_t batch() const { return batch_; }
  [[nodiscard]] int64_t q_rows() const { return q_rows_; }
  /// Returns the layout of the pages of checked keys, without the table's entries.
  [[nodiscard]] layout::BlockTable PagesOf(const TensorView& block_table) const;
  /// Returns the number of rows of keys. With pages, this is the number of rows that the table can hold.
  [[nodiscard]] int64_t k_rows() const { return k_rows_; }
  [[nodiscard]] int64_t page_rows() const { return page_rows_; }
  [[nodiscard]] int64_t blocks() const { return blocks_; }  ///< number of pages
  [[nodiscard]] int64_t heads() const { return heads_; }
  [[nodiscard]] int64_t head_size() const { return head_size_; }
  /// Returns the number of leading dimensions on the query side.
  [[nodiscard]] int leading() const { return packed() ? 1 : 2; }

 private:
  [[nodiscard]] Status CheckShape(const char* name, const TensorView& tensor, std::initializer_list<WantedSize> leading,
                                  std::initializer_list<WantedSize> trailing) const;

  Layout layout_;
  DType dtype_ = DType::kF32;
  int64_t batch_ = 0, q_rows_ = 0, k_rows_ = 0, heads_ = 0, head_size_ = 0;
  int64_t page_rows_ = -1, blocks_ = 0, table_columns_ = 0;
  const char* query_ = "q";
  const char* key_ = "k";
};

[[nodiscard]] Status CheckHeadSize(const char* name, int dim, int64_t size);
/// Returns the last dimension of an unchecked tensor.
[[nodiscard]] int64_t LastSize(const TensorView& tensor);
/// Checks an output, no two elements of which may share memory.
[[nodiscard]] Status CheckWritable(const char* name, const MutableTensorView& tensor);

/// Returns the layout of the rows of a checked tensor [B, S, N, D] or [T, N, D]. With pages, `batch` is the stride from
/// page to page.
[[nodiscard]] layout::Rows SparseRowsOf(const TensorView& tensor, bool packed);
/// Returns the layout of a checked tensor of values [B, S, N] or [T, N]. A row of values is at (b, 0, s).
[[nodiscard]] layout::Rows SparseValuesOf(const TensorView& tensor, bool packed);
/// Returns the layout of a checked statistic [B, Nkv, S, G] or [Nkv, T, G]. `head` is the stride along G, and
/// `copy_stride` the stride along Nkv.
[[nodiscard]] layout::Stats SparseStatisticOf(const TensorView& tensor, bool packed);
/// Returns the layout of a checked row statistic [B, 1, S] or [1, T].
[[nodiscard]] layout::Stats SparseRowStatisticOf(const TensorView& tensor, bool packed);

/// Checks that the table's entries for the keys of the sequences are pages that exist. @return kInvalidArgument:
/// "block_table[0][3]=12, want 0..11"
[[nodiscard]] Status CheckSparsePages(const layout::BlockTable& table, const SparseSequences& sequences);

/// Returns the given scale, or the default 1 / sqrt(columns). @return kInvalidArgument if the scale is not finite
[[nodiscard]] Result<float> BindSparseScale(const float* given, int64_t columns);

/// Checks in Run that the tensors are the planned ones, and that no output shares an element with another tensor.
[[nodiscard]] Status CheckSparseTensors(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_TENSORS_H_
