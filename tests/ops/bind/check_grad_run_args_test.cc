#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bind_grad_call.h"

namespace fa::test {
namespace {

GradCall GradWithEverything() {
  BindCall forward;
  forward.args.q_rope = BindCall::Tensor(DType::kF32, {2, 6, 7, 4});
  forward.args.k_rope = BindCall::Tensor(DType::kF32, {2, 3, 9, 4});
  forward.args.pse = BindCall::Tensor(DType::kF32, {1, 6, 7, 9});
  forward.args.dense_mask = BindCall::Tensor(DType::kU8, {7, 9});
  forward.args.drop_mask = BindCall::Tensor(DType::kU8, {100});
  forward.args.sink = BindCall::Tensor(DType::kF32, {6});
  GradCall call(forward);
  call.args.dpse = GradCall::Like(call.args.pse);
  call.args.dsink = GradCall::Like(call.args.sink);
  return call;
}

// A call that was bound, and the arguments of a later run.
struct NextGradRun {
  explicit NextGradRun(GradCall bound_call) : call(std::move(bound_call)), args(call.WithLengths()) {
    auto result = call.Bind();
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) bound = std::move(result).value();
  }
  [[nodiscard]] Status Check() const { return ops::CheckGradRunArgs(bound, args); }

  GradCall call;
  AttentionGradArgs args;
  ops::BoundAttentionGrad bound;
};

TEST(CheckGradRunArgs, AcceptsWhatWasPlannedAtAnyAddress) {
  NextGradRun run(GradWithEverything());
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  run.args.dq.data = BindCall::Somewhere();
  run.args.d_out.data = BindCall::Somewhere();
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  EXPECT_TRUE(Runs(GradCall::WithDSlopes({2, 6})));
}

TEST(CheckGradRunArgs, RefusesDifferences) {
  NextGradRun run(GradWithEverything());
  run.args.dv.shape[2] = 8;
  EXPECT_TRUE(Refused(run.Check(), "dv.shape=[2,3,8,8], want [2,3,9,8] (as planned)"));
  run = NextGradRun(GradWithEverything());
  run.args.d_out.stride = {0, 0, 0, 1};
  EXPECT_TRUE(Refused(run.Check(), "d_out.stride=[0,0,0,1], want [336,56,8,1] (as planned)"));
  run = NextGradRun(GradWithEverything());
  run.args.dpse.data = nullptr;
  EXPECT_TRUE(Refused(run.Check(), "dpse: null data, want it present (as planned)"));
  run = NextGradRun(GradWithEverything());
  run.args.dk_rope.data = nullptr;
  EXPECT_TRUE(Refused(run.Check(), "dk_rope: null data, want it present (as planned)"));
  run = NextGradRun(GradCall());
  run.args.dsink = BindCall::Output(DType::kF32, {6});
  EXPECT_TRUE(Refused(run.Check(), "dsink: given, want none (as planned)"));
  run = NextGradRun(GradCall(PackedShape()));
  EXPECT_TRUE(run.Check().ok()) << run.Check().message();
  const std::vector<int64_t> other = {3, 4, 12, 18};
  run.args.cu_q = other;
  EXPECT_TRUE(Refused(run.Check(), "cu_q[1]=4, want 3 (as planned)"));
}

TEST(CheckGradRunArgs, RequiredTensorsNeedMemory) {
  const struct {
    const char* name;
    void (*clear)(AttentionGradArgs&);
  } tensors[] = {{"q", [](AttentionGradArgs& args) { args.q.data = nullptr; }},
                 {"k", [](AttentionGradArgs& args) { args.k.data = nullptr; }},
                 {"v", [](AttentionGradArgs& args) { args.v.data = nullptr; }},
                 {"out", [](AttentionGradArgs& args) { args.out.data = nullptr; }},
                 {"d_out", [](AttentionGradArgs& args) { args.d_out.data = nullptr; }},
                 {"softmax_max", [](AttentionGradArgs& args) { args.softmax_max.data = nullptr; }},
                 {"softmax_sum", [](AttentionGradArgs& args) { args.softmax_sum.data = nullptr; }},
                 {"dq", [](AttentionGradArgs& args) { args.dq.data = nullptr; }},
                 {"dk", [](AttentionGradArgs& args) { args.dk.data = nullptr; }},
                 {"dv", [](AttentionGradArgs& args) { args.dv.data = nullptr; }}};
  for (const auto& tensor : tensors) {
    GradCall call;
    tensor.clear(call.args);
    EXPECT_TRUE(call.Bind().ok()) << tensor.name << ": planning needs no address";
    EXPECT_TRUE(Refused(call.Run(), std::string(tensor.name) + ": null data"));
  }
  GradCall empty({.sk = 0});
  empty.args.dk.data = nullptr;
  empty.args.dv.data = nullptr;
  EXPECT_TRUE(Runs(empty));
}

TEST(CheckGradRunArgs, GradientsShareNothing) {
  GradCall call = GradWithEverything();
  call.args.dv.data = const_cast<void*>(call.args.v.data);
  EXPECT_TRUE(Refused(call.Run(), "dv: shares memory with v"));
  call = GradWithEverything();
  call.args.dq.data = const_cast<void*>(call.args.d_out.data);
  EXPECT_TRUE(Refused(call.Run(), "dq: shares memory with d_out"));
  call = GradWithEverything();
  call.args.dk.data = const_cast<void*>(call.args.out.data);
  EXPECT_TRUE(Refused(call.Run(), "dk: shares memory with out"));
  call = GradWithEverything();
  call.args.dsink.data = const_cast<void*>(call.args.softmax_sum.data);
  EXPECT_TRUE(Refused(call.Run(), "dsink: shares memory with softmax_sum"));
  call = GradWithEverything();
  call.args.dk.data = call.args.dq.data;
  EXPECT_TRUE(Refused(call.Run(), "dk: shares memory with dq"));
  call = GradWithEverything();
  call.args.dpse.data = static_cast<std::byte*>(call.args.dk_rope.data) + 2 * 3 * 9 * 4 * 4 - 1;
  EXPECT_TRUE(Refused(call.Run(), "dpse: shares memory with dk_rope"));
  call.args.dpse.data = static_cast<std::byte*>(call.args.dk_rope.data) + 2 * 3 * 9 * 4 * 4;
  EXPECT_TRUE(Runs(call));
  call = GradCall::WithDSlopes({6});
  call.args.dslopes.data = const_cast<void*>(call.args.pse.data);
  EXPECT_TRUE(Refused(call.Run(), "dslopes: shares memory with pse"));
}

TEST(CheckGradRunArgs, InputsMayAlias) {
  GradCall call({.heads = 3, .sq = 9, .d = 8});
  call.args.v.data = call.args.k.data;
  call.args.d_out.data = call.args.out.data;
  call.args.softmax_sum.data = call.args.softmax_max.data;
  EXPECT_TRUE(Runs(call));
}

// Q, K and V are slots of one [B,S,3,N,D] buffer. Their gradients are slots of another buffer.
TEST(CheckGradRunArgs, PackedGradientsShareNothing) {
  constexpr int64_t kRows = 7, kHeads = 3, kD = 8, kSlot = kHeads * kD, kRow = 3 * kSlot;
  GradCall call(
      {.layout = Layout::kBSND, .heads = kHeads, .heads_kv = kHeads, .sq = kRows, .sk = kRows, .d = kD, .dv = kD});
  const Dims stride = {kRows * kRow, kRow, kD, 1};
  const auto* qkv = static_cast<const float*>(BindCall::Somewhere());
  auto* gradients = static_cast<float*>(BindCall::Somewhere());
  int64_t slot = 0;
  for (TensorView* tensor : {&call.args.q, &call.args.k, &call.args.v}) {
    *tensor = {qkv + slot++ * kSlot, DType::kF32, tensor->shape, stride};
  }
  slot = 0;
  for (MutableTensorView* tensor : {&call.args.dq, &call.args.dk, &call.args.dv}) {
    *tensor = {gradients + slot++ * kSlot, DType::kF32, tensor->shape, stride};
  }
  EXPECT_TRUE(Runs(call));
  call.args.dk.data = gradients + kSlot - 1;
  EXPECT_TRUE(Refused(call.Run(), "dk: shares memory with dq"));
  // The gradients may also lie in the gaps between the rows of the inputs. A dv one slot further would overlap the next
  // row of q, so it is refused.
  GradCall gaps = call;
  const Dims wide = {kRows * 2 * kRow, 2 * kRow, kD, 1};
  slot = 0;
  for (TensorView* tensor : {&gaps.args.q, &gaps.args.k, &gaps.args.v}) {
    *tensor = {gradients + slot++ * kSlot, DType::kF32, tensor->shape, wide};
  }
  for (MutableTensorView* tensor : {&gaps.args.dq, &gaps.args.dk, &gaps.args.dv}) {
    *tensor = {gradients + slot++ * kSlot, DType::kF32, tensor->shape, wide};
  }
  EXPECT_TRUE(Runs(gaps));
  gaps.args.dv.data = gradients + 6 * kSlot;
  EXPECT_TRUE(Refused(gaps.Run(), "dv: shares memory with q"));
}

}  // namespace
}  // namespace fa::test
