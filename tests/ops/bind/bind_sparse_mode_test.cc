// Tests sparse modes that the vendor's device refuses. Also tests which calls of the vendor's table of cases are
// accepted or refused.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

constexpr int64_t kUnlimited = 2147483647;

struct Case {
  std::string name;
  CallShape shape;
  int64_t mode = 0;
  int64_t pre = kUnlimited, next = kUnlimited;
  std::vector<int64_t> prefix = {};
  Dims mask = {};  ///< shape of the mask; empty: no mask tensor
  Dims pse = {};   ///< shape of pse, or of the slopes if pse_type is 2 or 3; empty: no bias
  int pse_type = 1;
  int64_t q_start = 0, kv_start = 0;
  int64_t heads = -1;  ///< options.heads; -1: the heads of the shape
  float keep_prob = 1;
  std::string refused = {};  ///< a part of the expected error; empty: the call is accepted
};

BindCall Make(const Case& c) {
  BindCall call(c.shape);
  if (!c.mask.empty()) call.args.dense_mask = BindCall::Tensor(DType::kBool, c.mask);
  if (!c.pse.empty()) call.args.pse = BindCall::Tensor(DType::kF32, c.pse);
  call.options.pse_type = static_cast<PseType>(c.pse_type);
  call.options.q_start = c.q_start;
  call.options.kv_start = c.kv_start;
  call.options.keep_prob = c.keep_prob;
  if (c.heads >= 0) call.options.heads = c.heads;
  call.SetSparseMode(c.mode, c.pre, c.next, c.prefix);
  return call;
}

CallShape Sbh(int64_t batch, int64_t heads, int64_t sq, int64_t sk, int64_t d = 128) {
  return {
      .layout = Layout::kSBH, .batch = batch, .heads = heads, .heads_kv = heads, .sq = sq, .sk = sk, .d = d, .dv = d};
}

CallShape Tnd(int64_t heads, std::vector<int64_t> q_lengths, std::vector<int64_t> k_lengths) {
  CallShape shape = {.layout = Layout::kTND, .heads = heads, .heads_kv = heads, .sq = 0, .sk = 0, .d = 64, .dv = 64};
  for (const int64_t length : q_lengths) shape.cu_q.push_back(shape.sq += length);
  for (const int64_t length : k_lengths) shape.cu_kv.push_back(shape.sk += length);
  return shape;
}

const Dims kCompressed = {2048, 2048};

class VendorCases : public ::testing::TestWithParam<Case> {};

TEST_P(VendorCases, PassOrFail) {
  const BindCall call = Make(GetParam());
  if (GetParam().refused.empty()) {
    EXPECT_TRUE(Binds(call));
  } else {
    EXPECT_TRUE(Refused(call, GetParam().refused));
  }
}

const Case kPassing[] = {
    {.name = "causal", .shape = Sbh(2, 8, 2048, 2048), .mode = 3, .mask = kCompressed},
    {.name = "mode0_pre1024_next0", .shape = Sbh(1, 2, 2048, 2048), .pre = 1024, .next = 0, .mask = {2048, 2048}},
    {.name = "mode0_pre1024_next_900", .shape = Sbh(1, 2, 2048, 2048), .pre = 1024, .next = -900, .mask = {2048, 2048}},
    {.name = "mode4_pre1024_next_900",
     .shape = Sbh(1, 2, 2048, 2048),
     .mode = 4,
     .pre = 1024,
     .next = -900,
     .mask = kCompressed},
    {.name = "mode0_pre_900_next1024", .shape = Sbh(1, 2, 2048, 2048), .pre = -900, .next = 1024, .mask = {2048, 2048}},
    {.name = "mode4_bsnd_d125",
     .shape =
         {.layout = Layout::kBSND, .batch = 4, .heads = 4, .heads_kv = 4, .sq = 128, .sk = 1024, .d = 125, .dv = 125},
     .mode = 4,
     .pre = 500,
     .next = 300,
     .mask = kCompressed},
    {.name = "mode3_wide", .shape = Sbh(1, 10, 2048, 4096), .mode = 3, .mask = kCompressed},
    {.name = "mode3_tall", .shape = Sbh(1, 10, 4096, 2048), .mode = 3, .mask = kCompressed},
    {.name = "mode5_prefix100", .shape = Sbh(1, 2, 512, 512), .mode = 5, .prefix = {100}, .mask = {512, 512}},
    {.name = "mode6_prefix0_s317_d80",
     .shape = Sbh(1, 2, 317, 317, 80),
     .mode = 6,
     .prefix = {0},
     .mask = {3072, 2048}},
    {.name = "tnd_mode6", .shape = Tnd(2, {2048}, {2048}), .mode = 6, .prefix = {700}, .mask = {3072, 2048}},
    {.name = "small_mode1", .shape = Sbh(9, 13, 16, 16, 256), .mode = 1, .mask = {16, 16}},
    {.name = "small_mode5",
     .shape = Sbh(9, 13, 16, 16, 256),
     .mode = 5,
     .prefix = {0, 1, 2, 3, 4, 5, 6, 7, 16},
     .mask = {9, 1, 16, 16}},
    {.name = "small_mode6",
     .shape = Sbh(9, 13, 16, 16, 256),
     .mode = 6,
     .prefix = {0, 1, 2, 3, 4, 5, 6, 7, 16},
     .mask = {3072, 2048}},
    {.name = "slopes_type2",
     .shape = {.batch = 4, .heads = 16, .heads_kv = 16, .sq = 256, .sk = 256, .d = 32, .dv = 32},
     .pse = {4, 16},
     .pse_type = 2},
    {.name = "slopes_type3",
     .shape = {.batch = 4, .heads = 16, .heads_kv = 16, .sq = 256, .sk = 256, .d = 32, .dv = 32},
     .pse = {16},
     .pse_type = 3},
    {.name = "tnd_slopes_mode8",
     .shape = Tnd(4, {10, 24, 32}, {11, 24, 32}),
     .mode = 8,
     .pre = 11,
     .next = 0,
     .mask = kCompressed,
     .pse = {4},
     .pse_type = 2,
     .q_start = 2,
     .kv_start = 1},
    {.name = "tnd_mode7", .shape = Tnd(2, {4, 2}, {4, 6}), .mode = 7, .pre = 6, .next = -2},
    {.name = "tnd_mode8", .shape = Tnd(2, {3, 4}, {4, 4}), .mode = 8, .pre = 4, .next = 1},
    {.name = "tnd_mode0_band", .shape = Tnd(2, {100}, {50}), .pre = 50, .next = 0, .mask = {100, 50}},
    {.name = "tnd_mode3_empty_element", .shape = Tnd(2, {4, 0}, {4, 6}), .mode = 3},
    // The vendor's device refuses these two calls. This library has no limit on head sizes, and takes slopes with any
    // lengths.
    {.name = "d896", .shape = Sbh(1, 2, 64, 64, 896)},
    {.name = "slopes_unequal_lengths",
     .shape = {.batch = 1, .heads = 4, .heads_kv = 4, .sq = 128, .sk = 256, .d = 64, .dv = 64},
     .pse = {4},
     .pse_type = 2},
    {.name = "compressed_pse_causal",
     .shape = Sbh(1, 2, 2048, 2048),
     .mode = 3,
     .mask = kCompressed,
     .pse = {1, 2, 1024, 2048}},
    {.name = "compressed_pse_mode0_causal",
     .shape = Sbh(1, 2, 2048, 2048),
     .pre = 2048,
     .next = 0,
     .mask = {2048, 2048},
     .pse = {1, 2, 1024, 2048}},
};

const Case kFailing[] = {
    {.name = "heads0", .shape = Sbh(1, 8, 64, 64), .heads = 0, .refused = "heads=0, want >= 1"},
    {.name = "heads5", .shape = Sbh(1, 8, 64, 64), .heads = 5, .refused = "q.shape[2]=1024, want a multiple of 5"},
    {.name = "heads1000",
     .shape = Sbh(1, 8, 64, 64),
     .heads = 1000,
     .refused = "q.shape[2]=1024, want a multiple of 1000"},
    {.name = "keep_prob_1_2", .shape = Sbh(1, 2, 64, 64), .keep_prob = 1.2f, .refused = "keep_prob=1.2"},
    {.name = "both_negative",
     .shape = Sbh(1, 2, 1024, 1024),
     .pre = -512,
     .next = -512,
     .mask = {1024, 1024},
     .refused = "mask.pre=-512, want >= 512 (minus mask.next, sparse_mode 0)"},
    {.name = "pre_beyond_next",
     .shape = Sbh(1, 2, 1024, 1024),
     .pre = -1024,
     .next = 512,
     .mask = {1024, 1024},
     .refused = "mask.pre=-1024, want >= -512"},
    {.name = "mode4_next_beyond_pre",
     .shape = Sbh(1, 2, 1024, 1024),
     .mode = 4,
     .pre = 512,
     .next = -1024,
     .mask = kCompressed,
     .refused = "mask.next=-1024, want >= -512 (minus mask.pre, sparse_mode 4)"},
    {.name = "mode0_pre_all_keys",
     .shape = Sbh(1, 2, 2048, 1024),
     .pre = -1024,
     .next = 2048,
     .mask = {2048, 1024},
     .refused = "mask.pre=-1024, want >= -1023 (sparse_mode 0, Sq=2048, Sk=1024)"},
    {.name = "mode0_next_all_rows",
     .shape = Sbh(1, 2, 1024, 2048),
     .pre = 2048,
     .next = -1024,
     .mask = {1024, 2048},
     .refused = "mask.next=-1024, want >= -1023 (sparse_mode 0, Sq=1024, Sk=2048)"},
    {.name = "mode4_pre_all_rows",
     .shape = Sbh(1, 2, 1024, 2048),
     .mode = 4,
     .pre = -1024,
     .next = 2048,
     .refused = "mask.pre=-1024, want >= -1023 (sparse_mode 4"},
    {.name = "mode4_next_all_keys",
     .shape = Sbh(1, 2, 2048, 1024),
     .mode = 4,
     .pre = 2048,
     .next = -1024,
     .refused = "mask.next=-1024, want >= -1023 (sparse_mode 4"},
    {.name = "mode99", .shape = Sbh(1, 2, 64, 64), .mode = 99, .refused = "sparse_mode=99, want 0..8"},
    {.name = "mode100", .shape = Sbh(1, 2, 64, 64), .mode = 100, .refused = "sparse_mode=100, want 0..8"},
    {.name = "negative_mode", .shape = Sbh(1, 2, 64, 64), .mode = -1, .refused = "sparse_mode=-1, want 0..8"},
    {.name = "mode7_fixed_length",
     .shape = Sbh(1, 2, 64, 64),
     .mode = 7,
     .refused = "sparse_mode=7, want 0..6 (layout SBH)"},
    {.name = "mode8_fixed_length",
     .shape = Sbh(1, 2, 64, 64),
     .mode = 8,
     .refused = "sparse_mode=8, want 0..6 (layout SBH)"},
    {.name = "tnd_mode5",
     .shape = Tnd(2, {64}, {64}),
     .mode = 5,
     .prefix = {3},
     .refused = "sparse_mode=5, want 0..4 or 6..8 (layout TND)"},
    {.name = "tnd_mode0_next_512",
     .shape = Tnd(2, {1024}, {1024}),
     .pre = 1024,
     .next = -512,
     .mask = {1024, 1024},
     .refused = "mask.next=-512, want >= 0 (sparse_mode 0, sequence 0"},
    {.name = "tnd_mode0_tall_pre512",
     .shape = Tnd(2, {2048}, {1024}),
     .pre = 512,
     .next = 0,
     .mask = {2048, 1024},
     .refused = "mask.pre=512, want >= 1024 (sparse_mode 0, sequence 0, Sq=2048, Sk=1024)"},
    {.name = "tnd_mode3_tall",
     .shape = Tnd(2, {4, 8}, {4, 7}),
     .mode = 3,
     .refused = "cu_kv[1]: want at least as many keys as queries (sparse_mode 3, sequence 1, Sq=8, Sk=7)"},
    {.name = "tnd_mode4_pre_negative",
     .shape = Tnd(2, {64}, {64}),
     .mode = 4,
     .pre = -1,
     .next = 5,
     .refused = "mask.pre=-1, want >= 0 (sparse_mode 4, sequence 0"},
    {.name = "tnd_mode4_next_small",
     .shape = Tnd(2, {64}, {60}),
     .mode = 4,
     .pre = 10,
     .next = 3,
     .refused = "mask.next=3, want >= 4 (sparse_mode 4, sequence 0"},
    {.name = "mode7_pre_short",
     .shape = Tnd(2, {4, 2}, {4, 6}),
     .mode = 7,
     .pre = 5,
     .next = -2,
     .refused = "mask.pre=5, want >= 6 (sparse_mode 7, sequence 1"},
    {.name = "mode7_next_positive",
     .shape = Tnd(2, {4, 2}, {4, 6}),
     .mode = 7,
     .pre = 6,
     .next = 1,
     .refused = "mask.next=1, want -4..0 (sparse_mode 7, sequence 1"},
    {.name = "mode7_next_low",
     .shape = Tnd(2, {4, 2}, {4, 6}),
     .mode = 7,
     .pre = 6,
     .next = -5,
     .refused = "mask.next=-5, want -4..0"},
    {.name = "mode7_other_tall",
     .shape = Tnd(2, {4, 2}, {3, 6}),
     .mode = 7,
     .pre = 6,
     .next = -2,
     .refused = "cu_kv[0]: want at least as many keys as queries (sparse_mode 7, sequence 0"},
    {.name = "mode7_slopes",
     .shape = Tnd(2, {4, 2}, {4, 6}),
     .mode = 7,
     .pre = 6,
     .next = -2,
     .pse = {2},
     .pse_type = 2,
     .refused = "pse_type=2, want 0 or 1 (sparse_mode 7)"},
    {.name = "mode8_next_2048",
     .shape = Tnd(2, {1024, 8}, {1024, 8}),
     .mode = 8,
     .pre = 1024,
     .next = -2048,
     .refused = "mask.next=-2048, want >= 0 (sparse_mode 8, sequence 0"},
    {.name = "mode8_pre_short",
     .shape = Tnd(2, {0, 3}, {5, 4}),
     .mode = 8,
     .pre = 3,
     .next = 1,
     .refused = "mask.pre=3, want >= 4 (sparse_mode 8, sequence 1"},
    {.name = "prefix_below_delta",
     .shape = Sbh(3, 2, 1024, 2048),
     .mode = 6,
     .prefix = {1536, 128, 1536},
     .refused = "mask.prefix[1]=128, want 1024..2048 (sparse_mode 6, Sq=1024, Sk=2048)"},
    {.name = "prefix_beyond_keys",
     .shape = Sbh(1, 2, 2048, 1024),
     .mode = 5,
     .prefix = {1025},
     .refused = "mask.prefix[0]=1025, want 0..1024 (sparse_mode 5"},
    {.name = "prefix_count",
     .shape = Sbh(3, 2, 64, 64),
     .mode = 6,
     .prefix = {1, 2},
     .refused = "mask.prefix has 2 entries, want 3 (q.shape[1])"},
    {.name = "prefix_missing",
     .shape = Sbh(3, 2, 64, 64),
     .mode = 5,
     .refused = "mask.prefix: missing, want 3 entries"},
    {.name = "tnd_prefix_range",
     .shape = Tnd(2, {4, 8}, {4, 8}),
     .mode = 6,
     .prefix = {0, 9},
     .refused = "mask.prefix[1]=9, want 0..8 (sparse_mode 6, sequence 1"},
    {.name = "mode5_shared_mask",
     .shape = Sbh(2, 2, 64, 64),
     .mode = 5,
     .prefix = {1, 2},
     .mask = {64, 64},
     .refused = "dense_mask.shape=[64,64], want [B,1,Sq,Sk] or [B,N,Sq,Sk] (sparse_mode 5)"},
    {.name = "compressed_pse_full",
     .shape = Sbh(1, 2, 2048, 2048),
     .pse = {1, 2, 1024, 2048},
     .refused = "pse: the 1024-row form wants a causal mask"},
    {.name = "compressed_pse_window",
     .shape = Sbh(1, 2, 2048, 2048),
     .mode = 4,
     .pre = 100,
     .next = 0,
     .pse = {1, 2, 1024, 2048},
     .refused = "pse: the 1024-row form wants a causal mask"},
    {.name = "compressed_pse_s512",
     .shape = Sbh(1, 2, 512, 512),
     .mode = 3,
     .pse = {1, 2, 1024, 512},
     .refused = "pse.shape[2]=1024, want 512 (q.shape[0]) or 1"},
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Pass, VendorCases, ::testing::ValuesIn(kPassing), NameOf);
INSTANTIATE_TEST_SUITE_P(Fail, VendorCases, ::testing::ValuesIn(kFailing), NameOf);

TEST(BindSparseMode, TheSameRulesWithoutAModeAreAccepted) {
  BindCall call(Sbh(1, 2, 1024, 1024));
  call.options.mask = Mask::Band(-512, -512);
  EXPECT_TRUE(Binds(call));
  call.options.mask = Mask::Prefix({-7});
  EXPECT_TRUE(Binds(call));
  BindCall packed(Tnd(2, {8}, {4}));
  packed.options.mask = Mask::Causal();
  EXPECT_TRUE(Binds(packed));
}

TEST(BindSparseMode, SmallestIntegersDoNotOverflow) {
  BindCall call(Sbh(1, 2, 64, 64));
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  call.SetSparseMode(4, lowest, Mask::kUnlimited);
  EXPECT_TRUE(Refused(call, "mask.pre=-9223372036854775808, want"));
  call.SetSparseMode(4, Mask::kUnlimited, lowest);
  EXPECT_TRUE(Refused(call, "mask.next=-9223372036854775808, want"));
}

}  // namespace
}  // namespace fa::test
