#ifndef FA_TRANSPORT_H_
#define FA_TRANSPORT_H_

/// @file
/// The interface through which a call over ranks moves bytes.
/// @code{.cpp}
/// // A transport of one rank, which has nobody to send to.
/// struct OneRank : fa::Transport {
///   int rank() const override { return 0; }
///   int ranks() const override { return 1; }
///   fa::Status Send(int, int, std::span<const std::byte>, Request*) override { return fa::Status::Internal("alone"); }
///   fa::Status Receive(int, int, std::span<std::byte>, Request*) override { return fa::Status::Internal("alone"); }
///   fa::Status Wait(Request) override { return fa::Status::Ok(); }
///   fa::Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
///     std::copy(mine.begin(), mine.end(), all.begin());
///     return fa::Status::Ok();
///   }
/// };
/// @endcode

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fa/export.h"
#include "fa/status.h"
#include "fa/version.h"
#include "fa/workspace.h"

namespace fa {

namespace ops {
struct TransportAccess;  // lets runs count what they move
}

/// Bytes of tensors that runs have moved over a transport. A gather over all ranks counts as one message to each other
/// rank and one message from each other rank. The bytes by which ranks agree on a status do not count.
struct Traffic {
  int64_t sent_bytes = 0, received_bytes = 0;
};

/// Moves bytes between the ranks of one call. Each rank has one object, which one thread uses at a time.
///
/// Messages of one tag from one rank to another arrive in the order in which they were sent. After an error or an
/// exception of any function but Reserve, the call ends, and the transport is not used again. Messages of that call may
/// still be under way, so its workspace stays with the transport (TakeKept).
///
/// A transport need not move messages between calls of its functions. In that case every call of Test or Wait must move
/// all messages that are under way, because a run tests one message at a time.
class FA_API Transport {
 public:
  /// The number of a message that is under way; >= 0.
  using Request = int64_t;
  /// Tags of messages are 0..kTags-1.
  static constexpr int kTags = 1 << 15;

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;

  /// Makes room for up to `requests` messages under way, none longer than `bytes`. The transport then sends and
  /// receives such messages without allocating more memory. So no rank runs short of memory in the middle of a run and
  /// leaves the others waiting. More or longer messages may allocate, or fail.
  ///
  /// Reserve is called once per plan, before the ranks agree that no rank has an error. Plans of one transport run one
  /// after another, so the room need only suffice for the plan that needs the most. No call makes the room smaller.
  /// After an error, or std::bad_alloc, the transport is used as before.
  [[nodiscard]] virtual Status Reserve(int64_t /*requests*/, size_t /*bytes*/) { return Status::Ok(); }
  /// Starts to send `bytes`, which must stay unchanged until Wait or Test says that they have left. Send returns
  /// without waiting for the receiver.
  /// @param tag  0..kTags-1
  [[nodiscard]] virtual Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) = 0;
  /// Starts to receive exactly `bytes.size()` bytes. The bytes have arrived when Wait or Test says so.
  [[nodiscard]] virtual Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) = 0;
  /// Returns when the message has left or arrived. Every request is ended once, by Wait or by Test.
  [[nodiscard]] virtual Status Wait(Request request) = 0;
  /// Tells without waiting whether the message has left or arrived. If so, Test has done what Wait does, and nobody
  /// waits for the request again. If Wait would return an error, Test must return the same error, for example because
  /// the other rank has left or a time-out has passed. Nothing else ends a call that polls. A transport that can only
  /// wait inherits this Test, which waits.
  [[nodiscard]] virtual Status Test(Request request, bool* done) {
    *done = true;
    return Wait(request);
  }
  /// Returns true if Test does not wait. If Test waits, a call over ranks computes and waits for messages in turn.
  /// Otherwise messages arrive while tasks run.
  [[nodiscard]] virtual bool CanTest() const { return false; }
  /// Fills `all` with `mine` of rank 0, then `mine` of rank 1 and so on. `mine` has the same length on every rank. The
  /// call is collective: every rank makes it.
  [[nodiscard]] virtual Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// Returns the bytes that all runs over this transport have moved so far. A run that succeeds adds the bytes that its
  /// plan predicts for this rank (PlanInfo::ranks).
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }

 protected:
  /// Hands over the workspaces of calls that an error has ended. Messages under way still read and write these
  /// workspaces, so they live as long as the transport. If messages may outlive the transport, its destructor must take
  /// the workspaces and keep them.
  [[nodiscard]] std::vector<Workspace> TakeKept() { return std::exchange(kept_, {}); }

 private:
  friend struct ops::TransportAccess;

  Traffic traffic_;
  int64_t under_way_ = 0;  ///< started messages of runs that nobody has waited for yet
  std::vector<Workspace> kept_;
};

}  // namespace fa

#endif  // FA_TRANSPORT_H_
