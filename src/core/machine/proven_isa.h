#ifndef FA_CORE_PROVEN_ISA_H_
#define FA_CORE_PROVEN_ISA_H_

#include <string>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "fa/context.h"

namespace fa::core {

/// A level, and why it is not the one that was wanted; empty if it is.
struct ProvenIsa {
  Isa isa = Isa::kPortable;
  std::string note = {};
};

/// Where a level's kernels come from, and which levels are to be tried.
struct KernelSource {
  const kernels::KernelTable& (*floats)(Isa isa, DType dtype) = kernels::Kernels;
  const kernels::Int8Table& (*int8)(Isa isa) = kernels::Int8KernelsFor;
  const kernels::IndexerKernels& (*indexer)(Isa isa) = kernels::IndexerKernelsFor;
  bool (*unproven)(Isa isa);
};

/// Whether no kernel of the level ever ran on a CPU of its own before it was published: emulators only.
[[nodiscard]] bool IsUnproven(Isa isa);

/// The highest level up to `wanted` of which every unproven level's kernels compute what those of the level below do.
[[nodiscard]] ProvenIsa Prove(Isa wanted, const KernelSource& source);

/// What the trial of this CPU's kernels gave: they are tried once per process, when a level is first wanted, which
/// takes some milliseconds. A kernel that fails gets one line on stderr.
[[nodiscard]] const ProvenIsa& ProvenLevel(Isa wanted);

}  // namespace fa::core

#endif  // FA_CORE_PROVEN_ISA_H_
