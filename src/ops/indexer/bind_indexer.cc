#include "ops/indexer/bind_indexer.h"

#include <utility>

#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

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
  const DType type = args.sparse_values.dtype == DType::kF32 ? DType::kF32 : bound.shape.dtype;
  FA_RETURN_IF_ERROR(tensors.CheckQueryOutput("sparse_values", args.sparse_values, type,
                                              {list, {bound.entries, {"sparse_indices", last}}}));
  bound.values = SparseRowsOf(args.sparse_values, tensors.packed());
  return Status::Ok();
}

layout::BlockTable TableOf(const BoundIndexer& bound, const TensorView& block_table) {
  layout::BlockTable table = bound.table;
  if (bound.paged) table.entries = static_cast<const int32_t*>(block_table.data);
  return table;
}

}  // namespace

Result<IndexerShape> BindIndexerShape(const IndexerInputs& inputs, SparseTensors& tensors) {
  FA_RETURN_IF_ERROR(tensors.BindQuery(inputs.q_name, inputs.q));
  FA_RETURN_IF_ERROR(tensors.BindBlockTable(inputs.block_table));
  FA_RETURN_IF_ERROR(tensors.BindKey(inputs.k_name, inputs.k, {1, {"one key head"}},
                                     {tensors.head_size(), {inputs.q_name, tensors.leading() + 1}}));
  const DType weights_type = inputs.weights.dtype == DType::kF32 ? DType::kF32 : tensors.dtype();
  Status weights = tensors.CheckQuerySide("weights", inputs.weights, weights_type,
                                          {{tensors.heads(), {inputs.q_name, tensors.leading()}}});
  if (!weights.ok()) return weights;
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
  return IndexerShape{.sequences = std::move(*sequences),
                      .dtype = tensors.dtype(),
                      .heads = tensors.heads(),
                      .d = tensors.head_size(),
                      .q = SparseRowsOf(inputs.q, tensors.packed()),
                      .k = SparseRowsOf(inputs.k, tensors.packed() && !tensors.paged()),
                      .weights = SparseValuesOf(inputs.weights, tensors.packed())};
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
                                 .mask = options.mask},
                                tensors);
  if (!shape.ok()) return shape.status();
  BoundIndexer bound;
  bound.shape = std::move(*shape);
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
  FA_RETURN_IF_ERROR(CheckSparseLengths(bound.shape.sequences, args.lengths_q, args.lengths_kv));
  if (!bound.paged) return Status::Ok();
  return CheckSparsePages(TableOf(bound, args.block_table), bound.shape.sequences);
}

SelectionRows RowsOf(const BoundIndexer& bound, const LightningIndexerArgs& args) {
  SelectionRows rows{.in = bound.shape.RowsOf(args.q, args.k, args.weights),
                     .indices = {args.sparse_indices.data, bound.indices},
                     .values = {args.sparse_values.data, bound.values}};
  rows.in.k.table = TableOf(bound, args.block_table);
  return rows;
}

}  // namespace fa::ops
