#ifndef FA_TOOLS_FA_DOCTOR_SELF_TEST_H_
#define FA_TOOLS_FA_DOCTOR_SELF_TEST_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "flags/context_flags.h"

namespace fa::tool {

/// One operator in one type at one level.
struct SelfTestResult {
  std::string isa, op, dtype;
  std::string kernel = {};
  double error = 0;                     ///< the largest, as a fraction of what rounding explains
  double gflops = 0;                    ///< of the best call
  std::string peak = {};                ///< the level's arithmetic unit for the type: "bf16 tile products"
  double peak_gflops = 0;               ///< its rate on as many threads, measured right before and after that call
  std::optional<double> fraction = {};  ///< gflops of peak_gflops; nothing where no round was quiet
  bool above_peak = false;              ///< every call was faster than the unit around it, which cannot be
  std::string wrong = {};               ///< what is wrong, or why it did not run; error and rates are then 0
};

/// Runs forward, backward and prompt at every level that this CPU has, compares rows of their results with
/// computations in double precision, and times them.
/// @param context  the threads; its level is not looked at
/// @param seconds  for all of it, about; each operator is called at least five times
[[nodiscard]] std::vector<SelfTestResult> RunSelfTest(const ContextFlags& context, double seconds,
                                                      const std::function<void(const std::string& what)>& progress);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_SELF_TEST_H_
