#ifndef FA_TILING_WORKSPACE_PLAN_H_
#define FA_TILING_WORKSPACE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fa::tiling {

/// Named buffers, each with its offset in the workspace. A plan adds the buffers by Book, and Run finds them at their
/// offsets in one block of memory.
class WorkspacePlan {
 public:
  struct Buffer {
    std::string name;
    size_t offset_bytes, bytes;
  };
  static constexpr size_t kAlignment = 64;

  /// Adds a buffer of `count` times `bytes` bytes and returns the buffer's offset. The next buffer begins at a multiple
  /// of kAlignment. A sum beyond 63 bits saturates.
  size_t Book(std::string name, size_t bytes, int64_t count = 1);
  [[nodiscard]] size_t total_bytes() const { return total_; }
  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }

 private:
  size_t total_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace fa::tiling

#endif  // FA_TILING_WORKSPACE_PLAN_H_
