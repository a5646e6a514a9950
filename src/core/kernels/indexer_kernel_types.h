#ifndef FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_
#define FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_

#include <cstdint>

#include "fa/context.h"

/// The contracts of the kernels between the products of the indexer, over the score tiles of kernel_types.h. Sums over
/// heads are one chain in ascending order in either form, so a key's score has the same bits whether keys or heads lie
/// along the lanes, and whatever the width. max(0, NaN) is NaN.
namespace fa::core::kernels {

/// What a level offers. Widths are multiples of its vectors.
struct IndexerKernels {
  const char* name;  ///< "indexer_avx512"
  Isa isa;

  /// Lanes are keys: sum[lane] (+)= sum over heads of weight[head] * max(0, s[head][lane]).
  void (*add_heads)(const float* s, int64_t heads, int64_t width, const float* weight, bool accumulate, float* sum);

  // Lanes are heads: s[key][width], of which the first `heads` lanes are in use.

  /// sum[key] (+)= sum over lanes of weight[lane] * f(s[key][lane]); f is max(0, .) or the identity.
  void (*sum_lanes)(const float* s, int64_t keys, int64_t width, int64_t heads, const float* weight, bool relu,
                    bool accumulate, float* sum);
  /// s = 2^(factor * s - shift[lane]), of all lanes; 0 for an infinite shift.
  void (*probabilities)(float* s, int64_t keys, int64_t width, float factor, const float* shift);
  /// d_weight[lane] += sum over keys of d_value[key] * max(0, s), and s = s > 0 ? weight[lane] * d_value[key] : 0; of
  /// all lanes.
  void (*relu_gradient)(float* s, int64_t keys, int64_t width, const float* weight, const float* d_value,
                        float* d_weight);

  // Selection of the largest scores. Keys ascend where scores descend; -0 counts as +0, NaN has the last key, all ones.

  /// keys[i] of scores[i], i < n; range[0] the least and range[1] the greatest of them, n > 0.
  void (*order_scores)(const float* scores, int64_t n, uint32_t* keys, uint32_t* range);
  /// The keys in [first, last], in their order. `chosen` may be keys, else it has room for n. @return how many
  int64_t (*keys_within)(const uint32_t* keys, int64_t n, uint32_t first, uint32_t last, uint32_t* chosen);
  /// (key - first) << 32 | index of the same, with room for kEntriesBehind more than they are.
  int64_t (*entries_within)(const uint32_t* keys, int64_t n, uint32_t first, uint32_t last, uint64_t* entries);
  static constexpr int64_t kEntriesBehind = 16;
};

/// The kernels for a level; a level without its own has those of the one below.
[[nodiscard]] const IndexerKernels& IndexerKernelsFor(Isa isa);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_
