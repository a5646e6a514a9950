// Attention on the activations of a trained transformer (all-MiniLM-L6-v2 reading a paragraph of Darwin): every layer
// and head through fa::PlanFlashAttention, compared with PyTorch's float64 output, timed against this machine's peak.
//
//   fa_demo [FOLDER]     layer0_q.npy, layer0_k.npy, layer0_v.npy, layer0_out.npy, layer1_q.npy ...
//
// Exit code 1 if an error is larger than rounding explains (layer.h has the bound) or something else goes wrong.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "fa/fa.h"
#include "layer.h"
#include "peak/fma_peak.h"

namespace {

using Clock = std::chrono::steady_clock;

void ThrowUnlessOk(const fa::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

/// The shortest of the calls that fit into a quarter of a second.
double BestSeconds(const fa::Plan& plan, const fa::AttentionArgs& args) {
  constexpr double kSeconds = 0.25;
  fa::Workspace workspace;
  double best = 1e300, total = 0;
  while (total < kSeconds) {
    const Clock::time_point begin = Clock::now();
    ThrowUnlessOk(plan.Run(args, workspace));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

struct Totals {
  double max_error = 0, flops = 0, seconds = 0, peak = 0;
  bool within_bound = true;
};

void RunLayer(int index, fa::demo::Layer& layer, const fa::Context& context, const fa::Plan& plan, Totals& totals) {
  const double peak = fa::bench::MeasureFmaPeakGflops(context.threads(), context.isa());
  const double seconds = BestSeconds(plan, layer.Args());
  const fa::demo::Error error = fa::demo::CompareWithFloat64(layer);
  const double flops = plan.info().flops;
  fmt::print("{:5}  {:5}  {:6}  {:4}  {:13.2e}  {:9.2e}  {:8.3f}  {:8.1f}  {:8.1f}  {:6.1f} %\n", index,
             layer.q.shape()[1], layer.q.shape()[2], layer.q.shape()[3], error.max, error.rms, error.of_bound,
             seconds * 1e6, flops / seconds * 1e-9, 100 * flops / seconds * 1e-9 / peak);
  std::fflush(stdout);
  totals.max_error = std::max(totals.max_error, error.max);
  totals.flops += flops;
  totals.seconds += seconds;
  totals.peak = std::max(totals.peak, peak);
  totals.within_bound = totals.within_bound && error.of_bound <= 1;
}

int Run(const std::filesystem::path& folder) {
  fa::Result<std::unique_ptr<fa::Context>> created = fa::Context::Create();
  ThrowUnlessOk(created.status());
  fa::Context& context = **created;
  fmt::print("fa {}: forward attention of every layer in {}\n{}\n", FA_VERSION_STRING, folder.string(),
             context.Describe());
  fmt::print("layer  heads  tokens     D  max abs error        rms  of bound   time us   GFLOP/s  of peak\n");
  Totals totals;
  std::string plan_in_words;
  int count = 0;
  for (; std::optional<fa::demo::Layer> layer = fa::demo::LoadLayer(folder, count); ++count) {
    fa::Result<fa::Plan> plan = fa::PlanFlashAttention(layer->Args(), fa::AttentionOptions{}, &context);
    ThrowUnlessOk(plan.status());
    if (count == 0) plan_in_words = plan->Describe();
    RunLayer(count, *layer, context, *plan, totals);
  }
  if (count == 0) throw std::runtime_error(folder.string() + ": no layer0_q.npy here");
  fmt::print("\nall {} layers: max abs error {:.2e} against float64, {:.1f} GFLOP/s, {:.1f} % of the measured peak of "
             "{:.1f} GFLOP/s\n\nThe plan of a layer:\n{}\n",
             count, totals.max_error, totals.flops / totals.seconds * 1e-9,
             100 * totals.flops / totals.seconds * 1e-9 / totals.peak, totals.peak, plan_in_words);
  if (!totals.within_bound) {
    std::fflush(stdout);
    fmt::print(stderr, "fa_demo: an error is larger than rounding explains\n");
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc > 1 ? argv[1] : FA_DEMO_DATA);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa_demo: {}\n", error.what());
    return 1;
  }
}
