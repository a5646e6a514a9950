// Attention on the activations of a trained transformer (all-MiniLM-L6-v2 reading a paragraph of Darwin). Every layer
// and head goes through fa::PlanFlashAttention, and through fa::PlanFlashAttentionGrad if the folder has gradients.
// Results are compared with PyTorch's float64 results, and times with this machine's peak.
//
//   fa_demo [FOLDER]     layer0_q.npy, layer0_k.npy, layer0_v.npy, layer0_out.npy, layer1_q.npy ...
//                        and, for some layers, layer0_dout.npy, layer0_dq.npy, layer0_dk.npy, layer0_dv.npy
//
// The exit code is 1 if a call fails, or if an error is larger than rounding explains (layer.h, gradients.h).

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fa/fa.h"
#include "gradients.h"
#include "layer.h"
#include "peak/bracketed_rounds.h"
#include "peak/peak_rate.h"

namespace {

void ThrowUnlessOk(const fa::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

/// All layers of one direction (forward or backward), timed one after another.
class Direction {
 public:
  explicit Direction(const fa::Context& context) : peak_(context.threads(), context.isa(), fa::DType::kF32) {}

  /// Runs the plan. Returns the text that ends the layer's line of output.
  template <typename Args>
  std::string Time(const fa::PlanFor<Args>& plan, const Args& args) {
    constexpr double kSeconds = 0.25;
    fa::Workspace workspace;
    const fa::bench::BracketedTiming timing =
        fa::bench::TimeInRounds({.seconds = kSeconds,
                                 .call = [&] { ThrowUnlessOk(plan.Run(args, workspace)); },
                                 .references = {fa::bench::GigaflopsOf(peak_, plan.info().flops)}});
    const double gigaflops = plan.info().flops * 1e-9;
    const fa::bench::Compared& peak = timing.compared[0];
    ++layers_;
    gigaflops_ += gigaflops;
    seconds_ += timing.best;
    peak_seconds_ += gigaflops / peak.rate;
    quiet_ = quiet_ && peak.fraction;
    return fmt::format("{:8.1f}  {:8.1f}  {:>8}", timing.best * 1e6, gigaflops / timing.best, Percent(peak.fraction));
  }

  void AddErrors(double error, double of_bound) {
    error_ = fa::demo::WorseOf(error_, error);
    of_bound_ = fa::demo::WorseOf(of_bound_, of_bound);
  }

  /// Returns this direction's line of the table at the end of the output.
  [[nodiscard]] std::string Summary(const char* name) const {
    if (layers_ == 0) return fmt::format("{:9}  no layer has gradients here\n", name);
    const auto share = quiet_ ? std::optional(peak_seconds_ / seconds_) : std::nullopt;
    return fmt::format("{:9}  {:6}  {:13.1e}  {:23.1f} %  {:7.1f}  {:>8}\n", name, layers_, error_, 100 * of_bound_,
                       gigaflops_ / seconds_, Percent(share));
  }

  /// Returns whether every error is within its bound. Returns false if an error is NaN.
  [[nodiscard]] bool within_bound() const { return of_bound_ <= 1; }
  [[nodiscard]] bool quiet() const { return quiet_; }

 private:
  static std::string Percent(std::optional<double> share) {
    return share ? fmt::format("{:.1f} %", 100 * *share) : "busy";
  }

  fa::bench::PeakRate peak_;
  int layers_ = 0;
  double error_ = 0, of_bound_ = 0, gigaflops_ = 0, seconds_ = 0;
  double peak_seconds_ = 0;  ///< seconds that the same FLOPs would take at the peak
  bool quiet_ = true;        ///< whether every layer had a quiet round
};

void RunForward(int index, fa::demo::Layer& layer, fa::Context& context, Direction& forward) {
  auto plan = fa::PlanFlashAttention(layer.Args(), fa::AttentionOptions{}, &context);
  ThrowUnlessOk(plan.status());
  const std::string rate = forward.Time(*plan, layer.Args());
  const fa::demo::Error error = fa::demo::CompareWithFloat64(layer);
  fmt::print("{:5}  {:5}  {:6}  {:4}  {:13.2e}  {:9.2e}  {:8.3f}  {}\n", index, layer.q.shape()[1], layer.q.shape()[2],
             layer.q.shape()[3], error.max, error.rms, error.of_bound, rate);
  std::fflush(stdout);
  forward.AddErrors(error.max, error.of_bound);
}

void RunBackward(int index, const fa::demo::Layer& layer, fa::demo::Gradients& gradients, fa::Context& context,
                 Direction& backward) {
  const fa::AttentionGradArgs args = gradients.Args(layer);
  auto plan = fa::PlanFlashAttentionGrad(args, fa::AttentionOptions{}, &context);
  ThrowUnlessOk(plan.status());
  const std::string rate = backward.Time(*plan, args);
  const fa::demo::GradientErrors error = fa::demo::CompareWithFloat64(layer, gradients);
  fmt::print("{:5}  {:12.2e}  {:12.2e}  {:12.2e}  {:8.3f}  {}\n", index, error.dq, error.dk, error.dv, error.of_bound,
             rate);
  std::fflush(stdout);
  backward.AddErrors(fa::demo::WorseOf(fa::demo::WorseOf(error.dq, error.dk), error.dv), error.of_bound);
}

std::vector<fa::demo::Layer> LoadLayers(const std::filesystem::path& folder) {
  std::vector<fa::demo::Layer> layers;
  while (std::optional<fa::demo::Layer> layer = fa::demo::LoadLayer(folder, static_cast<int>(layers.size()))) {
    layers.push_back(std::move(*layer));
  }
  if (layers.empty()) throw std::runtime_error(folder.string() + ": no layer0_q.npy here");
  return layers;
}

int Run(const std::filesystem::path& folder) {
  fa::Result<std::unique_ptr<fa::Context>> created = fa::Context::Create();
  ThrowUnlessOk(created.status());
  fa::Context& context = **created;
  std::vector<fa::demo::Layer> layers = LoadLayers(folder);
  const std::string machine = context.Describe();
  fmt::print("fa {}, {}, level {}, {} threads\nEvery layer of {}, next to PyTorch's results in float64\n\nForward\n",
             FA_VERSION_STRING, machine.substr(0, machine.find('\n')), Name(context.isa()), context.threads(),
             folder.string());
  fmt::print("layer  heads  tokens     D  max abs error        rms  of bound   time us   GFLOP/s  of peak\n");
  Direction forward(context), backward(context);
  for (size_t i = 0; i < layers.size(); ++i) RunForward(static_cast<int>(i), layers[i], context, forward);

  fmt::print("\nBackward, errors relative to the largest value of each gradient\n");
  fmt::print("layer      dq error      dk error      dv error  of bound   time us   GFLOP/s  of peak\n");
  for (size_t i = 0; i < layers.size(); ++i) {
    const int index = static_cast<int>(i);
    if (auto gradients = fa::demo::LoadGradients(folder, index, layers[i])) {
      RunBackward(index, layers[i], *gradients, context, backward);
    }
  }
  fmt::print("\n           layers  largest error  of what rounding allows  GFLOP/s  of the CPU's peak\n{}{}",
             forward.Summary("forward"), backward.Summary("backward"));
  if (!forward.quiet() || !backward.quiet()) {
    fmt::print("busy: other programs used the cores, so that the rate says little\n");
  }
  std::fflush(stdout);
  if (!forward.within_bound() || !backward.within_bound()) {
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
