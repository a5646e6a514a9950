// The demo's comparisons find an error that rounding does not explain, and they find a NaN anywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradients.h"
#include "layer.h"

namespace fa::demo {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
npy::Array Filled(npy::ElementType type, T value) {
  npy::Array array(type, {1, 2, 3, 4});
  for (T& element : array.as<T>()) element = value;
  return array;
}
npy::Array Floats(float value) { return Filled<float>(npy::ElementType::kF32, value); }
npy::Array Doubles(double value) { return Filled<double>(npy::ElementType::kF64, value); }

/// Returns a layer whose inputs are all 1. The output is the mean of ones, which is 1.
Layer OnesLayer() {
  Layer layer;
  for (npy::Array* array : {&layer.q, &layer.k, &layer.v, &layer.out}) *array = Floats(1);
  layer.want = Doubles(1);
  return layer;
}

/// Returns the gradients for an output gradient of ones. dq and dk are 0, because dO V^T equals delta. Each of three
/// queries adds 1/3 to dv.
Gradients OnesGradients() {
  Gradients gradients;
  for (npy::Array* array : {&gradients.d_out, &gradients.dv}) *array = Floats(1);
  for (npy::Array* array : {&gradients.dq, &gradients.dk}) *array = Floats(0);
  gradients.want_dv = Doubles(1);
  for (npy::Array* array : {&gradients.want_dq, &gradients.want_dk}) *array = Doubles(0);
  return gradients;
}

TEST(DemoForward, ANanCountsAsTheLargestErrorWhereverItStands) {
  Layer layer = OnesLayer();
  EXPECT_LE(CompareWithFloat64(layer).of_bound, 1);
  for (size_t at = 0; at < layer.out.as<float>().size(); ++at) {
    layer.out.as<float>()[at] = kNan;
    const Error error = CompareWithFloat64(layer);
    EXPECT_TRUE(std::isnan(error.max) && std::isnan(error.of_bound)) << at;
    layer.out.as<float>()[at] = 1;
  }
  layer.out.as<float>()[5] = 1.001F;
  EXPECT_GT(CompareWithFloat64(layer).of_bound, 1);
}

TEST(DemoBackward, ANanCountsAsTheLargestErrorWhereverItStands) {
  const Layer layer = OnesLayer();
  Gradients gradients = OnesGradients();
  EXPECT_LE(CompareWithFloat64(layer, gradients).of_bound, 1);
  for (npy::Array Gradients::*gradient : {&Gradients::dq, &Gradients::dk, &Gradients::dv}) {
    for (float& value : (gradients.*gradient).as<float>()) {
      const float before = value;
      value = kNan;
      const GradientErrors error = CompareWithFloat64(layer, gradients);
      EXPECT_TRUE(std::isnan(error.of_bound) && std::isnan(WorseOf(WorseOf(error.dq, error.dk), error.dv)));
      value = before;
    }
  }
}

}  // namespace
}  // namespace fa::demo
