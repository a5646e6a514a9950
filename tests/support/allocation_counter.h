#ifndef FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
#define FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace fa::test {

/// Calls of operator new since the start of the program. A binary that links allocation_counter.cc has every operator
/// new replaced, those of the libraries it loads too.
[[nodiscard]] int64_t Allocations();

/// Blocks of operator new that were not given back.
[[nodiscard]] int64_t LiveAllocations();

/// While one lives, calls of operator new fail on every thread: the `first`-th (1: the next), and all later ones too if
/// `all_later`. One at a time.
class FailingAllocations {
 public:
  explicit FailingAllocations(int64_t first, bool all_later);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  /// How many failed so far.
  [[nodiscard]] int64_t failed() const;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
