#ifndef FA_TOOLS_FA_BENCH_BENCH_REPORT_H_
#define FA_TOOLS_FA_BENCH_BENCH_REPORT_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cases/forward_case.h"
#include "fa/plan.h"
#include "flags/context_flags.h"
#include "peak/bracketed_rounds.h"

namespace fa::tool {

/// How a benchmark measures and reports: --seconds, --json and the flags of a context.
struct MeasureFlags {
  ContextFlags context;
  double seconds = 2.5;  ///< the time to measure, positive and finite
  bool json = false;
};
void AddMeasureFlags(CLI::App& command, MeasureFlags& flags);

/// The flags of a benchmark of dense attention.
struct BenchFlags {
  ForwardCaseFlags forward;
  MeasureFlags measure;
};

/// Adds the command `name` with the flags of BenchFlags. The command calls `run` with the values of the flags.
void AddBench(CLI::App& bench, const char* name, const char* text, std::function<void(const BenchFlags&)> run,
              bool takes_int8 = false);

/// What the report says about the call that was measured.
struct BenchSubject {
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  Layout layout = Layout::kBNSD;
  std::string mask;
};
[[nodiscard]] BenchSubject SubjectOf(const ForwardCase& forward);

/// A call that a benchmark measures.
struct BenchCall {
  const char* op = "";
  const MeasureFlags& flags;
  BenchSubject subject;
  const Context& context;
  PlanInfo info;
  double bytes = 0;  ///< bytes of the tensors that `bytes_of` names
  const char* bytes_of = "inputs and outputs";
  /// The memory that `bytes` counts, or empty. If it is not empty, the call is also compared with the rate at which the
  /// context's threads read this memory. Memory that is too small to measure is not compared.
  std::vector<std::span<const std::byte>> memory = {};
  std::string dtype = {};  ///< the type to report, if it is not the type of `subject`
  int64_t block_size = 0;  ///< rows per page if keys lie in pages
  std::function<void()> call;
  std::function<void()> check;  ///< checks a call's results before calls are timed; throws Failure
};

/// Adds what every benchmark reports about its timing: seconds, rates, and the fraction of the arithmetic unit's rate.
void AddTiming(const bench::BracketedTiming& timing, double flops, const char* unit, nlohmann::ordered_json& json);
/// Prints what AddTiming added, as lines of text.
void PrintTiming(const nlohmann::ordered_json& result);

/// Makes a call, checks its results, times calls in rounds between measurements of this machine's peak, and prints the
/// outcome.
void MeasureAndReport(const BenchCall& bench);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_BENCH_BENCH_REPORT_H_
