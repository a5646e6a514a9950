#ifndef FA_TESTS_SUPPORT_THREAD_TRANSPORT_H_
#define FA_TESTS_SUPPORT_THREAD_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fa/transport.h"

namespace fa::test {

/// Ranks that are threads of one process. A message is copied when the receiver waits for it or finds it by Test. Only
/// then does the sender's wait end, so a sender that reuses its memory too early is noticed. It is an error if a rank
/// has more or longer messages under way than it has reserved memory for.
class ThreadRanks {
 public:
  /// @param can_test  whether Test returns without waiting
  explicit ThreadRanks(int ranks, bool can_test = true);
  ~ThreadRanks();

  /// Calls body(transport) on one thread per rank, and returns when all have ended. A rank leaves when its body
  /// returns. A rank that waits for one that has left gets an error.
  void Run(const std::function<void(const std::shared_ptr<Transport>&)>& body);

  /// Returns the bytes of messages that a rank has sent or received, without the messages of AllGather.
  [[nodiscard]] int64_t sent_bytes(int rank) const;
  [[nodiscard]] int64_t received_bytes(int rank) const;
  /// Returns how often the rank has called AllGather.
  [[nodiscard]] int64_t gathers(int rank) const;
  /// Returns how often the rank has called Test, if the transport can test.
  [[nodiscard]] int64_t tests(int rank) const;
  /// Makes a rank die: its message number `message` and all later ones fail.
  void DieAtMessage(int rank, int64_t message);
  /// Makes step number `step` of the rank, counted from 0, throw std::bad_alloc. Every operation of the transport is a
  /// step, except Test of a message that is still under way.
  void ThrowAtStep(int rank, int64_t step);
  [[nodiscard]] int64_t steps(int rank) const;

 private:
  struct Hub;
  class Rank;
  std::shared_ptr<Hub> hub_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_THREAD_TRANSPORT_H_
