// fa bench shared-kv, shared-kv-backward: times these operators.

#include <functional>
#include <memory>

#include "bench/bench_report.h"
#include "cases/shared_kv_case.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct SharedKvBenchFlags {
  SharedKvCaseFlags shared;
  MeasureFlags measure;
  bool l1_norm = false;
};

template <typename Args>
void MeasureSharedKv(const char* name, const SharedKvBenchFlags& flags, const SharedKvCase& shared, Context& context,
                     const SharedKvData& data, const Args& args, Result<PlanFor<Args>> plan,
                     const std::function<void()>& check) {
  ThrowUnlessOkFromShape(plan.status());
  Workspace workspace;
  MeasureAndReport(
      {.op = name,
       .flags = flags.measure,
       .subject = {.shape = shared.shape, .dtype = shared.dtype, .layout = Layout::kBSND, .mask = shared.MaskText()},
       .context = context,
       .info = plan->info(),
       .bytes = data.gathered_bytes(/*originals=*/!flags.l1_norm),
       .bytes_of = "gathered keys",
       .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
       .check = check});
}

template <typename Run>
void AddSharedKvBench(CLI::App& app, const char* name, const char* text, Run run, bool has_norm = false) {
  CLI::App* command = app.add_subcommand(name, text);
  const auto flags = std::make_shared<SharedKvBenchFlags>();
  AddSharedKvCaseFlags(*command, 64, flags->shared);
  if (has_norm) command->add_flag("--l1-norm", flags->l1_norm, "Only the L1 norm of the compressed keys");
  AddMeasureFlags(*command, flags->measure);
  command->callback([run, flags] {
    const std::unique_ptr<Context> context = MakeContext(flags->measure.context);
    const SharedKvCase shared(flags->shared);
    SharedKvData data(shared);
    run(*flags, shared, data, *context);
  });
}

}  // namespace

void AddBenchSharedKv(CLI::App& bench) {
  constexpr const char* kName = "shared-kv";
  AddSharedKvBench(
      bench, kName, "Time attention over original and compressed keys; some rows are checked first",
      [](const SharedKvBenchFlags& flags, const SharedKvCase& shared, SharedKvData& data, Context& context) {
        const SharedKvArgs args = data.ForwardArgs();
        MeasureSharedKv(kName, flags, shared, context, data, args,
                        PlanSharedKvAttention(args, shared.Options(), &context), [&] { data.CheckForward(); });
      });
}

void AddBenchSharedKvBackward(CLI::App& bench) {
  constexpr const char* kName = "shared-kv-backward";
  AddSharedKvBench(
      bench, kName, "Time the gradients of shared-kv, without the forward; some rows are checked first",
      [](const SharedKvBenchFlags& flags, const SharedKvCase& shared, SharedKvData& data, Context& context) {
        const SharedKvGradArgs args = flags.l1_norm ? data.NormArgs(context) : data.BackwardArgs(context);
        MeasureSharedKv(kName, flags, shared, context, data, args,
                        PlanSharedKvAttentionGrad(args, shared.Options(), &context),
                        [&] { flags.l1_norm ? data.CheckNorm() : data.CheckBackward(); });
      },
      /*has_norm=*/true);
}

}  // namespace fa::tool
