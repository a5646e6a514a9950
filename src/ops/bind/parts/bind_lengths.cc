#include <algorithm>
#include <string>
#include <vector>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"
#include "ops/bind/prefix_sums.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_limits.h"

namespace fa::ops {
namespace {

Status BindPackedKeys(Binding& call) {
  const std::span<const int64_t> cu_q = call.args.cu_q, cu_kv = call.args.cu_kv;
  const int seq = layout::AxesOf(call.options.layout).seq;
  FA_RETURN_IF_ERROR(CheckPrefixSums("cu_kv", cu_kv, call.sizes.k_rows, Arg("k", ".shape", At(seq))));
  if (cu_q.size() != cu_kv.size()) {
    return Status::InvalidArgument(Arg("cu_kv").Has(std::to_string(cu_kv.size())) + " entries, want " +
                                   std::to_string(cu_q.size()) + " (" + Arg("cu_q") + ")");
  }
  int64_t begin = 0;
  for (size_t b = 0; b < cu_kv.size(); ++b) {
    tiling::Sequence& sequence = call.bound.problem.sequences[b];
    sequence.sk = cu_kv[b] - begin;
    sequence.k_offset = begin;
    begin = cu_kv[b];
  }
  call.bound.cu_kv.assign(cu_kv.begin(), cu_kv.end());
  return Status::Ok();
}

// Returns the entry of batch element b, or `rows` if there are no lengths.
int64_t LengthInUse(std::span<const int64_t> lengths, size_t b, int64_t rows) {
  return lengths.empty() ? rows : lengths.size() == 1 ? lengths[0] : lengths[b];
}

Status CheckActual(const Binding& call, const char* name, std::span<const int64_t> lengths, int64_t rows,
                   const char* tensor) {
  if (lengths.empty()) return Status::Ok();
  const auto entries = static_cast<int64_t>(lengths.size());
  if (entries > 1 && entries < call.sizes.sequences) {
    return Status::InvalidArgument(Arg(name).Has(std::to_string(entries)) + " entries, want 1 or " +
                                   std::to_string(call.sizes.sequences) + " (batch)");
  }
  for (size_t i = 0; i < lengths.size() && static_cast<int64_t>(i) < std::max<int64_t>(call.sizes.sequences, 1); ++i) {
    if (lengths[i] >= 0 && lengths[i] <= rows) continue;
    return Status::InvalidArgument(EntryOf(name, lengths, i) + ", want 0.." + std::to_string(rows) + " (" +
                                   Arg(tensor, ".shape", At(layout::AxesOf(call.options.layout).seq)) + ")");
  }
  return Status::Ok();
}

Status BindPacked(Binding& call) {
  const std::span<const int64_t> cu_q = call.args.cu_q;
  const int seq = layout::AxesOf(call.options.layout).seq;
  FA_RETURN_IF_ERROR(CheckPrefixSums("cu_q", cu_q, call.sizes.q_rows, Arg("q", ".shape", At(seq))));
  BoundAttention& bound = call.bound;
  std::vector<tiling::Sequence>& sequences = bound.problem.sequences;
  call.sizes.sequences = static_cast<int64_t>(cu_q.size());
  sequences.resize(cu_q.size());
  int64_t begin = 0;
  for (size_t b = 0; b < cu_q.size(); ++b) {
    sequences[b].sq = cu_q[b] - begin;
    sequences[b].q_offset = begin;
    begin = cu_q[b];
  }
  if (call.paged()) {
    const std::span<const int64_t> lengths = call.inference->lengths.kv;
    FA_RETURN_IF_ERROR(CheckActual(call, "lengths_kv", lengths, call.sizes.k_rows, "k"));
    for (size_t b = 0; b < cu_q.size(); ++b) sequences[b].sk = LengthInUse(lengths, b, call.sizes.k_rows);
  } else {
    FA_RETURN_IF_ERROR(BindPackedKeys(call));
  }
  for (const tiling::Sequence& sequence : sequences) {
    call.sizes.max_sq = std::max(call.sizes.max_sq, sequence.sq);
    call.sizes.max_sk = std::max(call.sizes.max_sk, sequence.sk);
  }
  bound.tail_row_begin = begin;
  bound.tail_row_end = call.sizes.q_rows;
  bound.cu_q.assign(cu_q.begin(), cu_q.end());
  return Status::Ok();
}

// Refuses too many batch elements. A batch element takes at least one task, and one per KV head if all elements have
// rows in use.
Status CheckBatch(const Binding& call, std::span<const int64_t> lengths_q) {
  const bool has_rows = call.sizes.q_rows > 0 && (lengths_q.empty() || (lengths_q.size() == 1 && lengths_q[0] > 0));
  const int batch = layout::AxesOf(call.options.layout).batch;
  return CheckSequenceCount(Arg("q", ".shape", At(batch)), call.sizes.sequences,
                            has_rows ? call.bound.problem.heads_kv : 1);
}

// Shortens the sequences to the rows in use. BindMask later makes the masks for these lengths.
Status BindActual(Binding& call, const ActualLengths& lengths) {
  FA_RETURN_IF_ERROR(CheckActual(call, "lengths_q", lengths.q, call.sizes.q_rows, "q"));
  FA_RETURN_IF_ERROR(CheckActual(call, "lengths_kv", lengths.kv, call.sizes.k_rows, "k"));
  BoundAttention& bound = call.bound;
  for (size_t b = 0; b < bound.problem.sequences.size(); ++b) {
    tiling::Sequence& sequence = bound.problem.sequences[b];
    sequence.sq = LengthInUse(lengths.q, b, sequence.sq);
    sequence.sk = call.prefix_rows() + LengthInUse(lengths.kv, b, sequence.sk);
  }
  bound.padded_rows = lengths.q.empty() ? 0 : call.sizes.q_rows;
  bound.lengths_q.assign(lengths.q.begin(), lengths.q.end());
  bound.lengths_kv.assign(lengths.kv.begin(), lengths.kv.end());
  return Status::Ok();
}

Status RefuseLengths(const Binding& call, const char* name, std::span<const int64_t> lengths) {
  if (lengths.empty()) return Status::Ok();
  return Status::InvalidArgument(Arg(name).Says("given, want none (") + Arg("layout") + " " +
                                 Name(call.options.layout) + ")");
}

Status BindSequences(Binding& call) {
  const ActualLengths lengths = call.inference != nullptr ? call.inference->lengths : ActualLengths{};
  if (call.packed()) {
    FA_RETURN_IF_ERROR(RefuseLengths(call, "lengths_q", lengths.q));
    if (!call.paged()) FA_RETURN_IF_ERROR(RefuseLengths(call, "lengths_kv", lengths.kv));
    return BindPacked(call);
  }
  FA_RETURN_IF_ERROR(RefuseLengths(call, "cu_q", call.args.cu_q));
  FA_RETURN_IF_ERROR(RefuseLengths(call, "cu_kv", call.args.cu_kv));
  call.sizes.max_sq = call.sizes.q_rows;
  call.sizes.max_sk = call.prefix_rows() + call.sizes.k_rows;
  FA_RETURN_IF_ERROR(CheckBatch(call, lengths.q));
  if (lengths.kv.empty() && call.sizes.k_rows > tiling::kMostKeys) {
    return WrongSize("k", layout::AxesOf(call.options.layout).seq, call.sizes.k_rows,
                     "want at most " + std::to_string(tiling::kMostKeys));
  }
  tiling::Sequence sequence;
  sequence.sq = call.sizes.q_rows;
  sequence.sk = call.sizes.k_rows;
  call.bound.problem.sequences.assign(static_cast<size_t>(call.sizes.sequences), sequence);
  return BindActual(call, lengths);
}

}  // namespace

Status BindLengths(Binding& call) {
  FA_RETURN_IF_ERROR(BindSequences(call));
  const std::vector<tiling::Sequence>& sequences = call.bound.problem.sequences;
  for (size_t b = 0; b < sequences.size(); ++b) {
    FA_RETURN_IF_ERROR(CheckKeyCount("k", static_cast<int64_t>(b), sequences[b].sk));
  }
  return Status::Ok();
}

}  // namespace fa::ops
