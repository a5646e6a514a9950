#ifndef FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_
#define FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_

#include <cstdint>

#include "fa/context.h"

/// The contracts of the kernels between the products of the indexer, over the score tiles of kernel_types.h. Sums over
/// heads are one chain in ascending order in either form, so a key's score has the same bits whether keys or heads lie
/// along the lanes, and whatever the width. max(0, NaN) is NaN.
namespace fa::core::kernels {

/// The bucket of a score x is max(top - b, 0) >> shift, but at most `last`; b is the bits of max(x - floor, 0) + rise.
struct KeyBuckets {
  float floor, rise;  ///< floor finite, rise >= 0
  int32_t top;        ///< bits of a float
  int shift;
  int32_t last;
};

/// What a level offers. Widths are multiples of its vectors.
struct IndexerFunctions {
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

  /// keys[i] = the key of scores[i], i < n.
  void (*order_scores)(const float* scores, int64_t n, uint32_t* keys);
  /// The number of keys that are at most `last`.
  int64_t (*keys_up_to)(const uint32_t* keys, int64_t n, uint32_t last);
  /// Writes the keys in [first, last] of the scores, and the numbers of these scores, in ascending order. There is room
  /// for kKeysBehind more.
  /// @return their number
  int64_t (*scores_within)(const float* scores, int64_t n, uint32_t first, uint32_t last, uint32_t* keys,
                           int32_t* indices);
  static constexpr int64_t kKeysBehind = 16;
  /// The bucket of every key; no key is that of a NaN. Buckets ascend, weakly, with the keys.
  void (*bucket_keys)(const uint32_t* keys, int64_t n, const KeyBuckets& buckets, uint16_t* bucket);
};

struct IndexerKernels : IndexerFunctions {
  const char* name = nullptr;  ///< "indexer_avx512"
};

/// The kernels for a level, which may be kernels of a level below. If this CPU lacks that level, functions are null.
[[nodiscard]] const IndexerKernels& IndexerKernelsFor(Isa isa);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_
