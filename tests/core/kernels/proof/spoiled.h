#ifndef FA_TESTS_CORE_KERNELS_PROOF_SPOILED_H_
#define FA_TESTS_CORE_KERNELS_PROOF_SPOILED_H_

#include <functional>
#include <string>
#include <vector>

#include "core/kernels/proof/proof.h"

namespace fa::core {

/// A level's table of floats, parts of which a test makes wrong, and the level below it. Both are portable by default.
struct Spoiled {
  explicit Spoiled(const kernels::KernelTable& of = kernels::Kernels(Isa::kPortable)) : right(of) {
    strips.assign(right.strips, right.strips + right.strip_count);
    if (right.row_state != nullptr) row_state.assign(right.row_state, right.row_state + right.strip_count);
    few.assign(right.few, right.few + right.few_count);
    rows = *right.rows;
  }
  [[nodiscard]] std::string Disproof() const {
    kernels::KernelTable copy = right;
    copy.strips = strips.data();
    copy.few = few.data();
    copy.rows = &rows;
    if (right.row_state != nullptr) copy.row_state = row_state.data();
    return kernels::Disproof(copy, kernels::Kernels(Isa::kPortable));
  }
  const kernels::KernelTable& right;
  std::vector<kernels::StripKernels> strips, row_state, few;
  kernels::RowKernels rows;
};

/// One way to be wrong: what an instruction with the wrong lane, tail or rounding would do, or a branch that only some
/// arguments take.
struct Mistake {
  const char* seen_as;
  std::function<void(Spoiled&)> make;
};

}  // namespace fa::core

#endif  // FA_TESTS_CORE_KERNELS_PROOF_SPOILED_H_
