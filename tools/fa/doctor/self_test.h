#ifndef FA_TOOLS_FA_DOCTOR_SELF_TEST_H_
#define FA_TOOLS_FA_DOCTOR_SELF_TEST_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "flags/context_flags.h"

namespace fa::tool {

/// The result of one operator for one type at one level.
struct SelfTestResult {
  std::string isa, op, dtype;
  std::string kernel = {};
  double error = 0;        ///< the largest error, as a fraction of what rounding explains
  double gflops = 0;       ///< the rate of the fastest call
  std::string peak = {};   ///< the level's arithmetic unit for the type: "bf16 tile products"
  double peak_gflops = 0;  ///< the arithmetic unit's rate on the same threads, measured around the best call
  std::optional<double> fraction = {};  ///< gflops / peak_gflops; nothing if no round was quiet (bracketed_rounds.h)
  /// Whether no round was quiet and calls were faster than the measured peak. The rates are then doubtful.
  bool above_peak = false;
  std::string wrong = {};  ///< what is wrong, or why nothing was tested; the errors and rates are then 0
};

/// Runs forward, backward and prompt at every level that this CPU has. Compares rows of the results with computations
/// in double precision, and times the operators.
/// @param context  the number of threads; the context's level is ignored
/// @param seconds  time for the whole test, approximately; each operator is called at least five times
[[nodiscard]] std::vector<SelfTestResult> RunSelfTest(const ContextFlags& context, double seconds,
                                                      const std::function<void(const std::string& what)>& progress);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_SELF_TEST_H_
