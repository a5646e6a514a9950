#ifndef FA_TOOLS_FA_DOCTOR_FINDINGS_H_
#define FA_TOOLS_FA_DOCTOR_FINDINGS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/self_test.h"
#include "doctor/system_facts.h"

namespace fa::tool {

/// Something that costs speed or memory here, or is wrong.
struct Finding {
  std::string about;  ///< the variable, the setting or the level
  std::string text;
};

/// Environment variables, of fa and of the libraries that share a process with it, whose values change or slow down
/// what fa does. @param get  as std::getenv
[[nodiscard]] std::vector<Finding> FindVariables(const std::function<const char*(const char* name)>& get);

/// Settings of the operating system.
[[nodiscard]] std::vector<Finding> FindSettings(const SystemFacts& facts);

/// Why the rates of the self-test may be too low, or cannot be right.
/// @param foreign_cpus  that other programs used during it, if the system tells
[[nodiscard]] std::vector<Finding> FindDoubts(const std::vector<SelfTestResult>& results,
                                              std::optional<double> foreign_cpus);

/// Levels that compute something wrong.
[[nodiscard]] std::vector<Finding> FindWrongResults(const std::vector<SelfTestResult>& results);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_FINDINGS_H_
