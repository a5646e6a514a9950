#ifndef FA_TOOLS_FA_BENCH_REPORT_H_
#define FA_TOOLS_FA_BENCH_REPORT_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "context_flags.h"
#include "fa/plan.h"
#include "forward_case.h"

namespace fa::tool {

/// The flags of a benchmark of dense attention.
struct BenchFlags {
  ForwardCaseFlags forward;
  ContextFlags context;
  bool json = false;
};

/// Adds `name` with these flags; `run` gets them.
void AddBench(CLI::App& bench, const char* name, const char* text, std::function<void(const BenchFlags&)> run,
              bool takes_int8 = false);

/// Which call was measured.
struct BenchSubject {
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  Layout layout = Layout::kBNSD;
  std::string mask;
};
[[nodiscard]] BenchSubject SubjectOf(const ForwardCase& forward);

/// A call to measure.
struct BenchCall {
  const char* op = "";
  bool json = false;
  BenchSubject subject;
  const Context& context;
  PlanInfo info;
  double bytes = 0;  ///< of what follows
  const char* bytes_of = "inputs and outputs";
  bool against_memory = false;  ///< also measure the machine's read rate, which `bytes` are held against
  std::string dtype = {};       ///< where it is not the subject's
  int64_t block_size = 0;       ///< of pages
  std::function<void()> call;
  std::function<void()> check;  ///< of the results of a call, before any is timed; throws Failure
};

/// Calls once, checks, times the call against this machine's peak, measured in between, and prints the outcome.
void MeasureAndReport(const BenchCall& bench);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_BENCH_REPORT_H_
