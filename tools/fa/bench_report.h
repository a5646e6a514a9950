#ifndef FA_TOOLS_FA_BENCH_REPORT_H_
#define FA_TOOLS_FA_BENCH_REPORT_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

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

/// A call to measure.
struct BenchCall {
  const char* op = "";
  const BenchFlags& flags;
  const ForwardCase& forward;
  const Context& context;
  PlanInfo info;
  double bytes = 0;             ///< of inputs and outputs, each once
  bool against_memory = false;  ///< also measure the machine's read rate, which `bytes` are held against
  std::string dtype = {};       ///< where it is not the forward's
  int64_t block_size = 0;       ///< of pages
  std::function<void()> call;
  std::function<void()> check;  ///< of the results of a call, before any is timed; throws Failure
};

/// Calls once, checks, times the call against this machine's peak, measured in between, and prints the outcome.
void MeasureAndReport(const BenchCall& bench);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_BENCH_REPORT_H_
