#include "ops/ranks/whole_call.h"

#include <string>
#include <utility>

#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {

using tiling::Interval;
using tiling::RowShards;

std::vector<Interval> OwnRows(const RowShards& shards, int rank, Interval rows) {
  std::vector<Interval> own;
  for (const tiling::PlacedRows& run : Within(shards.Of(rank), {&rows, 1})) {
    own.push_back({run.at, run.at + run.rows.size()});
  }
  return own;
}

Status WholeTensors::WidenAxis(const char* name, const TensorView& tensor, const Axis& axis, Dims* shape, Dims* stride,
                               bool written) const {
  if (tensor.shape.rank() < axis.rank) return Status::Ok();
  if (Status status = CheckView(name, tensor, axis.any_innermost); !status.ok()) return status;
  const RowShards& shards = axis.queries ? q_ : k_;
  const int64_t own = shards.Count(rank_);
  if (tensor.shape[axis.at] != own) {
    return WrongSize(name, axis.at, tensor.shape[axis.at],
                     "want " + std::to_string(own) + " (rows of this rank of " + std::to_string(shards.rows()) + ")");
  }
  if (written && !tensor.stride.empty() && layout::OverlapsItself(tensor)) {
    return Status::InvalidArgument(Arg(name, ".stride").Is(Text(tensor.stride)) +
                                   ", want strides that keep its elements apart");
  }
  (*shape)[axis.at] = shards.rows();
  *stride = {};
  return Status::Ok();
}

Status CheckTaken(const ScoreTensors& tensors, const AttentionOptions& options) {
  if (tensors.drop_mask.data != nullptr) {
    return Status::InvalidArgument(Arg("drop_mask").Says("not taken over ranks, want ") + Arg("dropout") + " (a seed)");
  }
  if (tensors.dense_mask.data != nullptr) {
    return Status::InvalidArgument(Arg("dense_mask").Says("not taken over ranks, want ") + Arg("mask"));
  }
  if (tensors.pse.data == nullptr) return Status::Ok();
  if (options.pse_type < PseType::kSlopes) {
    return Status::InvalidArgument(Arg("pse").Says("not taken over ranks with ") + Arg("pse_type") + " " +
                                   std::to_string(static_cast<int>(options.pse_type)));
  }
  if (options.layout == Layout::kTND && tensors.pse.shape.rank() == 2) {
    return Status::InvalidArgument(Arg("pse").Says("not taken over ranks as [B,N] with ") + Arg("layout") + " TND");
  }
  return Status::Ok();
}

}  // namespace fa::ops
