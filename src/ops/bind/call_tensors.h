#ifndef FA_OPS_CALL_TENSORS_H_
#define FA_OPS_CALL_TENSORS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "fa/operators.h"
#include "fa/tensor.h"

namespace fa::ops {

/// One tensor of a call of any operator, with pointers into the arguments. A `required` tensor may have null data in a
/// plan. Any other tensor with null data is absent.
struct CallTensor {
  const char* name;  ///< the tensor's name in errors
  const void* data;
  DType dtype;
  const Dims* shape;
  const Dims* stride;
  bool required;
  bool output;
};

/// The tensors of a call, stored inside this object.
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
  // Only the first count_ entries are set. Setting the others would take 5 % of the time of a small call.
  std::array<CallTensor, kMost> tensors_;
  size_t count_;
};

/// Returns all tensors of a call, inputs before outputs. Lists of tensors are left out.
#define FA_TENSORS_OF(name, function, Args, Options, text) [[nodiscard]] CallTensors TensorsOf(const Args& args);
FA_OPERATORS(FA_TENSORS_OF)
#undef FA_TENSORS_OF
/// Returns one tensor of a list, such as the keys of a decode.
[[nodiscard]] CallTensor ListedTensor(const char* name, const TensorView& tensor);

}  // namespace fa::ops

#endif  // FA_OPS_CALL_TENSORS_H_
