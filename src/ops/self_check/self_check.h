#ifndef FA_OPS_SELF_CHECK_SELF_CHECK_H_
#define FA_OPS_SELF_CHECK_SELF_CHECK_H_

#include <span>
#include <string>
#include <vector>

#include "core/context/context_impl.h"
#include "core/machine/topology.h"
#include "fa/context.h"
#include "fa/status.h"

/// Tries a level's kernels on this CPU by a few small calls of operators, at the level and at the level below it.
namespace fa::ops {

/// One output of the calls.
struct CheckedOutput {
  std::string name;      ///< "dk of f32"
  double tolerance = 0;  ///< by how much two levels may differ, relative to the output's largest element
  std::vector<float> values = {};
};

/// Computes the outputs of small calls in the calling thread, in some tens of milliseconds. Dense attention runs
/// forward and backward in every float type, with and without passes over scores. Decodes have few rows, pages and int8
/// keys. An int8 prompt and the indexer follow. Throws std::bad_alloc, and std::logic_error if a call fails otherwise.
[[nodiscard]] std::vector<CheckedOutput> CheckedOutputs(Isa isa);

/// The name of the first output of `level` that differs from the same output of `below`, or nothing.
[[nodiscard]] std::string FirstDifference(std::span<const CheckedOutput> level, std::span<const CheckedOutput> below);

/// The next lower level of the same family that the library has. The level under portable is portable.
[[nodiscard]] Isa LevelBelow(Isa level);
/// Says in words which output of two levels differs: "neon's dk of f32 is not portable's on this CPU". A call that
/// fails at `level` differs, too: "neon's call failed: ...". Empty if nothing differs.
[[nodiscard]] std::string DifferenceOf(Isa level, Isa below);
/// The same with another function than CheckedOutputs.
[[nodiscard]] std::string DifferenceOf(Isa level, Isa below, std::vector<CheckedOutput> (*outputs)(Isa));

/// Whether only emulators have run the level.
[[nodiscard]] bool IsUnproven(Isa isa);

/// A level whose outputs are right as far as is known.
struct ProvenIsa {
  Isa isa = Isa::kPortable;
  std::string wrong = {};  ///< what is wrong with the level above it, or nothing
};
/// The highest level up to `wanted` such that it and every unproven level below it agree with the level below.
[[nodiscard]] ProvenIsa Prove(Isa wanted, bool (*unproven)(Isa) = IsUnproven,
                              std::string (*difference)(Isa level, Isa below) = DifferenceOf);

/// Returns `settings` at the level `proven`. If that is another level than theirs, isa_note says why.
/// @return kUnsupported if the options or the environment ask for a level by name that is wrong
[[nodiscard]] Result<ContextSettings> AtProvenLevel(ContextSettings settings, const ContextOptions& options,
                                                    const ContextEnvironment& environment, const ProvenIsa& proven);
/// ResolveContext on this CPU, at a proven level. Prove runs once per process and level; only then `unproven` counts.
/// @return kInvalidArgument, kUnsupported
[[nodiscard]] Result<ContextSettings> ResolveHere(const ContextOptions& options, const ContextEnvironment& environment,
                                                  const core::Topology& topology, bool (*unproven)(Isa) = IsUnproven);

}  // namespace fa::ops

#endif  // FA_OPS_SELF_CHECK_SELF_CHECK_H_
