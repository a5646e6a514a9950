#ifndef FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
#define FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace fa::test {

/// Returns the number of calls of operator new since the start of the program. A program that links
/// allocation_counter.cc replaces every operator new, also in the libraries that it loads.
[[nodiscard]] int64_t Allocations();

/// Returns the number of blocks of operator new that are not freed.
[[nodiscard]] int64_t LiveAllocations();

/// While such an object lives, calls of operator new fail: call number `first` (1 is the next call), and with
/// `all_later` every later call too. Only one such object may live at a time.
class FailingAllocations {
 public:
  /// @param this_thread  calls of other threads neither count nor fail
  explicit FailingAllocations(int64_t first, bool all_later, bool this_thread = false);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  /// Returns how many calls have failed so far.
  [[nodiscard]] int64_t failed() const;
};

/// While such an object lives, allocations of its thread neither count nor fail. It is for allocations of a library
/// that is not under test.
class UncountedAllocations {
 public:
  UncountedAllocations();
  ~UncountedAllocations();
  UncountedAllocations(const UncountedAllocations&) = delete;
  UncountedAllocations& operator=(const UncountedAllocations&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
