#ifndef FA_TRANSPORT_H_
#define FA_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fa/export.h"
#include "fa/status.h"
#include "fa/workspace.h"

namespace fa {

namespace ops {
struct TransportAccess;  // lets runs count what they move
}

/// Bytes of tensors that runs have moved over a transport. What all ranks gather counts as a message to each other rank
/// and one from each; status words do not count.
struct Traffic {
  int64_t sent_bytes = 0, received_bytes = 0;
};

/// Moves bytes between the ranks of one call. One object per rank; it is used by one thread at a time.
///
/// Messages of one tag from one rank to another arrive in the order in which they were sent. An error of any function
/// but Reserve is final, and so is an exception: the call that meets it ends with it, and the transport is not used
/// again. What the call has under way may then go on, so its workspace stays with the transport (TakeKept).
///
/// Where a transport moves messages only while it is called, a call to Test or Wait moves all that are under way, and
/// not only the one that it is about: a run tests one at a time.
class FA_API Transport {
 public:
  /// Names a message under way, >= 0.
  using Request = int64_t;
  /// Tags of messages are 0..kTags-1.
  static constexpr int kTags = 1 << 15;

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;

  /// Makes room for up to `requests` messages under way, none longer than `bytes`: those it then sends and receives
  /// without further memory of its own, since a rank that runs short of memory in the middle leaves the others waiting.
  /// Messages beyond that may allocate, or fail. Called once per plan, before the ranks agree that all is well. Rooms
  /// do not add up, since plans of one transport run one after the other, and none shrinks. After an error, or
  /// std::bad_alloc, the transport is used as before.
  [[nodiscard]] virtual Status Reserve(int64_t /*requests*/, size_t /*bytes*/) { return Status::Ok(); }
  /// Starts to send `bytes`, which stay as they are until Wait or Test says that they have left. Returns without
  /// waiting for the receiver.
  /// @param tag  0..kTags-1
  [[nodiscard]] virtual Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) = 0;
  /// Starts to receive exactly `bytes.size()` bytes, which are there when Wait or Test says so.
  [[nodiscard]] virtual Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) = 0;
  /// Returns when the message has left or arrived. Every request is waited for once, by Wait or by Test.
  [[nodiscard]] virtual Status Wait(Request request) = 0;
  /// Without waiting: whether the message has left or arrived. If so, Test has done what Wait does, and the request is
  /// not waited for. Where Wait would end with an error, because the other rank has left or after the transport's own
  /// time-out, Test returns it too: nothing else ends a call that polls. A transport that can only wait has the Test of
  /// this class, which waits.
  [[nodiscard]] virtual Status Test(Request request, bool* done) {
    *done = true;
    return Wait(request);
  }
  /// Whether Test does not wait. If it waits, a call over ranks computes one step after the other and waits for
  /// messages between them; else messages arrive while tasks run.
  [[nodiscard]] virtual bool CanTest() const { return false; }
  /// all = `mine` of rank 0, then of rank 1 ...: `mine` is as long on every rank. Collective.
  [[nodiscard]] virtual Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// What all runs over this transport have moved so far, counted message by message as they begin. A run that succeeds
  /// adds the bytes that its plan tells of this rank (PlanInfo::ranks).
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }

 protected:
  /// Workspaces of calls that an error has ended with messages under way, which still read and write them. They live as
  /// long as the transport; one whose messages may outlive it, as a wrapper of another's may, takes them when it ends.
  [[nodiscard]] std::vector<Workspace> TakeKept() { return std::exchange(kept_, {}); }

 private:
  friend struct ops::TransportAccess;

  Traffic traffic_;
  int64_t under_way_ = 0;  ///< messages of runs that nobody has waited for
  std::vector<Workspace> kept_;
};

}  // namespace fa

#endif  // FA_TRANSPORT_H_
