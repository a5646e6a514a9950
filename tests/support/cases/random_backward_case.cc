#include "support/cases/random_backward_case.h"

#include "support/cases/random_forward_case.h"
#include "support/cases/random_values.h"

namespace fa::test {

BackwardCase RandomBackwardCase(uint64_t seed) {
  BackwardCase c{.forward = RandomForwardCase(seed)};
  int64_t draw = 0;
  const auto pick = [&](int64_t count) {
    return static_cast<int64_t>(RandomBits(seed, Tag::kChoice, {-3, draw++}) % static_cast<uint64_t>(count));
  };
  c.optional_gradients = pick(6) != 0;
  c.eight_statistics = pick(3) == 0;
  if (pick(4) == 0) c.packing = Packing::kTogether;
  if (pick(2) == 0) c.padding = {.inner = pick(10), .middle = pick(10), .outer = pick(10)};
  return c;
}

}  // namespace fa::test
