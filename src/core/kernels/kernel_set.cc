#include "core/kernels/kernel_set.h"

#include <algorithm>

#include "core/kernels/kernel_facts.h"

namespace fa::core::kernels {
namespace {

void SetAll(const StripFacts* facts, int count, StripKernels* kernels) {
  for (int i = 0; i < count; ++i) static_cast<StripFacts&>(kernels[i]) = facts[i];
}
/// If one of the `count` strips in `functions` has the width of `kernels`, copies that strip's functions to `kernels`.
void TakeFunctionsOfWidth(const StripKernels* functions, int count, StripKernels& kernels) {
  const StripKernels* end = functions + count;
  const StripKernels* of_width =
      std::find_if(functions, end, [&](const StripKernels& of) { return of.width == kernels.width; });
  if (of_width != end) static_cast<StripFunctions&>(kernels) = *of_width;
}

}  // namespace

void SetFacts(const LevelFacts& facts, KernelSet& set) {
  SetAll(facts.strips, facts.strip_count, set.strips);
  SetAll(facts.row_state, facts.strip_count, set.row_state);
  SetAll(facts.few, facts.few_count, set.few);
  static_cast<StripFacts&>(set.in_place) = facts.in_place;
  static_cast<RowFacts&>(set.rows) = facts.rows;
  set.table = {.isa = facts.isa,
               .strips = set.strips,
               .strip_count = facts.strip_count,
               .few = set.few,
               .few_count = facts.few_count,
               .rows = &set.rows,
               .row_state = facts.has_row_state ? set.row_state : nullptr,
               .heads_in_place = facts.has_in_place ? &set.in_place : nullptr};
}

void TakeFunctions(const KernelSet& f32, KernelSet& set) {
  for (int i = 0; i < set.table.strip_count; ++i) {
    TakeFunctionsOfWidth(f32.table.strips, f32.table.strip_count, set.strips[i]);
    TakeFunctionsOfWidth(f32.table.row_state, f32.table.strip_count, set.row_state[i]);
  }
  TakeFunctionsOfWidth(f32.table.row_state, f32.table.strip_count, set.in_place);
  for (int i = 0; i < set.table.few_count; ++i) static_cast<StripFunctions&>(set.few[i]) = f32.table.few[i];
  static_cast<RowFunctions&>(set.rows) = *f32.table.rows;
}

}  // namespace fa::core::kernels
