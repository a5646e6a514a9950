#ifndef FA_TESTS_OPS_LIMITS_DENSE_SIZES_H_
#define FA_TESTS_OPS_LIMITS_DENSE_SIZES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/tensor.h"

namespace fa::test {

/// The sizes of a dense call.
struct DenseSizes {
  int64_t b = 1, n = 2, n_kv = 1, sq = 16, sk = 16, d = 8, dv = 8;
};

[[nodiscard]] std::string Text(const DenseSizes& s);

/// Returns the arguments of a call in layout BNSD. The memory of its tensors is far smaller than their shapes say, or
/// absent (claimed_tensors.h).
[[nodiscard]] AttentionArgs ForwardArgs(const DenseSizes& s, DType dtype = DType::kF32);
[[nodiscard]] AttentionGradArgs BackwardArgs(const DenseSizes& s, DType dtype = DType::kF32);

/// Returns calls with one absurd size, then with several at once, with and without rows and keys. A large machine can
/// hold plans of many millions of tasks. So for some dimensions the sizes begin at 2^40, where no machine has enough
/// memory.
[[nodiscard]] std::vector<DenseSizes> AbsurdDenseSizes();

}  // namespace fa::test

#endif  // FA_TESTS_OPS_LIMITS_DENSE_SIZES_H_
