// A decode is bound as an equivalent dense call. The dense call has one tensor of keys and one of values, in the layout
// of the decode. Both tensors have as many rows as the longest batch element has keys. The calls differ only in where
// the rows of keys and values lie (KeyStorage).
#include "ops/inference/bind_decode.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "core/saturating.h"
#include "ops/bind/bind_parts.h"
#include "ops/bind/check_pages.h"
#include "ops/bind/prefix_sums.h"
#include "ops/inference/bind_decode_parts.h"
#include "ops/inference/product_scales.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

using core::kernels::IsCompressed;

Status CheckCounts(const DecodeBinding& call) {
  const size_t tensors = call.args.k.size();
  if (tensors == 0) return Status::InvalidArgument(Arg("k").Says("missing"));
  if (call.args.v.size() != tensors) {
    return Status::InvalidArgument(Arg("v").Has(std::to_string(call.args.v.size())) + " tensors, want " +
                                   std::to_string(tensors) + " (" + Arg("k") + ")");
  }
  if (!call.args.k_rope.empty() && call.args.k_rope.size() != tensors) {
    return Status::InvalidArgument(Arg("k_rope").Has(std::to_string(call.args.k_rope.size())) + " tensors, want " +
                                   std::to_string(tensors) + " (" + Arg("k") + ")");
  }
  const bool one = call.paged() || call.packed();
  if (tensors == 1 || (!one && static_cast<int64_t>(tensors) == call.batch())) return Status::Ok();
  return Status::InvalidArgument(Arg("k").Has(std::to_string(tensors)) + " tensors, want 1" +
                                 (call.paged() ? " (with " + Arg("block_table") + ")"
                                  : one        ? " (" + Arg("layout") + " " + Name(call.options.layout) + ")"
                                               : ErrorText(" or " + std::to_string(call.batch()) + " (batch)")));
}

Status CheckTypes(const DecodeBinding& call) {
  const DType first = call.args.k[0].dtype, query = call.args.q.dtype;
  const bool like_query = call.int8_products() || call.scaled_queries();
  FA_RETURN_IF_ERROR(call.scaled_queries() ? CheckScaledTypes(call) : CheckOutputType(query, call.args.out.dtype));
  for (const auto& [list, tensors] : {std::pair{"k", call.args.k}, std::pair{"v", call.args.v}}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const DType dtype = tensors[i].dtype;
      if (dtype != query && (like_query || !IsCompressed(dtype))) {
        const ErrorText own = TypeOf("q", query);
        return WrongType(NameInList(list, tensors, i).c_str(), dtype,
                         like_query ? own : own + ", i8, f8e4m3, f8e5m2 or i4x8");
      }
      if (dtype != first) {
        return WrongType(NameInList(list, tensors, i).c_str(), dtype,
                         TypeOf(NameInList("k", call.args.k, 0).c_str(), first));
      }
    }
  }
  return Status::Ok();
}

// Checks the rope tensors. Without q_scale, keys and rope tensors must have the query's type. With q_scale, rope
// tensors may have any float type.
Status CheckRope(const DecodeBinding& call) {
  const bool has_q = call.args.q_rope.data != nullptr, has_k = !call.args.k_rope.empty();
  if (!has_q && !has_k) return Status::Ok();
  if (has_q != has_k) {
    return Status::InvalidArgument(Arg(has_q ? "k_rope" : "q_rope").Says("missing (") +
                                   Arg(has_q ? "q_rope" : "k_rope") + " is given)");
  }
  const DType rope = call.args.q_rope.dtype;
  if (IsCompressed(call.args.k[0].dtype) && !call.scaled_queries()) {
    return Status::InvalidArgument(Arg("k_rope").Says("given, want none (") + Arg("k", ".dtype") + " is " +
                                   Name(call.args.k[0].dtype) + ")");
  }
  const bool own = call.scaled_queries();
  if (own && rope > DType::kBF16) return WrongType("q_rope", rope, "f32, f16 or bf16");
  if (!own && rope != call.args.q.dtype) return WrongType("q_rope", rope, TypeOf("q", call.args.q.dtype));
  for (size_t i = 0; i < call.args.k_rope.size(); ++i) {
    const DType dtype = call.args.k_rope[i].dtype;
    if (dtype == rope) continue;
    return WrongType(NameInList("k_rope", call.args.k_rope, i).c_str(), dtype, TypeOf(own ? "q_rope" : "q", rope));
  }
  return Status::Ok();
}

Status BindOneTensor(DecodeBinding& call) {
  call.k = call.keys[0];
  call.v = call.values[0];
  if (call.has_rope()) call.k_rope = call.args.k_rope[0];
  call.k.dtype = call.v.dtype = call.dense_type();
  return BindDense(call, call.args.lengths_kv);
}

/// Turns strides in columns into strides in elements of the type.
void CountElements(layout::Rows& rows) {
  if (rows.dtype != DType::kI4x8) return;
  for (int64_t* stride : {&rows.batch, &rows.head, &rows.row}) *stride /= kColumnsOfI4x8;
}

/// Returns the tensors with one element per column. Strides that would pass 2^63 are refused later, as all large
/// strides are.
std::vector<TensorView> WithColumns(std::span<const TensorView> tensors) {
  std::vector<TensorView> columns(tensors.begin(), tensors.end());
  for (TensorView& tensor : columns) {
    const int rank = tensor.shape.rank();
    if (tensor.dtype != DType::kI4x8 || rank == 0 || rank > Dims::kMaxRank) continue;
    tensor.shape[rank - 1] = core::SaturatedProduct(tensor.shape[rank - 1], kColumnsOfI4x8);
    for (int dim = 0; dim + 1 < tensor.stride.rank(); ++dim) {
      tensor.stride[dim] = core::SaturatedProduct(tensor.stride[dim], kColumnsOfI4x8);
    }
  }
  return columns;
}

void SetReadsOfKeys(DecodeBinding& call) {
  BoundAttention& attention = call.bound.attention;
  const KeyStorage& storage = call.bound.storage;
  attention.decode = !call.int8_products();
  attention.problem.whole_rows = call.int8_products() || call.scaled_queries();
  attention.q.dtype = call.args.q.dtype;
  if (call.has_rope()) attention.q_rope.dtype = attention.k_rope.dtype = call.args.q_rope.dtype;
  attention.k.dtype = call.args.k[0].dtype;
  attention.v.dtype = call.args.v[0].dtype;
  for (layout::Rows* rows : {&attention.k, &attention.v}) CountElements(*rows);
  for (std::vector<layout::Rows>* list : {&call.bound.storage.k, &call.bound.storage.v}) {
    for (layout::Rows& rows : *list) CountElements(rows);
  }
  const bool behind_prefix = call.fused != nullptr && call.fused->prefix_rows > 0;
  attention.problem.joins_pieces =
      std::max({storage.k_pieces, storage.k_rope_pieces, storage.v_pieces}) != layout::kWholeRows;
  if (storage.paged() || storage.quantized || behind_prefix) {
    attention.problem.k_in_place = attention.problem.v_in_place = false;
  }
}

// Turns a mask over [batch, rows, keys] or [batch, keys] into a mask over [batch, heads, rows, keys]. A dimension that
// the mask lacks gets size 1.
TensorView WithRows(const DecodeBinding& call, const TensorView& mask) {
  const int rank = mask.shape.rank();
  if (mask.data == nullptr || rank < 2 || rank > 4 || (!mask.stride.empty() && mask.stride.rank() != rank)) return mask;
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  const int64_t sq = call.args.q.shape[call.axes.seq];
  TensorView whole = mask;
  const int64_t heads = rank == 4 ? mask.shape[1] : 1, rows = rank == 2 ? 1 : mask.shape[rank - 2];
  whole.shape = {mask.shape[0], heads, rows == 1 ? sq : rows, mask.shape[rank - 1]};
  whole.stride = {stride[0], rank == 4 ? stride[1] : 0, rows == 1 ? 0 : stride[rank - 2], stride[rank - 1]};
  return whole;
}

/// Returns the options of the equivalent forward.
AttentionOptions ForwardOptions(const DecodeAttentionOptions& options) {
  AttentionOptions forward;
  forward.layout = options.layout;
  forward.heads = options.heads;
  forward.scale = options.scale;
  forward.mask = options.mask;
  forward.pse_type = PseType::kScaleThenAdd;
  CopyNumbers(options, forward);
  return forward;
}

Status CheckInt8Products(const DecodeBinding& call) {
  if (!call.int8_products()) return Status::Ok();
  const std::pair<const char*, bool> given[] = {{"sink", call.args.sink.data != nullptr},
                                                {"lse", call.args.lse.data != nullptr}};
  return CheckFloatsOnly(given, ForwardOptions(call.options));
}

Status BindOutput(DecodeBinding& call) {
  const tiling::AttentionProblem& problem = call.bound.attention.problem;
  auto scales =
      BindOutputScales({call.args.q.dtype, call.args.out.dtype, call.args.quant_scale2, call.args.quant_offset2},
                       problem.heads * problem.dv);
  if (!scales.ok()) return scales.status();
  call.bound.scales = *scales;
  return CheckOffsetRows(call.args.quant_offset2, call.options.mask, problem);
}

void KeepTensors(DecodeBinding& call) {
  call.bound.planned = KeepPlanned(TensorsOf(call.args));
  const auto keep = [](const char* name, std::span<const TensorView> tensors) {
    std::vector<CallTensor> list;
    for (const TensorView& tensor : tensors) list.push_back(ListedTensor(name, tensor));
    return KeepPlanned(list);
  };
  call.bound.planned_k = keep("k", call.args.k);
  call.bound.planned_k_rope = keep("k_rope", call.args.k_rope);
  call.bound.planned_v = keep("v", call.args.v);
  call.bound.lengths_q.assign(call.args.lengths_q.begin(), call.args.lengths_q.end());
  call.bound.lengths_kv.assign(call.args.lengths_kv.begin(), call.args.lengths_kv.end());
}

Status Bind(DecodeBinding& call) {
  if (call.options.layout == Layout::kTND && !call.paged() && call.fused == nullptr) {
    return Status::InvalidArgument(Arg("layout").Is("TND, want BNSD, BSND, BSH, SBH or BNSD_BSND (without ") +
                                   Arg("block_table") + ")");
  }
  // BindDense refuses both kinds of calls: q does not have the rank of the layout, or only fused inference serves the
  // layout.
  const bool own_layout = call.fused != nullptr || call.options.layout <= Layout::kBNSD_BSND;
  if (call.args.q.shape.rank() != call.axes.rank || !own_layout) {
    call.k = call.v = call.args.q;
    return BindDense(call, {});
  }
  if (call.packed()) {
    const int seq = call.axes.seq;
    FA_RETURN_IF_ERROR(CheckPrefixSums("cu_q", call.args.cu_q, call.args.q.shape[seq], Arg("q", ".shape", At(seq))));
  }
  if (call.args.q.dtype > DType::kBF16 && !call.int8_products() && !call.scaled_queries()) {
    if (call.fused != nullptr && call.args.q.dtype == DType::kF8E4M3) {
      return Status::InvalidArgument(Arg("q_scale").Says("missing (") + Arg("q", ".dtype") + " is f8e4m3)");
    }
    return WrongType("q", call.args.q.dtype, "f32, f16, bf16 or i8");
  }
  FA_RETURN_IF_ERROR(CheckCounts(call));
  FA_RETURN_IF_ERROR(CheckTypes(call));
  FA_RETURN_IF_ERROR(CheckRope(call));
  if (!call.scaled_queries()) FA_RETURN_IF_ERROR(CheckProductScales(call.args.q.dtype, ProductScalesOf(call.args)));
  FA_RETURN_IF_ERROR(CheckInt8Products(call));
  call.own_types = true;
  call.dense_mask = call.fused != nullptr ? call.args.dense_mask : WithRows(call, call.args.dense_mask);
  if (call.args.pse.shape.rank() == 4) call.pse = WithRows(call, call.args.pse);
  call.bound.storage.quantized = IsCompressed(call.args.k[0].dtype) && !call.int8_products();
  if (call.bound.storage.quantized) FA_RETURN_IF_ERROR(CheckCompressed(call));
  call.keys = WithColumns(call.args.k);
  call.values = WithColumns(call.args.v);
  FA_RETURN_IF_ERROR(call.paged()             ? BindKeyPages(call)
                     : call.args.k.size() > 1 ? BindKeyList(call)
                                              : BindOneTensor(call));
  SetReadsOfKeys(call);
  FA_RETURN_IF_ERROR(BindAntiquant(call));
  FA_RETURN_IF_ERROR(BindQueryScale(call));
  FA_RETURN_IF_ERROR(BindOutput(call));
  KeepTensors(call);  // fused inference then replaces `planned` by the longer list of its own tensors
  return Status::Ok();
}

}  // namespace

std::string NameInList(const char* list, std::span<const TensorView> tensors, size_t i) {
  return tensors.size() == 1 ? list : std::string(list) + "[" + std::to_string(i) + "]";
}

Status BindDense(DecodeBinding& call, std::span<const int64_t> lengths_kv) {
  // k_rope is present exactly if q_rope is. Only a run knows the address of k_rope, so the address of q_rope marks
  // k_rope as present.
  if (call.has_rope()) call.k_rope.data = call.args.q_rope.data;
  const FusedDecode fused = call.fused != nullptr ? *call.fused : FusedDecode{};
  TensorView q = call.args.q, q_rope = call.args.q_rope;
  if (call.scaled_queries() && call.own_types) q.dtype = q_rope.dtype = call.k_rope.dtype = call.dense_type();
  auto bound = BindInference({.q = q,
                              .k = call.k,
                              .v = call.v,
                              .q_rope = q_rope,
                              .k_rope = call.k_rope,
                              .pse = call.pse,
                              .dense_mask = call.dense_mask,
                              .sink = call.args.sink,
                              .pair_mask = call.args.pair_mask,
                              .cu_q = call.args.cu_q,
                              .cu_kv = fused.cu_kv,
                              .out = call.args.out,
                              .lse = call.args.lse},
                             ForwardOptions(call.options),
                             {.lengths = {call.args.lengths_q, lengths_kv},
                              .own_types = call.own_types,
                              .paged = call.paged(),
                              .fused = call.fused != nullptr,
                              .prefix_rows = fused.prefix_rows});
  if (!bound.ok()) return bound.status();
  call.bound.attention = std::move(*bound);
  return Status::Ok();
}

layout::Rows KeyRowsOf(const TensorView& tensor, const layout::Axes& axes, int64_t head_size) {
  return layout::RowsOf(tensor, axes, tensor.dtype == DType::kI4x8 ? head_size / kColumnsOfI4x8 : head_size);
}

Result<BoundDecode> BindDecode(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options,
                               const FusedDecode* fused) {
  Result<BoundDecode> result{BoundDecode{}};
  DecodeBinding call{args, options, *result, layout::AxesOf(options.layout)};
  call.fused = fused;
  call.pse = args.pse;
  call.dense_mask = args.dense_mask;
  FA_RETURN_IF_ERROR(Bind(call));
  return result;
}

namespace {

/// Returns check(tensor) for an element of a list. The element's name is made only if there is an error.
template <typename Check>
Status CheckInList(const char* list, std::span<const TensorView> tensors, size_t i, const Check& check) {
  if (check(ListedTensor(list, tensors[i])).ok()) return Status::Ok();
  return check(ListedTensor(NameInList(list, tensors, i).c_str(), tensors[i]));
}

Status CheckList(const char* list, std::span<const TensorView> tensors, std::span<const PlannedTensor> planned) {
  if (tensors.size() != planned.size()) {
    return Status::InvalidArgument(Arg(list).Has(std::to_string(tensors.size())) + " tensors, want " +
                                   std::to_string(planned.size()) + " (as planned)");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    FA_RETURN_IF_ERROR(
        CheckInList(list, tensors, i, [&](const CallTensor& tensor) { return CheckPlanned(tensor, planned[i]); }));
  }
  return Status::Ok();
}

/// Checks one output against all other tensors of the call.
Status CheckApartFromAll(const BoundDecode& bound, const DecodeAttentionArgs& args, const CallTensors& tensors,
                         size_t output) {
  const auto check = [&](const CallTensor& other, const PlannedTensor& planned) {
    return CheckApart(tensors[output], bound.planned[output], other, planned);
  };
  for (size_t i = 0; i < output; ++i) {
    FA_RETURN_IF_ERROR(check(tensors[i], bound.planned[i]));
  }
  const auto check_element = [&](const char* list, std::span<const TensorView> given,
                                 std::span<const PlannedTensor> planned, size_t i) {
    return CheckInList(list, given, i, [&](const CallTensor& tensor) { return check(tensor, planned[i]); });
  };
  for (size_t i = 0; i < args.k.size(); ++i) {
    FA_RETURN_IF_ERROR(check_element("k", args.k, bound.planned_k, i));
    FA_RETURN_IF_ERROR(check_element("v", args.v, bound.planned_v, i));
    if (args.k_rope.empty()) continue;
    FA_RETURN_IF_ERROR(check_element("k_rope", args.k_rope, bound.planned_k_rope, i));
  }
  return Status::Ok();
}

/// Returns the pages whose rows the result depends on. A task that packs floats, or that reads pairs of bf16, may also
/// read some rows before these pages. The result does not depend on such rows, and HeadRows::Page clamps their page
/// numbers.
tiling::Interval UsedPages(const tiling::Sequence& sequence, int64_t page_rows) {
  if (sequence.sq == 0) return {};
  const tiling::Interval keys = sequence.rule.KeysOfRows({0, sequence.sq});
  if (keys.empty()) return {};
  const int64_t begin = keys.begin / kKeyStep * kKeyStep;
  const int64_t end = std::min(core::RoundUp(keys.end, kKeyStep), sequence.sk);
  return {begin / page_rows, core::CeilDiv(end, page_rows)};
}

Status CheckBlockTable(const BoundDecode& bound, const TensorView& block_table) {
  const auto& sequences = bound.attention.problem.sequences;
  layout::BlockTable table = bound.storage.table;
  table.entries = static_cast<const int32_t*>(block_table.data);
  for (size_t b = 0; b < sequences.size(); ++b) {
    FA_RETURN_IF_ERROR(CheckPages(table, static_cast<int64_t>(b), UsedPages(sequences[b], table.page_rows)));
  }
  return Status::Ok();
}

}  // namespace

Status CheckDecodeRunArgs(const BoundDecode& bound, const DecodeAttentionArgs& args, const CallTensors& tensors) {
  FA_RETURN_IF_ERROR(CheckAllPlanned(tensors, bound.planned));
  FA_RETURN_IF_ERROR(CheckPlannedPairMask(args.pair_mask, bound.attention.pair_mask_shape));
  FA_RETURN_IF_ERROR(CheckList("k", args.k, bound.planned_k));
  FA_RETURN_IF_ERROR(CheckList("v", args.v, bound.planned_v));
  FA_RETURN_IF_ERROR(CheckList("k_rope", args.k_rope, bound.planned_k_rope));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("cu_q", args.cu_q, bound.attention.cu_q));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("lengths_q", args.lengths_q, bound.lengths_q));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("lengths_kv", args.lengths_kv, bound.lengths_kv));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].output) continue;
    FA_RETURN_IF_ERROR(CheckApartFromAll(bound, args, tensors, i));
  }
  return bound.storage.paged() ? CheckBlockTable(bound, args.block_table) : Status::Ok();
}

/// Returns the scales or the offsets that lie in `tensor`, whose layout is `bound`.
layout::StoredRows NumbersOf(const TensorView& tensor, const BoundNumbers& bound, const layout::BlockTable& table) {
  if (tensor.data == nullptr) return {};
  const auto* data = static_cast<const std::byte*>(tensor.data);
  return {.view = {data + bound.begin * static_cast<int64_t>(SizeOf(tensor.dtype)), bound.rows}, .table = table};
}

Antiquants AntiquantsOf(const BoundAntiquants& bound, const TensorView& scale, const TensorView& offset,
                        const layout::BlockTable& table) {
  const layout::BlockTable own = bound.paged ? table : layout::BlockTable{};
  return {.scale = NumbersOf(scale, bound.scale, own),
          .offset = NumbersOf(offset, bound.offset, own),
          .scale_group = bound.scale.group,
          .offset_group = bound.offset.group,
          .groups = bound.groups,
          .per_row = bound.per_row};
}

ForwardRows RowsOf(const BoundDecode& bound, const DecodeAttentionArgs& args) {
  ForwardRows rows =
      RowsOf(bound.attention,
             ForwardAddresses{
                 .q = args.q.data,
                 .k = args.k[0].data,
                 .v = args.v[0].data,
                 .q_rope = args.q_rope.data,
                 .k_rope = args.k_rope.empty() ? nullptr : args.k_rope[0].data,
                 .sink = args.sink.data,
                 .scores = {.pse = args.pse.data, .dense_mask = args.dense_mask.data, .pair_mask = args.pair_mask},
                 .out = args.out.data,
                 .lse = args.lse.data});
  const KeyStorage& storage = bound.storage;
  if (storage.paged()) {
    layout::BlockTable table = storage.table;
    table.entries = static_cast<const int32_t*>(args.block_table.data);
    rows.k.table = rows.k_rope.table = rows.v.table = table;
    rows.k.piece_stride = storage.k_pieces;
    rows.k_rope.piece_stride = storage.k_rope_pieces;
    rows.v.piece_stride = storage.v_pieces;
  } else if (!storage.k.empty()) {
    rows.k.list = args.k;
    rows.k.list_rows = storage.k;
    rows.k_rope.list = args.k_rope;
    rows.k_rope.list_rows = storage.k_rope;
    rows.v.list = args.v;
    rows.v.list_rows = storage.v;
  }
  if (storage.quantized) {
    const bool combined = args.antiquant_scale.data != nullptr;
    rows.k_antiquants = AntiquantsOf(storage.k_antiquants, combined ? args.antiquant_scale : args.k_scale,
                                     combined ? args.antiquant_offset : args.k_offset, rows.k.table);
    rows.v_antiquants = AntiquantsOf(storage.v_antiquants, combined ? args.antiquant_scale : args.v_scale,
                                     combined ? args.antiquant_offset : args.v_offset, rows.k.table);
  }
  return rows;
}

}  // namespace fa::ops
