#include "support/cases/token/token_outputs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "support/compare/agrees.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

const TokenOutput& Find(const TokenOutputs& outputs, const std::string& name) {
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const auto& o) { return o.name == name; });
  if (found == outputs.end()) throw std::invalid_argument("no output " + name);
  return *found;
}

AssertionResult SameBitsOf(const std::string& name, const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size())
    return AssertionFailure() << name << " has " << a.size() << " and " << b.size() << " values";
  for (size_t x = 0; x < a.size(); ++x) {
    if (std::isnan(a[x]) && std::isnan(b[x])) continue;
    if (std::bit_cast<uint64_t>(a[x]) != std::bit_cast<uint64_t>(b[x])) {
      return AssertionFailure() << name << "[" << x << "] = " << a[x] << " and " << b[x] << ", apart by "
                                << a[x] - b[x];
    }
  }
  return AssertionSuccess();
}

}  // namespace

AssertionResult UnusedRowsAreFilled(const TokenOutputs& got) {
  for (const TokenOutput& output : got) {
    for (size_t x = 0; x < output.rows.unused.size(); ++x) {
      if (output.rows.unused[x] != output.unused) {
        return AssertionFailure() << "unused row: " << output.name << "[" << x << "] = " << output.rows.unused[x]
                                  << ", want " << output.unused;
      }
    }
  }
  return AssertionSuccess();
}

AssertionResult MatchesExpected(const TokenOutputs& got, const std::vector<ExpectedOutput>& expected) {
  for (const ExpectedOutput& line : expected) {
    const std::vector<double>& values = ValuesOf(got, line.name);
    if (values.size() != line.want.size() || values.size() != line.allowed.size()) {
      return AssertionFailure() << line.name << " has " << values.size() << " values, want " << line.want.size();
    }
    for (size_t x = 0; x < values.size(); ++x) {
      if (!Agrees(values[x], line.want[x], line.allowed[x])) {
        return AssertionFailure() << line.name << "[" << x << "] = " << values[x] << ", want " << line.want[x] << " +- "
                                  << line.allowed[x] << " (off by " << values[x] - line.want[x] << ")";
      }
    }
  }
  return UnusedRowsAreFilled(got);
}

AssertionResult SpreadsAsExpected(const TokenOutputs& got, const std::vector<ExpectedOutput>& expected,
                                  const TokenOutputs& finite) {
  size_t reached = 0, all = 0;
  for (const ExpectedOutput& line : expected) {
    const std::vector<double>&values = ValuesOf(got, line.name), &usual = ValuesOf(finite, line.name);
    if (values.size() != line.want.size() || values.size() != usual.size()) {
      return AssertionFailure() << line.name << " has " << values.size() << " values, want " << line.want.size();
    }
    all += values.size();
    for (size_t x = 0; x < values.size(); ++x) {
      const bool is_finite = std::isfinite(line.want[x]);
      const double want = is_finite ? usual[x] : line.want[x];
      if (!is_finite) ++reached;
      if (std::isnan(want) ? !std::isnan(values[x]) : values[x] != want) {
        return AssertionFailure() << line.name << "[" << x << "] = " << values[x] << ", want " << want;
      }
    }
  }
  if (reached == 0 || reached == all) return AssertionFailure() << reached << " of " << all << " values are reached";
  return UnusedRowsAreFilled(got);
}

AssertionResult SameBits(const TokenOutputs& a, const TokenOutputs& b) {
  if (a.size() != b.size()) return AssertionFailure() << a.size() << " and " << b.size() << " outputs";
  for (size_t i = 0; i < a.size(); ++i) {
    if (AssertionResult same = SameBitsOf(a[i].name, a[i].rows.values, b[i].rows.values); !same) return same;
    if (AssertionResult same = SameBitsOf(a[i].name + " unused", a[i].rows.unused, b[i].rows.unused); !same)
      return same;
  }
  return AssertionSuccess();
}

const std::vector<double>& ValuesOf(const TokenOutputs& outputs, const std::string& name) {
  return Find(outputs, name).rows.values;
}

std::vector<double> ValuesOf(TokenOutputs&& outputs, const std::string& name) {
  return Find(outputs, name).rows.values;
}

}  // namespace fa::test
