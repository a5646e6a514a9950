#include "ops/token/key_sum_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {
namespace {

constexpr int64_t kColumns = 48;

/// Sequences with these numbers of tokens and of keys.
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

/// The tasks of one plan and the memory of its run, all bits of which are those of NaN.
struct Program {
  explicit Program(const SparseSequences& of)
      : sequences(of), tasks(sequences, kColumns, sequences.tokens, /*workers=*/3, workspace) {
    // At a multiple of 64, as a Workspace lies.
    memory.assign(workspace.total_bytes() + 64, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    data = memory.data() + (64 - address % 64) % 64;
    keys = static_cast<int64_t>(of.list.size()) * of.max_sk;
    gradient.assign(static_cast<size_t>(keys * kColumns), -1.0F);
  }
  [[nodiscard]] KeySumTasks::Target Target() {
    const int64_t sequence_stride = sequences.max_sk * kColumns;
    return {.data = gradient.data(),
            .rows = {.dtype = DType::kF32, .batch = sequence_stride, .head = 0, .row = kColumns}};
  }

  SparseSequences sequences;
  tiling::WorkspacePlan workspace;
  KeySumTasks tasks;
  std::vector<std::byte> memory;
  std::byte* data;
  int64_t keys;
  std::vector<float> gradient;
};

/// Which tasks must have ended before `task` starts, by the edges of the graph.
std::vector<bool> Before(const core::TaskGraph& graph, int32_t task) {
  std::vector<bool> before(static_cast<size_t>(graph.task_count), false);
  if (!graph.has_edges()) return before;
  // Every edge leads to a later position of the identity order, so one backward walk finds all.
  std::vector<bool> reaches(before.size(), false);
  reaches[static_cast<size_t>(task)] = true;
  for (int32_t from = task - 1; from >= 0; --from) {
    const auto at = static_cast<size_t>(from);
    for (int64_t e = graph.successor_begin[at]; e < graph.successor_begin[at + 1]; ++e) {
      if (reaches[static_cast<size_t>(graph.successors[static_cast<size_t>(e)])]) before[at] = reaches[at] = true;
    }
  }
  return before;
}

TEST(KeySumTasks, WhatWritesIsBehindAllThatClearsAndAllThatAdds) {
  for (const SparseSequences& sequences : Cases()) {
    const Program program(sequences);
    const core::TaskGraph& graph = program.tasks.graph();
    const int64_t clear = program.tasks.key_tasks(), units = program.tasks.units();
    ASSERT_GT(clear, 0);
    for (int64_t task = graph.task_count - clear; task < graph.task_count; ++task) {
      const std::vector<bool> before = Before(graph, static_cast<int32_t>(task));
      for (int64_t other = 0; other < clear + units; ++other) {
        ASSERT_TRUE(before[static_cast<size_t>(other)]) << "task " << other << " and " << task;
      }
    }
  }
}

// What OrderedCommit asks of the graph.
TEST(KeySumTasks, TokensStandInOneListAndWaitForNoEdge) {
  for (const SparseSequences& sequences : Cases()) {
    const Program program(sequences);
    const core::TaskGraph& graph = program.tasks.graph();
    EXPECT_TRUE(graph.shared_claims);
    EXPECT_TRUE(graph.order.empty());
    ASSERT_TRUE(graph.has_edges());
    const int64_t first = program.tasks.key_tasks();
    for (int64_t unit = 0; unit < program.tasks.units(); ++unit) {
      EXPECT_EQ(graph.predecessor_count[static_cast<size_t>(first + unit)], 0);
    }
  }
}

TEST(KeySumTasks, WithoutKeysThereAreOnlyTokens) {
  const Program program(SequencesOf({3, 2}, {0, 0}));
  EXPECT_EQ(program.tasks.graph().task_count, 5);
  EXPECT_FALSE(program.tasks.graph().has_edges());
}

/// Runs a graph on the caller in a way that its edges allow: the tasks that clear sums are as slow as they can be, so
/// that whatever does not wait for them has ended before they start.
template <typename Run>
void RunWithSlowClears(const KeySumTasks& tasks, const Run& run_task) {
  const core::TaskGraph& graph = tasks.graph();
  std::vector<int32_t> waits_for(graph.predecessor_count);
  waits_for.resize(static_cast<size_t>(graph.task_count), 0);
  std::vector<int32_t> order(static_cast<size_t>(graph.task_count));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + tasks.key_tasks(), order.end());
  while (!order.empty()) {
    const auto ready = std::find_if(order.begin(), order.end(),
                                    [&](int32_t task) { return waits_for[static_cast<size_t>(task)] == 0; });
    ASSERT_NE(ready, order.end());
    const int32_t task = *ready;
    order.erase(ready);
    run_task(task);
    if (!graph.has_edges()) continue;
    const auto at = static_cast<size_t>(task);
    for (int64_t e = graph.successor_begin[at]; e < graph.successor_begin[at + 1]; ++e) {
      --waits_for[static_cast<size_t>(graph.successors[static_cast<size_t>(e)])];
    }
  }
}

// Tokens with empty lists, or none at all, wait for nothing.
TEST(KeySumTasks, GradientsOfKeysThatNoTokenSelectsAreZeroHoweverSlowlySumsAreCleared) {
  const core::kernels::KernelTable& table = core::kernels::Kernels(Isa::kPortable, DType::kF32);
  for (const SparseSequences& sequences : Cases()) {
    Program program(sequences);
    const KeySumTasks::Run run(program.tasks, program.sequences, *table.rows, program.Target(), program.data);
    RunWithSlowClears(program.tasks, [&](int32_t task) { run.RunTask(task, [](int64_t /*unit*/) {}); });
    for (int64_t b = 0; b < std::ssize(sequences.list); ++b) {
      const auto first = program.gradient.begin() + b * sequences.max_sk * kColumns;
      const int64_t used = sequences.list[static_cast<size_t>(b)].sk * kColumns;
      EXPECT_TRUE(std::all_of(first, first + used, [](float value) { return value == 0; })) << "sequence " << b;
      EXPECT_TRUE(std::all_of(first + used, first + sequences.max_sk * kColumns, [](float x) { return x == -1; }));
    }
  }
}

}  // namespace
}  // namespace fa::ops
