#ifndef FA_TILING_KEY_CUT_H_
#define FA_TILING_KEY_CUT_H_

#include <cstdint>

namespace fa::tiling {

/// The keys of a sequence are cut into parts only if it has at most this many query rows.
inline constexpr int64_t kDecodeRows = 16;

/// The state of a part has room for at least this many folded rows. That is enough for one vector of every level and
/// for one strip of few rows.
inline constexpr int64_t kFewestStateLanes = 16;

/// Returns the keys per part of a sequence, or sk itself if the sequence's keys are not cut. Parts let one sequence
/// keep all workers busy. The online-softmax states of the parts are merged in order. Bits depend on the number of keys
/// per part, so that number is a function of (sq, sk) alone.
[[nodiscard]] int64_t KeysOfAPart(int64_t sq, int64_t sk);

/// Returns an upper bound of the number of parts of a sequence with at most sk keys. Parts of long sequences grow in
/// steps, so a few more keys may mean fewer parts.
[[nodiscard]] int64_t MostParts(int64_t sk);

}  // namespace fa::tiling

#endif  // FA_TILING_KEY_CUT_H_
