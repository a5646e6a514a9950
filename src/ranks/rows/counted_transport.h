#ifndef FA_RANKS_ROWS_COUNTED_TRANSPORT_H_
#define FA_RANKS_ROWS_COUNTED_TRANSPORT_H_

#include <cstddef>
#include <span>

#include "fa/transport.h"
#include "fa/workspace.h"

namespace fa::ops {

/// Wraps the transport of a run. The wrapper counts the bytes of tensors (Transport::traffic) and the messages that are
/// under way. The messages of agreement.h do not pass through this class, so they are not counted.
class CountedTransport final : public Transport {
 public:
  explicit CountedTransport(Transport& transport) : transport_(transport) {}

  [[nodiscard]] int rank() const override { return transport_.rank(); }
  [[nodiscard]] int ranks() const override { return transport_.ranks(); }
  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override;
  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override;
  Status Wait(Request request) override;
  Status Test(Request request, bool* done) override;
  [[nodiscard]] bool CanTest() const override { return transport_.CanTest(); }
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;

 private:
  Transport& transport_;
};

/// Makes room in the transport for the workspace that KeepIfUnderWay may put into the transport. @throws std::bad_alloc
void ReserveKept(Transport& transport);
/// Call this function after a run that failed. If messages are still under way, the transport takes over the memory of
/// `workspace`, which becomes empty.
void KeepIfUnderWay(Transport& transport, Workspace& workspace) noexcept;

}  // namespace fa::ops

#endif  // FA_RANKS_ROWS_COUNTED_TRANSPORT_H_
