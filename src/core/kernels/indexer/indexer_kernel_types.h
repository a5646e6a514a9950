#ifndef FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_
#define FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_

#include <cstdint>

#include "fa/context.h"

/// The indexer's functions on tiles of scores, which the strips of kernel_types.h compute. Either keys or heads lie
/// along the lanes of a tile. In both forms a sum over heads adds the heads in ascending order, at any width. So a
/// key's score always has the same bits. max(0, NaN) is NaN.
namespace fa::core::kernels {

/// Maps scores to buckets, so that larger scores have lower buckets. Let b be the bits of max(x - floor, 0) + rise as
/// an integer. The bucket of a score x is min(max(top - b, 0) >> shift, last).
struct KeyBuckets {
  float floor, rise;  ///< floor is finite, and rise is at least 0
  int32_t top;        ///< the bits of a float
  int shift;
  int32_t last;
};

/// The indexer's functions on a level. Widths are multiples of the lanes of its vectors.
struct IndexerFunctions {
  /// Lanes are keys: sum[lane] (+)= sum over heads of weight[head] * max(0, s[head][lane]).
  void (*add_heads)(const float* s, int64_t heads, int64_t width, const float* weight, bool accumulate, float* sum);

  // In the next functions, heads lie along the lanes: s[key][width], of which the first `heads` lanes are in use.

  /// sum[key] (+)= sum over lanes of weight[lane] * f(s[key][lane]), where f is max(0, .) if `relu` is set, else the
  /// identity.
  void (*sum_lanes)(const float* s, int64_t keys, int64_t width, int64_t heads, const float* weight, bool relu,
                    bool accumulate, float* sum);
  /// In all lanes: s = 2^(factor * s - shift[lane]), or 0 if the shift is infinite.
  void (*probabilities)(float* s, int64_t keys, int64_t width, float factor, const float* shift);
  /// In all lanes, d_weight[lane] += sum over keys of d_value[key] * max(0, s), and
  /// s = s > 0 ? weight[lane] * d_value[key] : 0.
  void (*relu_gradient)(float* s, int64_t keys, int64_t width, const float* weight, const float* d_value,
                        float* d_weight);

  // The next functions serve to select the largest scores. In them, a key is not a key of attention, but an integer by
  // which scores are sorted. The larger a score, the smaller its key. -0 counts as +0. NaN has the largest key, whose
  // bits are all ones.

  /// keys[i] = the key of scores[i], for i < n.
  void (*order_scores)(const float* scores, int64_t n, uint32_t* keys);
  /// Returns the number of keys that are at most `last`.
  int64_t (*keys_up_to)(const uint32_t* keys, int64_t n, uint32_t last);
  /// Finds the scores whose keys are in [first, last]. Writes these keys and the indices of their scores, in ascending
  /// order of the indices. Both arrays have room for kKeysBehind elements more than are found.
  /// @return the number of keys that were written
  int64_t (*scores_within)(const float* scores, int64_t n, uint32_t first, uint32_t last, uint32_t* keys,
                           int32_t* indices);
  static constexpr int64_t kKeysBehind = 16;
  /// Computes the bucket of every key. `keys` must not contain the key of NaN. A larger key never has a lower bucket.
  void (*bucket_keys)(const uint32_t* keys, int64_t n, const KeyBuckets& buckets, uint16_t* bucket);
};

struct IndexerKernels : IndexerFunctions {
  const char* name = nullptr;  ///< for example "indexer_avx512"
};

/// Returns the kernels for a level, which may be the kernels of a level below it. If this CPU lacks the level, the
/// functions are null.
[[nodiscard]] const IndexerKernels& IndexerKernelsFor(Isa isa);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_INDEXER_KERNEL_TYPES_H_
