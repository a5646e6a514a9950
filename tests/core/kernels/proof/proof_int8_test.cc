// The proof sees every kind of wrong integer kernel and names it.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/kernels/proof/proof.h"

namespace fa::core {
namespace {

using kernels::Int8Kernels;
using kernels::Int8Table;

TEST(Proof, MistakesOfIntegersAreSeen) {
  const Int8Table& right = kernels::Int8KernelsFor(Isa::kPortable);
  std::vector<Int8Kernels> strips(right.strips, right.strips + right.strip_count);
  Int8Table table = right;
  table.strips = strips.data();
  EXPECT_EQ(kernels::Disproof(table, right), "");
  strips[1].product = [](const uint32_t* v, int64_t v_stride, int64_t keys, const uint32_t* p, int64_t dv, int32_t* o) {
    const Int8Table& own = kernels::Int8KernelsFor(Isa::kPortable);
    own.strips[1].product(v, v_stride, keys, p, dv, o);
    ++o[dv];
  };
  EXPECT_EQ(kernels::Disproof(table, right), "integers of i8_4x4_portable");
  strips.assign(right.strips, right.strips + right.strip_count);
  table.pack_keys = [](auto rows, auto count, auto d, auto sign, auto k, auto start) {
    kernels::Int8KernelsFor(Isa::kPortable).pack_keys(rows, count, d, sign, k, start);
    if (sign > 0) ++start[count - 1];
  };
  EXPECT_EQ(kernels::Disproof(table, right), "integers of i8_4x8_portable");
  table.pack_keys = right.pack_keys;
  table.quantize = [](auto x, auto n, auto quantization, auto y) {
    kernels::Quantization one = quantization;
    one.per_column = false;
    kernels::Int8KernelsFor(Isa::kPortable).quantize(x, n, one, y);
  };
  EXPECT_EQ(kernels::Disproof(table, right), "quantized outputs of portable");
}

}  // namespace
}  // namespace fa::core
