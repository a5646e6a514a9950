#ifndef FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_
#define FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cases/token/token_case.h"

namespace fa::test {

/// What a call wrote to one output, and what a row that no sequence uses must hold.
struct TokenOutput {
  std::string name;
  RowValues rows;
  double unused = 0;
};

using TokenOutputs = std::vector<TokenOutput>;

/// Values of one output, and how far a computation may be from each of them; 0 means that it must be equal.
struct ExpectedOutput {
  std::string name;
  std::vector<double> want, allowed;
};

/// Every expected output is there and within its tolerance, unused rows exactly; NaN and inf where they are expected.
[[nodiscard]] ::testing::AssertionResult MatchesExpected(const TokenOutputs& got,
                                                         const std::vector<ExpectedOutput>& expected);
/// Checks what non-finite values in an input may do: NaN and inf stand exactly where they are expected, all other
/// values have the bits of a run on finite values. There must be some of both kinds. Tolerances are ignored.
[[nodiscard]] ::testing::AssertionResult SpreadsAsExpected(const TokenOutputs& got,
                                                           const std::vector<ExpectedOutput>& expected,
                                                           const TokenOutputs& finite);
/// Checks only the rows that no sequence uses.
[[nodiscard]] ::testing::AssertionResult UnusedRowsAreFilled(const TokenOutputs& got);

/// The same bits everywhere; any NaN equals any other.
[[nodiscard]] ::testing::AssertionResult SameBits(const TokenOutputs& a, const TokenOutputs& b);

/// The values of output `name`.
[[nodiscard]] const std::vector<double>& ValuesOf(const TokenOutputs& outputs, const std::string& name);
/// For outputs that do not outlive the call.
[[nodiscard]] std::vector<double> ValuesOf(TokenOutputs&& outputs, const std::string& name);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_
