#include <string>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"
#include "tiling/row_rules.h"

namespace fa::ops {
namespace {

// Sparse modes whose mask tensor, if given, is a compressed triangle that the rule replaces.
bool CompressedMode(int64_t sparse_mode) { return sparse_mode >= 2 && sparse_mode <= 8 && sparse_mode != 5; }

bool IsMaskType(DType dtype) { return dtype == DType::kU8 || dtype == DType::kBool || dtype == DType::kI8; }

Status BindPackedDenseMask(Binding& call, const TensorView& mask) {
  if (mask.shape.rank() != 2) {
    return Status::InvalidArgument("dense_mask.shape=" + Text(mask.shape) +
                                   ", want [maxSq,maxSk], of the longest sequences (layout TND)");
  }
  if (Status status = CheckPairSize(call, "dense_mask", mask, 0, call.sizes.max_sq, {"longest query sequence"});
      !status.ok()) {
    return status;
  }
  return CheckPairSize(call, "dense_mask", mask, 1, call.sizes.max_sk, {"longest key sequence"});
}

Status BindFullDenseMask(Binding& call, const TensorView& mask) {
  const int rank = mask.shape.rank();
  if (rank != 2 && rank != 4) {
    return Status::InvalidArgument("dense_mask.shape=" + Text(mask.shape) +
                                   ", want [Sq,Sk], [1,1,Sq,Sk], [B,1,Sq,Sk] or [B,N,Sq,Sk]" +
                                   (call.inference != nullptr ? " or [B|1,Sq,Sk]" : ""));
  }
  const layout::Axes axes = layout::AxesOf(call.options.layout);
  if (Status status = CheckPairSize(call, "dense_mask", mask, rank - 2, call.sizes.max_sq, {"query", axes.seq});
      !status.ok()) {
    return status;
  }
  if (Status status = CheckPairSize(call, "dense_mask", mask, rank - 1, call.sizes.max_sk, {"key", axes.seq});
      !status.ok()) {
    return status;
  }
  if (rank == 2) return Status::Ok();
  const int64_t batch = mask.shape[0];
  const int64_t heads = mask.shape[1];
  if (heads != 1 && heads != call.bound.problem.heads) {
    return WrongSize("dense_mask", 1, heads,
                     "want 1 or " + std::to_string(call.bound.problem.heads) + " (query heads)");
  }
  if (batch == call.sizes.sequences || (batch == 1 && heads == 1)) return Status::Ok();
  return CheckSize("dense_mask", mask, 0, call.sizes.sequences, {"query", axes.batch});
}

// With Inference a mask for all heads may have one dimension less: [B,Sq,Sk].
TensorView WithHeadDimension(const Binding& call, TensorView mask) {
  if (call.inference == nullptr || call.packed() || mask.shape.rank() != 3) return mask;
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  mask.stride = {stride[0], 0, stride[1], stride[2]};
  mask.shape = {mask.shape[0], 1, mask.shape[1], mask.shape[2]};
  return mask;
}

Status CheckCompressedMaskShape(const TensorView& mask, int64_t sparse_mode) {
  const int rank = mask.shape.rank();
  const int64_t rows = sparse_mode == 6 ? 3072 : 2048;
  bool right = rank >= 2 && mask.shape[rank - 2] == rows && mask.shape[rank - 1] == 2048;
  for (int i = 0; i < rank - 2; ++i) right = right && mask.shape[i] == 1;
  if (right) return Status::Ok();
  return Status::InvalidArgument("dense_mask.shape=" + Text(mask.shape) + ", want [" + std::to_string(rows) +
                                 ",2048] (compressed, sparse_mode " + std::to_string(sparse_mode) + ")");
}

Status BindDenseMask(Binding& call) {
  BoundAttention& bound = call.bound;
  if (call.args.dense_mask.data == nullptr) return Status::Ok();
  if (!IsMaskType(call.args.dense_mask.dtype)) {
    return WrongType("dense_mask", call.args.dense_mask.dtype, "u8, bool or i8");
  }
  if (Status status = CheckView("dense_mask", call.args.dense_mask); !status.ok()) return status;
  const int64_t sparse_mode = call.options.mask.sparse_mode();
  if (CompressedMode(sparse_mode)) {
    bound.compressed_mask_mode = sparse_mode;
    return CheckCompressedMaskShape(call.args.dense_mask, sparse_mode);
  }
  const TensorView mask = WithHeadDimension(call, call.args.dense_mask);
  if (Status status = call.packed() ? BindPackedDenseMask(call, mask) : BindFullDenseMask(call, mask); !status.ok()) {
    return status;
  }
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  const int rank = mask.shape.rank();
  bound.has_dense_mask = true;
  bound.problem.dense_mask = true;
  bound.dense_mask.dtype = mask.dtype;
  bound.dense_mask.row = stride[rank - 2];
  if (rank == 4) {
    bound.dense_mask.batch = mask.shape[0] > 1 ? stride[0] : 0;
    bound.dense_mask.head = mask.shape[1] > 1 ? stride[1] : 0;
  }
  return Status::Ok();
}

Status CheckPrefixCount(const Binding& call) {
  const Mask& mask = call.options.mask;
  const auto entries = static_cast<int64_t>(mask.prefix().size());
  if (mask.kind() != Mask::Kind::kPrefix || entries == call.sizes.sequences) return Status::Ok();
  const layout::Axes axes = layout::AxesOf(call.options.layout);
  const std::string source = call.packed() ? "number of sequences" : "query.shape[" + std::to_string(axes.batch) + "]";
  return Status::InvalidArgument("mask.prefix has " + std::to_string(entries) + " entries, want " +
                                 std::to_string(call.sizes.sequences) + " (" + source + ")");
}

}  // namespace

Status CheckPairSize(const Binding& call, const char* name, const TensorView& tensor, int dim, int64_t want,
                     SizeSource source) {
  if (call.inference == nullptr || tensor.shape[dim] < want) return CheckSize(name, tensor, dim, want, source);
  return Status::Ok();
}

Status BindMask(Binding& call) {
  if (Status status = BindDenseMask(call); !status.ok()) return status;
  if (Status status = CheckPrefixCount(call); !status.ok()) return status;
  if (call.options.mask.sparse_mode() >= 0) {
    if (Status status = CheckSparseMode(call); !status.ok()) return status;
  }
  tiling::SetRowRules(call.options.mask, call.bound.problem.sequences);
  return Status::Ok();
}

}  // namespace fa::ops
