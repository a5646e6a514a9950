#ifndef FA_TILING_KEY_CUT_H_
#define FA_TILING_KEY_CUT_H_

#include <cstdint>

namespace fa::tiling {

/// Sequences of at most so many query rows have their keys cut into parts.
inline constexpr int64_t kDecodeRows = 16;

/// A part's state has room for at least so many folded rows: one vector of every level, and one strip of few rows.
inline constexpr int64_t kFewestStateLanes = 16;

/// Keys per part of a sequence; sk itself if its keys are not cut. Parts let one sequence keep all workers busy. Every
/// part starts from a fresh state of the online softmax, and parts are added in their order. Bits depend on this
/// number, so it is a function of (sq, sk) alone, whatever else is in the batch and whichever worker computes it.
[[nodiscard]] int64_t KeysOfAPart(int64_t sq, int64_t sk);

}  // namespace fa::tiling

#endif  // FA_TILING_KEY_CUT_H_
