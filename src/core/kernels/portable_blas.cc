// The portable level with OpenBLAS' sgemm for the two products: s = K * panel and o = alpha * o + V^T * p. These
// kernels do not use the micro-kernels, so tests compare the micro-kernels with them. They also serve CPUs whose vector
// instructions the portable level does not use.

#include "core/blas.h"
#include "core/kernels/kernel_set.h"
#include "core/once_per_level.h"

namespace fa::core::kernels {
namespace {

template <int Index>
const StripKernels& Base() {
  return Kernels(Isa::kPortable).strips[Index];
}

template <int Index>
void Scores(const RowBlock& k, int64_t keys, const float* panel, int64_t d, bool accumulate, float* s, float* row_max) {
  const int64_t width = Base<Index>().width;
  if (keys == 0) return;
  Sgemm({.m = keys,
         .n = width,
         .k = d,
         .a = static_cast<const float*>(k.data),
         .lda = k.stride,
         .b = panel,
         .ldb = width,
         .c = s,
         .ldc = width,
         .beta = accumulate ? 1.0f : 0.0f});
  if (row_max != nullptr) Base<Index>().passes.block_max(s, keys, row_max);
}

template <int Index>
void Product(const RowBlock& v, int64_t keys, const float* p, int64_t dv, const float* alpha, float* o) {
  const int64_t width = Base<Index>().width;
  for (int64_t c = 0; c < dv; ++c) {
    for (int64_t lane = 0; lane < width; ++lane) {
      float& x = o[c * width + lane];
      x = alpha != nullptr ? x * alpha[lane] : 0.0f;
    }
  }
  if (keys == 0) return;
  Sgemm({.m = dv,
         .n = width,
         .k = keys,
         .a = static_cast<const float*>(v.data),
         .lda = v.stride,
         .transpose_a = true,
         .b = p,
         .ldb = width,
         .c = o,
         .ldc = width,
         .beta = 1.0f});
}

template <int Index>
void SetBlas(const char* name, StripKernels& kernels) {
  kernels = Base<Index>();
  kernels.name = name;
  kernels.scores = Scores<Index>;
  kernels.product = Product<Index>;
}

}  // namespace

const KernelTable& PortableBlasKernels() {
  static constinit OncePerLevel<KernelSet> sets;
  return sets
      .Of(Isa::kPortable,
          [](KernelSet& set) {
            SetBlas<0>("f32_blasx8_portable", set.strips[0]);
            SetBlas<1>("f32_blasx4_portable", set.strips[1]);
            set.table = {.isa = Isa::kPortable,
                         .strips = set.strips,
                         .strip_count = 2,
                         .few = nullptr,
                         .few_count = 0,
                         .rows = Kernels(Isa::kPortable).rows};
          })
      .table;
}

}  // namespace fa::core::kernels
