#ifndef FA_BENCHMARKS_BUNDLE_REPORT_H_
#define FA_BENCHMARKS_BUNDLE_REPORT_H_

#include <nlohmann/json.hpp>

namespace fa::bundle {

using Json = nlohmann::ordered_json;

/// Prints what measure.cc has found, as tables.
void PrintReport(const Json& report);

}  // namespace fa::bundle

#endif  // FA_BENCHMARKS_BUNDLE_REPORT_H_
