#ifndef FA_OPS_CALL_TENSORS_H_
#define FA_OPS_CALL_TENSORS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "fa/operators.h"
#include "fa/tensor.h"

namespace fa::ops {

/// One tensor of a call of any operator. It points into the arguments. A `required` tensor may have null data in a
/// plan; any other tensor with null data is absent.
struct CallTensor {
  const char* name;  ///< in errors
  const void* data;
  DType dtype;
  const Dims* shape;
  const Dims* stride;
  bool required;
  bool output;
};

/// The tensors of a call, in place.
class CallTensors {
 public:
  static constexpr size_t kMost = 24;

  template <size_t kCount>
  CallTensors(const std::array<CallTensor, kCount>& tensors) : count_(kCount) {  // NOLINT(google-explicit-constructor)
    static_assert(kCount <= kMost);
    std::copy(tensors.begin(), tensors.end(), tensors_.begin());
  }
  [[nodiscard]] const CallTensor* begin() const { return tensors_.data(); }
  [[nodiscard]] const CallTensor* end() const { return tensors_.data() + count_; }
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] const CallTensor& operator[](size_t i) const { return tensors_[i]; }

 private:
  std::array<CallTensor, kMost> tensors_;  // set up to count_: the rest would cost a small call a twentieth
  size_t count_;
};

/// All tensors of a call, inputs before outputs. A decode's lists of keys and values are not among them.
#define FA_TENSORS_OF(name, function, Args, Options, text) [[nodiscard]] CallTensors TensorsOf(const Args& args);
FA_OPERATORS(FA_TENSORS_OF)
#undef FA_TENSORS_OF
/// One tensor of the lists of a decode.
[[nodiscard]] CallTensor KeyTensor(const char* name, const TensorView& tensor);

}  // namespace fa::ops

#endif  // FA_OPS_CALL_TENSORS_H_
