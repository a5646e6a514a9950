#ifndef FA_TILING_PLAN_LIMITS_H_
#define FA_TILING_PLAN_LIMITS_H_

#include <array>
#include <cstdint>
#include <new>

#include "tiling/problem.h"

namespace fa::tiling {

/// The exception for a plan in which some number is too large. Planners throw it before they make the plan, so a
/// refusal takes no time.
class PlanTooLarge : public std::bad_alloc {
 public:
  /// Makes the text "the plan: <wanted> <of>, want at most <most><hint>".
  PlanTooLarge(const char* of, double wanted, double most, const char* hint = "") noexcept;
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 192> text_{};
};

/// The most tasks of a plan. Task ids have 32 bits. The limit leaves room, because a plan has further tasks that are
/// not counted before it is made.
inline constexpr int64_t kMaxTasks = int64_t{1} << 30;

/// The bytes that a task takes in a plan and during planning. Tile, time, position in the claim order and edges take
/// 150 bytes in a forward and 250 bytes in a backward.
inline constexpr int64_t kTaskBytes = 256;

/// The most keys of a sequence, because lists of keys are sorted as 32-bit words.
inline constexpr int64_t kMostKeys = (int64_t{1} << 31) - 1;

/// The most floating-point operations of a plan per worker. They take 48 days at 2^38 per second (f32, AVX-512), three
/// days at 2^42 (bf16, AMX). Tensors with strides of 0 need no memory for their size, so memory does not bound this
/// number.
inline constexpr double kMostFlopsOfAWorker = 0x1p60;

/// Returns the most tasks that a plan can have. The ids and the memory of the tasks limit the number.
[[nodiscard]] int64_t MostTasks(int64_t memory_bytes);

/// Checks the number of tasks. @throws PlanTooLarge
void CheckTasks(double tasks, const Machine& machine);
/// Checks the number of floating-point operations. @throws PlanTooLarge
void CheckWork(double flops, int workers);
/// Checks the workspace; `bytes` is a lower bound of the plan's workspace. @throws PlanTooLarge
void CheckWorkspace(double bytes, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_LIMITS_H_
