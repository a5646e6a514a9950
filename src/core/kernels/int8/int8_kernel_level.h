#ifndef FA_CORE_KERNELS_INT8_KERNEL_LEVEL_H_
#define FA_CORE_KERNELS_INT8_KERNEL_LEVEL_H_

/// Includes that every level's int8 source needs around the shared text.

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/levels/kernel_level.h"

namespace fa::core::kernels {
namespace portable {
const Int8Table& Int8();
}
namespace avx2 {
const Int8Table& Int8();
}
namespace avx512_vnni {
const Int8Table& Int8();
}
namespace avx512_amx {
const Int8Table& Int8();
}
namespace amx_emulated {
const Int8Table& Int8();
}
namespace neon {
const Int8Table& Int8();
}
namespace neon_dotprod {
const Int8Table& Int8();
}
namespace neon_bf16 {
const Int8Table& Int8();
}
}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_INT8_KERNEL_LEVEL_H_
