#ifndef FA_TESTS_FUZZ_CALL_OUTPUTS_H_
#define FA_TESTS_FUZZ_CALL_OUTPUTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fuzz/calls/fuzz_call.h"

namespace fa::test {

/// The elements of every output that is there, as they are now, in the order of the fields.
class CallOutputs {
 public:
  explicit CallOutputs(FuzzCall* call);
  /// The first output whose bits differ, where any NaN equals any other, or nothing.
  [[nodiscard]] std::string FirstDifference(const CallOutputs& other) const;

 private:
  struct Output {
    std::string name;
    DType dtype;
    std::vector<std::byte> elements;
  };
  std::vector<Output> outputs_;
};

/// The outputs of a run that starts with poisoned outputs. The run must succeed.
[[nodiscard]] CallOutputs OutputsOf(FuzzCall* call, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_CALL_OUTPUTS_H_
