#ifndef FA_ACLNN_OPDEV_FP16_T_H_
#define FA_ACLNN_OPDEV_FP16_T_H_

/// The type of f16 numbers in C++ programs for the device. A program that includes this header links libfa_aclnn.
#include <stdint.h>

#include <type_traits>

#include "acl/acl_base.h"

namespace op {

/// An IEEE 754 binary16 number. Arithmetic with it is done in float. Numbers of other types are converted to float
/// first, so a double is rounded twice.
struct fp16_t {
  uint16_t val;  ///< the bits of the number

  fp16_t() : val(0) {}
  /// Takes the bits of the number, as on the device. The other constructors take its value.
  fp16_t(uint16_t bits) : val(bits) {}
  template <typename T, typename = typename std::enable_if<std::is_arithmetic<T>::value>::type>
  fp16_t(T number) : val(aclFloatToFloat16(static_cast<float>(number))) {}

  operator float() const { return aclFloat16ToFloat(val); }
  float toFloat() const { return aclFloat16ToFloat(val); }

  fp16_t& operator+=(float number) { return *this = toFloat() + number; }
  fp16_t& operator-=(float number) { return *this = toFloat() - number; }
  fp16_t& operator*=(float number) { return *this = toFloat() * number; }
  fp16_t& operator/=(float number) { return *this = toFloat() / number; }
};

}  // namespace op

#endif  // FA_ACLNN_OPDEV_FP16_T_H_
