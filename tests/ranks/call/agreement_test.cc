// Tests the facts on which all ranks must agree before any tensor moves.
#include "ranks/call/agreement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fa/version.h"
#include "ranks/call/bind_ranks.h"
#include "support/cases/forward_problem.h"
#include "support/execution/thread_transport.h"

namespace fa::ops {
namespace {

constexpr int kRanks = 3;

/// Returns the message of each rank, or "" without an error. The last rank has the facts `other`, and the others have
/// `facts`.
std::vector<std::string> Agree(const RankFacts& facts, const RankFacts& other) {
  std::vector<std::string> messages(kRanks);
  test::ThreadRanks(kRanks).Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    const auto agreed = AgreeOnCall(*transport, rank + 1 == kRanks ? other : facts);
    messages[static_cast<size_t>(rank)] = agreed.ok() ? "" : agreed.status().message();
  });
  return messages;
}

RankFacts Describing(const std::string& version) {
  CallDescription call;
  call.Add("op", "forward");
  call.Add("version", version);
  call.Add("scale", "1");
  return {.status = {}, .description = call.text()};
}

TEST(Agreement, RanksOfOtherVersionsAreOneError) {
  EXPECT_EQ(Agree(Describing("1.0"), Describing("1.0")), std::vector<std::string>(kRanks));
  EXPECT_EQ(Agree(Describing("1.0"), Describing("1.1")),
            std::vector<std::string>(kRanks, "invalid argument: rank 2: version=1.1, want 1.0 (rank 0)"));
}

TEST(Agreement, ACallDescribesTheLibrarysVersion) {
  const test::ForwardProblem problem(test::ForwardCase{});
  const SequenceShards shards{.sq = problem.args().q.shape[2], .sk = problem.args().k.shape[2], .intervals = {}};
  const auto bound = BindRanks(problem.args(), problem.options(), shards, 0, 1);
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  const std::string text = Describe(*bound, problem.options(), shards).text();
  EXPECT_NE(text.find("version=" FA_VERSION_STRING "\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace fa::ops
