#include "ops/inference/prompt/random_prompt_case.h"

#include <algorithm>

#include "support/cases/random_token_case.h"

namespace fa::test {
namespace {

int64_t Length(RandomChoices* random) {
  switch (random->Pick(0, 4)) {
    case 0: return random->Pick(0, 4);
    case 1: return random->OneOf<int64_t>({127, 128, 129, 255, 256, 257});
    case 2: return random->Pick(1, 200);
    default: return random->Pick(1, 60);
  }
}

int64_t HeadSize(RandomChoices* random) {
  return random->Pick(0, 2) == 0 ? random->Pick(1, 140) : random->OneOf<int64_t>({1, 3, 16, 32, 40, 64, 72, 128});
}

void PickLengths(RandomChoices* random, PromptCase* c) {
  c->batch = random->Pick(1, 4);
  c->sq = Length(random);
  c->sk = Length(random);
  if (c->packed()) {
    for (int64_t b = 0; b < c->batch; ++b) {
      c->lengths_q.push_back(Length(random));
      c->lengths_kv.push_back(Length(random));
    }
    return;
  }
  c->one_length = random->Pick(0, 5) == 0;
  const auto in_use = [&](int64_t rows, std::vector<int64_t>* lengths) {
    if (random->Pick(0, 2) == 0) return;
    const int64_t same = random->Pick(0, rows);
    for (int64_t b = 0; b < c->batch; ++b) lengths->push_back(c->one_length ? same : random->Pick(0, rows));
  };
  in_use(c->sq, &c->lengths_q);
  in_use(c->sk, &c->lengths_kv);
}

void PickMask(RandomChoices* random, PromptCase* c) {
  if (random->Pick(0, 3) == 0) {
    c->dense_mask = random->OneOf({PromptMask::kPlane, PromptMask::kBatch, PromptMask::kBatch4d, PromptMask::kHeads});
    if (c->packed()) c->dense_mask = PromptMask::kPlane;
  }
  c->mask.mode = random->OneOf({0, 1, 2, 3, 4});
  // In modes 2 to 4 a mask tensor would have to be the compressed mask.
  c->sparse_mode = !c->packed() && random->Pick(0, 2) == 0 && (c->mask.mode < 2 || c->dense_mask == PromptMask::kNone);
  const int64_t reach = c->sq + c->sk + 1;
  c->mask.pre = random->Pick(0, reach);
  c->mask.next = random->Pick(0, reach);
  // In mode 0, pre and next apply only if a mask tensor is given.
  c->mask.band = c->mask.mode == 0 && (c->sparse_mode ? c->dense_mask != PromptMask::kNone : random->Pick(0, 1) == 0);
  if (c->dense_mask != PromptMask::kNone || (!c->packed() && random->Pick(0, 2) == 0)) c->wider = random->Pick(0, 5);
  c->pse = !c->packed() && random->Pick(0, 3) == 0;
  c->pse_broadcast = random->Pick(0, 1) == 0;
}

/// Returns whether the case may have an offset. The device refuses an offset if the mask may leave a row without keys.
bool MayHaveAnOffset(const PromptCase& c) {
  const bool full = c.mask.mode == 1 || (c.mask.mode == 0 && !c.mask.band);
  const std::vector<int64_t>& keys = c.lengths_kv;
  return full && c.sk > 0 && std::all_of(keys.begin(), keys.end(), [](int64_t length) { return length > 0; });
}

void PickScales(RandomChoices* random, PromptCase* c) {
  c->deq1 = random->OneOf({1.0F / 2000, 1.0F / 512, -1.0F / 2000});
  c->quant1 = random->OneOf({127.0F, 127.0F, 100.5F, -127.0F, 255.0F});
  c->packed_deq = random->Pick(0, 1) == 0;
  c->per_column = random->Pick(0, 1) == 0;
  c->heads_by_columns = random->Pick(0, 1) == 0;
  c->bf16_scales = c->dtype == DType::kBF16 && random->Pick(0, 1) == 0;
  c->with_offset = MayHaveAnOffset(*c) && random->Pick(0, 1) == 0;
  c->offset2 = random->OneOf({5.25F, -7.0F});
}

/// Picks features that int8 inputs do not have.
void PickFeatures(RandomChoices* random, PromptCase* c) {
  const auto one_in_three = [&] { return random->Pick(0, 2) == 0; };
  if (one_in_three()) c->d_rope = random->OneOf<int64_t>({1, 8, 64});
  c->sink = one_in_three();
  if (one_in_three()) c->softcap = random->OneOf({0.5F, 30.0F});
  c->statistics = one_in_three();
  if (!one_in_three()) return;
  c->pse_type =
      random->OneOf({reference::PseType::kAddThenScale, reference::PseType::kSlopes, reference::PseType::kSlopesSqrt});
  if (c->pse_type == reference::PseType::kAddThenScale) {
    // A cap would be refused: this bias is added before the scale is applied, but the cap applies after it.
    c->softcap = 0;
    return;
  }
  c->pse = false;
  c->q_start = random->Pick(-3, 9);
  c->kv_start = random->Pick(-3, 9);
}

}  // namespace

PromptCase RandomPromptCase(uint64_t seed, bool int8_inputs) {
  RandomChoices random(seed);
  PromptCase c{.seed = seed};
  c.dtype = int8_inputs ? DType::kI8 : random.OneOf({DType::kF32, DType::kF16, DType::kBF16});
  const bool int8_out = random.Pick(0, 1) == 0;
  c.out_dtype = int8_out ? DType::kI8 : int8_inputs ? DType::kF16 : c.dtype;
  c.layout = random.OneOf({Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND, Layout::kTND});
  c.heads_kv = random.Pick(1, 3);
  c.heads = c.heads_kv * random.OneOf<int64_t>({1, 1, 2, 3});
  c.d = HeadSize(&random);
  c.dv = random.Pick(0, 2) == 0 ? HeadSize(&random) : c.d;
  PickLengths(&random, &c);
  PickMask(&random, &c);
  if (random.Pick(0, 2) == 0) c.scale = random.OneOf({0.0F, -0.3F, 0.05F, 0.4F});
  PickScales(&random, &c);
  if (!int8_inputs) PickFeatures(&random, &c);
  if (random.Pick(0, 1) == 0) c.padding = {random.Pick(0, 9), random.Pick(0, 9), random.Pick(0, 9)};
  c.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c.placement.place == Place::kInside) c.placement.misalignment = random.Pick(0, 17);
  return c;
}

}  // namespace fa::test
