#include "ops/indexer/random_indexer_case.h"

#include "support/cases/random_token_case.h"

namespace fa::test {

IndexerCase RandomIndexerCase(uint64_t seed, bool forward) {
  RandomChoices random(seed);
  IndexerCase c{.tokens = RandomTokenCase(seed, forward, &random)};
  c.heads = random.OneOf<int64_t>({1, 2, 5, 8, 16, 40});
  c.d = random.OneOf<int64_t>({1, 8, 24, 64, 128});
  c.f32_weights = random.Pick(0, 1) == 1;
  c.f32_values = random.Pick(0, 1) == 1;
  c.wants_values = !forward || random.Pick(0, 3) > 0;
  c.flat_d_values = random.Pick(0, 1) == 1;
  c.values = random.OneOf({IndexerValues::kNormal, IndexerValues::kSmallIntegers});
  if (!forward) return c;
  if (random.Pick(0, 2) == 0) {
    c.codes = random.OneOf({DType::kI8, DType::kF8E4M3});
    c.scale_dtype = random.OneOf({DType::kF32, DType::kF16, DType::kBF16});
    c.flat_scales = random.Pick(0, 1) == 1;
  }
  c.ratio = random.OneOf<int64_t>({1, 1, 2, 4, 128});
  c.offsets = random.Pick(0, 3) == 0;
  for (int64_t b = 0; c.ratio > 1 && b < c.tokens.batch(); ++b) c.residual.push_back(random.Pick(0, c.ratio - 1));
  return c;
}

LossCase RandomLossCase(uint64_t seed, bool dense) {
  RandomChoices random(seed);
  LossCase c{.tokens = RandomTokenCase(seed, false, &random), .dense = dense};
  c.heads = random.OneOf<int64_t>({1, 2, 6, 16});
  c.heads_kv = dense && c.heads % 2 == 0 ? random.OneOf<int64_t>({1, 2, c.heads}) : 1;
  c.d = random.OneOf<int64_t>({1, 8, 24, 64});
  c.d_rope = random.OneOf<int64_t>({0, 0, 5, 16});
  c.heads_index = random.OneOf<int64_t>({1, 2, 5, 16});
  c.d_index = random.OneOf<int64_t>({1, 8, 24, 64, 128});
  c.f32_weights = random.Pick(0, 1) == 1;
  c.head_mean = !dense && random.Pick(0, 2) == 0;
  c.sink = !dense && !c.head_mean && random.Pick(0, 2) == 0;
  c.foreign_statistics = random.Pick(0, 3) == 0;
  c.l1 = random.Pick(0, 1) == 1;
  c.mean = random.Pick(0, 1) == 1;
  return c;
}

}  // namespace fa::test
