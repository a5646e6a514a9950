#include "ops/bind_attention.h"

#include <exception>
#include <iterator>
#include <tuple>

#include "layout/bind_layout.h"
#include "ops/bind_parts.h"

namespace fa::ops {
namespace {

// Copies the descriptors without the caller's memory; any address says "present".
void KeepPlanned(const AttentionArgs& args, BoundAttention& bound) {
  static char present;
  bound.planned = args;
  bound.planned.cu_q = {};
  bound.planned.cu_kv = {};
  size_t i = 0;
  const auto keep = [&i, &bound](auto& tensor, bool required) {
    const bool kept = required || tensor.data != nullptr;
    bound.span_bytes[i++] = kept ? layout::SpanBytes(tensor) : 0;
    if (kept) {
      tensor.data = &present;
    } else {
      tensor = {};
    }
  };
  for (const NamedInput& input : kInputs) keep(bound.planned.*input.tensor, input.required);
  for (const NamedOutput& output : kOutputs) keep(bound.planned.*output.tensor, output.required);
}

}  // namespace

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

Result<BoundAttention> BindAttention(const AttentionArgs& args, const AttentionOptions& options) {
  static_assert(std::size(kInputs) + std::size(kOutputs) == std::tuple_size_v<decltype(BoundAttention::span_bytes)>);
  // The result is built in place: a BoundAttention is 2 KB.
  Result<BoundAttention> result{BoundAttention{}};
  try {
    Binding call{args, options, *result};
    if (Status status = BindParts(call); !status.ok()) return status;
    KeepPlanned(args, *result);
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error of a vector of sequences
    return Status::OutOfMemory("description of the sequences");
  }
  return result;
}

}  // namespace fa::ops
