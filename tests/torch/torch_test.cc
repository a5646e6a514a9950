// A C++ program of PyTorch reaches fa's kernels through PyTorch's own functions.
#include "fa/torch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fa/version.h"

namespace {

constexpr const char* kForward = "_scaled_dot_product_flash_attention_for_cpu";
constexpr const char* kBackward = "_scaled_dot_product_flash_attention_for_cpu_backward";
constexpr const char* kPacked = "_flash_attention_forward";
constexpr const char* kPackedBackward = "_flash_attention_backward";

struct Inputs {
  at::Tensor q = at::randn({2, 4, 33, 16}), k = at::randn({2, 4, 33, 16}), v = at::randn({2, 4, 33, 16});

  [[nodiscard]] at::Tensor Attend() const {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  }
};

/// Counts the calls of an operator since the construction of this object.
class Calls {
 public:
  explicit Calls(const char* op) : op_(op), before_(fa_torch_calls(op)) {}
  [[nodiscard]] uint64_t made() const { return fa_torch_calls(op_) - before_; }

 private:
  const char* op_;
  uint64_t before_;
};

double LargestOf(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

// A result is a mean of values of magnitude below 8, with weights that sum up to 1. A score adds 16 products of
// magnitude below 64 and scales the sum by 1/4, so it is off by less than 2^-24 (16 + 8) * 16 * 64 / 4. The relative
// error of a weight is twice the error of a score. The error of a result is 8 times the error of a weight.
constexpr double kBound = 0x1p-24 * 24 * 256 * 2 * 8;

TEST(Load, ActivatesIfTheVariableSaysSo) {
  const char* variable = std::getenv("FA_TORCH_ACTIVATE");
  const bool asked = variable != nullptr && std::string_view(variable) == "1";
  const at::Tensor out = Inputs().Attend();
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_EQ(fa_torch_calls(kForward), asked ? 1U : 0U);
}

TEST(Load, TheLibraryHasTheVersionOfItsHeaders) { EXPECT_STREQ(fa_torch_version(), FA_VERSION_STRING); }

TEST(Activation, ReachesFaUntilDeactivation) {
  const Inputs in;
  fa_torch_deactivate();
  const at::Tensor before = in.Attend();
  const Calls calls(kForward);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(fa_torch_activate(), 0);
  const at::Tensor own = in.Attend();
  EXPECT_EQ(calls.made(), 1U);
  EXPECT_FALSE(at::equal(own, before)) << "PyTorch's kernel has other bits";
  EXPECT_EQ(own.strides(), before.strides());
  EXPECT_LE(LargestOf(own - before), kBound);
  fa_torch_deactivate();
  EXPECT_TRUE(at::equal(in.Attend(), before));
  EXPECT_EQ(calls.made(), 1U);
  EXPECT_EQ(fa_torch_calls("no such operator"), 0U);
  EXPECT_EQ(fa_torch_calls(nullptr), 0U);
}

TEST(Activation, Float64IsPyTorchs) {
  const at::Tensor q = at::randn({1, 2, 9, 8}, at::kDouble);
  const at::Tensor want = at::scaled_dot_product_attention(q, q, q);
  ASSERT_EQ(fa_torch_activate(), 0);
  const Calls calls(kForward);
  EXPECT_TRUE(at::equal(at::scaled_dot_product_attention(q, q, q), want));
  EXPECT_EQ(calls.made(), 1U);
  fa_torch_deactivate();
}

TEST(Activation, HeadsAbove1024ArePyTorchs) {
  const at::Tensor q = at::randn({1, 2, 5, 1025});
  const at::Tensor want = at::scaled_dot_product_attention(q, q, q);
  ASSERT_EQ(fa_torch_activate(), 0);
  EXPECT_TRUE(at::equal(at::scaled_dot_product_attention(q, q, q), want));
  fa_torch_deactivate();
}

TEST(Activation, GradientsAreThoseOfPyTorch) {
  const Calls calls(kBackward);
  at::Tensor gradients[2][3];
  for (int own = 0; own < 2; ++own) {
    at::manual_seed(7);
    Inputs in;
    for (at::Tensor* tensor : {&in.q, &in.k, &in.v}) tensor->set_requires_grad(true);
    if (own == 1) {
      ASSERT_EQ(fa_torch_activate(), 0);
    }
    in.Attend().sum().backward();
    for (int i = 0; i < 3; ++i) gradients[own][i] = (i == 0 ? in.q : i == 1 ? in.k : in.v).grad();
  }
  EXPECT_EQ(calls.made(), 1U);
  fa_torch_deactivate();
  // Gradients are sums of 33 terms, each with the error of a result.
  for (int i = 0; i < 3; ++i) EXPECT_LE(LargestOf(gradients[0][i] - gradients[1][i]), 33 * kBound);
}

TEST(Packed, SequencesAreThoseOfWholeBatches) {
  ASSERT_EQ(fa_torch_activate(), 0);
  const Inputs in;
  const Calls forward(kPacked), backward(kPackedBackward);
  at::Tensor packed[3];
  for (int i = 0; i < 3; ++i) {
    packed[i] = (i == 0 ? in.q : i == 1 ? in.k : in.v).transpose(1, 2).reshape({66, 4, 16}).set_requires_grad(true);
  }
  const at::Tensor sums = at::tensor({0, 33, 66}, at::kInt);
  const auto results =
      at::_flash_attention_forward(packed[0], packed[1], packed[2], sums, sums, 33, 33, 0.0, true, false);
  const at::Tensor out = std::get<0>(results);
  const at::Tensor bottom_right = in.Attend();  // with as many queries as keys, both causal masks are the same
  EXPECT_TRUE(at::equal(out.reshape({2, 33, 4, 16}).transpose(1, 2), bottom_right));
  out.sum().backward();
  EXPECT_TRUE(packed[0].grad().isfinite().all().item<bool>());
  EXPECT_EQ(forward.made(), 1U);
  EXPECT_EQ(backward.made(), 1U);
  fa_torch_deactivate();
}

TEST(Errors, AreExceptionsThatNameTheArgument) {
  ASSERT_EQ(fa_torch_activate(), 0);
  const Inputs in;
  try {
    at::_scaled_dot_product_flash_attention_for_cpu(in.q, in.k, in.v, 0.5);
    ADD_FAILURE() << "no exception";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("invalid argument: dropout_p=0.5, want 0"), std::string::npos)
        << error.what();
  }
  fa_torch_deactivate();
}

}  // namespace
