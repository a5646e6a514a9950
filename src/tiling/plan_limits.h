#ifndef FA_TILING_PLAN_LIMITS_H_
#define FA_TILING_PLAN_LIMITS_H_

#include <array>
#include <cstdint>
#include <new>

#include "tiling/problem.h"

namespace fa::tiling {

/// A plan would have too much of something. Planners throw this before they make the plan, so that a refusal takes no
/// time.
class PlanTooLarge : public std::bad_alloc {
 public:
  /// "the plan: <wanted> <of>, want at most <most><hint>"
  PlanTooLarge(const char* of, double wanted, double most, const char* hint = "") noexcept;
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 192> text_{};
};

/// Task ids are 32 bits, and every plan has some tasks in addition to those that are counted before it is made.
inline constexpr int64_t kMaxTasks = int64_t{1} << 30;

/// The memory that a task takes in a plan and during planning: its tile, its time, its place in the claim order and its
/// edges. 150 bytes forward, 250 backward.
inline constexpr int64_t kTaskBytes = 256;

/// The keys of a sequence: the limit of lists of keys, sorted as 32-bit words. An estimate of the worst case: blocks of
/// some 256 terms are added to a row's f32 sum, each addition off by up to 2^-24 of it, in all by half of the sum.
inline constexpr int64_t kMostKeys = (int64_t{1} << 31) - 1;

/// The floating-point operations of a plan per worker: 48 days at 2^38 a second (f32, AVX-512), three days at 2^42
/// (bf16, AMX). Tensors whose strides are 0 ask for as many without taking memory.
inline constexpr double kMostFlopsOfAWorker = 0x1p60;

/// The largest number of tasks that a plan can have: limited by their ids, and by the memory that they take.
[[nodiscard]] int64_t MostTasks(int64_t memory_bytes);

/// @throws PlanTooLarge
void CheckTasks(double tasks, const Machine& machine);
/// @throws PlanTooLarge
void CheckWork(double flops, int workers);
/// `bytes`: a lower bound of the plan's workspace. @throws PlanTooLarge
void CheckWorkspace(double bytes, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_LIMITS_H_
