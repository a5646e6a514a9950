// fa as a peer. It calls the functions that plan and run in one call, as a user does. This peer also measures the
// machine's peak, between its calls.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cases/forward_case.h"
#include "fa/fa.h"
#include "flags/failure.h"
#include "peak/peak_rate.h"
#include "peers/worker.h"

namespace fa::peers {
namespace {

using nlohmann::json;
using tool::ForwardCase;
using tool::ForwardCaseFlags;
using tool::NewTensor;
using tool::Tensor;
using tool::ThrowUnlessOk;

ForwardCaseFlags FlagsOf(const PeerCase& bench) {
  ForwardCaseFlags flags;
  for (const int64_t size : {bench.batch, bench.heads, bench.heads_kv, bench.sq, bench.sk, bench.d}) {
    flags.shape += (flags.shape.empty() ? "" : ",") + std::to_string(size);
  }
  flags.dtype = Name(bench.dtype);
  constexpr char kWindow[] = "window";
  if (bench.mask == "causal") {
    flags.mask.causal = true;
  } else if (bench.mask.starts_with(kWindow)) {
    flags.mask.sparse_mode = 4;
    flags.mask.pre_tokens = std::stoll(bench.mask.substr(sizeof(kWindow) - 1));
    flags.mask.next_tokens = 0;
  } else if (bench.mask != "full") {
    throw Unsupported("mask " + bench.mask);
  }
  return flags;
}

/// A case, and the memory of its tensors.
class Problem {
 public:
  Problem(const PeerCase& bench, Context& context)
      : bench_(bench),
        context_(context),
        case_(FlagsOf(bench)),
        q_(bench.Load("q")),
        k_(bench.Load("k")),
        v_(bench.Load("v")),
        out_(NewTensor(bench.dtype, q_.array.shape())) {
    forward_ = case_.args;
    forward_.q = q_.View();
    forward_.k = k_.View();
    forward_.v = v_.View();
    forward_.out = out_.MutableView();
    if (bench.backward) PrepareBackward();
  }

  void Call() {
    ThrowUnlessOk(bench_.backward ? FlashAttentionGrad(backward_, case_.options, &context_)
                                  : FlashAttention(forward_, case_.options, &context_));
  }

  void SaveResults() const {
    if (!bench_.backward) return bench_.Save("out", out_);
    bench_.Save("dq", dq_);
    bench_.Save("dk", dk_);
    bench_.Save("dv", dv_);
  }

  [[nodiscard]] std::vector<std::span<const std::byte>> KeysAndValues() const { return {BytesOf(k_), BytesOf(v_)}; }

  [[nodiscard]] json Kernels() {
    const Result<Plan> plan = bench_.backward ? AnyPlan(PlanFlashAttentionGrad(backward_, case_.options, &context_))
                                              : AnyPlan(PlanFlashAttention(forward_, case_.options, &context_));
    ThrowUnlessOk(plan.status());
    const PlanInfo& info = plan->info();
    return {{"kernels", info.kernels}, {"flops", info.flops}, {"block_q", info.block_q}, {"block_k", info.block_k}};
  }

 private:
  void PrepareBackward() {
    const std::vector<int64_t> statistics = {bench_.batch, bench_.heads, bench_.sq};
    max_ = NewTensor(DType::kF32, statistics);
    sum_ = NewTensor(DType::kF32, statistics);
    forward_.softmax_max = max_.MutableView();
    forward_.softmax_sum = sum_.MutableView();
    ThrowUnlessOk(FlashAttention(forward_, case_.options, &context_));
    d_out_ = bench_.Load("d_out");
    dq_ = NewTensor(bench_.dtype, q_.array.shape());
    dk_ = NewTensor(bench_.dtype, k_.array.shape());
    dv_ = NewTensor(bench_.dtype, v_.array.shape());
    backward_ = case_.GradArgs();
    backward_.q = q_.View();
    backward_.k = k_.View();
    backward_.v = v_.View();
    backward_.out = out_.View();
    backward_.d_out = d_out_.View();
    backward_.softmax_max = max_.View();
    backward_.softmax_sum = sum_.View();
    backward_.dq = dq_.MutableView();
    backward_.dk = dk_.MutableView();
    backward_.dv = dv_.MutableView();
  }

  const PeerCase bench_;
  Context& context_;
  const ForwardCase case_;
  Tensor q_, k_, v_, out_;
  Tensor max_, sum_, d_out_, dq_, dk_, dv_;
  AttentionArgs forward_;
  AttentionGradArgs backward_;
};

class FaPeer : public Peer {
 public:
  json About() override { return {{"version", FA_VERSION_STRING}, {"isa", Name(DetectIsa())}}; }

  void Prepare(const PeerCase& bench) override {
    problem_.reset();
    Result<std::unique_ptr<Context>> context = Context::Create({.threads = bench.threads});
    ThrowUnlessOk(context.status());
    context_ = std::move(*context);
    problem_.emplace(bench, *context_);
  }
  void Call() override { problem_->Call(); }
  void SaveResults() override { problem_->SaveResults(); }
  void Release() override { problem_.reset(); }
  std::vector<std::span<const std::byte>> Memory() override { return problem_->KeysAndValues(); }

  /// "peak" answers with the GFLOP/s of the type's multiply-adds, measured for `seconds`. "plan" answers with the
  /// case's kernels, FLOPs of kept pairs, and tile.
  json Answer(const json& request) override {
    const std::string what = request.at("do");
    if (what == "plan") return problem_->Kernels();
    if (what != "peak") return Peer::Answer(request);
    const DType dtype = request.at("dtype") == "bf16" ? DType::kBF16 : DType::kF32;
    bench::PeakRate peak(request.at("threads"), DetectIsa(), dtype);
    return {{"gflops", peak.Gflops(request.at("seconds"))}};
  }

 private:
  std::unique_ptr<Context> context_;
  std::optional<Problem> problem_;
};

}  // namespace
}  // namespace fa::peers

int main() {
  fa::peers::FaPeer peer;
  return fa::peers::Serve(peer);
}
