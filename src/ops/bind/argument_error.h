#ifndef FA_OPS_ARGUMENT_ERROR_H_
#define FA_OPS_ARGUMENT_ERROR_H_

#include <cstdint>
#include <string>

#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

/// Where a wanted size comes from: printed as "query.shape[2]", or as the text alone when dim is negative.
struct SizeSource {
  const char* text;
  int dim = -1;
};

/// "invalid argument: key.shape[2]=5, want 7 (query.shape[2])"
[[nodiscard]] Status WrongSize(const char* tensor, int dim, int64_t got, int64_t want, SizeSource source);
/// "invalid argument: key.shape[2]=5, <rest>"
[[nodiscard]] Status WrongSize(const char* tensor, int dim, int64_t got, const std::string& rest);
/// "invalid argument: key.dtype=f16, want f32 (query.dtype)"
[[nodiscard]] Status WrongType(const char* tensor, DType got, const std::string& want);
/// "[2,3,4]"
[[nodiscard]] std::string Text(const Dims& dims);

/// Checks rank, sizes and strides of any tensor: known type; at most 8 dimensions, none negative, in all at most 2^60
/// elements (so that sums of sizes cannot overflow); strides as many, none negative, span within 64 bits; innermost
/// stride 1 unless any_innermost (a dimension of one element may have any stride).
[[nodiscard]] Status CheckView(const char* name, const TensorView& tensor, bool any_innermost = false);

[[nodiscard]] inline Status CheckSize(const char* name, const TensorView& tensor, int dim, int64_t want,
                                      SizeSource source) {
  return tensor.shape[dim] == want ? Status::Ok() : WrongSize(name, dim, tensor.shape[dim], want, source);
}

}  // namespace fa::ops

#endif  // FA_OPS_ARGUMENT_ERROR_H_
