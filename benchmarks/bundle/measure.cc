// Tests and measures one machine in one run. bundle.sh makes the folder of this program, and the script `measure` in it
// starts the program. All steps use the CPUs that other programs disturb least. First come the tests of kernels and
// operators at every level of the CPU. Then the arithmetic units, the memory and single kernels are measured. Every
// operator of `fa bench` is timed on one CPU, on half of the CPUs and on all. PyTorch is timed too if python3 has it.
// All timings come from quiet rounds (peak/bracketed_rounds.h).

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "bundle/command.h"
#include "bundle/report.h"
#include "fa/context.h"
#include "peak/peak_rate.h"
#include "peak/read_bandwidth.h"

namespace fa::bundle {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string root, out = "fa-measure.json";
  double seconds = 300;
};

// The fractions of the total time for tests, rates, cases, PyTorch and kernels.
constexpr double kTestShare = 0.35, kRateShare = 0.05, kCaseShare = 0.35, kTorchShare = 0.15, kKernelShare = 0.1;

struct Machine {
  Options options;
  std::vector<int> cpus;  ///< the CPUs that the process may use, the quietest first

  [[nodiscard]] std::string Program(const char* name) const { return options.root + "/bin/" + name; }
  [[nodiscard]] std::vector<int> Quietest(int count) const { return {cpus.begin(), cpus.begin() + count}; }
  /// Returns the numbers of threads with which operators are timed: 1, half of the CPUs, and all CPUs.
  [[nodiscard]] std::vector<int> ThreadCounts() const {
    const int all = static_cast<int>(cpus.size());
    std::vector<int> counts = {1, std::max(1, all / 2), all};
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
  }
};

void Say(const std::string& what) { fmt::print(stderr, "{}\n", what); }

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Runs as many tests at once as there are CPUs. A test counts as "late" if it runs out of time.
Json RunTests(const Machine& machine) {
  std::vector<std::string> programs;
  for (const auto& file : std::filesystem::directory_iterator(machine.options.root + "/tests")) {
    programs.push_back(file.path());
  }
  std::sort(programs.begin(), programs.end());
  const Clock::time_point begin = Clock::now();
  const double limit = kTestShare * machine.options.seconds;
  std::mutex guard;
  size_t next = 0;
  Json results = Json::array();
  const auto work = [&] {
    for (;;) {
      std::unique_lock lock(guard);
      if (next == programs.size()) return;
      const std::string program = programs[next++];
      lock.unlock();
      const Clock::time_point started = Clock::now();
      const double left = limit - SecondsSince(begin);
      const Outcome outcome =
          left > 0 ? Run(program + " --gtest_brief=1", left, machine.cpus) : Outcome{.exit_code = 124};
      const char* word = outcome.ok() ? "passed" : outcome.late() ? "late" : "failed";
      lock.lock();
      results.push_back({{"name", std::filesystem::path(program).filename()},
                         {"outcome", word},
                         {"seconds", SecondsSince(started)},
                         {"output", outcome.ok() || outcome.late() ? "" : outcome.out}});
    }
  };
  std::vector<std::future<void>> workers;
  for (size_t i = 0; i < machine.cpus.size(); ++i) workers.push_back(std::async(std::launch::async, work));
  for (std::future<void>& worker : workers) worker.get();
  return results;
}

/// Returns the best, the median and the 10th percentile of many short measurements.
Json RateOf(const std::string& name, int threads, double seconds, const std::function<double(double)>& measure) {
  std::vector<double> rates;
  const Clock::time_point begin = Clock::now();
  while (rates.size() < 10 || (SecondsSince(begin) < seconds && rates.size() < 1000)) rates.push_back(measure(1e-3));
  std::sort(rates.begin(), rates.end());
  return {{"unit", name},
          {"threads", threads},
          {"best", rates.back()},
          {"median", rates[rates.size() / 2]},
          {"low", rates[rates.size() / 10]}};
}

Json MeasureRates(const Machine& machine) {
  Json rates = Json::array();
  const std::vector<int> counts = machine.ThreadCounts();
  const double seconds = kRateShare * machine.options.seconds / static_cast<double>(4 * counts.size());
  for (const int threads : counts) {
    std::string last;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      bench::PeakRate peak(threads, DetectIsa(), dtype);
      const std::string name = std::string(peak.unit()) + (dtype == DType::kI8 ? ", GOP/s" : ", GFLOP/s");
      if (peak.unit() == last) continue;  // this type uses the unit that was measured last
      last = peak.unit();
      rates.push_back(RateOf(name, threads, seconds, [&](double each) { return peak.Gflops(each); }));
    }
    const double memory = bench::MeasureReadBandwidth(threads, bench::kReadBufferBytes / 4, seconds);
    rates.push_back({{"unit", "memory read, GB/s"}, {"threads", threads}, {"best", memory}});
  }
  return rates;
}

struct Case {
  const char* op;
  const char* dtype;
  bool causal = false;
  /// The value of --shape. If it is empty, dense operators and prompt get a shape with HeadsFor() heads. Other
  /// operators get the default of `fa bench`.
  const char* shape = "";
};
constexpr Case kCases[] = {{"forward", "f32"},
                           {"forward", "f32", true},
                           {"forward", "bf16"},
                           {"forward", "bf16", true},
                           {"backward", "f32"},
                           {"backward", "f32", true},
                           {"backward", "bf16"},
                           {"backward", "bf16", true},
                           {"prompt", "int8"},
                           {"prompt", "int8", true},
                           {"decode", "f32", false, "8,32,8,1,4096,128"},
                           {"decode", "bf16", false, "8,32,8,1,4096,128"},
                           {"sparse-forward", "bf16"},
                           {"sparse-backward", "bf16"},
                           {"indexer", "bf16"},
                           {"indexer-backward", "bf16"},
                           {"indexer-kl-loss", "bf16"},
                           {"dense-indexer-kl-loss", "bf16"}};
constexpr int kRows = 1024, kHeadSize = 128;
/// Returns a number of heads that keeps all threads busy.
int HeadsFor(int threads) { return std::max(8, threads); }
bool IsDense(const Case& each) { return std::string(each.op) == "forward" || std::string(each.op) == "backward"; }

Json MeasureCase(const Machine& machine, const Case& each, int threads, double seconds) {
  // The share of a case's time in which calls are timed. The rest is for making data, checking results and measuring
  // the peak.
  constexpr double kCallShare = 0.4, kPatience = 8;
  std::string shape = each.shape;
  if (shape.empty() && (IsDense(each) || std::string(each.op) == "prompt")) {
    shape = fmt::format("1,{0},{0},{1},{1},{2}", HeadsFor(threads), kRows, kHeadSize);
  }
  const std::string words = fmt::format("bench {} --dtype {}{}{}", each.op, each.dtype, each.causal ? " --causal" : "",
                                        shape.empty() ? "" : " --shape " + shape);
  const Outcome outcome = Run(fmt::format("{} {} --threads {} --seconds {} --json", machine.Program("fa"), words,
                                          threads, kCallShare * seconds),
                              kPatience * seconds, machine.Quietest(threads));
  if (outcome.ok()) return Json::parse(outcome.out);
  return {{"op", each.op},
          {"dtype", each.dtype},
          {"threads", threads},
          {"outcome", outcome.late() ? "late" : "failed"},
          {"command", "fa " + words}};
}

Json MeasureCases(const Machine& machine) {
  Json results = Json::array();
  const std::vector<int> counts = machine.ThreadCounts();
  const double seconds = kCaseShare * machine.options.seconds / static_cast<double>(counts.size() * std::size(kCases));
  for (const int threads : counts) {
    for (const Case& each : kCases) results.push_back(MeasureCase(machine, each, threads, seconds));
  }
  return results;
}

/// Times the dense cases with PyTorch. Returns null if python3 has no PyTorch.
Json MeasureTorch(const Machine& machine) {
  constexpr double kImportSeconds = 60, kCallShare = 0.5;
  if (!Run("python3 -c 'import torch'", kImportSeconds, machine.cpus).ok()) return nullptr;
  Json results = Json::array();
  const std::vector<int> counts = machine.ThreadCounts();
  const double limit = kTorchShare * machine.options.seconds / static_cast<double>(counts.size());
  const double seconds =
      kCallShare * limit / static_cast<double>(std::count_if(std::begin(kCases), std::end(kCases), IsDense));
  for (const int threads : counts) {
    const std::string file = machine.options.root + "/torch_cases";
    std::ofstream cases(file);
    for (const Case& each : kCases) {
      if (!IsDense(each)) continue;
      cases << Json{{"op", each.op},       {"heads", HeadsFor(threads)}, {"s", kRows},         {"d", kHeadSize},
                    {"dtype", each.dtype}, {"causal", each.causal},      {"threads", threads}, {"seconds", seconds}}
                   .dump()
            << "\n";
    }
    cases.close();
    const Outcome outcome = Run(fmt::format("sh -c 'python3 {} <{}'", machine.Program("torch_times.py"), file),
                                kImportSeconds + 2 * limit, machine.Quietest(threads));
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) results.push_back(Json::parse(line));
  }
  return results;
}

/// Times the kernels that compute scores, P V and outer products for heads of 128 columns, and the loops of the tile
/// unit. If kernels_benchmark fails or runs out of time, the result is one entry that says so.
Json MeasureKernels(const Machine& machine) {
  constexpr double kMinTime = 0.02;
  const double limit = 3 * kKernelShare * machine.options.seconds;
  const Outcome outcome = Run(fmt::format("{} --benchmark_format=json --benchmark_min_time={} "
                                          "--benchmark_filter='BM_((scores|product|outer).*/d128|tile_.*)'",
                                          machine.Program("kernels_benchmark"), kMinTime),
                              limit, machine.Quietest(1));
  if (outcome.ok()) return Json::parse(outcome.out)["benchmarks"];
  const size_t shown = std::min<size_t>(outcome.out.size(), 400);
  return Json::array({{{"name", "kernels_benchmark"},
                       {"outcome", outcome.late() ? "late" : "failed"},
                       {"output", outcome.late() ? "" : outcome.out.substr(outcome.out.size() - shown)}}});
}

int Main(const Options& options) {
  Machine machine = {.options = options, .cpus = QuietestCpus()};
  Json report = {{"machine", Json::parse(Run(machine.Program("fa") + " info --json", 10, machine.cpus).out)},
                 {"cpus", machine.cpus},
                 {"seconds", options.seconds}};
  const auto part = [&](const char* name, const char* text, Json (*measure)(const Machine&)) {
    Say(text);
    report[name] = measure(machine);
  };
  part("tests", "tests of every level", RunTests);
  part("rates", "rates of the units", MeasureRates);
  part("cases", "operators", MeasureCases);
  part("pytorch", "PyTorch", MeasureTorch);
  part("kernels", "kernels alone", MeasureKernels);
  std::ofstream(options.out) << report.dump(1) << "\n";
  PrintReport(report);
  Say("all of it as JSON: " + options.out);
  const auto any_failed = [](const Json& results) {
    return std::any_of(results.begin(), results.end(),
                       [](const Json& each) { return each.value("outcome", "") == "failed"; });
  };
  return any_failed(report["tests"]) || any_failed(report["cases"]) || any_failed(report["kernels"]) ? 1 : 0;
}

}  // namespace
}  // namespace fa::bundle

int main(int argc, char** argv) {
  fa::bundle::Options options;
  CLI::App app{"Tests and measures fa on this machine"};
  app.add_option("--root", options.root, "Where the bundle is unpacked")->required()->group("");
  app.add_option("--seconds", options.seconds, "For all of it, about; default 300")->check(CLI::Range(1.0, 86400.0));
  app.add_option("--out", options.out, "The report as JSON; default fa-measure.json");
  CLI11_PARSE(app, argc, argv);
  try {
    return fa::bundle::Main(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "measure: {}\n", error.what());
    return 1;
  }
}
