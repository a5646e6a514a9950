// Copies the rows of sequences out of a paged cache, one sequence after another. A task has a range of output rows. The
// task finds the sequences of its rows by adding up the lengths, which are few and lie in one place.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/run/executor.h"
#include "core/run/guarded_call.h"
#include "fa/cache_rows.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/planned_tensors.h"
#include "ops/cache/bind_pages.h"
#include "ops/cache/index_tensor.h"
#include "ops/cache/row_copy.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_text.h"
#include "tiling/rows_facts.h"
#include "tiling/rows_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

// A task has rows of about this many bytes, so that copying them takes longer than adding up the lengths.
constexpr int64_t kTaskBytes = 1 << 18;

struct BoundGather {
  int64_t rows = 0, sequences = 0, table_columns = 0;
  bool cumulative = false;
  ops::BoundPages key, value;
  DType dtype = DType::kF32;  ///< type of key_cache
  CacheForm form = CacheForm::kBnBsND;
  std::vector<ops::PlannedTensor> planned;

  [[nodiscard]] int64_t row_bytes() const { return key.row_bytes + value.row_bytes; }
};

Status BindSequences(const GatherRowsArgs& args, const GatherRowsOptions& options, BoundGather* bound) {
  FA_RETURN_IF_ERROR(ops::CheckIndexTensor("block_table", args.block_table, 2));
  bound->sequences = args.block_table.shape[0];
  bound->table_columns = args.block_table.shape[1];
  bound->cumulative = options.cumulative;
  FA_RETURN_IF_ERROR(ops::CheckIndexTensor("seq_lens", args.seq_lens, 1));
  if (options.cumulative && args.seq_lens.shape[0] != bound->sequences + 1) {
    return ops::WrongSize("seq_lens", 0, args.seq_lens.shape[0],
                          "want " + std::to_string(bound->sequences + 1) + " (cumulative, " +
                              ops::Arg("block_table", ".shape[0]") + " + 1)");
  }
  if (!options.cumulative) {
    FA_RETURN_IF_ERROR(ops::CheckSize("seq_lens", args.seq_lens, 0, bound->sequences, {"block_table", 0}));
  }
  if (args.seq_offset.data == nullptr) return Status::Ok();
  FA_RETURN_IF_ERROR(ops::CheckIndexTensor("seq_offset", args.seq_offset, 1));
  return ops::CheckSize("seq_offset", args.seq_offset, 0, bound->sequences, {"block_table", 0});
}

Status BindTensors(const GatherRowsArgs& args, const GatherRowsOptions& options, BoundGather* bound) {
  FA_RETURN_IF_ERROR(ops::CheckForm(options.form));
  const auto bind = [&](const char* rows, const TensorView& to, const char* cache, const TensorView& from) {
    return ops::BindPages({rows, to}, {cache, from}, options.form, /*from_cache=*/true);
  };
  auto key = bind("key", args.key, "key_cache", args.key_cache);
  if (!key.ok()) return key.status();
  auto value = bind("value", args.value, "value_cache", args.value_cache);
  if (!value.ok()) return value.status();
  bound->key = *key;
  bound->value = *value;
  bound->rows = bound->key.rows;
  FA_RETURN_IF_ERROR(ops::CheckSize("value", args.value, 0, bound->rows, {"key", 0}));
  FA_RETURN_IF_ERROR(ops::CheckSamePageRows(bound->key, bound->value));
  if (bound->key.page_rows < 1) {
    return Status::InvalidArgument(ops::Arg("key_cache").Has("0 rows per page, want >= 1"));
  }
  return BindSequences(args, options, bound);
}

Result<BoundGather> BindGather(const GatherRowsArgs& args, const GatherRowsOptions& options) {
  BoundGather bound;
  bound.dtype = args.key_cache.dtype;
  bound.form = options.form;
  FA_RETURN_IF_ERROR(BindTensors(args, options, &bound));
  bound.planned = ops::KeepPlanned(ops::TensorsOf(args));
  return bound;
}

/// The contents of the tensors that say which rows a call reads.
struct Sequences {
  Sequences(const BoundGather& of, const GatherRowsArgs& args)
      : bound(of),
        table(args.block_table.data, args.block_table.dtype, args.block_table.shape, args.block_table.stride),
        lengths(args.seq_lens.data, args.seq_lens.dtype, args.seq_lens.shape, args.seq_lens.stride) {
    if (args.seq_offset.data != nullptr) {
      offsets = {args.seq_offset.data, args.seq_offset.dtype, args.seq_offset.shape, args.seq_offset.stride};
    }
  }

  [[nodiscard]] int64_t Length(int64_t b) const { return bound.cumulative ? lengths[b + 1] - lengths[b] : lengths[b]; }
  /// Returns the first column of the table that sequence b reads.
  [[nodiscard]] int64_t FirstColumn(int64_t b) const { return offsets.absent() ? 0 : offsets[b] / bound.key.page_rows; }

  const BoundGather& bound;
  ops::IndexTensor table, lengths, offsets;
};

Status WrongEntry(const char* name, int64_t i, int64_t got, const std::string& want) {
  return Status::InvalidArgument(ops::Arg(name, {}, ops::At(i)).Is(std::to_string(got)) + ", want " + want);
}

Status CheckSequences(const Sequences& sequences) {
  const BoundGather& bound = sequences.bound;
  if (bound.cumulative && sequences.lengths[0] != 0) return WrongEntry("seq_lens", 0, sequences.lengths[0], "0");
  for (int64_t b = 0; b < bound.sequences; ++b) {
    const int64_t at = bound.cumulative ? b + 1 : b, least = bound.cumulative ? sequences.lengths[b] : 0;
    if (sequences.lengths[at] < least) {
      return WrongEntry("seq_lens", at, sequences.lengths[at], ">= " + std::to_string(least));
    }
    if (sequences.offsets.absent()) continue;
    const int64_t offset = sequences.offsets[b];
    if (offset < 0 || offset % bound.key.page_rows != 0) {
      return WrongEntry("seq_offset", b, offset, "a multiple of " + std::to_string(bound.key.page_rows));
    }
  }
  return Status::Ok();
}

/// One output with its cache, in a run.
class GatheredRows {
 public:
  GatheredRows(const ops::BoundPages& pages, const TensorView& cache, const MutableTensorView& rows)
      : pages_(pages), from_(static_cast<const std::byte*>(cache.data)), to_(static_cast<std::byte*>(rows.data)) {}

  /// Copies the rows [row, row + count) of a page to the output's rows from `to` on. If there is no such page, sets the
  /// output's rows to 0.
  void Copy(int64_t page, int64_t row, int64_t to, int64_t count) const {
    std::byte* rows = to_ + to * pages_.row_stride;
    if (page < 0 || page >= pages_.pages) {
      ops::ClearRows(pages_.copy, rows, count);
    } else {
      ops::CopyRows(pages_.copy, {from_ + pages_.PlaceOf(page, row), rows, count});
    }
  }

 private:
  const ops::BoundPages& pages_;
  const std::byte* from_;
  std::byte* to_;
};

/// Copies the rows [first, end) of sequence b, whose row 0 is the output's row `start`.
void GatherSequence(const Sequences& sequences, const GatheredRows& keys, const GatheredRows& values, int64_t b,
                    int64_t start, tiling::Interval rows) {
  const BoundGather& bound = sequences.bound;
  const int64_t page_rows = bound.key.page_rows, first_column = sequences.FirstColumn(b);
  for (int64_t row = rows.begin; row < rows.end;) {
    const int64_t in_page = row % page_rows, count = std::min(page_rows - in_page, rows.end - row);
    const int64_t ahead = row / page_rows;
    const bool in_table = first_column < bound.table_columns && ahead < bound.table_columns - first_column;
    const int64_t page = in_table ? sequences.table.At(b, first_column + ahead) : -1;
    keys.Copy(page, in_page, start + row, count);
    values.Copy(page, in_page, start + row, count);
    row += count;
  }
}

/// Copies the output's rows of an interval.
void GatherInterval(const Sequences& sequences, const GatheredRows& keys, const GatheredRows& values,
                    tiling::Interval rows) {
  int64_t start = 0;  // the output's row at which sequence b begins; no overflow, as lengths are clipped
  for (int64_t b = 0; b < sequences.bound.sequences && start < rows.end; ++b) {
    const int64_t length = std::min(sequences.Length(b), rows.end - start);
    if (start + length > rows.begin) {
      GatherSequence(sequences, keys, values, b, start, {std::max(rows.begin - start, int64_t{0}), length});
    }
    start += length;
  }
}

class GatherPlanImpl final : public Plan::ImplFor<GatherRowsArgs> {
 public:
  GatherPlanImpl(Context& context, BoundGather bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        plan_(tiling::MakeRowsPlan(bound_.rows,
                                   std::max<int64_t>(kTaskBytes / std::max<int64_t>(bound_.row_bytes(), 1), 1),
                                   context.threads())) {
    workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    tiling::PlanText problem;
    problem.AddLine("gather, %s: %lld rows of %lld bytes of %lld sequences from pages of %lld rows (%s)",
                    Name(bound_.dtype), tiling::Wide(bound_.rows), tiling::Wide(bound_.row_bytes()),
                    tiling::Wide(bound_.sequences), tiling::Wide(bound_.key.page_rows), Name(bound_.form));
    return tiling::FactsOf(plan_, ops::MachineOf(context(), ops::KernelsOf(context(), DType::kF32)),
                           {.op = "gather", .kernel = "copy_rows", .reason = kReason, .problem = problem.Take()});
  }

  [[nodiscard]] Status Run(const GatherRowsArgs& args, std::byte* workspace) const override {
    const auto tensors = ops::TensorsOf(args);
    FA_RETURN_IF_ERROR(ops::CheckAllPlanned(tensors, bound_.planned));
    FA_RETURN_IF_ERROR(ops::CheckAllApart(tensors, bound_.planned));
    const Sequences sequences(bound_, args);
    FA_RETURN_IF_ERROR(CheckSequences(sequences));
    const GatheredRows keys(bound_.key, args.key_cache, args.key);
    const GatheredRows values(bound_.value, args.value_cache, args.value);
    auto gather_task = [&](int32_t task, int /*worker*/) {
      GatherInterval(sequences, keys, values, plan_.RowsOf(task));
    };
    return RunGraph(plan_.graph, core::TaskFunction(gather_task), workspace);
  }

 private:
  static constexpr const char* kReason = "about 256 KB of rows";

  BoundGather bound_;
  tiling::RowsPlan plan_;
  tiling::WorkspacePlan workspace_;
};

}  // namespace

Result<PlanFor<GatherRowsArgs>> PlanGatherRows(const GatherRowsArgs& args, const GatherRowsOptions& options,
                                               Context* context) {
  return ops::MakePlan<GatherPlanImpl>(context, [&] { return BindGather(args, options); });
}

Status GatherRows(const GatherRowsArgs& args, const GatherRowsOptions& options, Context* context) {
  auto plan = PlanGatherRows(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
