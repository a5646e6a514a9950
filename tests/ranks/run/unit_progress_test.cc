#include "ranks/run/unit_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "ranks/rows/messenger.h"

namespace fa::ops {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Request = Transport::Request;
using Requests = UnitProgress::Requests;

/// A transport that moves no messages. A request is done after as many calls of Test as `tests_of` states.
class TestedTransport final : public Transport {
 public:
  explicit TestedTransport(bool can_test = true) : can_test_(can_test) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int ranks() const override { return 2; }
  Status Send(int, int, std::span<const std::byte>, Request*) override { return Status::Internal("send"); }
  Status Receive(int, int, std::span<std::byte>, Request*) override { return Status::Internal("receive"); }
  Status Wait(Request) override { return Status::Internal("wait"); }
  Status Test(Request request, bool* done) override {
    tested.push_back(request);
    if (request == fails) return Status::Internal("rank 1 has left");
    if (request == throws) throw std::runtime_error("no network");
    *done = tests_of[request]-- <= 1;
    return Status::Ok();
  }
  [[nodiscard]] bool CanTest() const override { return can_test_; }
  Status AllGather(std::span<const std::byte>, std::span<std::byte>) override { return Status::Internal("gather"); }

  std::vector<Request> tested;
  std::map<Request, int> tests_of;  ///< if a request is not listed, one call is enough
  Request fails = kNoRequest, throws = kNoRequest;

 private:
  bool can_test_;
};

/// Polls `progress` once, and expects that it reports no arrival.
Status Poll(UnitProgress& progress) {
  auto arrived = [](int32_t /*arrival*/) { ADD_FAILURE() << "an arrival"; };
  return progress.Poll(core::OnArrival(arrived));
}

TEST(UnitProgress, TestsOneMessageAtATimeInTheirOrder) {
  TestedTransport transport;
  transport.tests_of = {{4, 2}, {5, 3}, {7, 2}};
  std::vector<Request> sent = {kNoRequest, 4}, comes = {kNoRequest, 5, kNoRequest, 6}, goes = {7, kNoRequest};
  UnitProgress progress(transport, {sent, comes, goes});
  const std::vector<std::vector<Request>> polls = {{4}, {4, 5}, {5}, {5, 6, 7}, {7}, {}, {}};
  for (const std::vector<Request>& want : polls) {
    transport.tested.clear();
    EXPECT_EQ(progress.idle(), want.empty());
    EXPECT_TRUE(Poll(progress).ok());
    EXPECT_EQ(transport.tested, want);
    EXPECT_TRUE(progress.done());
  }
  for (const auto* requests : {&sent, &comes, &goes}) EXPECT_THAT(*requests, testing::Each(kNoRequest));
}

TEST(UnitProgress, TestsFirstWhatItIsTold) {
  TestedTransport transport;
  std::vector<Request> sums = {kNoRequest, 9, kNoRequest}, sent = {4};
  UnitProgress progress(transport, {sent, Requests(), Requests()});
  progress.TestFirst(sums);
  EXPECT_FALSE(progress.idle());
  EXPECT_TRUE(Poll(progress).ok());
  EXPECT_THAT(transport.tested, ElementsAre(9, 4));
  EXPECT_THAT(sums, testing::Each(kNoRequest));
  EXPECT_TRUE(progress.idle());
}

TEST(UnitProgress, IsIdleWithoutMessagesAndWhereATestWaits) {
  TestedTransport transport, waits(/*can_test=*/false);
  std::vector<Request> gone = {kNoRequest, kNoRequest}, under_way = {3};
  UnitProgress none(transport, {Requests(), gone, gone});
  EXPECT_TRUE(none.idle());
  EXPECT_TRUE(Poll(none).ok());
  EXPECT_THAT(transport.tested, IsEmpty());
  EXPECT_TRUE(UnitProgress(waits, {under_way, Requests(), Requests()}).idle());
  EXPECT_FALSE(UnitProgress(transport, {Requests(), Requests(), under_way}).idle());
}

TEST(UnitProgress, KeepsTheErrorOfATransport) {
  TestedTransport transport;
  transport.fails = 2;
  std::vector<Request> requests = {1, 2, 3};
  UnitProgress progress(transport, {Requests(), requests, Requests()});
  EXPECT_EQ(Poll(progress).message(), "internal error: rank 1 has left");
  EXPECT_EQ(progress.failed().message(), "internal error: rank 1 has left");
  EXPECT_THAT(transport.tested, ElementsAre(1, 2));
  EXPECT_THAT(requests, ElementsAre(kNoRequest, 2, 3));
}

TEST(UnitProgress, AnExceptionOfATransportIsAnError) {
  TestedTransport transport;
  transport.throws = 1;
  std::vector<Request> requests = {1};
  UnitProgress progress(transport, {requests, Requests(), Requests()});
  EXPECT_EQ(Poll(progress).message(), "internal error: no network");
  EXPECT_EQ(progress.failed().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace fa::ops
