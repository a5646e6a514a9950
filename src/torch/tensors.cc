#include "tensors.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "fa/error_text.h"

namespace fa::torch_kernels {
namespace {

// Pairs of an argument's name in the library and its name in PyTorch's operators.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"q", "query"},        {"k", "key"},           {"v", "value"},
    {"pse", "attn_mask"},  {"d_out", "grad_out"},  {"softmax_max", "logsumexp"},
    {"cu_q", "cum_seq_q"}, {"cu_kv", "cum_seq_k"}, {"lengths_kv", "seqused_k"},
};

DType DTypeOf(ScalarType type) {
  switch (type) {
    case ScalarType::Half: return DType::kF16;
    case ScalarType::BFloat16: return DType::kBF16;
    case ScalarType::Int: return DType::kI32;
    default: return DType::kF32;
  }
}

/// Returns the number by which the stable interface knows a type.
int32_t CodeOf(ScalarType type) {
  switch (type) {
    case ScalarType::Half: return aoti_torch_dtype_float16();
    case ScalarType::BFloat16: return aoti_torch_dtype_bfloat16();
    case ScalarType::UInt64: return aoti_torch_dtype_uint64();
    default: return aoti_torch_dtype_float32();
  }
}

Dims DimsOf(const ::torch::headeronly::IntHeaderOnlyArrayRef& numbers) {
  Dims dims;
  for (const int64_t number : numbers) dims.push_back(number);
  return dims;
}

bool HasUnitStride(const Tensor& tensor) {
  const int64_t rank = tensor.dim();
  return rank == 0 || tensor.size(rank - 1) <= 1 || tensor.stride(rank - 1) == 1;
}

}  // namespace

void Refuse(const char* op, std::string_view argument, std::string_view got, std::string_view want) {
  std::string text = op;
  text.append(": invalid argument: ").append(argument).append("=").append(got).append(", want ").append(want);
  throw std::runtime_error(text);
}

void Check(const char* op, const Status& status) {
  if (status.ok()) return;
  const auto say = [](std::string_view name, std::string_view member, std::string_view index) {
    const auto* known =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return n.first == name; });
    return std::string(known == std::end(kNames) ? name : known->second).append(member).append(index);
  };
  throw std::runtime_error(std::string(op) + ": " + std::string(status.class_text()) + status.what().Retold(say));
}

void CheckNoDropout(const char* op, double dropout_p) {
  if (dropout_p == 0) return;
  std::ostringstream number;
  number << dropout_p;
  Refuse(op, "dropout_p", number.str(), "0");
}

void DropUndefined(OptionalTensor& tensor) {
  if (tensor && !tensor->defined()) tensor.reset();
}

bool IsServed(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::BFloat16 || type == ScalarType::Half;
}

std::string NameOf(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return "torch.float32";
    case ScalarType::BFloat16: return "torch.bfloat16";
    case ScalarType::Half: return "torch.float16";
    case ScalarType::Double: return "torch.float64";
    case ScalarType::Bool: return "torch.bool";
    case ScalarType::Int: return "torch.int32";
    case ScalarType::Long: return "torch.int64";
    case ScalarType::Byte: return "torch.uint8";
    case ScalarType::Char: return "torch.int8";
    case ScalarType::Short: return "torch.int16";
    case ScalarType::UInt64: return "torch.uint64";
    default: return "type " + std::to_string(static_cast<int>(type));
  }
}

std::string Text(const Dims& dims) {
  std::string text = "[";
  for (const int64_t size : dims) text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  return text + "]";
}

void CheckType(const char* op, std::string_view name, const Tensor& tensor, ScalarType want, std::string_view source) {
  const ScalarType type = tensor.scalar_type();
  if (type != want) Refuse(op, std::string(name) + ".dtype", NameOf(type), NameOf(want) + std::string(source));
}

void CheckSize(const char* op, std::string_view name, const Tensor& tensor, int64_t axis, int64_t want,
               std::string_view source) {
  if (tensor.size(axis) == want) return;
  const std::string argument = std::string(name) + ".shape[" + std::to_string(axis) + "]";
  Refuse(op, argument, std::to_string(tensor.size(axis)), std::to_string(want) + std::string(source));
}

void CheckRank(const char* op, std::string_view name, const Tensor& tensor, int64_t rank, std::string_view shape) {
  if (tensor.dim() != rank) Refuse(op, std::string(name) + ".shape", Text(ShapeOf(tensor)), shape);
}

Dims ShapeOf(const Tensor& tensor) { return DimsOf(tensor.sizes()); }

Tensor Readable(const Tensor& tensor) { return HasUnitStride(tensor) ? tensor : ::torch::stable::contiguous(tensor); }

MutableTensorView ViewOf(const Tensor& tensor) {
  MutableTensorView view{tensor.data_ptr(), DTypeOf(tensor.scalar_type()), ShapeOf(tensor), DimsOf(tensor.strides())};
  // The library wants an innermost stride of 1. If that dimension has at most one element, PyTorch may give it any
  // stride.
  const int last = view.shape.rank() - 1;
  if (last >= 0 && view.shape[last] <= 1) view.stride[last] = 1;
  return view;
}

Tensor NewTensor(const Dims& shape, const Dims& stride, ScalarType type) {
  AtenTensorHandle made = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(shape.rank(), shape.begin(), stride.begin(), CodeOf(type),
                                                         aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}

Output::Output(Tensor tensor) : tensor_(std::move(tensor)), written_(tensor_) {
  if (!HasUnitStride(tensor_)) written_ = ::torch::stable::new_empty(tensor_, tensor_.sizes());
}

Tensor Output::Finished() {
  if (written_.get() != tensor_.get()) ::torch::stable::copy_(tensor_, written_);
  return tensor_;
}

void ReplaceEmptyRows(const Tensor& lse, float with) {
  auto* const numbers = static_cast<float*>(lse.data_ptr());
  std::replace(numbers, numbers + lse.numel(), -std::numeric_limits<float>::infinity(), with);
}

Context* ContextOfThread() {
  static const bool by_variable = std::getenv("FA_NUM_THREADS") != nullptr;
  if (by_variable) return nullptr;
  static auto* mutex = new std::mutex;  // the context's threads may outlive static objects
  static auto* contexts = new std::map<uint32_t, std::unique_ptr<Context>>;
  const uint32_t threads = ::torch::stable::get_num_threads();
  const std::lock_guard lock(*mutex);
  std::unique_ptr<Context>& context = (*contexts)[threads];
  if (context == nullptr) {
    auto made = Context::Create({.threads = static_cast<int>(threads)});
    if (!made.ok()) throw std::runtime_error(made.status().message());
    context = std::move(*made);
  }
  return context.get();
}

}  // namespace fa::torch_kernels
