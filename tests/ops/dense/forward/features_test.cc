// Tests each option of the dense forward by itself, for every type, on every instruction-set level.
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "support/compare/compare.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using reference::PseType;

/// Returns a case of 2 sequences with 70 rows and 150 keys, 4 query heads and 2 KV heads. The last tile is partial in
/// both directions.
ForwardCase Usual() {
  ForwardCase c;
  c.heads = 4;
  c.heads_kv = 2;
  c.d = c.dv = 40;
  c.lengths = EqualLengths(2, 70, 150);
  return c;
}

ForwardCase Packed() {
  ForwardCase c = Usual();
  c.layout = Layout::kTND;
  c.lengths = {{33, 0, 70, 5, 1}, {40, 7, 150, 0, 1}};
  c.tail_q = 3;
  c.tail_kv = 2;
  return c;
}

ForwardCase Square(int64_t length) {
  ForwardCase c = Usual();
  c.heads = c.heads_kv = 1;
  c.d = c.dv = 4;  // small, because a case has up to a million pairs of query and key
  c.lengths = EqualLengths(1, length, length);
  return c;
}

struct Feature {
  const char* name;
  std::function<ForwardCase()> make;
};

/// Returns a feature whose case is the base case with `change` applied.
Feature With(const char* name, ForwardCase (*base)(), std::function<void(ForwardCase*)> change) {
  return {name, [base, change] {
            ForwardCase c = base();
            change(&c);
            return c;
          }};
}

const Feature kLayouts[] = {
    With("BNSD", Usual, [](ForwardCase* c) { c->layout = Layout::kBNSD; }),
    With("BSND", Usual, [](ForwardCase* c) { c->layout = Layout::kBSND; }),
    With("BSH", Usual, [](ForwardCase* c) { c->layout = Layout::kBSH; }),
    With("SBH", Usual, [](ForwardCase* c) { c->layout = Layout::kSBH; }),
    With("BNSD_BSND", Usual, [](ForwardCase* c) { c->layout = Layout::kBNSD_BSND; }),
    With("TND", Packed, [](ForwardCase*) {}),
    With("OneQueryHead", Usual, [](ForwardCase* c) { c->heads = c->heads_kv = 1; }),
    With("MultiQuery", Usual, [](ForwardCase* c) { c->heads_kv = 1; }),
    With("LargerDv", Usual, [](ForwardCase* c) { c->dv = 72; }),
    With("SmallerDv", Usual, [](ForwardCase* c) { c->dv = 9; }),
    With("Rope", Usual, [](ForwardCase* c) { c->d_rope = 24; }),
    With("RopePacked", Packed, [](ForwardCase* c) { c->d_rope = 8; }),
    With("NoStatistics", Usual, [](ForwardCase* c) { c->wants_max = c->wants_sum = c->wants_lse = false; }),
    With("OnlyLse", Usual, [](ForwardCase* c) { c->wants_max = c->wants_sum = false; }),
    With("OnlySum", Usual, [](ForwardCase* c) { c->wants_max = c->wants_lse = false; }),
};

const Feature kScores[] = {
    With("ScaleGiven", Usual, [](ForwardCase* c) { c->scale = 0.3F; }),
    With("ScaleZero", Usual, [](ForwardCase* c) { c->scale = 0.0F; }),
    With("ScaleNegative", Usual, [](ForwardCase* c) { c->scale = -0.25F; }),
    With("ScaleNegativeCausal", Usual,
         [](ForwardCase* c) {
           c->scale = -0.25F;
           c->mask.mode = 3;
         }),
    With("Softcap", Usual,
         [](ForwardCase* c) {
           c->softcap = 1.5F;
           c->scale = 0.7F;
         }),
    With("SoftcapNegativeScale", Usual,
         [](ForwardCase* c) {
           c->softcap = 1.5F;
           c->scale = -0.7F;
         }),
    With("Sink", Usual, [](ForwardCase* c) { c->sink = true; }),
    With("SinkPerRow", Usual,
         [](ForwardCase* c) {
           c->sink = true;
           c->sink_form = reference::SinkForm::kPerRow;
         }),
    With("SinkPerRowOfAll", Usual,
         [](ForwardCase* c) {
           c->sink = true;
           c->sink_form = reference::SinkForm::kPerRowOfAll;
         }),
    With("SinkPerRowPacked", Packed,
         [](ForwardCase* c) {
           c->sink = true;
           c->sink_form = reference::SinkForm::kPerRow;
         }),
    With("SinkPackedCausal", Packed,
         [](ForwardCase* c) {
           c->sink = true;
           c->mask.mode = 3;
         }),
    With("DropoutMask", Usual,
         [](ForwardCase* c) {
           c->dropout = DropoutForm::kMask;
           c->keep_prob = 0.8F;
         }),
    With("DropoutMaskOddRows", Packed,
         [](ForwardCase* c) {
           c->dropout = DropoutForm::kMask;
           c->keep_prob = 0.6F;
         }),
    With("DropoutMaskKeepProbOne", Usual, [](ForwardCase* c) { c->dropout = DropoutForm::kMask; }),
    With("DropoutSeed", Usual,
         [](ForwardCase* c) {
           c->dropout = DropoutForm::kSeed;
           c->keep_prob = 0.7F;
         }),
    With("DropoutSeedPacked", Packed,
         [](ForwardCase* c) {
           c->dropout = DropoutForm::kSeed;
           c->keep_prob = 0.1F;
         }),
};

void SetMode(ForwardCase* c, int mode, int64_t pre, int64_t next) {
  c->mask.mode = mode;
  c->mask.band = mode == 0;
  c->mask.pre = pre;
  c->mask.next = next;
}

const Feature kMasks[] = {
    With("CausalTopLeft", Usual, [](ForwardCase* c) { c->mask.mode = 2; }),
    With("Causal", Usual, [](ForwardCase* c) { c->mask.mode = 3; }),
    With("CausalMoreQueriesThanKeys", Usual,
         [](ForwardCase* c) {
           c->lengths = EqualLengths(2, 150, 70);
           c->mask.mode = 3;
         }),
    With("CausalPacked", Packed, [](ForwardCase* c) { c->mask.mode = 3; }),
    With("Band", Usual, [](ForwardCase* c) { SetMode(c, 4, 20, 3); }),
    With("BandBehind", Usual, [](ForwardCase* c) { SetMode(c, 4, 60, -30); }),
    With("BandAhead", Usual, [](ForwardCase* c) { SetMode(c, 4, -10, 30); }),
    With("BandEmpty", Usual, [](ForwardCase* c) { SetMode(c, 4, -10, 5); }),
    With("BandUnlimited", Usual, [](ForwardCase* c) { SetMode(c, 4, INT64_MAX, INT64_MAX); }),
    With("BandPacked", Packed, [](ForwardCase* c) { SetMode(c, 4, 9, 2); }),
    With("BandTopLeft", Usual, [](ForwardCase* c) { SetMode(c, 0, 20, 3); }),
    With("BandTopLeftPacked", Packed, [](ForwardCase* c) { SetMode(c, 0, 5, 5); }),
    With("Prefix", Usual,
         [](ForwardCase* c) {
           c->mask.mode = 5;
           c->mask.prefix = {100, 0};
         }),
    With("PrefixOutOfRangeSaturates", Usual,
         [](ForwardCase* c) {
           c->mask.mode = 5;
           c->mask.prefix = {INT64_MAX, INT64_MIN};
         }),
    With("PrefixPacked", Packed,
         [](ForwardCase* c) {
           c->mask.mode = 6;
           c->mask.prefix = {20, 3, 80, 0, 0};
         }),
    With("Mode7", Packed,
         [](ForwardCase* c) {
           c->lengths = {{33, 5, 60, 0}, {40, 7, 150, 3}};
           SetMode(c, 7, 200, -40);
           c->sparse_mode = true;
         }),
    With("Mode8", Packed,
         [](ForwardCase* c) {
           c->lengths = {{0, 33, 5, 60}, {2, 40, 7, 150}};
           SetMode(c, 8, 200, 10);
           c->sparse_mode = true;
         }),
    With("DensePlane", Usual, [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane; }),
    With("DensePlane4d", Usual, [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane4d; }),
    With("DensePerBatchBool", Usual,
         [](ForwardCase* c) {
           c->dense_mask = MaskForm::kPerBatch;
           c->dense_mask_dtype = DType::kBool;
         }),
    With("DensePerHead", Usual, [](ForwardCase* c) { c->dense_mask = MaskForm::kPerHead; }),
    With("DensePacked", Packed, [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane; }),
    With("DenseAlmostAll", Usual,
         [](ForwardCase* c) {
           c->dense_mask = MaskForm::kPerHead;
           c->dense_mask_share = 0.98;
         }),
    With("DenseAndCausal", Usual,
         [](ForwardCase* c) {
           c->dense_mask = MaskForm::kPerHead;
           c->mask.mode = 3;
         }),
    With("DenseAndBandAsMode0", Usual,
         [](ForwardCase* c) {
           c->dense_mask = MaskForm::kPlane;
           SetMode(c, 0, 30, 40);
           c->sparse_mode = true;
         }),
    With("DenseAsMode1", Usual,
         [](ForwardCase* c) {
           c->dense_mask = MaskForm::kPlane;
           c->mask.mode = 1;
           c->sparse_mode = true;
         }),
};

void SetPse(ForwardCase* c, PseForm form, PseType type, bool broadcast_batch = false) {
  c->pse = form;
  c->pse_type = type;
  c->pse_broadcast_batch = broadcast_batch;
}

const Feature kBiases[] = {
    With("PseFullType0", Usual, [](ForwardCase* c) { SetPse(c, PseForm::kFull, PseType::kScaleThenAdd); }),
    With("PseFullType1", Usual, [](ForwardCase* c) { SetPse(c, PseForm::kFull, PseType::kAddThenScale); }),
    With("PseFullBroadcastBatch", Usual,
         [](ForwardCase* c) { SetPse(c, PseForm::kFull, PseType::kAddThenScale, true); }),
    With("PseType1ScaleZero", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kFull, PseType::kAddThenScale);
           c->scale = 0.0F;
         }),
    With("PseType1ScaleNegative", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kFull, PseType::kAddThenScale);
           c->scale = -0.5F;
         }),
    With("PseType0ScaleNegative", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
           c->scale = -0.5F;
         }),
    With("PseRow", Usual, [](ForwardCase* c) { SetPse(c, PseForm::kRow, PseType::kScaleThenAdd); }),
    With("PseRowBroadcastBatch", Usual, [](ForwardCase* c) { SetPse(c, PseForm::kRow, PseType::kAddThenScale, true); }),
    With("PseF32", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kFull, PseType::kAddThenScale);
           c->pse_f32 = true;
         }),
    With("PseFullPacked", Packed, [](ForwardCase* c) { SetPse(c, PseForm::kFull, PseType::kScaleThenAdd); }),
    With("PseRowPacked", Packed, [](ForwardCase* c) { SetPse(c, PseForm::kRow, PseType::kAddThenScale); }),
    With("PseFloatMask", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
           c->pse_minus_inf_share = 0.4;
         }),
    With("PseSoftcap", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
           c->softcap = 1;
         }),
    With(
        "Slopes", [] { return Square(150); }, [](ForwardCase* c) { SetPse(c, PseForm::kSlopes, PseType::kSlopes); }),
    With(
        "SlopesOfHeads", [] { return Square(150); },
        [](ForwardCase* c) { SetPse(c, PseForm::kSlopes, PseType::kSlopes, true); }),
    With("SlopesUnequalLengths", Usual, [](ForwardCase* c) { SetPse(c, PseForm::kSlopes, PseType::kSlopes); }),
    With("SlopesStarts", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kSlopes, PseType::kSlopes);
           c->q_start = 37;
           c->kv_start = -11;
         }),
    With("SlopesSqrt", Usual, [](ForwardCase* c) { SetPse(c, PseForm::kSlopes, PseType::kSlopesSqrt); }),
    With("SlopesSqrtCausalSoftcap", Usual,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kSlopes, PseType::kSlopesSqrt, true);
           c->mask.mode = 3;
           c->softcap = 2;
         }),
    With("SlopesPackedStarts", Packed,
         [](ForwardCase* c) {
           SetPse(c, PseForm::kSlopes, PseType::kSlopes);
           c->q_start = 5;
         }),
    With("SlopesMode8StartsOfTheFirstSequenceOnly", Packed,
         [](ForwardCase* c) {
           c->lengths = {{40, 5, 60}, {40, 5, 60}};
           SetMode(c, 8, 200, 0);
           c->sparse_mode = true;
           SetPse(c, PseForm::kSlopes, PseType::kSlopesSqrt, true);
           c->q_start = c->kv_start = 7;
         }),
    With(
        "PseCompressed", [] { return Square(1100); },
        [](ForwardCase* c) {
          SetPse(c, PseForm::kCompressed, PseType::kAddThenScale);
          c->mask.mode = 3;
        }),
    With(
        "PseCompressedBroadcastBatch", [] { return Square(1025); },
        [](ForwardCase* c) {
          SetPse(c, PseForm::kCompressed, PseType::kScaleThenAdd, true);
          c->mask.mode = 2;
        }),
    With("PseCompressedPacked", Packed,
         [](ForwardCase* c) {
           c->heads = c->heads_kv = 1;
           c->d = c->dv = 4;
           c->lengths = {{1100, 30, 1024}, {1100, 30, 1024}};
           SetPse(c, PseForm::kCompressed, PseType::kAddThenScale);
           c->mask.mode = 3;
         }),
};

using Parameters = std::tuple<DType, Feature>;
class ForwardFeature : public ::testing::TestWithParam<Parameters> {};

TEST_P(ForwardFeature, MatchesTheReference) {
  const auto& [dtype, feature] = GetParam();
  ForwardCase c = feature.make();
  c.dtype = dtype;
  EXPECT_TRUE(RunsLikeTheReference(c));
}

std::string NameOf(const ::testing::TestParamInfo<Parameters>& info) {
  return std::string(Name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name;
}

#define FA_FEATURES(group, list) \
  INSTANTIATE_TEST_SUITE_P(group, ForwardFeature, ::testing::ValuesIn(WithTypes(list)), NameOf)
FA_FEATURES(Layouts, kLayouts);
FA_FEATURES(Scores, kScores);
FA_FEATURES(Masks, kMasks);
FA_FEATURES(Biases, kBiases);
#undef FA_FEATURES

}  // namespace
}  // namespace fa::test
