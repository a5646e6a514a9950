#ifndef FA_OPS_BIND_DECODE_PARTS_H_
#define FA_OPS_BIND_DECODE_PARTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/inference/bind_decode.h"

namespace fa::ops {

inline constexpr int64_t kColumnsOfI4x8 = 8;  ///< columns per element of i4x8

/// A decode while it is bound. Each Bind function below checks its arguments and fills in its members of `bound`.
struct DecodeBinding {
  const DecodeAttentionArgs& args;
  const DecodeAttentionOptions& options;
  BoundDecode& bound;
  layout::Axes axes;  ///< the axes of the call's layout
  // The tensors that have another form in the equivalent dense call. In the dense call k, k_rope and v have no memory.
  TensorView k = {}, k_rope = {}, v = {}, pse = {}, dense_mask = {};
  /// args.k and args.v with one element per column. (An element of i4x8 has eight columns.)
  std::vector<TensorView> keys = {}, values = {};
  const FusedDecode* fused = nullptr;  ///< what fused inference adds; null for a decode
  bool own_types = false;              ///< whether the types of query, keys, values and out have been checked

  /// Returns whether queries, keys and values of 8 bits have scales.
  [[nodiscard]] bool scaled_queries() const { return fused != nullptr && fused->q_scale.data != nullptr; }
  /// Returns whether queries and keys are multiplied as bytes. Otherwise i8 keys are compressed.
  [[nodiscard]] bool int8_products() const { return args.q.dtype == DType::kI8 && !scaled_queries(); }
  /// Returns the type of the query in the dense call.
  [[nodiscard]] DType dense_type() const { return scaled_queries() ? DType::kF32 : args.q.dtype; }
  [[nodiscard]] bool has_rope() const { return args.q_rope.data != nullptr; }
  [[nodiscard]] bool paged() const { return args.block_table.data != nullptr; }
  [[nodiscard]] bool packed() const { return layout::IsPacked(options.layout); }
  /// Returns the number of batch elements or packed sequences.
  [[nodiscard]] int64_t batch() const {
    if (packed()) return static_cast<int64_t>(args.cu_q.size());
    return axes.batch >= 0 ? args.q.shape[axes.batch] : 1;
  }
  /// Returns the columns per head of the query, or 0 if BindDense refuses them.
  [[nodiscard]] int64_t QueryHeadSize() const {
    const int64_t extent = args.q.shape[axes.dim];
    if (!axes.fused()) return extent;
    return options.heads > 0 && extent % options.heads == 0 ? extent / options.heads : 0;
  }
};

/// Returns the name of a tensor of a list in errors: "k", or "k[2]" if there are several tensors.
[[nodiscard]] std::string NameInList(const char* list, std::span<const TensorView> tensors, size_t i);

/// Binds the equivalent dense call.
[[nodiscard]] Status BindDense(DecodeBinding& call, std::span<const int64_t> lengths_kv);

// BindKeyList and BindKeyPages make the tensors that stand for keys and values in the dense call, and bind that call.
[[nodiscard]] Status BindKeyList(DecodeBinding& call);   ///< binds keys and values with one tensor per batch element
[[nodiscard]] Status BindKeyPages(DecodeBinding& call);  ///< binds keys and values in pages, and block_table

/// Checks the views of compressed keys and values, and that heads of i4x8 are whole elements.
[[nodiscard]] Status CheckCompressed(const DecodeBinding& call);
/// Checks the types of a call with q_scale.
[[nodiscard]] Status CheckScaledTypes(const DecodeBinding& call);
/// If the call has q_scale, binds q_scale and the factor that multiplies probabilities. Call BindAntiquant first, which
/// binds the scales of keys.
[[nodiscard]] Status BindQueryScale(DecodeBinding& call);
[[nodiscard]] Status BindAntiquant(DecodeBinding& call);  ///< binds scales and offsets of compressed keys and values

}  // namespace fa::ops

#endif  // FA_OPS_BIND_DECODE_PARTS_H_
