#ifndef FA_TESTS_OPS_BIND_CALL_H_
#define FA_TESTS_OPS_BIND_CALL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "ops/bind/bind_attention.h"

namespace fa::test {

struct CallShape {
  Layout layout = Layout::kBNSD;
  int64_t batch = 2, heads = 6, heads_kv = 3, sq = 7, sk = 9, d = 16, dv = 8;
  DType dtype = DType::kF32;
  std::vector<int64_t> cu_q = {}, cu_kv = {};  ///< only for TND, where sq and sk count the packed rows
};

/// A valid dense call into which tests put mistakes. Its tensors lie far apart, and nothing reads their memory.
struct BindCall {
  explicit BindCall(const CallShape& shape = {});

  /// Returns a new address, far from all addresses returned before.
  static void* Somewhere();
  [[nodiscard]] static TensorView Tensor(DType dtype, Dims shape, Dims stride = {});
  [[nodiscard]] static MutableTensorView Output(DType dtype, Dims shape, Dims stride = {});
  /// Sets the mask that a sparse mode gives. If the mode is invalid, a later Bind returns the error.
  void SetSparseMode(int64_t mode, int64_t pre = Mask::kUnlimited, int64_t next = Mask::kUnlimited,
                     std::vector<int64_t> prefix = {});

  [[nodiscard]] Result<ops::BoundAttention> Bind() const;

  std::vector<int64_t> cu_q, cu_kv;
  AttentionArgs args;
  AttentionOptions options;
  Status sparse_mode_status;
};

/// Expects kInvalidArgument with `text` in the message.
[[nodiscard]] ::testing::AssertionResult Refused(const Status& status, const std::string& text);
[[nodiscard]] ::testing::AssertionResult Refused(const BindCall& call, const std::string& text);
[[nodiscard]] ::testing::AssertionResult Binds(const BindCall& call);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_BIND_CALL_H_
