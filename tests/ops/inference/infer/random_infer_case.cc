#include "ops/inference/infer/random_infer_case.h"

#include <algorithm>

#include "support/cases/random_token_case.h"

namespace fa::test {
namespace {

void PickSizes(RandomChoices* random, ForwardCase* c) {
  c->dtype = random->OneOf({DType::kF32, DType::kF16, DType::kBF16});
  c->heads_kv = random->Pick(1, 3);
  c->heads = c->heads_kv * random->OneOf<int64_t>({1, 2, 5, 8});
  c->d = random->OneOf<int64_t>({16, 32, 64, 128});
  c->dv = random->Pick(0, 2) == 0 ? random->OneOf<int64_t>({16, 48, 96}) : c->d;
  const int64_t most = random->OneOf<int64_t>({1, 1, 3, 16, 17, 70});
  c->lengths = {};
  for (int64_t b = random->Pick(1, 4); b > 0; --b) {
    c->lengths.sq.push_back(random->Pick(0, 3) == 0 ? random->Pick(0, most) : most);
    c->lengths.sk.push_back(random->Pick(0, 3) == 0 ? random->OneOf<int64_t>({0, 511, 512, 513, 1100})
                                                    : random->Pick(0, 300));
  }
  while (c->heads * c->max_sq() * c->max_sk() * (c->d + c->dv) > 1'500'000 && c->heads > c->heads_kv) {
    c->heads = c->heads_kv;
  }
}

void PickPlaces(RandomChoices* random, InferCase* c) {
  c->layout = random->OneOf({Layout::kBSH, Layout::kBSND, Layout::kBNSD, Layout::kTND, Layout::kNTD, Layout::kBNSD_BSND,
                             Layout::kBSH_BNSD, Layout::kBSND_BNSD, Layout::kBSH_NBSD, Layout::kBSND_NBSD,
                             Layout::kBNSD_NBSD, Layout::kTND_NTD, Layout::kNTD_TND});
  c->cache = random->OneOf({Cache::kOneTensor, Cache::kOneTensor, Cache::kList, Cache::kPagesOfRows,
                            Cache::kPagesOfHeads, Cache::kPagesOfRowsOfHeads, Cache::kPagesNz, Cache::kPagesNz});
  if (c->packed() && c->cache == Cache::kList) c->cache = Cache::kPagesNz;
  c->page_rows = random->OneOf<int64_t>({1, 7, 16, 50, 128});
  c->page_order = static_cast<uint64_t>(random->Pick(1, 100));
  c->spare_q = random->Pick(0, 2);
  c->spare_k = random->Pick(0, 2) * random->Pick(0, 9);
  c->one_more_dim = random->Pick(0, 1) == 0;
  if (random->Pick(0, 2) == 0) c->lse_without_keys = -c->lse_without_keys;
  const bool plain = c->cache == Cache::kOneTensor && !c->packed();
  if (plain && random->Pick(0, 1) == 0) {
    c->padding_q = random->Pick(-1, c->spare_q);
    c->padding_kv = random->Pick(-1, c->spare_k);
  } else if (plain) {
    c->prefix_rows = random->OneOf<int64_t>({1, 30, 513});
    c->spare_prefix = random->Pick(0, 2);
    for (int64_t& sk : c->dense.lengths.sk) sk += c->prefix_rows;
  }
  if (c->prefix_rows == 0 && random->Pick(0, 2) == 0) c->dense.d_rope = random->OneOf<int64_t>({16, 32, 64});
}

void PickScores(RandomChoices* random, InferCase* c) {
  ForwardCase& d = c->dense;
  d.mask.mode = random->OneOf({1, 1, 2, 3, 4});
  // A single row keeps every key, but the reference would apply the mask of mode 2 to it.
  if (d.mask.mode == 2 && !c->packed() && d.max_sq() + c->spare_q == 1) d.mask.mode = 3;
  if (d.mask.mode == 4) {
    d.mask.pre = random->Pick(-5, d.max_sk());
    d.mask.next = random->Pick(-5, 20);
  }
  if (d.mask.mode == 1 && random->Pick(0, 1) == 0) {
    d.dense_mask = MaskForm::kPerBatch;
    d.dense_mask_dtype = random->OneOf({DType::kU8, DType::kBool});
    c->tree = c->prefix_rows == 0 && random->Pick(0, 1) == 0;
    for (int64_t b = 0; c->tree && b < d.batch(); ++b) d.lengths.sk[b] = std::max(d.lengths.sk[b], d.lengths.sq[b]);
  }
  if (random->Pick(0, 3) == 0) {
    d.pse = random->OneOf({PseForm::kFull, PseForm::kRow});
    d.pse_type = reference::PseType::kScaleThenAdd;
    d.pse_f32 = random->Pick(0, 1) == 0;
  }
  d.sink = random->Pick(0, 4) == 0;
  if (d.sink && random->Pick(0, 1) == 0) c->sink_dtype = d.dtype;
  if (random->Pick(0, 2) == 0) d.scale = random->OneOf({0.0F, -0.3F, 0.05F, 0.9F});
}

}  // namespace

InferCase RandomInferCase(uint64_t seed) {
  RandomChoices random(seed);
  InferCase c;
  c.dense.seed = seed;
  PickSizes(&random, &c.dense);
  PickPlaces(&random, &c);
  PickScores(&random, &c);
  if (random.Pick(0, 1) == 0) c.dense.padding.outer = random.Pick(0, 9);
  c.dense.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c.dense.placement.place == Place::kInside) c.dense.placement.misalignment = random.Pick(0, 17);
  return c;
}

}  // namespace fa::test
