#include "ops/dense/bind_merge_by_lse.h"

#include <cmath>
#include <string>

#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

std::string NameOf(const char* list, size_t i) { return std::string(list) + At(static_cast<int64_t>(i)); }

Status CheckTensor(const std::string& name, const TensorView& tensor, int rank) {
  if (tensor.data == nullptr && tensor.shape.empty()) return Status::InvalidArgument(Arg(name).Says("missing"));
  FA_RETURN_IF_ERROR(CheckView(name.c_str(), tensor, /*any_innermost=*/true));
  if (tensor.shape.rank() == rank) return Status::Ok();
  return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want " +
                                 (rank == 1 ? "[M]" : "[M,D]"));
}

Status CheckLse(const std::string& name, const TensorView& tensor, int64_t rows) {
  if (tensor.dtype != DType::kF32 && SizeOf(tensor.dtype) > 0) return WrongType(name.c_str(), tensor.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckTensor(name, tensor, 1));
  return CheckSize(name.c_str(), tensor, 0, rows, {"local_out[0]", 0});
}

Status CheckRows(const std::string& name, const TensorView& tensor, const TensorView& first) {
  FA_RETURN_IF_ERROR(CheckTensor(name, tensor, 2));
  if (tensor.dtype > DType::kBF16) return WrongType(name.c_str(), tensor.dtype, "f32, f16 or bf16");
  if (tensor.dtype != first.dtype) return WrongType(name.c_str(), tensor.dtype, TypeOf("local_out[0]", first.dtype));
  FA_RETURN_IF_ERROR(CheckSize(name.c_str(), tensor, 0, first.shape[0], {"local_out[0]", 0}));
  return CheckSize(name.c_str(), tensor, 1, first.shape[1], {"local_out[0]", 1});
}

RowStrides StridesOf(const TensorView& tensor) {
  const Dims stride = layout::FilledStride(tensor.shape, tensor.stride);
  return {stride[0], stride[1]};
}

int64_t StrideOf(const TensorView& tensor) { return layout::FilledStride(tensor.shape, tensor.stride)[0]; }

Status CheckElementsApart(const char* name, const TensorView& tensor) {
  if (!layout::OverlapsItself(
          {tensor.data, tensor.dtype, tensor.shape, layout::FilledStride(tensor.shape, tensor.stride)})) {
    return Status::Ok();
  }
  return Status::InvalidArgument(Arg(name, ".stride").Is(Text(tensor.stride)) +
                                 ", want strides that keep its elements apart");
}

Status Bind(const MergeByLseArgs& args, const MergeByLseOptions& options, BoundMergeByLse* bound) {
  if (!std::isinf(options.lse_without_keys)) {
    return Status::InvalidArgument(Arg("lse_without_keys").Is(Text(options.lse_without_keys)) + ", want -inf or inf");
  }
  if (args.local_out.empty()) return Status::InvalidArgument(Arg("local_out").Has("0 tensors, want at least one"));
  if (args.lse.size() != args.local_out.size()) {
    return Status::InvalidArgument(Arg("lse").Has(std::to_string(args.lse.size())) + " tensors, want " +
                                   std::to_string(args.local_out.size()) + " (" + Arg("local_out") + ")");
  }
  const TensorView& first = args.local_out[0];
  for (size_t i = 0; i < args.local_out.size(); ++i) {
    FA_RETURN_IF_ERROR(CheckRows(NameOf("local_out", i), args.local_out[i], first));
    FA_RETURN_IF_ERROR(CheckLse(NameOf("lse", i), args.lse[i], first.shape[0]));
    bound->local_out.push_back(StridesOf(args.local_out[i]));
    bound->lse.push_back(StrideOf(args.lse[i]));
  }
  FA_RETURN_IF_ERROR(CheckRows("out", args.out, first));
  FA_RETURN_IF_ERROR(CheckElementsApart("out", args.out));
  bound->out = StridesOf(args.out);
  if (args.lse_out.data != nullptr) {
    FA_RETURN_IF_ERROR(CheckLse("lse_out", args.lse_out, first.shape[0]));
    FA_RETURN_IF_ERROR(CheckElementsApart("lse_out", args.lse_out));
    bound->lse_out = StrideOf(args.lse_out);
  }
  bound->rows = first.shape[0];
  bound->columns = first.shape[1];
  bound->dtype = first.dtype;
  bound->lse_without_keys = options.lse_without_keys;
  return Status::Ok();
}

std::vector<PlannedTensor> KeepList(const char* name, std::span<const TensorView> tensors) {
  std::vector<CallTensor> list;
  for (const TensorView& tensor : tensors) list.push_back(ListedTensor(name, tensor));
  return KeepPlanned(list);
}

/// Checks that the tensors of a list are the planned ones, and that no output shares elements with them.
Status CheckList(const char* list, std::span<const TensorView> tensors, std::span<const PlannedTensor> planned,
                 const CallTensors& outputs, std::span<const PlannedTensor> planned_outputs) {
  if (tensors.size() != planned.size()) {
    return Status::InvalidArgument(Arg(list).Has(std::to_string(tensors.size())) + " tensors, want " +
                                   std::to_string(planned.size()) + " (as planned)");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = NameOf(list, i);
    const CallTensor tensor = ListedTensor(name.c_str(), tensors[i]);
    FA_RETURN_IF_ERROR(CheckPlanned(tensor, planned[i]));
    for (size_t output = 0; output < outputs.size(); ++output) {
      FA_RETURN_IF_ERROR(CheckApart(outputs[output], planned_outputs[output], tensor, planned[i]));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<BoundMergeByLse> BindMergeByLse(const MergeByLseArgs& args, const MergeByLseOptions& options) {
  BoundMergeByLse bound;
  FA_RETURN_IF_ERROR(Bind(args, options, &bound));
  bound.planned = KeepPlanned(TensorsOf(args));
  bound.planned_lse = KeepList("lse", args.lse);
  bound.planned_local_out = KeepList("local_out", args.local_out);
  return bound;
}

Status CheckMergeByLseRunArgs(const BoundMergeByLse& bound, const MergeByLseArgs& args) {
  const CallTensors outputs = TensorsOf(args);
  FA_RETURN_IF_ERROR(CheckAllPlanned(outputs, bound.planned));
  FA_RETURN_IF_ERROR(CheckAllApart(outputs, bound.planned));
  FA_RETURN_IF_ERROR(CheckList("lse", args.lse, bound.planned_lse, outputs, bound.planned));
  return CheckList("local_out", args.local_out, bound.planned_local_out, outputs, bound.planned);
}

}  // namespace fa::ops
