#include "fuzz/targets/fuzzed_call.h"

#include <map>
#include <memory>
#include <utility>

#include "fuzz/calls/families.h"

namespace fa::test {

FuzzCall& FuzzedCall(size_t family, InputBytes& input) {
  constexpr size_t kSeeds = 4;
  static std::map<std::pair<size_t, size_t>, std::unique_ptr<FuzzCall>> calls;
  const size_t seed = 1 + input.Below(kSeeds);
  auto& call = calls[{family, seed}];
  if (call == nullptr) call = kFamilies[family].make(seed);
  return *call;
}

}  // namespace fa::test
