#ifndef FA_TOOLS_FA_CASES_SOME_ROWS_H_
#define FA_TOOLS_FA_CASES_SOME_ROWS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "fa/sequence_shards.h"

namespace fa::tool {

/// The rows that one rank holds of a tensor with equally long sequences.
struct HeldRows {
  // The row numbers within each sequence, or if packed, within the whole pack.
  const std::vector<SequenceShards::Interval>& intervals;
  int64_t batch = 0, heads = 0;
  int64_t length = 0;  ///< rows of a sequence
  bool packed = false;
};

/// Calls check(batch, head, row) for the first and the last row, where masks and tails differ most, and for `random`
/// rows between. Without rows it calls nothing. The chosen rows are the same in every run.
/// @return the largest error that a check returned, or 0 without rows
double CheckSomeRows(const HeldRows& rows, int random,
                     const std::function<double(int64_t batch, int64_t head, int64_t row)>& check);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_SOME_ROWS_H_
