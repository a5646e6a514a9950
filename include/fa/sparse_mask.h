#ifndef FA_SPARSE_MASK_H_
#define FA_SPARSE_MASK_H_

/// @file
/// Which keys a query token of the sparse operators may select.
/// @code{.cpp}
/// std::vector<float> q(128 * 16 * 64), k(4096 * 64), weights(128 * 16);
/// std::vector<int32_t> indices(128 * 512);
/// fa::LightningIndexerArgs args;
/// args.q = fa::View(q.data(), {1, 128, 16, 64});
/// args.k = fa::View(k.data(), {1, 4096, 1, 64});
/// args.weights = fa::View(weights.data(), {1, 128, 16});
/// args.sparse_indices = fa::View(indices.data(), {1, 128, 1, 512});
/// return fa::LightningIndexer(args, {.mask = fa::SparseMask::kNone});  // every token may select any key
/// @endcode

#include <cstdint>

namespace fa {

/// Which keys a query token may select: token t may select key j if j < limit(t). The values are the device's
/// sparseMode. With 3 tokens and 5 keys (x: may be selected):
/// @code{.unparsed}
///   kNone        kRightDownCausal
///   x x x x x    x x x . .
///   x x x x x    x x x x .
///   x x x x x    x x x x x
/// @endcode
enum class SparseMask : uint8_t {
  kNone = 0,  ///< limit = number of keys of the sequence
  /// limit = keys in use - queries in use + t + 1; a row whose limit is <= 0 has no keys.
  kRightDownCausal = 3,
  /// A band around the token, only for original keys of SharedKvAttention (SharedKvOptions::window_left).
  kBand = 4,
};

}  // namespace fa

#endif  // FA_SPARSE_MASK_H_
