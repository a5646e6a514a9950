#include <algorithm>
#include <string>

#include "core/integer.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

// Fills in the flat index of each sequence's first bit, and counts all bits.
Status CountBits(Binding& call, int64_t* bits) {
  BoundAttention& bound = call.bound;
  bound.dropout_offset.reserve(bound.problem.sequences.size());
  *bits = 0;
  for (const tiling::Sequence& sequence : bound.problem.sequences) {
    bound.dropout_offset.push_back(*bits);
    int64_t pairs = 0;
    if (__builtin_mul_overflow(sequence.sq, sequence.sk, &pairs) ||
        __builtin_mul_overflow(pairs, bound.problem.heads, &pairs) || __builtin_add_overflow(*bits, pairs, bits)) {
      return Status::InvalidArgument(Arg("q").Says("dropout over B*N*Sq*Sk pairs wants fewer than 2^63 of them"));
    }
  }
  return Status::Ok();
}

// Returns whether the call has any pair of a row and a key. Without pairs a dropout mask would be empty, and some
// language bindings take an empty tensor for an absent one.
bool HasPairs(const tiling::AttentionProblem& problem) {
  return problem.heads > 0 && std::any_of(problem.sequences.begin(), problem.sequences.end(),
                                          [](const auto& sequence) { return sequence.sq > 0 && sequence.sk > 0; });
}

Status CheckDropMask(const TensorView& mask, int64_t bits) {
  if (mask.dtype != DType::kU8) return WrongType("drop_mask", mask.dtype, "u8");
  FA_RETURN_IF_ERROR(CheckView("drop_mask", mask));
  if (mask.shape.rank() != 1) {
    return Status::InvalidArgument(Arg("drop_mask", ".shape").Is(Text(mask.shape)) + ", want one dimension");
  }
  const int64_t bytes = core::CeilDiv(bits, 8);
  if (mask.shape[0] >= bytes) return Status::Ok();
  return WrongSize("drop_mask", 0, mask.shape[0],
                   "want >= " + std::to_string(bytes) + " (a bit for each of B*N*Sq*Sk pairs)");
}

}  // namespace

Status BindDropout(Binding& call) {
  const float keep_prob = call.options.keep_prob;
  BoundAttention& bound = call.bound;
  const bool has_mask = call.args.drop_mask.data != nullptr;
  const bool has_seed = call.options.dropout.has_value();
  if (!(keep_prob > 0 && keep_prob <= 1)) {
    return Status::InvalidArgument(Arg("keep_prob").Is(Text(keep_prob)) + ", want more than 0 and at most 1");
  }
  if (has_mask && has_seed) {
    return Status::InvalidArgument(Arg("drop_mask").Says("given together with ") + Arg("dropout") +
                                   ", want one of them");
  }
  if (keep_prob < 1 && !has_mask && !has_seed && HasPairs(bound.problem)) {
    return Status::InvalidArgument(Arg("keep_prob").Is(Text(keep_prob)) + ", want " + Arg("drop_mask") + " or " +
                                   Arg("dropout"));
  }
  bound.has_drop_mask = has_mask;
  bound.has_philox = has_seed && keep_prob < 1;  // a keep_prob of 1 keeps every pair
  if (!bound.has_drop_mask && !bound.has_philox) return Status::Ok();
  if (bound.has_philox) bound.philox = *call.options.dropout;
  int64_t bits = 0;
  FA_RETURN_IF_ERROR(CountBits(call, &bits));
  return has_mask ? CheckDropMask(call.args.drop_mask, bits) : Status::Ok();
}

}  // namespace fa::ops
