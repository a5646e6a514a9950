// The loops for processors that have no source of their own. These loops use the compiler's vectors of four floats, and
// twelve accumulators. Each accumulator converges to 1 (x = x/2 + 1/2), so that no NaN, infinity or denormal number
// slows a unit down. The compiler does not know where the sums start and end, so it neither removes nor joins them.

#include "peak/peak_loops.h"

namespace fa::bench {
namespace {

constexpr int kAccumulators = 12, kLanes = 4;
using Vector __attribute__((vector_size(kLanes * sizeof(float)), may_alias)) = float;

void RunMultiplyAdd(int64_t iterations) {
  const Vector half = {0.5F, 0.5F, 0.5F, 0.5F};
  Vector x[kAccumulators] = {};
  asm volatile("" : "+m"(x));
  for (; iterations > 0; --iterations) {
#pragma GCC unroll 12
    for (Vector& each : x) each = each * half + half;
  }
  asm volatile("" : "+m"(x));
}

}  // namespace

PeakLoop F32Loop(Isa /*isa*/) { return {RunMultiplyAdd, kAccumulators * kLanes * 2.0, "f32 multiply-adds"}; }
PeakLoop Bf16Loop(Isa isa) { return F32Loop(isa); }
PeakLoop Int8Loop(Isa isa) { return F32Loop(isa); }

void ReadLines(Isa /*isa*/, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(Vector)) {
    static_cast<void>(*reinterpret_cast<const volatile Vector*>(data + i));
  }
}

}  // namespace fa::bench
