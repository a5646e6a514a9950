// The operator IndexerKLLoss. Tasks take rows, and each row's loss goes to the workspace. After the tasks the calling
// thread adds the rows in their order, so the cut into tasks changes no bits. The time goes to the logarithms.
#include "fa/indexer_kl_loss.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/run/executor.h"
#include "fa/half.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/planned_tensors.h"
#include "ops/indexer/loss/bind_indexer_loss.h"
#include "ops/indexer/loss_row.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_text.h"
#include "tiling/rows_facts.h"
#include "tiling/rows_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

// The number of entries per task. The logarithms of so many entries take far longer than claiming a task does.
constexpr int64_t kEntriesOfATask = 1 << 13;

/// A validated call: types and strides.
struct BoundKLLoss {
  DType target_dtype = DType::kF32, probabilities_dtype = DType::kF32;
  Dims shape, target, probabilities;  ///< shape of both inputs, and their strides
  int64_t rows = 1, columns = 0;
  IndexerKLLossOptions options;
  std::vector<ops::PlannedTensor> planned;
};

Status CheckDistribution(const char* name, const TensorView& tensor) {
  if (tensor.data == nullptr && tensor.shape.empty()) return Status::InvalidArgument(ops::Arg(name).Says("missing"));
  FA_RETURN_IF_ERROR(ops::CheckView(name, tensor, /*any_innermost=*/true));
  if (tensor.dtype > DType::kBF16) return ops::WrongType(name, tensor.dtype, "f32, f16 or bf16");
  if (!tensor.shape.empty()) return Status::Ok();
  return Status::InvalidArgument(ops::Arg(name, ".shape").Is(ops::Text(tensor.shape)) + ", want [...,K]");
}

Result<BoundKLLoss> BindKLLoss(const IndexerKLLossArgs& args, const IndexerKLLossOptions& options) {
  FA_RETURN_IF_ERROR(CheckDistribution("target", args.target));
  FA_RETURN_IF_ERROR(CheckDistribution("probabilities", args.probabilities));
  const Dims& shape = args.target.shape;
  if (args.probabilities.shape.rank() != shape.rank()) {
    return Status::InvalidArgument(ops::Arg("probabilities", ".shape").Is(ops::Text(args.probabilities.shape)) +
                                   ", want " + ops::Text(shape) + " (" + ops::Arg("target", ".shape") + ")");
  }
  for (int dim = 0; dim < shape.rank(); ++dim) {
    FA_RETURN_IF_ERROR(ops::CheckSize("probabilities", args.probabilities, dim, shape[dim], {"target", dim}));
  }
  FA_RETURN_IF_ERROR(ops::CheckLoss(args.loss));
  if (!(std::isfinite(options.eps) && options.eps >= 0)) {
    return Status::InvalidArgument(ops::Arg("eps").Is(ops::Text(static_cast<float>(options.eps))) +
                                   ", want a finite number of at least 0");
  }
  BoundKLLoss bound{.target_dtype = args.target.dtype,
                    .probabilities_dtype = args.probabilities.dtype,
                    .shape = shape,
                    .target = layout::FilledStride(shape, args.target.stride),
                    .probabilities = layout::FilledStride(shape, args.probabilities.stride),
                    .options = options,
                    .planned = ops::KeepPlanned(ops::TensorsOf(args))};
  bound.columns = shape[shape.rank() - 1];
  for (int dim = 0; dim + 1 < shape.rank(); ++dim) bound.rows *= shape[dim];
  return bound;
}

/// The entries of one row, which are read as double.
class EntriesOfRow {
 public:
  EntriesOfRow(const void* data, DType dtype, const Dims& shape, const Dims& stride, int64_t row)
      : data_(data), dtype_(dtype), step_(stride[shape.rank() - 1]) {
    for (int dim = shape.rank() - 2; dim >= 0; --dim) {
      first_ += row % shape[dim] * stride[dim];
      row /= shape[dim];
    }
  }
  [[nodiscard]] double operator[](int64_t i) const {
    const int64_t at = first_ + i * step_;
    switch (dtype_) {
      case DType::kF16: return F32FromF16(static_cast<const uint16_t*>(data_)[at]);
      case DType::kBF16: return F32FromBf16(static_cast<const uint16_t*>(data_)[at]);
      default: return static_cast<const float*>(data_)[at];
    }
  }

 private:
  const void* data_;
  DType dtype_;
  int64_t first_ = 0, step_;
};

double LossOfRow(const EntriesOfRow& target, const EntriesOfRow& probabilities, int64_t columns,
                 const IndexerKLLossOptions& options) {
  double sum = options.eps;
  for (int64_t i = 0; i < columns; ++i) sum += target[i];
  double loss = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const double y = target[i], p = y / sum;
    const double weight = options.weight == IndexerKLLossWeight::kTarget ? y : p;
    // std::max returns a first argument that is NaN, so a NaN in p reaches the loss.
    loss += weight * (std::log(std::max(p, options.eps)) - std::log(probabilities[i] + options.eps));
  }
  return loss;
}

class KLLossPlanImpl final : public Plan::ImplFor<IndexerKLLossArgs> {
 public:
  KLLossPlanImpl(Context& context, BoundKLLoss bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        plan_(tiling::MakeRowsPlan(bound_.rows,
                                   std::max<int64_t>(kEntriesOfATask / std::max<int64_t>(bound_.columns, 1), 1),
                                   context.threads())),
        run_state_(workspace_.Book("run state", core::RunStateBytes(plan_.graph))),
        losses_(workspace_.Book("losses of the rows", sizeof(double), bound_.rows)) {}

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    // Each entry takes a sum, a quotient, a difference, a product and a sum, next to two logarithms.
    const double flops = 5 * static_cast<double>(bound_.rows) * static_cast<double>(bound_.columns);
    tiling::PlanText problem;
    problem.AddLine("indexer loss value, %s and %s: %lld rows of %lld", Name(bound_.target_dtype),
                    Name(bound_.probabilities_dtype), tiling::Wide(bound_.rows), tiling::Wide(bound_.columns));
    return tiling::FactsOf(
        plan_, ops::MachineOf(context(), ops::KernelsOf(context(), DType::kF32)),
        {.op = "indexer loss value",
         .kernel = "indexer_kl_loss_portable",  // all levels share one kernel, whose logarithms are in double
         .reason = kReason,
         .flops = flops,
         .problem = problem.Take()});
  }

  [[nodiscard]] Status Run(const IndexerKLLossArgs& args, std::byte* workspace) const override {
    const ops::CallTensors tensors = ops::TensorsOf(args);
    FA_RETURN_IF_ERROR(ops::CheckAllPlanned(tensors, bound_.planned));
    FA_RETURN_IF_ERROR(ops::CheckAllApart(tensors, bound_.planned));
    auto* losses = reinterpret_cast<double*>(workspace + losses_);
    auto add_rows = [&](int32_t task, int /*worker*/) {
      const tiling::Interval rows = plan_.RowsOf(task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        losses[row] =
            LossOfRow({args.target.data, bound_.target_dtype, bound_.shape, bound_.target, row},
                      {args.probabilities.data, bound_.probabilities_dtype, bound_.shape, bound_.probabilities, row},
                      bound_.columns, bound_.options);
      }
    };
    FA_RETURN_IF_ERROR(RunGraph(plan_.graph, core::TaskFunction(add_rows), workspace + run_state_));
    ops::WriteLoss(losses, bound_.rows, 1, static_cast<float*>(args.loss.data));
    return Status::Ok();
  }

 private:
  static constexpr const char* kReason = "about 8 thousand entries";

  BoundKLLoss bound_;
  tiling::RowsPlan plan_;
  tiling::WorkspacePlan workspace_;
  size_t run_state_, losses_;  // offsets in the workspace
};

}  // namespace

Result<PlanFor<IndexerKLLossArgs>> PlanIndexerKLLoss(const IndexerKLLossArgs& args, const IndexerKLLossOptions& options,
                                                     Context* context) {
  return ops::MakePlan<KLLossPlanImpl>(context, [&] { return BindKLLoss(args, options); });
}

Status IndexerKLLoss(const IndexerKLLossArgs& args, const IndexerKLLossOptions& options, Context* context) {
  auto plan = PlanIndexerKLLoss(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
