#include "tiling/workspace_plan.h"

#include <utility>

#include "core/saturating.h"

namespace fa::tiling {

size_t WorkspacePlan::Book(std::string name, size_t bytes, int64_t count) {
  const size_t offset = total_;
  const int64_t booked = core::SaturatedProduct(static_cast<int64_t>(bytes), count);
  buffers_.push_back({std::move(name), offset, static_cast<size_t>(booked)});
  const int64_t rounded = core::SaturatedRoundUp(booked, static_cast<int64_t>(kAlignment));
  total_ = static_cast<size_t>(core::SaturatedSum(static_cast<int64_t>(total_), rounded));
  return offset;
}

}  // namespace fa::tiling
