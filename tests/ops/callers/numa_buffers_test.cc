// Tests every operator on an invented machine of two NUMA nodes, each with its own worker threads. A page lies on the
// node of the thread that writes it first. So the test records which worker writes each cache line first. In this test
// each worker runs only tasks of its own list, so the record is the same in every run.
// tests/core/run/numa_binding_test.cc shows that a worker's tasks run on its node.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/context/context_impl.h"
#include "fa/flash_attention.h"
#include "support/cases/operator_calls.h"

namespace fa::test {
namespace {

constexpr int kWorkers = 4, kNodes = 2;
constexpr size_t kLineBytes = 64, kPageBytes = 4096;
constexpr int kNobody = -1, kCaller = -2;

/// Records which worker wrote each line of a block first.
class FirstTouch {
 public:
  void Watch(std::byte* block, size_t bytes) {
    block_ = block;
    std::memset(block_, kFill, bytes);
    writers_.assign(bytes / kLineBytes, kNobody);
  }
  /// Records that `writer` wrote all lines that have changed since the last call.
  void Note(int writer) {
    const std::vector<std::byte> untouched(kLineBytes, std::byte{kFill});
    for (size_t line = 0; line < writers_.size(); ++line) {
      if (writers_[line] != kNobody) continue;
      if (std::memcmp(block_ + line * kLineBytes, untouched.data(), kLineBytes) != 0) writers_[line] = writer;
    }
  }
  [[nodiscard]] int WriterOf(size_t line) const { return writers_[line]; }

 private:
  static constexpr uint8_t kFill = 0xA5;
  std::byte* block_ = nullptr;
  std::vector<int> writers_;
};

/// Runs the tasks on one thread, one worker's turn after the other. In its turn a worker runs the first task of its
/// list of claims, unless that task waits for another one. Workers that share one list take its tasks in turn.
class TurnTakingExecutor final : public core::Executor {
 public:
  explicit TurnTakingExecutor(FirstTouch& record) : record_(record) {}
  [[nodiscard]] int workers() const override { return kWorkers; }
  [[nodiscard]] Status Run(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* /*state*/) override {
    record_.Note(kCaller);
    std::vector<int32_t> waits = graph.predecessor_count;
    waits.resize(static_cast<size_t>(graph.task_count));
    std::vector<int64_t> next(graph.range_begin.begin(), graph.range_begin.end());
    for (int32_t done = 0, turn = 0; done < graph.task_count; ++turn) {
      const int worker = turn % graph.workers();
      const auto range = graph.shared_claims ? size_t{0} : static_cast<size_t>(worker);
      if (next[range] >= graph.range_begin[range + 1]) continue;
      const int32_t task = graph.TaskAt(next[range]);
      if (waits[static_cast<size_t>(task)] > 0) continue;
      ++next[range];
      ++done;
      run_task(task, worker);
      record_.Note(worker);
      if (!graph.has_edges()) continue;
      for (int64_t at = graph.successor_begin[static_cast<size_t>(task)];
           at < graph.successor_begin[static_cast<size_t>(task) + 1]; ++at) {
        --waits[static_cast<size_t>(graph.successors[static_cast<size_t>(at)])];
      }
    }
    return Status::Ok();
  }

 private:
  FirstTouch& record_;
};

/// A part of a plan's workspace, with its name.
struct Buffer {
  std::string name;
  size_t begin, end;
};

/// Reads the buffers from the lines "  NAME: SIZE at OFFSET" of the plan's description.
std::vector<Buffer> BuffersOf(const Plan& plan) {
  std::vector<Buffer> buffers;
  std::istringstream text(plan.Describe());
  bool in_list = false;
  for (std::string line; std::getline(text, line);) {
    const size_t colon = line.rfind(": "), at = line.rfind(" at ");
    if (in_list && (!line.starts_with("  ") || at == std::string::npos)) break;
    if (in_list) {
      const size_t offset = std::strtoull(line.c_str() + at + 4, nullptr, 10);
      if (!buffers.empty()) buffers.back().end = offset;
      buffers.push_back({line.substr(2, colon - 2), offset, plan.workspace_bytes()});
    }
    in_list = in_list || line.starts_with("workspace: ");
  }
  return buffers;
}

int NodeOf(int worker) { return core::NodeOfWorker(worker, kWorkers, kNodes); }

/// Returns whether the buffer is divided into one part per worker.
bool IsPerWorker(const Buffer& buffer) {
  return buffer.name.find("scratch") != std::string::npos || buffer.name.find("groups in flight") != std::string::npos;
}

class NumaBuffers : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(core::ImplOf(*context_).nodes(), kNodes); }
  [[nodiscard]] std::unique_ptr<Context> TwoNodes(Isa isa) {
    return Context::Impl::ToContext(std::make_unique<Context::Impl>(
        ContextSettings{.workers = kWorkers, .isa = isa}, *core::Topology::FromSynthetic("numa:2 core:2 pu:1"),
        Status::Ok(), [this] { return std::make_unique<TurnTakingExecutor>(record_); }));
  }
  /// Runs the call, and records who writes its workspace first.
  void Run(const OperatorCall& call) {
    const Result<Plan> plan = call.plan(context_.get());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    buffers_ = BuffersOf(*plan);
    ASSERT_FALSE(buffers_.empty()) << plan->Describe();
    {
      const auto workspace = core::ImplOf(*context_).BorrowWorkspace();
      ASSERT_TRUE(workspace->Reserve(plan->workspace_bytes()).ok());
      record_.Watch(workspace->data(), plan->workspace_bytes());
    }
    ASSERT_TRUE(call.run(context_.get()).ok());  // takes the watched workspace from the context's pool
    record_.Note(kCaller);
  }
  /// Returns the first writers of the lines in [begin, end), in the order of the lines. Consecutive lines of one writer
  /// count once.
  [[nodiscard]] std::vector<int> Writers(size_t begin, size_t end) const {
    std::vector<int> writers;
    for (size_t line = begin / kLineBytes; line < end / kLineBytes; ++line) {
      const int writer = record_.WriterOf(line);
      if (writer != kNobody && (writers.empty() || writers.back() != writer)) writers.push_back(writer);
    }
    return writers;
  }

  FirstTouch record_;
  std::unique_ptr<Context> context_ = TwoNodes(DetectIsa());
  std::vector<Buffer> buffers_;
};

class LargeBuffers : public NumaBuffers, public ::testing::WithParamInterface<std::string> {};

TEST_P(LargeBuffers, AreFirstWrittenOnTheNodeThatUsesThem) {
  const OperatorCall call = OperatorOf(GetParam(), ValueKind::kNormal);
  ASSERT_NO_FATAL_FAILURE(Run(call));
  std::set<int> nodes;
  for (const Buffer& buffer : buffers_) {
    const size_t bytes = buffer.end - buffer.begin;
    if (bytes >= kPageBytes) {
      for (const int writer : Writers(buffer.begin, buffer.end)) {
        EXPECT_NE(writer, kCaller) << buffer.name << " is written outside the tasks";
        if (writer != kCaller) nodes.insert(NodeOf(writer));
      }
    }
    if (!IsPerWorker(buffer)) continue;
    ASSERT_EQ(bytes % (kWorkers * kLineBytes), 0u) << buffer.name;
    for (int worker = 0; worker < kWorkers; ++worker) {
      const size_t begin = buffer.begin + static_cast<size_t>(worker) * bytes / kWorkers;
      for (const int writer : Writers(begin, begin + bytes / kWorkers)) {
        EXPECT_EQ(NodeOf(writer), NodeOf(worker)) << buffer.name << ", of worker " << worker << ", by " << writer;
        EXPECT_EQ(writer, worker) << buffer.name;
      }
    }
  }
  EXPECT_EQ(nodes, (std::set<int>{0, 1})) << "nodes that wrote large buffers";
}

// These operators write only outputs. Their workspace has no buffers except the state of a run. DropoutMask has no
// buffers either.
constexpr const char* kWithoutBuffers[] = {"Merge", "MergeLse", "Scatter", "Gather"};

std::vector<std::string> OperatorsWithBuffers() {
  std::vector<std::string> names = OperatorNames();
  for (const char* without : kWithoutBuffers) std::erase(names, without);
  std::erase(names, "DropoutMask");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, LargeBuffers, ::testing::ValuesIn(OperatorsWithBuffers()),
                         [](const auto& info) { return info.param; });

TEST_F(NumaBuffers, OperatorsThatWriteOnlyOutputsHaveNone) {
  for (const char* name : kWithoutBuffers) {
    SCOPED_TRACE(name);
    ASSERT_NO_FATAL_FAILURE(Run(OperatorOf(name, ValueKind::kNormal)));
    for (const Buffer& buffer : buffers_) EXPECT_LT(buffer.end - buffer.begin, kPageBytes) << buffer.name;
  }
}

// There are two batch elements with two KV heads each. So each of the four workers claims the tasks of one KV head. The
// portable level packs f16 on every machine.
TEST_F(NumaBuffers, APackedHeadLiesOnOneNode) {
  context_ = TwoNodes(Isa::kPortable);
  constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kRows = 256, kKeys = 320, kSize = 64;
  std::vector<uint16_t> halves(kBatch * kHeads * kKeys * kSize, 0x3800);  // 0x3800 is 0.5 in f16
  std::vector<uint16_t> out(kBatch * kHeads * kRows * kSize);
  AttentionArgs args;
  args.q = {halves.data(), DType::kF16, {kBatch, kHeads, kRows, kSize}, {}};
  args.k = args.v = {halves.data(), DType::kF16, {kBatch, kKeyHeads, kKeys, kSize}, {}};
  args.out = {out.data(), DType::kF16, args.q.shape, {}};
  ASSERT_NO_FATAL_FAILURE(Run({.name = "Forward",
                               .tensors = nullptr,
                               .run = [&](Context* context) { return FlashAttention(args, {}, context); },
                               .plan = [&](Context* c) { return AnyPlan(PlanFlashAttention(args, {}, c)); }}));
  const auto panels = std::find_if(buffers_.begin(), buffers_.end(),
                                   [](const Buffer& buffer) { return buffer.name == "packed K and V"; });
  ASSERT_NE(panels, buffers_.end());
  const size_t slot = (panels->end - panels->begin) / (kBatch * kKeyHeads);
  ASSERT_GE(slot, kKeys * kSize * 2 * sizeof(float)) << "each key head has a slot";
  std::set<int> nodes;
  for (size_t begin = panels->begin; begin < panels->end; begin += slot) {
    const std::vector<int> writers = Writers(begin, begin + slot);
    ASSERT_FALSE(writers.empty());
    for (const int writer : writers) EXPECT_EQ(NodeOf(writer), NodeOf(writers.front()));
    nodes.insert(NodeOf(writers.front()));
  }
  EXPECT_EQ(nodes, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace fa::test
