#ifndef FA_CORE_ONCE_PER_LEVEL_H_
#define FA_CORE_ONCE_PER_LEVEL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "core/amx_emulated.h"
#include "fa/context.h"

namespace fa::core {

/// One object per instruction-set level, made once per process by the first thread that needs the object. A static
/// variable would have a lock. If a child were forked while one thread makes the object, threads of the child would
/// wait for this lock forever.
template <typename Object>
class OncePerLevel {
 public:
  /// Returns the object of level `isa`.
  /// @param make  make(object) fills in a new object; several threads may call `make`, but one object is kept
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
