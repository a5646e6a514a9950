#include "ranks/rows/counted_transport.h"

#include <cstdint>
#include <utility>

namespace fa::ops {

struct TransportAccess {
  static Traffic& TrafficOf(Transport& transport) { return transport.traffic_; }
  static int64_t& UnderWay(Transport& transport) { return transport.under_way_; }
  static std::vector<Workspace>& Kept(Transport& transport) { return transport.kept_; }
};

// A message counts as under way before it is started, because part of it may be under way even if starting it fails.

Status CountedTransport::Send(int to, int tag, std::span<const std::byte> bytes, Request* request) {
  ++TransportAccess::UnderWay(transport_);
  TransportAccess::TrafficOf(transport_).sent_bytes += static_cast<int64_t>(bytes.size());
  return transport_.Send(to, tag, bytes, request);
}

Status CountedTransport::Receive(int from, int tag, std::span<std::byte> bytes, Request* request) {
  ++TransportAccess::UnderWay(transport_);
  TransportAccess::TrafficOf(transport_).received_bytes += static_cast<int64_t>(bytes.size());
  return transport_.Receive(from, tag, bytes, request);
}

Status CountedTransport::Wait(Request request) {
  Status status = transport_.Wait(request);
  if (status.ok()) --TransportAccess::UnderWay(transport_);
  return status;
}

Status CountedTransport::Test(Request request, bool* done) {
  Status status = transport_.Test(request, done);
  if (status.ok() && *done) --TransportAccess::UnderWay(transport_);
  return status;
}

Status CountedTransport::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto of_others = static_cast<int64_t>(all.size() - mine.size());
  TransportAccess::TrafficOf(transport_).sent_bytes += of_others;
  TransportAccess::TrafficOf(transport_).received_bytes += of_others;
  return transport_.AllGather(mine, all);
}

void ReserveKept(Transport& transport) {
  std::vector<Workspace>& kept = TransportAccess::Kept(transport);
  kept.reserve(kept.size() + 1);
}

void KeepIfUnderWay(Transport& transport, Workspace& workspace) noexcept {
  if (TransportAccess::UnderWay(transport) == 0) return;
  TransportAccess::Kept(transport).push_back(std::move(workspace));
  // Counting from 0 again does no harm, because the transport is not used again.
  TransportAccess::UnderWay(transport) = 0;
}

}  // namespace fa::ops
