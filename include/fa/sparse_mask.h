#ifndef FA_SPARSE_MASK_H_
#define FA_SPARSE_MASK_H_

#include <cstdint>

namespace fa {

/// The keys that a query token may select: key j of token t when j < limit(t). Values are the device's sparseMode.
enum class SparseMask : uint8_t {
  kNone = 0,             ///< limit = the sequence's keys
  kRightDownCausal = 3,  ///< limit = keys - queries + t + 1, of the lengths in use; <= 0: the row is empty
};

}  // namespace fa

#endif  // FA_SPARSE_MASK_H_
