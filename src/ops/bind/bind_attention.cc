#include "ops/bind/bind_attention.h"

#include "fa/mask.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {

Status BindParts(Binding& call) {
  FA_RETURN_IF_ERROR(BindScalars(call));
  FA_RETURN_IF_ERROR(BindShapes(call));
  FA_RETURN_IF_ERROR(BindLengths(call));
  FA_RETURN_IF_ERROR(BindStatistics(call));
  FA_RETURN_IF_ERROR(BindMask(call));
  FA_RETURN_IF_ERROR(BindPse(call));
  FA_RETURN_IF_ERROR(BindDropout(call));
  BoundAttention& bound = call.bound;
  bound.problem.score_passes =
      bound.has_pse || bound.has_slopes || bound.caps() || bound.has_drop_mask || bound.has_philox;
  return Status::Ok();
}

// The functions below build a BoundAttention inside the Result, because a BoundAttention is large.

Result<BoundAttention> BindAttention(const AttentionArgs& args, const AttentionOptions& options) {
  Result<BoundAttention> result{BoundAttention{}};
  DenseTensors tensors = ForwardTensors(args);
  tensors.lse = args.lse;
  Binding call{.args = tensors, .options = options, .bound = *result};
  FA_RETURN_IF_ERROR(BindParts(call));
  result->planned = KeepPlanned(TensorsOf(args));
  return result;
}

Result<BoundAttention> BindInference(const DenseTensors& tensors, const AttentionOptions& options,
                                     const Inference& inference) {
  Result<BoundAttention> result{BoundAttention{}};
  Binding call{.args = tensors, .options = options, .bound = *result, .inference = &inference};
  FA_RETURN_IF_ERROR(BindParts(call));
  return result;
}

Status CheckPlannedPairMask(const PairMask* mask, const Dims& planned) {
  const Dims got = mask == nullptr ? Dims() : mask->shape();
  if (got == planned) return Status::Ok();
  if (mask == nullptr) return Status::InvalidArgument(Arg("pair_mask").Says("missing, want it given (as planned)"));
  if (planned.empty()) return Status::InvalidArgument(Arg("pair_mask").Says("given, want none (as planned)"));
  return Status::InvalidArgument(Arg("pair_mask", ".shape").Is(Text(got)) + ", want " + Text(planned) +
                                 " (as planned)");
}

Status CheckRunTensors(const BoundAttention& bound, std::span<const CallTensor> tensors, std::span<const int64_t> cu_q,
                       std::span<const int64_t> cu_kv, const TensorView& dense_mask, const PairMask* pair_mask) {
  FA_RETURN_IF_ERROR(CheckAllPlanned(tensors, bound.planned));
  FA_RETURN_IF_ERROR(CheckPlannedPairMask(pair_mask, bound.pair_mask_shape));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("cu_q", cu_q, bound.cu_q));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("cu_kv", cu_kv, bound.cu_kv));
  FA_RETURN_IF_ERROR(CheckAllApart(tensors, bound.planned));
  if (bound.compressed_mask_mode < 0) return Status::Ok();
  return VerifyCompressedMask(dense_mask, bound.compressed_mask_mode);
}

Status CheckRunArgs(const BoundAttention& bound, const AttentionArgs& args) {
  return CheckRunTensors(bound, TensorsOf(args), args.cu_q, args.cu_kv, args.dense_mask, args.pair_mask);
}

Status CheckRunLengths(const BoundAttention& bound, const ActualLengths& lengths) {
  FA_RETURN_IF_ERROR(CheckPlannedLengths("lengths_q", lengths.q, bound.lengths_q));
  return CheckPlannedLengths("lengths_kv", lengths.kv, bound.lengths_kv);
}

}  // namespace fa::ops
