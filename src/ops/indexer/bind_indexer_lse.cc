#include "ops/indexer/bind_indexer_lse.h"

#include <tuple>
#include <utility>

namespace fa::ops {

Result<BoundIndexerLse> BindIndexerLse(const DenseIndexerLseArgs& args, const DenseIndexerLseOptions& options) {
  SparseTensors tensors(options.layout);
  auto shape = BindIndexerShape(IndexInputsOf(args, options), tensors);
  if (!shape.ok()) return shape.status();
  BoundIndexerLse bound;
  bound.shape = std::move(*shape);
  for (const auto& [name, tensor, stats] : {std::tuple{"softmax_max_index", &args.softmax_max_index, &bound.max},
                                            std::tuple{"softmax_sum_index", &args.softmax_sum_index, &bound.sum}}) {
    FA_RETURN_IF_ERROR(tensors.CheckRowStatistic(name, *tensor));
    FA_RETURN_IF_ERROR(CheckWritable(name, *tensor));
    *stats = SparseRowStatisticOf(*tensor, tensors.packed());
  }
  bound.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Status CheckIndexerRunArgs(const BoundIndexerLse& bound, const DenseIndexerLseArgs& args) {
  FA_RETURN_IF_ERROR(CheckSparseTensors(TensorsOf(args), bound.planned));
  return CheckSparseLengths(bound.shape.sequences, args);
}

StatisticsRows RowsOf(const BoundIndexerLse& bound, const DenseIndexerLseArgs& args) {
  return {.in = bound.shape.RowsOf(args.q_index, args.k_index, args.weights),
          .max = {args.softmax_max_index.data, bound.max},
          .sum = {args.softmax_sum_index.data, bound.sum}};
}

}  // namespace fa::ops
