// Naive attention over OpenBLAS as a peer.

#include <cblas.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "peers/naive_attention.h"
#include "peers/worker.h"

namespace fa::peers {
namespace {

using tool::NewTensor;
using tool::Tensor;

float* Data(Tensor& tensor) { return tensor.array.as<float>().data(); }

class NaivePeer : public Peer {
 public:
  nlohmann::json About() override { return {{"version", openblas_get_config()}, {"core", openblas_get_corename()}}; }

  void Prepare(const PeerCase& bench) override {
    if (bench.dtype != DType::kF32) throw Unsupported("f32 only");
    if (bench.mask != "full" && bench.mask != "causal") throw Unsupported("mask " + bench.mask);
    bench_.emplace(bench);
    q_ = bench.Load("q"), k_ = bench.Load("k"), v_ = bench.Load("v");
    out_ = NewTensor(DType::kF32, q_.array.shape());
    lse_ = NewTensor(DType::kF32, {bench.batch, bench.heads, bench.sq});
    attention_.emplace(
        NaiveSizes{bench.batch, bench.heads, bench.heads_kv, bench.sq, bench.sk, bench.d, bench.mask == "causal"},
        bench.threads);
    if (!bench.backward) return;
    Forward();
    d_out_ = bench.Load("d_out");
    dq_ = NewTensor(DType::kF32, q_.array.shape());
    dk_ = NewTensor(DType::kF32, k_.array.shape());
    dv_ = NewTensor(DType::kF32, v_.array.shape());
  }

  void Call() override {
    if (!bench_->backward) return Forward();
    attention_->Backward(
        {Data(q_), Data(k_), Data(v_), Data(out_), Data(lse_), Data(d_out_), Data(dq_), Data(dk_), Data(dv_)});
  }

  void SaveResults() override {
    if (!bench_->backward) return bench_->Save("out", out_);
    bench_->Save("dq", dq_);
    bench_->Save("dk", dk_);
    bench_->Save("dv", dv_);
  }

  std::vector<std::span<const std::byte>> Memory() override { return {BytesOf(k_), BytesOf(v_)}; }

  void Release() override {
    attention_.reset();
    for (Tensor* tensor : {&q_, &k_, &v_, &out_, &lse_, &d_out_, &dq_, &dk_, &dv_}) *tensor = Tensor();
  }

 private:
  void Forward() { attention_->Forward(Data(q_), Data(k_), Data(v_), Data(out_), Data(lse_)); }

  std::optional<PeerCase> bench_;
  std::optional<NaiveAttention> attention_;
  Tensor q_, k_, v_, out_, lse_, d_out_, dq_, dk_, dv_;
};

/// An OpenBLAS that is older than the CPU would choose SSE3 kernels. OPENBLAS_CORETYPE chooses others, but must be set
/// before OpenBLAS is loaded. So the program sets the variable and restarts.
void RestartWithVectors([[maybe_unused]] char** argv) {
#if defined(__x86_64__)
  constexpr char kCore[] = "OPENBLAS_CORETYPE";
  if (std::string_view(openblas_get_corename()) != "Prescott" || std::getenv(kCore) != nullptr) return;
  const bool avx512 = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2");
  if (!avx512 && !avx2) return;
  setenv(kCore, avx512 ? "SkylakeX" : "Haswell", 1);
  execv("/proc/self/exe", argv);
#endif
}

}  // namespace
}  // namespace fa::peers

int main(int /*argc*/, char** argv) {
  fa::peers::RestartWithVectors(argv);
  fa::peers::NaivePeer peer;
  return fa::peers::Serve(peer);
}
