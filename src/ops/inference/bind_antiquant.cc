// Binds the scales and offsets of compressed keys and values.
#include <algorithm>
#include <string>
#include <utility>

#include "ops/inference/bind_decode_parts.h"
#include "ops/tile/antiquant_rows.h"

namespace fa::ops {
namespace {

using layout::FilledStride;

int64_t LongestSequence(const DecodeBinding& call) {
  int64_t longest = 0;
  for (const tiling::Sequence& sequence : call.bound.attention.problem.sequences) {
    longest = std::max(longest, sequence.sk);
  }
  return longest;
}

Status CheckTypeAndView(const char* name, const TensorView& tensor) {
  if (tensor.dtype > DType::kBF16) return WrongType(name, tensor.dtype, "f32, f16 or bf16");
  return CheckView(name, tensor, /*any_innermost=*/true);
}

Status CheckAntiquant(const DecodeBinding& call, const char* name, const TensorView& tensor) {
  FA_RETURN_IF_ERROR(CheckTypeAndView(name, tensor));
  const tiling::AttentionProblem& problem = call.bound.attention.problem;
  const Dims& shape = tensor.shape;
  const int64_t heads = problem.heads_kv, d = problem.d;
  if (call.options.antiquant == Antiquant::kPerToken) {
    const int64_t longest = LongestSequence(call);
    const bool of_heads = shape.rank() == 4 && shape[2] == heads;
    const bool fits = (shape.rank() == 3 || of_heads) && shape[0] == 2 && shape[1] == call.batch();
    if (fits && shape[shape.rank() - 1] >= longest) return Status::Ok();
    const Dims per_key = {2, call.batch(), longest}, per_head = {2, call.batch(), heads, longest};
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want " + Text(per_key) + " or " +
                                   Text(per_head) + " (one per key)");
  }
  if (shape == Dims{2}) return Status::Ok();
  if (shape == Dims{2, heads, d} || shape == Dims{2, heads, 1, d} || shape == Dims{2, heads * d}) {
    if (problem.dv == d) return Status::Ok();
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want [2] (heads of " + Arg("v") +
                                   " have another size than those of " + Arg("k") + ")");
  }
  return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want [2], [2," + std::to_string(heads) + "," +
                                 std::to_string(d) + "] or [2," + std::to_string(heads * d) + "]");
}

/// Returns the layout of the scales or offsets of keys (side 0) or values (side 1) in a combined tensor.
BoundNumbers NumbersOfSide(const DecodeBinding& call, const TensorView& tensor, int64_t side) {
  const Dims stride = FilledStride(tensor.shape, tensor.stride);
  const int rank = tensor.shape.rank();
  BoundNumbers numbers{.begin = side * stride[0], .rows = {.dtype = tensor.dtype}};
  if (rank == 1) return numbers;
  if (call.options.antiquant == Antiquant::kPerToken) {
    numbers.rows.batch = stride[1];
    if (rank == 4) numbers.rows.head = stride[2];
    numbers.rows.row = stride[rank - 1];
    return numbers;
  }
  numbers.group = stride[rank - 1];
  numbers.rows.head = rank == 2 ? call.bound.attention.problem.d * stride[1] : stride[1];
  return numbers;
}

Status BindCombined(DecodeBinding& call) {
  const TensorView &scale = call.args.antiquant_scale, &offset = call.args.antiquant_offset;
  if (call.options.antiquant > Antiquant::kPerToken) {
    return Status::InvalidArgument(Arg("antiquant").Is(std::to_string(static_cast<int>(call.options.antiquant))) +
                                   ", want kPerTensorOrChannel or kPerToken");
  }
  FA_RETURN_IF_ERROR(CheckAntiquant(call, "antiquant_scale", scale));
  if (offset.data != nullptr) {
    FA_RETURN_IF_ERROR(CheckAntiquant(call, "antiquant_offset", offset));
    if (offset.shape != scale.shape) {
      return Status::InvalidArgument(Arg("antiquant_offset", ".shape").Is(Text(offset.shape)) + ", want " +
                                     Text(scale.shape) + " (" + Arg("antiquant_scale") + ")");
    }
  }
  const bool per_row = call.options.antiquant == Antiquant::kPerToken;
  const int64_t groups = per_row || scale.shape.rank() == 1 ? 1 : call.bound.attention.problem.d;
  KeyStorage& storage = call.bound.storage;
  for (const auto& [antiquants, side] : {std::pair{&storage.k_antiquants, 0}, std::pair{&storage.v_antiquants, 1}}) {
    antiquants->scale = NumbersOfSide(call, scale, side);
    if (offset.data != nullptr) antiquants->offset = NumbersOfSide(call, offset, side);
    antiquants->groups = groups;
    antiquants->per_row = per_row;
  }
  return Status::Ok();
}

/// The scale and the offset of keys or of values, and their names.
struct Operand {
  const char *tensor, *scale_name, *offset_name;
  const TensorView &scale, &offset;
  int64_t columns;
};

/// Checks one dimension of a scale. The dimension's size must be `want`, or 1 if one number holds for all indices of
/// the dimension.
Status CheckOneOr(const char* name, const TensorView& tensor, int dim, int64_t want, bool or_more, const char* of) {
  const int64_t size = tensor.shape[dim];
  if (size == 1 || size == want || (or_more && size > want)) return Status::Ok();
  return WrongSize(name, dim, size, "want 1 or " + std::to_string(want) + " (" + of + ")");
}

/// Returns whether scales per key are indexed by page and row. If not, they are indexed by batch element and key.
bool OfPages(const DecodeBinding& call) { return call.paged() && call.options.antiquant != Antiquant::kPerToken; }

Status CheckScale(const DecodeBinding& call, const Operand& operand) {
  const char* name = operand.scale_name;
  const TensorView& scale = operand.scale;
  const bool of_pages = OfPages(call);
  FA_RETURN_IF_ERROR(CheckTypeAndView(name, scale));
  if (scale.shape.rank() != 4) {
    return Status::InvalidArgument(
        Arg(name, ".shape").Is(Text(scale.shape)) + ", want " +
        (of_pages ? "[pages|1, Nkv|1, page size|1, groups|1]" : "[B|1, Nkv|1, S|1, groups|1]"));
  }
  const int64_t batch = of_pages ? call.args.k[0].shape[0] : call.batch();
  const int64_t rows = of_pages ? call.bound.storage.table.page_rows : LongestSequence(call);
  FA_RETURN_IF_ERROR(CheckOneOr(name, scale, 0, batch, false, of_pages ? "pages" : "batch"));
  FA_RETURN_IF_ERROR(CheckOneOr(name, scale, 1, call.bound.attention.problem.heads_kv, false, "heads of keys"));
  FA_RETURN_IF_ERROR(CheckOneOr(name, scale, 2, rows, !of_pages, of_pages ? "page size" : "longest keys"));
  const int64_t groups = scale.shape[3];
  if (groups >= 1 && operand.columns % groups == 0) return Status::Ok();
  return WrongSize(
      name, 3, groups,
      "want a divisor of " + std::to_string(operand.columns) + " (columns of a head of " + Arg(operand.tensor) + ")");
}

BoundNumbers NumbersOf(const TensorView& tensor) {
  const Dims stride = FilledStride(tensor.shape, tensor.stride);
  const auto step = [&](int dim) { return tensor.shape[dim] == 1 ? 0 : stride[dim]; };
  return {.rows = {.dtype = tensor.dtype, .batch = step(0), .head = step(1), .row = step(2)}, .group = step(3)};
}

Status BindOperand(const DecodeBinding& call, const Operand& operand, BoundAntiquants& bound) {
  if (operand.scale.data == nullptr) {
    return Status::InvalidArgument(Arg(operand.scale_name).Says("missing (") + Arg("k", ".dtype") + " is " +
                                   Name(call.args.k[0].dtype) + ")");
  }
  FA_RETURN_IF_ERROR(CheckScale(call, operand));
  bound.scale = NumbersOf(operand.scale);
  bound.groups = operand.scale.shape[3];
  bound.per_row = operand.scale.shape[2] > 1 || (OfPages(call) && operand.scale.shape[0] > 1);
  bound.paged = OfPages(call);
  if (operand.offset.data == nullptr) return Status::Ok();
  FA_RETURN_IF_ERROR(CheckTypeAndView(operand.offset_name, operand.offset));
  if (operand.offset.shape != operand.scale.shape) {
    return Status::InvalidArgument(Arg(operand.offset_name, ".shape").Is(Text(operand.offset.shape)) + ", want " +
                                   Text(operand.scale.shape) + " (" + Arg(operand.scale_name) + ")");
  }
  bound.offset = NumbersOf(operand.offset);
  return Status::Ok();
}

/// Checks that no scales and offsets are given. If `combined`, antiquant_scale and antiquant_offset may be given.
Status CheckNone(const DecodeBinding& call, bool combined) {
  const DecodeAttentionArgs& args = call.args;
  const std::pair<const char*, const TensorView*> all[] = {{"k_scale", &args.k_scale},
                                                           {"v_scale", &args.v_scale},
                                                           {"k_offset", &args.k_offset},
                                                           {"v_offset", &args.v_offset},
                                                           {"antiquant_scale", &args.antiquant_scale},
                                                           {"antiquant_offset", &args.antiquant_offset}};
  for (const auto& [name, tensor] : std::span(all).first(combined ? 4 : 6)) {
    if (tensor->data == nullptr) continue;
    if (combined) {
      return Status::InvalidArgument(Arg(name).Says("given, want none (") + Arg("antiquant_scale") + " is given)");
    }
    return Status::InvalidArgument(Arg(name).Says("given, want none (") +
                                   Arg(call.int8_products() ? "q" : "k", ".dtype") + " is " + Name(args.k[0].dtype) +
                                   ")");
  }
  return Status::Ok();
}

/// Checks that each head of i4x8 keys and values fills whole elements of 8 columns.
Status CheckWholeElements(const DecodeBinding& call) {
  const int64_t size = call.QueryHeadSize();
  if (size == 0) return Status::Ok();  // BindDense refuses the query
  if (size % kColumnsOfI4x8 != 0) {
    return Status::InvalidArgument(Arg("k").Has(std::to_string(size)) + " columns per head, want a multiple of " +
                                   std::to_string(kColumnsOfI4x8) + " (" + Arg("k", ".dtype") + " is i4x8)");
  }
  const int64_t elements = size / kColumnsOfI4x8;
  const std::string of_head =
      " (a head of " + std::to_string(size) + " columns, " + std::to_string(kColumnsOfI4x8) + " per element)";
  for (size_t i = 0; i < call.args.k.size(); ++i) {
    const Dims &k = call.args.k[i].shape, &v = call.args.v[i].shape;
    const std::string name = NameInList("k", call.args.k, i);
    if (k.rank() == 4 && k[3] != elements) {
      return WrongSize(name.c_str(), 3, k[3], "want " + std::to_string(elements) + of_head);
    }
    if (k.rank() != 3 || v.rank() != 3 || !(call.axes.fused() || call.paged())) continue;
    if (k[2] % elements != 0) {
      return WrongSize(name.c_str(), 2, k[2], "want a multiple of " + std::to_string(elements) + of_head);
    }
    const int64_t heads = k[2] / elements;
    if (heads == 0 || v[2] % heads == 0) continue;
    return WrongSize(NameInList("v", call.args.v, i).c_str(), 2, v[2],
                     "want a multiple of " + std::to_string(heads) + " (heads of " + Arg("k") + ")");
  }
  return Status::Ok();
}

}  // namespace

Status CheckCompressed(const DecodeBinding& call) {
  for (const auto& [list, tensors] : {std::pair{"k", call.args.k}, std::pair{"v", call.args.v}}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      FA_RETURN_IF_ERROR(CheckView(NameInList(list, tensors, i).c_str(), tensors[i]));
    }
  }
  return call.args.k[0].dtype == DType::kI4x8 ? CheckWholeElements(call) : Status::Ok();
}

Status BindAntiquant(DecodeBinding& call) {
  const DecodeAttentionArgs& args = call.args;
  if (!call.bound.storage.quantized) return CheckNone(call, /*combined=*/false);
  if (args.antiquant_scale.data != nullptr) {
    FA_RETURN_IF_ERROR(CheckNone(call, /*combined=*/true));
    return BindCombined(call);
  }
  // Some public interfaces serve only keys of i8 and i4x8, and have antiquant_scale but no k_scale and v_scale. So
  // errors about keys of these two types name antiquant_scale.
  const bool of_faces = args.k[0].dtype == DType::kI8 || args.k[0].dtype == DType::kI4x8;
  if (args.antiquant_offset.data != nullptr ||
      (of_faces && args.k_scale.data == nullptr && args.v_scale.data == nullptr)) {
    return Status::InvalidArgument(Arg("antiquant_scale").Says("missing (") + Arg("k", ".dtype") + " is " +
                                   Name(args.k[0].dtype) + ")");
  }
  const tiling::AttentionProblem& problem = call.bound.attention.problem;
  KeyStorage& storage = call.bound.storage;
  FA_RETURN_IF_ERROR(
      BindOperand(call, {"k", "k_scale", "k_offset", args.k_scale, args.k_offset, problem.d}, storage.k_antiquants));
  return BindOperand(call, {"v", "v_scale", "v_offset", args.v_scale, args.v_offset, problem.dv}, storage.v_antiquants);
}

}  // namespace fa::ops
