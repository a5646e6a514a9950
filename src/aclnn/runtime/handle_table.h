#ifndef FA_ACLNN_HANDLE_TABLE_H_
#define FA_ACLNN_HANDLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "aclnn/runtime/process.h"

namespace fa::aclnn {

/// The objects to which the handles of a C program point. Find() never follows the pointer of a destroyed object. If
/// another thread is using an object that is removed, the object is freed only after that use.
///
/// Tables exist from the library's start and live as long as the process. Programs destroy their objects in any order,
/// in their own static destructors, in a forked child, or never.
template <typename T>
class HandleTable {
 public:
  constexpr HandleTable() = default;

  T* Insert(std::shared_ptr<T> object) {
    T* const handle = object.get();
    const std::lock_guard lock(mutex_);
    if (objects_ == nullptr) objects_ = new Objects;
    objects_->emplace(handle, std::move(object));
    return handle;
  }

  /// Returns the object of a handle, or null if there is no such object.
  [[nodiscard]] std::shared_ptr<T> Find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    if (objects_ == nullptr) return nullptr;
    const auto found = objects_->find(handle);
    return found == objects_->end() ? nullptr : found->second;
  }

  /// Returns some object for which `is` is true, or null if there is none. Allocates nothing.
  template <typename Predicate>
  [[nodiscard]] std::shared_ptr<T> FindIf(const Predicate& is) const {
    const std::lock_guard lock(mutex_);
    if (objects_ == nullptr) return nullptr;
    for (const auto& [handle, object] : *objects_) {
      if (is(*object)) return object;
    }
    return nullptr;
  }

  /// Returns the object with the least number() in (above, most], or null. By repeated calls a caller can walk over a
  /// table in which other threads add and remove objects. Allocates nothing.
  [[nodiscard]] std::shared_ptr<T> Next(uint64_t above, uint64_t most) const {
    const std::lock_guard lock(mutex_);
    if (objects_ == nullptr) return nullptr;
    const std::shared_ptr<T>* next = nullptr;
    for (const auto& [handle, object] : *objects_) {
      const uint64_t number = object->number();
      if (number > above && number <= most && (next == nullptr || number < (*next)->number())) next = &object;
    }
    return next == nullptr ? nullptr : *next;
  }

  /// Removes the object of a handle. Returns the object, or null if there is no such object.
  std::shared_ptr<T> Remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    if (objects_ == nullptr) return nullptr;
    const auto found = objects_->find(handle);
    if (found == objects_->end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_->erase(found);
    return object;
  }

 private:
  using Objects = std::unordered_map<const void*, std::shared_ptr<T>>;

  mutable ForkSafeMutex mutex_;
  Objects* objects_ = nullptr;  // made with the first object, never destroyed
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_HANDLE_TABLE_H_
