#ifndef FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_
#define FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cases/token/token_case.h"

namespace fa::test {

/// The results of a call in one output, and the value that a row must hold if no sequence uses it.
struct TokenOutput {
  std::string name;
  RowValues rows;
  double unused = 0;
};

using TokenOutputs = std::vector<TokenOutput>;

/// The values of one output, and how far a result may be from each of them; 0 means that it must be equal.
struct ExpectedOutput {
  std::string name;
  std::vector<double> want, allowed;
};

/// Returns whether every expected output is there and within its tolerance, with NaN and inf where they are expected.
/// Unused rows must be exact.
[[nodiscard]] ::testing::AssertionResult MatchesExpected(const TokenOutputs& got,
                                                         const std::vector<ExpectedOutput>& expected);
/// Checks the effect of NaN or inf in an input. NaN and inf must be exactly where they are expected. All other values
/// must have the bits of a run on finite values. There must be some values of both kinds. Tolerances are ignored.
[[nodiscard]] ::testing::AssertionResult SpreadsAsExpected(const TokenOutputs& got,
                                                           const std::vector<ExpectedOutput>& expected,
                                                           const TokenOutputs& finite);
/// Checks only the rows that no sequence uses.
[[nodiscard]] ::testing::AssertionResult UnusedRowsAreFilled(const TokenOutputs& got);

/// Returns whether all bits are the same. Any NaN equals any other.
[[nodiscard]] ::testing::AssertionResult SameBits(const TokenOutputs& a, const TokenOutputs& b);

/// Returns the values of output `name`.
[[nodiscard]] const std::vector<double>& ValuesOf(const TokenOutputs& outputs, const std::string& name);
/// Returns the values of output `name` of outputs that do not outlive the call.
[[nodiscard]] std::vector<double> ValuesOf(TokenOutputs&& outputs, const std::string& name);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_
