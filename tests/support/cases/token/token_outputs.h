#ifndef FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_
#define FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cases/token/token_case.h"

namespace fa::test {

/// What a call has written to one output, and the value that it must write to rows that no sequence uses.
struct TokenOutput {
  std::string name;
  RowValues rows;
  double unused = 0;
};

using TokenOutputs = std::vector<TokenOutput>;

/// The expected values of one output, and how far the result may be from each; 0 means that it must be equal.
struct ExpectedOutput {
  std::string name;
  std::vector<double> want, allowed;
};

/// Returns whether every expected output was written and is within its tolerance. NaN and inf must be where they are
/// expected. Rows that no sequence uses must be exact.
[[nodiscard]] ::testing::AssertionResult MatchesExpected(const TokenOutputs& got,
                                                         const std::vector<ExpectedOutput>& expected);
/// Checks how far a NaN or inf of an input has spread. Outputs must be NaN or inf exactly where `want` is. Elsewhere
/// they must equal `finite`, the outputs for finite inputs. Some elements must be finite, and some must not. Tolerances
/// are ignored.
[[nodiscard]] ::testing::AssertionResult SpreadsAsExpected(const TokenOutputs& got,
                                                           const std::vector<ExpectedOutput>& expected,
                                                           const TokenOutputs& finite);
/// Checks only the rows that no sequence uses.
[[nodiscard]] ::testing::AssertionResult UnusedRowsAreFilled(const TokenOutputs& got);

/// Returns whether all values have the same bits. Any NaN equals any other.
[[nodiscard]] ::testing::AssertionResult SameBits(const TokenOutputs& a, const TokenOutputs& b);

/// Returns the values of output `name`.
[[nodiscard]] const std::vector<double>& ValuesOf(const TokenOutputs& outputs, const std::string& name);
/// Returns the values of output `name`, as a copy, because `outputs` is a temporary.
[[nodiscard]] std::vector<double> ValuesOf(TokenOutputs&& outputs, const std::string& name);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CASES_TOKEN_TOKEN_OUTPUTS_H_
