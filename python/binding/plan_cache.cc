#include "plan_cache.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fa::python {

void Signature::Add(const TensorView& view) {
  if (view.data == nullptr) return Add(int64_t{-1});  // -1 stands for no view; a view adds its rank, which is >= 0
  Add(int64_t{view.shape.rank()});
  Add(static_cast<int64_t>(view.dtype));
  numbers_.insert(numbers_.end(), view.shape.begin(), view.shape.end());
  numbers_.insert(numbers_.end(), view.stride.begin(), view.stride.end());
}

void Signature::Add(const std::vector<int64_t>& list) {
  Add(static_cast<int64_t>(list.size()));
  numbers_.insert(numbers_.end(), list.begin(), list.end());
}

void Signature::Add(std::optional<float> number) {
  Add(int64_t{number.has_value()});
  Add(static_cast<int64_t>(std::bit_cast<uint32_t>(number.value_or(0))));
}

void Signature::Add(const Mask& mask) {
  Add(static_cast<int64_t>(mask.kind()));
  Add(mask.pre());
  Add(mask.next());
  Add(mask.sparse_mode());
}

bool HasNoLists(const Mask& mask) { return mask.kind() != Mask::Kind::kRows && mask.prefix().empty(); }

// The hash function FNV-1a, applied to whole numbers instead of bytes.
size_t Signature::Hash::operator()(const Signature& signature) const {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int64_t number : signature.numbers_) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash);
}

}  // namespace fa::python
