// Computes the calls of the vendor's case table that the device accepts, forward and backward, on every level. Compares
// the results of C++ with the double-precision reference. The interface must give the bits of C++. Calls
// have the table's features, but fewer heads, batch elements and rows. pre, next and prefix shrink with the rows.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aclnn/calls/backward_face.h"
#include "aclnn/calls/forward_face.h"
#include "support/compare/compare.h"
#include "support/compare/compare_gradients.h"

namespace fa::test {
namespace {

struct VendorCase {
  std::string name;
  ForwardCase call;
};

struct Rule {
  int mode = 0;
  int64_t pre = 2147483647, next = 2147483647;
  std::vector<int64_t> prefix = {};
  MaskForm dense = MaskForm::kNone;  ///< form of a dense mask; with kNone the mask is compressed
};

struct Shape {
  Layout layout = Layout::kSBH;
  int64_t heads = 2, d = 32;
  reference::Lengths lengths;
};

ForwardCase Call(const Shape& shape, const Rule& rule) {
  ForwardCase c;
  c.layout = shape.layout;
  c.heads = c.heads_kv = shape.heads;
  c.d = c.dv = shape.d;
  c.lengths = shape.lengths;
  c.sparse_mode = true;
  c.mask.mode = rule.mode;
  c.mask.band = rule.mode == 0;
  c.mask.pre = rule.pre;
  c.mask.next = rule.next;
  c.mask.prefix = rule.prefix;
  c.dense_mask = rule.dense;
  return c;
}

ForwardCase WithSlopes(ForwardCase c, reference::PseType type, bool per_head = false) {
  c.pse = PseForm::kSlopes;
  c.pse_type = type;
  c.pse_broadcast_batch = per_head;
  return c;
}

ForwardCase Packed(std::vector<int64_t> q, std::vector<int64_t> kv, const Rule& rule) {
  return Call({.layout = Layout::kTND, .lengths = {std::move(q), std::move(kv)}}, rule);
}

ForwardCase PackedSlopes() {
  const Rule rule = {.mode = 8, .pre = 11, .next = 0};
  ForwardCase c = WithSlopes(Packed({10, 24, 32}, {11, 24, 32}, rule), reference::PseType::kSlopes, true);
  c.q_start = 2;
  c.kv_start = 1;
  return c;
}

ForwardCase CompressedBias() {
  ForwardCase c = Call({.heads = 1, .d = 4, .lengths = EqualLengths(1, 1100, 1100)}, {.mode = 3});
  c.pse = PseForm::kCompressed;
  c.pse_type = reference::PseType::kAddThenScale;
  return c;
}

ForwardCase SlopesWithoutMask(reference::PseType type, bool per_head) {
  ForwardCase c;
  c.heads = c.heads_kv = 4;
  c.d = c.dv = 32;
  c.lengths = EqualLengths(2, 256, 256);
  return WithSlopes(c, type, per_head);
}

const std::vector<VendorCase>& VendorCases() {
  const auto square = [](int64_t rows) { return EqualLengths(1, rows, rows); };
  const Shape half = {.lengths = square(512)}, tiny = {.heads = 13, .d = 256, .lengths = EqualLengths(9, 16, 16)};
  const std::vector<int64_t> prefixes = {0, 1, 2, 3, 4, 5, 6, 7, 16};
  static const std::vector<VendorCase> cases = {
      {"causal", Call({.d = 128, .lengths = EqualLengths(2, 300, 300)}, {.mode = 3})},
      {"mode0_pre_next0", Call(half, {.mode = 0, .pre = 256, .next = 0, .dense = MaskForm::kPlane})},
      {"mode0_next_negative", Call(half, {.mode = 0, .pre = 256, .next = -225, .dense = MaskForm::kPlane})},
      {"mode4_next_negative", Call(half, {.mode = 4, .pre = 256, .next = -225})},
      {"mode0_pre_negative", Call(half, {.mode = 0, .pre = -225, .next = 256, .dense = MaskForm::kPlane})},
      {"mode4_pre_negative", Call(half, {.mode = 4, .pre = -225, .next = 256})},
      {"mode4_d125", Call({.layout = Layout::kBSND, .d = 125, .lengths = EqualLengths(1, 128, 1024)},
                          {.mode = 4, .pre = 500, .next = 300})},
      {"mode3_wide", Call({.lengths = EqualLengths(1, 256, 512)}, {.mode = 3})},
      {"mode3_tall", Call({.lengths = EqualLengths(1, 512, 256)}, {.mode = 3})},
      {"mode5_prefix", Call(half, {.mode = 5, .prefix = {100}, .dense = MaskForm::kPlane})},
      {"mode6_prefix0_d80", Call({.d = 80, .lengths = square(317)}, {.mode = 6, .prefix = {0}})},
      {"packed_mode6", Packed({512}, {512}, {.mode = 6, .prefix = {175}})},
      {"small_mode1", Call(tiny, {.mode = 1, .dense = MaskForm::kPlane})},
      {"small_mode5", Call(tiny, {.mode = 5, .prefix = prefixes, .dense = MaskForm::kPerBatch})},
      {"small_mode6", Call(tiny, {.mode = 6, .prefix = prefixes})},
      {"slopes_type2", SlopesWithoutMask(reference::PseType::kSlopes, false)},
      {"slopes_type3", SlopesWithoutMask(reference::PseType::kSlopesSqrt, true)},
      {"packed_slopes_mode8", PackedSlopes()},
      {"packed_mode7", Packed({4, 2}, {4, 6}, {.mode = 7, .pre = 6, .next = -2})},
      {"packed_mode8", Packed({3, 4}, {4, 4}, {.mode = 8, .pre = 4, .next = 1})},
      {"packed_mode0_band", Packed({100}, {50}, {.mode = 0, .pre = 50, .next = 0, .dense = MaskForm::kPlane})},
      {"packed_mode3_empty_element", Packed({4, 0}, {4, 6}, {.mode = 3})},
      {"d896", Call({.d = 896, .lengths = square(64)}, {.mode = 2})},
      {"compressed_bias", CompressedBias()},
  };
  return cases;
}

class Vendor : public ::testing::TestWithParam<VendorCase> {};

TEST_P(Vendor, ForwardIsRight) {
  const ForwardCase& c = GetParam().call;
  EXPECT_TRUE(RunsLikeTheReference(c));
  EXPECT_TRUE(SameAsCpp(c, c.packed() ? ForwardVersion::kVarLenV5 : ForwardVersion::kScoreV3));
}

TEST_P(Vendor, BackwardIsRight) {
  BackwardCase c;
  c.forward = GetParam().call;
  EXPECT_TRUE(RunsLikeTheReference(c));
  EXPECT_TRUE(SameAsCpp(c, c.forward.packed() ? BackwardVersion::kUnpaddingV5 : BackwardVersion::kGradV3));
}

INSTANTIATE_TEST_SUITE_P(Table, Vendor, ::testing::ValuesIn(VendorCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa::test
