#ifndef FA_TESTS_OPS_BIND_GRAD_CALL_H_
#define FA_TESTS_OPS_BIND_GRAD_CALL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bind_call.h"
#include "fa/flash_attention_grad.h"
#include "ops/bind/bind_attention_grad.h"

namespace fa::test {

/// A valid backward call for BindCall's forward, into which tests put mistakes. It has no optional gradients.
struct GradCall {
  explicit GradCall(const CallShape& shape = {}) : GradCall(BindCall(shape)) {}
  explicit GradCall(const BindCall& forward);

  /// Returns a call with a pse of this shape and type, and with its gradient dpse.
  [[nodiscard]] static GradCall WithDPse(const CallShape& shape, const Dims& pse, DType dtype = DType::kF32);
  /// Returns a call with slopes of this shape, and with their gradient.
  [[nodiscard]] static GradCall WithDSlopes(const Dims& slopes);
  [[nodiscard]] static MutableTensorView Like(const TensorView& tensor) {
    return BindCall::Output(tensor.dtype, tensor.shape);
  }

  [[nodiscard]] Result<ops::BoundAttentionGrad> Bind() const;
  /// Binds the call, then checks its arguments with CheckGradRunArgs.
  [[nodiscard]] Status Run() const;
  [[nodiscard]] AttentionGradArgs WithLengths() const;

  AttentionGradArgs args;
  AttentionOptions options;
  std::vector<int64_t> cu_q, cu_kv;
};

/// Expects that Bind refuses the call.
[[nodiscard]] ::testing::AssertionResult Refused(const GradCall& call, const std::string& text);
[[nodiscard]] ::testing::AssertionResult Runs(const GradCall& call);

/// Returns the shape of four packed sequences, one without queries and one without keys. The tensors have two more rows
/// than the sequences.
[[nodiscard]] CallShape PackedShape();

}  // namespace fa::test

#endif  // FA_TESTS_OPS_BIND_GRAD_CALL_H_
