#ifndef FA_TILING_BACKWARD_SHAPE_H_
#define FA_TILING_BACKWARD_SHAPE_H_

#include <cstdint>

#include "tiling/problem.h"

namespace fa::tiling {

/// Keys of a column of the backward: a function of d, d_rope, dv and ISA alone, because bits depend on it. 128, 64 or
/// 32.
[[nodiscard]] int64_t ChooseBackwardBlockK(const AttentionProblem& problem, Isa isa);

/// Rows of a tile, a multiple of machine.strip_rows.
[[nodiscard]] int64_t ChooseBackwardBlockQ(const AttentionProblem& problem, const Machine& machine, int64_t block_k);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_SHAPE_H_
