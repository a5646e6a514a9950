#ifndef FA_CACHE_ROWS_H_
#define FA_CACHE_ROWS_H_

/// @file
/// Writes rows of keys and values into paged caches, and reads them back. A cache may have 8-bit elements.
/// @code{.cpp}
/// // Three tokens of 2 heads go to rows 5, 6 and 9 of a cache of 4 pages of 8 rows.
/// std::vector<uint16_t> key(3 * 2 * 64), cache(4 * 8 * 2 * 64);
/// const std::vector<int32_t> slots = {5, 6, 9};
/// fa::ScatterRowsArgs args;
/// args.key = fa::View(key, fa::DType::kBF16, {3, 2, 64});
/// args.slot_mapping = fa::View(slots, {3});
/// args.key_cache = fa::View(cache, fa::DType::kBF16, {4, 8, 2, 64});
/// return fa::ScatterRows(args, {});
/// @endcode

#include <cstdint>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// How the dimensions of a paged cache lie: pages (Bn), rows of a page (Bs), heads (N), head size (D).
enum class CacheForm : uint8_t {
  kBnBsND,  ///< [Bn, Bs, N, D]
  kBnNBsD,  ///< [Bn, N, Bs, D]
  kNZ,      ///< [Bn, N, D/L, Bs, L] or [Bn, N*D/L, Bs, L]: columns in chunks of L, any divisor of D
};

/// Returns "BnBsND", "BnNBsD" or "NZ".
[[nodiscard]] FA_API const char* Name(CacheForm form);

/// Rows that go into a cache. Key and value may differ in head size and type. Elements have any strides and any type.
/// If rows and cache have one type, bytes are copied unchanged.
///
/// Rows of f32, f16 or bf16 are quantised into a cache of i8 or f8e4m3: an element becomes the code of x / scale in
/// f32, rounded to the nearest code, ties to even, and saturated to -128..127 or -448..448. DecodeAttention reads x as
/// code * scale. The scale comes from one of two sources:
/// - ScatterRows computes a scale per place and head and writes it to key_scale_cache. The scale is the largest |x| of
///   the head's columns, divided by 127 (i8) or 448 (f8e4m3). If the scale is 0, all codes are 0. If a column is not
///   finite, the scale is NaN and all codes are 0, so that reading the place gives NaN.
/// - The caller gives the scale, key_scale. Then NaN becomes 0 (i8) or NaN (f8e4m3), and infinities saturate.
struct ScatterRowsArgs {
  TensorView key;           ///< [T, N, D]
  TensorView value;         ///< [T, N, Dv], or absent together with value_cache
  TensorView slot_mapping;  ///< i32 or i64 [T]: the place of row t, page * Bs + row; a negative place skips the row
  /// i32 or i64 [T]: row source_rows[t] of key and value goes to place slot_mapping[t]. Key and value may then have any
  /// number of rows. Absent: row t goes to place slot_mapping[t].
  TensorView source_rows;
  TensorView key_scale, value_scale;  ///< f32 [1] or [N], positive and finite: given scales of quantised caches
  MutableTensorView key_cache;        ///< shape as ScatterRowsOptions::form says; type of key, i8 or f8e4m3
  MutableTensorView value_cache;      ///< shape as ScatterRowsOptions::form says, with Dv; type of value, i8 or f8e4m3
  /// Scales of quantised caches, which the call writes: f32 [Bn, N, Bs, 1], any strides, for every CacheForm.
  /// DecodeAttentionArgs::k_scale has the same shape.
  MutableTensorView key_scale_cache, value_scale_cache;
};

/// The form of both caches.
struct ScatterRowsOptions {
  CacheForm form = CacheForm::kBnBsND;
};

/// Writes rows to their places; the rest of the caches stays as it is. If several rows have one place, the last one
/// remains. All places are checked before anything is written.
/// @return kInvalidArgument with the name of the tensor or of its entry. Caches must not overlap each other or an
/// input. The function is re-entrant and follows ScatterPaKvCache of CANN.
FA_API Status ScatterRows(const ScatterRowsArgs& args, const ScatterRowsOptions& options, Context* context = nullptr);

/// Plans a call of ScatterRows. The function reads shapes, strides, types and which tensors are present.
FA_API Result<PlanFor<ScatterRowsArgs>> PlanScatterRows(const ScatterRowsArgs& args, const ScatterRowsOptions& options,
                                                        Context* context = nullptr);

/// The tensors of GatherRows, which reads sequences from paged caches.
struct GatherRowsArgs {
  TensorView key_cache;     ///< shape as GatherRowsOptions::form says; any type
  TensorView value_cache;   ///< shape as GatherRowsOptions::form says; may differ from key_cache in D and type
  TensorView block_table;   ///< i32 or i64 [B, n]: the pages of each sequence
  TensorView seq_lens;      ///< i32 or i64 [B]: rows per sequence. If cumulative: prefix sums [B + 1] that begin with 0
  TensorView seq_offset;    ///< i32 or i64 [B], or absent: rows to skip at the start of each sequence, a multiple of Bs
  MutableTensorView key;    ///< [T, N, D], type of key_cache; for NZ of rank 4 also [T, N*D]
  MutableTensorView value;  ///< [T, N, Dv], type of value_cache
};

/// The form of both caches and of the lengths.
struct GatherRowsOptions {
  CacheForm form = CacheForm::kBnBsND;
  bool cumulative = false;  ///< seq_lens holds prefix sums
};

/// Copies the rows of all sequences in order. If a row lies past the end of the table, or its entry names no page,
/// zeros are written. Rows past T are dropped. Rows of `key` and `value` past the last sequence stay as they are.
/// Lengths and offsets are checked before anything is written.
/// @return kInvalidArgument with the name of the tensor or of its entry. Outputs must not overlap each other or an
/// input. The function is re-entrant and follows GatherPaKvCache of CANN.
FA_API Status GatherRows(const GatherRowsArgs& args, const GatherRowsOptions& options, Context* context = nullptr);

/// Plans a call of GatherRows. The function reads shapes, strides, types and which tensors are present.
FA_API Result<PlanFor<GatherRowsArgs>> PlanGatherRows(const GatherRowsArgs& args, const GatherRowsOptions& options,
                                                      Context* context = nullptr);

}  // namespace fa

#endif  // FA_CACHE_ROWS_H_
