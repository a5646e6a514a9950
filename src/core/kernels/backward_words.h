#ifndef FA_CORE_KERNELS_BACKWARD_WORDS_H_
#define FA_CORE_KERNELS_BACKWARD_WORDS_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// What a BackwardWordsKernel takes: scores s[keys][width] and dp[keys][width], and where their results go.
struct BackwardWordsArgs {
  const float *s = nullptr, *dp = nullptr;
  int64_t keys = 0;
  float factor = 0;
  const float *shift = nullptr, *delta = nullptr;
  float *p = nullptr, *ds = nullptr;  ///< as pair_lanes leaves them
  float* ds_pairs = nullptr;          ///< as pair_keys leaves it
};

/// backward_softmax, pair_lanes of p and ds, and pair_keys of ds in one pass, with the bits of the four.
using BackwardWordsKernel = void(const BackwardWordsArgs& args);

/// That of a strip; null: its level has none. Only avx512_bf16 has one: on Zen 4 the products of a vector of scores
/// with a head of 128 take 64 cycles each, the backward's softmax alone takes 15, and the passes that round come on
/// top.
[[nodiscard]] BackwardWordsKernel* BackwardWordsOf(const StripKernels& strip);

namespace avx512_bf16 {
[[nodiscard]] BackwardWordsKernel* BackwardWordsOfWidth(int64_t width);
/// The f32 kernels of the level below, whose products store the rows of a register block as they end.
[[nodiscard]] const KernelTable& F32Table() noexcept;
}  // namespace avx512_bf16

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_BACKWARD_WORDS_H_
