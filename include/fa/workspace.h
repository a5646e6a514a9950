#ifndef FA_WORKSPACE_H_
#define FA_WORKSPACE_H_

/// @file
/// Memory for the runs of a plan, reused from run to run.
/// @code{.cpp}
/// std::vector<float> q(8 * 128 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 128, 64});
/// args.out = fa::View(out.data(), {1, 8, 128, 64});
/// const auto plan = fa::PlanFlashAttention(args, {});
/// if (!plan.ok()) return plan.status();
/// fa::Workspace workspace;
/// for (int layer = 0; layer < 12; ++layer) {
///   if (fa::Status status = plan->Run(args, workspace); !status.ok()) return status;
/// }
/// @endcode

#include <cstddef>

#include "fa/export.h"
#include "fa/status.h"

namespace fa {

/// Memory for one Run at a time. It grows to what a plan needs and is then reused. Concurrent calls need one Workspace
/// each.
class FA_API Workspace {
 public:
  Workspace() = default;
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Provides at least `bytes`, 64-byte aligned. Contents are lost when the workspace grows. @return kOutOfMemory
  Status Reserve(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fa

#endif  // FA_WORKSPACE_H_
