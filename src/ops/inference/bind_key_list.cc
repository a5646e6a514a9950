// Binds keys and values that are lists, with one tensor per batch element. The dense call has one tensor of keys and
// one of values. Each of the two has as many rows as the longest tensor of its list.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/inference/bind_decode_parts.h"

namespace fa::ops {
namespace {

// Checks that each tensor of a list has one batch element, and that their sizes differ only in the number of rows.
Status CheckListed(const DecodeBinding& call, const char* list, std::span<const TensorView> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = NameInList(list, tensors, i);
    const TensorView& tensor = tensors[i];
    if (tensor.shape.rank() != call.axes.rank) {
      return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want " +
                                     std::to_string(call.axes.rank) + " dimensions (" + Name(call.options.layout) +
                                     ")");
    }
    FA_RETURN_IF_ERROR(CheckView(name.c_str(), tensor));
    for (int dim = 0; dim < call.axes.rank; ++dim) {
      if (dim == call.axes.seq) continue;
      const int64_t want = dim == call.axes.batch ? 1 : tensors[0].shape[dim];
      const std::string source = dim == call.axes.batch ? "one tensor per batch element" : std::string(list) + "[0]";
      if (tensor.shape[dim] != want) return WrongSize(name.c_str(), dim, tensor.shape[dim], want, {source.c_str()});
    }
    const int64_t rows = call.args.k[i].shape[call.axes.seq];
    if (tensor.shape[call.axes.seq] != rows) {
      return WrongSize(name.c_str(), call.axes.seq, tensor.shape[call.axes.seq], rows,
                       {NameInList("k", call.args.k, i).c_str(), call.axes.seq});
    }
  }
  return Status::Ok();
}

}  // namespace

Status BindKeyList(DecodeBinding& call) {
  FA_RETURN_IF_ERROR(CheckListed(call, "k", call.keys));
  FA_RETURN_IF_ERROR(CheckListed(call, "v", call.values));
  if (call.has_rope()) {
    FA_RETURN_IF_ERROR(CheckListed(call, "k_rope", call.args.k_rope));
  }
  const std::span<const int64_t> given = call.args.lengths_kv;
  std::vector<int64_t> lengths;
  for (size_t b = 0; b < call.args.k.size(); ++b) {
    const int64_t rows = call.args.k[b].shape[call.axes.seq];
    const int64_t length = given.empty() ? rows : given[given.size() == 1 ? 0 : std::min(b, given.size() - 1)];
    if (length < 0 || length > rows) {
      return Status::InvalidArgument(
          Arg("lengths_kv", {}, At(given.size() == 1 ? 0 : static_cast<int64_t>(b))).Is(std::to_string(length)) +
          ", want 0.." + std::to_string(rows) + " (rows of " + Arg("k", {}, At(static_cast<int64_t>(b))) + ")");
    }
    lengths.push_back(length);
  }
  const auto as_one = [&](std::span<const TensorView> tensors) {
    TensorView one{nullptr, call.dense_type(), tensors[0].shape,
                   layout::FilledStride(tensors[0].shape, tensors[0].stride)};
    one.shape[call.axes.batch] = call.batch();
    one.stride[call.axes.batch] = 0;
    for (const TensorView& tensor : tensors) {
      one.shape[call.axes.seq] = std::max(one.shape[call.axes.seq], tensor.shape[call.axes.seq]);
    }
    return one;
  };
  call.k = as_one(call.keys);
  call.v = as_one(call.values);
  if (call.has_rope()) call.k_rope = as_one(call.args.k_rope);
  // BindDense refuses this number of lengths.
  if (given.size() > 1 && given.size() < call.args.k.size()) return BindDense(call, given);
  FA_RETURN_IF_ERROR(BindDense(call, lengths));
  const tiling::AttentionProblem& problem = call.bound.attention.problem;
  for (size_t b = 0; b < call.args.k.size(); ++b) {
    call.bound.storage.k.push_back(layout::RowsOf(call.keys[b], call.axes, problem.d));
    call.bound.storage.v.push_back(layout::RowsOf(call.values[b], call.axes, problem.dv));
    if (!call.has_rope()) continue;
    call.bound.storage.k_rope.push_back(layout::RowsOf(call.args.k_rope[b], call.axes, problem.d_rope));
  }
  return Status::Ok();
}

}  // namespace fa::ops
