#include "ops/plan/parallel_rows.h"

#include "core/context/context_impl.h"
#include "core/run/executor.h"
#include "core/run/guarded_call.h"
#include "tiling/rows_plan.h"

namespace fa::ops {
namespace {

Status RunOnWorkers(Context::Impl& context, const core::TaskGraph& graph, core::TaskFunction run_task) {
  auto workspace = context.BorrowWorkspace();
  FA_RETURN_IF_ERROR(workspace->Reserve(core::RunStateBytes(graph)));
  auto executor = context.BorrowExecutor();
  return executor->Run(graph, run_task, workspace->data());
}

}  // namespace

Status ParallelRows(Context* context, int64_t rows, int64_t chunk, RowsFunction function) {
  return core::GuardedCall("task graph", [&] {
    Context::Impl& impl = core::ImplOf(context != nullptr ? *context : Context::Default());
    if (!impl.status().ok()) return impl.status();
    FA_RETURN_IF_ERROR(impl.CheckRuns());
    if (rows <= chunk || impl.workers() == 1) {
      if (rows > 0) function(0, rows);
      return Status::Ok();
    }
    const tiling::RowsPlan plan = tiling::MakeRowsPlan(rows, chunk, impl.workers());
    auto run_task = [&](int32_t task, int /*worker*/) {
      const tiling::Interval of_task = plan.RowsOf(task);
      function(of_task.begin, of_task.end);
    };
    return RunOnWorkers(impl, plan.graph, core::TaskFunction(run_task));
  });
}

}  // namespace fa::ops
