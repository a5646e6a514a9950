#ifndef FA_RANKS_RUN_FORWARD_UNIT_H_
#define FA_RANKS_RUN_FORWARD_UNIT_H_

#include <cstddef>
#include <memory>

#include "fa/flash_attention.h"
#include "ops/dense/forward_program.h"
#include "ranks/call/bind_ranks.h"
#include "ranks/run/unit_tensors.h"

namespace fa::ops {

/// What one rank does in one unit of a forward: it gets rows, runs the program, and sends the results back.
class ForwardUnit : public UnitTensors<AttentionArgs> {
 public:
  ForwardUnit(const BoundRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
              const Context& context);

  /// Returns the program, or null if this rank has nothing to compute.
  [[nodiscard]] const ForwardProgram* program() const { return program_.get(); }
  /// Returns the arguments for a run of the program.
  [[nodiscard]] AttentionArgs UnitArgs(const AttentionArgs& args, std::byte* staged) const;

 private:
  void AddTensors(const BoundAttention& part);

  const BoundRanks& bound_;
  std::unique_ptr<const ForwardProgram> program_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_FORWARD_UNIT_H_
