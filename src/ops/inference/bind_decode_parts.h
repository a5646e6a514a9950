#ifndef FA_OPS_BIND_DECODE_PARTS_H_
#define FA_OPS_BIND_DECODE_PARTS_H_

#include <cstdint>
#include <span>
#include <string>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/inference/bind_decode.h"

namespace fa::ops {

/// A decode while it is bound. Each part checks its arguments and fills its fields of `bound`.
struct DecodeBinding {
  const DecodeAttentionArgs& args;
  const DecodeAttentionOptions& options;
  BoundDecode& bound;
  layout::Axes axes;  ///< of the call's layout
  // These tensors have another form in the equivalent dense call. k, k_rope and v have no memory there.
  TensorView k = {}, k_rope = {}, v = {}, pse = {}, dense_mask = {};
  bool own_types = false;  ///< the types of query, keys, values and out have been checked

  /// Whether queries and keys are multiplied as bytes. Otherwise i8 keys stand for numbers of the type of q.
  [[nodiscard]] bool int8_products() const { return args.q.dtype == DType::kI8; }
  [[nodiscard]] bool has_rope() const { return args.q_rope.data != nullptr; }
  [[nodiscard]] bool paged() const { return args.block_table.data != nullptr; }
  [[nodiscard]] int64_t batch() const { return args.q.shape[axes.batch]; }
};

/// "k", or "k[2]" if there are several tensors.
[[nodiscard]] std::string NameInList(const char* list, std::span<const TensorView> tensors, size_t i);

/// Binds the dense call.
[[nodiscard]] Status BindDense(DecodeBinding& call, std::span<const int64_t> lengths_kv);

// The forms of keys and values. Each function makes the tensors that stand for them in the dense call, and binds that
// call.
[[nodiscard]] Status BindKeyList(DecodeBinding& call);   ///< one tensor per batch element
[[nodiscard]] Status BindKeyPages(DecodeBinding& call);  ///< pages, block_table

[[nodiscard]] Status BindAntiquant(DecodeBinding& call);  ///< antiquant, antiquant_scale, antiquant_offset

}  // namespace fa::ops

#endif  // FA_OPS_BIND_DECODE_PARTS_H_
