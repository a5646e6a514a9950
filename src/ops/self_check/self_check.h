#ifndef FA_OPS_SELF_CHECK_SELF_CHECK_H_
#define FA_OPS_SELF_CHECK_SELF_CHECK_H_

#include <span>
#include <string>
#include <vector>

#include "core/context/context_impl.h"
#include "fa/context.h"
#include "fa/status.h"

/// A level's kernels tried on this CPU: a few small calls of operators at the level and at the one below it.
namespace fa::ops {

/// One output of the calls.
struct CheckedOutput {
  std::string name;      ///< "dk of f32"
  double tolerance = 0;  ///< of what two levels may differ by, relative to the output's largest element
  std::vector<float> values = {};
};

/// Dense attention forward and backward of every float type, with and without what changes scores; decodes of few rows,
/// of pages and of int8 keys; an int8 prompt; the indexer. The calling thread computes them, in some tens of
/// milliseconds. Throws std::bad_alloc.
[[nodiscard]] std::vector<CheckedOutput> CheckedOutputs(Isa isa);

/// The name of the first output of `level` that is not what `below` says; empty: none.
[[nodiscard]] std::string FirstDifference(std::span<const CheckedOutput> level, std::span<const CheckedOutput> below);

/// The level under `level` in its family; portable's is portable.
[[nodiscard]] Isa LevelBelow(Isa level);
/// FirstDifference of the outputs of two levels in words: "neon's dk of f32 is not portable's on this CPU".
[[nodiscard]] std::string DifferenceOf(Isa level, Isa below);

/// Whether no CPU of its own ran the level before it was published: emulators only.
[[nodiscard]] bool IsUnproven(Isa isa);

/// A level, and what is wrong with the one above it; empty: nothing that is known.
struct ProvenIsa {
  Isa isa = Isa::kPortable;
  std::string wrong = {};
};
/// The highest level up to `wanted` that agrees, as every unproven level up to it, with the level below.
[[nodiscard]] ProvenIsa Prove(Isa wanted, bool (*unproven)(Isa) = IsUnproven,
                              std::string (*difference)(Isa level, Isa below) = DifferenceOf);

/// `settings` at the level that is proven and, where it is not the one that the settings have, with a note that says
/// why. @return kUnsupported if the options or the environment ask for a level by name that is wrong
[[nodiscard]] Result<ContextSettings> AtProvenLevel(ContextSettings settings, const ContextOptions& options,
                                                    const ContextEnvironment& environment, const ProvenIsa& proven);

}  // namespace fa::ops

#endif  // FA_OPS_SELF_CHECK_SELF_CHECK_H_
