#ifndef FA_CORE_KERNELS_DESCRIBED_KERNELS_H_
#define FA_CORE_KERNELS_DESCRIBED_KERNELS_H_

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

/// What a level's tables say of themselves, on whatever CPU and in whatever build: names, sizes, levels, and of the
/// functions RowKernels::panel_columns. All others are null. Planning needs no more.
namespace fa::core::kernels {

[[nodiscard]] const KernelTable& DescribedKernels(Isa isa, DType dtype);
/// Rows whose products an instruction of an outer product adds.
[[nodiscard]] int64_t RowsSummedAtOnce(Isa isa, DType dtype);
[[nodiscard]] const Int8Table& DescribedInt8Kernels(Isa isa);
[[nodiscard]] const IndexerKernels& DescribedIndexerKernels(Isa isa);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_DESCRIBED_KERNELS_H_
