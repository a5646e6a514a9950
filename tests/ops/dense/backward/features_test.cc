// Tests each option of the dense backward by itself, for every type, on every instruction-set level.
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "support/compare/compare_gradients.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using reference::PseType;

/// Returns a case of 2 sequences with 70 rows and 150 keys, 4 query heads and 2 KV heads. The last tile is partial in
/// both directions.
BackwardCase Usual() {
  BackwardCase c;
  c.forward.heads = 4;
  c.forward.heads_kv = 2;
  c.forward.d = c.forward.dv = 40;
  c.forward.lengths = EqualLengths(2, 70, 150);
  return c;
}

BackwardCase Packed() {
  BackwardCase c = Usual();
  c.forward.layout = Layout::kTND;
  c.forward.lengths = {{33, 0, 70, 5, 1}, {40, 7, 150, 0, 1}};
  c.forward.tail_q = 3;
  c.forward.tail_kv = 2;
  return c;
}

BackwardCase Square(int64_t length) {
  BackwardCase c = Usual();
  c.forward.heads = c.forward.heads_kv = 1;
  c.forward.d = c.forward.dv = 4;  // small, because a case has up to a million pairs of query and key
  c.forward.lengths = EqualLengths(1, length, length);
  return c;
}

struct Feature {
  const char* name;
  std::function<BackwardCase()> make;
};

template <typename Change>
Feature Changed(const char* name, BackwardCase base, const Change& change) {
  return {name, [base, change] {
            BackwardCase c = base;
            change(&c);
            return c;
          }};
}
/// Returns a feature whose case is the base case with `change` applied to its forward part.
template <typename Change>
Feature With(const char* name, const BackwardCase& base, const Change& change) {
  return Changed(name, base, [change](BackwardCase* c) { change(&c->forward); });
}

Feature InLayout(Layout layout) {
  return With(Name(layout), Usual(), [layout](ForwardCase* c) { c->layout = layout; });
}

std::vector<Feature> Layouts() {
  return {
      InLayout(Layout::kBNSD),
      InLayout(Layout::kBSND),
      InLayout(Layout::kBSH),
      InLayout(Layout::kSBH),
      InLayout(Layout::kBNSD_BSND),
      With("TND", Packed(), [](ForwardCase*) {}),
      With("OneQueryHead", Usual(), [](ForwardCase* c) { c->heads = c->heads_kv = 1; }),
      With("MultiQuery", Usual(), [](ForwardCase* c) { c->heads_kv = 1; }),
      With("LargerDv", Usual(), [](ForwardCase* c) { c->dv = 72; }),
      With("SmallerDv", Usual(), [](ForwardCase* c) { c->dv = 9; }),
      With("Rope", Usual(), [](ForwardCase* c) { c->d_rope = 24; }),
      With("RopePacked", Packed(), [](ForwardCase* c) { c->d_rope = 8; }),
      Changed("EightStatistics", Usual(), [](BackwardCase* c) { c->eight_statistics = true; }),
      Changed("EightStatisticsPacked", Packed(), [](BackwardCase* c) { c->eight_statistics = true; }),
      Changed("PackedGradients", Usual(), [](BackwardCase* c) { c->packing = Packing::kTogether; }),
      Changed("PackedGradientsOfPackedSequences", Packed(), [](BackwardCase* c) { c->packing = Packing::kTogether; }),
      Changed("PaddedGradients", Usual(), [](BackwardCase* c) { c->padding = {.inner = 3, .middle = 5, .outer = 7}; }),
  };
}

std::vector<Feature> Scores() {
  return {
      With("ScaleGiven", Usual(), [](ForwardCase* c) { c->scale = 0.3F; }),
      With("ScaleZero", Usual(), [](ForwardCase* c) { c->scale = 0.0F; }),
      With("ScaleNegative", Usual(), [](ForwardCase* c) { c->scale = -0.25F; }),
      With("ScaleNegativeCausal", Usual(),
           [](ForwardCase* c) {
             c->scale = -0.25F;
             c->mask.mode = 3;
           }),
      With("Softcap", Usual(),
           [](ForwardCase* c) {
             c->softcap = 1.5F;
             c->scale = 0.7F;
           }),
      With("SoftcapNegativeScale", Usual(),
           [](ForwardCase* c) {
             c->softcap = 1.5F;
             c->scale = -0.7F;
           }),
      With("Sink", Usual(), [](ForwardCase* c) { c->sink = true; }),
      With("SinkPerRow", Usual(),
           [](ForwardCase* c) {
             c->sink = true;
             c->sink_form = reference::SinkForm::kPerRow;
           }),
      With("SinkPerRowOfAll", Usual(),
           [](ForwardCase* c) {
             c->sink = true;
             c->sink_form = reference::SinkForm::kPerRowOfAll;
           }),
      With("SinkPerRowPacked", Packed(),
           [](ForwardCase* c) {
             c->sink = true;
             c->sink_form = reference::SinkForm::kPerRow;
           }),
      With("SinkPackedCausal", Packed(),
           [](ForwardCase* c) {
             c->sink = true;
             c->mask.mode = 3;
           }),
      Changed("SinkWithoutItsGradient", Usual(),
              [](BackwardCase* c) {
                c->forward.sink = true;
                c->optional_gradients = false;
              }),
      With("DropoutMask", Usual(),
           [](ForwardCase* c) {
             c->dropout = DropoutForm::kMask;
             c->keep_prob = 0.8F;
           }),
      With("DropoutMaskOddRows", Packed(),
           [](ForwardCase* c) {
             c->dropout = DropoutForm::kMask;
             c->keep_prob = 0.6F;
           }),
      With("DropoutMaskKeepProbOne", Usual(), [](ForwardCase* c) { c->dropout = DropoutForm::kMask; }),
      With("DropoutSeed", Usual(),
           [](ForwardCase* c) {
             c->dropout = DropoutForm::kSeed;
             c->keep_prob = 0.7F;
           }),
      With("DropoutSeedPacked", Packed(),
           [](ForwardCase* c) {
             c->dropout = DropoutForm::kSeed;
             c->keep_prob = 0.1F;
           }),
      With("DropoutSeedSoftcapCausal", Usual(),
           [](ForwardCase* c) {
             c->dropout = DropoutForm::kSeed;
             c->keep_prob = 0.7F;
             c->softcap = 2;
             c->mask.mode = 3;
           }),
  };
}

void SetMode(ForwardCase* c, int mode, int64_t pre, int64_t next) {
  c->mask.mode = mode;
  c->mask.band = mode == 0;
  c->mask.pre = pre;
  c->mask.next = next;
}

Feature InMode(const char* name, const BackwardCase& base, int mode, int64_t pre = 0, int64_t next = 0) {
  return With(name, base, [=](ForwardCase* c) { SetMode(c, mode, pre, next); });
}

std::vector<Feature> Masks() {
  return {
      InMode("CausalTopLeft", Usual(), 2),
      InMode("Causal", Usual(), 3),
      InMode("CausalLong", Square(700), 3),
      InMode("CausalPacked", Packed(), 3),
      With("CausalMoreQueriesThanKeys", Usual(),
           [](ForwardCase* c) {
             c->mask.mode = 3;
             c->lengths = EqualLengths(1, 300, 90);
           }),
      InMode("BandTopLeft", Usual(), 0, 20, 35),
      InMode("Band", Usual(), 4, 30, 10),
      InMode("BandNegativePre", Usual(), 4, -7, 60),
      InMode("BandNegativeNext", Usual(), 4, 60, -7),
      InMode("BandUnlimited", Usual(), 4, Mask::kUnlimited, Mask::kUnlimited),
      InMode("BandEmpty", Usual(), 4, -200, -100),
      InMode("BandPacked", Packed(), 4, 12, 3),
      InMode("NarrowBandLong", Square(900), 4, 25, 0),
      With("Prefix", Usual(),
           [](ForwardCase* c) {
             c->mask.mode = 5;
             c->mask.prefix = {100, 3};
           }),
      With("PrefixPacked", Packed(),
           [](ForwardCase* c) {
             c->mask.mode = 6;
             c->mask.prefix = {20, 3, 80, 0, 0};
           }),
      With("Mode7", Packed(),
           [](ForwardCase* c) {
             c->lengths = {{33, 5, 60, 0}, {40, 7, 150, 3}};
             SetMode(c, 7, 200, -40);
             c->sparse_mode = true;
           }),
      With("Mode8", Packed(),
           [](ForwardCase* c) {
             c->lengths = {{0, 33, 5, 60}, {2, 40, 7, 150}};
             SetMode(c, 8, 200, 10);
             c->sparse_mode = true;
           }),
      With("DensePlane", Usual(), [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane; }),
      With("DensePlane4d", Usual(), [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane4d; }),
      With("DensePerBatchBool", Usual(),
           [](ForwardCase* c) {
             c->dense_mask = MaskForm::kPerBatch;
             c->dense_mask_dtype = DType::kBool;
           }),
      With("DensePerHead", Usual(), [](ForwardCase* c) { c->dense_mask = MaskForm::kPerHead; }),
      With("DensePacked", Packed(), [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane; }),
      With("DenseAlmostAll", Usual(),
           [](ForwardCase* c) {
             c->dense_mask = MaskForm::kPerHead;
             c->dense_mask_share = 0.98;
           }),
      With("DenseAndCausal", Usual(),
           [](ForwardCase* c) {
             c->dense_mask = MaskForm::kPerHead;
             c->mask.mode = 3;
           }),
      With("DenseAsMode1", Usual(),
           [](ForwardCase* c) {
             c->dense_mask = MaskForm::kPlane;
             c->mask.mode = 1;
             c->sparse_mode = true;
           }),
  };
}

void SetPse(ForwardCase* c, PseForm form, PseType type, bool broadcast_batch = false) {
  c->pse = form;
  c->pse_type = type;
  c->pse_broadcast_batch = broadcast_batch;
}

Feature Biased(const char* name, const BackwardCase& base, PseForm form, PseType type, bool broadcast_batch = false) {
  return With(name, base, [=](ForwardCase* c) { SetPse(c, form, type, broadcast_batch); });
}

std::vector<Feature> Biases() {
  return {
      Biased("PseFullType0", Usual(), PseForm::kFull, PseType::kScaleThenAdd),
      Biased("PseFullType1", Usual(), PseForm::kFull, PseType::kAddThenScale),
      Biased("PseFullBroadcastBatch", Usual(), PseForm::kFull, PseType::kAddThenScale, true),
      Biased("PseRow", Usual(), PseForm::kRow, PseType::kScaleThenAdd),
      Biased("PseRowBroadcastBatch", Usual(), PseForm::kRow, PseType::kAddThenScale, true),
      Biased("PseFullPacked", Packed(), PseForm::kFull, PseType::kScaleThenAdd),
      Biased("PseRowPacked", Packed(), PseForm::kRow, PseType::kAddThenScale),
      With("PseRowPackedFirstSequenceWithoutKeys", Packed(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kRow, PseType::kScaleThenAdd);
             c->lengths = {{3, 9, 5}, {0, 13, 7}};
           }),
      Changed("PseWithoutItsGradient", Usual(),
              [](BackwardCase* c) {
                SetPse(&c->forward, PseForm::kFull, PseType::kScaleThenAdd);
                c->optional_gradients = false;
              }),
      With("PseType1ScaleZero", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kAddThenScale);
             c->scale = 0.0F;
           }),
      With("PseType1ScaleNegative", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kAddThenScale);
             c->scale = -0.5F;
           }),
      With("PseType0ScaleNegative", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
             c->scale = -0.5F;
           }),
      With("PseF32", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kAddThenScale);
             c->pse_f32 = true;
           }),
      With("PseCausal", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
             c->mask.mode = 3;
           }),
      With("PseRowBroadcastBatchCausalDense", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kRow, PseType::kScaleThenAdd, true);
             c->mask.mode = 2;
             c->dense_mask = MaskForm::kPerHead;
           }),
      With("PseFloatMask", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
             c->pse_minus_inf_share = 0.4;
           }),
      With("PseSoftcapDropout", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kFull, PseType::kScaleThenAdd);
             c->softcap = 1;
             c->dropout = DropoutForm::kSeed;
             c->keep_prob = 0.6F;
           }),
      Biased("Slopes", Square(150), PseForm::kSlopes, PseType::kSlopes),
      Biased("SlopesOfHeads", Square(150), PseForm::kSlopes, PseType::kSlopes, true),
      Biased("SlopesOfHeadsSummedOverTheBatch", Usual(), PseForm::kSlopes, PseType::kSlopesSqrt, true),
      Biased("SlopesUnequalLengths", Usual(), PseForm::kSlopes, PseType::kSlopes),
      Biased("SlopesSqrt", Usual(), PseForm::kSlopes, PseType::kSlopesSqrt),
      With("SlopesStarts", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kSlopes, PseType::kSlopes);
             c->q_start = 37;
             c->kv_start = -11;
           }),
      With("SlopesSqrtCausalSoftcap", Usual(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kSlopes, PseType::kSlopesSqrt, true);
             c->mask.mode = 3;
             c->softcap = 2;
           }),
      With("SlopesPackedStarts", Packed(),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kSlopes, PseType::kSlopes);
             c->q_start = 5;
           }),
      With("SlopesMode8StartsOfTheFirstSequenceOnly", Packed(),
           [](ForwardCase* c) {
             c->lengths = {{40, 5, 60}, {40, 5, 60}};
             SetMode(c, 8, 200, 0);
             c->sparse_mode = true;
             SetPse(c, PseForm::kSlopes, PseType::kSlopesSqrt, true);
             c->q_start = c->kv_start = 7;
           }),
      With("PseCompressed", Square(1100),
           [](ForwardCase* c) {
             SetPse(c, PseForm::kCompressed, PseType::kAddThenScale);
             c->mask.mode = 3;
           }),
      With("PseCompressedPacked", Packed(),
           [](ForwardCase* c) {
             c->heads = c->heads_kv = 1;
             c->d = c->dv = 4;
             c->lengths = {{1100, 30, 1024}, {1100, 30, 1024}};
             SetPse(c, PseForm::kCompressed, PseType::kScaleThenAdd);
             c->mask.mode = 3;
           }),
  };
}

using Parameters = std::tuple<DType, Feature>;
class BackwardFeature : public ::testing::TestWithParam<Parameters> {};

TEST_P(BackwardFeature, MatchesTheReference) {
  const auto& [dtype, feature] = GetParam();
  BackwardCase c = feature.make();
  c.forward.dtype = dtype;
  EXPECT_TRUE(RunsLikeTheReference(c));
}

std::string NameOf(const ::testing::TestParamInfo<Parameters>& info) {
  return std::string(Name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name;
}

#define FA_FEATURES(group, list) \
  INSTANTIATE_TEST_SUITE_P(group, BackwardFeature, ::testing::ValuesIn(WithTypes(list)), NameOf)
FA_FEATURES(Layouts, Layouts());
FA_FEATURES(Scores, Scores());
FA_FEATURES(Masks, Masks());
FA_FEATURES(Biases, Biases());
#undef FA_FEATURES

}  // namespace
}  // namespace fa::test
