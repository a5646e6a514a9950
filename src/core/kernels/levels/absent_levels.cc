// The tables of levels that FA_LEVELS leaves out of the library: they describe the level, so that it can be planned
// for, and have no functions. FA_WITHOUT_<LEVEL> names each level without sources.

#include "core/kernels/described_kernels.h"
#include "core/kernels/indexer/indexer_kernel_level.h"
#include "core/kernels/int8/int8_kernel_level.h"

#define FA_ABSENT_FLOATS(level, isa, function, dtype) \
  const KernelTable& level::function() noexcept { return DescribedKernels(Isa::isa, DType::dtype); }
#define FA_ABSENT_INT8(level, isa) \
  const Int8Table& level::Int8() { return DescribedInt8Kernels(Isa::isa); }
#define FA_ABSENT_INDEXER(level, isa) \
  const IndexerKernels& level::Indexer() noexcept { return DescribedIndexerKernels(Isa::isa); }

namespace fa::core::kernels {

#ifdef FA_WITHOUT_AVX2
FA_ABSENT_FLOATS(avx2, kAvx2, Table, kF32)
FA_ABSENT_INT8(avx2, kAvx2)
FA_ABSENT_INDEXER(avx2, kAvx2)
#endif
#ifdef FA_WITHOUT_AVX512
FA_ABSENT_FLOATS(avx512, kAvx512, Table, kF32)
FA_ABSENT_INDEXER(avx512, kAvx512)
#endif
#ifdef FA_WITHOUT_AVX512_VNNI
FA_ABSENT_INT8(avx512_vnni, kAvx512Vnni)
#endif
#ifdef FA_WITHOUT_AVX512_BF16
FA_ABSENT_FLOATS(avx512_bf16, kAvx512Bf16, Table, kBF16)
FA_ABSENT_FLOATS(avx512_bf16, kAvx512Bf16, FloatTable, kF32)
#endif
#ifdef FA_WITHOUT_AVX512_AMX
FA_ABSENT_FLOATS(avx512_amx, kAvx512Amx, Table, kBF16)
FA_ABSENT_INT8(avx512_amx, kAvx512Amx)
#endif
#ifdef FA_WITHOUT_NEON
FA_ABSENT_FLOATS(neon, kNeon, Table, kF32)
FA_ABSENT_INT8(neon, kNeon)
FA_ABSENT_INDEXER(neon, kNeon)
#endif
#ifdef FA_WITHOUT_NEON_DOTPROD
FA_ABSENT_INT8(neon_dotprod, kNeonDotprod)
#endif
#ifdef FA_WITHOUT_NEON_BF16
FA_ABSENT_FLOATS(neon_bf16, kNeonBf16, Table, kBF16)
FA_ABSENT_INT8(neon_bf16, kNeonBf16)
#endif

}  // namespace fa::core::kernels
