#include "tiling/workspace_plan.h"

#include <utility>

namespace fa::tiling {

size_t WorkspacePlan::Book(std::string name, size_t bytes) {
  const size_t offset = total_;
  buffers_.push_back({std::move(name), offset, bytes});
  total_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

}  // namespace fa::tiling
