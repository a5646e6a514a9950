// fa doctor reports what the machine, its settings and the environment mean for fa, and tests every level on this CPU.

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "bench/bench_report.h"
#include "commands.h"
#include "commands/progress.h"
#include "doctor/report.h"
#include "flags/failure.h"
#include "peak/foreign_load.h"

namespace fa::tool {
namespace {

constexpr double kSeconds = 2;

DoctorReport Examine(const MeasureFlags& flags, const Context& context) {
  DoctorReport report = {.context = context, .machine = ReadMachineFacts(context), .system = ReadSystemFacts("")};
  report.variables = FindVariables(std::getenv);
  report.settings = FindSettings(report.system);
  Progress progress("fa doctor");
  const bench::ForeignLoad load;
  report.self_test = RunSelfTest(flags.context, flags.seconds,
                                 [&](const std::string& what) { progress.Update("fa doctor: " + what); });
  report.measurement = FindDoubts(report.self_test, load.Cpus());
  report.wrong = FindWrongResults(report.self_test);
  return report;
}

void Run(const MeasureFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const DoctorReport report = Examine(flags, *context);
  fmt::print("{}", flags.json ? ToJson(report).dump(2) + "\n" : ToText(report));
  if (!report.wrong.empty()) {
    throw Failure(fmt::format("{}: {}", report.wrong.front().about, report.wrong.front().text));
  }
}

}  // namespace

void AddDoctor(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "One page on the machine, its settings, and a test of every level that it has");
  const auto flags = std::make_shared<MeasureFlags>();
  flags->seconds = kSeconds;
  AddMeasureFlags(*command, *flags);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
