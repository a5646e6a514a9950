#ifndef FA_TILING_KEY_CUT_H_
#define FA_TILING_KEY_CUT_H_

#include <cstdint>

namespace fa::tiling {

/// The keys of sequences of at most so many query rows are cut into parts.
inline constexpr int64_t kDecodeRows = 16;

/// The state of a part has room for at least so many folded rows: a vector of every level, and one strip of few rows.
inline constexpr int64_t kFewestStateLanes = 16;

/// Keys of one part of a sequence; sk itself where keys are not cut. Every part starts from a fresh state of the online
/// softmax, and parts are added in their order, so that one sequence keeps all workers busy. A function of (sq, sk)
/// alone, because bits depend on it: whatever else is in the batch, and whichever worker computes it.
[[nodiscard]] int64_t KeysOfAPart(int64_t sq, int64_t sk);

}  // namespace fa::tiling

#endif  // FA_TILING_KEY_CUT_H_
