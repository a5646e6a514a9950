#ifndef FA_TESTS_FUZZ_CALL_OUTPUTS_H_
#define FA_TESTS_FUZZ_CALL_OUTPUTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fuzz/calls/fuzz_call.h"

namespace fa::test {

/// A copy of the elements of every output that the call has, in the order of the fields.
class CallOutputs {
 public:
  explicit CallOutputs(FuzzCall* call);
  /// Returns the name of the first output whose bits differ, or "" if none differs. Any NaN equals any other.
  [[nodiscard]] std::string FirstDifference(const CallOutputs& other) const;

 private:
  struct Output {
    std::string name;
    DType dtype;
    std::vector<std::byte> elements;
  };
  std::vector<Output> outputs_;
};

/// Returns the outputs of a run that starts with poisoned outputs. The run must succeed.
[[nodiscard]] CallOutputs OutputsOf(FuzzCall* call, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_CALL_OUTPUTS_H_
