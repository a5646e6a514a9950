#include "core/kernels/emulated_pairs.h"

#include "core/kernels/levels/kernel_level.h"

namespace fa::core::kernels {
namespace {

#include "core/kernels/vec/vec_pairs_emulated.h"
// The .inc files of kernels below use only operations that vec_pairs_emulated.h defines.
#include "core/kernels/pair_heads_in_place.inc"
#include "core/kernels/pair_outer_both.inc"
#include "core/kernels/pair_row_state.inc"

template <int MR, int NV>
void SetStrip(const char* name, const char* row_state_name, int i, KernelSet& set) {
  static_cast<StripFunctions&>(set.row_state[i]) = Kernels(Isa::kPortable).row_state[i];
  const StripFunctions by_rows = set.row_state[i];
  set.strips[i] = Kernels(Isa::kPortable).strips[i];
  static_cast<StripFacts&>(set.strips[i]) = {.name = name,
                                             .isa = Isa::kPortable,
                                             .width = NV * kLanes,
                                             .rows = NV * kLanes,
                                             .operands = Operands::kBF16Pairs,
                                             .scores_by_address = true};
  PairStrip<MR, NV>::SetFunctions(set.strips[i]);
  set.row_state[i] = set.strips[i];
  set.row_state[i].name = row_state_name;
  set.row_state[i].state_by_row = true;
  PairRowState<NV>::SetFunctions(set.row_state[i], by_rows);
}

}  // namespace

const KernelTable& EmulatedPairs() {
  static const auto& set = []() -> const KernelSet& {
    static KernelSet made;
    const KernelTable& f32 = Kernels(Isa::kPortable);
    SetStrip<6, 2>("emulated_bf16_6x8", "emulated_bf16_6x8_row_state", 0, made);
    SetStrip<12, 1>("emulated_bf16_12x4", "emulated_bf16_12x4_row_state", 1, made);
    made.in_place = made.strips[1];
    made.in_place.name = "emulated_bf16_12x4_in_place";
    made.in_place.state_by_row = made.in_place.in_place = true;
    PairHeadsInPlace<1>::SetFunctions(made.in_place, f32.row_state[1]);
    made.rows = *f32.rows;
    SetPairRows(made.rows);
    made.rows.outer_both = OuterBoth;
    made.table = f32;
    made.table.strips = made.strips;
    made.table.rows = &made.rows;
    made.table.row_state = made.row_state;
    made.table.heads_in_place = &made.in_place;
    return made;
  }();
  return set.table;
}

}  // namespace fa::core::kernels
