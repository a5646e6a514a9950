#include "ops/plan/plan_machine.h"

#include <algorithm>
#include <utility>

#include "core/memory.h"
#include "core/saturating.h"

namespace fa::ops {

const core::kernels::KernelTable& KernelsOf(const Context& context, DType dtype) {
  const Context::Impl& impl = core::ImplOf(context);
  const bool blas = impl.portable_blas() && impl.isa() == Isa::kPortable;
  return blas ? core::kernels::PortableBlasKernels() : core::kernels::Kernels(impl.isa(), dtype);
}

tiling::Machine MachineOf(const Context& context, const core::kernels::KernelTable& table) {
  const Context::Impl& impl = core::ImplOf(context);
  tiling::Machine machine;
  machine.isa = table.isa;
  machine.workers = impl.workers();
  machine.nodes = impl.nodes();
  machine.l1_bytes = impl.l1_bytes();
  machine.l2_bytes = impl.l2_bytes();
  machine.strip_rows = static_cast<int>(table.widest().width);
  machine.memory_bytes = core::MemoryBytes();
  machine.isa_note = context.isa_note();
  return machine;
}

Status CheckWorkspace(size_t bytes) {
  const auto most = static_cast<size_t>(core::MemoryBytes());
  if (bytes <= most) return Status::Ok();
  return Status::OutOfMemory(
      tiling::PlanTooLarge("bytes of workspace", static_cast<double>(bytes), static_cast<double>(most)).what());
}

Status CheckSequenceCount(ErrorText name, int64_t sequences, int64_t tasks) {
  // The limit for tasks serves for sequences too, because a sequence takes less memory than a task.
  const int64_t most = tiling::MostTasks(core::MemoryBytes()) / std::max<int64_t>(tasks, 1);
  if (sequences <= most) return Status::Ok();
  return Status::OutOfMemory(std::move(name).Is(std::to_string(sequences)) + ", want at most " + std::to_string(most) +
                             (tasks > 1 ? " (each takes " + std::to_string(tasks) + " tasks or more)" : std::string()));
}

Status CheckKeyCount(const char* name, int64_t sequence, int64_t keys) {
  if (keys <= tiling::kMostKeys) return Status::Ok();
  return Status::InvalidArgument(ErrorText::Argument(name).Says("sequence ") + std::to_string(sequence) + " has " +
                                 std::to_string(keys) + " keys, want at most " + std::to_string(tiling::kMostKeys));
}

}  // namespace fa::ops
