#ifndef FA_CORE_ONCE_PER_LEVEL_H_
#define FA_CORE_ONCE_PER_LEVEL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "core/amx_emulated.h"
#include "fa/context.h"

namespace fa::core {

/// An object per level that is made once per process, by any thread that first needs it. A static variable would let
/// other threads wait while one makes it, and in a child that is forked meanwhile they would wait for ever.
template <typename Object>
class OncePerLevel {
 public:
  /// @param make  called as make(object) with a new object, maybe by several threads; one object is kept
  template <typename Make>
  const Object& Of(Isa isa, const Make& make) {
    std::atomic<const Object*>& known = objects_[static_cast<size_t>(isa)];
    if (const Object* made = known.load(std::memory_order_acquire); made != nullptr) return *made;
    auto own = std::make_unique<Object>();
    make(*own);
    const Object* first = nullptr;
    return known.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel) ? *own.release() : *first;
  }

 private:
  std::array<std::atomic<const Object*>, static_cast<size_t>(kAmxEmulated) + 1> objects_{};
};

}  // namespace fa::core

#endif  // FA_CORE_ONCE_PER_LEVEL_H_
