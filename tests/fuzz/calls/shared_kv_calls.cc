// Makes random calls of attention over original and compressed keys, forward and backward.
#include "fuzz/calls/families.h"
#include "ops/sparse/shared_kv_case.h"
#include "support/cases/random_token_case.h"

namespace fa::test {
namespace {

SharedKvCase RandomSharedKvCase(uint64_t seed) {
  RandomChoices random(seed);
  SharedKvCase c{.tokens = RandomTokenCase(seed, true, &random)};
  c.tokens.block_size = 1;
  c.tokens.list_order = 0;
  c.cmp_lengths.clear();
  c.ratio = random.OneOf<int64_t>({1, 2, 4, 7, 128});
  for (const int64_t keys : c.tokens.lengths.sk) {
    c.cmp_lengths.push_back(c.tokens.lengths_given ? random.Pick(0, keys) : keys);
  }
  if (LooksLikeLengths(c.cmp_lengths, c.tokens.spare_k)) c.tokens.spare_k = 0;
  c.cmp_page_rows = c.tokens.paged() ? random.OneOf<int64_t>({1, 3, 16}) : 0;
  c.cmp_slots = random.Pick(0, 40);
  const int64_t ranges = random.Pick(0, 4);
  c.has_ori = ranges != 0;
  c.has_cmp = ranges != 1;
  if (!c.has_ori) {
    for (size_t b = 0; b < c.cmp_lengths.size(); ++b) c.residual.push_back(random.Pick(0, c.ratio - 1));
  }
  c.ori_listed = random.Pick(0, 2) == 0;
  c.cmp_listed = random.Pick(0, 2) > 0;
  c.topk_lengths = random.Pick(0, 2) == 0;
  c.ori_mask = random.OneOf<SparseMask>({SparseMask::kNone, SparseMask::kRightDownCausal, SparseMask::kBand});
  c.cmp_mask = random.OneOf<SparseMask>({SparseMask::kNone, SparseMask::kRightDownCausal});
  c.left = random.OneOf<int64_t>({-1, 0, 5, 60});
  c.right = random.OneOf<int64_t>({-1, 0, 3});
  c.heads = random.OneOf<int64_t>({1, 2, 3, 8, 13, 16, 40});
  c.d = random.OneOf<int64_t>({1, 8, 24, 64});
  if (random.Pick(0, 3) == 0) c.scale = 0.3F;
  c.sink = random.Pick(0, 2) == 0;
  return c;
}

template <typename Call>
class RandomSharedCall : public PlannedCall<Call, SharedKvCase> {
 public:
  using PlannedCall<Call, SharedKvCase>::PlannedCall;
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (expected_.empty()) expected_ = this->problem_.Expected();
    return MatchesExpected(this->problem_.Outputs(), expected_);
  }

 private:
  std::vector<ExpectedOutput> expected_;
};

}  // namespace

std::unique_ptr<FuzzCall> RandomSharedKvCall(uint64_t seed) {
  return std::make_unique<RandomSharedCall<SharedKvCall>>(RandomSharedKvCase(seed), PlanSharedKvAttention,
                                                          SharedKvAttention);
}

std::unique_ptr<FuzzCall> RandomSharedKvBackwardCall(uint64_t seed) {
  SharedKvCase c = RandomSharedKvCase(seed);
  c.tokens.page_rows = c.cmp_page_rows = 0;
  return std::make_unique<RandomSharedCall<SharedKvGradCall>>(c, PlanSharedKvAttentionGrad, SharedKvAttentionGrad);
}

}  // namespace fa::test
