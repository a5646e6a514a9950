#include <algorithm>
#include <limits>
#include <string>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

// Binds slopes, f32 [N] or [B,N].
Status BindSlopes(Binding& call) {
  const TensorView& slopes = call.args.pse;
  BoundAttention& bound = call.bound;
  if (slopes.data == nullptr) {
    return Status::InvalidArgument(Arg("pse").Says("missing, want slopes (") + Arg("pse_type") + " " +
                                   std::to_string(static_cast<int>(bound.pse_type)) + ")");
  }
  if (slopes.dtype != DType::kF32) return WrongType("pse", slopes.dtype, "f32 (slopes)");
  FA_RETURN_IF_ERROR(CheckView("pse", slopes));
  const int rank = slopes.shape.rank();
  int64_t batch_stride = 0;
  if (rank != 1 && rank != 2) {
    return Status::InvalidArgument(Arg("pse", ".shape").Is(Text(slopes.shape)) + ", want [N] or [B,N] (slopes)");
  }
  if (rank == 2) {
    FA_RETURN_IF_ERROR(CheckSize("pse", slopes, 0, call.sizes.sequences, {"batch"}));
    batch_stride = layout::FilledStride(slopes.shape, slopes.stride)[0];
  }
  FA_RETURN_IF_ERROR(CheckSize("pse", slopes, rank - 1, bound.problem.heads, {"query heads"}));
  bound.has_slopes = true;
  for (int64_t b = 0; b < call.sizes.sequences; ++b) {
    bound.slopes.sequences.push_back({.offset = b * batch_stride, .head = 1, .row = 0});
  }
  if (call.options.q_start == 0 && call.options.kv_start == 0) return Status::Ok();
  const auto sequences = static_cast<size_t>(call.sizes.sequences);
  const bool first_only = call.options.mask.sparse_mode() == 8;
  bound.q_start.assign(sequences, first_only ? 0 : call.options.q_start);
  bound.kv_start.assign(sequences, first_only ? 0 : call.options.kv_start);
  if (first_only) {
    // In mode 8, the starts hold only for the first sequence that has rows or keys. The device counts this sequence as
    // batch element 0.
    const std::vector<tiling::Sequence>& list = bound.problem.sequences;
    const auto is_one = [](const tiling::Sequence& sequence) { return sequence.sq > 0 || sequence.sk > 0; };
    const auto first = static_cast<size_t>(std::find_if(list.begin(), list.end(), is_one) - list.begin());
    if (first < sequences) {
      bound.q_start[first] = call.options.q_start;
      bound.kv_start[first] = call.options.kv_start;
    }
  }
  return Status::Ok();
}

// Checks that the mask suits a compressed bias. Such a bias has no values for keys after the diagonal that ends at
// (Sq-1, Sk-1).
Status CheckCompressed(const Binding& call) {
  const int64_t mode = call.options.mask.sparse_mode();
  for (const tiling::Sequence& sequence : call.bound.problem.sequences) {
    if (sequence.sq != sequence.sk) {
      return Status::InvalidArgument(Arg("pse").Says("the 1024-row form wants Sq == Sk, got Sq=") +
                                     std::to_string(sequence.sq) + ", Sk=" + std::to_string(sequence.sk));
    }
    const tiling::RowRule& rule = sequence.rule;
    const bool causal = rule.hi <= 0 && rule.prefix <= 0;
    const bool full_causal = causal && rule.hi == 0 && rule.lo <= 1 - sequence.sq;
    if (mode >= 0 ? !full_causal || mode > 4 : !causal) {
      return Status::InvalidArgument(
          Arg("pse").Says("the 1024-row form wants a causal mask (no key after the diagonal)"));
    }
  }
  return Status::Ok();
}

// Fills in the layout of each sequence of a checked tensor [B|1, N, rows, keys]. The number of sequences and the shared
// dimensions are already set.
void FillSequences(const Dims& stride, PseRows* rows) {
  const int64_t batch_stride = rows->shared_batch ? 0 : stride[0];
  int64_t b = 0;
  for (PseRows::PerSequence& sequence : rows->sequences) {
    sequence = {.offset = b++ * batch_stride, .head = stride[1], .row = rows->shared_rows ? 0 : stride[2]};
  }
}

// Binds a bias [B|1, N, rows, keys] whose last two sizes the caller has checked.
Status BindHeads(Binding& call, bool shared_rows) {
  const TensorView& pse = call.args.pse;
  BoundAttention& bound = call.bound;
  if (pse.shape[0] != 1 && pse.shape[0] != call.sizes.sequences) {
    return WrongSize("pse", 0, pse.shape[0], "want 1 or " + std::to_string(call.sizes.sequences) + " (batch)");
  }
  FA_RETURN_IF_ERROR(CheckSize("pse", pse, 1, bound.problem.heads, {"query heads"}));
  bound.pse.shared_batch = pse.shape[0] == 1 && call.sizes.sequences != 1;
  bound.pse.shared_rows = shared_rows;
  bound.pse.sequences.resize(static_cast<size_t>(call.sizes.sequences));
  FillSequences(layout::FilledStride(pse.shape, pse.stride), &bound.pse);
  return Status::Ok();
}

Status BindBias(Binding& call) {
  const TensorView& pse = call.args.pse;
  if (pse.shape.rank() != 4) {
    return Status::InvalidArgument(Arg("pse", ".shape").Is(Text(pse.shape)) +
                                   ", want [B|1,N,Sq,Sk], [B|1,N,1,Sk] or [B|1,N,1024,Sk]");
  }
  const PairSources sources = PairSources::Of(call);
  FA_RETURN_IF_ERROR(CheckPairSize(call, "pse", pse, 3, call.sizes.max_sk, sources.keys));
  if (call.inference != nullptr) {
    const Status rows_status = CheckPairSize(call, "pse", pse, 2, call.sizes.max_sq, sources.rows);
    return rows_status.ok() ? BindHeads(call, /*shared_rows=*/false) : rows_status;
  }
  const int64_t rows = pse.shape[2];
  const int64_t sq = call.sizes.max_sq;
  const bool compressed = rows == kCompressedRows && sq > kCompressedRows;
  if (!compressed && rows != sq && rows != 1) {
    return WrongSize("pse", 2, rows,
                     "want " + std::to_string(sq) + " (" +
                         Arg("q", ".shape", At(layout::AxesOf(call.options.layout).seq)) + ") or 1" +
                         (sq > kCompressedRows ? " or 1024 (compressed)" : ""));
  }
  call.bound.pse.compressed = compressed;
  if (compressed) {
    FA_RETURN_IF_ERROR(CheckCompressed(call));
  }
  return BindHeads(call, rows == 1 && sq != 1);
}

// Binds a flat bias with one block per sequence: [N,Sq_b,Sk_b], or [N,Sk_b] if all rows of a head share their values.
Status BindFlatBias(Binding& call) {
  BoundAttention& bound = call.bound;
  const int64_t size = call.args.pse.shape[0];
  const int64_t heads = bound.problem.heads;
  int64_t full = 0;
  int64_t keys = 0;
  bool overflow = false;
  for (const tiling::Sequence& sequence : bound.problem.sequences) {
    int64_t pairs = 0;
    overflow = overflow || __builtin_mul_overflow(sequence.sq, sequence.sk, &pairs) ||
               __builtin_mul_overflow(pairs, heads, &pairs) || __builtin_add_overflow(full, pairs, &full);
    keys += sequence.sk;
  }
  int64_t shared = 0;
  if (__builtin_mul_overflow(heads, keys, &shared)) shared = std::numeric_limits<int64_t>::max();
  // If the size fits both [N,Sq_b,Sk_b] and [N,Sk_b], rows are not shared.
  const bool is_full = !overflow && size == full;
  if (!is_full && size != shared) {
    return WrongSize("pse", 0, size,
                     "want N*sum(Sq*Sk)=" + (overflow ? "more than 2^63" : std::to_string(full)) +
                         " or N*sum(Sk)=" + std::to_string(shared));
  }
  int64_t offset = 0;
  bound.pse.shared_rows = !is_full;
  bound.pse.sequences.reserve(bound.problem.sequences.size());
  for (const tiling::Sequence& sequence : bound.problem.sequences) {
    const int64_t head = is_full ? sequence.sq * sequence.sk : sequence.sk;
    bound.pse.sequences.push_back({.offset = offset, .head = head, .row = is_full ? sequence.sk : 0});
    offset += heads * head;
  }
  return Status::Ok();
}

Status BindPackedBias(Binding& call) {
  const TensorView& pse = call.args.pse;
  if (pse.shape.rank() == 1) return BindFlatBias(call);
  if (pse.shape.rank() != 4) {
    return Status::InvalidArgument(Arg("pse", ".shape").Is(Text(pse.shape)) +
                                   ", want [N*sum(Sq*Sk)], [N*sum(Sk)] or [B|1,N,1024,maxSk] (" + Arg("layout") +
                                   " TND)");
  }
  FA_RETURN_IF_ERROR(CheckSize("pse", pse, 2, kCompressedRows, {"compressed"}));
  FA_RETURN_IF_ERROR(CheckSize("pse", pse, 3, call.sizes.max_sk, {"longest key sequence"}));
  call.bound.pse.compressed = true;
  FA_RETURN_IF_ERROR(CheckCompressed(call));
  return BindHeads(call, /*shared_rows=*/false);
}

}  // namespace

PseRows GradPseRows(const PseRows& pse, const TensorView& dpse) {
  PseRows rows = pse;  // a flat dpse has the strides of pse
  if (dpse.shape.rank() == 4) FillSequences(layout::FilledStride(dpse.shape, dpse.stride), &rows);
  return rows;
}

Status BindPse(Binding& call) {
  if (call.options.pse_type >= PseType::kSlopes) return BindSlopes(call);
  const TensorView& pse = call.args.pse;
  if (pse.data == nullptr) return Status::Ok();
  // On the device, the pse of an int8 call has the type of the products' results.
  const DType dtype = call.bound.problem.dtype == DType::kI8 ? DType::kF16 : call.bound.problem.dtype;
  if (pse.dtype != dtype && pse.dtype != DType::kF32) {
    return WrongType("pse", pse.dtype, TypeOf("q", dtype) + (dtype != DType::kF32 ? " or f32" : ""));
  }
  FA_RETURN_IF_ERROR(CheckView("pse", pse));
  call.bound.has_pse = true;
  call.bound.pse.dtype = pse.dtype;
  return call.packed_pairs() ? BindPackedBias(call) : BindBias(call);
}

}  // namespace fa::ops
