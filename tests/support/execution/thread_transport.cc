#include "support/execution/thread_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <tuple>

namespace fa::test {

struct ThreadRanks::Hub {
  Hub(int count, bool can_test)
      : ranks(count), tests(can_test), gathered(static_cast<size_t>(count)), state(static_cast<size_t>(count)) {}

  struct Parcel {
    std::span<const std::byte> bytes;
    bool taken = false;
  };
  struct State {
    bool left = false;
    int64_t sent = 0, received = 0, messages = 0, steps = 0, tests = 0, gathers = 0;
    int64_t dies_at = std::numeric_limits<int64_t>::max(), throws_at = dies_at;
  };

  [[nodiscard]] int FirstThatLeft() const {
    const auto left = std::find_if(state.begin(), state.end(), [](const State& s) { return s.left; });
    return left == state.end() ? -1 : static_cast<int>(left - state.begin());
  }
  static Status HasLeft(int rank) { return Status::Internal("rank " + std::to_string(rank) + " has left"); }

  /// Waits until `done()`, unless a rank leaves first. The caller holds the lock.
  /// @param peer  the rank that may leave; -1: any rank
  template <typename Done>
  Status WaitFor(std::unique_lock<std::mutex>& lock, int peer, const Done& done) {
    while (!done()) {
      const int left = peer < 0 ? FirstThatLeft() : (state[static_cast<size_t>(peer)].left ? peer : -1);
      if (left >= 0) return HasLeft(left);
      changed.wait(lock);
    }
    return Status::Ok();
  }

  const int ranks;
  const bool tests;
  mutable std::mutex mutex;
  std::condition_variable changed;
  // Messages by (sender, receiver, tag).
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Parcel>>> parcels;
  std::vector<std::vector<std::byte>> gathered;
  int64_t gather_arrived = 0, gather_left = 0, gather_round = 0;
  std::vector<State> state;
};

class ThreadRanks::Rank final : public Transport {
 public:
  Rank(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return hub_->ranks; }

  Status Reserve(int64_t requests, size_t bytes) override {
    const std::lock_guard lock(hub_->mutex);
    Step();
    most_requests_ = std::max(most_requests_, requests);
    most_bytes_ = std::max(most_bytes_, bytes);
    return Status::Ok();
  }

  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override {
    const std::lock_guard lock(hub_->mutex);
    Step();
    if (Status status = Count(tag, bytes.size()); !status.ok()) return status;
    auto parcel = std::make_shared<Hub::Parcel>(Hub::Parcel{bytes});
    hub_->parcels[{rank_, to, tag}].push_back(parcel);
    hub_->state[static_cast<size_t>(rank_)].sent += static_cast<int64_t>(bytes.size());
    *request = Add({.to = to, .parcel = parcel});
    hub_->changed.notify_all();
    return Status::Ok();
  }

  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override {
    const std::lock_guard lock(hub_->mutex);
    Step();
    if (Status status = Count(tag, bytes.size()); !status.ok()) return status;
    std::fill(bytes.begin(), bytes.end(), std::byte{0xff});  // the buffer is NaN until the message arrives
    *request = Add({.from = from, .tag = tag, .bytes = bytes});
    return Status::Ok();
  }

  Status Wait(Request request) override {
    std::unique_lock lock(hub_->mutex);
    Step();
    const Pending& pending = pending_[static_cast<size_t>(request)];
    if (Status status = hub_->WaitFor(lock, PeerOf(pending), [&] { return IsDone(pending); }); !status.ok()) {
      return status;
    }
    return Take(pending);
  }

  Status Test(Request request, bool* done) override {
    if (!hub_->tests) return Transport::Test(request, done);
    const std::unique_lock lock(hub_->mutex);
    ++hub_->state[static_cast<size_t>(rank_)].tests;
    const Pending& pending = pending_[static_cast<size_t>(request)];
    *done = IsDone(pending);
    if (*done) {
      Step();
      return Take(pending);
    }
    const int peer = PeerOf(pending);
    return hub_->state[static_cast<size_t>(peer)].left ? Hub::HasLeft(peer) : Status::Ok();
  }
  [[nodiscard]] bool CanTest() const override { return hub_->tests; }

  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    Hub& hub = *hub_;
    std::unique_lock lock(hub.mutex);
    Step();
    ++hub.state[static_cast<size_t>(rank_)].gathers;
    // All ranks must have read the previous round.
    if (Status status = hub.WaitFor(lock, -1, [&] { return hub.gather_left == 0; }); !status.ok()) return status;
    const int64_t round = hub.gather_round;
    hub.gathered[static_cast<size_t>(rank_)].assign(mine.begin(), mine.end());
    if (++hub.gather_arrived == hub.ranks) {
      hub.gather_arrived = 0;
      hub.gather_left = hub.ranks;
      ++hub.gather_round;
      hub.changed.notify_all();
    }
    if (Status status = hub.WaitFor(lock, -1, [&] { return hub.gather_round > round; }); !status.ok()) return status;
    auto to = all.begin();
    for (const std::vector<std::byte>& part : hub.gathered) {
      if (part.size() != mine.size()) return Status::Internal("ranks gather different lengths");
      to = std::copy(part.begin(), part.end(), to);
    }
    --hub.gather_left;
    hub.changed.notify_all();
    return Status::Ok();
  }

  void Leave() {
    const std::lock_guard lock(hub_->mutex);
    Gone();
  }

 private:
  struct Pending {
    int to = 0, from = 0, tag = 0;
    std::span<std::byte> bytes = {};
    std::shared_ptr<Hub::Parcel> parcel = {};  // set only for a message that is sent
  };

  static int PeerOf(const Pending& pending) { return pending.parcel != nullptr ? pending.to : pending.from; }
  auto& QueueOf(const Pending& pending) { return hub_->parcels[{pending.from, rank_, pending.tag}]; }
  bool IsDone(const Pending& pending) {
    return pending.parcel != nullptr ? pending.parcel->taken : !QueueOf(pending).empty();
  }
  /// Ends a message that is done: copies it if it was received. The caller holds the lock.
  Status Take(const Pending& pending) {
    --under_way_;
    if (pending.parcel != nullptr) return Status::Ok();
    auto& queue = QueueOf(pending);
    const std::shared_ptr<Hub::Parcel> parcel = queue.front();
    queue.pop_front();
    if (parcel->bytes.size() != pending.bytes.size()) return Status::Internal("a message of another length");
    std::copy(parcel->bytes.begin(), parcel->bytes.end(), pending.bytes.begin());
    hub_->state[static_cast<size_t>(rank_)].received += static_cast<int64_t>(parcel->bytes.size());
    parcel->taken = true;
    hub_->changed.notify_all();
    return Status::Ok();
  }

  // Marks the rank as having left. Drops its messages that nobody has taken, because their memory is gone with the
  // rank.
  void Gone() {
    hub_->state[static_cast<size_t>(rank_)].left = true;
    for (auto& [way, queue] : hub_->parcels) {
      if (std::get<0>(way) == rank_) queue.clear();
    }
    hub_->changed.notify_all();
  }
  Status Count(int tag, size_t bytes) {
    if (tag < 0 || tag >= kTags) return Status::Internal("tag " + std::to_string(tag));
    if (++under_way_ > most_requests_) return Status::Internal("more messages under way than reserved");
    if (bytes > most_bytes_) return Status::Internal("a longer message than reserved");
    Hub::State& state = hub_->state[static_cast<size_t>(rank_)];
    if (state.messages++ < state.dies_at) return Status::Ok();
    Gone();
    return Hub::HasLeft(rank_);
  }
  void Step() {
    Hub::State& state = hub_->state[static_cast<size_t>(rank_)];
    if (state.steps++ == state.throws_at) throw std::bad_alloc();
  }
  Request Add(Pending pending) {
    pending_.push_back(std::move(pending));
    return std::ssize(pending_) - 1;
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::deque<Pending> pending_;
  int64_t most_requests_ = 0, under_way_ = 0;
  size_t most_bytes_ = 0;
};

ThreadRanks::ThreadRanks(int ranks, bool can_test) : hub_(std::make_shared<Hub>(ranks, can_test)) {}
ThreadRanks::~ThreadRanks() = default;

void ThreadRanks::Run(const std::function<void(const std::shared_ptr<Transport>&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < hub_->ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = std::make_shared<Rank>(hub_, rank);
      body(transport);
      transport->Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int64_t ThreadRanks::sent_bytes(int rank) const { return hub_->state[static_cast<size_t>(rank)].sent; }
int64_t ThreadRanks::received_bytes(int rank) const { return hub_->state[static_cast<size_t>(rank)].received; }
int64_t ThreadRanks::gathers(int rank) const { return hub_->state[static_cast<size_t>(rank)].gathers; }
int64_t ThreadRanks::tests(int rank) const { return hub_->state[static_cast<size_t>(rank)].tests; }

void ThreadRanks::DieAtMessage(int rank, int64_t message) { hub_->state[static_cast<size_t>(rank)].dies_at = message; }

void ThreadRanks::ThrowAtStep(int rank, int64_t step) { hub_->state[static_cast<size_t>(rank)].throws_at = step; }

int64_t ThreadRanks::steps(int rank) const { return hub_->state[static_cast<size_t>(rank)].steps; }

}  // namespace fa::test
