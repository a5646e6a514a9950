#ifndef FA_PYTHON_BINDING_PLAN_CACHE_H_
#define FA_PYTHON_BINDING_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fa/context.h"
#include "fa/options.h"
#include "fa/plan.h"
#include "fa/tensor.h"

namespace fa::python {

/// A list of numbers that contains everything on which a plan depends, so calls with equal signatures can use one plan.
/// Each view or list begins with a count, so different calls have different signatures.
class Signature {
 public:
  explicit Signature(const Context* context) { Add(reinterpret_cast<intptr_t>(context)); }

  void Add(int64_t number) { numbers_.push_back(number); }
  void Add(const TensorView& view);
  void Add(const std::vector<int64_t>& list);
  void Add(std::optional<float> number);
  void Add(float number) { Add(std::optional(number)); }
  /// Adds a mask for which HasNoLists is true.
  void Add(const Mask& mask);

  [[nodiscard]] const Context* context() const { return reinterpret_cast<const Context*>(numbers_.front()); }
  bool operator==(const Signature&) const = default;
  struct Hash {
    size_t operator()(const Signature& signature) const;
  };

 private:
  std::vector<int64_t> numbers_;
};

/// Returns whether the mask has no lists, so that a signature can contain it.
[[nodiscard]] bool HasNoLists(const Mask& mask);

/// The plans of the latest calls, found by signature. Threads may use the object at the same time.
template <typename Args>
class PlanCache {
 public:
  std::optional<PlanFor<Args>> Find(const Signature& signature) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(signature);
    if (found == places_.end()) return {};
    plans_.splice(plans_.begin(), plans_, found->second);
    return found->second->second;
  }

  void Keep(const Signature& signature, const PlanFor<Args>& plan) {
    const std::lock_guard lock(mutex_);
    if (places_.contains(signature)) return;
    plans_.emplace_front(signature, plan);
    places_.emplace(signature, plans_.begin());
    if (plans_.size() > kPlans) Drop(std::prev(plans_.end()));
  }

  /// Drops a context's plans before the context is destroyed, because a later context may get the same address.
  void Forget(const Context* context) {
    const std::lock_guard lock(mutex_);
    for (auto place = plans_.begin(); place != plans_.end();) {
      const auto next = std::next(place);
      if (place->first.context() == context) Drop(place);
      place = next;
    }
  }

 private:
  using Plans = std::list<std::pair<Signature, PlanFor<Args>>>;  // the plan that was used last comes first

  // The layers of a model have few different signatures, so 64 plans are enough. In a decode every token has new
  // signatures, which no number of kept plans would serve.
  static constexpr size_t kPlans = 64;

  void Drop(typename Plans::iterator place) {
    places_.erase(place->first);
    plans_.erase(place);
  }

  std::mutex mutex_;
  Plans plans_;
  std::unordered_map<Signature, typename Plans::iterator, Signature::Hash> places_;
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_PLAN_CACHE_H_
