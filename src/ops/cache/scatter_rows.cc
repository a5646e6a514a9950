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
// Neighbouring places belong to one task, because they share cache lines if the cache stores rows in chunks.
constexpr int64_t kNeighbours = 16;
// Rows are copied in pieces of a cache line.
constexpr int64_t kLineOfRow = 64;

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

/// Returns which of the shares a place belongs to. The factor spreads places over the shares, however pages follow one
/// another; it is 2^32 divided by the golden ratio.
int64_t ShareOf(int64_t slot, int64_t shares) {
  const auto mixed = static_cast<uint32_t>(static_cast<uint64_t>(slot / kNeighbours) * 0x9E3779B9u);
  return static_cast<int64_t>((static_cast<uint64_t>(mixed) * static_cast<uint64_t>(shares)) >> 32);
}

/// Returns whether rows go to their places unchanged and as one piece each, and all places lie evenly apart.
bool IsPlain(const ops::BoundPages& pages) {
  return pages.copy.whole_rows() && pages.row_bytes >= kLineOfRow &&
         pages.page_stride == core::SaturatedProduct(pages.page_rows, pages.page_row_stride);
}

bool IsPlain(const BoundScatter& bound, const ScatterRowsArgs& args) {
  const TensorView& slots = args.slot_mapping;
  const bool aligned = reinterpret_cast<uintptr_t>(slots.data) % SizeOf(slots.dtype) == 0;
  return aligned && !bound.key_quantizer && !bound.value_quantizer && args.source_rows.data == nullptr &&
         IsPlain(bound.key) && (!bound.has_value || IsPlain(bound.value)) &&
         (slots.stride.empty() || slots.stride[0] == 1);
}

/// The rows of key or of value, and their places, in bytes.
struct PlainRows {
  PlainRows(const ops::BoundPages& pages, const TensorView& rows, const MutableTensorView& cache)
      : from(static_cast<const std::byte*>(rows.data)),
        to(static_cast<std::byte*>(cache.data)),
        from_row(pages.row_stride),
        to_row(pages.page_row_stride),
        bytes(pages.row_bytes) {}

  [[nodiscard]] bool IsDense() const { return from_row == bytes && to_row == bytes; }

  const std::byte* from;
  std::byte* to;
  int64_t from_row, to_row, bytes;
};

/// Prefetches the first cache lines of a place. The place need not exist.
template <int64_t kBytes>
void FetchPlace(const PlainRows& rows, int64_t slot) {
  constexpr int64_t kMostFetched = 8 * kLineOfRow;
  const int64_t fetched = std::min(kBytes > 0 ? kBytes : rows.bytes, kMostFetched);
  const uintptr_t place =
      reinterpret_cast<uintptr_t>(rows.to) + static_cast<uintptr_t>(slot) * static_cast<uintptr_t>(rows.to_row);
  for (int64_t at = 0; at < fetched; at += kLineOfRow) {
    __builtin_prefetch(reinterpret_cast<const void*>(place + static_cast<uintptr_t>(at)), 1);
  }
}

/// Copies one row of at least kLineOfRow bytes. The row's last line overlaps the preceding line if the row has no whole
/// number of lines.
template <int64_t kBytes>
void CopyPlainRow(const PlainRows& rows, int64_t row, int64_t slot) {
  const std::byte* from = rows.from + row * rows.from_row;
  std::byte* to = rows.to + slot * rows.to_row;
  const int64_t bytes = kBytes > 0 ? kBytes : rows.bytes;
  int64_t at = 0;
  for (; at + kLineOfRow <= bytes; at += kLineOfRow) std::memcpy(to + at, from + at, kLineOfRow);
  if (at < bytes) std::memcpy(to + bytes - kLineOfRow, from + bytes - kLineOfRow, kLineOfRow);
}

/// Returns how many of the first places follow one another. If there are several shares, the places that are counted
/// belong to one share.
template <typename Slot>
int64_t RunLength(std::span<const Slot> slots, int64_t shares) {
  const auto first = static_cast<int64_t>(slots[0]);
  const int64_t in_share = shares > 1 ? kNeighbours - first % kNeighbours : std::ssize(slots);
  const int64_t most = std::min(std::ssize(slots), in_share);
  int64_t rows = 1;
  while (rows < most && slots[static_cast<size_t>(rows)] == first + rows) ++rows;
  return rows;
}

/// Copies consecutive rows to consecutive places; there are no gaps between the rows or between the places.
void CopyPlainRun(const PlainRows& rows, int64_t row, int64_t slot, int64_t count) {
  std::memcpy(rows.to + slot * rows.to_row, rows.from + row * rows.from_row, static_cast<size_t>(count * rows.bytes));
}

/// Copies the rows of a share of the places, one after the other. Places are known long before rows reach them, so
/// their lines are fetched in time: a CPU writes in order, and would wait for each line that is in no cache.
/// @tparam kBytes  bytes per row of all tensors, or 0 if only the tensors tell
template <int64_t kBytes, typename Slot>
void ScatterPlainRows(std::span<const PlainRows> tensors, std::span<const Slot> slots, int64_t share, int64_t shares) {
  constexpr int64_t kAhead = 16;
  const PlainRows key = tensors.front(), value = tensors.back();
  const bool both = tensors.size() > 1, joins = key.IsDense() && value.IsDense();
  const int64_t count = std::ssize(slots), last = count - 1;
  for (int64_t t = 0; t < count; ++t) {
    const auto ahead = static_cast<int64_t>(slots[static_cast<size_t>(std::min(t + kAhead, last))]);
    const int64_t slot = slots[static_cast<size_t>(t)];
    FetchPlace<kBytes>(key, ahead);
    if (both) FetchPlace<kBytes>(value, ahead);
    if (slot < 0 || (shares > 1 && ShareOf(slot, shares) != share)) continue;
    if (joins && slots[static_cast<size_t>(std::min(t + 1, last))] == slot + 1) {
      const int64_t rows = RunLength(slots.subspan(static_cast<size_t>(t)), shares);
      CopyPlainRun(key, t, slot, rows);
      if (both) CopyPlainRun(value, t, slot, rows);
      t += rows - 1;
      continue;
    }
    CopyPlainRow<kBytes>(key, t, slot);
    if (both) CopyPlainRow<kBytes>(value, t, slot);
  }
}

template <typename Slot>
void ScatterPlainRows(std::span<const PlainRows> tensors, std::span<const Slot> slots, int64_t share, int64_t shares) {
  switch (tensors.front().bytes == tensors.back().bytes ? tensors.front().bytes : 0) {
    case 64: return ScatterPlainRows<64>(tensors, slots, share, shares);
    case 128: return ScatterPlainRows<128>(tensors, slots, share, shares);
    case 256: return ScatterPlainRows<256>(tensors, slots, share, shares);
    default: return ScatterPlainRows<0>(tensors, slots, share, shares);
  }
}

void ScatterPlainShare(const BoundScatter& bound, const ScatterRowsArgs& args, int64_t share, int64_t shares) {
  const PlainRows tensors[] = {{bound.key, args.key, args.key_cache}, {bound.value, args.value, args.value_cache}};
  const std::span<const PlainRows> given(tensors, bound.has_value ? 2 : 1);
  const auto count = static_cast<size_t>(bound.rows);
  if (args.slot_mapping.dtype == DType::kI64) {
    ScatterPlainRows(given, std::span(static_cast<const int64_t*>(args.slot_mapping.data), count), share, shares);
  } else {
    ScatterPlainRows(given, std::span(static_cast<const int32_t*>(args.slot_mapping.data), count), share, shares);
  }
}

void ScatterShare(const BoundScatter& bound, const ScatterRowsArgs& args, int64_t share, int64_t shares) {
  if (IsPlain(bound, args)) return ScatterPlainShare(bound, args, share, shares);
  const ops::IndexTensor slots = Indices(args.slot_mapping);
  const ops::IndexTensor sources = args.source_rows.data == nullptr ? ops::IndexTensor() : Indices(args.source_rows);
  const ops::QuantizedTensors keys = KeyTensors(args), values = ValueTensors(args);
  int64_t row = 0, slot = 0, count = 0;  // rows not written yet, which follow one another, as do their places
  const auto write_run = [&] {
    WriteRun(bound.key_quantizer, bound.key, keys, args.key_cache, row, slot, count);
    if (!bound.has_value) return;
    WriteRun(bound.value_quantizer, bound.value, values, args.value_cache, row, slot, count);
  };
  for (int64_t t = 0; t < bound.rows; ++t) {
    const int64_t to = slots[t];
    if (to < 0 || (shares > 1 && ShareOf(to, shares) != share)) continue;
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
      : ImplFor(context), bound_(std::move(bound)), shares_(SharesOf(context)) {
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
    auto scatter_task = [&](int32_t task, int /*worker*/) { ScatterShare(bound_, args, task, plan_.graph.task_count); };
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

  BoundScatter bound_;
  int64_t shares_;
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
