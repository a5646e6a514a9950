#include "core/run/claim_state.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <thread>

#include "core/run/executor.h"

namespace fa::core {
namespace {

constexpr uint64_t Pack(int64_t lo, int64_t hi) { return static_cast<uint64_t>(hi) << 32 | static_cast<uint64_t>(lo); }
constexpr int64_t Lo(uint64_t positions) { return static_cast<int64_t>(positions & 0xffffffffu); }
constexpr int64_t Hi(uint64_t positions) { return static_cast<int64_t>(positions >> 32); }

}  // namespace

size_t RunStateBytes(const TaskGraph& graph) {
  const size_t tasks = static_cast<size_t>(graph.task_count);
  const size_t per_task = graph.has_edges() ? 2 * sizeof(std::atomic<int32_t>) : 0;
  return static_cast<size_t>(graph.workers()) * sizeof(ClaimState::Range) + tasks * per_task;
}

ClaimState::ClaimState(const TaskGraph& graph, std::byte* memory)
    : graph_(graph),
      has_edges_(graph.has_edges()),
      range_count_(graph.workers()),
      ranges_(reinterpret_cast<Range*>(memory)) {
  assert(reinterpret_cast<uintptr_t>(memory) % alignof(Range) == 0);
  for (int c = 0; c < range_count_; ++c) {
    const size_t i = static_cast<size_t>(c);
    int leader = 0;
    if (!graph.range_node.empty() && c > 0) {
      const int16_t node = graph.range_node[i];
      if (node == graph.range_node[i - 1]) leader = ranges_[c - 1].leader;
      while (graph.range_node[static_cast<size_t>(leader)] != node) ++leader;
    }
    new (&ranges_[c]) Range{Pack(graph.range_begin[i], graph.range_begin[i + 1]), kNone, leader};
  }
  if (!has_edges_) return;
  tokens_ = reinterpret_cast<std::atomic<int32_t>*>(ranges_ + range_count_);
  queued_after_ = tokens_ + graph.task_count;
  if (graph.earliest_first) {
    assert(graph.position.size() == graph.order.size());
    static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
    heap_ = reinterpret_cast<int32_t*>(queued_after_);
  }
  for (int32_t task = 0; task < graph.task_count; ++task) {
    new (&tokens_[task]) std::atomic<int32_t>(graph.predecessor_count[static_cast<size_t>(task)] + 1);
    if (heap_ == nullptr) new (&queued_after_[task]) std::atomic<int32_t>(kNone);
  }
}

int32_t ClaimState::Next(int worker) {
  if (!has_edges_) {
    const int64_t position = ClaimPosition(worker);
    return position < 0 ? kNone : graph_.TaskAt(position);
  }
  const int leader = Leader(worker);
  for (;;) {
    if (const int32_t task = PopQueued(leader); task != kNone) return task;
    const int64_t position = ClaimPosition(worker);
    if (position < 0) return PopQueuedElsewhere(leader);
    const int32_t task = graph_.TaskAt(position);
    if (TakeToken(task)) return task;
  }
}

ClaimState::Released ClaimState::Complete(int32_t task, int worker) {
  Released released;
  if (has_edges_) released.queued = Release(SuccessorsOf(task), worker, &released.next);
  return released;
}

int ClaimState::Arrive(int32_t arrival, int worker) {
  assert(arrival >= 0 && arrival < graph_.arrivals);
  return has_edges_ ? Release(SuccessorsOf(graph_.task_count + arrival), worker, nullptr) : 0;
}

std::span<const int32_t> ClaimState::SuccessorsOf(int32_t number) const {
  const auto begin = graph_.successor_begin.begin() + number;
  return {graph_.successors.data() + begin[0], static_cast<size_t>(begin[1] - begin[0])};
}

int ClaimState::Release(std::span<const int32_t> tasks, int worker, int32_t* first_released) {
  int queued = 0;
  int32_t first = kNone, last = kNone;
  for (const int32_t task : tasks) {
    if (!TakeToken(task)) continue;
    if (first_released != nullptr && *first_released == kNone) {
      *first_released = task;
      continue;
    }
    if (heap_ != nullptr) {
      Queue(task);
      ++queued;
      continue;
    }
    if (first == kNone) {
      first = task;
    } else {
      queued_after_[last].store(task, std::memory_order_relaxed);
    }
    last = task;
    ++queued;
  }
  if (first == kNone) return queued;
  std::atomic<int32_t>& queue = ranges_[Leader(worker)].queue;
  int32_t head = queue.load(std::memory_order_relaxed);
  do {
    queued_after_[last].store(head, std::memory_order_relaxed);
    // The memory order is sequentially consistent, like the load in HasQueued. So when a worker stops while another
    // queues a task, at least one of them sees what the other has done.
  } while (!queue.compare_exchange_weak(head, first, std::memory_order_seq_cst, std::memory_order_relaxed));
  return queued;
}

bool ClaimState::HasQueued() const {
  if (!has_edges_) return false;
  return std::any_of(ranges_, ranges_ + range_count_,
                     [](const Range& range) { return range.queue.load(std::memory_order_seq_cst) != kNone; });
}

int64_t ClaimState::ClaimPosition(int worker) {
  if (graph_.shared_claims) return PopFront(ranges_[0]);
  if (worker < range_count_) {
    if (const int64_t position = PopFront(ranges_[worker]); position >= 0) return position;
  }
  if (!graph_.range_node.empty()) {
    if (const int64_t position = Steal(worker, /*same_node=*/true); position >= 0) return position;
  }
  return Steal(worker, /*same_node=*/false);
}

int64_t ClaimState::PopFront(Range& range) {
  uint64_t positions = range.positions.load(std::memory_order_acquire);
  while (Lo(positions) < Hi(positions)) {
    if (range.positions.compare_exchange_weak(positions, Pack(Lo(positions) + 1, Hi(positions)),
                                              std::memory_order_acq_rel, std::memory_order_acquire)) {
      return Lo(positions);
    }
  }
  return -1;
}

int64_t ClaimState::Steal(int worker, bool same_node) {
  const int leader = Leader(worker);
  for (;;) {
    Range* victim = nullptr;
    uint64_t seen = 0;
    int64_t most = 0;
    for (Range* range = ranges_; range != ranges_ + range_count_; ++range) {
      if (same_node && range->leader != leader) continue;
      const uint64_t positions = range->positions.load(std::memory_order_acquire);
      if (Hi(positions) - Lo(positions) > most) {
        most = Hi(positions) - Lo(positions);
        victim = range;
        seen = positions;
      }
    }
    if (victim == nullptr) return -1;
    // A worker that has no range of its own takes only one position.
    const bool keeps = worker < range_count_;
    const int64_t cut = keeps ? Hi(seen) - (most + 1) / 2 : Hi(seen) - 1;
    const uint64_t rest = Pack(Lo(seen), cut);
    if (!victim->positions.compare_exchange_strong(seen, rest, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      continue;
    }
    // The thief's own range is empty, so no other thread writes it.
    if (keeps) ranges_[worker].positions.store(Pack(cut + 1, Hi(seen)), std::memory_order_release);
    return cut;
  }
}

namespace {

/// A spinning lock, which is held only for a short time.
class SpinLock {
 public:
  explicit SpinLock(std::atomic<bool>& locked) : locked_(locked) {
    while (locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  ~SpinLock() { locked_.store(false, std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  std::atomic<bool>& locked_;
};

}  // namespace

void ClaimState::Queue(int32_t task) {
  const SpinLock lock(heap_locked_);
  heap_[heap_size_++] = task;
  std::push_heap(heap_, heap_ + heap_size_, [this](int32_t a, int32_t b) { return graph_.IsLater(a, b); });
  ranges_[0].queue.store(heap_[0], std::memory_order_seq_cst);  // the same memory order as in Release
}

int32_t ClaimState::PopEarliest() {
  if (ranges_[0].queue.load(std::memory_order_acquire) == kNone) return kNone;
  const SpinLock lock(heap_locked_);
  if (heap_size_ == 0) return kNone;
  std::pop_heap(heap_, heap_ + heap_size_, [this](int32_t a, int32_t b) { return graph_.IsLater(a, b); });
  const int32_t task = heap_[--heap_size_];
  ranges_[0].queue.store(heap_size_ > 0 ? heap_[0] : kNone, std::memory_order_seq_cst);
  return task;
}

int32_t ClaimState::PopQueued(int leader) {
  if (heap_ != nullptr) return PopEarliest();
  std::atomic<int32_t>& queue = ranges_[leader].queue;
  int32_t head = queue.load(std::memory_order_acquire);
  // A task is queued at most once per run, so its link to the next task never changes. If the head is unchanged, the
  // whole queue is unchanged.
  while (head != kNone && !queue.compare_exchange_weak(head, queued_after_[head].load(std::memory_order_relaxed),
                                                       std::memory_order_acq_rel, std::memory_order_acquire)) {
  }
  return head;
}

int32_t ClaimState::PopQueuedElsewhere(int leader) {
  for (int c = 0; c < range_count_; ++c) {
    if (c == leader || ranges_[c].leader != c) continue;
    if (const int32_t task = PopQueued(c); task != kNone) return task;
  }
  return PopQueued(leader);
}

bool ClaimState::TakeToken(int32_t task) { return tokens_[task].fetch_sub(1, std::memory_order_acq_rel) == 1; }

int ClaimState::Leader(int worker) const { return worker < range_count_ ? ranges_[worker].leader : 0; }

}  // namespace fa::core
