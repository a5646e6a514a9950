#include "ranks/run/rank_runner.h"

#include <atomic>
#include <optional>

#include "core/context/context_impl.h"
#include "core/run/guarded_call.h"
#include "core/run/serial_executor.h"

namespace fa::ops {
namespace {

/// Notes that a run has begun. A run that has begun cannot start again on the caller's thread.
class Begun {
 public:
  void Note() {
    if (!begun_.load(std::memory_order_relaxed)) begun_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool begun() const { return begun_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> begun_{false};
};

class NotedArrivals final : public core::Arrivals {
 public:
  NotedArrivals(core::Arrivals& arrivals, Begun& begun) : arrivals_(arrivals), begun_(begun) {}
  [[nodiscard]] Status Poll(core::OnArrival arrived) override {
    begun_.Note();
    return arrivals_.Poll(arrived);
  }
  [[nodiscard]] bool done() const override { return arrivals_.done(); }

 private:
  core::Arrivals& arrivals_;
  Begun& begun_;
};

}  // namespace

Status RankRunner::RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) const {
  Begun begun;
  auto noted_task = [&](int32_t task, int worker) {
    begun.Note();
    run_task(task, worker);
  };
  std::optional<NotedArrivals> noted;
  if (arrivals_ != nullptr) noted.emplace(*arrivals_, begun);
  const auto run_on = [&](core::Executor& executor, core::TaskFunction task, core::Arrivals* arrivals) {
    return arrivals == nullptr ? executor.Run(graph, task, state)
                               : executor.RunWithArrivals(graph, task, state, *arrivals);
  };
  Status status = core::GuardedCall("threads to run the plan", [&] {
    return run_on(*core::ImplOf(context_).BorrowExecutor(), core::TaskFunction(noted_task), noted ? &*noted : nullptr);
  });
  if (status.ok() || begun.begun()) return status;
  core::SerialExecutor alone;
  return run_on(alone, run_task, arrivals_);
}

}  // namespace fa::ops
