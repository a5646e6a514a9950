#ifndef FA_TILING_PLAN_LIMITS_H_
#define FA_TILING_PLAN_LIMITS_H_

#include <array>
#include <cstdint>
#include <new>

#include "tiling/problem.h"

namespace fa::tiling {

/// More than a plan may have of something. Thrown by planners before they make it, so that a refusal takes no time.
class PlanTooLarge : public std::bad_alloc {
 public:
  /// "the plan: <wanted> <of>, want at most <most>"
  PlanTooLarge(const char* of, double wanted, double most) noexcept;
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 128> text_{};
};

/// Task ids are 32 bits, and every plan has some tasks besides those that are counted before it is made.
inline constexpr int64_t kMaxTasks = int64_t{1} << 30;

/// What a task takes in a plan and while it is planned, in all: a tile, its time, its place in the claim order and its
/// edges. 150 bytes forward, 250 backward.
inline constexpr int64_t kTaskBytes = 256;

/// The most tasks that a plan can have: by their ids, and by what they take of memory.
[[nodiscard]] int64_t MostTasks(int64_t memory_bytes);

/// @throws PlanTooLarge
void CheckTasks(double tasks, const Machine& machine);
/// `bytes`: what the plan's workspace has at least. @throws PlanTooLarge
void CheckWorkspace(double bytes, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_LIMITS_H_
