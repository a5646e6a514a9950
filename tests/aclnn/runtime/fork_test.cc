// A forked child has its parent's memory but none of the parent's threads. The child works with new streams, and gets
// an error for objects of the parent. It ends like any other process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnn/calls/face_call.h"
#include "aclnn/calls/operator_call.h"
#include "support/execution/child_process.h"

namespace fa::test {
namespace {

// Returns the exit code of a child that checks one condition.
int Check(bool right) { return right ? 0 : 1; }

/// Attention over ones, with work for many threads: every output is 1.
class LargeCall {
 public:
  LargeCall() : in_(kHeads * kRows * kSize, 1.0F), max_(kHeads * kRows * 8), sum_(max_.size()), own_(in_.size()) {
    Write(own_.data());
  }

  /// Makes the call write its result to `out`.
  void Write(float* out) {
    p_.query = p_.key = p_.value = handles_.Tensor(in_.data(), ACL_FLOAT, {1, kHeads, kRows, kSize});
    p_.out = handles_.Tensor(out, ACL_FLOAT, {1, kHeads, kRows, kSize});
    p_.softmax_max = handles_.Tensor(max_.data(), ACL_FLOAT, {1, kHeads, kRows, 8});
    p_.softmax_sum = handles_.Tensor(sum_.data(), ACL_FLOAT, {1, kHeads, kRows, 8});
    p_.heads = kHeads;
  }
  aclnnStatus Start(aclrtStream stream) {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const aclnnStatus planned = GetWorkspaceSize(ForwardVersion::kScore, p_, &size, &executor);
    if (planned != ACLNN_SUCCESS) return planned;
    workspace_.resize(size);
    return Execute(ForwardVersion::kScore, workspace_.data(), size, executor, stream);
  }
  aclError Run(aclrtStream stream) {
    const aclnnStatus started = Start(stream);
    if (started != ACLNN_SUCCESS) return started;
    const aclError error = aclrtSynchronizeStream(stream);
    return error == ACL_SUCCESS && !AllOnes(own_.data()) ? -1 : error;
  }
  static bool AllOnes(const float* out) {
    return std::all_of(out, out + kElements, [](float x) { return x == 1.0F; });
  }

  static constexpr size_t kHeads = 4, kRows = 512, kSize = 16, kElements = kHeads * kRows * kSize;

 private:
  std::vector<float> in_, max_, sum_, own_;
  std::vector<std::byte> workspace_;
  Handles handles_;
  ForwardParameters p_;
};

/// A stream that computes during the whole test, because a thread adds calls to it again and again.
class BusyStream {
 public:
  BusyStream() {
    EXPECT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
    pusher_ = std::thread([this] {
      while (!ending_) EXPECT_EQ(call_.Run(stream_), ACL_SUCCESS);
    });
  }
  ~BusyStream() {
    ending_ = true;
    pusher_.join();
    EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
  }
  BusyStream(const BusyStream&) = delete;
  BusyStream& operator=(const BusyStream&) = delete;

  [[nodiscard]] aclrtStream stream() const { return stream_; }

 private:
  LargeCall call_;
  aclrtStream stream_ = nullptr;
  std::atomic<bool> ending_ = false;
  std::thread pusher_;
};

// Returns 0, or a number that names the family whose call failed.
int RunEveryFamily(aclrtStream stream) {
  if (LargeCall().Run(stream) != ACL_SUCCESS) return 1;
  for (const Family family : AllFamilies()) {
    OperatorCall call(family);
    if (call.Run(stream) != ACL_SUCCESS) return 2 + static_cast<int>(family);
  }
  return 0;
}

class Fork : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
    ASSERT_EQ(LargeCall().Run(stream_), ACL_SUCCESS);
    ASSERT_EQ(LargeCall().Run(nullptr), ACL_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS); }

  aclrtStream stream_ = nullptr;
};

TEST_F(Fork, ChildUsesTheDefaultStream) {
  EXPECT_TRUE(RunsInAChild([] { return RunEveryFamily(nullptr); }));
}

TEST_F(Fork, ChildMakesStreamsOfItsOwn) {
  EXPECT_TRUE(RunsInAChild([] {
    aclrtStream own = nullptr;
    if (aclrtCreateStream(&own) != ACL_SUCCESS) return 1;
    const int wrong = RunEveryFamily(own);
    return wrong != 0 ? wrong : Check(aclrtDestroyStream(own) == ACL_SUCCESS);
  }));
}

TEST_F(Fork, StreamsOfTheParentAreAnError) {
  EXPECT_TRUE(RunsInAChild([this] {
    OperatorCall call(Family::kForward);
    if (call.Plan() != ACLNN_SUCCESS || call.Start(stream_) != ACLNN_ERR_PARAM_INVALID) return 1;
    if (std::string(aclGetRecentErrMsg()).find("made before fork") == std::string::npos) return 2;
    if (aclrtSynchronizeStream(stream_) != ACL_ERROR_INVALID_PARAM) return 3;
    if (aclrtSynchronizeStreamWithTimeout(stream_, 5) != ACL_ERROR_INVALID_PARAM) return 4;
    if (aclrtDestroyStream(stream_) != ACL_ERROR_INVALID_PARAM) return 5;
    char one[1];
    if (aclrtMemcpyAsync(one, 1, one, 1, ACL_MEMCPY_DEFAULT, stream_) != ACL_ERROR_INVALID_PARAM) return 6;
    return call.Start(nullptr) == ACLNN_SUCCESS && aclrtSynchronizeStream(nullptr) == ACL_SUCCESS ? 0 : 7;
  }));
}

TEST_F(Fork, WaitsForTheDeviceAreForTheChildsOwnStreams) {
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  const BusyStream busy;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(RunsInAChild([&] {
      if (aclrtSynchronizeDevice() != ACL_SUCCESS) return 1;
      if (aclrtFree(memory) != ACL_SUCCESS) return 2;
      return Check(aclrtResetDevice(0) == ACL_SUCCESS);
    }));
  }
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
}

TEST_F(Fork, EventsThatAStreamOfTheParentHasNotPassedAreAnError) {
  aclrtEvent passed = nullptr, queued = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&passed), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&queued), ACL_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(passed, stream_), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeEvent(passed), ACL_SUCCESS);
  // The stream has 500 calls before the record of `queued`. A child that is forked before the record never learns that
  // the event was reached.
  OperatorCall call(Family::kForward);
  ASSERT_EQ(call.Plan(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor()), ACLNN_SUCCESS);
  int lost = 0;
  for (int i = 0; i < 50 && lost == 0; ++i) {
    for (int k = 0; k < 500; ++k) ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
    ASSERT_EQ(aclrtRecordEvent(queued, stream_), ACL_SUCCESS);
    // Exit code 7 means that the stream had already reached the record when the child was forked.
    const pid_t pid = StartChild([&] {
      aclrtEventRecordedStatus status{};
      if (aclrtSynchronizeEvent(passed) != ACL_SUCCESS) return 1;
      if (aclrtSynchronizeEvent(queued) == ACL_SUCCESS) return 7;
      if (aclrtQueryEventStatus(queued, &status) != ACL_ERROR_INVALID_PARAM) return 2;
      if (aclrtStreamWaitEvent(nullptr, queued) != ACL_ERROR_INVALID_PARAM) return 3;
      if (aclrtRecordEvent(queued, nullptr) != ACL_SUCCESS) return 4;
      return aclrtSynchronizeEvent(queued) == ACL_SUCCESS ? 0 : 5;
    });
    int status = 0;
    ASSERT_TRUE(WaitForChild(pid, &status));
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    ASSERT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7) << WEXITSTATUS(status);
    lost += WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  EXPECT_GT(lost, 0) << "no fork came before the event was passed";
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(passed), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(queued), ACL_SUCCESS);
}

TEST_F(Fork, WhileStreamsWorkChildrenUseEverything) {
  const BusyStream busy, other;
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(RunsInAChild([&] {
      if (aclrtSynchronizeStream(busy.stream()) != ACL_ERROR_INVALID_PARAM) return 1;
      if (aclrtDestroyStream(other.stream()) != ACL_ERROR_INVALID_PARAM) return 1;
      return RunEveryFamily(nullptr);
    })) << i;
  }
}

// Another thread makes and destroys descriptors and executors. If it holds a lock during the fork, the child must find
// the lock free.
TEST_F(Fork, WhileHandlesAreMadeAndDestroyedChildrenMakeTheirOwn) {
  std::atomic<bool> ending = false;
  std::thread churn([&] {
    while (!ending) {
      OperatorCall call(Family::kDecode);
      EXPECT_EQ(call.Plan(), ACLNN_SUCCESS);
      void* memory = nullptr;
      EXPECT_EQ(aclrtMalloc(&memory, 8, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
      EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
    }
  });
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(RunsInAChild([] { return Check(OperatorCall(Family::kDecode).Run(nullptr) == ACL_SUCCESS); })) << i;
  }
  ending = true;
  churn.join();
}

TEST_F(Fork, AChildMayExitWhileTheParentWorks) {
  const BusyStream busy, other;
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(RunsInAChild([] { return 0; }, End::kExit)) << i;
    EXPECT_TRUE(RunsInAChild([] { return Check(LargeCall().Run(nullptr) == ACL_SUCCESS); }, End::kExit)) << i;
  }
}

TEST_F(Fork, WhatAChildHasQueuedIsDoneWhenItExits) {
  constexpr size_t kBytes = LargeCall::kElements * sizeof(float);
  void* const shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  EXPECT_TRUE(RunsInAChild(
      [&] {
        auto& queued = *new LargeCall;  // the object outlives the child's main
        queued.Write(static_cast<float*>(shared));
        return Check(queued.Start(nullptr) == ACLNN_SUCCESS);
      },
      End::kExit));
  EXPECT_TRUE(LargeCall::AllOnes(static_cast<float*>(shared)));
  munmap(shared, kBytes);
}

TEST_F(Fork, AGrandchildWorksToo) {
  EXPECT_TRUE(RunsInAChild([this] {
    aclrtStream own = nullptr;
    if (aclrtCreateStream(&own) != ACL_SUCCESS || RunEveryFamily(own) != 0) return 1;
    const pid_t pid = StartChild([&] {
      if (aclrtSynchronizeStream(own) != ACL_ERROR_INVALID_PARAM) return 1;
      if (aclrtSynchronizeStream(stream_) != ACL_ERROR_INVALID_PARAM) return 2;
      return RunEveryFamily(nullptr);
    });
    int status = 0;
    if (!WaitForChild(pid, &status) || !WIFEXITED(status)) return 2;
    return WEXITSTATUS(status);
  }));
}

TEST_F(Fork, ExecutorsOfTheParentRunInTheChild) {
  for (const Family family : AllFamilies()) {
    OperatorCall call(family);
    ASSERT_EQ(call.Run(nullptr), ACL_SUCCESS);
    const std::vector<std::byte> want = call.Results();
    call.ForgetResults();
    ASSERT_EQ(call.Plan(), ACLNN_SUCCESS);
    EXPECT_TRUE(RunsInAChild([&] {
      if (call.Start(nullptr) != ACLNN_SUCCESS || aclrtSynchronizeStream(nullptr) != ACL_SUCCESS) return 1;
      return Check(call.Results() == want);
    })) << family;
  }
}

}  // namespace
}  // namespace fa::test
