#include "bundle/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace fa::bundle {
namespace {

std::string Text(const Json& object, const char* key) { return object[key].get<std::string>(); }
double Number(const Json& object, const char* key) { return object[key].get<double>(); }

std::string PercentOf(const Json& fraction) {
  return fraction.is_null() ? "-" : fmt::format("{:.1f} %", 100 * fraction.get<double>());
}

std::string MillisecondsOf(const Json& seconds) {
  return seconds.is_null() ? "-" : fmt::format("{:.3f}", 1e3 * seconds.get<double>());
}

void PrintTests(const Json& tests) {
  int passed = 0;
  for (const Json& test : tests) {
    const std::string outcome = Text(test, "outcome");
    if (outcome == "passed") ++passed;
    if (outcome == "failed") fmt::print("FAILED   {}\n{}\n", Text(test, "name"), Text(test, "output"));
    if (outcome == "late") fmt::print("late     {} (--seconds gives it more time)\n", Text(test, "name"));
  }
  fmt::print("tests    {} of {} passed\n", passed, tests.size());
}

void PrintRates(const Json& rates) {
  fmt::print("\n{:<40}{:>8}{:>11}{:>11}{:>11}\n", "rate", "threads", "best", "median", "low");
  for (const Json& rate : rates) {
    fmt::print("{:<40}{:>8}{:>11.1f}", Text(rate, "unit"), rate["threads"].get<int>(), Number(rate, "best"));
    if (rate.contains("low")) fmt::print("{:>11.1f}{:>11.1f}", Number(rate, "median"), Number(rate, "low"));
    fmt::print("\n");
  }
}

/// Returns the seconds of PyTorch's best call for the case of `result`, or null.
Json TorchBest(const Json& torch, const Json& result) {
  for (const Json& each : torch) {
    const bool same = each["op"] == result["op"] && each["dtype"] == result["dtype"] &&
                      each["threads"] == result["threads"] && each["causal"] == (result["mask"] == "causal");
    if (same) return each["torch"]["best"];
  }
  return nullptr;
}

void PrintCases(const Json& cases, const Json& torch) {
  fmt::print("\n{:<22}{:<6}{:<8}{:>8}{:>10}{:>10}{:>10}{:>9}{:>9}{:>12}\n", "operator", "type", "mask", "threads",
             "ms best", "ms busy", "GFLOP/s", "of peak", "quiet", "PyTorch ms");
  for (const Json& result : cases) {
    const int threads = result["threads"].get<int>();
    if (result.contains("outcome")) {
      fmt::print("{:<22}{:<6}{:<8}{:>8}  {}: {}\n", Text(result, "op"), Text(result, "dtype"), "", threads,
                 Text(result, "outcome"), Text(result, "command"));
      continue;
    }
    const Json &seconds = result["seconds"], &rounds = result["rounds"];
    const std::string percent = PercentOf(result[result.contains("read_fraction") ? "read_fraction" : "fraction"]);
    fmt::print("{:<22}{:<6}{:<8}{:>8}{:>10}{:>10}{:>10.1f}{:>9}{:>9}{:>12}\n", Text(result, "op"),
               Text(result, "dtype"), Text(result, "mask").substr(0, 6), threads, MillisecondsOf(seconds["best"]),
               MillisecondsOf(seconds["busy"]), Number(result, "gflops"),
               percent + (result["doubt"].is_null() ? "" : " ?"),
               fmt::format("{}/{}", rounds["quiet"].get<int>(), rounds["all"].get<int>()),
               MillisecondsOf(TorchBest(torch, result)));
  }
  fmt::print(
      "of peak: of the unit's rate around the same round; decode: of the rate of reading its memory\n"
      "?: other programs were busy, or no round was quiet, so the figures are lower bounds\n");
}

void PrintKernels(const Json& kernels) {
  fmt::print("\n{:<54}{:>10}{:>9}{:>8}\n", "kernel alone, one thread", "GFLOP/s", "of peak", "quiet");
  for (const Json& kernel : kernels) {
    std::string name = Text(kernel, "name");
    if (kernel.contains("outcome")) {
      fmt::print("{:<54} {}\n{}\n", name, Text(kernel, "outcome"), Text(kernel, "output"));
      continue;
    }
    name.resize(std::min(name.size(), name.rfind("/manual_time")));  // Google Benchmark adds this ending to names
    if (kernel.value("error_occurred", false)) {
      fmt::print("{:<54} {}\n", name, Text(kernel, "error_message"));
      continue;
    }
    fmt::print("{:<54}{:>10.1f}{:>9}{:>8}\n", name, Number(kernel, kernel.contains("GFLOP/s") ? "GFLOP/s" : "GOP/s"),
               PercentOf(kernel.value("of_peak", Json(nullptr))), PercentOf(kernel["quiet"]));
  }
}

}  // namespace

void PrintReport(const Json& report) {
  fmt::print("CPU      {}\nlevel    {}\nCPUs     {}, the quietest {}\n", Text(report["machine"], "cpu"),
             Text(report["machine"], "isa"), report["cpus"].size(), report["cpus"][0].get<int>());
  PrintTests(report["tests"]);
  PrintRates(report["rates"]);
  PrintCases(report["cases"], report["pytorch"]);
  PrintKernels(report["kernels"]);
}

}  // namespace fa::bundle
