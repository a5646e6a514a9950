// The self-check compares the outputs of two levels. Inputs are multiples of 1/8 in [-1, 1). So scores, integers and
// the indexer's values are exact, in whatever order a level adds. Outputs that come after an exponential differ by
// rounding. A NaN stands behind each row of a tensor, and no output may depend on it.

#include "ops/self_check/self_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <list>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/context/context_impl.h"
#include "core/machine/cpu.h"
#include "core/run/serial_executor.h"
#include "fa/error_text.h"
#include "fa/fa.h"
#include "fa/half.h"

namespace fa::ops {
namespace {

// In f32, a sum has up to 200 terms. Each addition has an error of up to 2^-24 times a sum that is up to 8 times the
// largest output.
constexpr double kFloatTolerance = 0x1p-13;
// In 16 bits, P, dS and outputs are each rounded by up to 2^-9 of their value. The magnitudes of a sum's terms add up
// to at most 8 times the largest output, and 8 * 2^-9 = 2^-6.
constexpr double kHalfTolerance = 0x1p-6;

/// Returns element i of the input tensor with number `of`.
float Value(uint32_t of, int64_t i) {
  const uint32_t mixed = (static_cast<uint32_t>(i) * 2654435761u ^ of * 2246822519u) * 3266489917u;
  return (static_cast<float>(mixed >> 16 & 15) - 8) / 8;
}

void Put(std::byte* to, DType dtype, float value) {
  const auto put = [to](auto element) { std::memcpy(to, &element, sizeof element); };
  switch (dtype) {
    case DType::kBF16: return put(Bf16FromF32(value));
    case DType::kF16: return put(F16FromF32(value));
    case DType::kI8: return put(static_cast<int8_t>(value * 120));
    case DType::kI32: return put(static_cast<int32_t>(value));
    // Bits up to 56 (0x38) stand for magnitudes of at most 1 in both types. 0x7f stands for NaN.
    case DType::kF8E4M3:
    case DType::kF8E5M2: {
      const int sign = std::signbit(value) ? 0x80 : 0;
      return put(static_cast<uint8_t>(std::isnan(value) ? 0x7f : sign | static_cast<int>(std::fabs(value) * 56)));
    }
    case DType::kI4x8: return put(static_cast<uint32_t>(static_cast<int32_t>(value * 8)) * 2654435761u);
    default: return put(value);
  }
}
float Get(const std::byte* from, DType dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, SizeOf(dtype));
  switch (dtype) {
    case DType::kBF16: return F32FromBf16(static_cast<uint16_t>(bits));
    case DType::kF16: return F32FromF16(static_cast<uint16_t>(bits));
    case DType::kI8: return static_cast<int8_t>(bits);
    case DType::kI32: return static_cast<float>(static_cast<int32_t>(bits));
    default: return std::bit_cast<float>(bits);
  }
}

/// Runs the calls of the self-check at one level, and keeps their tensors and outputs.
class Calls {
 public:
  explicit Calls(Isa isa) {
    PlannedMachine machine = *ResolveMachine({.isa = isa});
    machine.settings.plans_only = false;
    machine.settings.reports_runs = false;
    context_ = Context::Impl::ToContext(
        std::make_unique<Context::Impl>(machine.settings, std::move(machine.topology), Status::Ok(),
                                        [] { return std::make_unique<core::SerialExecutor>(); }));
  }

  /// Runs forward and backward of few rows.
  /// @param features  whether bias, softcap, window and dropout change the scores; otherwise the mask is causal
  void Dense(DType dtype, int64_t d, int64_t dv, bool features) {
    DenseOf(dtype, d, dv, features, /*rows=*/61, /*gradients=*/true);
  }
  /// Runs forwards with enough rows for the forward loop that only levels with a tile unit have. One forward has
  /// statistics and a backward, the other has neither.
  void LongDense(DType dtype) {
    DenseOf(dtype, 64, 64, /*features=*/false, /*rows=*/120, /*gradients=*/true);
    DenseOf(dtype, 64, 64, /*features=*/false, /*rows=*/120, /*gradients=*/false);
  }

  /// Runs a decode of one row with `heads` query heads and one KV head, in pages of 16 keys.
  void Decode(DType dtype, DType dtype_kv, int64_t heads) {
    constexpr int64_t kPage = 16, kPages = 10, kLength = 150, kColumns = 64;
    DecodeAttentionArgs args;
    args.q = Input(dtype, {1, heads, 1, kColumns});
    const int64_t elements = dtype_kv == DType::kI4x8 ? kColumns / 8 : kColumns;
    const TensorView k = Input(dtype_kv, {kPages, 1, kPage, elements}), v = Input(dtype_kv, k.shape);
    args.k = {&k, 1};
    args.v = {&v, 1};
    args.lengths_kv = {&kLength, 1};
    int32_t pages[kPages];
    for (int32_t i = 0; i < kPages; ++i) pages[i] = kPages - 1 - i;
    args.block_table = {pages, DType::kI32, {1, kPages}, {}};
    const float scale = dtype_kv == DType::kI8 ? 0x1p-7f : dtype_kv == DType::kI4x8 ? 0x1p-3f : 1;
    const float scales[2] = {scale, scale};
    if (dtype_kv != dtype) args.antiquant_scale = {scales, DType::kF32, {2}, {}};
    args.out = Output(dtype, args.q.shape);
    Require(DecodeAttention(args, {.scale = 1.0f}, context_.get()));
    Keep("decode of " + std::to_string(heads) + " rows of " + Name(dtype) +
             (dtype_kv != dtype ? std::string(" and keys of ") + Name(dtype_kv) : ""),
         dtype, args.out);
  }

  void Int8(DType out) {
    PromptAttentionArgs args;
    args.q = Input(DType::kI8, {1, 2, 45, 72});
    args.k = Input(DType::kI8, {1, 1, 150, 72});
    args.v = Input(DType::kI8, {1, 1, 150, 40});
    args.out = Output(out, {1, 2, 45, 40});
    const float score = 0x1p-13f, p8 = 127, value = 0x1p-14f, quantization = 200;
    const auto one = [](const float& x) { return TensorView{&x, DType::kF32, {1}, {}}; };
    args.deq_scale1 = one(score), args.quant_scale1 = one(p8), args.deq_scale2 = one(value);
    if (out == DType::kI8) args.quant_scale2 = one(quantization);
    Require(PromptFlashAttention(args, {.scale = 1.0f, .mask = Mask::Causal()}, context_.get()));
    Keep(std::string("int8 prompt to ") + Name(out), DType::kI32, args.out);
  }

  void Indexer(DType dtype, int64_t heads) {
    LightningIndexerArgs args;
    args.q = Input(dtype, {1, 40, heads, 64});
    args.k = Input(dtype, {1, 200, 1, 64});
    args.weights = Input(DType::kF32, {1, 40, heads});
    args.sparse_indices = Output(DType::kI32, {1, 40, 1, 50});
    args.sparse_values = Output(DType::kF32, {1, 40, 1, 50});
    Require(LightningIndexer(args, {}, context_.get()));
    const std::string of = std::to_string(heads) + " heads of " + Name(dtype);
    Keep("indices of " + of, DType::kI32, args.sparse_indices);
    Keep("the indexer's values of " + of, DType::kI32, args.sparse_values);
  }

  std::vector<CheckedOutput> outputs;

 private:
  /// Runs a forward of 2 query heads and one KV head, and the forward's backward.
  /// @param gradients  if false, there are neither statistics nor a backward
  void DenseOf(DType dtype, int64_t d, int64_t dv, bool features, int64_t rows, bool gradients) {
    constexpr int64_t kKeys = 170;
    AttentionArgs args;
    args.q = Input(dtype, {1, 2, rows, d});
    args.k = Input(dtype, {1, 1, kKeys, d});
    args.v = Input(dtype, {1, 1, kKeys, dv});
    if (features) args.pse = Input(dtype, {1, 2, rows, kKeys});
    args.out = Output(dtype, {1, 2, rows, dv});
    if (gradients) {
      args.softmax_max = Output(DType::kF32, {1, 2, rows});
      args.softmax_sum = Output(DType::kF32, {1, 2, rows});
    }
    AttentionOptions options{.scale = 1.0f, .mask = Mask::Causal()};
    if (features) {
      options.mask = Mask::Band(100, 20);
      options.pse_type = PseType::kScaleThenAdd;
      options.softcap = 8;
      options.keep_prob = 0.75f;
      options.dropout = PhiloxState{.seed = 1, .offset = 2};
    }
    Require(FlashAttention(args, options, context_.get()));
    const std::string of = std::string(" of ") + Name(dtype) + (features ? " with bias" : "") +
                           (rows > 100 ? " and many rows" : "") + (gradients ? "" : " without statistics");
    Keep("out" + of, dtype, args.out);
    if (!gradients) return;
    AttentionGradArgs grad;
    grad.q = args.q, grad.k = args.k, grad.v = args.v, grad.pse = args.pse, grad.out = args.out;
    grad.softmax_max = args.softmax_max, grad.softmax_sum = args.softmax_sum;
    grad.d_out = Input(dtype, args.out.shape);
    grad.dq = Output(dtype, args.q.shape);
    grad.dk = Output(dtype, args.k.shape);
    grad.dv = Output(dtype, args.v.shape);
    if (features) grad.dpse = Output(dtype, args.pse.shape);
    Require(FlashAttentionGrad(grad, options, context_.get()));
    Keep("softmax_max" + of, DType::kF32, args.softmax_max);
    Keep("softmax_sum" + of, DType::kF32, args.softmax_sum);
    Keep("dq" + of, dtype, grad.dq);
    Keep("dk" + of, dtype, grad.dk);
    Keep("dv" + of, dtype, grad.dv);
    if (features) Keep("dpse" + of, dtype, grad.dpse);
  }

  static void Require(const Status& status) {
    if (status.code() == StatusCode::kOutOfMemory) throw std::bad_alloc();
    if (!status.ok()) throw std::logic_error(status.message());
  }

  /// Makes a tensor with an element behind each row: a NaN, or 1 in a tensor of integers.
  MutableTensorView Tensor(DType dtype, const Dims& shape, bool values) {
    const int last = shape.rank() - 1;
    const int64_t stride = shape[last] + 1, size = static_cast<int64_t>(SizeOf(dtype));
    int64_t rows = 1;
    MutableTensorView view{nullptr, dtype, shape, shape};
    view.stride[last] = 1;
    for (int i = last - 1; i >= 0; --i) {
      view.stride[i] = rows * stride;
      rows *= shape[i];
    }
    std::vector<std::byte>& bytes = memory_.emplace_back(static_cast<size_t>(rows * stride * size));
    const auto of = static_cast<uint32_t>(memory_.size());
    const bool integers = dtype == DType::kI8 || dtype == DType::kI4x8 || dtype == DType::kI32;
    const float nan = integers ? 1 : __builtin_nanf("");
    for (int64_t i = 0; i < rows * stride; ++i) {
      Put(&bytes[static_cast<size_t>(i * size)], dtype, values && i % stride < shape[last] ? Value(of, i) : nan);
    }
    view.data = bytes.data();
    return view;
  }
  TensorView Input(DType dtype, const Dims& shape) { return Tensor(dtype, shape, /*values=*/true); }
  MutableTensorView Output(DType dtype, const Dims& shape) { return Tensor(dtype, shape, /*values=*/false); }

  /// @param precision  the type whose rounding decides how far two levels may differ; with kI32 they may not differ
  void Keep(std::string name, DType precision, const TensorView& output) {
    CheckedOutput& kept = outputs.emplace_back(CheckedOutput{.name = std::move(name)});
    if (precision != DType::kI32) kept.tolerance = precision == DType::kF32 ? kFloatTolerance : kHalfTolerance;
    const auto size = static_cast<int64_t>(SizeOf(output.dtype));
    // The element behind each row is kept, too, because no call may change it.
    const int64_t elements = output.stride[0] * output.shape[0];
    for (int64_t i = 0; i < elements; ++i) {
      kept.values.push_back(Get(static_cast<const std::byte*>(output.data) + i * size, output.dtype));
    }
  }

  std::unique_ptr<Context> context_;
  std::list<std::vector<std::byte>> memory_;
};

}  // namespace

std::vector<CheckedOutput> CheckedOutputs(Isa isa) {
  Calls calls(isa);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    calls.Dense(dtype, 64, 64, /*features=*/false);
    if (dtype != DType::kF16) calls.Dense(dtype, 72, 40, /*features=*/true);
    for (const int64_t heads : {1, 2, 4, 8}) calls.Decode(dtype, dtype, heads);
    for (const DType compressed : {DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8}) {
      for (const int64_t heads : {1, 4, 8}) calls.Decode(dtype, compressed, heads);
    }
    if (dtype == DType::kBF16) calls.LongDense(dtype);
    calls.Indexer(dtype, 8);
    if (dtype == DType::kBF16) calls.Indexer(dtype, 32);  // a tile unit takes its own loop
  }
  calls.Int8(DType::kF16);
  calls.Int8(DType::kI8);
  return std::move(calls.outputs);
}

std::string FirstDifference(std::span<const CheckedOutput> level, std::span<const CheckedOutput> below) {
  for (size_t i = 0; i < below.size(); ++i) {
    const CheckedOutput &got = level[i], &want = below[i];
    double largest = 0;
    for (const float x : want.values) largest = std::isfinite(x) ? std::max<double>(largest, std::fabs(x)) : largest;
    const auto agree = [&](float a, float b) {
      return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(double{a} - double{b}) <= want.tolerance * largest;
    };
    if (!std::equal(got.values.begin(), got.values.end(), want.values.begin(), want.values.end(), agree)) {
      return want.name;
    }
  }
  return {};
}

Isa LevelBelow(Isa level) {
  Isa below = Isa::kPortable;
  for (const Isa isa : AllIsas()) {
    if (isa < level && Includes(level, isa) && !core::IsLeftOut(isa)) below = isa;
  }
  return below;
}

std::string DifferenceOf(Isa level, Isa below) { return DifferenceOf(level, below, CheckedOutputs); }

std::string DifferenceOf(Isa level, Isa below, std::vector<CheckedOutput> (*outputs)(Isa)) {
  std::vector<CheckedOutput> of_level;
  try {
    of_level = outputs(level);
  } catch (const std::logic_error& error) {
    return std::string(Name(level)) + "'s call failed: " + error.what();
  }
  const std::string output = FirstDifference(of_level, outputs(below));
  if (output.empty()) return {};
  return std::string(Name(level)) + "'s " + output + " is not " + Name(below) + "'s on this CPU";
}

bool IsUnproven(Isa isa) { return Includes(isa, Isa::kNeon); }

ProvenIsa Prove(Isa wanted, bool (*unproven)(Isa), std::string (*difference)(Isa level, Isa below)) {
  for (const Isa level : AllIsas()) {
    if (level == Isa::kPortable || level > wanted || !Includes(wanted, level) || core::IsLeftOut(level)) continue;
    if (!unproven(level)) continue;
    const Isa below = LevelBelow(level);
    if (std::string wrong = difference(level, below); !wrong.empty()) return {below, std::move(wrong)};
  }
  return {wanted};
}

Result<ContextSettings> AtProvenLevel(ContextSettings settings, const ContextOptions& options,
                                      const ContextEnvironment& environment, const ProvenIsa& proven) {
  if (proven.wrong.empty()) return settings;
  const char* wanted = Name(settings.isa);
  if (options.isa) return Status::Unsupported(ErrorText::Argument("isa").Is(wanted) + ", but " + proven.wrong);
  if (environment.force_isa != nullptr && *environment.force_isa != '\0') {
    return Status::Unsupported(ErrorText("FA_FORCE_ISA").Is(wanted) + ", but " + proven.wrong);
  }
  settings.isa_note = std::string(wanted) + ", for " + proven.wrong + "; " + Name(proven.isa) + " is used";
  settings.isa = proven.isa;
  return settings;
}

}  // namespace fa::ops
