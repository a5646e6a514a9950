// Implements every version of aclnnIncreFlashAttention with fa::PlanDecodeAttention.
#include "aclnn/operations/decode_operation.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aclnn/operations/attention_call.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/tensor_lists.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/executor.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/report.h"
#include "aclnn/runtime/strided_copy.h"
#include "fa/decode_attention.h"

namespace fa::aclnn {
namespace {

using Slot = Operands::Slot;

struct DecodeSlots {
  Slot q, pse, mask, deq_scale1, quant_scale1, deq_scale2, quant_scale, quant_offset, antiquant_scale, antiquant_offset;
  Slot block_table, kv_padding, out;
  std::vector<Slot> k, v;
};

struct DecodeSettings {
  DecodeAttentionOptions options;
  std::vector<int64_t> lengths_kv;
  int64_t heads_kv = 0;
  bool has_antiquant_scale = false;
};

Result<DecodeSlots> AddOperands(const DecodeTensors& tensors, Operands& operands) {
  DecodeSlots slots{};
  Status status;
  slots.q = operands.Input("query", tensors.query);
  slots.k = AddList("key", tensors.key, Operands::Form::kRows, operands, &status);
  slots.v = AddList("value", tensors.value, Operands::Form::kRows, operands, &status);
  slots.pse = operands.OptionalInput("pseShift", tensors.pse_shift);
  slots.mask = operands.OptionalInput("attenMask", tensors.atten_mask);
  slots.deq_scale1 = operands.OptionalInput("dequantScale1", tensors.dequant_scale1);
  slots.quant_scale1 = operands.OptionalInput("quantScale1", tensors.quant_scale1);
  slots.deq_scale2 = operands.OptionalInput("dequantScale2", tensors.dequant_scale2);
  slots.quant_scale = operands.OptionalInput("quantScale2", tensors.quant_scale2);
  slots.quant_offset = operands.OptionalInput("quantOffset2", tensors.quant_offset2);
  slots.antiquant_scale = operands.OptionalInput("antiquantScale", tensors.antiquant_scale);
  slots.antiquant_offset = operands.OptionalInput("antiquantOffset", tensors.antiquant_offset);
  slots.block_table = operands.OptionalInput("blocktable", tensors.block_table);
  slots.kv_padding = operands.OptionalInput("kvPaddingSize", tensors.kv_padding_size);
  slots.out = operands.Output("attentionOut", tensors.attention_out);
  if (!status.ok()) return status;
  if (!operands.status().ok()) return operands.status();
  return slots;
}

Result<DecodeSettings> SettingsOf(const DecodeCall& call) {
  DecodeSettings settings;
  const std::string_view layout = call.input_layout;
  bool known = false;
  for (const Layout one : {Layout::kBNSD, Layout::kBSND, Layout::kBSH}) {
    if (layout != Name(one)) continue;
    settings.options.layout = one;
    known = true;
  }
  if (!known) {
    return Status::InvalidArgument("inputLayout=\"" + std::string(layout) + "\", want \"BNSD\", \"BSND\" or \"BSH\"");
  }
  if (call.num_heads <= 0) {
    return Status::InvalidArgument("numHeads=" + std::to_string(call.num_heads) + ", want >= 1");
  }
  settings.options.heads = call.num_heads;
  settings.heads_kv = call.num_key_value_heads == 0 ? call.num_heads : call.num_key_value_heads;
  if (settings.heads_kv < 0 || call.num_heads % settings.heads_kv != 0) {
    return Status::InvalidArgument("numKeyValueHeads=" + std::to_string(call.num_key_value_heads) +
                                   ", want 0 or a divisor of " + std::to_string(call.num_heads) + " (numHeads)");
  }
  settings.options.scale = static_cast<float>(call.scale_value);
  settings.has_antiquant_scale = call.has_antiquant_scale;
  auto lengths = ValuesOf("actualSeqLengths", call.actual_seq_lengths);
  if (!lengths.ok()) return lengths.status();
  settings.lengths_kv = std::move(*lengths);
  return settings;
}

class DecodeOperation final : public PlannedOperation<DecodeAttentionArgs> {
 public:
  DecodeOperation(Operands operands, DecodeSlots slots, DecodeSettings settings)
      : PlannedOperation(std::move(operands), Names::kDecode),
        slots_(std::move(slots)),
        settings_(std::move(settings)) {}

  [[nodiscard]] Status Prepare(int64_t block_size) {
    if (operands_.IsEmpty(slots_.out)) return Status::Ok();
    turned_ = PagesAreTurned(block_size);
    FA_RETURN_IF_ERROR(CheckTypes("key", slots_.k));
    FA_RETURN_IF_ERROR(CheckTypes("value", slots_.v));
    FA_RETURN_IF_ERROR(CheckHeads());
    FA_RETURN_IF_ERROR(CheckBlockSize(block_size));
    FA_RETURN_IF_ERROR(CheckPadding());
    FA_RETURN_IF_ERROR(CheckBatch());
    const Keys keys = KeysOf(nullptr, 0);
    return Keep(PlanDecodeAttention(Args(nullptr, keys), settings_.options));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (!planned()) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    int64_t padding = 0;
    if (padded()) {
      padding = *static_cast<const int64_t*>(operands_.In(slots_.kv_padding, &memory).data);
      FA_RETURN_IF_ERROR(CheckPaddingValue(padding));
    }
    const Keys keys = KeysOf(&memory, padding);
    Status status = RunPlan(Args(&memory, keys), memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  struct Keys {
    std::vector<TensorView> k, v;
  };

  [[nodiscard]] bool padded() const { return slots_.kv_padding != Operands::kAbsent; }
  [[nodiscard]] bool paged() const { return slots_.block_table != Operands::kAbsent; }
  [[nodiscard]] bool heads_beside() const { return settings_.options.layout == Layout::kBSH; }
  [[nodiscard]] bool heads_first() const { return settings_.options.layout == Layout::kBNSD || turned_; }
  [[nodiscard]] int seq_dim() const { return settings_.options.layout == Layout::kBNSD ? 2 : 1; }
  /// Returns the number of keys of batch element b.
  [[nodiscard]] int64_t Length(int64_t b) const {
    const std::vector<int64_t>& lengths = settings_.lengths_kv;
    return lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(b)];
  }

  // Returns whether pages in layout BSND have the device's order, [pages, Nkv, blockSize, D]. If the sizes fit both
  // orders, the result is true.
  [[nodiscard]] bool PagesAreTurned(int64_t block_size) const {
    if (!paged() || slots_.k.empty() || settings_.options.layout != Layout::kBSND) return false;
    const Dims shape = operands_.In(slots_.k[0], nullptr).shape;
    return shape.rank() == 4 && shape[1] == settings_.heads_kv && shape[2] == block_size;
  }

  // Returns how many numbers an element of these keys or values holds: 8 int4 numbers per int32, otherwise 1.
  [[nodiscard]] int64_t Packed(Slot slot) const { return operands_.In(slot, nullptr).dtype == DType::kI32 ? 8 : 1; }

  // Refuses compressed keys or values if the version has no parameter for their scales.
  [[nodiscard]] Status CheckTypes(const char* name, const std::vector<Slot>& slots) const {
    if (settings_.has_antiquant_scale) return Status::Ok();
    const DType query = operands_.In(slots_.q, nullptr).dtype;
    for (size_t i = 0; i < slots.size(); ++i) {
      const DType dtype = operands_.In(slots[i], nullptr).dtype;
      if (dtype == query || (dtype != DType::kI8 && dtype != DType::kI32)) continue;
      const std::string index = slots.size() > 1 ? "[" + std::to_string(i) + "]" : "";
      return Status::InvalidArgument(name + index + ".dtype=" + Name(dtype) + ", want " + Name(query) + " (query)");
    }
    return Status::Ok();
  }

  // numKeyValueHeads must be the number of key heads that the tensors have.
  [[nodiscard]] Status CheckHeads() const {
    const TensorView q = operands_.In(slots_.q, nullptr);
    // If q has a wrong number of dimensions or k has no tensors, the plan refuses the call.
    if (slots_.k.empty() || q.shape.rank() != (heads_beside() ? 3 : 4)) return Status::Ok();
    const Dims shape = operands_.In(slots_.k[0], nullptr).shape;
    int64_t heads = settings_.heads_kv;
    if (shape.rank() == 4) heads = shape[heads_first() ? 1 : 2];
    if (shape.rank() == 3) {
      const int64_t size = heads_beside() ? q.shape[2] / settings_.options.heads : q.shape[3];
      if (size > 0) heads = shape[2] * Packed(slots_.k[0]) / size;
    }
    if (heads == settings_.heads_kv) return Status::Ok();
    return Status::InvalidArgument("numKeyValueHeads=" + std::to_string(settings_.heads_kv) + ", want " +
                                   std::to_string(heads) + " (key)");
  }

  [[nodiscard]] Status CheckBlockSize(int64_t block_size) const {
    if (!paged() || slots_.k.empty()) return Status::Ok();
    const Dims shape = operands_.In(slots_.k[0], nullptr).shape;
    const int dim = shape.rank() == 4 && heads_first() ? 2 : 1;
    if (shape.rank() <= dim || shape[dim] == block_size) return Status::Ok();
    return Status::InvalidArgument("blockSize=" + std::to_string(block_size) + ", want " + std::to_string(shape[dim]) +
                                   " (key.shape[" + std::to_string(dim) + "])");
  }

  [[nodiscard]] Status CheckPadding() const {
    if (!padded()) return Status::Ok();
    const TensorView padding = operands_.In(slots_.kv_padding, nullptr);
    if (padding.dtype != DType::kI64) {
      return Status::InvalidArgument(std::string("kvPaddingSize.dtype=") + Name(padding.dtype) + ", want i64");
    }
    const char* with = paged()                            ? "blocktable"
                       : slots_.pse != Operands::kAbsent  ? "pseShift"
                       : slots_.mask != Operands::kAbsent ? "attenMask"
                       : slots_.k.size() != 1             ? "a list of keys"
                       : settings_.lengths_kv.empty()     ? "no actualSeqLengths"
                                                          : nullptr;
    if (with != nullptr)
      return Status::InvalidArgument(std::string("kvPaddingSize: given, want none (with ") + with + ")");
    const Dims key = operands_.In(slots_.k[0], nullptr).shape, value = operands_.In(slots_.v[0], nullptr).shape;
    const int rank = heads_beside() ? 3 : 4;
    const auto batch = static_cast<size_t>(operands_.In(slots_.q, nullptr).shape[0]);
    if (key.rank() != rank || value.rank() != rank || static_cast<size_t>(key[0]) != batch || value[0] != key[0]) {
      return Status::InvalidArgument("key: want a tensor of " + std::to_string(rank) + " dimensions and of " +
                                     std::to_string(batch) + " batch elements (with kvPaddingSize)");
    }
    if (settings_.lengths_kv.size() != 1 && settings_.lengths_kv.size() < batch) {
      return Status::InvalidArgument("actualSeqLengths has " + std::to_string(settings_.lengths_kv.size()) +
                                     " entries, want 1 or " + std::to_string(batch) + " (batch)");
    }
    return CheckPaddingValue(0);
  }

  [[nodiscard]] Status CheckPaddingValue(int64_t padding) const {
    const Dims shape = operands_.In(slots_.k[0], nullptr).shape;
    // One length may stand for all batch elements. Then checking the first element is enough.
    const int64_t lengths = settings_.lengths_kv.size() == 1 ? std::min<int64_t>(shape[0], 1) : shape[0];
    for (int64_t b = 0; b < lengths; ++b) {
      const int64_t most = shape[seq_dim()] - Length(b);
      if (Length(b) < 0 || most < 0) {
        return Status::InvalidArgument("actualSeqLengths: " + std::to_string(Length(b)) + " keys, want 0.." +
                                       std::to_string(shape[seq_dim()]) + " (key)");
      }
      if (padding < 0 || padding > most) {
        return Status::InvalidArgument("kvPaddingSize=" + std::to_string(padding) + ", want 0.." +
                                       std::to_string(most) + " (batch element " + std::to_string(b) + ")");
      }
    }
    return Status::Ok();
  }

  // Checks the call with all keys in one tensor. KeysOf then makes one tensor per batch element, so CheckBatch must
  // refuse too many batch elements first.
  [[nodiscard]] Status CheckBatch() const {
    if (!padded()) return Status::Ok();
    Keys one{{operands_.In(slots_.k[0], nullptr)}, {operands_.In(slots_.v[0], nullptr)}};
    for (TensorView* view : {&one.k[0], &one.v[0]}) {
      if (view->dtype == DType::kI32) view->dtype = DType::kI4x8;
    }
    const auto plan = PlanDecodeAttention(Args(nullptr, one), settings_.options);
    return plan.ok() ? Status::Ok() : Renamed(plan.status(), Names::kDecode);
  }

  // Returns the keys of one batch element, which end `padding` rows before the end of dimension S.
  [[nodiscard]] TensorView PaddedKeys(const TensorView& all, int64_t b, const CallMemory* memory,
                                      int64_t padding) const {
    TensorView one = all;
    one.stride = all.stride.empty() ? DenseStride(all.shape) : all.stride;
    one.shape[0] = 1;
    one.shape[seq_dim()] = Length(b);
    if (memory == nullptr) return one;
    const int64_t first = all.shape[seq_dim()] - padding - Length(b);
    const int64_t offset = b * one.stride[0] + first * one.stride[seq_dim()];
    one.data = static_cast<const std::byte*>(all.data) + offset * static_cast<int64_t>(SizeOf(all.dtype));
    return one;
  }

  // Turns a view of pages from the device's order into the order of layout BSND.
  static void RowsBeforeHeads(TensorView& pages) {
    if (pages.shape.rank() != 4) return;
    if (pages.stride.empty()) pages.stride = DenseStride(pages.shape);
    std::swap(pages.shape[1], pages.shape[2]);
    std::swap(pages.stride[1], pages.stride[2]);
  }

  [[nodiscard]] Keys KeysOf(const CallMemory* memory, int64_t padding) const {
    Keys keys;
    const auto add = [&](const std::vector<Slot>& slots, std::vector<TensorView>& views) {
      for (const Slot slot : slots) {
        views.push_back(operands_.In(slot, memory));
        if (views.back().dtype == DType::kI32) views.back().dtype = DType::kI4x8;
      }
      if (turned_) std::for_each(views.begin(), views.end(), RowsBeforeHeads);
      if (!padded()) return;
      const TensorView all = views[0];
      views.clear();
      for (int64_t b = 0; b < all.shape[0]; ++b) views.push_back(PaddedKeys(all, b, memory, padding));
    };
    add(slots_.k, keys.k);
    add(slots_.v, keys.v);
    return keys;
  }

  [[nodiscard]] DecodeAttentionArgs Args(const CallMemory* memory, const Keys& keys) const {
    DecodeAttentionArgs args;
    args.q = operands_.In(slots_.q, memory);
    args.k = keys.k;
    args.v = keys.v;
    args.lengths_kv = settings_.lengths_kv;
    args.block_table = operands_.In(slots_.block_table, memory);
    args.antiquant_scale = operands_.In(slots_.antiquant_scale, memory);
    args.antiquant_offset = operands_.In(slots_.antiquant_offset, memory);
    args.deq_scale1 = operands_.In(slots_.deq_scale1, memory);
    args.quant_scale1 = operands_.In(slots_.quant_scale1, memory);
    args.deq_scale2 = operands_.In(slots_.deq_scale2, memory);
    args.quant_scale2 = operands_.In(slots_.quant_scale, memory);
    args.quant_offset2 = operands_.In(slots_.quant_offset, memory);
    args.pse = operands_.In(slots_.pse, memory);
    args.dense_mask = operands_.In(slots_.mask, memory);
    args.out = operands_.Out(slots_.out, memory);
    return args;
  }

  DecodeSlots slots_;
  DecodeSettings settings_;
  bool turned_ = false;
};

}  // namespace

aclnnStatus PrepareDecode(const DecodeTensors& tensors, const DecodeCall& call, uint64_t* workspace_size,
                          aclOpExecutor** executor) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", tensors.query},
                                            {"key", tensors.key},
                                            {"value", tensors.value},
                                            {"inputLayout", call.input_layout},
                                            {"attentionOut", tensors.attention_out},
                                            {"workspaceSize", workspace_size},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    if (const aclnnStatus null = CheckNoNullIn("key", tensors.key); null != ACLNN_SUCCESS) return null;
    if (const aclnnStatus null = CheckNoNullIn("value", tensors.value); null != ACLNN_SUCCESS) return null;
    Operands operands;
    auto slots = AddOperands(tensors, operands);
    if (!slots.ok()) return Report(slots.status());
    auto settings = SettingsOf(call);
    if (!settings.ok()) return Report(settings.status());
    auto operation = std::make_shared<DecodeOperation>(std::move(operands), std::move(*slots), std::move(*settings));
    if (Status status = operation->Prepare(call.block_size); !status.ok()) return Report(status);
    return ReleaseExecutor(std::move(operation), workspace_size, executor);
  });
}

}  // namespace fa::aclnn
