#ifndef FA_TESTS_TOOLS_BACKWARD_CALL_H_
#define FA_TESTS_TOOLS_BACKWARD_CALL_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "npy/npy_array.h"
#include "reference/attention.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"

namespace fa::test {

/// One `fa run backward` on files that a `fa run forward` has read and written. `forward` has the options of the call.
class BackwardCall {
 public:
  BackwardCall(std::string layout, const reference::Problem& problem,
               reference::Format format = reference::Format::kF32);

  ForwardCall forward;
  std::string outputs;  ///< flags of optional gradients, which the command line ends with

  /// Asks for one more optional gradient.
  void Want(const std::string& flag);
  /// Runs `fa run forward`, which writes the files that the backward reads.
  [[nodiscard]] CliResult RunForward() { return forward.Run(); }
  /// Returns the words of the command line up to its outputs: `run backward`, options and inputs.
  [[nodiscard]] std::string InputWords() const;
  [[nodiscard]] CliResult RunBackward(const std::string& more = "") const;
  /// Runs forward and backward and compares every gradient that was asked for with the reference.
  [[nodiscard]] ::testing::AssertionResult Matches();
  /// Returns the file that the flag names.
  [[nodiscard]] std::string PathOf(const std::string& flag) const;
  [[nodiscard]] std::string BytesOf(const std::string& flag) const { return forward.scratch().Read(flag + ".npy"); }

 private:
  struct References {
    reference::Gradients exact, naive;
  };
  [[nodiscard]] References Compute() const;
  [[nodiscard]] ::testing::AssertionResult AllMatch(const References& want) const;
  [[nodiscard]] ::testing::AssertionResult SlopesMatch(const reference::Gradients& exact) const;
  [[nodiscard]] ::testing::AssertionResult TensorMatches(const std::string& flag, const npy::Array& exact,
                                                         const npy::Array& naive) const;
  [[nodiscard]] double Value(const npy::Array& array, size_t at) const;

  std::string layout_;
  reference::Format format_;
  std::vector<double> d_out_;
};

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_BACKWARD_CALL_H_
