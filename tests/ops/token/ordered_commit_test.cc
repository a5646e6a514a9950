#include "ops/token/ordered_commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fa::ops {
namespace {

constexpr int64_t kTokens = 60;
constexpr int32_t kKeys = 40;
constexpr int kThreads = 4;

/// Runs body(token) for all tokens on several threads, which claim the tokens in ascending order.
template <typename Body>
void InClaimOrder(int64_t tokens, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int64_t token; (token = next.fetch_add(1)) < tokens;) body(token);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Sums {
  std::vector<std::byte> memory;
  std::vector<std::vector<int64_t>> tokens_of_key;  ///< not atomic, so that ThreadSanitizer sees a race
};

/// Returns sums to which the tokens of two sequences have added. A token adds to each key up to two times, in tiles of
/// three additions.
Sums AddInTurns() {
  constexpr int64_t kFirst = kTokens / 3;  // the first token of the second sequence
  Sums sums{std::vector<std::byte>(OrderedCommit::Bytes(kTokens, 2)),
            std::vector<std::vector<int64_t>>(static_cast<size_t>(2 * kKeys))};
  const OrderedCommit commit(sums.memory.data(), kTokens, 2);
  InClaimOrder(kTokens, [&](int64_t token) {
    const int64_t sequence = token < kFirst ? 0 : 1;
    OrderedCommit::Turn turn(commit, sequence, sequence * kFirst, token);
    std::mt19937 random(static_cast<uint32_t>(token));
    std::vector<int32_t> keys;
    if (token % 7 != 3) {  // some tokens have no keys
      for (int32_t key = 0; key < kKeys; ++key) {
        for (uint32_t times = random() % 3; times > 0; --times) keys.push_back(key);
      }
    }
    for (size_t begin = 0; begin < keys.size(); begin += 3) {
      const size_t end = std::min(begin + 3, keys.size());
      const int32_t last = keys[end - 1];
      turn.WaitFor(last + 1);
      for (size_t i = begin; i < end; ++i) {
        sums.tokens_of_key[static_cast<size_t>(sequence * kKeys + keys[i])].push_back(token);
      }
      turn.Publish(end < keys.size() && keys[end] == last ? last : last + 1);
    }
  });
  return sums;
}

TEST(OrderedCommit, EveryKeyTakesTheTokensOfItsSequenceInAscendingOrder) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Sums sums = AddInTurns();
    size_t additions = 0;
    for (const auto& tokens : sums.tokens_of_key) {
      EXPECT_TRUE(std::is_sorted(tokens.begin(), tokens.end()));
      additions += tokens.size();
    }
    EXPECT_GT(additions, static_cast<size_t>(kTokens * kKeys / 2));
  }
}

TEST(OrderedCommit, ATokenThatThrowsHoldsUpNobody) {
  std::vector<std::byte> memory(OrderedCommit::Bytes(kTokens, 1));
  const OrderedCommit commit(memory.data(), kTokens, 1);
  std::atomic<int> thrown = 0, ended = 0;
  InClaimOrder(kTokens, [&](int64_t token) {
    try {
      OrderedCommit::Turn turn(commit, 0, 0, token);
      turn.WaitFor(1);
      if (token % 5 == 0) throw std::runtime_error("a token");
      turn.WaitFor(kKeys);
      ended.fetch_add(1);
    } catch (const std::runtime_error&) {
      thrown.fetch_add(1);
    }
  });
  EXPECT_EQ(thrown, kTokens / 5);
  EXPECT_EQ(ended, kTokens - kTokens / 5);
}

TEST(PhaseGate, WhoWaitsSeesWhatAllOthersHaveWritten) {
  constexpr int64_t kWriters = 20;
  int64_t word = 0;
  const PhaseGate gate(&word, kWriters);
  std::vector<int64_t> written(kWriters, 0);
  std::atomic<int> right = 0;
  InClaimOrder(2 * kWriters, [&](int64_t task) {
    if (task < kWriters) {
      const PhaseArrival arrival(gate);
      written[static_cast<size_t>(task)] = task + 1;
      return;
    }
    gate.Wait();
    int64_t sum = 0;
    for (const int64_t value : written) sum += value;
    if (sum == kWriters * (kWriters + 1) / 2) right.fetch_add(1);
  });
  EXPECT_EQ(right, kWriters);
}

}  // namespace
}  // namespace fa::ops
