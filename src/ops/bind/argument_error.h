#ifndef FA_OPS_ARGUMENT_ERROR_H_
#define FA_OPS_ARGUMENT_ERROR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "fa/error_text.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

/// Returns the text that stands for an argument in an error: Arg("k"), Arg("k", ".shape"), Arg("k", ".shape", At(2)). A
/// name is a field of an operator's Args or Options struct. The name "mask.pre" stands for a part of a field. The name
/// "k[1]" stands for an element of a field that is a list.
[[nodiscard]] ErrorText Arg(std::string_view name, std::string_view member = {}, std::string_view index = {});
/// Returns an index as text: "[3]".
[[nodiscard]] std::string At(int64_t index);
/// Returns the shortest text that reads back as the same number: "0.5", "nan".
[[nodiscard]] std::string Text(float number);
[[nodiscard]] inline std::string Text(int64_t number) { return std::to_string(number); }
/// Returns dimensions as text: "[2,3,4]".
[[nodiscard]] std::string Text(const Dims& dims);

/// A piece of an error's text, which may name arguments.
struct Words {
  Words(const char* words) : text(words) {}                     // NOLINT(google-explicit-constructor)
  Words(std::string words) : text(std::move(words)) {}          // NOLINT(google-explicit-constructor)
  Words(ErrorText error_text) : text(std::move(error_text)) {}  // NOLINT(google-explicit-constructor)
  ErrorText text;
};

/// The source of a wanted size. The error prints the source as "q.shape[2]", as the name of an argument, or as words.
struct SizeSource {
  static constexpr int kWords = -1, kArgument = -2;
  const char* text;
  int dim = kWords;
};

/// The error "invalid argument: k.shape[2]=5, want 7 (q.shape[2])".
[[nodiscard]] Status WrongSize(const char* tensor, int dim, int64_t got, int64_t want, SizeSource source);
/// The error "invalid argument: k.shape[2]=5, <rest>".
[[nodiscard]] Status WrongSize(const char* tensor, int dim, int64_t got, const Words& rest);
/// The error "invalid argument: k.dtype=f16, want f32 (q.dtype)".
[[nodiscard]] Status WrongType(const char* tensor, DType got, const Words& want);
/// Returns a type and the tensor that it comes from, as text: "f32 (q.dtype)".
[[nodiscard]] ErrorText TypeOf(const char* tensor, DType dtype);

/// Checks that the type is known, and that the tensor has at most 8 dimensions and at most 2^60 elements. No size or
/// stride may be negative, and the span in bytes must fit into 64 bits. The innermost stride must be 1 unless
/// any_innermost is set. A dimension of one element may have any stride.
[[nodiscard]] Status CheckView(const char* name, const TensorView& tensor, bool any_innermost = false);

[[nodiscard]] inline Status CheckSize(const char* name, const TensorView& tensor, int dim, int64_t want,
                                      SizeSource source) {
  return tensor.shape[dim] == want ? Status::Ok() : WrongSize(name, dim, tensor.shape[dim], want, source);
}

}  // namespace fa::ops

#endif  // FA_OPS_ARGUMENT_ERROR_H_
