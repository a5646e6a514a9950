#include "core/kernels/kernel_level.h"

namespace fa::core::kernels {

const KernelTable& Kernels(Isa isa, DType dtype) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Bf16 && dtype == DType::kBF16) return avx512_bf16::Table();
  if (isa >= Isa::kAvx512) return avx512::Table();
  if (isa >= Isa::kAvx2) return avx2::Table();
#else
  (void)isa, (void)dtype;
#endif
  return portable::Table();
}

}  // namespace fa::core::kernels
