#ifndef FA_TILING_PLAN_LIMITS_H_
#define FA_TILING_PLAN_LIMITS_H_

#include <array>
#include <cstdint>
#include <new>

#include "tiling/problem.h"

namespace fa::tiling {

/// Some number of a plan would be too large. Planners throw this before they make the plan, so a refusal takes no time.
class PlanTooLarge : public std::bad_alloc {
 public:
  /// "the plan: <wanted> <of>, want at most <most><hint>"
  PlanTooLarge(const char* of, double wanted, double most, const char* hint = "") noexcept;
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 192> text_{};
};

/// Task ids have 32 bits. Every plan has some tasks besides those that are counted before it is made.
inline constexpr int64_t kMaxTasks = int64_t{1} << 30;

/// Memory per task in a plan and during planning: its tile, its time, its place in the claim order and its edges. They
/// take 150 bytes in a forward and 250 in a backward.
inline constexpr int64_t kTaskBytes = 256;

/// The most keys of a sequence, because lists of keys are sorted as 32-bit words. With so many keys a row's f32 sum may
/// be off by half, by an estimate of the worst case: it adds blocks of some 256 terms, and each addition is off by up
/// to 2^-24 of the sum.
inline constexpr int64_t kMostKeys = (int64_t{1} << 31) - 1;

/// The most floating-point operations of a plan per worker: 48 days at 2^38 per second (f32, AVX-512), three days at
/// 2^42 (bf16, AMX). Tensors with strides of 0 can ask for so many without taking memory.
inline constexpr double kMostFlopsOfAWorker = 0x1p60;

/// The most tasks that a plan can have. Their ids and their memory limit the number.
[[nodiscard]] int64_t MostTasks(int64_t memory_bytes);

/// @throws PlanTooLarge
void CheckTasks(double tasks, const Machine& machine);
/// @throws PlanTooLarge
void CheckWork(double flops, int workers);
/// `bytes` is a lower bound of the plan's workspace. @throws PlanTooLarge
void CheckWorkspace(double bytes, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_LIMITS_H_
