#ifndef FA_CORE_POOL_H_
#define FA_CORE_POOL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fa::core {

/// Objects lent one to a borrower at a time; as many as there were borrowers at once. The one returned last is lent
/// first, since its memory is likeliest in cache. Lending an object that exists allocates nothing.
template <typename T>
class Pool {
 public:
  /// Returns the object when it goes. Must not outlive the pool.
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

  /// `make()` gives a std::unique_ptr<T>; called when all are lent. May throw what it throws.
  template <typename Make>
  [[nodiscard]] Lease Borrow(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> object = std::move(idle_.back());
        idle_.pop_back();
        return Lease(*this, std::move(object));
      }
      idle_.reserve(++made_);  // so that Return never allocates
    }
    try {
      return Lease(*this, make());
    } catch (...) {
      const std::lock_guard lock(mutex_);
      --made_;
      throw;
    }
  }

 private:
  void Return(std::unique_ptr<T> object) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
  size_t made_ = 0;
};

}  // namespace fa::core

#endif  // FA_CORE_POOL_H_
