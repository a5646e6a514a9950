#ifndef FA_CORE_KERNELS_ONCE_PER_LEVEL_H_
#define FA_CORE_KERNELS_ONCE_PER_LEVEL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "fa/context.h"

namespace fa::core::kernels {

/// What is made once per process for each level, by any thread that first needs it. Not a static that one thread makes
/// while others wait: in a child forked meanwhile they would wait for ever.
template <typename Set>
class OncePerLevel {
 public:
  template <typename Make>
  const Set& Of(Isa isa, const Make& make) {
    std::atomic<const Set*>& known = sets_[static_cast<size_t>(isa)];
    if (const Set* made = known.load(std::memory_order_acquire); made != nullptr) return *made;
    auto own = std::make_unique<Set>();
    make(*own);
    const Set* first = nullptr;
    return known.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel) ? *own.release() : *first;
  }

 private:
  static constexpr size_t kLevels = 16;
  std::array<std::atomic<const Set*>, kLevels> sets_{};
};

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_ONCE_PER_LEVEL_H_
