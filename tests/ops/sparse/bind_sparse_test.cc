// Tests which calls the sparse operators refuse, and with which message.
#include "ops/sparse/bind_sparse.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fa/context.h"
#include "fa/plan.h"

namespace fa::ops {
namespace {

/// A call with B = 2, S1 = 3, S2 = 5, N = 4, D = 8, Drope = 2, Dv = 6 and K = 4. All inputs share one memory, and all
/// outputs share another.
struct Call {
  std::vector<float> inputs = std::vector<float>(1024), outputs = std::vector<float>(8 * 1024);
  std::vector<int32_t> lists = std::vector<int32_t>(2 * 3 * 4, 0), table = {0, 1, 2, 3};
  std::vector<int64_t> lengths_q, lengths_kv;
  SparseAttentionArgs forward;
  SparseAttentionGradArgs backward;
  SparseAttentionOptions options;

  Call() {
    forward.q = In({2, 3, 4, 8});
    forward.k = In({2, 5, 1, 8});
    forward.v = In({2, 5, 1, 6});
    forward.q_rope = In({2, 3, 4, 2});
    forward.k_rope = In({2, 5, 1, 2});
    forward.sparse_indices = {lists.data(), DType::kI32, {2, 3, 1, 4}, {}};
    forward.out = Out({2, 3, 4, 6}, 0);
    forward.softmax_max = Out({2, 1, 3, 4}, 1);
    forward.softmax_sum = Out({2, 1, 3, 4}, 2);
    forward.p_head_mean = Out({2, 3, 4}, 3);
    backward.q = forward.q;
    backward.k = forward.k;
    backward.v = forward.v;
    backward.q_rope = forward.q_rope;
    backward.k_rope = forward.k_rope;
    backward.sparse_indices = forward.sparse_indices;
    backward.out = backward.d_out = In({2, 3, 4, 6});
    backward.softmax_max = backward.softmax_sum = In({2, 1, 3, 4});
    backward.dq = Out({2, 3, 4, 8}, 0);
    backward.dk = Out({2, 5, 1, 8}, 1);
    backward.dv = Out({2, 5, 1, 6}, 2);
    backward.dq_rope = Out({2, 3, 4, 2}, 3);
    backward.dk_rope = Out({2, 5, 1, 2}, 4);
  }

  [[nodiscard]] TensorView In(const Dims& shape) const { return {inputs.data(), DType::kF32, shape, {}}; }
  MutableTensorView Out(const Dims& shape, int64_t place) {
    return {outputs.data() + 1024 * place, DType::kF32, shape, {}};
  }
  /// Puts the keys into pages of two rows.
  void Page() {
    forward.k = In({4, 2, 1, 8});
    forward.v = In({4, 2, 1, 6});
    forward.k_rope = In({4, 2, 1, 2});
    forward.block_table = {table.data(), DType::kI32, {2, 2}, {}};
    lengths_kv = {4, 3};
  }

  [[nodiscard]] std::string Forward() {
    forward.lengths_q = lengths_q;
    forward.lengths_kv = lengths_kv;
    return Text(SparseFlashAttention(forward, options));
  }
  [[nodiscard]] std::string Backward() {
    backward.lengths_q = lengths_q;
    backward.lengths_kv = lengths_kv;
    return Text(SparseFlashAttentionGrad(backward, options));
  }
  [[nodiscard]] static std::string Text(const Status& status) {
    const std::string prefix = "invalid argument: ";
    if (status.ok()) return "ok";
    return status.message().rfind(prefix, 0) == 0 ? status.message().substr(prefix.size()) : status.message();
  }
};

struct Case {
  std::function<void(Call&)> change;
  const char* message;
};

void ExpectForward(const std::vector<Case>& cases) {
  for (const Case& of : cases) {
    Call call;
    of.change(call);
    call.outputs.assign(call.outputs.size(), 7.0f);
    EXPECT_EQ(call.Forward(), of.message);
    for (const float value : call.outputs) ASSERT_EQ(value, 7.0f) << "written before " << of.message;
  }
}

TEST(BindSparse, TheCallsOfTheTestsAreValid) {
  Call call;
  EXPECT_EQ(call.Forward(), "ok");
  EXPECT_EQ(call.Backward(), "ok");
  call.Page();
  EXPECT_EQ(call.Forward(), "ok");
}

TEST(BindSparse, RefusesShapesAndTypes) {
  ExpectForward({
      {[](Call& c) { c.options.layout = Layout::kBNSD; }, "layout=BNSD, want BSND or TND"},
      {[](Call& c) { c.forward.q = {}; }, "q: missing"},
      {[](Call& c) { c.forward.q.dtype = DType::kI8; }, "q.dtype=i8, want f32, f16 or bf16"},
      {[](Call& c) {
         c.forward.q = c.In({2, 3, 32});
       },
       "q.shape=[2,3,32], want 4 dimensions (BSND)"},
      {[](Call& c) {
         c.forward.q = c.In({2, 3, 0, 8});
       },
       "q.shape[2]=0, want >= 1"},
      {[](Call& c) {
         c.forward.q = c.In({2, 3, 4, 1025});
       },
       "q.shape[3]=1025, want a head size of 1..1024"},
      {[](Call& c) { c.forward.k.dtype = DType::kF16; }, "k.dtype=f16, want f32 (q.dtype)"},
      {[](Call& c) {
         c.forward.k = c.In({1, 5, 1, 8});
       },
       "k.shape[0]=1, want 2 (q.shape[0])"},
      {[](Call& c) {
         c.forward.k = c.In({2, 5, 2, 8});
       },
       "k.shape[2]=2, want 1 (one key head)"},
      {[](Call& c) {
         c.forward.k = c.In({2, 5, 1, 7});
       },
       "k.shape[3]=7, want 8 (q.shape[3])"},
      {[](Call& c) {
         c.forward.v = c.In({2, 4, 1, 6});
       },
       "v.shape[1]=4, want 5 (k.shape[1])"},
      {[](Call& c) {
         c.forward.v = c.In({2, 5, 1, 1025});
       },
       "v.shape[3]=1025, want a head size of 1..1024"},
      {[](Call& c) { c.forward.k_rope = {}; }, "k_rope: missing, want it with q_rope"},
      {[](Call& c) { c.forward.q_rope = {}; }, "k_rope: given, want none without q_rope"},
      {[](Call& c) {
         c.forward.q_rope = c.In({2, 3, 3, 2});
       },
       "q_rope.shape[2]=3, want 4 (q.shape[2])"},
      {[](Call& c) {
         c.forward.k_rope = c.In({2, 5, 1, 3});
       },
       "k_rope.shape[3]=3, want 2 (q_rope.shape[3])"},
      {[](Call& c) { c.forward.sparse_indices.dtype = DType::kF32; }, "sparse_indices.dtype=f32, want i32 or i64"},
      {[](Call& c) {
         c.forward.sparse_indices.shape = {2, 2, 1, 4};
       },
       "sparse_indices.shape[1]=2, want 3 (q.shape[1])"},
      {[](Call& c) {
         c.forward.sparse_indices.shape = {2, 3, 2, 4};
       },
       "sparse_indices.shape[2]=2, want 1 (one list per token)"},
      {[](Call& c) {
         c.forward.out = c.Out({2, 3, 4, 5}, 0);
       },
       "out.shape[3]=5, want 6 (v.shape[3])"},
      {[](Call& c) {
         c.forward.v = {}, c.forward.out = c.Out({2, 3, 4, 9}, 0);
       },
       "out.shape[3]=9, want 1..8 (columns of k, without v)"},
      {[](Call& c) {
         c.forward.out.stride = {72, 24, 0, 1};
       },
       "out.stride=[72,24,0,1], want strides that keep its elements apart"},
      {[](Call& c) {
         c.forward.softmax_max = c.Out({2, 4, 3, 1}, 1);
       },
       "softmax_max.shape[1]=4, want 1 (heads of keys)"},
      {[](Call& c) {
         c.forward.p_head_mean = c.Out({2, 3, 5}, 3);
       },
       "p_head_mean.shape[2]=5, want 4 (sparse_indices.shape[3])"},
      {[](Call& c) { c.forward.sink = c.In({5}); }, "sink.shape[0]=5, want 4 (q.shape[2])"},
      {[](Call& c) {
         c.forward.sink = c.In({1, 4});
       },
       "sink.shape=[1,4], want 1 dimensions (BSND)"},
      {[](Call& c) {
         c.forward.sink = {c.inputs.data(), DType::kBF16, {4}, {}};
       },
       "sink.dtype=bf16, want f32"},
      {[](Call& c) { c.options.block_size = 0; }, "block_size=0, want 1..128"},
      {[](Call& c) { c.options.block_size = 129; }, "block_size=129, want 1..128"},
      {[](Call& c) { c.options.block_size = 2; }, "block_size=2, want 1 (p_head_mean)"},
      {[](Call& c) { c.options.scale = std::numeric_limits<float>::infinity(); }, "scale=inf, want a finite number"},
      {[](Call& c) {
         c.lengths_kv = {1, 6};
       },
       "lengths_kv[1]=6, want 0..5 (k.shape[1])"},
      {[](Call& c) { c.lengths_q = {1}; }, "lengths_q has 1 entries, want 2 (batch)"},
  });
}

TEST(BindSparse, RefusesPagesThatDoNotExist) {
  ExpectForward({
      {[](Call& c) { c.Page(), c.forward.block_table.dtype = DType::kI64; }, "block_table.dtype=i64, want i32"},
      {[](Call& c) {
         c.Page(), c.forward.block_table.shape = {1, 4};
       },
       "block_table.shape[0]=1, want 2 (q.shape[0])"},
      {[](Call& c) {
         c.Page(), c.forward.v = c.In({4, 3, 1, 6});
       },
       "v.shape[1]=3, want 2 (k.shape[1])"},
      {[](Call& c) { c.Page(), c.lengths_kv = {}; }, "lengths_kv: missing, want the lengths of paged keys"},
      {[](Call& c) {
         c.Page(), c.lengths_kv = {5, 1};
       },
       "lengths_kv[0]=5, want 0..4 (block_table.shape[1] pages)"},
      {[](Call& c) { c.Page(), c.table[1] = 4; }, "block_table[0][1]=4, want 0..3 (k.shape[0])"},
      {[](Call& c) { c.Page(), c.table[2] = -1; }, "block_table[1][0]=-1, want 0..3 (k.shape[0])"},
  });
  Call call;
  call.Page();
  call.lengths_kv = {4, 2};
  call.table[3] = -1;  // this entry comes after the entries for the sequence's keys
  EXPECT_EQ(call.Forward(), "ok");
}

TEST(BindSparse, RefusesEntriesThatAreNoBlockOnlyWhereItIsAsked) {
  Call call;
  call.lists[4 * 4 + 1] = 5;
  EXPECT_EQ(call.Forward(), "sparse_indices[1][1][0][1]=5, want -1..4");
  EXPECT_EQ(call.Backward(), "sparse_indices[1][1][0][1]=5, want -1..4");
  call.options.check_indices = false;
  EXPECT_EQ(call.Forward(), "ok");
  EXPECT_EQ(call.Backward(), "ok");
}

TEST(BindSparse, BackwardRefusesGradientsThatDoNotFit) {
  const std::vector<Case> cases = {
      {[](Call& c) { c.backward.dq = {}; }, "dq: missing"},
      {[](Call& c) { c.backward.dv = {}; }, "dv: missing, want it with v"},
      {[](Call& c) { c.backward.v = {}; }, "dv: given, want none without v"},
      {[](Call& c) { c.backward.dk_rope = {}; }, "dk_rope: missing, want it with q_rope"},
      {[](Call& c) { c.backward.q_rope = c.backward.k_rope = {}; }, "dq_rope: given, want none without q_rope"},
      {[](Call& c) {
         c.backward.dk = c.Out({2, 5, 1, 7}, 1);
       },
       "dk.shape[3]=7, want 8 (q.shape[3])"},
      {[](Call& c) {
         c.backward.d_out = c.In({2, 3, 4, 5});
       },
       "d_out.shape[3]=5, want 6 (v.shape[3])"},
      {[](Call& c) {
         c.backward.softmax_sum = c.In({2, 3, 4});
       },
       "softmax_sum.shape=[2,3,4], want 4 dimensions (BSND)"},
      {[](Call& c) {
         c.backward.dk.stride = {8, 8, 8, 1};
       },
       "dk.stride=[8,8,8,1], want strides that keep its elements apart"},
      {[](Call& c) { c.backward.dv.data = c.backward.dk.data; }, "dv: shares memory with dk"},
      {[](Call& c) { c.backward.dsink = c.Out({4}, 5); }, "dsink: given, want none without sink"},
      {[](Call& c) {
         c.backward.sink = c.In({4});
         c.backward.dsink = c.Out({3}, 5);
       },
       "dsink.shape[0]=3, want 4 (q.shape[2])"},
      {[](Call& c) {
         c.backward.sink = c.In({4});
         c.backward.dsink = {c.backward.dk.data, DType::kF32, {4}, {}};
       },
       "dsink: shares memory with dk"},
  };
  for (const Case& of : cases) {
    Call call;
    of.change(call);
    EXPECT_EQ(call.Backward(), of.message);
  }
}

TEST(BindSparse, APlanRunsOnThePlannedTensorsOnly) {
  Call call;
  const auto plan = PlanSparseFlashAttention(call.forward, call.options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(Call::Text(plan->Run(call.forward)), "ok");
  call.forward.q.shape = {2, 3, 2, 8};
  EXPECT_EQ(Call::Text(plan->Run(call.forward)), "q.shape=[2,3,2,8], want [2,3,4,8] (as planned)");
  const auto backward = PlanSparseFlashAttentionGrad(call.backward, call.options);
  ASSERT_TRUE(backward.ok()) << backward.status().message();
  EXPECT_EQ(Call::Text(backward->Run(call.backward)), "ok");
  call.lengths_q = {1, 1};
  call.backward.lengths_q = call.lengths_q;
  EXPECT_EQ(Call::Text(backward->Run(call.backward)), "lengths_q has 2 entries, want 0 (as planned)");
}

TEST(BindSparse, PlansTellTasksAndMemory) {
  Call call;
  const auto plan = PlanSparseFlashAttentionGrad(call.backward, call.options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const PlanInfo info = plan->info();
  EXPECT_EQ(info.op, "sparse backward");
  EXPECT_EQ(info.tasks, 6 + 2 * 1);  // six tokens, and two tasks for the 10 keys
  EXPECT_EQ(info.tiles.size(), 6u);
  // The three tokens of a sequence see 3, 4 and 5 keys. With 4 entries per list, they may select 3, 4 and 4.
  EXPECT_EQ(info.flops, 2.0 * 2 * (3 + 4 + 4) * 4 * (3 * (8 + 2) + 2 * 6));
  EXPECT_EQ(info.workspace_bytes, plan->workspace_bytes());
  EXPECT_NE(plan->Describe().find("sums of the keys'"), std::string::npos);
}

}  // namespace
}  // namespace fa::ops
