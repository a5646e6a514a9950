#include "ops/indexer/bind_indexer_grad.h"

#include <utility>

#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

/// Binds d_values [B, S1, 1, K] or [B, S1, K], of the query's type or f32.
Status BindValues(const TensorView& values, const SparseTensors& tensors, BoundIndexerGrad& bound) {
  const int leading = tensors.leading();
  const DType type = values.dtype == DType::kF32 ? DType::kF32 : bound.shape.dtype;
  const WantedSize entries{bound.lists.entries, {"sparse_indices", leading + 1}};
  const bool short_form = values.shape.rank() == leading + 1;
  FA_RETURN_IF_ERROR(short_form
                         ? tensors.CheckQuerySide("d_values", values, type, {entries})
                         : tensors.CheckQuerySide("d_values", values, type, {{1, {"one list per token"}}, entries}));
  const Dims stride = layout::FilledStride(values.shape, values.stride);
  bound.d_values = {.dtype = type, .batch = leading == 2 ? stride[0] : 0, .row = stride[leading - 1]};
  return Status::Ok();
}

IndexerGradients GradientsOf(const LightningIndexerGradArgs& args) {
  return {.dq_name = "dq", .dk_name = "dk", .dq = args.dq, .dk = args.dk, .dweights = args.dweights};
}

}  // namespace

Result<BoundIndexerGrad> BindIndexerGrad(const LightningIndexerGradArgs& args,
                                         const LightningIndexerGradOptions& options) {
  SparseTensors tensors(options.layout);
  auto shape = BindIndexerShape({.q_name = "q",
                                 .k_name = "k",
                                 .q = args.q,
                                 .k = args.k,
                                 .weights = args.weights,
                                 .block_table = {},
                                 .lengths_q = args.lengths_q,
                                 .lengths_kv = args.lengths_kv,
                                 .layout = options.layout,
                                 .mask = options.mask},
                                tensors);
  if (!shape.ok()) return shape.status();
  FA_RETURN_IF_ERROR(tensors.CheckIndices(args.sparse_indices));
  BoundIndexerGrad bound;
  bound.shape = std::move(*shape);
  bound.check_indices = options.check_indices;
  bound.lists = KeyLists(args.sparse_indices, tensors.packed(), /*block_size_of_call=*/1);
  FA_RETURN_IF_ERROR(BindValues(args.d_values, tensors, bound));
  auto gradients = BindIndexerGradients(GradientsOf(args), tensors, bound.shape);
  if (!gradients.ok()) return gradients.status();
  bound.gradients = *gradients;
  bound.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Status CheckIndexerGradRunArgs(const BoundIndexerGrad& bound, const LightningIndexerGradArgs& args) {
  FA_RETURN_IF_ERROR(CheckSparseTensors(TensorsOf(args), bound.planned));
  FA_RETURN_IF_ERROR(CheckSparseLengths(bound.shape.sequences, args));
  if (!bound.check_indices) return Status::Ok();
  return CheckKeyLists(bound.lists, args.sparse_indices.data, bound.shape.sequences);
}

SelectionGradRows RowsOf(const BoundIndexerGrad& bound, const LightningIndexerGradArgs& args) {
  return {.in = bound.shape.RowsOf(args.q, args.k, args.weights),
          .indices = {args.sparse_indices.data, bound.lists.rows},
          .d_values = {args.d_values.data, bound.d_values},
          .gradients = ViewsOf(bound.gradients, GradientsOf(args))};
}

}  // namespace fa::ops
