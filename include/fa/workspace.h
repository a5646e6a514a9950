#ifndef FA_WORKSPACE_H_
#define FA_WORKSPACE_H_

#include <cstddef>

#include "fa/export.h"
#include "fa/status.h"

namespace fa {

/// Memory for one Run at a time; grows to what the plan wants and is reused. Not for concurrent calls.
class FA_API Workspace {
 public:
  Workspace() = default;
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// At least `bytes`, 64-byte aligned. Contents are not kept when it grows. @return kOutOfMemory
  Status Reserve(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fa

#endif  // FA_WORKSPACE_H_
