#ifndef FA_TOOLS_FA_CASES_SOME_ROWS_H_
#define FA_TOOLS_FA_CASES_SOME_ROWS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "fa/sequence_shards.h"

namespace fa::tool {

/// The rows of a tensor that one rank holds. All sequences of the tensor have equally many rows.
struct HeldRows {
  // The numbers of the rows within each sequence, or if packed, within all sequences together.
  const std::vector<SequenceShards::Interval>& intervals;
  int64_t batch = 0, heads = 0;
  int64_t length = 0;  ///< number of rows of each sequence of the tensor
  bool packed = false;
};

/// Calls check(batch, head, row) for the first row, which may see the fewest keys, and for the last row, which may see
/// the most. Also calls `check` for `random` rows, which are random but the same in every run.
/// @return the largest error that a check returned, or 0 without rows
double CheckSomeRows(const HeldRows& rows, int random,
                     const std::function<double(int64_t batch, int64_t head, int64_t row)>& check);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_SOME_ROWS_H_
