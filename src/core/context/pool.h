#ifndef FA_CORE_POOL_H_
#define FA_CORE_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/run/fork_depth.h"

namespace fa::core {

/// A pool of objects, each of which is lent to one borrower at a time. The pool keeps as many objects as it has ever
/// had borrowers at the same time. The object that was returned last is lent first, because its memory is most likely
/// in cache. Lending an existing object allocates nothing.
template <typename T>
class Pool {
 public:
  /// A borrowed object. The destructor of the lease returns the object to the pool. A lease must not outlive the pool.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(&pool), object_(std::move(object)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (object_ != nullptr) pool_->Return(std::move(object_));
    }
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    Pool* pool_;
    std::unique_ptr<T> object_;
  };

  Pool() : objects_(new Objects(ForkDepth())) {}
  ~Pool() { delete objects_.load(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Lends an object. If all objects are lent, Borrow calls `make()`, which returns a std::unique_ptr<T> to a new
  /// object. Borrow throws what `make` throws.
  template <typename Make>
  [[nodiscard]] Lease Borrow(Make&& make) {
    Objects& objects = ObjectsOfThisProcess();
    {
      const std::lock_guard lock(objects.mutex);
      if (!objects.idle.empty()) {
        std::unique_ptr<T> object = std::move(objects.idle.back());
        objects.idle.pop_back();
        return Lease(*this, std::move(object));
      }
      objects.idle.reserve(++objects.made);  // so that Return never allocates
    }
    try {
      return Lease(*this, make());
    } catch (...) {
      const std::lock_guard lock(objects.mutex);
      --objects.made;
      throw;
    }
  }

 private:
  struct Objects {
    explicit Objects(uint32_t depth) : fork_depth(depth) {}

    const uint32_t fork_depth;
    std::mutex mutex;
    std::vector<std::unique_ptr<T>> idle;
    size_t made = 0;
  };

  // A forked child gets new, empty Objects. It does not touch its parent's Objects, because a thread that exists only
  // in the parent may hold their mutex.
  Objects& ObjectsOfThisProcess() {
    Objects* objects = objects_.load(std::memory_order_acquire);
    if (objects->fork_depth == ForkDepth()) return *objects;
    auto own = std::make_unique<Objects>(ForkDepth());
    return objects_.compare_exchange_strong(objects, own.get(), std::memory_order_acq_rel) ? *own.release() : *objects;
  }

  void Return(std::unique_ptr<T> object) noexcept {
    Objects* objects = objects_.load(std::memory_order_acquire);
    if (objects->fork_depth != ForkDepth()) return;  // the object was lent before the fork
    const std::lock_guard lock(objects->mutex);
    if (objects->idle.size() < objects->idle.capacity()) objects->idle.push_back(std::move(object));
  }

  std::atomic<Objects*> objects_;
};

}  // namespace fa::core

#endif  // FA_CORE_POOL_H_
