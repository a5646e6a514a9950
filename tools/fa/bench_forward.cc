// fa bench forward: the rate of kept work against the peak of this machine, measured in the same run.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "context_flags.h"
#include "failure.h"
#include "forward_case.h"
#include "forward_data.h"
#include "peak/fma_peak.h"
#include "progress.h"
#include "timing.h"

namespace fa::tool {
namespace {

struct Flags {
  ForwardCaseFlags forward;
  ContextFlags context;
  bool json = false;
};

struct Measurement {
  Timing seconds;
  double peak_gflops = 0;
};

Measurement MeasureForward(const Plan& plan, ForwardData& data, const Context& context, DType dtype) {
  Progress progress("fa bench forward: checking");
  const AttentionArgs args = data.Args();
  Workspace workspace;
  ThrowUnlessOk(plan.Run(args, workspace));
  data.CheckRows();
  constexpr double kPeakSeconds = 0.05;
  Measurement measured;
  measured.seconds = Measure({.call = [&] { ThrowUnlessOk(plan.Run(args, workspace)); },
                              .between =
                                  [&] {
                                    const double peak = bench::MeasurePeakGflops(context.threads(), context.isa(),
                                                                                 dtype, kPeakSeconds);
                                    measured.peak_gflops = std::max(measured.peak_gflops, peak);
                                  },
                              .progress =
                                  [&](int percent) {
                                    progress.Update(fmt::format("fa bench forward: {} %", percent));
                                  }});
  return measured;
}

nlohmann::ordered_json ToJson(const ForwardCase& forward, const Context& context, const PlanInfo& info,
                              const Measurement& measured, double bytes) {
  const double gflops = info.flops / measured.seconds.best * 1e-9;
  return {{"op", "forward"},
          {"shape", forward.Shape()},
          {"dtype", Name(forward.dtype)},
          {"mask", forward.mask_text},
          {"layout", Name(forward.options.layout)},
          {"threads", context.threads()},
          {"isa", Name(context.isa())},
          {"kernel", fmt::format("{}", fmt::join(info.kernels, "+"))},
          {"seconds", {{"best", measured.seconds.best}, {"median", measured.seconds.median}}},
          {"flops", info.flops},
          {"gflops", gflops},
          {"peak_gflops", measured.peak_gflops},
          {"fraction", gflops / measured.peak_gflops},
          {"bytes_per_second", bytes / measured.seconds.best}};
}

void PrintText(const nlohmann::ordered_json& result) {
  const auto number = [&result](const char* key) { return result[key].get<double>(); };
  const auto text = [&result](const char* key) { return result[key].get<std::string>(); };
  fmt::print("forward {} {} {}, mask {}, {} threads, {}\n", result["shape"].dump(), text("dtype"), text("layout"),
             text("mask"), result["threads"].get<int>(), text("isa"));
  fmt::print("kernel   {}\n", text("kernel"));
  fmt::print("seconds  {:.6g} best, {:.6g} median\n", result["seconds"]["best"].get<double>(),
             result["seconds"]["median"].get<double>());
  fmt::print("rate     {:.1f} GFLOP/s of kept work, {:.1f} % of the peak of {:.1f}\n", number("gflops"),
             100 * number("fraction"), number("peak_gflops"));
  fmt::print("memory   {:.2f} GB/s of inputs and output\n", number("bytes_per_second") * 1e-9);
}

void Run(const Flags& flags) {
  if (flags.forward.dtype == "int8") throw UsageError("--dtype: int8 is for prompt, forward takes f32, f16 or bf16");
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const ForwardCase forward(flags.forward);
  Result<Plan> plan = PlanFlashAttention(forward.args, forward.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  ForwardData data(forward);
  const Measurement measured = MeasureForward(*plan, data, *context, forward.dtype);
  const nlohmann::ordered_json result = ToJson(forward, *context, plan->info(), measured, data.bytes());
  if (flags.json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    PrintText(result);
  }
}

}  // namespace

void AddBenchForward(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("forward", "Time the dense forward; the result is checked first");
  const auto flags = std::make_shared<Flags>();
  AddForwardCaseFlags(*command, flags->forward);
  AddContextFlags(*command, flags->context);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
