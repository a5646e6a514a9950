#ifndef FA_TOOLS_FA_DOCTOR_FINDINGS_H_
#define FA_TOOLS_FA_DOCTOR_FINDINGS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/self_test.h"
#include "doctor/system_facts.h"

namespace fa::tool {

/// A fact that costs speed or memory on this machine, or that is wrong.
struct Finding {
  std::string about;  ///< the variable, the setting or the level
  std::string text;
};

/// Finds environment variables whose values change or slow down what fa does. Libraries in the same process as fa read
/// some of these variables.
/// @param get  returns the value of a variable, or null, like std::getenv
[[nodiscard]] std::vector<Finding> FindVariables(const std::function<const char*(const char* name)>& get);

/// Finds settings of the operating system that cost speed or memory.
[[nodiscard]] std::vector<Finding> FindSettings(const SystemFacts& facts);

/// Finds reasons why the rates of the self-test may be too low, or cannot be right.
/// @param foreign_cpus  CPUs that other programs used during the self-test, if the system reports them
[[nodiscard]] std::vector<Finding> FindDoubts(const std::vector<SelfTestResult>& results,
                                              std::optional<double> foreign_cpus);

/// Finds levels that compute wrong results.
[[nodiscard]] std::vector<Finding> FindWrongResults(const std::vector<SelfTestResult>& results);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_FINDINGS_H_
