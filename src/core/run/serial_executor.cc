#include "core/run/serial_executor.h"

#include <cassert>

#include "core/run/graph_run.h"
#include "core/run/guarded_call.h"

namespace fa::core {

Status RunInOrder(const TaskGraph& graph, TaskFunction run_task) {
  assert(graph.arrivals == 0);
  return GuardedCall(kInsideATask, [&] {
    for (int64_t position = 0; position < graph.task_count; ++position) run_task(graph.TaskAt(position), 0);
    return Status::Ok();
  });
}

}  // namespace fa::core
