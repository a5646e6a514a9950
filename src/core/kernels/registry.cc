#include <pthread.h>

#include "core/kernels/described_kernels.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/levels/kernel_level.h"

namespace fa::core::kernels {
namespace {

void MakeEveryTable() {
  for (const Isa isa : AllIsas()) {
    (void)Kernels(isa, DType::kF32);
    (void)Kernels(isa, DType::kBF16);
    (void)Int8KernelsFor(isa);
  }
  (void)PortableBlasKernels();
}

// Some tables are put together by the thread that first asks for them, under a guard of the compiler's. In a child that
// is forked meanwhile the guard would be held for ever; so all are there before a process forks.
[[maybe_unused]] const int registered = pthread_atfork(MakeEveryTable, nullptr, nullptr);

}  // namespace

const KernelTable& Kernels(Isa isa, DType dtype) {
#if defined(FA_AMX_EMULATED)
  if (isa == Isa::kAmxEmulated && dtype == DType::kBF16) return amx_emulated::Table();
#endif
  if (!Includes(DetectIsa(), isa)) return DescribedKernels(isa, dtype);
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512Amx) && dtype == DType::kBF16) return avx512_amx::Table();
  if (isa == Isa::kAvx512Bf16) return dtype == DType::kBF16 ? avx512_bf16::Table() : avx512_bf16::FloatTable();
  if (Includes(isa, Isa::kAvx512)) return avx512::Table();
  if (Includes(isa, Isa::kAvx2)) return avx2::Table();
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeonBf16) && dtype == DType::kBF16) return neon_bf16::Table();
  if (Includes(isa, Isa::kNeon)) return neon::Table();
#else
  (void)dtype;
#endif
  return portable::Table();
}

}  // namespace fa::core::kernels
