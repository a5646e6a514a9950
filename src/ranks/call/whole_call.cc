#include "ranks/call/whole_call.h"

#include <string>
#include <utility>

#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {

using tiling::Interval;
using tiling::RowShards;

namespace {

/// Returns whether the tensor's data is null only because the tensor has no rows.
bool OnlyRowsMissing(const TensorView& tensor, int at) {
  if (tensor.data != nullptr || tensor.shape.rank() <= at || tensor.shape[at] != 0) return false;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    if (i != at && tensor.shape[i] == 0) return false;
  }
  return true;
}

}  // namespace

void MarkGivenWithoutRows(TensorView* tensor, int at) {
  static constexpr char kPresent = 0;
  if (OnlyRowsMissing(*tensor, at)) tensor->data = &kPresent;
}

void MarkGivenWithoutRows(MutableTensorView* tensor, int at) {
  static char present;
  if (OnlyRowsMissing(*tensor, at)) tensor->data = &present;
}

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
  FA_RETURN_IF_ERROR(CheckView(name, tensor, axis.any_innermost));
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

int64_t WholeTensors::OwnCount(Interval rows) const {
  int64_t own = 0;
  for (const tiling::PlacedRows& run : Within(q_.Of(rank_), {&rows, 1})) own += run.rows.size();
  return own;
}

Status CheckTaken(const TensorView& drop_mask, const PairMask* pair_mask, const TensorView& sink,
                  const TensorView& dsink) {
  if (pair_mask != nullptr) {
    return Status::InvalidArgument(Arg("pair_mask").Says("not taken over ranks, want a tensor"));
  }
  if (drop_mask.data != nullptr) {
    return Status::InvalidArgument(Arg("drop_mask").Says("not taken over ranks, want ") + Arg("dropout") + " (a seed)");
  }
  for (const auto& [name, tensor] : {std::pair{"sink", &sink}, std::pair{"dsink", &dsink}}) {
    if (tensor->data == nullptr) continue;
    if (tensor->shape.rank() > 1) {
      return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor->shape)) + ", want [N] (over ranks)");
    }
    if (tensor->stride.rank() == 1 && tensor->stride[0] != 1 && tensor->shape[0] > 1) {
      return Status::InvalidArgument(Arg(name, ".stride", At(0)).Is(Text(tensor->stride[0])) + ", want 1 (over ranks)");
    }
  }
  return Status::Ok();
}

}  // namespace fa::ops
