// oneDNN's graph API as a peer. oneDNN compiles the pattern of scaled dot-product attention into one fused kernel. Even
// with a causal mask, this kernel computes all keys for all rows. So the peer cuts the query rows into chunks, and
// gives each chunk only the keys up to its last row. The peer tries all chunk sizes in kChunkRows and a single chunk,
// and times the fastest.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl_graph.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check/element.h"
#include "peers/worker.h"

namespace fa::peers {
namespace {

using dnnl::graph::compiled_partition;
using dnnl::graph::graph;
using dnnl::graph::logical_tensor;
using dnnl::graph::op;
using dnnl::graph::tensor;
using Dim = logical_tensor::dim;
using DimList = logical_tensor::dims;
using Type = logical_tensor::data_type;

constexpr std::array<int64_t, 3> kChunkRows = {128, 256, 512};
// After a first call, the peer tries each chunk size for kTrySeconds, and at least kMinTries times.
constexpr double kTrySeconds = 0.1;
constexpr int kMinTries = 2;

Type TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return Type::bf16;
    case DType::kF16: return Type::f16;
    default: return Type::f32;
  }
}

/// The sizes of a tensor [B, Nkv, G, S, D]. G is the number of query heads per key head, or 1 for keys and values.
struct Sizes {
  int64_t batch, heads_kv, group, d;
};

/// Describes `rows` rows per head. They lie in a dense tensor that has `of` rows per head.
logical_tensor RowsOf(size_t id, Type type, const Sizes& sizes, int64_t group, int64_t rows, int64_t of) {
  const Dim head = of * sizes.d;
  return {id, type, DimList{sizes.batch, sizes.heads_kv, group, rows, sizes.d},
          DimList{sizes.heads_kv * group * head, group * head, head, sizes.d, 1}};
}

/// Memory that oneDNN allocates, because its runtime may require that.
class Memory {
 public:
  Memory(const dnnl::engine& engine, const tool::Tensor& contents) : Memory(engine, contents.array.size_bytes()) {
    std::memcpy(data(), contents.array.bytes(), bytes_);
  }
  Memory(const dnnl::engine& engine, size_t bytes)
      : bytes_(bytes),
        tensor_(logical_tensor(0, Type::u8, DimList{static_cast<Dim>(bytes)}, logical_tensor::layout_type::strided),
                engine) {}
  [[nodiscard]] char* data() const { return static_cast<char*>(tensor_.get_data_handle()); }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] std::span<const std::byte> contents() const { return std::as_bytes(std::span(data(), bytes_)); }

 private:
  size_t bytes_;
  tensor tensor_;
};

/// The fused kernel that computes chunks of `rows` query rows with the first `keys` keys.
class ChunkKernel {
 public:
  ChunkKernel(const dnnl::engine& engine, const PeerCase& bench, const Sizes& sizes, int64_t rows, int64_t keys)
      : engine_(engine), masked_(bench.mask == "causal") {
    const Type type = TypeOf(bench.dtype);
    const DimList scores = {sizes.batch, sizes.heads_kv, sizes.group, rows, keys};
    const auto strided = logical_tensor::layout_type::strided;
    q_ = RowsOf(kQ, type, sizes, sizes.group, rows, bench.sq);
    k_ = RowsOf(kK, type, sizes, 1, keys, bench.sk);
    v_ = RowsOf(kV, type, sizes, 1, keys, bench.sk);
    out_ = RowsOf(kOut, type, sizes, sizes.group, rows, bench.sq);
    scale_ = logical_tensor(kScale, type, DimList{1}, strided);
    mask_ = logical_tensor(kMask, type, DimList{1, 1, 1, rows, keys}, strided);
    const logical_tensor products(kProducts, Type::f32, scores, strided);
    const logical_tensor scaled(kScaled, Type::f32, scores, strided);
    const logical_tensor kept(kKept, Type::f32, scores, strided);
    const logical_tensor p(kP, type, scores, strided);
    op multiply(0, op::kind::MatMul, {q_, k_}, {products}, "scores");
    multiply.set_attr<bool>(op::attr::transpose_b, true);
    op scale(1, op::kind::Multiply, {products, scale_}, {scaled}, "scale");
    op mask(2, op::kind::Add, {scaled, mask_}, {kept}, "mask");
    op softmax(3, op::kind::SoftMax, {masked_ ? kept : scaled}, {p}, "softmax");
    softmax.set_attr<int64_t>(op::attr::axis, -1);
    op product(4, op::kind::MatMul, {p, v_}, {out_}, "product");
    graph whole(engine.get_kind());
    whole.add_op(multiply);
    whole.add_op(scale);
    if (masked_) whole.add_op(mask);
    whole.add_op(softmax);
    whole.add_op(product);
    whole.finalize();
    const auto partitions = whole.get_partitions();
    if (partitions.size() != 1 || !partitions[0].is_supported()) throw Unsupported("the pattern is not fused");
    inputs_ = {q_, k_, scale_};
    if (masked_) inputs_.push_back(mask_);
    inputs_.push_back(v_);
    kernel_ = partitions[0].compile(inputs_, {out_}, engine);
  }

  struct Pointers {
    char *q, *k, *v, *scale, *mask, *out;
  };
  void Run(dnnl::stream& stream, const Pointers& at) {
    std::vector<tensor> inputs = {{q_, engine_, at.q}, {k_, engine_, at.k}, {scale_, engine_, at.scale}};
    if (masked_) inputs.emplace_back(mask_, engine_, at.mask);
    inputs.emplace_back(v_, engine_, at.v);
    std::vector<tensor> outputs = {{out_, engine_, at.out}};
    kernel_.execute(stream, inputs, outputs);
  }

 private:
  enum Id : size_t { kQ = 1, kK, kV, kOut, kScale, kMask, kProducts, kScaled, kKept, kP };
  dnnl::engine engine_;
  bool masked_;
  logical_tensor q_, k_, v_, out_, scale_, mask_;
  std::vector<logical_tensor> inputs_;
  compiled_partition kernel_;
};

/// The tensors of a case.
struct Operands {
  Memory q, k, v, out, scale;
};

/// Attention of the case, computed in chunks of query rows.
class ChunkedAttention {
 public:
  ChunkedAttention(const dnnl::engine& engine, const PeerCase& bench, const Sizes& sizes, int64_t chunk_rows)
      : engine_(engine), bench_(bench), sizes_(sizes), chunk_rows_(chunk_rows) {
    for (int64_t row = 0; row < bench.sq; row += chunk_rows) AddChunk(row, std::min(chunk_rows, bench.sq - row));
  }

  void Run(dnnl::stream& stream, const Operands& at) {
    for (const Chunk& chunk : chunks_) {
      const int64_t offset = chunk.row * sizes_.d * static_cast<int64_t>(SizeOf(bench_.dtype));
      chunk.kernel->Run(stream, {at.q.data() + offset, at.k.data(), at.v.data(), at.scale.data(),
                                 chunk.mask ? chunk.mask->data() : nullptr, at.out.data() + offset});
    }
    stream.wait();
  }

  [[nodiscard]] int64_t chunk_rows() const { return chunk_rows_; }

 private:
  struct Chunk {
    int64_t row;
    ChunkKernel* kernel;
    std::unique_ptr<Memory> mask;
  };

  void AddChunk(int64_t row, int64_t rows) {
    const bool causal = bench_.mask == "causal";
    const int64_t keys = causal ? bench_.sk - bench_.sq + row + rows : bench_.sk;
    std::unique_ptr<ChunkKernel>& kernel = kernels_[{rows, keys}];
    if (!kernel) kernel = std::make_unique<ChunkKernel>(engine_, bench_, sizes_, rows, keys);
    Chunk chunk = {row, kernel.get(), nullptr};
    if (causal) {
      chunk.mask = std::make_unique<Memory>(engine_, static_cast<size_t>(rows * keys) * SizeOf(bench_.dtype));
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          const bool kept = j <= keys - rows + i;
          check::StoreElement(chunk.mask->data(), bench_.dtype, i * keys + j,
                              kept ? 0.0f : -std::numeric_limits<float>::infinity());
        }
      }
    }
    chunks_.push_back(std::move(chunk));
  }

  dnnl::engine engine_;
  const PeerCase bench_;
  const Sizes sizes_;
  int64_t chunk_rows_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<ChunkKernel>> kernels_;
  std::vector<Chunk> chunks_;
};

/// Returns the name of the thread library for which oneDNN was built. GNU's OpenMP lacks a function that Intel's and
/// LLVM's have.
std::string RuntimeName(const dnnl_version_t& version) {
  switch (version.cpu_runtime) {
    case DNNL_RUNTIME_OMP: return dlsym(RTLD_DEFAULT, "__kmpc_global_thread_num") == nullptr ? "libgomp" : "libiomp5";
    case DNNL_RUNTIME_SEQ: return "sequential";
    case DNNL_RUNTIME_TBB: return "TBB";
    case DNNL_RUNTIME_THREADPOOL: return "threadpool";
    case DNNL_RUNTIME_SYCL: return "SYCL";
    default: return "runtime " + std::to_string(version.cpu_runtime);
  }
}

class OneDnnPeer : public Peer {
 public:
  nlohmann::json About() override {
    const dnnl_version_t& version = *dnnl_version();
    return {{"version",
             std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch)},
            {"runtime", RuntimeName(version)}};
  }

  void Prepare(const PeerCase& bench) override {
    Release();
    if (bench.backward) throw Unsupported("no fused backward");
    if (bench.mask != "full" && bench.mask != "causal") throw Unsupported("mask " + bench.mask);
    bench_.emplace(bench);
    const Sizes sizes = {bench.batch, bench.heads_kv, bench.heads / bench.heads_kv, bench.d};
    const tool::Tensor q = bench.Load("q"), k = bench.Load("k"), v = bench.Load("v");
    operands_.emplace(Operands{
        {engine_, q}, {engine_, k}, {engine_, v}, {engine_, q.array.size_bytes()}, {engine_, SizeOf(bench.dtype)}});
    check::StoreElement(operands_->scale.data(), bench.dtype, 0, 1 / std::sqrt(static_cast<float>(bench.d)));
    double least = std::numeric_limits<double>::infinity();
    TryChunks(sizes, bench.sq, least);
    for (const int64_t rows : kChunkRows) {
      if (rows < bench.sq) TryChunks(sizes, rows, least);
    }
  }

  void Call() override { attention_->Run(stream_, *operands_); }

  std::string Note() override {
    const int64_t rows = attention_->chunk_rows();
    return rows == bench_->sq ? "whole" : "chunks of " + std::to_string(rows) + " rows";
  }

  void SaveResults() override {
    tool::Tensor out = tool::NewTensor(bench_->dtype, {bench_->batch, bench_->heads, bench_->sq, bench_->d});
    std::memcpy(out.array.bytes(), operands_->out.data(), operands_->out.bytes());
    bench_->Save("out", out);
  }

  std::vector<std::span<const std::byte>> Memory() override {
    return {operands_->k.contents(), operands_->v.contents()};
  }

  void Release() override {
    attention_.reset();
    operands_.reset();
  }

 private:
  /// Times a call in chunks of `rows` rows. If the call takes less than `least` seconds, keeps these chunks and sets
  /// `least` to the call's time.
  void TryChunks(const Sizes& sizes, int64_t rows, double& least) {
    using Clock = std::chrono::steady_clock;
    auto attention = std::make_unique<ChunkedAttention>(engine_, *bench_, sizes, rows);
    attention->Run(stream_, *operands_);
    double spent = 0, best = std::numeric_limits<double>::infinity();
    for (int tries = 0; tries < kMinTries || spent < kTrySeconds; ++tries) {
      const Clock::time_point begin = Clock::now();
      attention->Run(stream_, *operands_);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      best = std::min(best, seconds);
      spent += seconds;
    }
    if (best >= least) return;
    least = best;
    attention_ = std::move(attention);
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::optional<PeerCase> bench_;
  std::optional<Operands> operands_;
  std::unique_ptr<ChunkedAttention> attention_;
};

}  // namespace
}  // namespace fa::peers

int main() {
  fa::peers::OneDnnPeer peer;
  return fa::peers::Serve(peer);
}
