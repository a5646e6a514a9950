#include "ops/bind/bind_attention.h"

#include "ops/bind/bind_parts.h"

namespace fa::ops {

Status BindParts(Binding& call) {
  if (Status status = BindScalars(call); !status.ok()) return status;
  if (Status status = BindShapes(call); !status.ok()) return status;
  if (Status status = BindLengths(call); !status.ok()) return status;
  if (Status status = BindStatistics(call); !status.ok()) return status;
  if (Status status = BindMask(call); !status.ok()) return status;
  if (Status status = BindPse(call); !status.ok()) return status;
  if (Status status = BindDropout(call); !status.ok()) return status;
  BoundAttention& bound = call.bound;
  bound.problem.score_passes =
      bound.has_pse || bound.has_slopes || bound.softcap > 0 || bound.has_drop_mask || bound.has_philox;
  return Status::Ok();
}

namespace {

Result<BoundAttention> Bind(const AttentionArgs& args, const AttentionOptions& options, const Inference* inference) {
  // Built in place: it is large.
  Result<BoundAttention> result{BoundAttention{}};
  Binding call{.args = args, .options = options, .bound = *result, .inference = inference};
  if (Status status = BindParts(call); !status.ok()) return status;
  result->planned = KeepPlanned(TensorsOf(args));
  return result;
}

}  // namespace

Result<BoundAttention> BindAttention(const AttentionArgs& args, const AttentionOptions& options) {
  return Bind(args, options, nullptr);
}

Result<BoundAttention> BindInference(const AttentionArgs& args, const AttentionOptions& options,
                                     const ActualLengths& lengths, bool own_types) {
  const Inference inference{.lengths = lengths, .own_types = own_types};
  return Bind(args, options, &inference);
}

}  // namespace fa::ops
