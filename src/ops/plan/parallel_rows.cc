#include "ops/plan/parallel_rows.h"

#include <algorithm>

#include "core/context_impl.h"
#include "core/executor.h"
#include "core/guarded_call.h"

namespace fa::ops {
namespace {

// Enough to balance any number of workers; task ids are 32-bit.
constexpr int64_t kMaxTasks = 1 << 16;

Status RunOnWorkers(Context::Impl& context, int32_t tasks, core::TaskFunction run_task) {
  core::TaskGraph graph;
  graph.task_count = tasks;
  const int workers = context.workers();
  for (int w = 0; w <= workers; ++w) graph.range_begin.push_back(int64_t{tasks} * w / workers);
  auto workspace = context.BorrowWorkspace();
  if (Status status = workspace->Reserve(core::RunStateBytes(graph)); !status.ok()) return status;
  auto executor = context.BorrowExecutor();
  return executor->Run(graph, run_task, workspace->data());
}

}  // namespace

Status ParallelRows(Context* context, int64_t rows, int64_t chunk, RowsFunction function) {
  return core::GuardedCall("task graph", [&] {
    Context::Impl& impl = core::ImplOf(context != nullptr ? *context : Context::Default());
    if (!impl.status().ok()) return impl.status();
    if (Status status = impl.CheckRuns(); !status.ok()) return status;
    if (rows <= chunk || impl.workers() == 1) {
      if (rows > 0) function(0, rows);
      return Status::Ok();
    }
    const int64_t chunks = (rows - 1) / chunk + 1;
    const int64_t chunks_a_task = (chunks - 1) / kMaxTasks + 1;
    const int64_t step = chunks_a_task * chunk;
    auto run_task = [&](int32_t task, int /*worker*/) {
      const int64_t begin = task * step;
      function(begin, begin + std::min(step, rows - begin));
    };
    return RunOnWorkers(impl, static_cast<int32_t>((chunks - 1) / chunks_a_task + 1), core::TaskFunction(run_task));
  });
}

}  // namespace fa::ops
