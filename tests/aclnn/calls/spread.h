#ifndef FA_TESTS_ACLNN_SPREAD_H_
#define FA_TESTS_ACLNN_SPREAD_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "acl/acl.h"
#include "fa/tensor.h"

namespace fa::test {

/// A copy of an f32 tensor. The first element of the copy is element 5 of the copy's memory. Within a row, neighbouring
/// elements lie three apart.
class Spread {
 public:
  explicit Spread(const TensorView& dense) : shape_(dense.shape.begin(), dense.shape.end()) {
    size_t elements = 1;
    stride_.resize(shape_.size());
    for (size_t i = shape_.size(); i-- > 0;) {
      stride_[i] = static_cast<int64_t>(elements * kStep);
      elements *= static_cast<size_t>(shape_[i]);
    }
    values_.assign(elements * kStep + kOffset, kUntouched);
    const auto* from = static_cast<const float*>(dense.data);
    for (size_t x = 0; x < elements; ++x) values_[kOffset + x * kStep] = from[x];
    tensor_ = aclCreateTensor(shape_.data(), shape_.size(), ACL_FLOAT, stride_.data(), kOffset, ACL_FORMAT_ND,
                              shape_.data(), shape_.size(), values_.data());
  }
  ~Spread() { aclDestroyTensor(tensor_); }
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  [[nodiscard]] aclTensor* tensor() const { return tensor_; }
  /// Returns the elements, and checks that nothing was written between them.
  [[nodiscard]] std::vector<float> Values() const {
    std::vector<float> values;
    for (size_t x = 0; x < values_.size(); ++x) {
      if (x >= kOffset && (x - kOffset) % kStep == 0) {
        values.push_back(values_[x]);
      } else {
        EXPECT_EQ(values_[x], kUntouched) << "memory between the elements, at " << x;
      }
    }
    return values;
  }

 private:
  static constexpr float kUntouched = -77;
  static constexpr size_t kStep = 3, kOffset = 5;
  std::vector<int64_t> shape_, stride_;
  std::vector<float> values_;
  aclTensor* tensor_ = nullptr;
};

/// Returns the elements of a dense f32 tensor.
[[nodiscard]] inline std::vector<float> DenseValues(const TensorView& dense) {
  const auto* data = static_cast<const float*>(dense.data);
  const int64_t elements = std::accumulate(dense.shape.begin(), dense.shape.end(), int64_t{1}, std::multiplies<>());
  return {data, data + elements};
}

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_SPREAD_H_
