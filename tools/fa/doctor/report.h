#ifndef FA_TOOLS_FA_DOCTOR_REPORT_H_
#define FA_TOOLS_FA_DOCTOR_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands/machine_facts.h"
#include "doctor/findings.h"
#include "doctor/self_test.h"
#include "doctor/system_facts.h"
#include "fa/context.h"

namespace fa::tool {

/// What one run of `fa doctor` has found out.
struct DoctorReport {
  const Context& context;
  MachineFacts machine;
  SystemFacts system;
  std::vector<Finding> measurement = {}, variables = {}, settings = {}, wrong = {};
  std::vector<SelfTestResult> self_test = {};
};

[[nodiscard]] nlohmann::ordered_json ToJson(const DoctorReport& report);
/// Returns the report as one page of text, which has colours if stdout is a terminal.
[[nodiscard]] std::string ToText(const DoctorReport& report);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_REPORT_H_
