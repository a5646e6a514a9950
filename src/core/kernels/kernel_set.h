#ifndef FA_CORE_KERNELS_KERNEL_SET_H_
#define FA_CORE_KERNELS_KERNEL_SET_H_

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

struct LevelFacts;  // kernel_facts.h

/// The kernels of a level for operands of a type, and the table that points to them. SetFacts sets the facts, and the
/// level's sources set the functions.
struct KernelSet {
  StripKernels strips[kMostStrips] = {}, row_state[kMostStrips] = {}, few[kMostFewRows] = {}, in_place = {};
  RowKernels rows = {};
  KernelTable table = {};
};

/// The int8 kernels of a level, and their table.
struct Int8Set {
  Int8Kernels strips[kMostInt8Strips] = {};
  Int8Table table = {};
};

/// Sets the facts of a level. The functions stay null.
void SetFacts(const LevelFacts& facts, KernelSet& set);
/// Copies the functions that kernels of pairs share with f32 kernels. A strip gets the functions of the f32 strip of
/// the same width. Kernels of few rows and row kernels get their f32 functions.
void TakeFunctions(const KernelSet& f32, KernelSet& set);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_SET_H_
