#include "ranks/rows/messenger.h"

#include <cstring>
#include <utility>

namespace fa::ops {

void SpoilResults(std::byte* results, size_t bytes) { std::memset(results, 0xff, bytes); }

Status Messenger::Start(const UnitMessages& messages, int tag, std::span<const std::byte* const> data,
                        const ExchangeBuffers& buffers) const {
  Transport::Request* request = buffers.requests;
  for (const PeerRows& message : messages.receive) {
    const std::span bytes(buffers.receive + message.offset, static_cast<size_t>(message.bytes));
    FA_RETURN_IF_ERROR(transport_.Receive(message.peer, tag, bytes, request++));
  }
  for (const PeerRows& message : messages.send) {
    std::byte* const begin = buffers.send + message.offset;
    std::byte* at = begin;
    for (size_t t = 0; t < from_.size(); ++t) {
      at = PackRows(from_[t], data[t], message.heads, message.Of(from_[t].axis), at);
    }
    FA_RETURN_IF_ERROR(transport_.Send(message.peer, tag, {begin, at}, request++));
  }
  return Status::Ok();
}

void Messenger::Keep(const UnitMessages& messages, std::span<const std::byte* const> from,
                     const ExchangeBuffers& buffers) const {
  std::byte* at = buffers.send + messages.send_bytes;
  for (size_t t = 0; t < from_.size(); ++t) {
    at = PackRows(from_[t], from[t], messages.kept_from.heads, messages.kept_from.Of(from_[t].axis), at);
  }
}

void Messenger::PutKept(const UnitMessages& messages, std::span<std::byte* const> to,
                        const ExchangeBuffers& buffers) const {
  const std::byte* at = buffers.send + messages.send_bytes;
  for (size_t t = 0; t < to_.size(); ++t) {
    at = UnpackRows(to_[t], to[t], messages.kept_to.heads, messages.kept_to.Of(to_[t].axis), at);
  }
}

Status Messenger::Arrive(const UnitMessages& messages, std::span<std::byte* const> to,
                         const ExchangeBuffers& buffers) const {
  Transport::Request* request = buffers.requests;
  for (const PeerRows& message : messages.receive) {
    FA_RETURN_IF_ERROR(Wait(*request++));
    const std::byte* at = buffers.receive + message.offset;
    for (size_t t = 0; t < to_.size(); ++t) {
      at = UnpackRows(to_[t], to[t], message.heads, message.Of(to_[t].axis), at);
    }
  }
  return Status::Ok();
}

Status Messenger::Leave(const UnitMessages& messages, const ExchangeBuffers& buffers) const {
  for (Transport::Request& request : buffers.RequestsOf(messages).subspan(messages.receive.size())) {
    FA_RETURN_IF_ERROR(Wait(request));
  }
  return Status::Ok();
}

Status Messenger::Wait(Transport::Request& request) const {
  return request == kNoRequest ? Status::Ok() : transport_.Wait(std::exchange(request, kNoRequest));
}

}  // namespace fa::ops
