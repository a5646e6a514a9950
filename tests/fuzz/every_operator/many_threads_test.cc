// Tests a thousand threads at once on one context, while contexts are made and destroyed.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "fa/flash_attention.h"

namespace fa::test {
namespace {

constexpr int kThreads = 1000;
constexpr int64_t kHeads = 4, kRows = 40, kSize = 8;
constexpr size_t kElements = size_t{kHeads} * kRows * kSize;

TEST(AThousandThreads, CallAtOnceWhileContextsComeAndGo) {
  std::vector<float> in(kElements), want(kElements);
  for (size_t i = 0; i < kElements; ++i) in[i] = static_cast<float>(i % 17) / 8;
  const auto call = [&](std::vector<float>& out, Context* context) {
    AttentionArgs args;
    args.q = args.k = args.v =
        TensorView{.data = in.data(), .dtype = DType::kF32, .shape = {1, kHeads, kRows, kSize}, .stride = {}};
    args.out =
        MutableTensorView{.data = out.data(), .dtype = DType::kF32, .shape = {1, kHeads, kRows, kSize}, .stride = {}};
    return FlashAttention(args, {}, context);
  };
  ContextOptions options;
  options.threads = 3;
  const auto context = Context::Create(options);
  ASSERT_TRUE(context.ok());
  ASSERT_TRUE(call(want, nullptr).ok());

  std::atomic<int> right{0}, made{0};
  std::atomic<bool> ending{false};
  std::thread maker([&] {
    do {
      const auto own = Context::Create(options);
      std::vector<float> out(kElements);
      if (own.ok() && call(out, own->get()).ok() && out == want) ++made;
    } while (!ending);
  });
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      std::vector<float> out(kElements);
      start.arrive_and_wait();
      if (call(out, context->get()).ok() && out == want) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ending = true;
  maker.join();
  EXPECT_EQ(right.load(), kThreads);
  EXPECT_GT(made.load(), 0);
}

}  // namespace
}  // namespace fa::test
