#include "ops/indexer/loss/bind_indexer_loss.h"

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

/// The attention's tensors in the arguments of both losses.
struct AttentionTensors {
  const TensorView &q, &k, &q_rope, &k_rope, &max, &sum;
};

template <typename Args>
AttentionTensors AttentionOf(const Args& args) {
  return {args.q, args.k, args.q_rope, args.k_rope, args.softmax_max, args.softmax_sum};
}

template <typename Args>
IndexerGradients GradientsOf(const Args& args) {
  return {.dq_name = "dq_index",
          .dk_name = "dk_index",
          .dq = args.dq_index,
          .dk = args.dk_index,
          .dweights = args.dweights};
}

int64_t SizeAt(const TensorView& tensor, int dim) { return dim < tensor.shape.rank() ? tensor.shape[dim] : 0; }

/// Binds the attention whose probabilities the indexer learns.
/// @param one_key_head  whether keys have one head, as in a sparse loss
Status BindAttention(const AttentionTensors& inputs, const SparseTensors& tensors, std::optional<float> given_scale,
                     bool one_key_head, LossAttention& attention) {
  const int last = tensors.leading() + 1;
  attention.heads = SizeAt(inputs.q, last - 1);
  attention.d = SizeAt(inputs.q, last);
  const WantedSize columns{attention.d, {"q", last}};
  Status status = tensors.CheckQuerySide("q", inputs.q, tensors.dtype(), {{attention.heads, {"q", last - 1}}, columns});
  if (!status.ok()) return status;
  if (attention.heads < 1) return WrongSize("q", last - 1, attention.heads, "want >= 1");
  FA_RETURN_IF_ERROR(CheckHeadSize("q", last, attention.d));
  attention.heads_kv = one_key_head ? 1 : SizeAt(inputs.k, last - 1);
  status = tensors.CheckKeySide("k", inputs.k, tensors.dtype(), {{attention.heads_kv, {"one key head"}}, columns});
  if (!status.ok()) return status;
  if (attention.heads_kv < 1 || attention.heads % attention.heads_kv != 0) {
    return WrongSize(
        "k", last - 1, attention.heads_kv,
        "want a divisor of " + std::to_string(attention.heads) + " (" + Arg("q", ".shape", At(last - 1)) + ")");
  }
  status = tensors.CheckRope({inputs.q_rope, inputs.k_rope}, attention.heads, attention.heads_kv, &attention.d_rope);
  if (!status.ok()) return status;
  if (attention.d_rope > 0) {
    attention.q_rope = SparseRowsOf(inputs.q_rope, tensors.packed());
    attention.k_rope = SparseRowsOf(inputs.k_rope, tensors.packed());
  }
  const int64_t group = attention.heads / attention.heads_kv;
  status = tensors.CheckStatistic("softmax_max", inputs.max, attention.heads_kv, group);
  if (!status.ok()) return status;
  status = tensors.CheckStatistic("softmax_sum", inputs.sum, attention.heads_kv, group);
  if (!status.ok()) return status;
  const auto scale = BindSparseScale(given_scale ? &*given_scale : nullptr, attention.d + attention.d_rope);
  if (!scale.ok()) return scale.status();
  attention.scale = *scale;
  attention.q = SparseRowsOf(inputs.q, tensors.packed());
  attention.k = SparseRowsOf(inputs.k, tensors.packed());
  attention.max = SparseStatisticOf(inputs.max, tensors.packed());
  attention.sum = SparseStatisticOf(inputs.sum, tensors.packed());
  return Status::Ok();
}

/// Binds what both losses share: the indexer, its gradients and the options, in this order.
template <typename Args, typename Options>
Status BindIndexer(const Args& args, const Options& options, SparseTensors& tensors, BoundIndexerLoss& bound) {
  auto shape = BindIndexerShape(IndexInputsOf(args, options), tensors);
  if (!shape.ok()) return shape.status();
  bound.problem.shape = std::move(*shape);
  auto gradients = BindIndexerGradients(GradientsOf(args), tensors, bound.problem.shape);
  if (!gradients.ok()) return gradients.status();
  bound.gradients = *gradients;
  FA_RETURN_IF_ERROR(CheckLoss(args.loss));
  if (options.reduction > LossReduction::kMean) {
    return Status::InvalidArgument(Arg("reduction").Is(std::to_string(static_cast<int>(options.reduction))) +
                                   ", want sum (0) or mean (1)");
  }
  constexpr bool kSparse = requires { args.p_head_mean; };
  if (options.target > (kSparse ? IndexerTarget::kGiven : IndexerTarget::kL1)) {
    return Status::InvalidArgument(
        Arg("target").Is(std::to_string(static_cast<int>(options.target))) +
        (kSparse ? ", want head mean (0), L1 (1) or given (2)" : ", want head mean (0) or L1 (1)"));
  }
  bound.problem.target = options.target;
  const int64_t tokens = bound.problem.shape.sequences.tokens;
  if (options.reduction == LossReduction::kMean && tokens > 0)
    bound.problem.multiplier = 1.0F / static_cast<float>(tokens);
  return Status::Ok();
}

Status BindSparse(const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options, BoundIndexerLoss& bound) {
  SparseTensors tensors(options.layout);
  FA_RETURN_IF_ERROR(BindIndexer(args, options, tensors, bound));
  FA_RETURN_IF_ERROR(tensors.CheckIndices(args.sparse_indices));
  bound.problem.lists = KeyLists(args.sparse_indices, tensors.packed(), /*block_size_of_call=*/1);
  bound.check_indices = options.check_indices;
  bound.problem.has_mean = args.p_head_mean.data != nullptr;
  if (options.target == IndexerTarget::kGiven && !bound.problem.has_mean) {
    return Status::InvalidArgument(Arg("p_head_mean").Says("missing (") + Arg("target") + " is given (2))");
  }
  if (args.softmax_index.data != nullptr) {
    FA_RETURN_IF_ERROR(
        tensors.CheckQueryOutput("softmax_index", args.softmax_index, DType::kF32,
                                 {{bound.problem.lists.entries, {"sparse_indices", tensors.leading() + 1}}}));
    bound.softmax_index = SparseValuesOf(args.softmax_index, tensors.packed());
  }
  LossAttention& attention = bound.problem.attention;
  attention.has_sink = args.sink.data != nullptr;
  if (!bound.problem.has_mean) {
    FA_RETURN_IF_ERROR(BindAttention(AttentionOf(args), tensors, options.scale, /*one_key_head=*/true, attention));
    if (!attention.has_sink) return Status::Ok();
    return tensors.CheckHeadValues("sink", args.sink, {attention.heads, {"q", tensors.leading()}});
  }
  if (attention.has_sink) return Status::InvalidArgument(Arg("sink").Says("given together with ") + Arg("p_head_mean"));
  FA_RETURN_IF_ERROR(
      tensors.CheckQuerySide("p_head_mean", args.p_head_mean, DType::kF32,
                             {{bound.problem.lists.entries, {"sparse_indices", tensors.leading() + 1}}}));
  bound.mean = SparseValuesOf(args.p_head_mean, tensors.packed());
  return Status::Ok();
}

Status BindDense(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options, BoundIndexerLoss& bound) {
  SparseTensors tensors(options.layout);
  FA_RETURN_IF_ERROR(BindIndexer(args, options, tensors, bound));
  Status status =
      BindAttention(AttentionOf(args), tensors, options.scale, /*one_key_head=*/false, bound.problem.attention);
  if (!status.ok()) return status;
  for (const auto& [name, tensor, stats] :
       {std::tuple{"softmax_max_index", &args.softmax_max_index, &bound.max_index},
        std::tuple{"softmax_sum_index", &args.softmax_sum_index, &bound.sum_index}}) {
    FA_RETURN_IF_ERROR(tensors.CheckRowStatistic(name, *tensor));
    *stats = SparseRowStatisticOf(*tensor, tensors.packed());
  }
  return Status::Ok();
}

/// Returns those tensors of a run that both losses have.
template <typename Args>
LossRows SharedRows(const BoundIndexerLoss& bound, const Args& args) {
  const LossAttention& attention = bound.problem.attention;
  return {.index = bound.problem.shape.RowsOf(args.q_index, args.k_index, args.weights),
          .q = {args.q.data, attention.q},
          .k = {args.k.data, attention.k},
          .q_rope = {args.q_rope.data, attention.q_rope},
          .k_rope = {args.k_rope.data, attention.k_rope},
          .max = {args.softmax_max.data, attention.max},
          .sum = {args.softmax_sum.data, attention.sum},
          .gradients = ViewsOf(bound.gradients, GradientsOf(args)),
          .loss = static_cast<float*>(args.loss.data)};
}

template <typename Args>
Status CheckRun(const BoundIndexerLoss& bound, const Args& args) {
  FA_RETURN_IF_ERROR(CheckSparseTensors(TensorsOf(args), bound.planned));
  return CheckSparseLengths(bound.problem.shape.sequences, args);
}

}  // namespace

Status CheckLoss(const MutableTensorView& loss) {
  if (loss.dtype != DType::kF32) return WrongType("loss", loss.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckView("loss", loss, /*any_innermost=*/true));
  int64_t elements = 1;
  for (const int64_t size : loss.shape) elements *= size;
  if (elements == 1) return Status::Ok();
  return Status::InvalidArgument(Arg("loss", ".shape").Is(Text(loss.shape)) + ", want one element");
}

Result<BoundIndexerLoss> BindIndexerLoss(const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options) {
  BoundIndexerLoss bound;
  FA_RETURN_IF_ERROR(BindSparse(args, options, bound));
  bound.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Result<BoundIndexerLoss> BindIndexerLoss(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options) {
  BoundIndexerLoss bound;
  FA_RETURN_IF_ERROR(BindDense(args, options, bound));
  bound.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Status CheckIndexerLossRunArgs(const BoundIndexerLoss& bound, const SparseIndexerLossArgs& args) {
  FA_RETURN_IF_ERROR(CheckRun(bound, args));
  if (!bound.check_indices) return Status::Ok();
  return CheckKeyLists(bound.problem.lists, args.sparse_indices.data, bound.problem.shape.sequences);
}

Status CheckIndexerLossRunArgs(const BoundIndexerLoss& bound, const DenseIndexerLossArgs& args) {
  return CheckRun(bound, args);
}

LossRows RowsOf(const BoundIndexerLoss& bound, const SparseIndexerLossArgs& args) {
  LossRows rows = SharedRows(bound, args);
  rows.mean = {args.p_head_mean.data, bound.mean};
  rows.softmax_index = {args.softmax_index.data, bound.softmax_index};
  rows.sink = static_cast<const float*>(args.sink.data);
  rows.indices = {args.sparse_indices.data, bound.problem.lists.rows};
  return rows;
}

LossRows RowsOf(const BoundIndexerLoss& bound, const DenseIndexerLossArgs& args) {
  LossRows rows = SharedRows(bound, args);
  rows.max_index = {args.softmax_max_index.data, bound.max_index};
  rows.sum_index = {args.softmax_sum_index.data, bound.sum_index};
  return rows;
}

}  // namespace fa::ops
