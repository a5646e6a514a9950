#include "ops/bind/prefix_sums.h"

#include <string>

#include "ops/bind/argument_error.h"

namespace fa::ops {

ErrorText EntryOf(const char* name, std::span<const int64_t> list, size_t i) {
  return Arg(name, {}, At(static_cast<int64_t>(i))).Is(std::to_string(list[i]));
}

Status CheckPrefixSums(const char* name, std::span<const int64_t> sums, int64_t rows, const ErrorText& rows_name) {
  if (sums.empty() && rows > 0) {
    return Status::InvalidArgument(Arg(name).Says("missing, want inclusive prefix sums (") + Arg("layout") + " TND)");
  }
  int64_t last = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] < last) {
      const ErrorText from = i == 0 ? ErrorText() : " (" + Arg(name, {}, At(static_cast<int64_t>(i) - 1)) + ")";
      return Status::InvalidArgument(EntryOf(name, sums, i) + ", want >= " + std::to_string(last) + from);
    }
    last = sums[i];
    if (last > rows) {
      return Status::InvalidArgument(EntryOf(name, sums, i) + ", want <= " + std::to_string(rows) + " (" + rows_name +
                                     ")");
    }
  }
  return Status::Ok();
}

Status CheckNumbers(const char* name, std::span<const int64_t> numbers, int64_t count,
                    const std::function<int64_t(size_t)>& most, const ErrorText& source) {
  if (numbers.empty()) return Status::Ok();
  if (std::ssize(numbers) != count) {
    return Status::InvalidArgument(Arg(name).Has(std::to_string(numbers.size())) + " entries, want " +
                                   std::to_string(count) + " (batch)");
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= 0 && numbers[i] <= most(i)) continue;
    return Status::InvalidArgument(EntryOf(name, numbers, i) + ", want 0.." + std::to_string(most(i)) + source);
  }
  return Status::Ok();
}

}  // namespace fa::ops
