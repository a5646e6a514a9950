#include "support/cases/random_token_case.h"

namespace fa::test {

bool LooksLikeLengths(const std::vector<int64_t>& lengths, int64_t spare) {
  int64_t end = 0, sum = 0;
  for (const int64_t length : lengths) sum += end += length;
  return sum == end + spare;
}

TokenCase RandomTokenCase(uint64_t seed, bool may_be_paged, RandomChoices* choices) {
  RandomChoices& random = *choices;
  TokenCase c{.seed = seed + 1};
  c.dtype = random.OneOf({DType::kF32, DType::kBF16, DType::kF16});
  c.layout = random.OneOf({Layout::kBSND, Layout::kTND});
  c.lengths = {};
  for (int64_t b = random.Pick(1, 3); b > 0; --b) {
    c.lengths.sq.push_back(random.Pick(0, 6));
    c.lengths.sk.push_back(random.OneOf<int64_t>({0, 1, 7, 16, 33, 64, 100, 150}));
  }
  c.spare_q = random.Pick(0, 2);
  c.spare_k = random.Pick(0, 2);
  if (LooksLikeLengths(c.lengths.sq, c.spare_q)) c.spare_q = 0;
  if (LooksLikeLengths(c.lengths.sk, c.spare_k)) c.spare_k = 0;
  c.causal = random.Pick(0, 1) == 1;
  if (may_be_paged && random.Pick(0, 2) == 0) c.page_rows = random.OneOf<int64_t>({1, 5, 16, 64});
  c.slots = random.OneOf<int64_t>({1, 3, 16, 40, 130});
  c.lists = random.OneOf({ListForm::kDistinct, ListForm::kMessy, ListForm::kEveryKey});
  c.index_dtype = random.OneOf({DType::kI32, DType::kI64});
  if (random.Pick(0, 2) == 0) c.padding = {.inner = random.Pick(0, 5), .middle = random.Pick(0, 5), .outer = 3};
  c.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c.placement.place == Place::kInside) c.placement.misalignment = random.Pick(0, 7);
  return c;
}

}  // namespace fa::test
