#include "core/kernels/int8_kernel_level.h"

namespace fa::core::kernels {

const Int8Table& Int8KernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return avx512_vnni::Int8();
  if (isa >= Isa::kAvx2) return avx2::Int8();
#else
  (void)isa;
#endif
  return portable::Int8();
}

}  // namespace fa::core::kernels
