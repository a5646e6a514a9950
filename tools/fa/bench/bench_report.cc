#include "bench/bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/timing.h"
#include "commands/progress.h"
#include "flags/failure.h"
#include "peak/fma_peak.h"
#include "peak/read_bandwidth.h"

namespace fa::tool {
namespace {

constexpr double kMostSeconds = 86400;  // a day: nothing below overflows a clock

struct Measurement {
  Timing seconds;
  double peak_gflops = 0;
  // Read rates before, between and after the rounds of calls, if they are measured; 0: the memory is too small.
  std::vector<double> read_gbps;

  [[nodiscard]] double BestRead() const {
    return read_gbps.empty() ? 0 : *std::max_element(read_gbps.begin(), read_gbps.end());
  }
  /// Of `bytes` per call: the median over the rounds of its rate by the read rate around the round. A rate that only
  /// one of both reached, because a neighbour was busy during the other, moves no median.
  [[nodiscard]] double ReadFraction(double bytes) const {
    std::vector<double> fractions;
    for (size_t i = 0; i < seconds.round_best.size(); ++i) {
      fractions.push_back(bytes / seconds.round_best[i] * 1e-9 / std::max(read_gbps[i], read_gbps[i + 1]));
    }
    const auto middle = fractions.begin() + static_cast<std::ptrdiff_t>(fractions.size() / 2);
    std::nth_element(fractions.begin(), middle, fractions.end());
    return *middle;
  }
};

Measurement MeasureCall(const BenchCall& bench) {
  const std::string title = fmt::format("fa bench {}: ", bench.op);
  Progress progress(title + "checking");
  bench.call();
  bench.check();
  // A round of the yardstick is as long as a call, but at least 1 ms, which is long against its start, and at most 0.1
  // s, beyond which no rate changes.
  constexpr double kShortestRound = 1e-3, kLongestRound = 0.1;
  // The share of --seconds that a yardstick gets before each of the ten rounds of calls and after the last: 50 ms of
  // the default for the peak, 100 ms for reading, which is several passes over the memory of a call.
  constexpr double kPeakShare = 0.02, kReadShare = 0.04;
  Measurement measured;
  measured.seconds =
      Measure({.seconds = bench.flags.seconds,
               .call = bench.call,
               .between =
                   [&](double call_seconds) {
                     const double round = std::clamp(call_seconds, kShortestRound, kLongestRound);
                     const double peak =
                         bench::MeasurePeakGflops(bench.context.threads(), bench.context.isa(), bench.subject.dtype,
                                                  std::max(kPeakShare * bench.flags.seconds, 2 * round), round);
                     measured.peak_gflops = std::max(measured.peak_gflops, peak);
                     if (bench.memory.empty()) return;
                     measured.read_gbps.push_back(bench::MeasureReadRate(bench.context.threads(), bench.memory,
                                                                         kReadShare * bench.flags.seconds));
                   },
               .progress = [&](int percent) { progress.Update(fmt::format("{}{} %", title, percent)); }});
  return measured;
}

nlohmann::ordered_json ToJson(const BenchCall& bench, const Measurement& measured) {
  const double gflops = bench.info.flops / measured.seconds.best * 1e-9;
  const double bytes_per_second = bench.bytes / measured.seconds.best;
  nlohmann::ordered_json json = {{"op", bench.op},
                                 {"shape", bench.subject.shape},
                                 {"dtype", bench.dtype.empty() ? Name(bench.subject.dtype) : bench.dtype},
                                 {"mask", bench.subject.mask},
                                 {"layout", Name(bench.subject.layout)},
                                 {"threads", bench.context.threads()},
                                 {"isa", Name(bench.context.isa())},
                                 {"kernel", fmt::format("{}", fmt::join(bench.info.kernels, "+"))},
                                 {"seconds", {{"best", measured.seconds.best}, {"median", measured.seconds.median}}},
                                 {"flops", bench.info.flops},
                                 {"gflops", gflops},
                                 {"peak_gflops", measured.peak_gflops},
                                 {"fraction", gflops / measured.peak_gflops},
                                 {"bytes_per_second", bytes_per_second}};
  if (bench.block_size > 0) json["block_size"] = bench.block_size;
  if (const double read_gbps = measured.BestRead(); read_gbps > 0) {
    json["read_bytes_per_second"] = read_gbps * 1e9;
    json["read_fraction"] = measured.ReadFraction(bench.bytes);
  }
  return json;
}

void PrintText(const nlohmann::ordered_json& result, const char* bytes_of) {
  const auto number = [&result](const char* key) { return result[key].get<double>(); };
  const auto text = [&result](const char* key) { return result[key].get<std::string>(); };
  fmt::print("{} {} {} {}, mask {}, {} threads, {}\n", text("op"), result["shape"].dump(), text("dtype"),
             text("layout"), text("mask"), result["threads"].get<int>(), text("isa"));
  fmt::print("kernel   {}\n", text("kernel"));
  fmt::print("seconds  {:.6g} best, {:.6g} median\n", result["seconds"]["best"].get<double>(),
             result["seconds"]["median"].get<double>());
  fmt::print("rate     {:.1f} GFLOP/s of kept work, {:.1f} % of the peak of {:.1f}\n", number("gflops"),
             100 * number("fraction"), number("peak_gflops"));
  if (!result.contains("read_fraction")) {
    fmt::print("memory   {:.2f} GB/s of {}\n", number("bytes_per_second") * 1e-9, bytes_of);
    return;
  }
  fmt::print("memory   {:.2f} GB/s of {}, read at up to {:.2f}; {:.1f} % of the rate around the round, median\n",
             number("bytes_per_second") * 1e-9, bytes_of, number("read_bytes_per_second") * 1e-9,
             100 * number("read_fraction"));
}

}  // namespace

BenchSubject SubjectOf(const ForwardCase& forward) {
  return {
      .shape = forward.Shape(), .dtype = forward.dtype, .layout = forward.options.layout, .mask = forward.mask_text};
}

void AddMeasureFlags(CLI::App& command, MeasureFlags& flags) {
  AddContextFlags(command, flags.context);
  const auto set_seconds = [&flags](double seconds) {
    if (!(seconds > 0 && seconds <= kMostSeconds)) {
      throw UsageError(fmt::format("--seconds: {}, want a number above 0 and at most {}", seconds, kMostSeconds));
    }
    flags.seconds = seconds;
  };
  command
      .add_option_function<double>(
          "--seconds", set_seconds,
          fmt::format("How long to time calls, in at least three rounds; default: {:g}", flags.seconds))
      ->type_name("S");
  command.add_flag("--json", flags.json, "Print one JSON object");
}

void AddBench(CLI::App& bench, const char* name, const char* text, std::function<void(const BenchFlags&)> run,
              bool takes_int8) {
  CLI::App* command = bench.add_subcommand(name, text);
  const auto flags = std::make_shared<BenchFlags>();
  flags->forward.takes_int8 = takes_int8;
  AddForwardCaseFlags(*command, flags->forward);
  AddMeasureFlags(*command, flags->measure);
  command->callback([name, flags, run = std::move(run)] {
    if (flags->forward.dtype == "int8" && !flags->forward.takes_int8) {
      throw UsageError(fmt::format("--dtype: int8 is for prompt, {} takes f32, f16 or bf16", name));
    }
    run(*flags);
  });
}

void MeasureAndReport(const BenchCall& bench) {
  const nlohmann::ordered_json result = ToJson(bench, MeasureCall(bench));
  if (bench.flags.json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    PrintText(result, bench.bytes_of);
  }
}

}  // namespace fa::tool
