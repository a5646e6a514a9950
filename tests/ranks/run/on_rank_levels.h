#ifndef FA_TESTS_RANKS_RUN_ON_RANK_LEVELS_H_
#define FA_TESTS_RANKS_RUN_ON_RANK_LEVELS_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "support/cases/forward_case.h"
#include "support/cases/rank_rows.h"
#include "support/execution/contexts.h"

/// What the tests of forward and of backward over ranks share.
namespace fa::test {

/// A test that runs on every level of RankLevels().
class OnRankLevels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    // Makes the contexts before the threads of the ranks ask for them.
    for (const Isa isa : IsaLevels()) static_cast<void>(ContextOf(isa, 1));
  }
};

/// Returns a case of one sequence under a mask of any mode. Every rank has some of its rows.
inline ForwardCase LongForwardCase(DType dtype, int mode, int64_t rows) {
  ForwardCase c;
  c.dtype = dtype;
  c.heads = 4;
  c.heads_kv = 2;
  c.d = 24;
  c.dv = 16;
  c.lengths = EqualLengths(1, rows, rows);
  c.mask.mode = mode;
  c.mask.pre = 150;
  c.mask.next = 20;
  if (mode == 5) c.mask.prefix = {300};
  return c;
}

}  // namespace fa::test

#endif  // FA_TESTS_RANKS_RUN_ON_RANK_LEVELS_H_
