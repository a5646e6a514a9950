// Makes the contexts of this machine, at levels that the self-check finds right. This file stands above all operators,
// because the self-check runs operators.

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "core/context/context_impl.h"
#include "core/machine/cpu.h"
#include "core/once_per_level.h"
#include "core/run/guarded_call.h"
#include "fa/context.h"
#include "fa/error_text.h"
#include "ops/self_check/self_check.h"

namespace fa {
namespace ops {
namespace {

/// Returns the result of Prove, which runs once per process and level.
const ProvenIsa& ProvenLevel(Isa wanted, bool (*unproven)(Isa)) {
  static constinit core::OncePerLevel<ProvenIsa> proven;
  return proven.Of(wanted, [&](ProvenIsa& of) { of = Prove(wanted, unproven); });
}

}  // namespace

Result<ContextSettings> ResolveHere(const ContextOptions& options, const ContextEnvironment& environment,
                                    const core::Topology& topology, bool (*unproven)(Isa)) {
  const Isa highest = DetectIsa();
  Result<ContextSettings> settings =
      ResolveContext(options, environment, topology, highest, core::PreferredIsa(highest, core::IsIntel()));
  if (!settings.ok()) return settings;
  return AtProvenLevel(*settings, options, environment, ProvenLevel(settings->isa, unproven));
}

}  // namespace ops

Result<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  return core::GuardedCall("context", [&]() -> Result<std::unique_ptr<Context>> {
    core::Topology topology = core::Topology::Detect();
    const Result<ContextSettings> settings = ops::ResolveHere(options, ContextEnvironment::Read(), topology);
    if (!settings.ok()) return settings.status();
    return Impl::ToContext(std::make_unique<Impl>(*settings, std::move(topology)));
  });
}

Context& Context::Default() {
  // The context is never destroyed, because at exit oneTBB may already be gone, and other threads may still be inside a
  // call. The pointer is a constant at first, and not made under a guard at the first call, for the reason that
  // OncePerLevel gives.
  static constinit std::atomic<Context*> context{nullptr};
  if (Context* made = context.load(std::memory_order_acquire); made != nullptr) return *made;
  core::Topology topology = core::Topology::Detect();
  Result<ContextSettings> settings = ops::ResolveHere({}, ContextEnvironment::Read(), topology);
  Status status = settings.status();
  if (!settings.ok()) settings = ops::ResolveHere({}, {}, topology);
  auto own = Impl::ToContext(std::make_unique<Impl>(*settings, std::move(topology), std::move(status)));
  Context* first = nullptr;
  return context.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel) ? *own.release() : *first;
}

Status CheckLevel(Isa level) {
  return core::GuardedCall("the check of a level", [&]() -> Status {
    if (!Includes(DetectIsa(), level)) {
      return Status::Unsupported(ErrorText::Argument("level").Is(Name(level)) + ", but this CPU's highest level is " +
                                 Name(DetectIsa()));
    }
    if (!CanRun(level)) {
      return Status::Unsupported(ErrorText::Argument("level").Is(Name(level)) +
                                 ", but this library was built without it (FA_LEVELS)");
    }
    const std::string wrong = ops::DifferenceOf(level, ops::LevelBelow(level));
    return wrong.empty() ? Status::Ok() : Status::Internal(wrong);
  });
}

}  // namespace fa
