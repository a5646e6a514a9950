#include "support/execution/context_on.h"

#include <atomic>
#include <utility>
#include <vector>

#include "core/context/context_impl.h"
#include "core/run/flow_executor.h"
#include "core/run/serial_executor.h"
#include "support/execution/shuffled_executor.h"
#include "support/execution/thread_executor.h"

namespace fa::test {

std::unique_ptr<core::Executor> MakeExecutor(ExecutorKind kind, int workers) {
  static std::atomic<uint32_t> seed{0};
  switch (kind) {
    case ExecutorKind::kSerial: return std::make_unique<core::SerialExecutor>();
    case ExecutorKind::kShuffled: return std::make_unique<ShuffledExecutor>(++seed, workers);
    case ExecutorKind::kThreads: return std::make_unique<ThreadExecutor>(workers);
    case ExecutorKind::kFlow: break;
  }
  return std::make_unique<core::FlowExecutor>(std::vector<core::FlowExecutor::Node>{{.workers = workers}});
}

std::unique_ptr<Context> ContextOn(ExecutorKind kind, Isa isa, int workers) {
  return ContextOn([=] { return MakeExecutor(kind, workers); }, isa, workers);
}

std::unique_ptr<Context> ContextOn(std::function<std::unique_ptr<core::Executor>()> make, Isa isa, int workers) {
  auto impl = std::make_unique<Context::Impl>(ContextSettings{.workers = workers, .isa = isa}, core::Topology::Detect(),
                                              Status::Ok(), std::move(make));
  return Context::Impl::ToContext(std::move(impl));
}

}  // namespace fa::test
