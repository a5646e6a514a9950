#ifndef FA_OPS_SELF_CHECK_SELF_CHECK_H_
#define FA_OPS_SELF_CHECK_SELF_CHECK_H_

#include <span>
#include <string>
#include <vector>

#include "core/context/context_impl.h"
#include "core/machine/topology.h"
#include "fa/context.h"
#include "fa/status.h"

/// The self-check tries a level's kernels on this CPU. The self-check makes a few small calls of operators at the level
/// and at the level below it, and compares their outputs.
namespace fa::ops {

/// One output of the calls that the self-check runs.
struct CheckedOutput {
  std::string name;      ///< for example "dk of f32"
  double tolerance = 0;  ///< by how much two levels may differ, relative to the output's largest element
  std::vector<float> values = {};
};

/// Computes the outputs of small calls in the calling thread, in some tens of milliseconds. The calls are: dense
/// attention, forward and backward, in every float type, with and without passes over scores; decodes with few rows,
/// with pages and with int8 keys; an int8 prompt; the indexer. Throws std::bad_alloc if memory is short, and
/// std::logic_error if a call fails for another reason.
[[nodiscard]] std::vector<CheckedOutput> CheckedOutputs(Isa isa);

/// Returns the name of the first output of `level` that differs from the same output of `below`, or an empty string.
[[nodiscard]] std::string FirstDifference(std::span<const CheckedOutput> level, std::span<const CheckedOutput> below);

/// The next lower level of the same family that the library has. The level under portable is portable.
[[nodiscard]] Isa LevelBelow(Isa level);
/// Returns a text that says which output of two levels differs: "neon's dk of f32 is not portable's on this CPU". If a
/// call fails at `level`, the text is "neon's call failed: ...". If nothing differs, the text is empty.
[[nodiscard]] std::string DifferenceOf(Isa level, Isa below);
/// Works like DifferenceOf above, with `outputs` in place of CheckedOutputs.
[[nodiscard]] std::string DifferenceOf(Isa level, Isa below, std::vector<CheckedOutput> (*outputs)(Isa));

/// Returns whether the level has run only in emulators so far, never on real hardware.
[[nodiscard]] bool IsUnproven(Isa isa);

/// The highest level that the self-check finds right, and what is wrong with the level above it.
struct ProvenIsa {
  Isa isa = Isa::kPortable;
  std::string wrong = {};  ///< the text that says what is wrong with the level above `isa`, or ""
};
/// Compares every unproven level up to `wanted`, from low to high, with the level below it. Returns `wanted`, or the
/// level below the first level that differs.
[[nodiscard]] ProvenIsa Prove(Isa wanted, bool (*unproven)(Isa) = IsUnproven,
                              std::string (*difference)(Isa level, Isa below) = DifferenceOf);

/// Returns `settings` at the level `proven`. If this changes the level of `settings`, isa_note says why.
/// @return kUnsupported if the options or the environment name a level that is wrong
[[nodiscard]] Result<ContextSettings> AtProvenLevel(ContextSettings settings, const ContextOptions& options,
                                                    const ContextEnvironment& environment, const ProvenIsa& proven);
/// Calls ResolveContext for this CPU, at a proven level. Prove runs once per process and level, in the first call, and
/// only the first call uses `unproven`.
/// @return kInvalidArgument, kUnsupported
[[nodiscard]] Result<ContextSettings> ResolveHere(const ContextOptions& options, const ContextEnvironment& environment,
                                                  const core::Topology& topology, bool (*unproven)(Isa) = IsUnproven);

}  // namespace fa::ops

#endif  // FA_OPS_SELF_CHECK_SELF_CHECK_H_
