#ifndef FA_TESTS_FUZZ_CALL_OUTPUTS_H_
#define FA_TESTS_FUZZ_CALL_OUTPUTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fuzz/calls/fuzz_call.h"

namespace fa::test {

/// Copies of all outputs of a call, element by element, in the order of the arguments' fields.
class CallOutputs {
 public:
  explicit CallOutputs(FuzzCall* call);
  /// Returns the name of the first output whose bits differ, or "" if all agree. Any NaN equals any other.
  [[nodiscard]] std::string FirstDifference(const CallOutputs& other) const;

 private:
  struct Output {
    std::string name;
    DType dtype;
    std::vector<std::byte> elements;
  };
  std::vector<Output> outputs_;
};

/// Fills the outputs with poison, runs the call, which must succeed, and returns the outputs.
[[nodiscard]] CallOutputs OutputsOf(FuzzCall* call, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_CALL_OUTPUTS_H_
