#ifndef FA_ACLNN_HANDLE_TABLE_H_
#define FA_ACLNN_HANDLE_TABLE_H_

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fa::aclnn {

/// The objects behind the pointers that a C program holds. A pointer that was destroyed, or was never an object, is
/// found out instead of followed; an object in use by another thread outlives its destruction.
///
/// Tables live as long as the process: programs destroy what they made in any order, or never.
template <typename T>
class HandleTable {
 public:
  T* Insert(std::shared_ptr<T> object) {
    T* const handle = object.get();
    const std::lock_guard lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  /// Null if there is no such object.
  [[nodiscard]] std::shared_ptr<T> Find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  /// What was removed; null if there is no such object.
  std::shared_ptr<T> Remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  [[nodiscard]] std::vector<std::shared_ptr<T>> All() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> all;
    all.reserve(objects_.size());
    for (const auto& [handle, object] : objects_) all.push_back(object);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<T>> objects_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_HANDLE_TABLE_H_
