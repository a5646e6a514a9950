#include "bench/bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "commands/progress.h"
#include "flags/failure.h"
#include "peak/peak_rate.h"
#include "peak/read_bandwidth.h"

namespace fa::tool {
namespace {

constexpr double kMostSeconds = 86400;  // one day, so that no deadline overflows the clock

nlohmann::ordered_json OrNull(const auto& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json Measure(const BenchCall& bench) {
  const std::string title = fmt::format("fa bench {}: ", bench.op);
  Progress progress(title + "checking");
  bench.call();
  bench.check();
  bench::PeakRate peak(bench.context.threads(), bench.context.isa(), bench.subject.dtype);
  bench::ReadRate read(bench.context.threads(), bench.memory);
  std::vector<bench::Reference> references = {bench::GigaflopsOf(peak, bench.info.flops)};
  // Other programs read memory too, so rates of reading differ more than rates of the arithmetic unit. If a call is
  // compared with both, the rates before and after a quiet round may differ by this much.
  constexpr double kReadAgreement = 0.1;
  if (read.bytes() > 0) {
    references[0].agreement = kReadAgreement;
    const auto measure = [&read](double seconds) { return read.Measure(seconds); };
    references.push_back({.per_call = bench.bytes, .rate = measure, .agreement = kReadAgreement});
  }
  const bench::BracketedTiming timing = bench::TimeInRounds(
      {.seconds = bench.flags.seconds, .call = bench.call, .references = references, .progress = [&](int percent) {
         progress.Update(fmt::format("{}{} %", title, percent));
       }});
  nlohmann::ordered_json json = {{"op", bench.op},
                                 {"shape", bench.subject.shape},
                                 {"dtype", bench.dtype.empty() ? Name(bench.subject.dtype) : bench.dtype},
                                 {"mask", bench.subject.mask},
                                 {"layout", Name(bench.subject.layout)},
                                 {"threads", bench.context.threads()},
                                 {"isa", Name(bench.context.isa())},
                                 {"kernel", fmt::format("{}", fmt::join(bench.info.kernels, "+"))}};
  AddTiming(timing, bench.info.flops, peak.unit(), json);
  json["bytes_per_second"] = bench.bytes / timing.best;
  if (bench.block_size > 0) json["block_size"] = bench.block_size;
  if (read.bytes() > 0) {
    json["read_bytes_per_second"] = timing.compared[1].rate;
    json["read_fraction"] = OrNull(timing.compared[1].fraction);
  }
  return json;
}

std::string PercentOf(const nlohmann::ordered_json& fraction, const std::string& what) {
  return fraction.is_null() ? "not compared with " + what
                            : fmt::format("{:.1f} % of {}", 100 * fraction.get<double>(), what);
}

void PrintText(const nlohmann::ordered_json& result, const char* bytes_of) {
  const auto number = [&result](const char* key) { return result[key].get<double>(); };
  const auto text = [&result](const char* key) { return result[key].get<std::string>(); };
  fmt::print("{} {} {} {}, mask {}, {} threads, {}\n", text("op"), result["shape"].dump(), text("dtype"),
             text("layout"), text("mask"), result["threads"].get<int>(), text("isa"));
  fmt::print("kernel   {}\n", text("kernel"));
  PrintTiming(result);
  fmt::print("memory   {:.2f} GB/s of {}", number("bytes_per_second") * 1e-9, bytes_of);
  if (result.contains("read_fraction")) {
    fmt::print(", {}", PercentOf(result["read_fraction"], fmt::format("the {:.2f} at which as many threads read them",
                                                                      number("read_bytes_per_second") * 1e-9)));
  }
  fmt::print("\n");
}

}  // namespace

void AddTiming(const bench::BracketedTiming& timing, double flops, const char* unit, nlohmann::ordered_json& json) {
  const std::string doubt = timing.Doubt();
  json["seconds"] = {{"best", timing.best}, {"median", timing.median}, {"busy", OrNull(timing.busy)}};
  json["flops"] = flops;
  json["gflops"] = flops / timing.best * 1e-9;
  json["peak"] = unit;
  json["peak_gflops"] = timing.compared[0].rate;
  json["fraction"] = OrNull(timing.compared[0].fraction);
  json["rounds"] = {{"all", timing.rounds}, {"quiet", timing.quiet}};
  json["foreign_cpus"] = OrNull(timing.foreign_cpus);
  json["doubt"] = doubt.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(doubt);
}

void PrintTiming(const nlohmann::ordered_json& result) {
  const auto number = [](const nlohmann::ordered_json& value) { return value.get<double>(); };
  const nlohmann::ordered_json& rounds = result["rounds"];
  fmt::print("seconds  {:.6g} best, {:.6g} median; {} of {} rounds quiet\n", number(result["seconds"]["best"]),
             number(result["seconds"]["median"]), rounds["quiet"].get<int64_t>(), rounds["all"].get<int64_t>());
  fmt::print(
      "rate     {:.1f} GFLOP/s of kept work, {}\n", number(result["gflops"]),
      PercentOf(result["fraction"], fmt::format("the {:.1f} of {} around the same round", number(result["peak_gflops"]),
                                                result["peak"].get<std::string>())));
  if (!result["doubt"].is_null()) fmt::print("doubtful {}\n", result["doubt"].get<std::string>());
}

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
  const nlohmann::ordered_json result = Measure(bench);
  if (bench.flags.json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    PrintText(result, bench.bytes_of);
  }
}

}  // namespace fa::tool
