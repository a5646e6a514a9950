// Tests of streams, events and executors: work is asynchronous, keeps its order, and comes from any thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "aclnn/calls/face_call.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// A small attention whose queries, keys and values are 1. Every output is the mean of the values, which is exact if
/// the number of keys is a power of two.
class SmallCall {
 public:
  explicit SmallCall(int64_t rows = 4) : in_(static_cast<size_t>(rows * kSize), 1.0F) {
    out_.assign(in_.size(), NAN);
    max_.assign(static_cast<size_t>(rows) * 8, NAN);
    sum_ = max_;
    p.query = p.key = p.value = handles_.Tensor(in_.data(), ACL_FLOAT, {1, 1, rows, kSize});
    p.out = handles_.Tensor(out_.data(), ACL_FLOAT, {1, 1, rows, kSize});
    p.softmax_max = handles_.Tensor(max_.data(), ACL_FLOAT, {1, 1, rows, 8});
    p.softmax_sum = handles_.Tensor(sum_.data(), ACL_FLOAT, {1, 1, rows, 8});
  }

  void Plan() {
    ASSERT_EQ(GetWorkspaceSize(ForwardVersion::kScore, p, &size, &executor), ACLNN_SUCCESS) << aclGetRecentErrMsg();
    workspace_.resize(size);
  }
  aclnnStatus Start(aclrtStream stream) {
    return Execute(ForwardVersion::kScore, workspace_.data(), size, executor, stream);
  }
  /// Starts work that takes tenths of a second. The thread that starts it reaches its next statement long before the
  /// work ends.
  void StartOften(aclrtStream stream) {
    Plan();
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), ACLNN_SUCCESS);
    for (int i = 0; i < 30; ++i) ASSERT_EQ(Start(stream), ACLNN_SUCCESS);
    ASSERT_EQ(aclDestroyAclOpExecutor(executor), ACLNN_SUCCESS);
  }
  [[nodiscard]] bool Done() const {
    return std::all_of(out_.begin(), out_.end(), [](float x) { return x == 1.0F; });
  }
  [[nodiscard]] bool Untouched() const {
    return std::all_of(out_.begin(), out_.end(), [](float x) { return std::isnan(x); });
  }
  void Forget() { std::fill(out_.begin(), out_.end(), NAN); }
  /// Uses a compressed mask with a hole, a mistake that only the contents of the mask show.
  void UseWrongMask() {
    mask_ = CompressedMask(2);
    mask_[5 * 2048 + 7] = 0;
    p.sparse_mode = 2;
    p.atten_mask = handles_.Tensor(mask_.data(), ACL_BOOL, {2048, 2048});
  }
  [[nodiscard]] void* workspace() { return workspace_.data(); }
  [[nodiscard]] std::vector<float>& out() { return out_; }

  static constexpr int64_t kSize = 8;
  ForwardParameters p;
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;

 private:
  std::vector<float> in_, out_, max_, sum_;
  std::vector<uint8_t> mask_;
  std::vector<unsigned char> workspace_;
  Handles handles_;
};

class Streams : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS); }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
    }
  }

  aclrtStream stream_ = nullptr;
};

TEST_F(Streams, AStreamWaitsForAnEventOfAnother) {
  aclrtStream other = nullptr;
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  SmallCall long_call(2048);
  long_call.Plan();
  ASSERT_EQ(long_call.Start(other), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(event, other), ACL_SUCCESS);
  ASSERT_EQ(aclrtStreamWaitEvent(stream_, event), ACL_SUCCESS);
  SmallCall call;
  call.Plan();
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
  EXPECT_TRUE(long_call.Done()) << "the event was behind it";
  EXPECT_EQ(aclrtDestroyStream(other), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
}

TEST_F(Streams, DescriptorsAndArraysMayGoBetweenThePhases) {
  std::vector<float> in(16, 1.0F), out(16, NAN), max(16, NAN), sum(16, NAN);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  {
    Handles handles;
    std::string layout = "TND";
    ForwardParameters p;
    p.query = p.key = p.value = handles.Tensor(in.data(), ACL_FLOAT, {2, 1, 8});
    p.out = handles.Tensor(out.data(), ACL_FLOAT, {2, 1, 8});
    p.softmax_max = handles.Tensor(max.data(), ACL_FLOAT, {2, 1, 8});
    p.softmax_sum = handles.Tensor(sum.data(), ACL_FLOAT, {2, 1, 8});
    p.q_lengths = p.kv_lengths = handles.Array({1, 2});
    p.layout = layout;
    ASSERT_EQ(GetWorkspaceSize(ForwardVersion::kVarLen, p, &size, &executor), ACLNN_SUCCESS);
  }
  std::vector<unsigned char> workspace(size);
  ASSERT_EQ(Execute(ForwardVersion::kVarLen, workspace.data(), size, executor, stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(out, in);
}

TEST_F(Streams, BadContentsFailAtSynchroniseAndNothingIsWritten) {
  SmallCall bad;
  bad.UseWrongMask();
  bad.Plan();
  ASSERT_EQ(bad.Start(stream_), ACLNN_SUCCESS) << "contents are not read yet";
  SmallCall good;
  good.Plan();
  ASSERT_EQ(good.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("attenMask[5][7]=0, want 1"));
  EXPECT_TRUE(bad.Untouched());
  EXPECT_TRUE(good.Done()) << "a failure is not the next operator's";
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS) << "reported once";
}

TEST_F(Streams, DestroyingAndTheDeviceReportFailuresToo) {
  SmallCall bad;
  bad.UseWrongMask();
  bad.Plan();
  ASSERT_EQ(bad.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeDevice(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  bad.Plan();
  ASSERT_EQ(bad.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACLNN_ERR_PARAM_INVALID);
  stream_ = nullptr;
}

TEST_F(Streams, DestroyRunsWhatIsQueued) {
  SmallCall call;
  call.Plan();
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_INVALID_PARAM) << "destroyed";
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_ERROR_INVALID_PARAM);
  stream_ = nullptr;
}

TEST_F(Streams, FreeingMemoryWaitsForTheWorkThatUsesIt) {
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  SmallCall call(2048);
  call.Plan();
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
}

TEST_F(Streams, SynchroniseWithATimeout) {
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 0), ACL_SUCCESS) << "nothing to wait for";
  SmallCall call(4096);
  call.StartOften(stream_);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 0), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, -1), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
}

TEST_F(Streams, SynchroniseTheDeviceWithATimeout) {
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(0), ACL_SUCCESS) << "nothing to wait for";
  SmallCall call(4096);
  call.StartOften(stream_);
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(0), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(-1), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
}

TEST_F(Streams, QueryTellsWhetherAStreamIsDone) {
  aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
  EXPECT_EQ(aclrtStreamQuery(stream_, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  SmallCall call(4096);
  call.StartOften(stream_);
  EXPECT_EQ(aclrtStreamQuery(stream_, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtStreamQuery(stream_, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_EQ(aclrtStreamQuery(stream_, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtStreamQuery(&call, &status), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Streams, EventsTellWhenAStreamHasPassedThem) {
  aclrtEvent start = nullptr, end = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&start), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE), ACL_SUCCESS);
  float ms = -1;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, end), ACL_ERROR_INVALID_PARAM) << "not recorded";
  SmallCall call(4096);
  ASSERT_EQ(aclrtRecordEvent(start, stream_), ACL_SUCCESS);
  call.StartOften(stream_);
  ASSERT_EQ(aclrtRecordEvent(end, stream_), ACL_SUCCESS);
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  EXPECT_EQ(aclrtQueryEventStatus(end, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeEvent(end), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
  EXPECT_EQ(aclrtQueryEventStatus(end, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, end), ACL_SUCCESS);
  EXPECT_GT(ms, 0);
  EXPECT_EQ(aclrtResetEvent(end, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(start), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(end), ACL_SUCCESS);
  EXPECT_EQ(aclrtRecordEvent(end, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtDestroyEvent(nullptr), ACL_ERROR_INVALID_PARAM);
}

// aclrtStreamWaitEvent waits only for records that are already queued. So a wait on the record's own stream comes after
// the record, and never blocks it.
TEST_F(Streams, AWaitThatRacesWithARecordDoesNotWaitForItsOwnStream) {
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  constexpr int kRounds = 20000, kWatchdogMs = 120000;
  std::thread waiter([&] {
    for (int i = 0; i < kRounds; ++i) EXPECT_EQ(aclrtStreamWaitEvent(stream_, event), ACL_SUCCESS);
  });
  for (int i = 0; i < kRounds; ++i) EXPECT_EQ(aclrtRecordEvent(event, stream_), ACL_SUCCESS);
  waiter.join();
  const aclError error = aclrtSynchronizeStreamWithTimeout(stream_, kWatchdogMs);
  if (error != ACL_SUCCESS) std::abort();  // without abort, destroying the stream would hang
  EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
}

TEST_F(Streams, AWaitIsForTheRecordBeforeItWhicheverComesLater) {
  aclrtStream other = nullptr, third = nullptr;
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateStream(&third), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  SmallCall long_call(2048);
  long_call.Plan();
  ASSERT_EQ(long_call.Start(other), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(event, other), ACL_SUCCESS);
  ASSERT_EQ(aclrtStreamWaitEvent(stream_, event), ACL_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(event, third), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeEvent(event), ACL_SUCCESS) << "of an idle stream";
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(long_call.Done());
  EXPECT_EQ(aclrtDestroyStream(other), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(third), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
}

TEST_F(Streams, ThreadsMayUseAndDestroyWhatOthersMade) {
  constexpr int kThreads = 4, kRounds = 200;
  std::atomic<aclrtStream> shared = nullptr;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        aclrtStream mine = nullptr;
        ASSERT_EQ(aclrtCreateStream(&mine), ACL_SUCCESS);
        aclrtStream old = shared.exchange(mine);
        SmallCall call;
        call.Plan();
        ASSERT_EQ(call.Start(old), ACLNN_SUCCESS) << "null: the default stream";
        const aclError done = aclrtDestroyStream(old);
        EXPECT_EQ(done, old == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_SUCCESS);
        EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
        EXPECT_TRUE(call.Done());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(aclrtDestroyStream(shared), ACL_SUCCESS);
}

TEST_F(Streams, AStreamThatIsDestroyedMeanwhileTakesACallOrRefusesIt) {
  for (int i = 0; i < 300; ++i) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    SmallCall call;
    call.Plan();
    std::thread other([&] { EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS); });
    const aclnnStatus started = call.Start(stream);
    other.join();
    if (started == ACLNN_SUCCESS) {
      EXPECT_TRUE(call.Done()) << "destroying runs what was queued";
    } else {
      EXPECT_EQ(started, ACLNN_ERR_PARAM_INVALID);
      EXPECT_TRUE(call.Untouched());
      EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS) << "it has not run";
    }
  }
}

TEST_F(Streams, OneOfTwoThreadsRunsAnExecutor) {
  for (int i = 0; i < 200; ++i) {
    SmallCall call;
    call.Plan();
    aclnnStatus first = -1, second = -1;
    std::thread other([&] { second = call.Start(stream_); });
    first = call.Start(nullptr);
    other.join();
    EXPECT_EQ(std::min(first, second), ACLNN_SUCCESS);
    EXPECT_EQ(std::max(first, second), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
    EXPECT_TRUE(call.Done());
  }
}

TEST_F(Streams, ManyThreadsCallAtOnce) {
  constexpr int kThreads = 4, kCalls = 10;
  std::vector<std::thread> threads;
  std::vector<int> done(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      aclrtStream own = nullptr;
      aclrtCreateStream(&own);
      for (int i = 0; i < kCalls; ++i) {
        SmallCall call(int64_t{8} << t);
        call.Plan();
        aclrtStream stream = i % 2 == 0 ? own : stream_;
        if (call.Start(stream) == ACLNN_SUCCESS && aclrtSynchronizeStream(stream) == ACL_SUCCESS && call.Done()) {
          ++done[static_cast<size_t>(t)];
        }
      }
      aclrtDestroyStream(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int calls : done) EXPECT_EQ(calls, kCalls);
}

TEST_F(Streams, ChecksTheWorkspaceOfTheSecondPhase) {
  SmallCall call;
  call.Plan();
  ASSERT_GT(call.size, 0U);
  EXPECT_EQ(Execute(ForwardVersion::kScore, nullptr, call.size, call.executor, stream_), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(Execute(ForwardVersion::kScore, call.workspace(), call.size - 1, call.executor, stream_),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("workspaceSize="));
  EXPECT_EQ(Execute(ForwardVersion::kScore, call.workspace(), call.size, nullptr, stream_), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_TRUE(call.Untouched());
  EXPECT_EQ(call.Start(stream_), ACLNN_SUCCESS) << "the executor is still good";
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
}

TEST_F(Streams, AnExecutorRunsOnceUnlessItIsRepeatable) {
  SmallCall call;
  call.Plan();
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(call.Start(stream_), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_ERR_PARAM_INVALID) << "gone with its run";
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  call.Plan();
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    call.Forget();
    ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    EXPECT_TRUE(call.Done());
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), ACLNN_ERR_PARAM_NULLPTR);
}

TEST_F(Streams, AnExecutorDestroyedWhileQueuedStillRuns) {
  SmallCall first(2048), call;
  first.Plan();
  call.Plan();
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  ASSERT_EQ(first.Start(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
}

TEST_F(Streams, TensorsMayMoveBetweenRuns) {
  SmallCall call;
  std::vector<float> elsewhere(call.out().size(), NAN);
  call.Plan();
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  // aclSetTensorAddr numbers the tensors: query, key, value, softmaxMax, softmaxSum, attentionOut.
  auto* out = const_cast<aclTensor*>(call.p.out);
  ASSERT_EQ(aclSetTensorAddr(call.executor, 5, out, elsewhere.data()), ACLNN_SUCCESS);
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(call.Untouched());
  EXPECT_EQ(elsewhere, std::vector<float>(elsewhere.size(), 1.0F));
  EXPECT_EQ(aclSetTensorAddr(call.executor, 6, out, elsewhere.data()), ACLNN_ERR_PARAM_INVALID);

  // aclSetInputTensorAddr numbers query, key, value, and aclSetOutputTensorAddr softmaxMax, softmaxSum, attentionOut.
  const std::vector<float> value(4 * SmallCall::kSize, 2.0F);
  std::vector<float> again(elsewhere.size(), NAN);
  auto* given = const_cast<aclTensor*>(call.p.value);
  ASSERT_EQ(aclSetInputTensorAddr(call.executor, 2, given, const_cast<float*>(value.data())), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetOutputTensorAddr(call.executor, 2, out, again.data()), ACLNN_SUCCESS);
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(again, std::vector<float>(again.size(), 2.0F));
  EXPECT_EQ(elsewhere, std::vector<float>(elsewhere.size(), 1.0F));
  EXPECT_EQ(aclSetInputTensorAddr(call.executor, 3, given, nullptr), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("index=3, want less than 3 (inputs given)"));
  EXPECT_EQ(aclSetOutputTensorAddr(call.executor, 3, out, again.data()), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("index=3, want less than 3 (outputs given)"));
  ASSERT_EQ(aclSetTensorAddr(call.executor, 0, nullptr, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(call.Start(stream_), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("query: null data"));
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
}

TEST_F(Streams, TensorsMayGetTheirAddressesAfterTheFirstPhase) {
  SmallCall call;
  const int64_t shape[] = {1, 1, 4, SmallCall::kSize};
  aclTensor* query = aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 4, nullptr);
  call.p.query = query;
  call.Plan();
  EXPECT_EQ(call.Start(stream_), ACLNN_ERR_PARAM_NULLPTR);
  std::vector<float> ones(4 * SmallCall::kSize, 1.0F);
  ASSERT_EQ(aclSetTensorAddr(call.executor, 0, query, ones.data()), ACLNN_SUCCESS);
  ASSERT_EQ(call.Start(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_TRUE(call.Done());
  EXPECT_EQ(aclDestroyTensor(query), ACLNN_SUCCESS);
}

// Ends the process while the stream still has calls to run.
void EndWithWorkQueued() {
  aclrtStream stream = nullptr;
  aclrtCreateStream(&stream);
  // This thread is the first to use oneTBB. Otherwise ThreadSanitizer would report a race between another thread's
  // first use of oneTBB and its end in this thread.
  SmallCall first(2048);
  first.Plan();
  first.Start(stream);
  aclrtSynchronizeStream(stream);
  // The calls are never destroyed, because the stream still runs them after main.
  static SmallCall* const calls[] = {new SmallCall(2048), new SmallCall(2048)};
  for (SmallCall* call : calls) call->Plan();
  calls[0]->Start(stream);
  calls[1]->Start(nullptr);
  std::exit(0);
}

TEST(StreamsAtExit, AProgramMayEndWithWorkInItsQueues) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(EndWithWorkQueued(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fa::test
