#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"
#include "tiling/row_rules.h"

namespace fa::ops {
namespace {

Status BindPackedDenseMask(Binding& call, const TensorView& mask) {
  if (mask.shape.rank() != 2) {
    return Status::InvalidArgument(Arg("dense_mask", ".shape").Is(Text(mask.shape)) +
                                   ", want [maxSq,maxSk], of the longest sequences (" + Arg("layout") + " TND)");
  }
  const PairSources sources = PairSources::Of(call);
  FA_RETURN_IF_ERROR(CheckPairSize(call, "dense_mask", mask, 0, call.sizes.max_sq, sources.rows));
  return CheckPairSize(call, "dense_mask", mask, 1, call.sizes.max_sk, sources.keys);
}

Status BindFullDenseMask(Binding& call, const TensorView& mask) {
  const int rank = mask.shape.rank();
  if (rank != 2 && rank != 4) {
    return Status::InvalidArgument(Arg("dense_mask", ".shape").Is(Text(mask.shape)) +
                                   ", want [Sq,Sk], [1,1,Sq,Sk], [B,1,Sq,Sk] or [B,N,Sq,Sk]" +
                                   (call.inference != nullptr ? " or [B|1,Sq,Sk]" : ""));
  }
  const PairSources sources = PairSources::Of(call);
  FA_RETURN_IF_ERROR(CheckPairSize(call, "dense_mask", mask, rank - 2, call.sizes.max_sq, sources.rows));
  FA_RETURN_IF_ERROR(CheckPairSize(call, "dense_mask", mask, rank - 1, call.sizes.max_sk, sources.keys));
  if (rank == 2) return Status::Ok();
  const int64_t batch = mask.shape[0];
  const int64_t heads = mask.shape[1];
  if (heads != 1 && heads != call.bound.problem.heads) {
    return WrongSize("dense_mask", 1, heads,
                     "want 1 or " + std::to_string(call.bound.problem.heads) + " (query heads)");
  }
  if (batch == call.sizes.sequences || (batch == 1 && heads == 1)) return Status::Ok();
  return CheckSize("dense_mask", mask, 0, call.sizes.sequences, sources.batch);
}

// Returns the mask with a dimension of heads. With Inference, a mask for all heads may lack this dimension: [B,Sq,Sk].
TensorView WithHeadDimension(const Binding& call, TensorView mask) {
  if (call.inference == nullptr || call.packed_pairs() || mask.shape.rank() != 3) return mask;
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  mask.stride = {stride[0], 0, stride[1], stride[2]};
  mask.shape = {mask.shape[0], 1, mask.shape[1], mask.shape[2]};
  return mask;
}

Status BindDenseMask(Binding& call) {
  BoundAttention& bound = call.bound;
  if (call.args.dense_mask.data == nullptr) return Status::Ok();
  const int64_t sparse_mode = call.options.mask.sparse_mode();
  if (IsCompressedMode(sparse_mode)) {
    bound.compressed_mask_mode = sparse_mode;
    return CheckCompressedMask(call.args.dense_mask, sparse_mode);
  }
  FA_RETURN_IF_ERROR(CheckMaskTensor(call.args.dense_mask));
  const TensorView mask = WithHeadDimension(call, call.args.dense_mask);
  FA_RETURN_IF_ERROR(call.packed_pairs() ? BindPackedDenseMask(call, mask) : BindFullDenseMask(call, mask));
  bound.has_dense_mask = true;
  bound.problem.dense_mask = true;
  bound.dense_mask = DenseMaskRows(mask, call.sizes.sequences);
  return Status::Ok();
}

/// Checks the planes of a pair mask, one per batch element and head, or shared.
Status CheckPlanes(const Binding& call, const TensorView& mask) {
  const tiling::AttentionProblem& problem = call.bound.problem;
  const int64_t heads = mask.shape[1];
  if (heads != 1 && heads != problem.heads_kv && heads != problem.heads) {
    return WrongSize("pair_mask", 1, heads,
                     "want 1, " + std::to_string(problem.heads_kv) + " (key heads) or " +
                         std::to_string(problem.heads) + " (query heads)");
  }
  if (mask.shape[0] == 1) return Status::Ok();
  return CheckSize("pair_mask", mask, 0, call.sizes.sequences, PairSources::Of(call).batch);
}

Status BindPairMask(Binding& call) {
  if (call.args.pair_mask == nullptr) return Status::Ok();
  if (call.args.dense_mask.data != nullptr) {
    return Status::InvalidArgument(Arg("pair_mask").Says("given together with ") + Arg("dense_mask") +
                                   ", want one of them");
  }
  if (call.args.pair_mask->contents() == nullptr) return Status::InvalidArgument(Arg("pair_mask").Says("has no mask"));
  BoundAttention& bound = call.bound;
  const TensorView mask{nullptr, DType::kBool, call.args.pair_mask->shape(), {}};
  const PairSources sources = PairSources::Of(call);
  PairTileLayout& layout = bound.pair_mask;
  layout.one_row = mask.shape[2] == 1;
  FA_RETURN_IF_ERROR(CheckPlanes(call, mask));
  if (!layout.one_row) FA_RETURN_IF_ERROR(CheckPairSize(call, "pair_mask", mask, 2, call.sizes.max_sq, sources.rows));
  FA_RETURN_IF_ERROR(CheckPairSize(call, "pair_mask", mask, 3, call.sizes.max_sk, sources.keys));
  layout.rows = mask.shape[2];
  layout.keys = mask.shape[3];
  layout.heads_per_plane = std::max<int64_t>(bound.problem.heads / std::max<int64_t>(mask.shape[1], 1), 1);
  for (int64_t b = 0; b < call.sizes.sequences; ++b) layout.plane.push_back(mask.shape[0] > 1 ? b * mask.shape[1] : 0);
  bound.pair_mask_shape = mask.shape;
  bound.problem.dense_mask = true;
  return Status::Ok();
}

Status CheckPrefixCount(const Binding& call) {
  const Mask& mask = call.options.mask;
  const auto entries = static_cast<int64_t>(mask.prefix().size());
  if (mask.kind() != Mask::Kind::kPrefix || entries == call.sizes.sequences) return Status::Ok();
  const layout::Axes axes = layout::AxesOf(call.options.layout);
  const ErrorText source = call.packed() ? ErrorText("number of sequences") : Arg("q", ".shape", At(axes.batch));
  const std::string want = ", want " + std::to_string(call.sizes.sequences);
  const ErrorText what = entries == 0 ? Arg("mask.prefix").Says("missing" + want + " entries")
                                      : Arg("mask.prefix").Has(std::to_string(entries) + " entries" + want);
  return Status::InvalidArgument(what + " (" + source + ")");
}

Status WrongRowCount(const char* name, size_t entries, const ErrorText& want) {
  return Status::InvalidArgument(Arg(name).Has(std::to_string(entries)) + " entries, want " + want);
}

Status CheckRowCounts(const Binding& call) {
  const Mask& mask = call.options.mask;
  const int64_t rows = call.sizes.q_rows;
  const auto entries = static_cast<int64_t>(mask.row_begin().size());
  int64_t all = rows;
  if (!call.packed() && __builtin_mul_overflow(rows, call.sizes.sequences, &all)) all = -1;
  if (entries != rows && entries != all) {
    const int axis = layout::AxesOf(call.options.layout).seq;
    const ErrorText want = std::to_string(rows) + " (" + Arg("q", ".shape", At(axis)) + ")";
    return WrongRowCount("mask.row_begin", mask.row_begin().size(),
                         call.packed() ? want : want + " or batch times that");
  }
  if (mask.row_end().size() == mask.row_begin().size()) return Status::Ok();
  return WrongRowCount("mask.row_end", mask.row_end().size(),
                       std::to_string(entries) + " (" + Arg("mask.row_begin") + ")");
}

// Returns the error about a row of the mask. `above` is the interval of the row above.
Status WrongRow(const Mask& mask, size_t row, const tiling::Interval& above) {
  const bool begin = std::max<int64_t>(mask.row_begin()[row], 0) < above.begin;
  const int64_t got = (begin ? mask.row_begin() : mask.row_end())[row];
  return Status::InvalidArgument(
      Arg(begin ? "mask.row_begin" : "mask.row_end", {}, At(static_cast<int64_t>(row))).Is(std::to_string(got)) +
      ", want >= " + std::to_string(begin ? above.begin : above.end) + " (an earlier row)");
}

// Makes the mask of each sequence from the lists of Mask::Rows. Batch elements with the same lists and the same length
// share a mask.
Status FillListedRules(Binding& call) {
  FA_RETURN_IF_ERROR(CheckRowCounts(call));
  const Mask& mask = call.options.mask;
  const std::span<const int64_t> begins = mask.row_begin(), ends = mask.row_end();
  const int64_t rows = call.sizes.q_rows;
  const bool shared = !call.packed() && std::ssize(begins) == rows;
  std::vector<tiling::Sequence>& sequences = call.bound.problem.sequences;
  for (size_t b = 0; b < sequences.size(); ++b) {
    tiling::Sequence& sequence = sequences[b];
    const bool as_before = shared && b > 0 && sequences[b - 1].sq == sequence.sq && sequences[b - 1].sk == sequence.sk;
    if (as_before) {
      sequence.rule = sequences[b - 1].rule;
      continue;
    }
    const int64_t element = shared ? 0 : static_cast<int64_t>(b) * rows;
    const auto first = static_cast<size_t>(call.packed() ? sequence.q_offset : element);
    const auto count = static_cast<size_t>(sequence.sq);
    int64_t wrong = -1;
    sequence.rule =
        tiling::ListedRowRule(begins.subspan(first, count), ends.subspan(first, count), sequence.sk, &wrong);
    if (wrong >= 0) return WrongRow(mask, first + static_cast<size_t>(wrong), sequence.rule.Keys(wrong - 1));
  }
  return Status::Ok();
}

}  // namespace

Status CheckMaskTensor(const TensorView& mask) {
  const DType dtype = mask.dtype;
  if (dtype != DType::kU8 && dtype != DType::kBool && dtype != DType::kI8) {
    return WrongType("dense_mask", dtype, "u8, bool or i8");
  }
  return CheckView("dense_mask", mask);
}

Status CheckCompressedMask(const TensorView& mask, int64_t sparse_mode) {
  FA_RETURN_IF_ERROR(CheckMaskTensor(mask));
  const int rank = mask.shape.rank();
  const int64_t rows = sparse_mode == 6 ? 3072 : 2048;
  bool right = rank >= 2 && mask.shape[rank - 2] == rows && mask.shape[rank - 1] == 2048;
  for (int i = 0; i < rank - 2; ++i) right = right && mask.shape[i] == 1;
  if (right) return Status::Ok();
  return Status::InvalidArgument(Arg("dense_mask", ".shape").Is(Text(mask.shape)) + ", want [" + std::to_string(rows) +
                                 ",2048] (compressed, " + Arg("sparse_mode") + " " + std::to_string(sparse_mode) + ")");
}

bool IsCompressedMode(int64_t sparse_mode) { return sparse_mode >= 2 && sparse_mode <= 8 && sparse_mode != 5; }

PairRows DenseMaskRows(const TensorView& mask, int64_t sequences) {
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  const int rank = mask.shape.rank();
  const bool of_elements = rank == 4 && mask.shape[0] > 1, of_heads = rank == 4 && mask.shape[1] > 1;
  PairRows rows{.dtype = mask.dtype, .sequences = {}};
  for (int64_t b = 0; b < sequences; ++b) {
    rows.sequences.push_back(
        {.offset = of_elements ? b * stride[0] : 0, .head = of_heads ? stride[1] : 0, .row = stride[rank - 2]});
  }
  return rows;
}

PairSources PairSources::Of(const Binding& call) {
  const layout::Axes axes = layout::AxesOf(call.options.layout);
  if (call.packed()) return {{"longest query sequence"}, {"longest key sequence"}, {"number of sequences"}};
  const SizeSource keys =
      call.paged() || call.prefix_rows() > 0 ? SizeSource{"longest key sequence"} : SizeSource{"k", axes.seq};
  return {{"q", axes.seq}, keys, {"q", axes.batch}};
}

Status CheckPairSize(const Binding& call, const char* name, const TensorView& tensor, int dim, int64_t want,
                     SizeSource source) {
  if (call.inference == nullptr || tensor.shape[dim] < want) return CheckSize(name, tensor, dim, want, source);
  return Status::Ok();
}

Status BindMask(Binding& call) {
  FA_RETURN_IF_ERROR(BindDenseMask(call));
  FA_RETURN_IF_ERROR(BindPairMask(call));
  FA_RETURN_IF_ERROR(CheckPrefixCount(call));
  if (call.options.mask.sparse_mode() >= 0) {
    FA_RETURN_IF_ERROR(CheckSparseMode(call));
  }
  if (call.options.mask.kind() == Mask::Kind::kRows) return FillListedRules(call);
  tiling::SetRowRules(call.options.mask, call.bound.problem.sequences);
  return Status::Ok();
}

}  // namespace fa::ops
