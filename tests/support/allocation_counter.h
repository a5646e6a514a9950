#ifndef FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
#define FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace fa::test {

/// Calls of operator new since the start of the program. In a program that links allocation_counter.cc, every operator
/// new is replaced, also in the libraries that it loads.
[[nodiscard]] int64_t Allocations();

/// Blocks of operator new that were not freed.
[[nodiscard]] int64_t LiveAllocations();

/// While such an object lives, calls of operator new fail: call number `first` (1 is the next call), and with
/// `all_later` every later call too. Only one may live at a time.
class FailingAllocations {
 public:
  /// @param this_thread  calls of other threads do not count, and do not fail
  explicit FailingAllocations(int64_t first, bool all_later, bool this_thread = false);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  /// How many calls failed so far.
  [[nodiscard]] int64_t failed() const;
};

/// While such an object lives, allocations of its thread do not count, and do not fail: what a library makes that is
/// not tested.
class UncountedAllocations {
 public:
  UncountedAllocations();
  ~UncountedAllocations();
  UncountedAllocations(const UncountedAllocations&) = delete;
  UncountedAllocations& operator=(const UncountedAllocations&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
