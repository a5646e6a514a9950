#ifndef FA_CORE_KERNELS_KERNEL_SET_H_
#define FA_CORE_KERNELS_KERNEL_SET_H_

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

struct LevelFacts;  // kernel_facts.h

/// The kernels of a level for operands of a type, which its table points to. The facts stand first; a level sets the
/// functions.
struct KernelSet {
  StripKernels strips[kMostStrips] = {}, row_state[kMostStrips] = {}, few[kMostFewRows] = {}, in_place = {};
  RowKernels rows = {};
  KernelTable table = {};
};

/// The same of int8 kernels.
struct Int8Set {
  Int8Kernels strips[kMostInt8Strips] = {};
  Int8Table table = {};
};

/// A set with the facts of a level, and no functions.
void SetFacts(const LevelFacts& facts, KernelSet& set);
/// The functions that pairs share with f32 kernels: those of the strip of the same width, of few rows and of rows.
void TakeFunctions(const KernelSet& f32, KernelSet& set);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_SET_H_
