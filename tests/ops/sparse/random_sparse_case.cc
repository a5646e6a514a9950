#include "ops/sparse/random_sparse_case.h"

#include <algorithm>

#include "support/cases/random_token_case.h"

namespace fa::test {

SparseCase RandomSparseCase(uint64_t seed) {
  RandomChoices random(seed);
  SparseCase c{.tokens = RandomTokenCase(seed, true, &random)};
  c.tokens.block_size = random.OneOf<int64_t>({1, 1, 3, 8, 16, 64, 128});
  c.heads = random.OneOf<int64_t>({1, 2, 3, 8, 9, 13, 16, 20, 40});
  c.d = random.OneOf<int64_t>({1, 8, 24, 40, 64, 128});
  c.d_rope = random.OneOf<int64_t>({0, 0, 5, 16, 64});
  c.merged = random.Pick(0, 1) == 1;
  c.dv = c.merged ? random.Pick(1, c.d) : random.OneOf<int64_t>({1, 16, 40, 72, 128});
  if (random.Pick(0, 3) == 0) c.scale = 0.3F;
  c.statistics = random.Pick(0, 3) > 0;
  c.head_mean = random.Pick(0, 1) == 1;
  c.sink = random.Pick(0, 2) == 0;
  if (random.Pick(0, 3) > 0) return c;
  c.rows = random.OneOf({DType::kI8, DType::kF8E4M3});
  c.tile = random.OneOf<int64_t>({1, 7, 16, 128});
  c.dv = std::min(c.dv, c.d);
  c.rope_columns = c.d_rope;
  c.d += c.d_rope;
  c.d_rope = 0;
  return c;
}

}  // namespace fa::test
