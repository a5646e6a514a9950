#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

// A call that was bound, and the arguments of a later run.
struct NextRun {
  explicit NextRun(BindCall bound_call) : call(std::move(bound_call)) {
    auto result = call.Bind();
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) bound = std::move(result).value();
    args = call.args;
    args.cu_q = call.cu_q;
    args.cu_kv = call.cu_kv;
  }
  [[nodiscard]] Status Check() const { return ops::CheckRunArgs(bound, args); }

  BindCall call;
  ops::BoundAttention bound;
  AttentionArgs args;
};

BindCall WithEverything() {
  BindCall call;
  call.args.q_rope = BindCall::Tensor(DType::kF32, {2, 6, 7, 4});
  call.args.k_rope = BindCall::Tensor(DType::kF32, {2, 3, 9, 4});
  call.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 9});
  call.args.dense_mask = BindCall::Tensor(DType::kU8, {7, 9});
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {100});
  call.args.sink = BindCall::Tensor(DType::kF32, {6});
  call.args.lse = BindCall::Output(DType::kF32, {2, 6, 7});
  return call;
}

TEST(CheckRunArgs, AcceptsWhatWasPlannedAtAnyAddress) {
  NextRun run(WithEverything());
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  run.args.q.data = BindCall::Somewhere();
  run.args.out.data = BindCall::Somewhere();
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
}

TEST(CheckRunArgs, DenseStridesMayBeWrittenOut) {
  NextRun run{BindCall()};
  run.args.k.stride = {432, 144, 16, 1};
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  run.args.k.stride = {432, 144, 17, 1};
  EXPECT_TRUE(Refused(run.Check(), "k.stride=[432,144,17,1], want [432,144,16,1] (as planned)"));
  run.args.k.stride = {144, 16, 1};
  EXPECT_TRUE(Refused(run.Check(), "k.stride=[144,16,1], want [432,144,16,1] (as planned)"));
  NextRun single(BindCall({.batch = 1}));
  single.args.k.stride = {7, 144, 16, 1};  // there is one batch element, so its stride is never used
  EXPECT_TRUE(single.Check().ok()) << single.Check().message();
}

TEST(CheckRunArgs, RefusesDifferences) {
  NextRun run(WithEverything());
  run.args.k.shape[2] = 8;
  EXPECT_TRUE(Refused(run.Check(), "k.shape=[2,3,8,16], want [2,3,9,16] (as planned)"));
  run = NextRun(WithEverything());
  run.args.v.dtype = DType::kF16;
  EXPECT_TRUE(Refused(run.Check(), "v.dtype=f16, want f32 (as planned)"));
  run = NextRun(WithEverything());
  run.args.sink.data = nullptr;
  EXPECT_TRUE(Refused(run.Check(), "sink: null data, want it present (as planned)"));
  run = NextRun(WithEverything());
  run.args.lse.data = nullptr;
  EXPECT_TRUE(Refused(run.Check(), "lse: null data, want it present (as planned)"));
  run = NextRun(BindCall());
  run.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 9});
  EXPECT_TRUE(Refused(run.Check(), "pse: given, want none (as planned)"));
}

TEST(CheckRunArgs, RequiredTensorsNeedMemory) {
  const struct {
    const char* name;
    void (*clear)(AttentionArgs&);
  } tensors[] = {{"q", [](AttentionArgs& args) { args.q.data = nullptr; }},
                 {"k", [](AttentionArgs& args) { args.k.data = nullptr; }},
                 {"v", [](AttentionArgs& args) { args.v.data = nullptr; }},
                 {"out", [](AttentionArgs& args) { args.out.data = nullptr; }}};
  for (const auto& tensor : tensors) {
    NextRun run{BindCall()};
    tensor.clear(run.args);
    EXPECT_TRUE(Refused(run.Check(), std::string(tensor.name) + ": null data"));
  }
}

TEST(CheckRunArgs, EmptyTensorsNeedNoMemory) {
  NextRun run(BindCall({.sk = 0}));
  run.args.k.data = nullptr;
  run.args.v.data = nullptr;
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
}

TEST(CheckRunArgs, RefusesOtherLengths) {
  NextRun run(BindCall({.layout = Layout::kTND, .sq = 12, .sk = 10, .cu_q = {3, 12}, .cu_kv = {6, 10}}));
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  const std::vector<int64_t> same = {3, 12};
  run.args.cu_q = same;
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  const std::vector<int64_t> other = {4, 12};
  run.args.cu_q = other;
  EXPECT_TRUE(Refused(run.Check(), "cu_q[0]=4, want 3 (as planned)"));
  const std::vector<int64_t> more = {6, 10, 10};
  run.args.cu_q = same;
  run.args.cu_kv = more;
  EXPECT_TRUE(Refused(run.Check(), "cu_kv has 3 entries, want 2 (as planned)"));
}

TEST(CheckRunArgs, BoundOwnsItsLengths) {
  Result<ops::BoundAttention> bound = Status::Internal("not bound");
  {
    const BindCall call({.layout = Layout::kTND, .sq = 12, .sk = 10, .cu_q = {3, 12}, .cu_kv = {6, 10}});
    bound = call.Bind();
  }
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->cu_q, (std::vector<int64_t>{3, 12}));
}

TEST(CheckRunArgs, OutputsShareNothing) {
  NextRun run(WithEverything());
  run.args.out.data = const_cast<void*>(run.args.v.data);
  EXPECT_TRUE(Refused(run.Check(), "out: shares memory with v"));
  run = NextRun(WithEverything());
  run.args.softmax_sum.data = run.args.softmax_max.data;
  EXPECT_TRUE(Refused(run.Check(), "softmax_sum: shares memory with softmax_max"));
  run = NextRun(WithEverything());
  run.args.lse.data = static_cast<std::byte*>(const_cast<void*>(run.args.sink.data)) + 20;
  EXPECT_TRUE(Refused(run.Check(), "lse: shares memory with sink"));
  run.args.lse.data = static_cast<std::byte*>(const_cast<void*>(run.args.sink.data)) + 24;
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
}

TEST(CheckRunArgs, InputsMayAlias) {
  NextRun run(BindCall({.heads = 3, .d = 8}));
  run.args.v.data = run.args.k.data;
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
}

// Returns a call whose query, key, value and out are slots of one [B,S,4,N,D] buffer, so that they interleave.
BindCall Interleaved() {
  constexpr int64_t kRows = 7, kHeads = 3, kD = 8, kRow = 4 * kHeads * kD;
  BindCall call(
      {.layout = Layout::kBSND, .heads = kHeads, .heads_kv = kHeads, .sq = kRows, .sk = kRows, .d = kD, .dv = kD});
  auto* base = static_cast<float*>(BindCall::Somewhere());
  const Dims stride = {kRows * kRow, kRow, kD, 1};
  call.args.q.stride = call.args.k.stride = call.args.v.stride = call.args.out.stride = stride;
  call.args.q.data = base;
  call.args.k.data = base + kHeads * kD;
  call.args.v.data = base + 2 * kHeads * kD;
  call.args.out.data = base + 3 * kHeads * kD;
  return call;
}

TEST(CheckRunArgs, InterleavedSlotsShareNothing) {
  NextRun run(Interleaved());
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  run.args.out.data = static_cast<float*>(run.args.out.data) - 1;
  EXPECT_TRUE(Refused(run.Check(), "out: shares memory with v"));
}

TEST(CheckRunArgs, CompressedMaskIsReadInTheRun) {
  std::vector<uint8_t> triangle(2048 * 2048);
  for (size_t i = 0; i < 2048; ++i) {
    for (size_t j = i + 1; j < 2048; ++j) triangle[i * 2048 + j] = 1;
  }
  BindCall call;
  call.args.dense_mask = {triangle.data(), DType::kU8, {2048, 2048}, {}};
  call.SetSparseMode(2);
  NextRun run(call);
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  triangle[5 * 2048 + 7] = 0;
  EXPECT_TRUE(Refused(run.Check(), "dense_mask[5][7]=0, want 1"));
}

}  // namespace
}  // namespace fa::test
