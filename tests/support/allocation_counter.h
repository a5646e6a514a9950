#ifndef FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
#define FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace fa::test {

/// Returns the number of calls of operator new since the program started. allocation_counter.cc replaces operator new
/// in the program that links it, and in that program's libraries.
[[nodiscard]] int64_t Allocations();

/// Returns the number of blocks that operator new has allocated and that are not freed.
[[nodiscard]] int64_t LiveAllocations();

/// While an object of this class lives, call number `first` of operator new fails (1 is the next call). With
/// `all_later`, every later call also fails. Only one object may live at a time.
class FailingAllocations {
 public:
  /// @param this_thread  if true, calls of other threads are not counted and do not fail
  explicit FailingAllocations(int64_t first, bool all_later, bool this_thread = false);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  /// Returns how many calls this object has made fail.
  [[nodiscard]] int64_t failed() const;
};

/// While an object of this class lives, allocations of its thread are not counted and do not fail. Use it for a library
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
