#include "ops/indexer/bind_indexer.h"

#include <limits>
#include <string>
#include <utility>

#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

Status BindIndexOffset(const TensorView& offset, const SparseTensors& tensors, BoundIndexer& bound) {
  constexpr const char* kName = "index_offset";
  if (offset.data == nullptr) return Status::Ok();
  if (offset.dtype != DType::kI32) return WrongType(kName, offset.dtype, "i32");
  if (offset.shape.rank() == 1) {
    FA_RETURN_IF_ERROR(CheckView(kName, offset));
    FA_RETURN_IF_ERROR(CheckSize(kName, offset, 0, std::ssize(bound.shape.sequences.list), {"batch"}));
    bound.index_offset = {.dtype = DType::kI32, .batch = layout::FilledStride(offset.shape, offset.stride)[0]};
    return Status::Ok();
  }
  FA_RETURN_IF_ERROR(tensors.CheckQuerySide(kName, offset, DType::kI32, {{1, {"one list per token"}}}));
  bound.index_offset = SparseValuesOf(offset, tensors.packed());
  return Status::Ok();
}

/// Checks that each index is in 0..2^31 - 1 after its offset is added.
Status CheckIndexOffsets(const BoundIndexer& bound, const TensorView& offset) {
  if (offset.data == nullptr) return Status::Ok();
  const layout::RowsView view{offset.data, bound.index_offset};
  const SparseSequences& sequences = bound.shape.sequences;
  for (size_t b = 0; b < sequences.list.size(); ++b) {
    const SparseSequence& sequence = sequences.list[b];
    const int64_t most = std::numeric_limits<int32_t>::max() - std::max<int64_t>(sequence.sk - 1, 0);
    const bool per_batch = offset.shape.rank() == 1;
    for (int64_t t = 0; t < (per_batch ? std::min<int64_t>(sequence.sq, 1) : sequence.sq); ++t) {
      const int64_t row = sequence.q_offset + t;
      const int32_t value = *reinterpret_cast<const int32_t*>(view.At(static_cast<int64_t>(b), 0, row));
      if (value >= 0 && value <= most) continue;
      const std::string batch = At(static_cast<int64_t>(b));
      const std::string at = per_batch ? batch : (sequences.packed ? "" : batch) + At(row) + At(0);
      return Status::InvalidArgument(Arg("index_offset", {}, at).Is(std::to_string(value)) + ", want 0.." +
                                     std::to_string(most));
    }
  }
  return Status::Ok();
}

/// Returns the type that a tensor of values or weights must have: the tensor's own type if that type is allowed.
DType FloatTypeOf(const TensorView& tensor, const IndexerShape& shape) {
  if (shape.quantized && (tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16)) return tensor.dtype;
  return tensor.dtype == DType::kF32 || shape.quantized ? DType::kF32 : shape.dtype;
}

Status BindOutputs(const LightningIndexerArgs& args, const SparseTensors& tensors, BoundIndexer& bound) {
  const Dims& shape = args.sparse_indices.shape;
  const int last = tensors.leading() + 1;
  bound.entries = shape.rank() == last + 1 ? shape[last] : 0;
  const WantedSize list{1, {"one list per token"}};
  FA_RETURN_IF_ERROR(tensors.CheckQueryOutput("sparse_indices", args.sparse_indices, DType::kI32,
                                              {list, {bound.entries, {"sparse_indices", last}}}));
  bound.indices = SparseRowsOf(args.sparse_indices, tensors.packed());
  bound.has_values = args.sparse_values.data != nullptr;
  if (!bound.has_values) return Status::Ok();
  const DType type = FloatTypeOf(args.sparse_values, bound.shape);
  FA_RETURN_IF_ERROR(tensors.CheckQueryOutput("sparse_values", args.sparse_values, type,
                                              {list, {bound.entries, {"sparse_indices", last}}}));
  bound.values = SparseRowsOf(args.sparse_values, tensors.packed());
  return Status::Ok();
}

/// Binds the scales that quantised queries and keys have.
Status BindScales(const IndexerInputs& inputs, const WantedSize& heads, const SparseTensors& tensors,
                  IndexerShape& shape) {
  const bool blocks = inputs.score_block != 0;
  const bool has_scales = blocks ? inputs.k.dtype == DType::kI8 : shape.q_quantized;
  if ((inputs.k_scale.data != nullptr) != has_scales) {
    const char* said = has_scales ? "missing, want it with " : "given, want none without ";
    const ErrorText partner = blocks ? Arg(inputs.k_name, ".dtype").Is("i8") : Arg("q_scale");
    return Status::InvalidArgument(Arg("k_scale").Says(said) + partner);
  }
  if (!has_scales) return Status::Ok();
  if (!blocks) {
    FA_RETURN_IF_ERROR(tensors.CheckFloatQuerySide("q_scale", inputs.q_scale, {heads}));
    shape.q_scale = SparseValuesOf(inputs.q_scale, tensors.packed());
  }
  FA_RETURN_IF_ERROR(tensors.CheckKeyValues("k_scale", inputs.k_scale));
  shape.k_scale = SparseValuesOf(inputs.k_scale, tensors.packed() && !tensors.paged());
  return Status::Ok();
}

layout::BlockTable TableOf(const BoundIndexer& bound, const TensorView& block_table) {
  layout::BlockTable table = bound.table;
  if (bound.paged) table.entries = static_cast<const int32_t*>(block_table.data);
  return table;
}

}  // namespace

Result<IndexerShape> BindIndexerShape(const IndexerInputs& inputs, SparseTensors& tensors) {
  IndexerShape shape;
  const bool blocks = inputs.score_block != 0;
  const bool k_alone = blocks && inputs.k.dtype == DType::kI8;
  shape.q_quantized = blocks ? inputs.q.dtype == DType::kF8E4M3 : inputs.q_scale.data != nullptr;
  shape.q_stored = inputs.q.dtype;
  FA_RETURN_IF_ERROR(tensors.BindQuery(inputs.q_name, inputs.q, shape.q_quantized));
  FA_RETURN_IF_ERROR(tensors.BindBlockTable(inputs.block_table));
  FA_RETURN_IF_ERROR(tensors.BindKey(inputs.k_name, inputs.k, {1, {"one key head"}},
                                     {tensors.head_size(), {inputs.q_name, tensors.leading() + 1}},
                                     k_alone ? DType::kI8 : tensors.dtype()));
  const WantedSize heads{tensors.heads(), {inputs.q_name, tensors.leading()}};
  // bf16 has every i8 and every f8e4m3, so kernels of bf16 multiply them without rounding. So has every float type, for
  // keys of i8 next to queries of that type.
  shape.dtype = shape.q_quantized ? DType::kBF16 : tensors.dtype();
  if (shape.q_quantized || k_alone) {
    shape.quantized = QuantizedRow{.dtype = inputs.k.dtype, .columns = tensors.head_size()};
  }
  FA_RETURN_IF_ERROR(BindScales(inputs, heads, tensors, shape));
  if (inputs.score_block == 0) {
    FA_RETURN_IF_ERROR(tensors.CheckQuerySide("weights", inputs.weights, FloatTypeOf(inputs.weights, shape), {heads}));
    shape.weights = SparseValuesOf(inputs.weights, tensors.packed());
  }
  auto sequences = BindSparseSequences({.layout = inputs.layout,
                                        .paged = tensors.paged(),
                                        .batch = tensors.batch(),
                                        .q_rows = tensors.q_rows(),
                                        .k_rows = tensors.k_rows(),
                                        .lengths_q = inputs.lengths_q,
                                        .lengths_kv = inputs.lengths_kv,
                                        .used_q = inputs.used_q,
                                        .used_kv = inputs.used_kv,
                                        .residual_kv = inputs.residual_kv,
                                        .ratio = inputs.cmp_ratio,
                                        .mask = inputs.mask,
                                        .q_name = inputs.q_name,
                                        .k_name = inputs.k_name});
  if (!sequences.ok()) return sequences.status();
  shape.sequences = std::move(*sequences);
  shape.heads = tensors.heads();
  shape.d = tensors.head_size();
  shape.q = SparseRowsOf(inputs.q, tensors.packed());
  shape.k = SparseRowsOf(inputs.k, tensors.packed() && !tensors.paged());
  shape.score_block = inputs.score_block;
  return shape;
}

Result<BoundIndexer> BindIndexer(const LightningIndexerArgs& args, const LightningIndexerOptions& options) {
  SparseTensors tensors(options.layout);
  auto shape = BindIndexerShape({.q_name = "q",
                                 .k_name = "k",
                                 .q = args.q,
                                 .k = args.k,
                                 .weights = args.weights,
                                 .block_table = args.block_table,
                                 .lengths_q = args.lengths_q,
                                 .lengths_kv = args.lengths_kv,
                                 .layout = options.layout,
                                 .mask = options.mask,
                                 .q_scale = args.q_scale,
                                 .k_scale = args.k_scale,
                                 .used_q = args.used_q,
                                 .used_kv = args.used_kv,
                                 .residual_kv = args.residual_kv,
                                 .cmp_ratio = options.cmp_ratio},
                                tensors);
  if (!shape.ok()) return shape.status();
  BoundIndexer bound;
  bound.shape = std::move(*shape);
  FA_RETURN_IF_ERROR(BindIndexOffset(args.index_offset, tensors, bound));
  FA_RETURN_IF_ERROR(BindOutputs(args, tensors, bound));
  bound.paged = tensors.paged();
  if (bound.paged) {
    bound.table = tensors.PagesOf(args.block_table);
    const int64_t sequences = std::ssize(bound.shape.sequences.list);
    FA_RETURN_IF_ERROR(CheckSize("block_table", args.block_table, 0, sequences, {"entries of lengths_q"}));
  }
  bound.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Status CheckIndexerRunArgs(const BoundIndexer& bound, const LightningIndexerArgs& args) {
  FA_RETURN_IF_ERROR(CheckSparseTensors(TensorsOf(args), bound.planned));
  FA_RETURN_IF_ERROR(CheckSparseLengths(bound.shape.sequences, args));
  if (bound.paged) {
    FA_RETURN_IF_ERROR(CheckSparsePages(TableOf(bound, args.block_table), bound.shape.sequences));
  }
  return CheckIndexOffsets(bound, args.index_offset);
}

SelectionRows RowsOf(const BoundIndexer& bound, const LightningIndexerArgs& args) {
  SelectionRows rows{.in = bound.shape.RowsOf(args.q, args.k, args.weights),
                     .indices = {args.sparse_indices.data, bound.indices},
                     .values = {args.sparse_values.data, bound.values},
                     .index_offset = {args.index_offset.data, bound.index_offset}};
  rows.in.k.table = TableOf(bound, args.block_table);
  if (bound.shape.q_quantized) {
    rows.in.q_scale = {args.q_scale.data, bound.shape.q_scale};
    rows.in.k_scale = {.view = {args.k_scale.data, bound.shape.k_scale}, .table = rows.in.k.table};
  }
  return rows;
}

}  // namespace fa::ops
