#ifndef FA_TOOLS_FA_DOCTOR_FINDINGS_H_
#define FA_TOOLS_FA_DOCTOR_FINDINGS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/self_test.h"
#include "doctor/system_facts.h"

namespace fa::tool {

/// Something that a user should know: it costs speed or memory, changes what fa does, casts doubt on a rate, or shows
/// wrong results.
struct Finding {
  std::string about;  ///< the name of the variable, the setting or the level
  std::string text;
};

/// Finds environment variables whose values change or slow down what fa does. Some of them are read by other libraries
/// in the process.
/// @param get  returns the value of a variable, or null, like std::getenv
[[nodiscard]] std::vector<Finding> FindVariables(const std::function<const char*(const char* name)>& get);

/// Finds settings of the operating system that cost speed or memory.
[[nodiscard]] std::vector<Finding> FindSettings(const SystemFacts& facts);

/// Finds reasons why the rates of the self-test may be too low or cannot be right.
/// @param foreign_cpus  how many CPUs other programs used during the self-test, if the system reports it
[[nodiscard]] std::vector<Finding> FindDoubts(const std::vector<SelfTestResult>& results,
                                              std::optional<double> foreign_cpus);

/// Finds levels that compute wrong results.
[[nodiscard]] std::vector<Finding> FindWrongResults(const std::vector<SelfTestResult>& results);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_FINDINGS_H_
