// Dense and sparse operators take the lengths of packed sequences in the same form: inclusive prefix sums, in which a
// leading 0 means an empty first sequence.
#include "ops/bind/prefix_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/sparse_flash_attention.h"
#include "fa/view.h"
#include "ops/bind/argument_error.h"

namespace fa::test {
namespace {

std::string Message(const std::vector<int64_t>& sums, int64_t rows) {
  return ops::CheckPrefixSums("cu_q", sums, rows, ops::Arg("q", ".shape", "[0]")).message();
}

TEST(PrefixSums, EmptySequencesAreFine) {
  for (const std::vector<int64_t>& sums : {std::vector<int64_t>{0, 5}, {5}, {0, 0, 5, 5}, {0}, {3}}) {
    EXPECT_EQ(Message(sums, 5), "");
  }
  EXPECT_EQ(Message({}, 0), "");
}

TEST(PrefixSums, OthersAreNamedByTheirEntry) {
  EXPECT_EQ(Message({}, 5), "invalid argument: cu_q: missing, want inclusive prefix sums (layout TND)");
  EXPECT_EQ(Message({-1}, 5), "invalid argument: cu_q[0]=-1, want >= 0");
  EXPECT_EQ(Message({3, 2}, 5), "invalid argument: cu_q[1]=2, want >= 3 (cu_q[0])");
  EXPECT_EQ(Message({3, 6}, 5), "invalid argument: cu_q[1]=6, want <= 5 (q.shape[0])");
}

constexpr int64_t kRows = 7, kKeys = 9, kHeads = 2, kSize = 8;

std::vector<float> Wave(int64_t size, float frequency) {
  std::vector<float> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(frequency * static_cast<float>(i));
  return values;
}

std::vector<float> Dense(const std::vector<int64_t>& cu_q, const std::vector<int64_t>& cu_kv) {
  const std::vector<float> q = Wave(kRows * kHeads * kSize, 0.7f), k = Wave(kKeys * kHeads * kSize, 1.1f);
  std::vector<float> out(q.size(), NAN);
  AttentionArgs args;
  args.q = View(q.data(), {kRows, kHeads, kSize});
  args.k = args.v = View(k.data(), {kKeys, kHeads, kSize});
  args.cu_q = cu_q;
  args.cu_kv = cu_kv;
  args.out = View(out.data(), {kRows, kHeads, kSize});
  AttentionOptions options;
  options.layout = Layout::kTND;
  options.mask = Mask::Causal();
  const Status status = FlashAttention(args, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

std::vector<float> Sparse(const std::vector<int64_t>& lengths_q, const std::vector<int64_t>& lengths_kv) {
  const std::vector<float> q = Wave(kRows * kHeads * kSize, 0.7f), k = Wave(kKeys * kSize, 1.1f);
  const std::vector<int32_t> indices(static_cast<size_t>(kRows), 0);
  std::vector<float> out(q.size(), NAN);
  SparseAttentionArgs args;
  args.q = View(q.data(), {kRows, kHeads, kSize});
  args.k = args.v = View(k.data(), {kKeys, 1, kSize});
  args.sparse_indices = View(indices.data(), {kRows, 1, 1});
  args.lengths_q = lengths_q;
  args.lengths_kv = lengths_kv;
  args.out = View(out.data(), {kRows, kHeads, kSize});
  SparseAttentionOptions options;
  options.layout = Layout::kTND;
  options.mask = SparseMask::kNone;
  const Status status = SparseFlashAttention(args, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

// Returns the results of a call with slopes and sparse mode 8. In this mode q_start and kv_start apply to the first
// sequence.
std::vector<float> Slopes(const std::vector<int64_t>& cu_q, const std::vector<int64_t>& cu_kv) {
  const std::vector<float> q = Wave(kRows * kHeads * kSize, 0.7f), k = Wave(kKeys * kHeads * kSize, 1.1f);
  const std::vector<float> slopes = {0.25F, 0.5F};
  std::vector<float> lse(static_cast<size_t>(kRows * kHeads), NAN), out(q.size(), NAN);
  AttentionArgs args;
  args.q = View(q.data(), {kRows, kHeads, kSize});
  args.k = args.v = View(k.data(), {kKeys, kHeads, kSize});
  args.pse = View(slopes.data(), {kHeads});
  args.cu_q = cu_q;
  args.cu_kv = cu_kv;
  args.out = View(out.data(), {kRows, kHeads, kSize});
  args.lse = View(lse.data(), {kRows, kHeads});
  AttentionOptions options;
  options.layout = Layout::kTND;
  options.pse_type = PseType::kSlopes;
  options.q_start = 2;
  options.mask = *Mask::FromSparseMode(8, kKeys, 0, {}, /*dense_mask_given=*/true);
  const Status status = FlashAttention(args, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return lse;
}

TEST(PrefixSums, ALeadingZeroChangesNoBit) {
  for (auto* run : {&Dense, &Sparse, &Slopes}) {
    const std::vector<float> want = run({3, 7}, {4, 9});
    EXPECT_FALSE(std::isnan(want.front()) || std::isnan(want.back()));
    EXPECT_EQ(run({0, 3, 7}, {0, 4, 9}), want);
    EXPECT_EQ(run({0, 0, 3, 3, 7}, {0, 0, 4, 4, 9}), want);
  }
}

}  // namespace
}  // namespace fa::test
