#include "calls.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fa/context.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/options.h"
#include "fa/status.h"
#include "fa/version.h"
#include "rows_without_keys.h"
#include "samples.h"
#include "xla/ffi/api/ffi.h"

namespace fa::xla_calls {
namespace {

namespace ffi = xla::ffi;

constexpr size_t kRank = 4;  ///< the rank of query, key and value without axes of vmap

/// Returns the context with this many threads. Contexts live as long as the process, because their threads may run when
/// it ends.
Result<Context*> ContextOf(int64_t threads) {
  static std::mutex mutex;
  static auto* contexts = new std::map<int64_t, std::unique_ptr<Context>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Context>& context = (*contexts)[threads];
  if (context == nullptr) {
    Result<std::unique_ptr<Context>> made = Context::Create({.threads = static_cast<int>(threads)});
    if (!made.ok()) return made.status();
    context = std::move(*made);
  }
  return context.get();
}

std::optional<DType> TypeOf(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32: return DType::kF32;
    case ffi::DataType::F16: return DType::kF16;
    case ffi::DataType::BF16: return DType::kBF16;
    case ffi::DataType::PRED: return DType::kBool;
    case ffi::DataType::S32: return DType::kI32;
    default: return std::nullopt;
  }
}

/// The attributes of a call.
struct Attributes {
  float scale = 0;
  int64_t left = 0, right = 0;
  bool bias = false, mask = false, query_seq_lengths = false, key_value_seq_lengths = false;
};

Status ReadAttributes(const ffi::Dictionary& given, Attributes* attributes) {
  const auto version = given.get<int64_t>("version");
  if (!version.has_value() || *version != kCallVersion) {
    const auto writer = given.get<std::string_view>("written_by");
    const std::string which = version.has_value() ? std::to_string(*version) : "(none)";
    return Status::InvalidArgument("version=" + which + " of the call, which fa " +
                                   (writer.has_value() ? std::string(*writer) : "(unknown)") + " wrote, want " +
                                   std::to_string(kCallVersion) + " (fa " FA_VERSION_STRING ")");
  }
  const char* missing = nullptr;
  size_t known = 2;  // the two attributes that were read above, version and written_by
  const auto read = [&](const char* name, auto* value) {
    ++known;
    const auto found = given.get<std::remove_pointer_t<decltype(value)>>(name);
    if (found.has_value()) {
      *value = *found;
    } else {
      missing = name;
    }
  };
  read("scale", &attributes->scale);
  read("left", &attributes->left);
  read("right", &attributes->right);
  read("bias", &attributes->bias);
  read("mask", &attributes->mask);
  read("query_seq_lengths", &attributes->query_seq_lengths);
  read("key_value_seq_lengths", &attributes->key_value_seq_lengths);
  if (missing != nullptr)
    return Status::InvalidArgument(std::string(missing) + ": missing among the call's attributes");
  if (given.size() != known) {
    return Status::InvalidArgument("the call has " + std::to_string(given.size()) + " attributes, want " +
                                   std::to_string(known));
  }
  return Status::Ok();
}

/// One call from XLA, which runs one or more calls of the library.
class Call {
 public:
  Call(ffi::RemainingArgs operands, ffi::RemainingRets results) : operands_(operands), results_(results) {}

  /// Reads the inputs of the forward, which the backward has too.
  Status ReadInputs(const ffi::Dictionary& given) {
    FA_RETURN_IF_ERROR(ReadAttributes(given, &attributes_));
    const auto query = operands_.get<ffi::AnyBuffer>(0);
    if (!query.has_value() || query->dimensions().size() < kRank) {
      return Status::InvalidArgument("query: want an operand of at least four dimensions");
    }
    axes_ = query->dimensions().size() - kRank;
    samples_.emplace(axes_, query->dimensions()[axes_]);
    dbias_ = samples_->Add({});
    q_ = Operand("query", kRank), k_ = Operand("key", kRank), v_ = Operand("value", kRank);
    bias_ = attributes_.bias ? Operand("bias", kRank) : samples_->Add({});
    mask_ = attributes_.mask ? Operand("mask", kRank) : samples_->Add({});
    q_lengths_ = attributes_.query_seq_lengths ? Operand("query_seq_lengths", 1) : samples_->Add({});
    kv_lengths_ = attributes_.key_value_seq_lengths ? Operand("key_value_seq_lengths", 1) : samples_->Add({});
    return status_;
  }

  /// Adds the next operand, which has `rank` dimensions without axes of vmap.
  size_t Operand(const char* name, size_t rank) {
    const auto buffer = operands_.get<ffi::AnyBuffer>(next_operand_++);
    return Add(name, buffer.has_value() ? &*buffer : nullptr, rank, 0);
  }
  /// Adds the next result.
  size_t Result(const char* name, size_t rank) { return Result(name, rank, axes_ + 1); }
  /// Adds the next result. Its first `full` dimensions have their full sizes, and later axes of the batch may have size
  /// 1.
  size_t Result(const char* name, size_t rank, size_t full) {
    auto buffer = results_.get<ffi::AnyBuffer>(next_result_++);
    return Add(name, buffer.has_value() ? &**buffer : nullptr, rank, full);
  }
  /// Adds the gradient of the bias if the call has one more result. A batch that shares a bias shares its gradient.
  void AddDBias() {
    if (next_result_ < results_.size()) dbias_ = Result("dbias", kRank, axes_);
  }

  /// Runs `run(args)` for each call of the library, with the arguments that forward and backward share, of type Args.
  template <typename Args, typename Run>
  Status ForEachCall(const Run& run) {
    if (!status_.ok()) return status_;
    if (next_operand_ != operands_.size() || next_result_ != results_.size()) {
      return Status::InvalidArgument("the call has " + std::to_string(operands_.size()) + " operands and " +
                                     std::to_string(results_.size()) + " results, want " +
                                     std::to_string(next_operand_) + " and " + std::to_string(next_result_));
    }
    if (!samples_->Agree()) {
      return Status::InvalidArgument("operands and results: the batch or an axis of vmap has other sizes in some");
    }
    samples_->Join();
    while (samples_->Next()) {
      Args args;
      args.q = View(q_), args.k = View(k_), args.v = View(v_);
      rows_ = args.q.shape[1], keys_ = args.k.shape[1];
      args.pse = Bias(args.q.shape[2]);
      args.dense_mask = View(mask_);
      if (args.dense_mask.data != nullptr && args.dense_mask.shape[2] == 1) {
        args.dense_mask.shape[2] = rows_;
        if (rows_ > 1) args.dense_mask.stride[2] = 0;
      }
      AttentionOptions options;
      options.layout = Layout::kBSND;
      options.scale = attributes_.scale;
      options.pse_type = PseType::kScaleThenAdd;
      options.mask = Rule();
      FA_RETURN_IF_ERROR(run(args, options));
    }
    return Status::Ok();
  }

  [[nodiscard]] MutableTensorView View(size_t number) const { return samples_->View(number); }
  /// Returns the gradient of the bias, if the call has it.
  [[nodiscard]] MutableTensorView DBias() const { return samples_->ViewOfOne(dbias_); }
  /// Returns the number of query rows in use of batch element b of the current call.
  [[nodiscard]] int64_t RowsInUse(int64_t b) const { return Length(q_lengths_, b, rows_); }

 private:
  size_t Add(const char* name, const ffi::AnyBuffer* buffer, size_t rank, size_t full) {
    const auto dtype = buffer != nullptr ? TypeOf(buffer->element_type()) : std::nullopt;
    if (status_.ok() && (!dtype || buffer->dimensions().size() != axes_ + rank)) {
      status_ = Status::InvalidArgument(std::string(name) + ": missing, or of another type or number of dimensions");
    }
    if (!status_.ok()) return samples_->Add({});
    const auto shape = buffer->dimensions();
    return samples_->Add({static_cast<std::byte*>(buffer->untyped_data()), *dtype, {shape.begin(), shape.end()}}, full);
  }

  // Returns the bias, broadcast to one entry per head and to the batch size of its gradient.
  [[nodiscard]] MutableTensorView Bias(int64_t heads) const {
    MutableTensorView bias = samples_->ViewOfOne(bias_);
    if (bias.data == nullptr) return bias;
    const MutableTensorView dbias = DBias();
    if (dbias.data != nullptr && bias.shape[0] == 1) bias.shape[0] = dbias.shape[0];
    if (bias.shape[1] == 1) bias.shape[1] = heads, bias.stride[1] = 0;
    return bias;
  }

  // Returns the length of batch element b, which is `all` if the call has no lengths.
  [[nodiscard]] int64_t Length(size_t lengths, int64_t b, int64_t all) const {
    const MutableTensorView view = View(lengths);
    if (view.data == nullptr) return all;
    return std::clamp<int64_t>(static_cast<const int32_t*>(view.data)[b * view.stride[0]], 0, all);
  }

  // Returns the mask that keeps, for each row i in use, the keys in use among i - left to i + right.
  [[nodiscard]] Mask Rule() const {
    const int64_t reach = rows_ + keys_;
    const int64_t left = std::clamp(attributes_.left, -reach, reach);
    const int64_t right = std::clamp(attributes_.right, -reach, reach);
    if (!attributes_.query_seq_lengths && !attributes_.key_value_seq_lengths) {
      if (left < reach) return Mask::BandTopLeft(left, right);
      return right == 0 ? Mask::CausalTopLeft() : right == reach ? Mask::None() : Mask::BandTopLeft(left, right);
    }
    std::vector<int64_t> begin, end;
    begin.reserve(static_cast<size_t>(samples_->batch() * rows_));
    end.reserve(begin.capacity());
    for (int64_t b = 0; b < samples_->batch(); ++b) {
      const int64_t rows = RowsInUse(b), keys = Length(kv_lengths_, b, keys_);
      for (int64_t i = 0; i < rows_; ++i) {
        begin.push_back(i - left);
        end.push_back(i < rows ? std::min(keys, i + right + 1) : begin.back());
      }
    }
    return Mask::Rows(std::move(begin), std::move(end));
  }

  ffi::RemainingArgs operands_;
  ffi::RemainingRets results_;
  size_t next_operand_ = 0, next_result_ = 0;
  Attributes attributes_;
  Status status_;  ///< the first error of Add
  size_t axes_ = 0;
  std::optional<Samples> samples_;
  size_t q_ = 0, k_ = 0, v_ = 0, bias_ = 0, dbias_ = 0, mask_ = 0, q_lengths_ = 0, kv_lengths_ = 0;
  int64_t rows_ = 0, keys_ = 0;  ///< rows and keys of the current call
};

Status Forward(const ffi::ThreadPool& pool, ffi::RemainingArgs operands, ffi::RemainingRets results,
               const ffi::Dictionary& attributes) {
  Call call(operands, results);
  FA_RETURN_IF_ERROR(call.ReadInputs(attributes));
  const size_t out = call.Result("out", kRank);
  const size_t softmax_max = call.Result("softmax_max", kRank - 1), softmax_sum = call.Result("softmax_sum", kRank - 1);
  const auto context = ContextOf(pool.num_threads());
  if (!context.ok()) return context.status();
  return call.ForEachCall<AttentionArgs>([&](AttentionArgs& args, const AttentionOptions& options) {
    args.out = call.View(out);
    args.softmax_max = call.View(softmax_max);
    args.softmax_sum = call.View(softmax_sum);
    FA_RETURN_IF_ERROR(FlashAttention(args, options, *context));
    WriteMeans(
        args.v, args.softmax_max, args.softmax_sum, [&](int64_t b) { return call.RowsInUse(b); }, args.out);
    return Status::Ok();
  });
}

Status Backward(const ffi::ThreadPool& pool, ffi::RemainingArgs operands, ffi::RemainingRets results,
                const ffi::Dictionary& attributes) {
  Call call(operands, results);
  FA_RETURN_IF_ERROR(call.ReadInputs(attributes));
  const size_t out = call.Operand("out", kRank), d_out = call.Operand("d_out", kRank);
  const size_t softmax_max = call.Operand("softmax_max", kRank - 1),
               softmax_sum = call.Operand("softmax_sum", kRank - 1);
  const size_t dq = call.Result("dquery", kRank), dk = call.Result("dkey", kRank), dv = call.Result("dvalue", kRank);
  call.AddDBias();
  const auto context = ContextOf(pool.num_threads());
  if (!context.ok()) return context.status();
  return call.ForEachCall<AttentionGradArgs>([&](AttentionGradArgs& args, const AttentionOptions& options) {
    args.out = call.View(out);
    args.d_out = call.View(d_out);
    args.softmax_max = call.View(softmax_max);
    args.softmax_sum = call.View(softmax_sum);
    args.dq = call.View(dq);
    args.dk = call.View(dk);
    args.dv = call.View(dv);
    args.dpse = call.DBias();
    FA_RETURN_IF_ERROR(FlashAttentionGrad(args, options, *context));
    AddToValues(
        args.d_out, args.softmax_max, args.softmax_sum, [&](int64_t b) { return call.RowsInUse(b); }, args.dv);
    return Status::Ok();
  });
}

ffi::Error ErrorOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return ffi::Error::Success();
    case StatusCode::kInvalidArgument: return {ffi::ErrorCode::kInvalidArgument, status.message()};
    case StatusCode::kOutOfMemory: return {ffi::ErrorCode::kResourceExhausted, status.message()};
    case StatusCode::kUnsupported: return {ffi::ErrorCode::kUnimplemented, status.message()};
    case StatusCode::kInternal: break;
  }
  return {ffi::ErrorCode::kInternal, status.message()};
}

// XLA is compiled without exceptions, so none may reach it.
template <auto function>
ffi::Error Handle(ffi::ThreadPool pool, ffi::RemainingArgs operands, ffi::RemainingRets results,
                  ffi::Dictionary attributes) {
  try {
    return ErrorOf(function(pool, operands, results, attributes));
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted, "out of memory"};
  } catch (const std::exception& error) {
    return {ffi::ErrorCode::kInternal, error.what()};
  } catch (...) {
    return {ffi::ErrorCode::kInternal, "an exception of unknown type"};
  }
}

auto Binding() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attrs<ffi::Dictionary>();
}

}  // namespace

XLA_FFI_Handler* ForwardHandler() {
  XLA_FFI_DEFINE_HANDLER(handler, Handle<Forward>, Binding());
  return handler;
}

XLA_FFI_Handler* BackwardHandler() {
  XLA_FFI_DEFINE_HANDLER(handler, Handle<Backward>, Binding());
  return handler;
}

}  // namespace fa::xla_calls
