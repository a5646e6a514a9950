#include "ops/token/key_sum_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {
namespace {

constexpr int64_t kColumns = 48;

/// Returns sequences with these numbers of tokens and of keys.
SparseSequences SequencesOf(const std::vector<int64_t>& sq, const std::vector<int64_t>& sk) {
  const auto bound = BindSparseSequences({.batch = std::ssize(sq),
                                          .q_rows = *std::max_element(sq.begin(), sq.end()),
                                          .k_rows = *std::max_element(sk.begin(), sk.end()),
                                          .lengths_q = sq,
                                          .lengths_kv = sk});
  EXPECT_TRUE(bound.ok()) << bound.status().message();
  return *bound;
}

std::vector<SparseSequences> Cases() {
  return {SequencesOf({3, 0, 5}, {900, 4000, 0}), SequencesOf({0, 0}, {3000, 700}), SequencesOf({1}, {1})};
}

/// The tasks of one plan, and the memory of one run, which holds NaN at first.
struct Program {
  explicit Program(const SparseSequences& of)
      : sequences(of), tasks(sequences, kColumns, sequences.tokens, /*workers=*/3, workspace) {
    // The memory begins at a multiple of 64 bytes, like the memory of a Workspace.
    memory.assign(workspace.total_bytes() + 64, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    data = memory.data() + (64 - address % 64) % 64;
    keys = static_cast<int64_t>(of.list.size()) * of.max_sk;
    gradient.assign(static_cast<size_t>(keys * kColumns), -1.0F);
  }
  [[nodiscard]] KeySumTasks::Target Target() {
    const int64_t sequence_stride = sequences.max_sk * kColumns;
    return {.rows = {gradient.data(), {.dtype = DType::kF32, .batch = sequence_stride, .head = 0, .row = kColumns}}};
  }

  SparseSequences sequences;
  tiling::WorkspacePlan workspace;
  KeySumTasks tasks;
  std::vector<std::byte> memory;
  std::byte* data;
  int64_t keys;
  std::vector<float> gradient;
};

// OrderedCommit needs a graph without edges. Edges would also take memory per token while planning.
TEST(KeySumTasks, StandInOneListWithoutEdges) {
  for (const SparseSequences& sequences : Cases()) {
    const Program program(sequences);
    const core::TaskGraph& graph = program.tasks.graph();
    ASSERT_GT(program.tasks.key_tasks(), 0);
    EXPECT_EQ(graph.task_count, 2 * program.tasks.key_tasks() + program.tasks.units());
    EXPECT_TRUE(graph.shared_claims);
    EXPECT_TRUE(graph.order.empty());
    EXPECT_FALSE(graph.has_edges());
    EXPECT_TRUE(graph.predecessor_count.empty());
  }
}

TEST(KeySumTasks, WithoutKeysThereAreOnlyTokens) {
  const Program program(SequencesOf({3, 2}, {0, 0}));
  EXPECT_EQ(program.tasks.graph().task_count, 5);
  EXPECT_FALSE(program.tasks.graph().has_edges());
}

void YieldOften() {
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
}

/// Starts a thread for the tasks that write gradients. The tasks [0, key_tasks), which clear the sums, have not run
/// yet.
template <typename Run>
std::thread StartWriting(const KeySumTasks& tasks, const Run& run_task) {
  std::atomic<bool> writing{false};
  std::thread writer([&tasks, &run_task, &writing] {
    const int32_t end = tasks.graph().task_count;
    writing.store(true);
    for (auto task = static_cast<int32_t>(tasks.key_tasks() + tasks.units()); task < end; ++task) run_task(task);
  });
  while (!writing.load()) std::this_thread::yield();
  YieldOften();
  return writer;
}

// Tokens that add nothing may end before all sums are cleared. So the tasks that write gradients must wait for the
// cleared sums, and not only for the tokens.
TEST(KeySumTasks, GradientsOfKeysThatNoTokenSelectsAreZeroHoweverSlowlySumsAreCleared) {
  const core::kernels::KernelTable& table = core::kernels::Kernels(Isa::kPortable, DType::kF32);
  for (const SparseSequences& sequences : Cases()) {
    Program program(sequences);
    const KeySumTasks::Run run(program.tasks, program.sequences, *table.rows, program.Target(), program.data);
    const auto run_task = [&](int32_t task) { run.RunTask(task, [](int64_t /*unit*/) {}); };
    std::thread writer = StartWriting(program.tasks, run_task);
    const auto clear = static_cast<int32_t>(program.tasks.key_tasks());
    const auto units = static_cast<int32_t>(program.tasks.units());
    for (int32_t unit = 0; unit < units; ++unit) run_task(clear + unit);
    for (int32_t task = 0; task < clear; ++task) {
      YieldOften();
      run_task(task);
    }
    writer.join();
    for (int64_t b = 0; b < std::ssize(sequences.list); ++b) {
      const auto first = program.gradient.begin() + b * sequences.max_sk * kColumns;
      const int64_t used = sequences.list[static_cast<size_t>(b)].sk * kColumns;
      EXPECT_TRUE(std::all_of(first, first + used, [](float value) { return value == 0; })) << "sequence " << b;
      EXPECT_TRUE(std::all_of(first + used, first + sequences.max_sk * kColumns, [](float x) { return x == -1; }));
    }
  }
}

TEST(KeySumTasks, GradientsHoldWhatEveryTokenAddsHoweverSlowTokensAre) {
  const core::kernels::KernelTable& table = core::kernels::Kernels(Isa::kPortable, DType::kF32);
  for (const SparseSequences& sequences : {SequencesOf({3, 0, 5}, {900, 4000, 0}), SequencesOf({1}, {1})}) {
    Program program(sequences);
    const KeySumTasks::Run run(program.tasks, program.sequences, *table.rows, program.Target(), program.data);
    const auto add_one = [&](int64_t /*unit*/) {
      run.WaitUntilCleared();
      *run.Row(0, 0) += 1;
    };
    const auto run_task = [&](int32_t task) { run.RunTask(task, add_one); };
    std::thread writer = StartWriting(program.tasks, run_task);
    const auto before = static_cast<int32_t>(program.tasks.key_tasks() + program.tasks.units());
    for (int32_t task = 0; task < before; ++task) {
      YieldOften();
      run_task(task);
    }
    writer.join();
    EXPECT_EQ(program.gradient[0], static_cast<float>(program.tasks.units()));
  }
}

}  // namespace
}  // namespace fa::ops
