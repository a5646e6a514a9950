#ifndef FA_TESTS_SUPPORT_THREAD_TRANSPORT_H_
#define FA_TESTS_SUPPORT_THREAD_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fa/transport.h"

namespace fa::test {

/// Ranks as threads of one process. A message is copied from the sender's memory into the receiver's when the receiver
/// waits for it or finds it by Test, and the sender's wait ends only then: memory that is used again too early shows.
/// More messages under way than a rank has reserved room for, or longer ones, are an error.
class ThreadRanks {
 public:
  /// @param can_test  false: transports that can only wait
  explicit ThreadRanks(int ranks, bool can_test = true);
  ~ThreadRanks();

  /// Calls body(transport) on one thread per rank, and returns when all have ended. A rank whose body has returned has
  /// left: whoever waits for it gets an error.
  void Run(const std::function<void(const std::shared_ptr<Transport>&)>& body);

  /// Bytes of messages that a rank has sent (received), those of AllGather apart.
  [[nodiscard]] int64_t sent_bytes(int rank) const;
  [[nodiscard]] int64_t received_bytes(int rank) const;
  /// Calls of AllGather.
  [[nodiscard]] int64_t gathers(int rank) const;
  /// Calls of Test, where it does not wait.
  [[nodiscard]] int64_t tests(int rank) const;
  /// The message of that number and all later ones of `rank` fail: the rank has died.
  void DieAtMessage(int rank, int64_t message);
  /// The step of that number of `rank`, counted from 0, finds no memory: std::bad_alloc. Steps are all that a transport
  /// does, but Test of a message that is still under way.
  void ThrowAtStep(int rank, int64_t step);
  [[nodiscard]] int64_t steps(int rank) const;

 private:
  struct Hub;
  class Rank;
  std::shared_ptr<Hub> hub_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_THREAD_TRANSPORT_H_
