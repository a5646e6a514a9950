// Implements every version of aclnnFusedInferAttentionScore with fa::PlanInferAttention.
#include "aclnn/operations/infer_operation.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aclnn/operations/antiquant_scales.h"
#include "aclnn/operations/attention_call.h"
#include "aclnn/operations/infer_layouts.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/tensor_lists.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/executor.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/report.h"
#include "fa/infer_attention.h"

namespace fa::aclnn {
namespace {

using Form = Operands::Form;
using Slot = Operands::Slot;

constexpr Layout kLayouts[] = {Layout::kBSH,       Layout::kBSND,     Layout::kBNSD,      Layout::kTND,
                               Layout::kNTD,       Layout::kNSD,      Layout::kBNSD_BSND, Layout::kBSH_BNSD,
                               Layout::kBSND_BNSD, Layout::kBSH_NBSD, Layout::kBSND_NBSD, Layout::kBNSD_NBSD,
                               Layout::kTND_NTD,   Layout::kNTD_TND};

/// The place of each tensor among the operands.
struct InferSlots {
  Slot q, pse, mask, deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2;
  Slot antiquant_scale, antiquant_offset, block_table, q_padding, kv_padding;
  Slot k_scale, k_offset, v_scale, v_offset, q_scale;
  Slot k_prefix, v_prefix, q_rope, k_rope, sink, out, lse;
  std::vector<Slot> k, v;
};

/// A call in the library's terms.
struct InferSettings {
  InferAttentionOptions options;
  std::vector<int64_t> lengths_q, lengths_kv, length_prefix;  ///< with packed sequences, prefix sums
  int64_t key_antiquant_mode = 0, value_antiquant_mode = 0;
};

Result<InferSlots> AddOperands(const InferTensors& tensors, bool wants_lse, Operands& operands) {
  InferSlots slots{};
  Status status;
  slots.q = operands.Input("query", tensors.query, Form::kPages);
  slots.k = AddList("key", tensors.key, Form::kPages, operands, &status);
  slots.v = AddList("value", tensors.value, Form::kPages, operands, &status);
  slots.pse = operands.OptionalInput("pseShift", tensors.pse_shift);
  slots.mask = operands.OptionalInput("attenMask", tensors.atten_mask);
  slots.deq_scale1 = operands.OptionalInput("deqScale1", tensors.deq_scale1);
  slots.quant_scale1 = operands.OptionalInput("quantScale1", tensors.quant_scale1);
  slots.deq_scale2 = operands.OptionalInput("deqScale2", tensors.deq_scale2);
  slots.quant_scale2 = operands.OptionalInput("quantScale2", tensors.quant_scale2, Form::kDense);
  slots.quant_offset2 = operands.OptionalInput("quantOffset2", tensors.quant_offset2, Form::kDense);
  slots.antiquant_scale = operands.OptionalInput("antiquantScale", tensors.antiquant_scale);
  slots.antiquant_offset = operands.OptionalInput("antiquantOffset", tensors.antiquant_offset);
  slots.block_table = operands.OptionalInput("blockTable", tensors.block_table);
  slots.q_padding = operands.OptionalInput("queryPaddingSize", tensors.query_padding_size);
  slots.kv_padding = operands.OptionalInput("kvPaddingSize", tensors.kv_padding_size);
  slots.k_scale = operands.OptionalInput("keyAntiquantScale", tensors.key_antiquant_scale, Form::kAnyStride);
  slots.k_offset = operands.OptionalInput("keyAntiquantOffset", tensors.key_antiquant_offset, Form::kAnyStride);
  slots.v_scale = operands.OptionalInput("valueAntiquantScale", tensors.value_antiquant_scale, Form::kAnyStride);
  slots.v_offset = operands.OptionalInput("valueAntiquantOffset", tensors.value_antiquant_offset, Form::kAnyStride);
  slots.q_scale = operands.OptionalInput("dequantScaleQuery", tensors.dequant_scale_query, Form::kAnyStride);
  slots.k_prefix = operands.OptionalInput("keySharedPrefix", tensors.key_shared_prefix, Form::kPages);
  slots.v_prefix = operands.OptionalInput("valueSharedPrefix", tensors.value_shared_prefix, Form::kPages);
  slots.q_rope = operands.OptionalInput("queryRope", tensors.query_rope);
  slots.k_rope = operands.OptionalInput("keyRope", tensors.key_rope, Form::kPages);
  slots.sink = operands.OptionalInput("learnableSink", tensors.learnable_sink, Form::kAnyStride);
  slots.out = operands.Output("attentionOut", tensors.attention_out);
  slots.lse = Operands::kAbsent;
  if (wants_lse) {
    slots.lse = operands.Output("softmaxLse", tensors.softmax_lse);
  } else {
    operands.Ignored("softmaxLse", tensors.softmax_lse, /*output=*/true);
  }
  if (!status.ok()) return status;
  if (!operands.status().ok()) return operands.status();
  return slots;
}

// Checks the modes of 8-bit queries. With queryQuantMode 3, keys and values both have mode 0, or keys have a scale per
// token and head (mode 3) and values a scale per head (mode 2).
Status CheckQueryMode(const InferTensors& tensors, const InferCall& call) {
  const std::string mode = "queryQuantMode=" + std::to_string(call.query_quant_mode);
  const bool given = tensors.dequant_scale_query != nullptr;
  if (call.query_quant_mode == 0) {
    if (!given) return Status::Ok();
    return Status::InvalidArgument("dequantScaleQuery: given, want none (queryQuantMode 0)");
  }
  if (call.query_quant_mode == 6) return Status::InvalidArgument(mode + " is not served (scales of type E8M0)");
  if (call.query_quant_mode != 3) return Status::InvalidArgument(mode + ", want 0 or 3");
  if (!given) return Status::InvalidArgument("dequantScaleQuery: missing, want it with queryQuantMode 3");
  const int64_t key = call.key_antiquant_mode, value = call.value_antiquant_mode;
  if (key != 0 && key != 3) {
    return Status::InvalidArgument("keyAntiquantMode=" + std::to_string(key) + ", want 0 or 3 (queryQuantMode 3)");
  }
  if (const int64_t want = key == 3 ? 2 : 0; value != want) {
    return Status::InvalidArgument("valueAntiquantMode=" + std::to_string(value) + ", want " + std::to_string(want) +
                                   " (queryQuantMode 3, keyAntiquantMode " + std::to_string(key) + ")");
  }
  if (key == 0 && tensors.quant_scale1 != nullptr) {
    return Status::InvalidArgument("quantScale1: given, want none (queryQuantMode 3, keyAntiquantMode 0)");
  }
  return Status::Ok();
}

// Refuses what the device computes and the library does not.
Status CheckServed(const InferTensors& tensors, const InferCall& call) {
  const auto refused = [](const std::string& parameter, const char* why) {
    return Status::InvalidArgument(parameter + " is not served (" + why + ")");
  };
  if (tensors.key_rope_antiquant_scale != nullptr) return refused("keyRopeAntiquantScale", "keyRope is not quantised");
  FA_RETURN_IF_ERROR(CheckQueryMode(tensors, call));
  if (call.pse_type != 0) {
    return Status::InvalidArgument("pseType=" + std::to_string(call.pse_type) + ", want 0");
  }
  if (call.antiquant_mode != 0 && call.antiquant_mode != 1) {
    return Status::InvalidArgument("antiquantMode=" + std::to_string(call.antiquant_mode) + ", want 0 or 1");
  }
  return Status::Ok();
}

Result<InferSettings> SettingsOf(const InferTensors& tensors, const InferCall& call) {
  InferSettings settings;
  settings.key_antiquant_mode = call.key_antiquant_mode;
  settings.value_antiquant_mode = call.value_antiquant_mode;
  // With 8-bit queries and keys in pages, mode 3 means one scale per row of a page and head, as mode 5 does.
  if (call.query_quant_mode == 3 && call.key_antiquant_mode == 3 && tensors.block_table != nullptr) {
    settings.key_antiquant_mode = 5;
  }
  const std::string_view name = call.input_layout;
  const auto* layout =
      std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](Layout one) { return name == Name(one); });
  if (layout == std::end(kLayouts)) {
    std::string want;
    for (const Layout one : kLayouts) want += (want.empty() ? "" : ", ") + std::string(Name(one));
    return Status::InvalidArgument("inputLayout=\"" + std::string(name) + "\", want one of " + want);
  }
  if (call.num_heads <= 0) {
    return Status::InvalidArgument("numHeads=" + std::to_string(call.num_heads) + ", want >= 1");
  }
  if (call.num_key_value_heads < 0 ||
      (call.num_key_value_heads > 0 && call.num_heads % call.num_key_value_heads != 0)) {
    return Status::InvalidArgument("numKeyValueHeads=" + std::to_string(call.num_key_value_heads) +
                                   ", want 0 or a divisor of " + std::to_string(call.num_heads) + " (numHeads)");
  }
  const bool separate = tensors.key_antiquant_scale != nullptr;
  const bool per_token = separate ? PerToken(settings.key_antiquant_mode) || PerToken(settings.value_antiquant_mode)
                                  : call.antiquant_mode == 1;
  settings.options = {.layout = *layout,
                      .heads = call.num_heads,
                      .heads_kv = call.num_key_value_heads == 0 ? call.num_heads : call.num_key_value_heads,
                      .scale = static_cast<float>(call.scale_value),
                      .sparse_mode = call.sparse_mode,
                      .pre = BoundOf(call.pre_tokens),
                      .next = BoundOf(call.next_tokens),
                      .block_size = call.block_size,
                      .antiquant = per_token ? Antiquant::kPerToken : Antiquant::kPerTensorOrChannel,
                      .lse_without_keys = std::numeric_limits<float>::infinity()};
  const auto read = [](const char* parameter, const aclIntArray* array, std::vector<int64_t>* to) {
    auto values = ValuesOf(parameter, array);
    if (values.ok()) *to = std::move(*values);
    return values.status();
  };
  FA_RETURN_IF_ERROR(read("actualSeqLengths", tensors.actual_seq_lengths, &settings.lengths_q));
  FA_RETURN_IF_ERROR(read("actualSeqLengthsKv", tensors.actual_seq_lengths_kv, &settings.lengths_kv));
  FA_RETURN_IF_ERROR(read("actualSharedPrefixLen", tensors.actual_shared_prefix_len, &settings.length_prefix));
  return settings;
}

class InferOperation final : public PlannedOperation<InferAttentionArgs> {
 public:
  InferOperation(Operands operands, InferSlots slots, InferSettings settings)
      : PlannedOperation(std::move(operands), Names::kInfer),
        slots_(std::move(slots)),
        settings_(std::move(settings)) {}

  [[nodiscard]] Status Prepare(InferWorkspace workspace) {
    if (operands_.IsEmpty(slots_.out)) return Status::Ok();
    if (workspace == InferWorkspace::kOfTheseLengths) FindLongest();
    FA_RETURN_IF_ERROR(CheckMask());
    FA_RETURN_IF_ERROR(CheckScales());
    const Lists lists = ListsOf(nullptr);
    InferAttentionArgs args = Args(nullptr, lists);
    if (workspace == InferWorkspace::kOfTheseLengths) return Keep(PlanInferAttention(args, settings_.options));
    // Zeros stand for the lengths, because only the number of lengths matters here. Only the mask of packed trees (mode
    // 9) has a shape that depends on the lengths.
    const std::vector<int64_t> zeros(std::max(settings_.lengths_q.size(), settings_.lengths_kv.size()));
    if (settings_.options.sparse_mode != 9) {
      for (auto* lengths : {&args.lengths_q, &args.lengths_kv, &args.cu_q, &args.cu_kv}) {
        *lengths = {zeros.data(), lengths->size()};
      }
    }
    return Reserve(InferAttentionMaxWorkspace(args, settings_.options));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (operands_.IsEmpty(slots_.out)) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    const Lists lists = ListsOf(&memory);
    const InferAttentionArgs args = Args(&memory, lists);
    Status status =
        planned() ? RunPlan(args, memory) : RunOtherPlan(PlanInferAttention(args, settings_.options), args, memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  struct Lists {
    std::vector<TensorView> k, v, k_rope;
  };

  // Modes 2, 3 and 4 need the triangular mask tensor. In layouts with an axis of rows, queries of a single row need
  // none.
  [[nodiscard]] Status CheckMask() const {
    const int64_t mode = settings_.options.sparse_mode;
    if (mode < 2 || mode > 4 || slots_.mask != Operands::kAbsent) return Status::Ok();
    const Layout layout = settings_.options.layout;
    const Dims shape = operands_.In(slots_.q, nullptr).shape;
    const int rows = HeadsBeforeRows(layout) ? 2 : 1;
    const bool single = !IsPacked(layout) && shape.rank() > rows && shape[rows] == 1;
    if (single && slots_.q_rope == Operands::kAbsent) return Status::Ok();
    return Status::InvalidArgument("attenMask: missing, want [2048,2048] (sparseMode " + std::to_string(mode) + ")");
  }

  // Finds the longest of the sequences whose keys lie in pages.
  void FindLongest() {
    const std::vector<int64_t>& lengths = settings_.lengths_kv;
    const auto used = std::min<int64_t>(std::ssize(lengths), operands_.In(slots_.block_table, nullptr).shape[0]);
    for (int64_t b = 0; b < used; ++b) longest_ = std::max(longest_, lengths[static_cast<size_t>(b)]);
  }

  /// The scales of keys, of values and of queries, in the library's shapes.
  struct Scales {
    TensorView k_scale, k_offset, v_scale, v_offset, q_scale;
  };
  [[nodiscard]] Status ReadScales(const CallMemory* memory, Scales* scales) const {
    const bool paged = slots_.block_table != Operands::kAbsent;
    const auto read = [&](const char* name, Slot slot, const char* mode_name, int64_t mode,
                          const std::vector<Slot>& list, TensorView* view) {
      if (slot == Operands::kAbsent || list.empty()) return Status::Ok();
      const InferAttentionOptions& options = settings_.options;
      KeySizes sizes;
      for (const Slot keys : list) {
        const int64_t rows = sizes.rows;
        sizes = KeySizesOf(Keys(keys, nullptr), options.layout, options.heads_kv, paged, options.block_size);
        sizes.rows = std::max(sizes.rows, rows);
      }
      if (list.size() > 1) sizes.batch = static_cast<int64_t>(list.size());
      if (paged) sizes.sequences = operands_.In(slots_.block_table, nullptr).shape[0];
      sizes.tokens = longest_;
      auto scale = ScaleOfMode(name, operands_.In(slot, memory), mode_name, mode, sizes);
      if (scale.ok()) *view = *scale;
      return scale.status();
    };
    const int64_t k = settings_.key_antiquant_mode, v = settings_.value_antiquant_mode;
    const char *k_mode = "keyAntiquantMode", *v_mode = "valueAntiquantMode";
    FA_RETURN_IF_ERROR(read("keyAntiquantScale", slots_.k_scale, k_mode, k, slots_.k, &scales->k_scale));
    FA_RETURN_IF_ERROR(read("keyAntiquantOffset", slots_.k_offset, k_mode, k, slots_.k, &scales->k_offset));
    FA_RETURN_IF_ERROR(read("valueAntiquantScale", slots_.v_scale, v_mode, v, slots_.v, &scales->v_scale));
    FA_RETURN_IF_ERROR(read("valueAntiquantOffset", slots_.v_offset, v_mode, v, slots_.v, &scales->v_offset));
    auto of_query = ScaleOfQuery("dequantScaleQuery", operands_.In(slots_.q_scale, memory),
                                 operands_.In(slots_.q, nullptr), settings_.options.layout, settings_.options.heads);
    if (of_query.ok()) scales->q_scale = *of_query;
    return of_query.status();
  }
  [[nodiscard]] bool separate() const { return slots_.k_scale != Operands::kAbsent; }

  // Checks scales and offsets where the library's errors could not use the device's parameter names. Keys and values
  // must both have offsets, or neither.
  [[nodiscard]] Status CheckScales() const {
    const auto both = [](Slot key, Slot value, const std::string& key_name, const std::string& value_name) {
      if ((key == Operands::kAbsent) == (value == Operands::kAbsent)) return Status::Ok();
      return Status::InvalidArgument((key == Operands::kAbsent ? key_name : value_name) +
                                     ": missing, want both or none");
    };
    FA_RETURN_IF_ERROR(both(slots_.k_scale, slots_.v_scale, "keyAntiquantScale", "valueAntiquantScale"));
    const int64_t k = settings_.key_antiquant_mode, v = settings_.value_antiquant_mode;
    const auto of_pages = [](int64_t mode) { return mode == 4 || mode == 5; };
    if (separate() && slots_.block_table != Operands::kAbsent &&
        ((PerToken(k) && of_pages(v)) || (of_pages(k) && PerToken(v)))) {
      return Status::InvalidArgument("valueAntiquantMode=" + std::to_string(v) +
                                     ", want scales of tokens for both, or of rows of pages (keyAntiquantMode " +
                                     std::to_string(k) + ")");
    }
    FA_RETURN_IF_ERROR(both(slots_.k_offset, slots_.v_offset, "keyAntiquantOffset", "valueAntiquantOffset"));
    if (slots_.k_offset != Operands::kAbsent && !separate()) {
      return Status::InvalidArgument("keyAntiquantScale: missing, want it with keyAntiquantOffset");
    }
    Scales scales;
    return ReadScales(nullptr, &scales);
  }

  // An int32 tensor of keys or values holds eight 4-bit numbers per element.
  [[nodiscard]] TensorView Keys(Slot slot, const CallMemory* memory) const {
    TensorView keys = operands_.In(slot, memory);
    if (keys.dtype == DType::kI32) keys.dtype = DType::kI4x8;
    return keys;
  }

  [[nodiscard]] Lists ListsOf(const CallMemory* memory) const {
    Lists lists;
    for (const Slot slot : slots_.k) lists.k.push_back(Keys(slot, memory));
    for (const Slot slot : slots_.v) lists.v.push_back(Keys(slot, memory));
    if (slots_.k_rope != Operands::kAbsent) lists.k_rope.push_back(operands_.In(slots_.k_rope, memory));
    return lists;
  }

  [[nodiscard]] InferAttentionArgs Args(const CallMemory* memory, const Lists& lists) const {
    const bool packed = IsPacked(settings_.options.layout);
    const bool paged = slots_.block_table != Operands::kAbsent;
    InferAttentionArgs args;
    args.q = operands_.In(slots_.q, memory);
    args.k = lists.k;
    args.v = lists.v;
    args.q_rope = operands_.In(slots_.q_rope, memory);
    args.k_rope = lists.k_rope;
    (packed ? args.cu_q : args.lengths_q) = settings_.lengths_q;
    (packed && !paged ? args.cu_kv : args.lengths_kv) = settings_.lengths_kv;
    args.block_table = operands_.In(slots_.block_table, memory);
    args.q_padding = operands_.In(slots_.q_padding, memory);
    args.kv_padding = operands_.In(slots_.kv_padding, memory);
    args.k_prefix = Keys(slots_.k_prefix, memory);
    args.v_prefix = Keys(slots_.v_prefix, memory);
    args.length_prefix = settings_.length_prefix;
    Scales scales;
    static_cast<void>(ReadScales(memory, &scales));  // the first phase has checked the scales
    args.q_scale = scales.q_scale;
    if (separate()) {
      args.k_scale = scales.k_scale;
      args.k_offset = scales.k_offset;
      args.v_scale = scales.v_scale;
      args.v_offset = scales.v_offset;
    } else {
      args.antiquant_scale = operands_.In(slots_.antiquant_scale, memory);
      args.antiquant_offset = operands_.In(slots_.antiquant_offset, memory);
    }
    args.deq_scale1 = operands_.In(slots_.deq_scale1, memory);
    args.quant_scale1 = operands_.In(slots_.quant_scale1, memory);
    args.deq_scale2 = operands_.In(slots_.deq_scale2, memory);
    args.quant_scale2 = operands_.In(slots_.quant_scale2, memory);
    args.quant_offset2 = operands_.In(slots_.quant_offset2, memory);
    args.pse = operands_.In(slots_.pse, memory);
    args.dense_mask = operands_.In(slots_.mask, memory);
    args.sink = operands_.In(slots_.sink, memory);
    args.out = operands_.Out(slots_.out, memory);
    args.lse = operands_.Out(slots_.lse, memory);
    return args;
  }

  InferSlots slots_;
  InferSettings settings_;
  int64_t longest_ = 0;  ///< tokens of the longest sequence over pages; 0 if the plan must fit any lengths
};

}  // namespace

aclnnStatus PrepareInfer(const InferTensors& tensors, const InferCall& call, InferWorkspace workspace,
                         uint64_t* workspace_size, aclOpExecutor** executor) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    // Without the flag, lse may be null.
    const void* lse = call.softmax_lse_flag ? tensors.softmax_lse : tensors.attention_out;
    const aclnnStatus error = CheckNotNull({{"query", tensors.query},
                                            {"key", tensors.key},
                                            {"value", tensors.value},
                                            {"inputLayout", call.input_layout},
                                            {"attentionOut", tensors.attention_out},
                                            {"softmaxLse", lse},
                                            {"workspaceSize", workspace_size},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    if (const aclnnStatus null = CheckNoNullIn("key", tensors.key); null != ACLNN_SUCCESS) return null;
    if (const aclnnStatus null = CheckNoNullIn("value", tensors.value); null != ACLNN_SUCCESS) return null;
    if (Status status = CheckServed(tensors, call); !status.ok()) return Report(status);
    Operands operands;
    auto slots = AddOperands(tensors, call.softmax_lse_flag, operands);
    if (!slots.ok()) return Report(slots.status());
    auto settings = SettingsOf(tensors, call);
    if (!settings.ok()) return Report(settings.status());
    auto operation = std::make_shared<InferOperation>(std::move(operands), std::move(*slots), std::move(*settings));
    if (Status status = operation->Prepare(workspace); !status.ok()) return Report(status);
    return ReleaseExecutor(std::move(operation), workspace_size, executor);
  });
}

}  // namespace fa::aclnn
