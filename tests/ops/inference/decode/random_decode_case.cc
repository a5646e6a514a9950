#include "ops/inference/decode/random_decode_case.h"

#include <algorithm>

#include "support/cases/random_token_case.h"

namespace fa::test {
namespace {

void PickSizes(RandomChoices* random, ForwardCase* c) {
  c->dtype = random->OneOf({DType::kF32, DType::kF16, DType::kBF16});
  c->layout = random->OneOf({Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND});
  c->heads_kv = random->Pick(1, 3);
  c->heads = c->heads_kv * random->OneOf<int64_t>({1, 2, 5, 8, 24});
  c->d = random->Pick(0, 1) == 0 ? random->Pick(1, 140) : random->OneOf<int64_t>({16, 64, 128, 192});
  c->dv = random->Pick(0, 2) == 0 ? random->Pick(1, 140) : c->d;
  const int64_t most = random->OneOf<int64_t>({1, 1, 3, 16, 17});
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

void PickKeys(RandomChoices* random, DecodeCase* c) {
  c->keys = random->OneOf({KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads});
  const bool has_heads = c->dense.layout == Layout::kBNSD || c->dense.layout == Layout::kBSND;
  if (c->keys == KeyForm::kPagesOfHeads && !has_heads) c->keys = KeyForm::kPages;
  c->page_rows = random->OneOf<int64_t>({1, 7, 16, 50, 128});
  c->page_order = static_cast<uint64_t>(random->Pick(1, 100));
  const bool paged = c->keys == KeyForm::kPages || c->keys == KeyForm::kPagesOfHeads;
  if (paged && random->Pick(0, 3) == 0) c->dense.layout = Layout::kTND;
  c->spare_q = random->Pick(0, 2);
  c->spare_k = random->Pick(0, 2) * random->Pick(0, 9);
  if (random->Pick(0, 1) == 0) {
    if (random->Pick(0, 2) == 0) c->dense.d_rope = random->OneOf<int64_t>({1, 7, 32, 64});
    return;
  }
  c->format = random->OneOf({DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8});
  c->combined = random->Pick(0, 2) == 0;
  if (c->combined) {
    c->quantization = random->OneOf(
        {Quantization::kPerTensor, Quantization::kPerChannel, Quantization::kPerToken, Quantization::kPerTokenAndHead});
  } else {
    c->quantization = random->OneOf({Quantization::kPerTensor, Quantization::kPerChannel, Quantization::kPerToken,
                                     Quantization::kPerHead, Quantization::kPerPage, Quantization::kPerGroup,
                                     Quantization::kPerTokenAndHead, Quantization::kPerTokenAndGroup});
    c->group_columns = random->OneOf<int64_t>({16, 32, 64});  // kernels for few rows read groups of 32 in place
  }
  if (c->format == DType::kI4x8) {
    c->dense.d = (c->dense.d + 7) / 8 * 8;
    c->dense.dv = (c->dense.dv + 7) / 8 * 8;
  }
  if (c->quantization == Quantization::kPerChannel) c->dense.dv = c->dense.d;
  c->antiquant_offset = random->Pick(0, 1) == 0;
  c->antiquant_dtype = random->OneOf({DType::kF32, DType::kF16, DType::kBF16});
}

void PickScores(RandomChoices* random, DecodeCase* c) {
  ForwardCase& d = c->dense;
  d.mask.mode = random->OneOf({1, 1, 2, 3, 4});
  if (d.mask.mode == 4) {
    d.mask.pre = random->Pick(-5, d.max_sk());
    d.mask.next = random->Pick(-5, 20);
  }
  if (random->Pick(0, 3) == 0) {
    d.dense_mask = random->OneOf({MaskForm::kPerBatch, MaskForm::kPerHead});
    d.dense_mask_dtype = random->OneOf({DType::kU8, DType::kBool});
    if (d.dense_mask == MaskForm::kPerBatch) c->mask_rank = random->OneOf({3, 4});
  }
  if (random->Pick(0, 3) == 0) {
    d.pse = random->OneOf({PseForm::kFull, PseForm::kRow});
    d.pse_type = reference::PseType::kScaleThenAdd;
    d.pse_f32 = random->Pick(0, 1) == 0;
    // All sequences may share one bias only if they have the same length.
    d.pse_broadcast_batch = d.batch() == 1;
  }
  if (random->Pick(0, 4) == 0) d.softcap = random->OneOf({0.5F, 5.0F, 50.0F});
  d.sink = random->Pick(0, 4) == 0;
  using enum reference::SinkForm;
  if (d.sink) d.sink_form = random->OneOf({kPerHead, kPerRowOfAll, kPerRow});
  if (d.packed() && d.sink_form == kPerRowOfAll) d.sink_form = kPerRow;
  if (random->Pick(0, 2) == 0) d.scale = random->OneOf({0.0F, -0.3F, 0.05F, 0.9F});
}

}  // namespace

DecodeCase RandomDecodeCase(uint64_t seed) {
  RandomChoices random(seed);
  DecodeCase c;
  ForwardCase& d = c.dense;
  d.seed = seed;
  PickSizes(&random, &d);
  PickKeys(&random, &c);
  PickScores(&random, &c);
  if (random.Pick(0, 2) == 0) {
    c.int8_out = OutputScaleForm{.scale = random.OneOf({20.0, 60.0}),
                                 .offset = 3.5,
                                 .per_column = random.Pick(0, 1) == 0,
                                 .heads_by_columns = random.Pick(0, 1) == 0,
                                 .with_offset = random.Pick(0, 1) == 0};
    // An offset is refused if the mask's mode may leave rows without keys.
    c.int8_out->with_offset = c.int8_out->with_offset && d.mask.mode <= 2;
    if (d.dtype == DType::kBF16 && random.Pick(0, 1) == 0) c.int8_out->dtype = DType::kBF16;
  }
  if (random.Pick(0, 1) == 0) d.padding = {random.Pick(0, 9), random.Pick(0, 9), random.Pick(0, 9)};
  d.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (d.placement.place == Place::kInside) d.placement.misalignment = random.Pick(0, 17);
  return c;
}

}  // namespace fa::test
