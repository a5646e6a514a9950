// Copies rows to their places in a paged cache, or quantises them (quantize_rows.cc). The memory traffic is the rows
// themselves, read once and written once. If rows share a place, the last row remains. So a task does not get a range
// of rows, but a share of the places. Each task reads all places and copies the rows of its share, in order.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/run/executor.h"
#include "core/run/guarded_call.h"
#include "core/saturating.h"
#include "fa/cache_rows.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/planned_tensors.h"
#include "ops/cache/bind_pages.h"
#include "ops/cache/index_tensor.h"
#include "ops/cache/plain_rows.h"
#include "ops/cache/quantize_rows.h"
#include "ops/cache/row_copy.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_text.h"
#include "tiling/rows_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

// A share of the places has at least this many bytes, so that copying them takes longer than starting a task.
constexpr int64_t kShareBytes = 1 << 16;
// A call streams rows if they take at least a quarter of the last cache: then the rows that are read and written take
// half of it. On a Zen 4 with 32 MiB, scattering 8 MiB and reading them again takes as long with either kind of store.
// Scattering 32 MiB of rows of 256 bytes takes half as long with stores that stream.
constexpr int64_t kStreamedPartOfCache = 4;

struct BoundScatter {
  int64_t rows = 0;
  ops::BoundPages key, value;
  std::optional<ops::RowQuantizer> key_quantizer, value_quantizer;
  bool has_value = false;
  DType dtype = DType::kF32;  ///< type of key
  CacheForm form = CacheForm::kBnBsND;
  std::vector<ops::PlannedTensor> planned;

  [[nodiscard]] int64_t bytes() const { return rows * (key.row_bytes + (has_value ? value.row_bytes : 0)); }
};

/// Returns whether an optional tensor is given. A given tensor without elements may have null data.
bool IsGiven(const TensorView& tensor) {
  return tensor.data != nullptr || std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

ops::QuantizedTensors KeyTensors(const ScatterRowsArgs& args) {
  return {.rows = {"key", args.key},
          .cache = {"key_cache", args.key_cache},
          .scale = {"key_scale", args.key_scale},
          .scale_cache = {"key_scale_cache", args.key_scale_cache}};
}

ops::QuantizedTensors ValueTensors(const ScatterRowsArgs& args) {
  return {.rows = {"value", args.value},
          .cache = {"value_cache", args.value_cache},
          .scale = {"value_scale", args.value_scale},
          .scale_cache = {"value_scale_cache", args.value_scale_cache}};
}

Status BindRows(const ops::QuantizedTensors& tensors, CacheForm form, ops::BoundPages* pages,
                std::optional<ops::RowQuantizer>* quantizer) {
  const bool quantizes = ops::Quantizes(tensors.rows.tensor.dtype, tensors.cache.tensor.dtype);
  auto bound = ops::BindPages(tensors.rows, tensors.cache, form, /*from_cache=*/false, /*converts=*/quantizes);
  if (!bound.ok()) return bound.status();
  *pages = *bound;
  if (!quantizes) return ops::CheckNoScales(tensors);
  auto by = ops::BindQuantizer(tensors, *pages);
  if (by.ok()) *quantizer = *by;
  return by.status();
}

Status BindTensors(const ScatterRowsArgs& args, const ScatterRowsOptions& options, BoundScatter* bound) {
  FA_RETURN_IF_ERROR(ops::CheckForm(options.form));
  FA_RETURN_IF_ERROR(BindRows(KeyTensors(args), options.form, &bound->key, &bound->key_quantizer));
  bound->has_value = IsGiven(args.value) || IsGiven(args.value_cache);
  if (bound->has_value) {
    if (!IsGiven(args.value)) return Status::InvalidArgument(ops::Arg("value").Says("missing"));
    if (!IsGiven(args.value_cache)) return Status::InvalidArgument(ops::Arg("value_cache").Says("missing"));
    FA_RETURN_IF_ERROR(BindRows(ValueTensors(args), options.form, &bound->value, &bound->value_quantizer));
    FA_RETURN_IF_ERROR(ops::CheckSamePageRows(bound->key, bound->value));
    FA_RETURN_IF_ERROR(ops::CheckSize("value", args.value, 0, bound->key.rows, {"key", 0}));
  } else {
    FA_RETURN_IF_ERROR(ops::CheckNoScales(ValueTensors(args)));
  }
  FA_RETURN_IF_ERROR(ops::CheckIndexTensor("slot_mapping", args.slot_mapping, 1));
  bound->rows = args.slot_mapping.shape[0];
  if (args.source_rows.data == nullptr) {
    return ops::CheckSize("slot_mapping", args.slot_mapping, 0, bound->key.rows, {"key", 0});
  }
  FA_RETURN_IF_ERROR(ops::CheckIndexTensor("source_rows", args.source_rows, 1));
  return ops::CheckSize("source_rows", args.source_rows, 0, bound->rows, {"slot_mapping", 0});
}

Result<BoundScatter> BindScatter(const ScatterRowsArgs& args, const ScatterRowsOptions& options) {
  BoundScatter bound;
  bound.dtype = args.key.dtype;
  bound.form = options.form;
  FA_RETURN_IF_ERROR(BindTensors(args, options, &bound));
  bound.planned = ops::KeepPlanned(ops::TensorsOf(args));
  return bound;
}

ops::IndexTensor Indices(const TensorView& tensor) { return {tensor.data, tensor.dtype, tensor.shape, tensor.stride}; }

/// Returns the number of places of a cache. The number is exact for all sizes below 2^60.
int64_t PlacesOf(const ops::BoundPages& cache) {
  int64_t places = 0;
  return __builtin_mul_overflow(cache.pages, cache.page_rows, &places) ? INT64_MAX : places;
}

Status CheckPlaces(const char* cache, const ops::BoundPages& pages, const ops::IndexTensor& slots, int64_t most) {
  const int64_t places = PlacesOf(pages);
  if (most < places) return Status::Ok();
  int64_t t = 0;
  while (slots[t] < places) ++t;
  return Status::InvalidArgument(ops::Arg("slot_mapping", {}, ops::At(t)).Is(std::to_string(slots[t])) +
                                 ", want less than " + std::to_string(places) + " (" + ops::Arg(cache) + ")");
}

Status CheckSourceRows(const ops::IndexTensor& sources, int64_t count, int64_t rows) {
  for (int64_t t = 0; t < count; ++t) {
    if (sources[t] >= 0 && sources[t] < rows) continue;
    return Status::InvalidArgument(ops::Arg("source_rows", {}, ops::At(t)).Is(std::to_string(sources[t])) +
                                   ", want 0.." + std::to_string(rows - 1) + " (" + ops::Arg("key", ".shape[0]") + ")");
  }
  return Status::Ok();
}

Status CheckRun(const BoundScatter& bound, const ScatterRowsArgs& args) {
  const auto tensors = ops::TensorsOf(args);
  FA_RETURN_IF_ERROR(ops::CheckAllPlanned(tensors, bound.planned));
  FA_RETURN_IF_ERROR(ops::CheckAllApart(tensors, bound.planned));
  FA_RETURN_IF_ERROR(ops::CheckGivenScale({"key_scale", args.key_scale}));
  FA_RETURN_IF_ERROR(ops::CheckGivenScale({"value_scale", args.value_scale}));
  if (bound.rows == 0) return Status::Ok();
  const ops::IndexTensor slots = Indices(args.slot_mapping);
  const int64_t most = slots.Max(bound.rows);
  FA_RETURN_IF_ERROR(CheckPlaces("key_cache", bound.key, slots, most));
  if (bound.has_value) {
    FA_RETURN_IF_ERROR(CheckPlaces("value_cache", bound.value, slots, most));
  }
  return args.source_rows.data == nullptr ? Status::Ok()
                                          : CheckSourceRows(Indices(args.source_rows), bound.rows, bound.key.rows);
}

/// Copies the rows [row, row + count) to the places [slot, slot + count).
void CopyRun(const ops::BoundPages& pages, const TensorView& rows, const MutableTensorView& cache, int64_t row,
             int64_t slot, int64_t count) {
  const auto* from = static_cast<const std::byte*>(rows.data);
  auto* to = static_cast<std::byte*>(cache.data);
  while (count > 0) {
    const int64_t page = slot / pages.page_rows, in_page = slot % pages.page_rows;
    const int64_t together = std::min(count, pages.page_rows - in_page);
    ops::CopyRows(pages.copy, {from + row * pages.row_stride, to + pages.PlaceOf(page, in_page), together});
    row += together;
    slot += together;
    count -= together;
  }
}

/// Writes one row, quantised, to its place.
void QuantizeTo(const ops::RowQuantizer& by, const ops::BoundPages& pages, const ops::QuantizedTensors& tensors,
                int64_t row, int64_t slot) {
  const int64_t page = slot / pages.page_rows, in_page = slot % pages.page_rows;
  auto* cache = static_cast<std::byte*>(const_cast<void*>(tensors.cache.tensor.data));
  auto* own = static_cast<std::byte*>(const_cast<void*>(tensors.scale_cache.tensor.data));
  ops::QuantizeRow(by, {.from = static_cast<const std::byte*>(tensors.rows.tensor.data) + row * pages.row_stride,
                        .to = cache + pages.PlaceOf(page, in_page),
                        .given = static_cast<const std::byte*>(tensors.scale.tensor.data),
                        .own = by.given ? nullptr : own + page * by.scale_page + in_page * by.scale_row});
}

void WriteRun(const std::optional<ops::RowQuantizer>& by, const ops::BoundPages& pages,
              const ops::QuantizedTensors& tensors, const MutableTensorView& cache, int64_t row, int64_t slot,
              int64_t count) {
  if (!by) return CopyRun(pages, tensors.rows.tensor, cache, row, slot, count);
  for (int64_t i = 0; i < count; ++i) QuantizeTo(*by, pages, tensors, row + i, slot + i);
}

/// Returns whether rows go to their places unchanged and as one piece each, and all places lie evenly apart.
bool IsPlain(const ops::BoundPages& pages) {
  return pages.copy.whole_rows() && pages.row_bytes >= ops::kLineOfMemory &&
         pages.page_stride == core::SaturatedProduct(pages.page_rows, pages.page_row_stride);
}

bool IsPlain(const BoundScatter& bound, const ScatterRowsArgs& args) {
  const TensorView& slots = args.slot_mapping;
  const bool aligned = reinterpret_cast<uintptr_t>(slots.data) % SizeOf(slots.dtype) == 0;
  return aligned && !bound.key_quantizer && !bound.value_quantizer && args.source_rows.data == nullptr &&
         IsPlain(bound.key) && (!bound.has_value || IsPlain(bound.value)) &&
         (slots.stride.empty() || slots.stride[0] == 1);
}

ops::PlainRows PlainRowsOf(const ops::BoundPages& pages, const TensorView& rows, const MutableTensorView& cache) {
  return {.from = static_cast<const std::byte*>(rows.data),
          .to = static_cast<std::byte*>(cache.data),
          .from_row = pages.row_stride,
          .to_row = pages.page_row_stride,
          .bytes = pages.row_bytes};
}

void ScatterPlainShare(const BoundScatter& bound, const ScatterRowsArgs& args, const ops::PlaceShare& share,
                       bool streams) {
  const ops::PlainRows tensors[] = {PlainRowsOf(bound.key, args.key, args.key_cache),
                                    PlainRowsOf(bound.value, args.value, args.value_cache)};
  const std::span<const ops::PlainRows> given(tensors, bound.has_value ? 2 : 1);
  const auto count = static_cast<size_t>(bound.rows);
  const auto write = [&](const auto* slots) {
    return streams ? ops::StreamPlainRows(given, std::span(slots, count), share)
                   : ops::ScatterPlainRows(given, std::span(slots, count), share);
  };
  if (args.slot_mapping.dtype == DType::kI64) {
    write(static_cast<const int64_t*>(args.slot_mapping.data));
  } else {
    write(static_cast<const int32_t*>(args.slot_mapping.data));
  }
}

void ScatterShare(const BoundScatter& bound, const ScatterRowsArgs& args, const ops::PlaceShare& share, bool streams) {
  if (IsPlain(bound, args)) return ScatterPlainShare(bound, args, share, streams);
  const ops::IndexTensor slots = Indices(args.slot_mapping);
  const ops::IndexTensor sources = args.source_rows.data == nullptr ? ops::IndexTensor() : Indices(args.source_rows);
  const ops::QuantizedTensors keys = KeyTensors(args), values = ValueTensors(args);
  // A run of `count` consecutive rows with consecutive places, which has not been written yet.
  int64_t row = 0, slot = 0, count = 0;
  const auto write_run = [&] {
    WriteRun(bound.key_quantizer, bound.key, keys, args.key_cache, row, slot, count);
    if (!bound.has_value) return;
    WriteRun(bound.value_quantizer, bound.value, values, args.value_cache, row, slot, count);
  };
  for (int64_t t = 0; t < bound.rows; ++t) {
    const int64_t to = slots[t];
    if (!share.Has(to)) continue;
    const int64_t from = sources.absent() ? t : sources[t];
    if (from == row + count && to == slot + count && count > 0) {
      ++count;
      continue;
    }
    write_run();
    row = from;
    slot = to;
    count = 1;
  }
  write_run();
}

class ScatterPlanImpl final : public Plan::ImplFor<ScatterRowsArgs> {
 public:
  ScatterPlanImpl(Context& context, BoundScatter bound)
      : ImplFor(context), bound_(std::move(bound)), shares_(SharesOf(context)), streams_(Streams(context)) {
    plan_ = tiling::MakeRowsPlan(shares_, 1, context.threads());
    workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    tiling::PlanText problem, tasks;
    problem.AddLine("scatter, %s: %lld rows of %lld bytes to %lld pages of %lld rows (%s)", Name(bound_.dtype),
                    tiling::Wide(bound_.rows),
                    tiling::Wide(bound_.key.row_bytes + (bound_.has_value ? bound_.value.row_bytes : 0)),
                    tiling::Wide(bound_.key.pages), tiling::Wide(bound_.key.page_rows), Name(bound_.form));
    tasks.AddLine("tasks: %lld: %s", tiling::Wide(plan_.graph.task_count), kReason);
    const std::vector<double> load = plan_.Load();
    return {.op = "scatter",
            .machine = ops::MachineOf(context(), ops::KernelsOf(context(), DType::kF32)),
            .kernels = Kernels(),
            .reason = kReason,
            .graph = plan_.graph,
            .load = load,
            .efficiency = tiling::MeanLoad(load),
            .problem = problem.Take(),
            .tasks = tasks.Take(),
            .loads = {},
            .tiles = {}};
  }

  [[nodiscard]] Status Run(const ScatterRowsArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(CheckRun(bound_, args));
    auto scatter_task = [&](int32_t task, int /*worker*/) {
      ScatterShare(bound_, args, {task, plan_.graph.task_count}, streams_);
    };
    return RunGraph(plan_.graph, core::TaskFunction(scatter_task), workspace);
  }

 private:
  static constexpr const char* kReason = "each task writes the rows of a share of the places";

  [[nodiscard]] std::vector<std::string> Kernels() const {
    const bool quantizes = bound_.key_quantizer || bound_.value_quantizer;
    const bool copies = !bound_.key_quantizer || (bound_.has_value && !bound_.value_quantizer);
    std::vector<std::string> kernels;
    if (copies) kernels.emplace_back("copy_rows");
    if (quantizes) kernels.emplace_back("quantize_rows");
    return kernels;
  }

  [[nodiscard]] int64_t SharesOf(const Context& context) const {
    if (bound_.rows == 0) return 0;
    return std::clamp<int64_t>(bound_.bytes() / kShareBytes, 1, context.threads());
  }

  /// Returns whether the rows are too many to stay in the last cache.
  [[nodiscard]] bool Streams(const Context& context) const {
    const core::Topology& machine = core::ImplOf(context).topology();
    const int64_t last = std::max(machine.l3_bytes, machine.l2_bytes);
    return last > 0 && bound_.bytes() >= last / kStreamedPartOfCache;
  }

  BoundScatter bound_;
  int64_t shares_;
  bool streams_;
  tiling::RowsPlan plan_;
  tiling::WorkspacePlan workspace_;
};

}  // namespace

Result<PlanFor<ScatterRowsArgs>> PlanScatterRows(const ScatterRowsArgs& args, const ScatterRowsOptions& options,
                                                 Context* context) {
  return ops::MakePlan<ScatterPlanImpl>(context, [&] { return BindScatter(args, options); });
}

Status ScatterRows(const ScatterRowsArgs& args, const ScatterRowsOptions& options, Context* context) {
  auto plan = PlanScatterRows(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
