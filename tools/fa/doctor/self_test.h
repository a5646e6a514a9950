#ifndef FA_TOOLS_FA_DOCTOR_SELF_TEST_H_
#define FA_TOOLS_FA_DOCTOR_SELF_TEST_H_

#include <functional>
#include <string>
#include <vector>

#include "flags/context_flags.h"

namespace fa::tool {

/// One operator in one type at one level.
struct SelfTestResult {
  std::string isa, op, dtype;
  std::string kernel = {};
  double error = 0;        ///< the largest, as a fraction of what rounding explains
  double gflops = 0;       ///< of the best call
  double peak_gflops = 0;  ///< of the level's multiply-adds on as many threads, measured between the calls
  std::string wrong = {};  ///< what is wrong, or why it did not run; error and rates are then 0
};

/// Runs forward, backward and prompt at every level that this CPU has, compares rows of their results with
/// computations in double precision, and times them.
/// @param context  the threads; its level is not looked at
/// @param seconds  for all of it, about; each operator is called at least five times
[[nodiscard]] std::vector<SelfTestResult> RunSelfTest(const ContextFlags& context, double seconds,
                                                      const std::function<void(const std::string& what)>& progress);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_SELF_TEST_H_
