#include "core/kernels/described_kernels.h"
#include "core/kernels/int8/int8_kernel_level.h"

namespace fa::core::kernels {

const Int8Table& Int8KernelsFor(Isa isa) {
#if defined(FA_AMX_EMULATED)
  if (isa == Isa::kAmxEmulated) return amx_emulated::Int8();
#endif
  if (!Includes(DetectIsa(), isa)) return DescribedInt8Kernels(isa);
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512Amx)) return avx512_amx::Int8();
  if (Includes(isa, Isa::kAvx512Vnni)) return avx512_vnni::Int8();
  if (Includes(isa, Isa::kAvx2)) return avx2::Int8();
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeonBf16)) return neon_bf16::Int8();
  if (Includes(isa, Isa::kNeonDotprod)) return neon_dotprod::Int8();
  if (Includes(isa, Isa::kNeon)) return neon::Int8();
#endif
  return portable::Int8();
}

}  // namespace fa::core::kernels
