#ifndef FA_TESTS_CORE_RUN_COUNT_FAULTS_H_
#define FA_TESTS_CORE_RUN_COUNT_FAULTS_H_

#include "core/run/executor.h"
#include "core/task_graph.h"

namespace fa::test {

/// Runs the graph and counts what an executor must not do:
/// - run a task more or less than once, or before one of its predecessors;
/// - pass a worker number that is out of range or that two tasks use at once;
/// - return a status that is not ok.
[[nodiscard]] int CountFaults(core::Executor& executor, const core::TaskGraph& graph);

}  // namespace fa::test

#endif  // FA_TESTS_CORE_RUN_COUNT_FAULTS_H_
