// With FA_PORTABLE_BLAS=1, OpenBLAS computes the products of the portable level. Then every operator has the promised
// accuracy, but not the promised bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "fuzz/calls/families.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

/// Returns a context of the portable level that is made while FA_PORTABLE_BLAS=1.
std::unique_ptr<Context> ContextOfBlas() {
  setenv("FA_PORTABLE_BLAS", "1", 1);
  ContextOptions options;
  options.threads = 2;
  options.isa = Isa::kPortable;
  auto context = Context::Create(options);
  unsetenv("FA_PORTABLE_BLAS");
  return context.ok() ? std::move(*context) : nullptr;
}

class PortableBlas : public EveryOperator {};

TEST_P(PortableBlas, GivesTheNumbersOfTheReference) {
  const std::unique_ptr<Context> context = ContextOfBlas();
  ASSERT_NE(context, nullptr);
  ASSERT_NE(context->Describe().find("portable products: OpenBLAS"), std::string::npos) << context->Describe();
  const int cases = RandomCases(20);
  for (int seed = 901; seed < 901 + cases; ++seed) {
    const std::unique_ptr<FuzzCall> call = GetParam().make(static_cast<uint64_t>(seed));
    const Snapshot before = call->TakeSnapshot();
    before.Forget();
    call->RestoreInputs();
    const Status status = call->Run(context.get(), 0xFF);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(call->MatchesReference()) << call->Describe();
    ASSERT_EQ(before.FirstChange(), -1) << call->Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(All, PortableBlas, ::testing::ValuesIn(kFamilies), FamilyName);

}  // namespace
}  // namespace fa::test
