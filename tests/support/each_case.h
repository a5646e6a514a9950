#ifndef FA_TESTS_SUPPORT_EACH_CASE_H_
#define FA_TESTS_SUPPORT_EACH_CASE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

namespace fa::test {

/// A list of values with a name, for ForEachCase.
template <typename T>
struct Axis {
  Axis(const char* of, std::initializer_list<T> list) : name(of), values(list) {}
  template <typename List>
  Axis(const char* of, const List& list) : name(of), values(std::begin(list), std::end(list)) {}

  const char* name;
  std::vector<T> values;
};
template <typename List>
Axis(const char*, const List& list) -> Axis<std::iter_value_t<decltype(std::begin(list))>>;

/// Returns the numbers from `first` to `last`.
inline std::vector<int64_t> FromTo(int64_t first, int64_t last) {
  std::vector<int64_t> numbers;
  for (int64_t x = first; x <= last; ++x) numbers.push_back(x);
  return numbers;
}

/// Returns how a failure names a value of an axis: by its name, by its text, or by its number on the axis.
template <typename T>
std::string CaseName(const T& value, size_t number) {
  if constexpr (requires { Name(value); }) {
    return Name(value);
  } else if constexpr (requires(std::ostream & out) { out << value; }) {
    return testing::PrintToString(value);
  } else {
    return "number " + std::to_string(number);
  }
}

/// Calls check(a, b, ...) for every combination of the axes' values, until one fails fatally. A failure names its
/// combination. Use a parametrised suite instead if a case takes longer than milliseconds.
template <typename Check>
void ForEachCase(const Check& check) {
  check();
}
template <typename Check, typename T, typename... Rest>
void ForEachCase(const Check& check, const Axis<T>& axis, const Rest&... rest) {
  size_t number = 0;
  for (const T& value : axis.values) {
    SCOPED_TRACE(std::string(axis.name) + " = " + CaseName(value, number++));
    ForEachCase([&](const auto&... others) { check(value, others...); }, rest...);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_EACH_CASE_H_
