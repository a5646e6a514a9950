#ifndef TESTS_TILING_SAMPLE_PROBLEMS_H_
#define TESTS_TILING_SAMPLE_PROBLEMS_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fa/mask.h"
#include "tiling/forward/forward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// The sizes of a call, in a form that tests can write briefly. `lengths` has (sq, sk) of each sequence.
struct Sizes {
  std::vector<std::pair<int64_t, int64_t>> lengths;
  int64_t heads = 1, heads_kv = 1;
  int64_t d = 64, dv = 64, d_rope = 0;
  Mask mask = {};
  bool dense = true;  ///< K and V can be read in place
};

/// Returns a rule that lists the keys of each row. Some rows have no keys.
[[nodiscard]] RowRule RandomListedRule(std::mt19937_64& random, int64_t sq, int64_t sk);

[[nodiscard]] AttentionProblem MakeProblem(const Sizes& sizes);

/// Returns a random problem of up to 6 sequences, each with up to 400 rows and keys or none. It may have a mask of any
/// mode, listed rows, several query heads per kv head, and packed keys.
[[nodiscard]] AttentionProblem RandomProblem(std::mt19937_64& random);

/// Returns a synthetic AVX-512 machine, which may have more workers and nodes than any test machine.
[[nodiscard]] Machine MakeMachine(int workers, int nodes = 1);

/// Returns the sizes and the mask rule of a problem in words, for messages.
[[nodiscard]] std::string Text(const AttentionProblem& problem);

}  // namespace fa::tiling

#endif  // TESTS_TILING_SAMPLE_PROBLEMS_H_
